"""Helpers for NumPy functions with gradients: reading of arguments, and conversion of gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastpe.base import validation

Array = np.ndarray[Any, Any]
Pullback = Callable[[Any], dict[str, Array]]


def given(name: str, value: Any, *, finite: bool = True) -> Array:
    """Return an argument as a float64 array of real numbers. `finite` says whether NaN and infinity are errors."""
    array = validation.array(name, value)
    if not finite:
        return array.astype(np.float64)
    return validation.finite(name, array, np.float64).reshape(array.shape)


def like(x: Array, value: Any) -> Array:
    """Return x in the dtype of an argument, or unchanged if the argument has no floating dtype.

    >>> like(np.ones(1), np.ones(1, np.float32)).dtype, like(np.ones(1), [1]).dtype
    (dtype('float32'), dtype('float64'))
    """
    dtype = getattr(value, "dtype", None)
    return x.astype(dtype, copy=False) if isinstance(dtype, np.dtype) and dtype.kind == "f" else x


def summed_to(x: Array, shape: tuple[int, ...]) -> Array:
    """Return the sum of x over the axes along which an array of this shape was repeated (broadcast).

    >>> summed_to(np.ones((2, 3, 4)), (3, 1)).tolist()
    [[8.0], [8.0], [8.0]]
    """
    led = x.sum(axis=tuple(range(x.ndim - len(shape))))
    repeated = tuple(axis for axis, size in enumerate(shape) if size == 1 and led.shape[axis] != 1)
    return np.asarray(led.sum(axis=repeated, keepdims=True))
