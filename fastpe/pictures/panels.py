"""Maps and curves: numbers with the labels and units that a picture of them needs."""

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


View = Map | Curves
