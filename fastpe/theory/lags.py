"""Sinusoidal rows: their distance by lag, certified by interval arithmetic, and scans over millions of lags."""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.base.validation import real, whole
from fastpe.theory.pairs import Array
from fastpe.theory.value import Value, certified

_AT_ONCE = 2**16  # lags
_BITS = 160


def lag_distance(dim: int, lag: int, *, base: float = 10000.0, squared: bool = False) -> Value:
    """|T[p + k] - T[p]| of the sinusoidal table, the same for every p (P1): sqrt(sum_i 4 sin^2(w_i k / 2)).

    Parameters
    ----------
    dim : int
        Width, even: of an odd one the last channel is a sine alone, and distances depend on p.
    lag : int
        k, at least 0.
    base : float
        w_i = base^(-2 i / dim), i = 0 .. dim / 2 - 1; at least 1.
    squared : bool
        The square instead.

    Returns
    -------
    Value
        Certified: interval arithmetic of 160 bits, its ends rounded outwards to float64.

    Raises
    ------
    ValueError, TypeError
        For an odd or non-positive width, a negative lag, or a base below 1.

    Examples
    --------
    >>> lag_distance(64, 1, squared=True).low
    2.166336676761948
    """
    dim, lag, base = _even(dim), whole("lag", lag, 0), _at_least_one(base)
    low, high = _interval(dim, lag, base, squared)
    why = f"interval arithmetic of {'sum' if squared else 'sqrt(sum'} 4 sin^2(w k / 2){'' if squared else ')'} (P1)"
    return certified(why, low=low, high=high, dim=dim, lag=lag, base=base)


def scan_lags(dim: int, lags: int, *, base: float = 10000.0) -> dict[str, Value]:
    """The nearest and the farthest two sinusoidal rows that are at most so many positions apart.

    Distances depend on the lag alone (P1), so a scan over lags tries all pairs. It is made in float64, whose error is
    bounded; every lag that the bound cannot rule out is done again in interval arithmetic.

    Parameters
    ----------
    dim : int
        Width, even.
    lags : int
        The largest lag, at least 1. They are done in blocks: memory does not grow with their number.
    base : float
        At least 1.

    Returns
    -------
    dict
        "nearest", "farthest": certified, each with its lag among the inputs.

    Raises
    ------
    ValueError, TypeError
        As `lag_distance`.

    Examples
    --------
    >>> found = scan_lags(64, 199)
    >>> round(found["nearest"].value, 9), found["nearest"].inputs["lag"], found["farthest"].value < 64**0.5 * 2**0.5
    (1.471848048, 1, True)
    """
    dim, lags, base = _even(dim), whole("lags", lags, 1), _at_least_one(base)
    left: dict[float, Array] = {}
    limits = {1.0: math.inf, -1.0: math.inf}
    for where, distances, error in _distances(dim, lags, base):
        for sign in limits:
            limits[sign] = min(limits[sign], float((sign * distances + error).min()))
            rows = np.stack([where, sign * distances - error])
            rows = np.concatenate([left.get(sign, np.empty((2, 0))), rows], axis=1)
            left[sign] = rows[:, rows[1] <= limits[sign]]
    names = {1.0: "nearest", -1.0: "farthest"}
    return {name: _certain(dim, lags, base, sign, left[sign][0]) for sign, name in names.items()}


def _certain(dim: int, lags: int, base: float, sign: float, left: Array) -> Value:
    """The extreme of the few lags that are left, by interval arithmetic."""
    found = {int(lag): _interval(dim, int(lag), base, False) for lag in left}
    best = min(found, key=lambda lag: sign * sum(found[lag]))
    least_or_most = min if sign > 0 else max
    low, high = (least_or_most(ends) for ends in zip(*found.values(), strict=True))
    why = f"all lags up to {lags:,} in float64 with its error bound, and those it leaves in interval arithmetic (P1)"
    return certified(why, low=low, high=high, dim=dim, lags=lags, lag=best, base=base)


def _distances(dim: int, lags: int, base: float) -> Iterator[tuple[Array, Array, Array]]:
    """Lags, the distances in float64, and how far each may be from the exact one.

    w k / 2 is rounded twice, which moves the sine by at most 2^-53 w k, and D = 2 |sines| by at most 2^-52 |w| k; the
    sines and their sum of squares lose less than (dim + 16) 2^-53 of D. The bound is twice that.
    """
    omega = np.array([float(each.mid) for each in _frequencies(dim, base)])
    size = float(np.linalg.norm(omega))
    for start in range(1, lags + 1, _AT_ONCE):
        where = np.arange(start, min(start + _AT_ONCE, lags + 1), dtype=np.float64)
        squares = np.zeros(len(where))
        for each in omega:
            sines = np.sin(where * (0.5 * each))
            squares += sines * sines
        distances = 2.0 * np.sqrt(squares)
        yield where, distances, 2.0**-51 * size * where + (dim + 16) * 2.0**-52 * distances


def _interval(dim: int, lag: int, base: float, squared: bool) -> tuple[float, float]:
    """Float64 numbers below and above the distance, or its square."""
    from mpmath.libmp import round_ceiling, round_floor, to_float

    if lag == 0:
        return 0.0, 0.0
    total = sum((2 - 2 * (omega * lag).ctx.cos(omega * lag)) for omega in _frequencies(dim, base))
    low, high = (total if squared else total**0.5)._mpi_
    return to_float(low, rnd=round_floor), to_float(high, rnd=round_ceiling)


@lru_cache(maxsize=16)
def _frequencies(dim: int, base: float) -> list[Any]:
    """w_i as intervals."""
    from mpmath.ctx_iv import MPIntervalContext

    context = MPIntervalContext()  # one of our own: the precision of mpmath's belongs to its other users
    context.prec = _BITS
    return [context.mpf(base) ** (-context.mpf(2 * i) / dim) for i in range(dim // 2)]


def _even(dim: int) -> int:
    if whole("dim", dim, 2) % 2:
        raise ValueError(f"dim must be even, as only then distances depend on the lag alone, not {dim}")
    return int(dim)


def _at_least_one(base: float) -> float:
    if real("base", base) < 1.0:
        raise ValueError(f"base must be at least 1, not {base}")
    return float(base)
