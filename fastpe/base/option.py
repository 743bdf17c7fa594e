"""Typed options of encodings: validated in Python, parsed from a command line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastpe.base.validation import count, is_time, named_arguments, shown, unmasked, whole

_MOST = 2**27  # limit of integers that have no maximum: the largest number of positions of a sequence


@named_arguments
@dataclass(frozen=True)
class Option:
    """A typed option of an encoding: its default, its meaning, and its allowed values.

    Parameters
    ----------
    default : object
        The default value, which should be that of the authors.
    doc : str
        The meaning of the option, shown in lists of options.
    kind : type
        bool, int, float, str, or tuple for several numbers of the type `item`.
    choices : tuple of str
        The allowed values of an option of type str.
    minimum, above, maximum : float
        Limits of numbers: at least `minimum`, more than `above`, at most `maximum`. Integers without a maximum are
        limited to 2^27.
    optional : bool
        Whether None is allowed.
    item : type
        Type of the numbers of a tuple: int or float.
    samples : tuple
        Valid values, for use in tests. Needed if some values of the type are invalid.

    Examples
    --------
    >>> Option(1.0, "multiplies the table", float, above=0).validate("scale", 2)
    2.0
    """

    default: Any
    doc: str
    kind: type
    choices: tuple[str, ...] = ()
    minimum: float = -math.inf
    above: float = -math.inf
    optional: bool = False
    item: type = int
    samples: tuple[Any, ...] = ()
    maximum: float = math.inf

    def expected(self) -> str:
        """Return a phrase that describes the allowed values."""
        if self.choices:
            text = "one of " + ", ".join(map(repr, self.choices))
        else:
            text = {
                bool: "true or false",
                int: "an integer",
                float: "a finite number",
                str: "a name",
                tuple: "a list of integers" if self.item is int else "a list of finite numbers",
            }[self.kind]
        limits = [("<=", self.maximum), (">=", self.minimum), (">", self.above)]
        text += " and".join(f" {sign} {_short(limit)}" for sign, limit in reversed(limits) if math.isfinite(limit))
        return text + (" or none" if self.optional else "")

    def validate(self, key: str, value: Any) -> Any:
        """Return the value, converted to the option's type. Raise a ValueError or TypeError that names the option."""
        if value is None and self.optional:
            return None
        unmasked(f"option {key!r}", value)
        try:
            typed: Any = _several(value, self.item) if self.kind is tuple else _CONVERT[self.kind](value)
        except TypeError:
            raise TypeError(f"option {key!r} must be {self.expected()}, not {shown(value)}") from None
        except (ValueError, OverflowError):  # an int beyond int64, or too large for a float
            kind = self.item if self.kind is tuple else self.kind
            limit = ", at most 2**27" if kind is int and self.maximum == math.inf else ""
            raise ValueError(f"option {key!r} must be {self.expected()}{limit}, not {shown(value)}") from None
        numbers = typed if self.kind is tuple else (typed,) if self.kind in (int, float) else ()
        wrong = not all(map(self._within, numbers)) or (self.choices and typed not in self.choices)
        if wrong or (self.maximum == math.inf and not all(map(_is_moderate, numbers))):
            expected = self.expected() if wrong else "at most 2**27"
            raise ValueError(f"option {key!r} must be {expected}, not {shown(value)}")
        return typed

    def _within(self, number: float) -> bool:
        return self.minimum <= number <= self.maximum and self.above < number < math.inf

    def parse(self, key: str, text: str) -> Any:
        """Return the value of the option that is written as `text` on a command line."""
        text = text.strip()
        if self.optional and text.lower() in ("none", "null"):
            return None
        try:
            items = [item for item in text.split(",") if item.strip()]
            value = tuple(map(_PARSE[self.item], items)) if self.kind is tuple else _PARSE[self.kind](text)
        except (KeyError, ValueError):
            raise ValueError(f"option {key!r} must be {self.expected()}, not {text!r}") from None
        return self.validate(key, value)


def _short(limit: float) -> str:
    """A limit in a readable form.

    >>> _short(2**20), _short(0.5), _short(10**5)
    ('2**20', '0.5', '100000')
    """
    power = int(limit).bit_length() - 1
    return f"2**{power}" if limit == 2**power and power > 12 else f"{limit:g}"


def _is_moderate(number: float) -> bool:
    return isinstance(number, float) or number <= _MOST


def _number(value: Any) -> float:
    if isinstance(value, (bool, str, bytes)) or is_time(value):
        raise TypeError
    return float(value)


def _instance(kind: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError
        return value

    return convert


def _several(value: Any, item: type) -> tuple[Any, ...]:
    if isinstance(value, str):
        raise TypeError
    if count(value) > _MOST:
        raise ValueError
    return tuple(whole("item", each) if item is int else _number(each) for each in value)


_CONVERT: dict[type, Callable[[Any], Any]] = {
    bool: _instance(bool),
    int: lambda value: whole("value", value),
    float: _number,
    str: _instance(str),
}


def _integer(text: str) -> int:
    if not re.fullmatch("[+-]?[0-9]+", text.strip()):  # `int` would also accept "1_0" and digits of other scripts
        raise ValueError
    return int(text)


_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_PARSE: dict[type, Callable[[str], Any]] = {
    bool: lambda text: _TRUTH[text.lower()],
    int: _integer,
    float: float,
    str: str,
}
