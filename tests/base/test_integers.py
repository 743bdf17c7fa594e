"""Integers of arguments: any type that holds them, checked in that type, or one clear error."""

import numpy as np
import pytest
from integer_kinds import as_int, equal_to, far_off, no_integers

from fastpe.base.validation import LARGEST, integers, whole

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", ">i8", ">u8"]


def test_numbers_of_every_type_are_the_int_that_they_equal():
    for kind, value in equal_to(5).items():
        found = whole("size", value, 0)
        assert (found, type(found)) == (5, int), kind
        assert integers("sizes", value, 0).tolist() == 5, kind


def test_what_is_no_integer_is_refused_by_name():
    for kind, value in no_integers().items():
        with pytest.raises(TypeError, match=r"^size must be an integer, not "):
            whole("size", value)
        if kind != "two":
            with pytest.raises(TypeError, match=r"^sizes must hold integers, not "):
                integers("sizes", value)


@pytest.mark.parametrize(("low", "high"), [(0, 10), (1, 2**40), (None, LARGEST), (-5, LARGEST), (0, 2**64 - 1)])
def test_limits_hold_for_numbers_of_every_size(low, high):
    for value in far_off():
        number = as_int(value)
        if (-(2**63) if low is None else low) <= number <= high:
            assert whole("size", value, low, high) == number
            continue
        with pytest.raises(ValueError, match=r"^size must be at (least|most) .*, not ") as caught:
            whole("size", value, low, high)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arrays_are_checked_in_their_own_type(dtype):
    limits = np.iinfo(dtype)
    ends = np.array([limits.min, 0, 1, limits.max], dtype)
    for low, high in ((0, 10), (-3, 2**40), (0, LARGEST), (-LARGEST - 1, LARGEST), (-200, -100), (300, 400)):
        exact = [min(max(number, low), high) for number in ends.tolist()]
        found = integers("spans", ends, low, high, clipped=True)
        assert (found.tolist(), found.dtype) == (exact, np.int64)
        if exact == ends.tolist():
            assert integers("spans", ends, low, high).tolist() == exact
            continue
        place = next(i for i, number in enumerate(exact) if number != int(ends[i]))
        with pytest.raises(ValueError, match=rf"^spans must lie in \[.*\], not {int(ends[place])} at index {place}$"):
            integers("spans", ends, low, high)


def test_sequences_of_python_ints_of_any_size():
    for numbers in ([2**63, -1], [2**64, 1], [0, 2**64 - 1], [2**100, -(2**100)], [10**5000]):
        assert integers("spans", numbers, 0, 9, clipped=True).tolist() == [min(max(each, 0), 9) for each in numbers]
        with pytest.raises(ValueError, match=r"^spans must lie in \[0, 2\*\*63 - 1\], not .* at index [01]$"):
            integers("spans", numbers, 0)
    with pytest.raises(ValueError, match=r"not 7 at index \[1, 0\]$"):
        integers("spans", [[1, 2], [7, 3]], 0, 5)
    assert integers("spans", []).shape == (0,)


def test_an_array_is_a_copy_and_of_the_type_asked_for():
    given = np.array([1, 2], np.int32)
    found = integers("index", given, 0, 9, dtype=np.int32)
    given[:] = 7
    assert (found.tolist(), found.dtype) == ([1, 2], np.int32)
    with pytest.raises(ValueError, match=r"^index must lie in \[0, 9\], not 4294967296 at index 0$"):
        integers("index", np.array([2**32]), 0, 9, dtype=np.int32)
