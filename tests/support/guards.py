"""Arrays that notice when somebody writes past their ends, and the error law that kernels must obey."""

import numpy as np

from fastpe.doctor.allowed_error import difference
from fastpe.kernels import simd

_WORDS = 32
_MARK = -12345.0


def guarded(shape, dtype, fill=np.nan, mark=_MARK):
    """An array between two strips of guard words, and a function that asserts that the strips are untouched."""
    size = int(np.prod(shape))
    whole = np.full(size + 2 * _WORDS, mark, dtype)
    array = whole[_WORDS : _WORDS + size].reshape(shape)
    array[...] = fill

    def check():
        np.testing.assert_array_equal(whole[:_WORDS], mark)
        np.testing.assert_array_equal(whole[_WORDS + size :], mark)

    return array, check


LAYOUTS = ("plain", "unaligned", "stepped", "reversed")


def fenced(shape, dtype, layout):
    """As `guarded`, but laid out in one of several ways: nothing before, after or between its entries may change."""
    count, size = int(np.prod(shape)), np.dtype(dtype).itemsize
    if layout in ("plain", "unaligned"):
        whole = np.full((count + 2 * _WORDS) * size + 1, 0x55, np.uint8)
        first = _WORDS * size + (layout == "unaligned")
        array = whole[first : first + count * size].view(dtype).reshape(shape)
    else:
        whole = np.full([2 * length + 4 for length in shape], _MARK, dtype)
        ends = (2, None, 2) if layout == "stepped" else (-2, None, -1)
        array = whole[(slice(*ends),) * len(shape)][tuple(map(slice, shape))]
    array[...] = fill = np.nan if array.dtype.kind == "f" else -1
    before = whole.copy()

    def check():
        kept = array.copy()
        array[...] = fill
        np.testing.assert_array_equal(whole, before)
        array[...] = kept

    return array, check


def guarded_allocations(patch, some=True):
    """Make `simd.aligned_zeros` and `aligned_empty` put guard words around all they allocate, the latter with NaN
    between them; returns what asserts that the words are untouched.

    patch: pytest's monkeypatch. some: whether there must be some.
    """
    strips = []

    def aligned_zeros(shape, dtype):
        return aligned(shape, dtype, 0)

    def aligned_empty(shape, dtype):
        return aligned(shape, dtype, np.nan if np.dtype(dtype).kind == "f" else -1)

    def aligned(shape, dtype, value):
        dtype = np.dtype(dtype)
        size, words = int(np.prod(shape)), 64 // dtype.itemsize
        whole = _aligned_zeros(size + 4 * words, dtype)
        whole[...] = _MARK
        array = whole[2 * words : 2 * words + size]
        array[...] = value
        strips.extend((whole[: 2 * words], whole[2 * words + size :]))
        return array.reshape(shape)

    def check():
        assert strips or not some
        for strip in strips:
            np.testing.assert_array_equal(strip, _MARK)

    _aligned_zeros = simd.aligned_zeros
    patch.setattr(simd, "aligned_zeros", aligned_zeros)
    patch.setattr(simd, "aligned_empty", aligned_empty)
    return check


def guarded_results(patch, *modules):
    """Make `np.empty`, `np.zeros` and `np.full` of these modules put guard words around what they give; returns as
    above.

    What `np.empty` gives is not empty but holds NaN: nobody may read it before it is written.
    """
    checks = []

    class Guarding:
        def __getattr__(self, name):
            return getattr(np, name)

        def empty(self, shape, dtype=float):
            array, check = guarded(shape, dtype, np.nan if np.dtype(dtype).kind == "f" else -1)
            checks.append(check)
            return array

        def zeros(self, shape, dtype=float):
            return self.full(shape, 0, dtype)

        def full(self, shape, value, dtype=None):
            array, check = guarded(shape, np.asarray(value).dtype if dtype is None else dtype, value)
            checks.append(check)
            return array

    for module in modules:
        patch.setattr(module, "np", Guarding())

    def check():
        for each in checks:
            each()

    return check


def assert_error_law(result, reference, same_dtype, terms, condition=1.0):
    """The law of `fastpe.doctor.allowed_error`; the arguments are those of its `difference`."""
    result, same_dtype = np.asarray(result), np.asarray(same_dtype)
    assert result.dtype == same_dtype.dtype
    assert np.isfinite(result).all()
    error, bound, _ = difference(result, reference, same_dtype, terms, condition)
    assert error <= bound, f"error {error:.3g} exceeds {bound:.3g}"
