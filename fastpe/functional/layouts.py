"""Conversion of arrays to the layout that kernels are compiled for (contiguous, writeable). Also sums over axes that
were repeated."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_PLAIN = 0x501  # NumPy's flags of an array that is C-contiguous, aligned and writeable


def contiguous(x: Array, dtype: Any) -> Array:
    """Return x as a C-contiguous, aligned, writeable array of this dtype. If x is such an array, return x itself."""
    if x.dtype == dtype and x.flags.num & _PLAIN == _PLAIN:
        return x
    return np.require(x, dtype, ["C", "A", "W"])


def address_of(x: Array) -> int:
    """Return the address of the first element of x."""
    return int(x.__array_interface__["data"][0])


def plain_rows(x: Array) -> Array:
    """Return x with contiguous rows, and strides that are multiples of the item size. If x has these,
    return x itself.
    """
    if x.flags.num & _PLAIN == _PLAIN:
        return x
    plain = x.strides[-1] == x.itemsize and all(s % x.itemsize == 0 for s in x.strides) and x.flags.writeable
    return x if plain and x.flags.aligned else np.array(x, order="C")


def summed_to(x: Array, shape: tuple[int, ...]) -> Array:
    """Return x, summed over the axes that have size 1 in `shape`."""
    repeated = tuple(axis for axis, size in enumerate(shape) if size == 1 and x.shape[axis] != 1)
    if not repeated:
        return x
    # in float64, because NumPy sums axes other than the last one without pairwise summation
    return x.sum(axis=repeated, keepdims=True, dtype=np.float64).astype(x.dtype)
