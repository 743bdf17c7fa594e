"""How far a kernel may be from its reference: the one rule that tests and `fastpe doctor` apply.

    max|kernel - ref| <= 2 max|numpy - ref| + 8 condition eps log2(terms) max|ref|

`ref` is computed in higher precision, `numpy` is the same formula in the kernel's own dtype, and `terms` counts those
of the longest sum. Gradients of many arguments differ in size: each is measured by its own terms (`sum_bound`,
`gradient_differences`). Fills have their own rule, which each encoding states (`fill_bound`).
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
    """The largest error of a result, and the largest that it may have; in words, what has it where."""

    error: float
    bound: float
    where: str = ""

    @property
    def allowed(self) -> bool:
        """Whether the error is within the bound; one that is no number never is."""
        return self.error <= self.bound < math.inf

    @property
    def share(self) -> float:
        """The part of the bound that the error takes up; infinite where the error is no number."""
        if self.error == 0.0:
            return 0.0
        return self.error / self.bound if self.bound > 0.0 and math.isfinite(self.error) else math.inf


def wider(dtype: Any) -> Any:
    """The dtype in which a kernel's reference is computed: float64, and for float64 what the platform has beyond it.

    >>> wider("float32").__name__
    'float64'
    """
    return np.float64 if np.dtype(dtype) == np.float32 else np.longdouble


def difference(result: Any, reference: Any, same_dtype: Any, terms: int, condition: float = 1.0) -> Difference:
    """The error of a kernel's result, and the bound of the law above.

    Parameters
    ----------
    result : array
        What the kernel gave.
    reference : array
        The formula in higher precision.
    same_dtype : array
        The formula in NumPy, in the kernel's own dtype.
    terms : int
        Terms of the longest sum.
    condition : float
        How far the rounding of the inputs is amplified.

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
    """The largest error of every entry of a gradient, by the sum of the sizes of its own terms.

        |kernel - ref| <= 8 condition (eps log2(terms) (s + eps max s) + terms tiny),   s = sum |term|

    Entries that are small because large terms cancel may be off by what those round to, small ones of small terms may
    not; what is left out is small beside the largest, and a term that underflows is off by the smallest normal number.

    Parameters
    ----------
    sizes : array
        The reference's gradient, pulled back from `fastpe.reference` `Sizes`.
    dtype : float32 or float64
        The kernel's.
    terms, condition
        As for `difference`.

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
    """The error of each gradient of a whole model, and its bound: tol (max|ref| + 0.001 max sum|terms|).

    `sizes` are the sums of the sizes of its own terms, as from `ModelEncoding.reference_gradient_sizes`: some gradients
    are exactly zero in theory, and what rounding leaves of their terms is measured by these, never by another gradient.
    tol is 1e-4 in float32 and 1e-9 in float64.
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
    """Relative error that a whole training step may have."""
    return _STEP_TOLERANCE[np.dtype(dtype)]


def fill_bound(part: Part, spec: Spec, reference: Mapping[str, Array]) -> dict[str, Array]:
    """The largest error that `fill` may make in each entry, by the encoding's own statement.

    `ulp` times the float64 precision times the slot's largest value, and in float32 half a unit of rounding on top.
    Angles are what whole turns leave: all may be 0, and then what the turns are known to is what they are off by, the
    square of that precision times the farthest position.
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
    """The absolute error of each entry; of angles, the smaller one around the circle."""
    error = np.abs(filled - reference)
    return np.minimum(error, np.abs(2 * np.pi - error)) if slot == "angles" else error
