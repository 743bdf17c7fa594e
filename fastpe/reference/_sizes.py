"""Sums of the absolute values of terms, which are a scale for the rounding errors of a gradient."""

from typing import Any

import numpy as np


class Sizes(np.ndarray):
    """An array whose operations take absolute values of their operands, and add where they would subtract.

    A pullback is linear. Applied to an array of this class, it returns sum |term| where it would otherwise return the
    sum of the terms. The computed sum is off by at most a small multiple of eps sum |term|, in any order (Higham 2002,
    "Accuracy and Stability of Numerical Algorithms", sections 3.1 and 4.2), even if large terms nearly cancel.

    Examples
    --------
    >>> d = np.array([3.0, -2.0, 1.0])
    >>> (np.ones(3) @ (d - 2.0)).item(), (np.ones(3) @ (d.view(Sizes) - 2.0)).item()
    (-4.0, 12.0)
    """

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        """Apply the operation to plain arrays of absolute values."""
        if method == "at":  # the first operand is modified in place
            return getattr(ufunc, method)(np.asarray(inputs[0]), inputs[1], np.abs(np.asarray(inputs[2])))
        if "out" in keywords:
            keywords["out"] = tuple(map(np.asarray, keywords["out"]))
        ufunc = {np.subtract: np.add, np.negative: np.absolute}.get(ufunc, ufunc)
        sizes = (np.abs(np.asarray(array)) for array in inputs)
        return np.asarray(getattr(ufunc, method)(*sizes, **keywords)).view(Sizes)

    def __array_function__(self, function: Any, types: Any, arguments: Any, keywords: Any) -> Any:
        """Return NumPy's result, converted to this type."""
        result = super().__array_function__(function, types, arguments, keywords)
        return result.view(Sizes) if isinstance(result, np.ndarray) else result
