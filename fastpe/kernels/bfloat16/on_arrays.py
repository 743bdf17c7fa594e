"""The product of rounded operands on NumPy arrays: what tests, benchmarks and `fastpe doctor` call."""

from typing import Any

import numpy as np

from fastpe.kernels._jit import entry
from fastpe.kernels.bfloat16.product import MEMORY
from fastpe.kernels.bfloat16.way import Way, fastest, rounding
from fastpe.kernels.gemm import gemm
from fastpe.kernels.simd import aligned_zeros, pointer

Array = np.ndarray[Any, Any]


@entry(label="products of bfloat16 numbers")
def _product(way, memory, a, b, c, mode, d, e, times):
    """C = f(start + A B), `times` times over; a row of d or e alone is repeated."""
    ai, aj, room = a.strides[0] // a.itemsize, a.strides[1] // a.itemsize, pointer(memory)
    for _ in range(times):
        gemm(
            rounding(pointer(a), room, way), ai, aj, rounding(pointer(b), room, way), b.shape[1],
            rounding(pointer(c), room, way), c.shape[1], c.shape[0], c.shape[1], b.shape[0], mode,
            rounding(pointer(d), room, way), d.shape[1] if d.shape[0] > 1 else 0, rounding(pointer(e), room, way),
            e.shape[1] if e.shape[0] > 1 else 0,
        )  # fmt: skip


def product_into(
    c: Array, a: Array, b: Array, mode: int = 0, d: Array | None = None, e: Array | None = None,
    way: Way | None = None, times: int = 1, memory: Array | None = None,
) -> None:  # fmt: skip
    """c = f(start + a b), of a (m, k), plain or transposed, and b (k, n), float32, rounded; mode as in `kernels.gemm`.

    d, e : (m, n) or (1, n). way: the fastest by default. memory: MEMORY elements.
    """
    room = aligned_zeros(MEMORY, np.float32) if memory is None else memory
    first, second = (c if addend is None else addend for addend in (d, e))
    _product(way or fastest(), room, a, np.ascontiguousarray(b), c, np.int64(mode), first, second, np.int64(times))


def product(
    a: Array, b: Array, mode: int = 0, d: Array | None = None, e: Array | None = None, way: Way | None = None
) -> Array:
    """As `product_into`, into a new array."""
    c = np.full((a.shape[0], b.shape[1]), np.nan, np.float32)
    product_into(c, a, b, mode, d, e, way)
    return c
