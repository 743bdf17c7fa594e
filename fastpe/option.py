"""Typed options of encodings: validated from Python, parsed from a command line."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastpe.arguments import whole


@dataclass(frozen=True)
class Option:
    """A typed option of an encoding: its default, what it means, and which values it may take.

    `kind` is bool, int, float, str or tuple: several numbers, each of the kind `item`. `optional` also allows None.
    `samples` are values that tests try, for a kind of which not every value will do.
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

    def expected(self) -> str:
        """What the option may be, in words."""
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
        if self.minimum > -math.inf:
            text += f" >= {self.minimum:g}"
        if self.above > -math.inf:
            text += f" > {self.above:g}"
        return text + (" or none" if self.optional else "")

    def validate(self, key: str, value: Any) -> Any:
        """The value as the option's own type, or a ValueError or TypeError that names it."""
        if value is None and self.optional:
            return None
        try:
            typed: Any = _several(value, self.item) if self.kind is tuple else _CONVERT[self.kind](value)
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"option {key!r} must be {self.expected()}, not {value!r}") from None
        numeric = self.kind in (int, float)
        if (self.choices and typed not in self.choices) or (
            numeric and not (math.isfinite(typed) and typed >= self.minimum and typed > self.above)
        ):
            raise ValueError(f"option {key!r} must be {self.expected()}, not {value!r}")
        return typed

    def parse(self, key: str, text: str) -> Any:
        """The value that a command line's text stands for."""
        text = text.strip()
        if self.optional and text.lower() in ("none", "null"):
            return None
        try:
            items = [item for item in text.split(",") if item.strip()]
            value = tuple(map(self.item, items)) if self.kind is tuple else _PARSE[self.kind](text)
        except (KeyError, ValueError):
            raise ValueError(f"option {key!r} must be {self.expected()}, not {text!r}") from None
        return self.validate(key, value)


def _number(value: Any) -> float:
    if isinstance(value, (bool, str, bytes)):
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
    return tuple(whole("item", each) if item is int else _finite(each) for each in value)


def _finite(value: Any) -> float:
    number = _number(value)
    if not math.isfinite(number):
        raise ValueError
    return number


_CONVERT: dict[type, Callable[[Any], Any]] = {
    bool: _instance(bool),
    int: lambda value: whole("value", value),
    float: _number,
    str: _instance(str),
}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_PARSE: dict[type, Callable[[str], Any]] = {
    bool: lambda text: _TRUTH[text.lower()],
    int: int,
    float: float,
    str: str,
}
