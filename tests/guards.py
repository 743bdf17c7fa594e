"""Arrays that notice when somebody writes past their ends, and the error law that kernels must obey."""

import numpy as np

_WORDS = 32
_MARK = -12345.0


def guarded(shape, dtype, fill=np.nan):
    """An array between two strips of guard words, and a function that asserts that the strips are untouched."""
    size = int(np.prod(shape))
    whole = np.full(size + 2 * _WORDS, _MARK, dtype)
    array = whole[_WORDS : _WORDS + size].reshape(shape)
    array[...] = fill

    def check():
        np.testing.assert_array_equal(whole[:_WORDS], _MARK)
        np.testing.assert_array_equal(whole[_WORDS + size :], _MARK)

    return array, check


def assert_error_law(result, reference, same_dtype, terms, condition=1.0):
    """|result - ref| <= 2 max|numpy in that dtype - ref| + 8 eps log2(terms) max|ref|, ref in higher precision.

    result: what the kernel gave; reference: float64 (longdouble for float64); same_dtype: NumPy's result in the
    kernel's own dtype; terms: of the longest sum; condition: how far the inputs' rounding is amplified.
    """
    result, reference, same_dtype = (np.asarray(value) for value in (result, reference, same_dtype))
    assert result.dtype == same_dtype.dtype
    assert np.isfinite(result).all()
    eps = float(np.finfo(result.dtype).eps)
    size = float(np.abs(reference).max(initial=0.0))
    numpy_error = float(np.abs(same_dtype - reference).max(initial=0.0))
    error = float(np.abs(result - reference).max(initial=0.0))
    bound = 2 * numpy_error + 8 * condition * eps * max(1.0, np.log2(max(terms, 2))) * size
    assert error <= bound, f"error {error:.3g} exceeds {bound:.3g} (NumPy's own: {numpy_error:.3g})"
