"""Named tuples that compiled code hands on by their address."""

import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba.core.errors import TypingError

from fastpe.kernels.compile.decorators import entry, inlined, inner
from fastpe.kernels.simd.by_address import by_address


class Pair(NamedTuple):
    first: int
    second: float


class Whole(NamedTuple):
    pair: Pair
    numbers: Any
    nothing: None
    flag: bool


@inner
def read(whole, i):
    if whole.nothing is None and whole.flag:
        return whole.pair.first + whole.pair.second * whole.numbers[i, 0]
    return -1.0


@inlined
def first_of(pair):
    return pair.first


@inner
def nested(pair):
    return pair.second


@entry
def reads(whole, i):
    found = by_address(whole)
    return read(found, i), nested(found.pair)


@entry
def sums(n):
    """Of one place in memory that each turn writes anew, and reads where that is in sight."""
    total = 0
    for i in range(n):
        total += first_of(by_address(Pair(i * i, 0.5)))
    return total


@entry
def array_of(whole):
    return by_address(whole).numbers


@entry
def passes_on(nothing):
    return by_address(nothing) is None


@entry
def misses(pair):
    return by_address(pair).third


def test_members_are_read():
    numbers = np.arange(6.0).reshape(3, 2)
    for flag in (True, False):
        whole = Whole(Pair(3, 0.25), numbers, None, flag)
        assert reads(whole, 2) == ((3 + 0.25 * 4.0) if flag else -1.0, 0.25)


def test_what_is_written_anew_is_read_anew():
    assert sums(100) == sum(i * i for i in range(100))


def test_arrays_keep_their_owners():
    numbers = np.ones((3, 2))
    whole, before = Whole(Pair(3, 0.25), numbers, None, True), sys.getrefcount(numbers)
    for _ in range(9):
        found = array_of(whole)
        np.testing.assert_array_equal(found, numbers)
        del found
    assert sys.getrefcount(numbers) == before


def test_none_stays_none():
    assert passes_on(None)


def test_unknown_members_are_refused():
    with pytest.raises(TypingError, match="third"):
        misses(Pair(1, 2.0))
