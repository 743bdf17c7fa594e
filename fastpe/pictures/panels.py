"""Panels: maps and curves, with everything that a picture of them needs. The figure, SVG, text and JSON draw these."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Axis:
    """Coordinates with a label; `ends` are where the coordinates that occur in training end."""

    label: str
    values: Array
    ends: tuple[float, ...] = ()

    @property
    def edges(self) -> tuple[float, float]:
        """The outer edges of the first and the last cell, where every coordinate is the middle of a cell."""
        return float(self.values[0]) - 0.5, float(self.values[-1]) + 0.5

    def as_dict(self) -> dict[str, Any]:
        """The axis for JSON."""
        return {"label": self.label, "values": self.values.tolist(), "training_ends": list(self.ends)}


@dataclass(frozen=True)
class Map:
    """Values (rows, columns) over two axes; NaN where there is none.

    `extent` is the least and the largest value of all maps that share one scale. `masked` says that pairs are left out
    because they are never attended.
    """

    title: str
    rows: Axis
    columns: Axis
    values: Array
    unit: str
    extent: tuple[float, float] | None = None
    masked: bool = False

    def axes(self) -> tuple[Axis, ...]:
        """Its axes."""
        return self.rows, self.columns

    @property
    def square(self) -> bool:
        """Whether both axes are the same."""
        return self.rows.label == self.columns.label or {self.rows.label, self.columns.label} == {"query", "key"}

    def limits(self) -> tuple[float, float]:
        """The ends of the scale: the smallest and the largest value, symmetric about 0 where 0 lies between them."""
        low, high = self.span
        return (-max(-low, high), max(-low, high)) if self.signed else (low, high)

    @cached_property
    def span(self) -> tuple[float, float]:
        """The smallest and the largest value of this map, or of those that it shares a scale with."""
        if self.extent is not None:
            return self.extent
        known = self.values[np.isfinite(self.values)]
        return (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)

    @property
    def signed(self) -> bool:
        """Whether there are values of both signs."""
        low, high = self.span
        return low < 0 < high

    def shares(self, values: Array) -> Array:
        """Where values lie between the ends of the scale, from 0 to 1."""
        low, high = self.limits()
        return np.asarray((values - low) / ((high - low) or 1.0))

    @property
    def unit_label(self) -> str:
        """The unit, where the title does not say it."""
        return "" if self.unit == "value" or self.unit in self.title else self.unit

    def described(self) -> str:
        """The map in words, for readers who do not see it."""
        low, high = self.limits()
        return f"{self.title}: {self.rows.label} down, {self.columns.label} across, from {low:.3g} to {high:.3g}"

    def as_dict(self) -> dict[str, Any]:
        """The map for JSON."""
        return {
            "title": self.title, "unit": self.unit, "rows": self.rows.as_dict(), "columns": self.columns.as_dict(),
            "kind": "map", "values": numbers(self.values),
        }  # fmt: skip


@dataclass(frozen=True)
class Curves:
    """Lines over one axis by their names; `level` is the training length, where the values are lengths.

    `log` and `log_x` say which scales are logarithmic. `bands` are pairs of lines by a name of their own, of which the
    first is a lower and the second an upper bound of the same curve; where there are any, every line is in one.
    `masked` is as for a `Map`.
    """

    title: str
    x: Axis
    lines: Mapping[str, Array]
    unit: str
    log: bool = False
    level: float | None = None
    masked: bool = False
    log_x: bool = False
    bands: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def axes(self) -> tuple[Axis, ...]:
        """Its axis."""
        return (self.x,)

    def shown(self) -> dict[str, Array]:
        """The lines, with NaN for values that are not finite, or not positive on a logarithmic scale."""
        return {name: self.on_scale(line) for name, line in self.lines.items()}

    def on_scale(self, values: Array) -> Array:
        """The values, with NaN for those that the scale cannot show."""
        return np.where(np.isfinite(values) & ((values > 0) | (not self.log)), values, np.nan)

    def described(self) -> str:
        """The curves in words, for readers who do not see them."""
        names = ", ".join(name for name in self.lines if name)
        of = f" of {names}" if len(self.lines) > 1 else ""
        return f"{self.title}: {self.unit}{of} over {self.x.label}"

    def as_dict(self) -> dict[str, Any]:
        """The curves for JSON."""
        return {
            "title": self.title, "unit": self.unit, "x": self.x.as_dict(), "kind": "curves",
            "lines": {name: numbers(line) for name, line in self.lines.items()},
        }  # fmt: skip


View = Map | Curves


def numbers(value: Any) -> Any:
    """Nested lists of numbers for JSON, null where one is not finite."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    if value.dtype.kind != "f" or np.isfinite(value).all():
        return value.tolist()
    items = np.asarray(value, object)
    items[~np.isfinite(value)] = None
    return items.tolist()
