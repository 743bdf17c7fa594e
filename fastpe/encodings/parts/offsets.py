"""Code shared by encodings that depend only on the offset j - i, the position of the key minus that of the query.

Row o + K of a slot's 2K+1 rows belongs to offset o; offsets beyond K share the first or the last row.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fastpe.encodings.parts.frequencies import frequencies
from fastpe.encodings.slots import Spec
from fastpe.kernels.compile.decorators import entry
from fastpe.kernels.fills.trig import sincos
from fastpe.kernels.simd import lanes, load, pointer, splat, store

Array = np.ndarray[Any, Any]

STANDARD_DEVIATION = 0.02
MOST_REACH = 1e6  # largest clipping distance in an option: all its rows are kept, even for short sequences
_BLOCK_ELEMENTS = 2**14


def check_offsets(name: str, spec: Spec) -> None:
    """Raise ValueError if positions are given, or if the heads do not divide the width."""
    if spec.positions is not None:
        raise ValueError(f"positions cannot be given: {name!r} supports only offsets of consecutive positions")
    _ = spec.head_dim


def stream_of(rng: Any, parameter: str) -> Any:
    """The random stream of one parameter; no two parameters of an encoding share a stream."""
    return replace(rng, step=f"{rng.step}.{parameter}")


def per_head(rows: Array, heads: int) -> Array:
    """Reshape (rows, C) to (H, rows, D)."""
    return rows.reshape(len(rows), heads, -1).transpose(1, 0, 2)


def whole_width(rows: Array) -> Array:
    """Reshape (H, rows, D) to (rows, C), the inverse of `per_head`; return float64."""
    return rows.transpose(1, 0, 2).reshape(rows.shape[1], -1).astype(np.float64)


def sides(slot: Array) -> tuple[Array, Array]:
    """Two views of a slot (H, 2K+1, ...): the rows of keys at distances 0 .. K before the query, and the rows of keys
    after it.

    >>> [side.tolist() for side in sides(np.array([[1, 2, 3]]))]
    [[[2, 1]], [[2, 3]]]
    """
    reach = slot.shape[1] // 2
    return slot[:, reach::-1], slot[:, reach:]


def blocks(count: int, width: int) -> Iterator[slice]:
    """Yield slices of 0 .. count - 1 that are so short that `width` numbers per element fit in the cache."""
    rows = max(1, _BLOCK_ELEMENTS // width)
    for start in range(0, count, rows):
        yield slice(start, min(start + rows, count))


def waves(distances: slice | Array, base: float, dim: int, count: int) -> tuple[Array, Array]:
    """sin and cos of m base^(-2t/dim), each (distances, count) float64: row m, column t."""
    omega = frequencies(base, dim)
    if isinstance(distances, slice):
        distances = np.arange(distances.start, distances.stop, dtype=np.float64)
    sine, cosine = np.empty((2, len(distances), omega.shape[1]))
    _waves(distances, omega, sine, cosine)
    return np.ascontiguousarray(sine[:, :count]), np.ascontiguousarray(cosine[:, :count])


@entry(label="sines and cosines of offsets")
def _waves(distances: Array, omega: Array, sine: Array, cosine: Array) -> None:
    high, padded = pointer(omega), omega.shape[1]
    for row in range(sine.shape[0]):
        for t in range(0, padded, lanes(high)):
            s, c = sincos(splat(distances[row]), load(high, t), load(high, padded + t))
            store(pointer(sine), row * padded + t, s)
            store(pointer(cosine), row * padded + t, c)
