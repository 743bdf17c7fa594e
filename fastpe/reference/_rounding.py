"""Matrix products with operands rounded to bfloat16, the arithmetic of `precision="bfloat16"`, in plain NumPy."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_LEAST = 2.0**-126  # smaller values are rounded to zero


def bfloat16(x: Any) -> Array:
    """Return x rounded to bfloat16 (to nearest, ties to even), as float32, or as float64 if x is float64.

    bfloat16 keeps 8 of the 24 significant bits of a float32, so the relative error is at most 2^-8. NaN and infinity
    are kept. Absolute values below 2^-126 become zero, as in the CPU's bfloat16 instructions.

    Parameters
    ----------
    x : array_like of floats

    Returns
    -------
    array of x's shape, float64 if x is float64, otherwise float32

    Examples
    --------
    >>> bfloat16([1.0, 1 + 2**-8, 1 + 3 * 2**-8]).tolist()
    [1.0, 1.0, 1.015625]
    """
    given = np.asarray(x)
    with np.errstate(over="ignore"):
        narrow = np.asarray(given, np.float32)
    bits = narrow.view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)
    rounded = np.where(np.isnan(narrow), narrow, nearest.view(np.float32))
    rounded = np.where(np.abs(narrow) < np.float32(_LEAST), np.copysign(np.float32(0), narrow), rounded)
    return rounded.astype(given.dtype if given.dtype == np.float64 else np.float32)


class Rounding(np.ndarray):
    """An array whose matrix products round both operands to bfloat16; other operations are unchanged.

    Examples
    --------
    >>> x = np.array([[1 + 2**-9]]).view(Rounding)
    >>> (x @ x).item(), (x * x).item() > 1
    (1.0, True)
    """

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        """Apply the operation to plain arrays, with rounded operands if it is a matrix product."""
        own = [np.asarray(each) if isinstance(each, np.ndarray) else each for each in inputs]
        if "out" in keywords:
            keywords["out"] = tuple(map(np.asarray, keywords["out"]))
        if ufunc is np.matmul:
            own = [bfloat16(each) for each in own]
        result = getattr(ufunc, method)(*own, **keywords)
        return result.view(Rounding) if isinstance(result, np.ndarray) else result


def exactly(vjp: Any) -> Any:
    """Return a version of an operation that rounds neither in the operation nor in its pullback. Later products round
    the value that it returns.

    A model of numbers needs this at its input and output, which are not matrix products.
    """

    def exact(*arguments: Any) -> Any:
        value, pull = vjp(*map(_plain, arguments))
        return like(value, arguments[-1]), lambda dvalue: pull(_plain(dvalue))

    return exact


def _plain(x: Array) -> Array:
    return np.asarray(x) if isinstance(x, Rounding) else x


def like(x: Array, other: Any) -> Array:
    """Return x as an array whose products round if those of `other` do."""
    return x.view(Rounding) if isinstance(other, Rounding) else x
