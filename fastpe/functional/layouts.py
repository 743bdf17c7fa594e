"""Arrays as kernels are compiled for: rows in one piece, memory that may be written to; and sums to a given shape."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_PLAIN = 0x501  # NumPy's flags of an array that is in one piece, aligned and writeable


def contiguous(x: Array, dtype: Any) -> Array:
    """x in one piece that may be written to, as kernels are compiled for; x itself where it is so."""
    if x.dtype == dtype and x.flags.num & _PLAIN == _PLAIN:
        return x
    return np.require(x, dtype, ["C", "A", "W"])


def address_of(x: Array) -> int:
    """Where the first element of x lies."""
    return int(x.__array_interface__["data"][0])


def plain_rows(x: Array) -> Array:
    """x with contiguous rows in plain strides; x itself where it has them."""
    if x.flags.num & _PLAIN == _PLAIN:
        return x
    plain = x.strides[-1] == x.itemsize and all(s % x.itemsize == 0 for s in x.strides) and x.flags.writeable
    return x if plain and x.flags.aligned else np.array(x, order="C")


def summed_to(x: Array, shape: tuple[int, ...]) -> Array:
    """x summed over the axes that are 1 in `shape`."""
    repeated = tuple(axis for axis, size in enumerate(shape) if size == 1 and x.shape[axis] != 1)
    if not repeated:
        return x
    # in float64: NumPy adds along other axes than the last one number by number
    return x.sum(axis=repeated, keepdims=True, dtype=np.float64).astype(x.dtype)
