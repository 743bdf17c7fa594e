"""A number of the theory, and how it is known: exactly, within certified bounds, or as an estimate with an interval."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KINDS = ("exact", "certified", "estimate")


@dataclass(frozen=True)
class Value:
    """A number and how it is known; `exact`, `certified` and `estimate` make one.

    Attributes
    ----------
    value : float
        The number; of what is certified on one side alone that bound.
    kind : str
        "exact": a closed form, or every case was tried, up to rounding. "certified": proved to lie between `low` and
        `high`, of which one may be None. "estimate": from draws or data, with a 95 % interval.
    low, high : float or None
    why : str
        How it comes about, in a sentence, with its source.
    inputs : dict
        What it was computed from: sizes, options, seeds, draws.
    """

    value: float
    kind: str
    low: float | None
    high: float | None
    why: str
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be {' or '.join(KINDS)}, not {self.kind!r}")
        if self.kind == "certified" and self.low is None and self.high is None:
            raise ValueError("a certified value needs low or high: a bound has a direction")
        if self.kind == "estimate" and (self.low is None or self.high is None):
            raise ValueError("an estimate needs low and high: it is nothing without its interval")
        for low, high in ((self.low, self.value), (self.value, self.high)):
            if low is not None and high is not None and low > high:
                raise ValueError(f"low <= value <= high must hold, not {self.low}, {self.value}, {self.high}")

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, in full precision; infinities and NaN, which JSON lacks, as text."""
        ends = {name: _plain(getattr(self, name)) for name in ("value", "low", "high")}
        return {**ends, "kind": self.kind, "why": self.why, "inputs": dict(self.inputs)}


def exact(value: float, why: str, **inputs: Any) -> Value:
    """What is known up to rounding.

    Examples
    --------
    >>> exact(12.25, "(N - 1) / 4", length=50).kind
    'exact'
    """
    return Value(value, "exact", value, value, why, inputs)


def certified(why: str, *, low: float | None = None, high: float | None = None, **inputs: Any) -> Value:
    """What is proved to be at least `low`, at most `high`, or both; `value` is the middle of both, or the one bound.

    Examples
    --------
    >>> certified("P6", high=0.25).value, certified("P1", low=1.0, high=3.0).value
    (0.25, 2.0)
    """
    ends = [end for end in (low, high) if end is not None]
    return Value(math.fsum(ends) / max(1, len(ends)), "certified", low, high, why, inputs)


def estimate(value: float, low: float, high: float, why: str, **inputs: Any) -> Value:
    """What draws or data say, with a 95 % interval.

    Examples
    --------
    >>> estimate(0.31, 0.30, 0.32, "512 draws", draws=512).low
    0.3
    """
    return Value(value, "estimate", low, high, why, inputs)


def _plain(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)
