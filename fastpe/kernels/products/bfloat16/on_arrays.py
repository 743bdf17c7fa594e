"""The product of rounded operands on NumPy arrays, for tests, benchmarks and `fastpe doctor`."""

from typing import Any

import numpy as np

from fastpe.kernels.compile.decorators import entry
from fastpe.kernels.products.bfloat16.isa import Isa, fastest, named, rounding
from fastpe.kernels.products.bfloat16.pack import STEP, pack_band, packed_words
from fastpe.kernels.products.bfloat16.product import MEMORY
from fastpe.kernels.products.gemm import gemm, transpose_operand
from fastpe.kernels.simd import aligned_zeros, pointer

Array = np.ndarray[Any, Any]


@entry(label="products of bfloat16 numbers")
def _product(isa, memory, a, b, b_row, c, mode, d, e, times):
    """C = f(start + A B), `times` times; a single row of d or e is repeated."""
    ai, aj, room = a.strides[0] // a.itemsize, a.strides[1] // a.itemsize, pointer(memory)
    for _ in range(times):
        gemm(
            rounding(pointer(a), room, isa), ai, aj, rounding(pointer(b), room, isa), b_row,
            rounding(pointer(c), room, isa), c.shape[1], c.shape[0], c.shape[1], a.shape[1], mode,
            rounding(pointer(d), room, isa), d.shape[1] if d.shape[0] > 1 else 0, rounding(pointer(e), room, isa),
            e.shape[1] if e.shape[0] > 1 else 0,
        )  # fmt: skip


@entry(label="the packing of bfloat16 numbers")
def _pack(isa, matrix, square, words, words_of_transpose):
    """Pack a matrix and its transpose, band by band."""
    rows, columns = matrix.shape
    for first in range(0, rows, STEP):
        pack_band(
            named(isa), pointer(matrix), first, rows, columns, pointer(square), pointer(words),
            pointer(words_of_transpose),
        )  # fmt: skip


def packed(matrix: Array, isa: Isa | None = None) -> tuple[Array, Array]:
    """Return the words of a float32 matrix, packed as operand B of products, and the words of its transpose."""
    words, of_transpose = (np.full(packed_words(*matrix.shape), np.nan, np.float32) for _ in range(2))
    _pack(isa or fastest(), matrix, aligned_zeros(int(STEP * STEP), np.float32), words, of_transpose)
    return words, of_transpose


@entry(label="the packing of turned bfloat16 numbers")
def _turn(isa, memory, rows, words):
    target, row = rounding(pointer(words), pointer(memory), isa), rows.strides[0] // rows.itemsize
    transpose_operand(pointer(rows), row, target, rows.shape[0], rows.shape[0], rows.shape[1])


def turned_into(words: Array, rows: Array, isa: Isa | None = None) -> None:
    """Write the transpose of the float32 matrix `rows` to `words`, packed as operand B of products. There may be gaps
    between the rows in memory."""
    _turn(isa or fastest(), aligned_zeros(MEMORY, np.float32), rows, words)


def product_into(
    c: Array, a: Array, b: Array, mode: int = 0, d: Array | None = None, e: Array | None = None,
    isa: Isa | None = None, times: int = 1, memory: Array | None = None, packed_rows: int = 0,
) -> None:  # fmt: skip
    """Compute c = f(start + a b) for float32 matrices a (m, k) and b (k, n), which are rounded to bfloat16. a may be
    stored transposed. `mode` is as in `kernels.products.float_gemm`.

    d, e: (m, n) or (1, n). isa: by default the fastest instruction set. memory: MEMORY elements. packed_rows: if b is
    packed, the number of rows of the packed matrix, of which the first k rows and n columns are used.
    """
    room = aligned_zeros(MEMORY, np.float32) if memory is None else memory
    first, second = (c if addend is None else addend for addend in (d, e))
    b = b[None] if packed_rows else np.ascontiguousarray(b)
    row = np.int64(-packed_rows or b.shape[1])
    _product(isa or fastest(), room, a, b, row, c, np.int64(mode), first, second, np.int64(times))


def product(
    a: Array, b: Array, mode: int = 0, d: Array | None = None, e: Array | None = None, isa: Isa | None = None
) -> Array:
    """Return the result of `product_into` in a new array."""
    c = np.full((a.shape[0], b.shape[1]), np.nan, np.float32)
    product_into(c, a, b, mode, d, e, isa)
    return c
