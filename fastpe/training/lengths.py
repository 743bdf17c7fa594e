"""Test lengths: single lengths, and ranges of lengths."""

import re
from collections.abc import Iterable

from fastpe.base.validation import count, shown, unmasked, whole
from fastpe.encodings.slots import MAX_POSITION
from fastpe.tasks import sizes
from fastpe.tasks.task import Chosen

_MOST_LENGTHS = 1000  # per result
OF_NUMBERS = (50, 100, 200)
"""Default test lengths for models of numbers."""


def bins(length: int) -> tuple[str, ...]:
    """Return the range of training lengths and the next two ranges of the same size.

    >>> bins(50)
    ('1-50', '51-100', '101-150')
    """
    return tuple(f"{k * length + 1}-{(k + 1) * length}" for k in range(3))


def usual_lengths(chosen: Chosen, train_length: int) -> tuple[int | str, ...]:
    """Return the default test lengths of a task.

    For a text they are one, two and four times the training length; for other tokens the ranges of `bins` that contain
    inputs of the task.

    >>> from fastpe.tasks.registry import choose
    >>> usual_lengths(choose("sort"), 80), usual_lengths(choose("running_sum"), 80)
    (('1-80', '81-160'), (50, 100, 200))
    """
    if chosen.task.kind == "numbers":
        return OF_NUMBERS
    if chosen.task.kind == "text":
        return train_length, 2 * train_length, 4 * train_length
    return tuple(each for each in bins(train_length) if len(chosen.lengths.within(*ends(each))))


def ends(length: int | str) -> tuple[int, int]:
    """Return the first and the last length of a test length or a range.

    >>> ends("51-100"), ends(7)
    ((51, 100), (7, 7))
    """
    if isinstance(length, int):
        return length, length
    first, last = length.split("-")
    return int(first), int(last)


def positions_of(chosen: Chosen, length: int | str, causal: bool) -> int:
    """Return the number of positions of the longest sequence of a test length or a range."""
    return sizes.positions(chosen, int(chosen.lengths.within(*ends(length))[-1]), causal)


def checked_lengths(name: str, lengths: object, chosen: Chosen) -> tuple[int | str, ...]:
    """Return the distinct test lengths; raises ValueError or TypeError if the task cannot have them."""
    unmasked(name, lengths)
    if isinstance(lengths, str) or not isinstance(lengths, Iterable) or getattr(lengths, "ndim", 1) != 1:
        raise TypeError(f"{name} must be a sequence of integers, not {shown(lengths)}")
    if count(lengths) > _MOST_LENGTHS:
        raise ValueError(f"{name} must have at most {_MOST_LENGTHS} entries, not {count(lengths)}")
    single = chosen.task.kind in ("numbers", "text")
    checked = tuple(_length(name, length, single) for length in lengths)
    for length in checked:
        first, last = ends(length)
        if last > MAX_POSITION:
            raise ValueError(f"{name} must be at most 2**27, not {length}")
        if first == last:
            sizes.check_length(chosen, first, name)
        elif not len(chosen.lengths.within(first, last)):
            raise ValueError(f"{name} must be lengths that task {chosen.name!r} can have, and {length} contains none")
    if len(checked) > _MOST_LENGTHS:
        raise ValueError(f"{name} must have at most {_MOST_LENGTHS} entries, not {len(checked)}")
    if len(set(checked)) < len(checked):
        raise ValueError(f"{name} must be distinct, not {checked}")
    return checked


_BIN = re.compile(r"([1-9][0-9]{0,9})-([1-9][0-9]{0,9})")


def _length(name: str, length: object, single: bool) -> int | str:
    if isinstance(length, str) and not single:
        if length.isascii() and length.isdigit():
            return whole(name, int(length[:10]), 1)
        found = _BIN.fullmatch(length)
        if found is None or int(found[1]) > int(found[2]):
            raise ValueError(f"{name} must be integers, or ranges of them such as '51-100', not {length!r}")
        return length
    if isinstance(length, str):
        raise ValueError(f"{name} must be an integer, not {length!r}: only tasks of drawn tokens have ranges")
    return whole(name, length, 1)
