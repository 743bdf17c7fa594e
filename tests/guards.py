"""Arrays that notice when somebody writes past their ends, and the error law that kernels must obey."""

import numpy as np

from fastpe.error_law import difference

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
    """The law of `fastpe.error_law`; the arguments are those of its `difference`."""
    result, same_dtype = np.asarray(result), np.asarray(same_dtype)
    assert result.dtype == same_dtype.dtype
    assert np.isfinite(result).all()
    error, bound = difference(result, reference, same_dtype, terms, condition)
    assert error <= bound, f"error {error:.3g} exceeds {bound:.3g}"
