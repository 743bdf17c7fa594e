"""Numbers of the theory. Each one is exact, certified by bounds, or an estimate with an interval."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KINDS = ("exact", "certified", "estimate")


@dataclass(frozen=True)
class Value:
    """A number, with its bounds and how it is known. The functions `exact`, `certified` and `estimate` create one.

    Attributes
    ----------
    value : float
        The number. If only one bound is certified, this bound.
    kind : str
        - "exact": the number comes from a closed form or from trying every case, up to rounding;
        - "certified": the number is proved to lie between `low` and `high`, one of which may be None;
        - "estimate": the number comes from random draws or data, with the 95 % interval `low` to `high`.
    low, high : float or None
        The bounds or the interval. A missing bound is None.
    why : str
        How the number is computed, in one sentence, with its source.
    inputs : dict
        The inputs of the computation: sizes, options, seeds, draws.
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
            raise ValueError("a certified value needs at least one of low and high, but both are None")
        if self.kind == "estimate" and (self.low is None or self.high is None):
            raise ValueError(f"an estimate needs low and high, not low={self.low} and high={self.high}")
        for low, high in ((self.low, self.value), (self.value, self.high)):
            if low is not None and high is not None and low > high:
                raise ValueError(f"low <= value <= high must hold, not {self.low}, {self.value}, {self.high}")

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON, in full precision. Infinities and NaN, which JSON does not have, become text."""
        ends = {name: _plain(getattr(self, name)) for name in ("value", "low", "high")}
        return {**ends, "kind": self.kind, "why": self.why, "inputs": dict(self.inputs)}


def exact(value: float, why: str, **inputs: Any) -> Value:
    """Return a value that is known up to rounding.

    Parameters
    ----------
    value : float
        The number.
    why : str
        How the number is computed, in one sentence.
    **inputs
        The inputs of the computation.

    Examples
    --------
    >>> exact(12.25, "(N - 1) / 4", length=50).kind
    'exact'
    """
    return Value(value, "exact", value, value, why, inputs)


def certified(why: str, *, low: float | None = None, high: float | None = None, **inputs: Any) -> Value:
    """Return a value that is proved to be at least `low`, at most `high`, or both.

    The attribute `value` is the middle of both bounds, or the only bound.

    Parameters
    ----------
    why : str
        How the bounds are computed, in one sentence.
    low, high : float, optional
        The proved bounds, at least one of them.
    **inputs
        The inputs of the computation.

    Examples
    --------
    >>> certified("P6", high=0.25).value, certified("P1", low=1.0, high=3.0).value
    (0.25, 2.0)
    """
    ends = [end for end in (low, high) if end is not None]
    return Value(math.fsum(ends) / max(1, len(ends)), "certified", low, high, why, inputs)


def estimate(value: float, low: float, high: float, why: str, **inputs: Any) -> Value:
    """Return an estimate from random draws or data, with its 95 % interval.

    Parameters
    ----------
    value : float
        The estimate.
    low, high : float
        The ends of its 95 % interval.
    why : str
        How the number is computed, in one sentence.
    **inputs
        The inputs of the computation.

    Examples
    --------
    >>> estimate(0.31, 0.30, 0.32, "512 draws", draws=512).low
    0.3
    """
    return Value(value, "estimate", low, high, why, inputs)


def _plain(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)
