"""The largest allowed difference between a kernel and its reference, for the tests and for `fastpe doctor`.

    max|kernel - ref| <= 2 max|numpy - ref| + 8 condition eps log2(terms) max|ref|

`ref` is computed in higher precision, `numpy` is the same formula in the dtype of the kernel, and `terms` is the number
of terms of the longest sum. The gradients of several arguments differ in size, so the bound of each one depends on its
terms (`sum_bound`, `gradient_differences`). The bound for a fill is stated by its encoding (`fill_bound`).
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fastpe.encodings.encoding import Part
from fastpe.encodings.slots import Spec

Array = np.ndarray[Any, Any]

_STEP_TOLERANCE = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-9}


class Difference(NamedTuple):
    """The largest error of a result, the largest allowed error, and a description of the entry with the error."""

    error: float
    bound: float
    where: str = ""

    @property
    def allowed(self) -> bool:
        """Return whether the error is within the bound. An error that is NaN is never allowed."""
        return self.error <= self.bound < math.inf

    @property
    def share(self) -> float:
        """Return the error divided by the bound, or infinity if the error is NaN."""
        if self.error == 0.0:
            return 0.0
        return self.error / self.bound if self.bound > 0.0 and math.isfinite(self.error) else math.inf


def wider(dtype: Any) -> Any:
    """Return the dtype of the reference of a kernel: float64, or for float64 the widest dtype of the platform.

    >>> wider("float32").__name__
    'float64'
    """
    return np.float64 if np.dtype(dtype) == np.float32 else np.longdouble


def difference(result: Any, reference: Any, same_dtype: Any, terms: int, condition: float = 1.0) -> Difference:
    """Return the error of a kernel's result and its bound, by the formula in the module docstring.

    Parameters
    ----------
    result : array
        The result of the kernel.
    reference : array
        The formula in higher precision.
    same_dtype : array
        The formula in NumPy, in the dtype of the kernel.
    terms : int
        Number of terms of the longest sum.
    condition : float
        Factor by which the formula amplifies the rounding of its inputs.

    Examples
    --------
    >>> difference(np.float32([1.0, 2.0]), np.array([1.0, 2.5]), np.float32([1.0, 2.25]), terms=2).error
    0.5
    """
    result, reference, same_dtype = (np.asarray(value) for value in (result, reference, same_dtype))
    eps = float(np.finfo(same_dtype.dtype).eps)
    size = float(np.abs(reference).max(initial=0.0))
    numpy_error = float(np.abs(same_dtype - reference).max(initial=0.0))
    bound = 2 * numpy_error + 8 * condition * eps * max(1.0, math.log2(max(terms, 2))) * size
    return Difference(float(np.abs(result - reference).max(initial=0.0)), bound)


def sum_bound(sizes: Array, dtype: Any, terms: int, condition: float = 1.0) -> Array:
    """Return the allowed error of every entry of a gradient, from the sum of the absolute values of its terms.

        |kernel - ref| <= 8 condition (eps log2(terms) (s + eps max s) + terms tiny),   s = sum |term|

    If an entry is small because large terms cancel, the rounding error of these terms is allowed. If it is small
    because its terms are small, only a small error is allowed. The part `eps max s` allows for neglected terms, which
    are small relative to the largest. The part `tiny`, the smallest normal number, allows for terms that underflow.

    Parameters
    ----------
    sizes : array
        The gradient of the reference, pulled back from `fastpe.reference` `Sizes`.
    dtype : float32 or float64
        The dtype of the kernel.
    terms, condition
        The same as for `difference`.

    Examples
    --------
    >>> (sum_bound(np.array([1.0, 1000.0]), "float32", terms=16) * 2**23).round(3).tolist()
    [32.004, 32000.004]
    """
    eps, tiny = float(np.finfo(dtype).eps), float(np.finfo(dtype).tiny)
    relative = eps * max(1.0, math.log2(max(terms, 2)))
    bound: Array = 8 * condition * (relative * (sizes + eps * np.max(sizes, initial=0.0)) + terms * tiny)
    return bound


def gradient_differences(
    gradients: Mapping[str, Array], reference: Mapping[str, Array], sizes: Mapping[str, Array], dtype: Any
) -> dict[str, Difference]:
    """Return the error of each gradient of a whole model, with its bound `tol * (max|ref| + 0.001 * max sum|terms|)`.

    `sizes` holds, for each gradient, the sums of the absolute values of its terms, as
    `ModelEncoding.reference_gradient_sizes` returns them. Some gradients are exactly zero in theory. Their rounding
    errors are compared with these sums and never with another gradient. tol is 1e-4 in float32 and 1e-9 in float64.
    """
    tolerance = step_tolerance(dtype)
    return {
        name: Difference(
            float(np.abs(gradients[name] - value).max()),
            tolerance * (float(np.abs(value).max()) + 0.001 * float(np.max(sizes[name]))),
        )
        for name, value in reference.items()
    }


def step_tolerance(dtype: Any) -> float:
    """Return the allowed relative error of a whole training step."""
    return _STEP_TOLERANCE[np.dtype(dtype)]


def fill_bound(part: Part, spec: Spec, reference: Mapping[str, Array]) -> dict[str, Array]:
    """Return the largest error that `fill` may make in each entry, as the encoding states it.

    The bound is `ulp` times the float64 epsilon times the largest value of the slot. In float32, half a unit in the
    last place is added. Angles are reduced by full turns, so all of them may be 0. Therefore, the largest value of
    angles is taken to be at least the uncertainty of the turns: 2 pi times the farthest position times the float64
    epsilon.
    """
    ulp = part.encoding.ulp
    factor = ulp(spec, **part.options) if callable(ulp) else ulp
    bounds = {}
    for slot, exact in reference.items():
        size = np.abs(exact).max(initial=0.0)
        if slot == "angles":
            size = max(size, 2 * np.pi * spec.farthest * np.finfo(np.float64).eps)
        bound = factor * np.finfo(np.float64).eps * size
        if spec.dtype == np.float32:
            bound = bound + np.abs(exact) * (np.finfo(np.float32).eps / 2) + np.finfo(np.float32).smallest_subnormal
        bounds[slot] = np.broadcast_to(bound, exact.shape)
    return bounds


def fill_error(slot: str, filled: Array, reference: Array) -> Array:
    """Return the absolute error of each entry. For angles it is the smaller difference around the circle."""
    error = np.abs(filled - reference)
    return np.minimum(error, np.abs(2 * np.pi - error)) if slot == "angles" else error
