"""Integers of arguments: any type that holds them, checked in that type, or one clear error."""

from collections.abc import Sequence

import numpy as np
import pytest
from integer_kinds import as_int, equal_to, far_off, no_integers

from fastpe.base.option import Option
from fastpe.base.patterns import expanded
from fastpe.base.validation import (
    LARGEST,
    array,
    choice,
    floating,
    instance,
    integer_array,
    integers,
    path,
    real,
    truth,
    whole,
)  # fmt: skip

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


def mixed_with_booleans():
    mixed = [[True, 3], [[3, False]], (np.True_, 3), [np.array(True), 3], [np.array([True, False]), np.array([1, 2])]]
    try:
        import torch
    except ImportError:
        return mixed
    return [*mixed, [torch.tensor(True), 3]]


@pytest.mark.parametrize("given", mixed_with_booleans(), ids=str)
def test_booleans_among_integers_are_refused(given):
    with pytest.raises(TypeError, match=r"^lengths must hold integers, not bool$"):
        integers("lengths", given)
    with pytest.raises(TypeError, match=r"^lengths must hold integers, not bool$"):
        integer_array("lengths", given)


def test_durations_are_no_numbers():
    for value in (np.timedelta64(3), np.timedelta64(3, "ns"), np.datetime64(3, "ns")):
        with pytest.raises(TypeError, match=r"^lr must be a number, not "):
            real("lr", value)
        for given in ([value, value], np.array([value, 2], object), [[value]]):
            with pytest.raises(TypeError, match=r"^lengths must hold integers, not "):
                integers("lengths", given)


def test_one_integer_may_be_clipped():
    assert integers("spans", 5, 0, 3, clipped=True).tolist() == 3
    assert integers("spans", 2**70, 0, 3, clipped=True).shape == ()


class Lazy(Sequence):
    """As many numbers as there are said to be, none of which is there."""

    def __len__(self):
        return 10**12

    def __getitem__(self, place):
        raise AssertionError("nobody is to look")

    def __repr__(self):
        return "Lazy()"


@pytest.mark.parametrize("given", [range(10**12), range(10**30), Lazy(), [[0], range(10**12)], [[Lazy()]]], ids=str)
def test_sequences_without_end_are_refused_at_once(given):
    for read in (integers, array):
        with pytest.raises(ValueError, match=r"^lengths must have at most 2\*\*27 elements, not \d+$"):
            read("lengths", given)


def test_ranges_and_buffers_are_read():
    assert integers("lengths", range(3)).tolist() == [0, 1, 2]
    assert integer_array("lengths", memoryview(b"ab")).tolist() == [97, 98]
    given = np.array([1, 2], np.uint8)
    assert np.shares_memory(integer_array("lengths", given), given)
    assert integer_array("lengths", given.astype(object)).tolist() == [1, 2]


@pytest.mark.parametrize(
    "check",
    [
        lambda x: truth("x", x), lambda x: choice("x", x, ("a", "b")), lambda x: real("x", [x]), lambda x: path("x", x),
        lambda x: instance("x", x, dict, "{}"), lambda x: floating(x), lambda x: expanded("x", x),
    ],
)  # fmt: skip
def test_integers_of_any_size_are_named_where_none_is_wanted(check):
    with pytest.raises((TypeError, ValueError), match=r"^(x|dtype) must be .*, not an (integer of 16610 bits|object)"):
        check(10**5000)


@pytest.mark.parametrize("text", ["1_0", "٣", "0x3", "3.0", ""])
def test_integers_of_options_are_written_in_ascii_digits(text):
    for option in (Option(1, "how many", int), Option((1,), "how many", tuple)):
        assert option.parse("count", " +3 ") in (3, (3,))
        if text or option.kind is int:
            with pytest.raises(ValueError, match="option 'count' must be "):
                option.parse("count", text)
