"""Distances between sinusoidal rows at each lag, certified by interval arithmetic, and scans over millions of lags."""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.base.validation import real, whole
from fastpe.theory.pairs import Array
from fastpe.theory.value import Value, certified

_AT_ONCE = 2**16  # number of lags in a block
_BITS = 160


def lag_distance(dim: int, lag: int, *, base: float = 10000.0, squared: bool = False) -> Value:
    """Return the distance |T[p + k] - T[p]| of rows of the sinusoidal table, which is the same for every p (P1).

    The distance is sqrt(sum_i 4 sin^2(w_i k / 2)) with w_i = base^(-2 i / dim), i = 0 .. dim / 2 - 1.

    Parameters
    ----------
    dim : int
        Width, an even number. (If the width is odd, the last channel is a sine without a cosine, and distances depend
        on p.)
    lag : int
        The lag k, at least 0.
    base : float
        Base of the frequencies, at least 1.
    squared : bool
        Whether to return the squared distance.

    Returns
    -------
    Value
        Certified by interval arithmetic with 160 bits; the ends are rounded outwards to float64.

    Raises
    ------
    ValueError, TypeError
        If the width is odd or not positive, the lag is negative, or the base is below 1.

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
    """Find the smallest and the largest distance between sinusoidal rows that are at most `lags` positions apart.

    Distances depend only on the lag (P1), so a scan over lags covers all pairs. The scan runs in float64 with a bound
    on the rounding error. Every lag that this bound cannot rule out is computed again in interval arithmetic.

    Parameters
    ----------
    dim : int
        Width, an even number.
    lags : int
        The largest lag, at least 1. Lags are scanned in blocks, so the memory does not grow with the number of lags.
    base : float
        Base of the frequencies, at least 1.

    Returns
    -------
    dict
        "nearest" and "farthest": certified distances. The inputs of each distance name its lag.

    Raises
    ------
    ValueError, TypeError
        For the same reasons as `lag_distance`.

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
    """Compute the extreme distance by interval arithmetic, over the lags that the error bound could not rule out."""
    found = {int(lag): _interval(dim, int(lag), base, False) for lag in left}
    best = min(found, key=lambda lag: sign * sum(found[lag]))
    least_or_most = min if sign > 0 else max
    low, high = (least_or_most(ends) for ends in zip(*found.values(), strict=True))
    why = f"all lags up to {lags:,} in float64 with an error bound, and the remaining ones in interval arithmetic (P1)"
    return certified(why, low=low, high=high, dim=dim, lags=lags, lag=best, base=base)


def _distances(dim: int, lags: int, base: float) -> Iterator[tuple[Array, Array, Array]]:
    """Yield lags, their distances in float64, and a bound on the error of each distance.

    There are two errors. Rounding `w * k / 2` twice changes a sine by at most 2^-53 w k, and so the distance
    D = 2 |sines| by at most 2^-52 |w| k. Rounding the sines and the sum of their squares changes D by less than
    (dim + 16) 2^-53 D. The bound that is returned is twice the sum of both errors.
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
    """Return float64 numbers below and above the distance or its square."""
    from mpmath.libmp import round_ceiling, round_floor, to_float

    if lag == 0:
        return 0.0, 0.0
    total = sum((2 - 2 * (omega * lag).ctx.cos(omega * lag)) for omega in _frequencies(dim, base))
    low, high = (total if squared else total**0.5)._mpi_
    return to_float(low, rnd=round_floor), to_float(high, rnd=round_ceiling)


@lru_cache(maxsize=16)
def _frequencies(dim: int, base: float) -> list[Any]:
    """Return the frequencies w_i as intervals."""
    from mpmath.ctx_iv import MPIntervalContext

    context = MPIntervalContext()  # a separate context: other users of mpmath keep their precision
    context.prec = _BITS
    return [context.mpf(base) ** (-context.mpf(2 * i) / dim) for i in range(dim // 2)]


def _even(dim: int) -> int:
    if whole("dim", dim, 2) % 2:
        raise ValueError(f"dim must be even, because only then do distances depend on the lag alone, not {dim}")
    return int(dim)


def _at_least_one(base: float) -> float:
    if real("base", base) < 1.0:
        raise ValueError(f"base must be at least 1, not {base}")
    return float(base)
