"""Patterns over layers: names separated by commas, each with an optional number of layers after a '*'."""

import itertools
from collections.abc import Sequence
from typing import Any

from fastpe.base.validation import shown

MOST_LAYERS = 10_000  # limit for a pattern
MOST_CHARACTERS = 10_000  # limit for a name: all its terms are looked up and built, and a file may hold a long name


def expanded(name: str, value: Any) -> tuple[str, ...]:
    """Return the items of a pattern, one per layer, from the first layer on. `name` is the argument's name in errors.

    Raises
    ------
    TypeError, ValueError
        If the value is not a string, an item is empty, or a number of layers is invalid.

    Examples
    --------
    >>> expanded("encoding", "rope*2, alibi+nope")
    ('rope', 'rope', 'alibi+nope')
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {shown(value)}")
    check_length(name, value)
    found: list[str] = []
    for item in value.split(","):
        own, times, count = item.strip().partition("*")
        if not own.strip():
            raise ValueError(f"{name} {value!r} must have a name before and after every comma")
        # leading zeros are allowed; the number of digits is limited, because a file may hold thousands of them
        if times and not (count.isascii() and count.isdigit() and len(count) < 12 and 0 < int(count) <= MOST_LAYERS):
            raise ValueError(f"{name} {value!r} must have a number of layers from 1 to {MOST_LAYERS} after each '*'")
        layers = int(count or 1)
        if len(found) + layers > MOST_LAYERS:
            raise ValueError(f"{name} {value!r} must have at most {MOST_LAYERS} layers")
        found += [own.strip()] * layers
    return tuple(found)


def check_length(name: str, value: str) -> None:
    """Raise ValueError if a name, a sum or a pattern has more than `MOST_CHARACTERS` characters."""
    if len(value) > MOST_CHARACTERS:
        raise ValueError(
            f"{name} must have at most {MOST_CHARACTERS} characters, not {len(value)} as in '{value[:40]}...'"
        )


def shortest(items: Sequence[str]) -> str:
    """Return the shortest pattern for these items, which is a single item if all are equal.

    >>> shortest(["rope", "rope", "nope"]), shortest(["rope", "rope"])
    ('rope*2,nope', 'rope')
    """
    if len(set(items)) == 1:
        return items[0]
    runs = [(own, len(list(each))) for own, each in itertools.groupby(items)]
    return ",".join(own if count == 1 else f"{own}*{count}" for own, count in runs)
