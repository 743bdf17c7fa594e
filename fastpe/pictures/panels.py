"""Panels: maps and curves with all data for a picture. Figures, SVG, text and JSON are made from panels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Axis:
    """Coordinates with a label. `ends` are the limits of the coordinates that occur in training."""

    label: str
    values: Array
    ends: tuple[float, ...] = ()

    @property
    def edges(self) -> tuple[float, float]:
        """Return the outer edges of the first and the last cell. Every coordinate is the middle of a cell."""
        return float(self.values[0]) - 0.5, float(self.values[-1]) + 0.5

    def as_dict(self) -> dict[str, Any]:
        """Return the axis as JSON values."""
        return {"label": self.label, "values": self.values.tolist(), "training_ends": list(self.ends)}


@dataclass(frozen=True)
class Map:
    """Values (rows, columns) over two axes. Missing values are NaN.

    `extent` is the smallest and the largest value of all maps that share one scale. `masked` states whether pairs are
    left out because they are never attended.
    """

    title: str
    rows: Axis
    columns: Axis
    values: Array
    unit: str
    extent: tuple[float, float] | None = None
    masked: bool = False

    def axes(self) -> tuple[Axis, ...]:
        """Return the two axes."""
        return self.rows, self.columns

    @property
    def square(self) -> bool:
        """Return whether both axes are the same."""
        return self.rows.label == self.columns.label or {self.rows.label, self.columns.label} == {"query", "key"}

    def limits(self) -> tuple[float, float]:
        """Return the ends of the scale: the smallest and largest value, or symmetric ends if 0 lies between them."""
        low, high = self.span
        return (-max(-low, high), max(-low, high)) if self.signed else (low, high)

    @cached_property
    def span(self) -> tuple[float, float]:
        """Return the smallest and the largest value of this map, or of all maps that share its scale."""
        if self.extent is not None:
            return self.extent
        known = self.values[np.isfinite(self.values)]
        return (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)

    @property
    def signed(self) -> bool:
        """Return whether there are values of both signs."""
        low, high = self.span
        return low < 0 < high

    def shares(self, values: Array) -> Array:
        """Return the values mapped from the ends of the scale to the range 0 to 1."""
        low, high = self.limits()
        return np.asarray((values - low) / ((high - low) or 1.0))

    @property
    def unit_label(self) -> str:
        """Return the unit, unless the title contains it."""
        return "" if self.unit == "value" or self.unit in self.title else self.unit

    def described(self) -> str:
        """Describe the map in words, for readers who cannot see it."""
        low, high = self.limits()
        return f"{self.title}: {self.rows.label} down, {self.columns.label} across, from {low:.3g} to {high:.3g}"

    def as_dict(self) -> dict[str, Any]:
        """Return the map as JSON values."""
        return {
            "title": self.title, "unit": self.unit, "rows": self.rows.as_dict(), "columns": self.columns.as_dict(),
            "kind": "map", "values": numbers(self.values),
        }  # fmt: skip


@dataclass(frozen=True)
class Curves:
    """Lines over one axis, by name. If the values are lengths, `level` is the training length.

    `log` and `log_x` state which scales are logarithmic. `bands` maps names to pairs of lines, the lower and the upper
    bound of one curve. If there are bands, every line belongs to a band. `masked` is the same as for a `Map`.
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
        """Return the axis."""
        return (self.x,)

    def shown(self) -> dict[str, Array]:
        """Return the lines, with NaN for values that are not finite, or not positive on a logarithmic scale."""
        return {name: self.on_scale(line) for name, line in self.lines.items()}

    def on_scale(self, values: Array) -> Array:
        """Return the values, with NaN for those that the scale cannot show."""
        return np.where(np.isfinite(values) & ((values > 0) | (not self.log)), values, np.nan)

    def described(self) -> str:
        """Describe the curves in words, for readers who cannot see them."""
        names = ", ".join(name for name in self.lines if name)
        of = f" of {names}" if len(self.lines) > 1 else ""
        return f"{self.title}: {self.unit}{of} over {self.x.label}"

    def as_dict(self) -> dict[str, Any]:
        """Return the curves as JSON values."""
        return {
            "title": self.title, "unit": self.unit, "x": self.x.as_dict(), "kind": "curves",
            "lines": {name: numbers(line) for name, line in self.lines.items()},
        }  # fmt: skip


View = Map | Curves


def numbers(value: Any) -> Any:
    """Return nested lists of numbers for JSON, with null for numbers that are not finite."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    if value.dtype.kind != "f" or np.isfinite(value).all():
        return value.tolist()
    items = np.asarray(value, object)
    items[~np.isfinite(value)] = None
    return items.tolist()
