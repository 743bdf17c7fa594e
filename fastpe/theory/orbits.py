"""The least error on tasks of numbers for functions that cannot distinguish some orders of their input (P2, P3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.base.random import Stream
from fastpe.base.validation import choice, nearest, real, whole
from fastpe.theory.value import Value, estimate, exact

Array = np.ndarray[Any, Any]

GROUPS = ("rev", "perm", "const")
LINEAR = {
    "running_sum": "y_i = x_1 + ... + x_i",
    "running_mean": "y_i = (x_1 + ... + x_i) / i",
    "shift": "y_1 = 0, y_i = x_{i-1}",
    "first_quarter": "y_i = 1 where i - 1 < N / 4, else 0",
    "position_index": "y_i = i",
    "total_sum": "y_i = x_1 + ... + x_N",
    "reverse_numbers": "y_i = x_{N+1-i}",
}
OTHERS = {
    "sort_numbers": "y_i = the i-th smallest of x",
    "running_max": "y_i = the largest of x_1 ... x_i",
    "running_parity": "y_i = x_1 x_2 ... x_i of independent signs x, 1 or -1",
}
NUMBERS = (*LINEAR, *OTHERS)
CAN = {
    "rev": "tell a sequence from its reverse",
    "perm": "tell a sequence from any other order of it",
    "const": "give identical tokens different outputs",
}
_LONGEST = 2**14
_MOST_ROWS = 512  # largest number of rows of a matrix of fractions
_MOST_NUMBERS, _BLOCK = 2**22, 2**20  # largest count of random numbers for an estimate, and in memory at once
_SHOWN = 100  # largest number of bits of a numerator or denominator that is printed


def least_error(
    name: str, group: str, length: int, *, factors: Sequence[float] | Array | None = None, draws: int = 40_000,
    seed: int = 0,
) -> Value:  # fmt: skip
    """Return the least mean squared error of models with a symmetry on a task of numbers (Q16, P2, P3).

    The group of the symmetry permutes the inputs and does not change their distribution. Among the functions that
    commute with the group, the mean of the target over the group has the least error:
    E[y^2] - E[(mean over the group)^2]. For linear targets (`LINEAR`) the error is computed exactly, in fractions.

    Parameters
    ----------
    name : str
        One of `NUMBERS`. Inputs are independent, with mean 0 and variance 1. They are signs for the running parity, and
        normal numbers for the other tasks.
    group : {"rev", "perm", "const"}
        The symmetry of the model. "rev": reversal; "perm": all orders; "const": equal tokens get equal outputs. For
        "const" the result is the least error on the input 1, 1, ..., 1 (-1, -1, ... for the parity). This error is the
        variance of the targets over the positions.
    length : int
        Number of positions.
    factors : (length,) numbers, optional
        Factors by which a linear target is multiplied at each position, see `fastpe.tasks.targets.factors`.
    draws, seed : int
        Number of random sequences, and their seed, for estimates: of sort_numbers with "rev", and of running_max with
        "rev" or "perm". At most 2^22 numbers are drawn in total.

    Returns
    -------
    Value
        "exact", or an "estimate". If the number is a short fraction, the input `fraction` holds it.

    Raises
    ------
    ValueError, TypeError
        If a name is unknown or a number out of range.

    Examples
    --------
    >>> least_error("running_sum", "rev", 50).value, least_error("first_quarter", "const", 50).inputs["fraction"]
    (12.25, '481/2500')
    """
    if name not in NUMBERS:
        raise ValueError(f"task of numbers {name!r} is unknown; {nearest(str(name), NUMBERS)}")
    choice("group", group, GROUPS)
    if (length := whole("length", length, 1)) > _LONGEST:
        raise ValueError(f"length must be at most {_LONGEST}, not {length}")
    if factors is None:
        return _without_factors(name, group, length, whole("draws", draws, 2), whole("seed", seed, 0))
    if name not in LINEAR:
        raise ValueError(f"factors can be given only for linear targets ({', '.join(LINEAR)}), not for {name!r}")
    return _linear(name, group, length, multipliers(factors, length))


def _linear(name: str, group: str, length: int, multiplied: Any) -> Value:
    """Return the least error of a linear target, in fractions."""
    moments = _moments(name, length, multiplied)
    return _in_fractions(_LEAST[group](moments, length), f"{LINEAR[name]}; {_why(group)}", group, length)


@lru_cache(maxsize=1024)  # many encodings have the same symmetry, so results are reused
def _without_factors(name: str, group: str, length: int, draws: int, seed: int) -> Value:
    """Return `least_error` for checked arguments."""
    if name in LINEAR:
        return _linear(name, group, length, multipliers(None, length))
    inputs, why = {"group": group, "length": length}, f"{OTHERS[name]}; {_why(group)}"
    if name == "running_parity":
        return exact(_parity(group, length), why, **inputs)
    if (name, group) == ("sort_numbers", "perm"):  # over all orders, the mean of the target is the mean of the numbers
        return _in_fractions(1 - Fraction(1, length), why, group, length)
    if group == "const" or length == 1:
        return exact(0.0, why, **inputs)
    of_draws = _max_perm if group == "perm" else _sorted_rev if name == "sort_numbers" else _max_rev
    return _estimated(of_draws, why, inputs, draws, seed)


def least_error_of_matrix(matrix: Any, group: str, offsets: Any = None) -> Value:
    """Return the least mean squared error of models with a symmetry for a linear target y = A x + b.

    The entries of x are independent, with mean 0 and variance 1. The mean of the target over the permutations P of the
    group is also linear, with the matrix mean(P^T A P) and the offset mean(P^T b). The error is (S - S') / N, where S
    is the sum of the squares of all entries of A and b, and S' the same sum for the mean (P3).

    Parameters
    ----------
    matrix : (N, N) numbers
        A, with at most 512 rows. Entries are integers, fractions or floats; floats are converted to exact fractions.
    group : {"rev", "perm", "const"}
        The same as for `least_error`.
    offsets : (N,) numbers, optional
        b. The default is 0.

    Returns
    -------
    Value

    Raises
    ------
    ValueError, TypeError
        If the matrix is not square, or an entry is not a finite number.

    Examples
    --------
    >>> least_error_of_matrix([[1, 0], [1, 1]], "rev").inputs["fraction"]
    '1/4'
    """
    choice("group", group, GROUPS)
    rows, size = _matrix(matrix), len(matrix)
    added = [Fraction(0)] * size if offsets is None else [_fraction("offsets", each) for each in offsets]
    if len(added) != size:
        raise ValueError(f"offsets must be {size} numbers, one for each row of the matrix, not {len(added)}")
    mirrored = zip([*rows, added], [*rows[::-1], added], strict=True)
    moments = _Moments(
        squares=_total(a * a for row in [*rows, added] for a in row),
        mirrored=_total(a * b for row, other in mirrored for a, b in zip(row, other[::-1], strict=True)),
        trace=_total(rows[i][i] for i in range(size)),
        total=_total(a for row in rows for a in row),
        added=_total(added),
        of_ones=[_total(row) + b for row, b in zip(rows, added, strict=True)],
    )
    return _in_fractions(_LEAST[group](moments, size), f"y = A x + b; {_why(group)}", group, size)


@dataclass(frozen=True)
class _Moments:
    """Exact sums for y = A x + b, which determine the least error for each group.

    They are sums over the entries of A and b, and over the products of these entries with their mirror images.
    """

    squares: Fraction
    mirrored: Fraction
    trace: Fraction
    total: Fraction
    added: Fraction
    of_ones: list[Fraction]


def _least_rev(m: _Moments, n: int) -> Fraction:
    return (m.squares - m.mirrored) / (2 * n)


def _least_perm(m: _Moments, n: int) -> Fraction:
    # the mean over all orders has equal entries on the diagonal, equal entries off the diagonal, and equal offsets
    off_diagonal = (m.total - m.trace) ** 2 / (n * (n - 1)) if n > 1 else Fraction(0)
    return (m.squares - m.trace**2 / n - off_diagonal - m.added**2 / n) / n


def _least_const(m: _Moments, n: int) -> Fraction:
    return _total(y * y for y in m.of_ones) / n - (_total(m.of_ones) / n) ** 2


_LEAST: dict[str, Callable[[_Moments, int], Fraction]] = {
    "rev": _least_rev, "perm": _least_perm, "const": _least_const,
}  # fmt: skip


def _moments(name: str, n: int, factors: list[Fraction]) -> _Moments:
    """Compute the moments of a target without a matrix: a row of A has one weight at the positions first .. last."""
    rows = [
        (f * weight, first, last, f * b) for f, (weight, first, last, b) in zip(factors, _rows(name, n), strict=True)
    ]
    pairs = list(zip(rows, rows[::-1], strict=True))
    return _Moments(
        squares=_total(w * w * (last - first + 1) + b * b for w, first, last, b in rows),
        mirrored=_total(
            # max(0, ...) counts the positions that a row and the mirror image of the opposite row share
            w * v * max(0, min(last, n + 1 - begin) - max(first, n + 1 - end) + 1) + b * c
            for (w, first, last, b), (v, begin, end, c) in pairs
        ),
        trace=_total(w for i, (w, first, last, _) in enumerate(rows, 1) if first <= i <= last),
        total=_total(w * (last - first + 1) for w, first, last, _ in rows),
        added=_total(b for *_, b in rows),
        of_ones=[w * (last - first + 1) + b for w, first, last, b in rows],
    )


def _rows(name: str, n: int) -> list[tuple[Fraction, int, int, Fraction]]:
    """Return (weight, first, last, offset) for the target at each position. Positions are counted from 1."""
    none, one, places = Fraction(0), Fraction(1), range(1, n + 1)
    return {
        "running_sum": lambda: [(one, 1, i, none) for i in places],
        "running_mean": lambda: [(Fraction(1, i), 1, i, none) for i in places],
        "shift": lambda: [(none, 1, 1, none)] + [(one, i, i, none) for i in range(1, n)],
        "first_quarter": lambda: [(none, 1, 1, Fraction(4 * (i - 1) < n)) for i in places],
        "position_index": lambda: [(none, 1, 1, Fraction(i)) for i in places],
        "total_sum": lambda: [(one, 1, n, none) for i in places],
        "reverse_numbers": lambda: [(one, n + 1 - i, n + 1 - i, none) for i in places],
    }[name]()


def multipliers(factors: Any, n: int) -> list[Fraction]:
    """Return the factors of the targets as fractions; they are 1 if none are given."""
    if factors is None:
        return [Fraction(1)] * n
    found = [_fraction("factors", each) for each in factors]
    if len(found) != n:
        raise ValueError(f"factors must be {n} numbers, one for each position, not {len(found)}")
    return found


def _matrix(matrix: Any) -> list[list[Fraction]]:
    rows = Sequence | np.ndarray
    if not (isinstance(matrix, rows) and all(isinstance(row, rows) for row in matrix)):
        raise TypeError(f"matrix must be a sequence of rows of numbers, not {matrix!r}")
    sizes = {len(row) for row in matrix}
    if sizes != {len(matrix)} or len(matrix) > _MOST_ROWS:
        raise ValueError(
            f"matrix must be square with 1 to {_MOST_ROWS} rows, not have {len(matrix)} rows of lengths {sorted(sizes)}"
        )
    return [[_fraction("matrix", each) for each in row] for row in matrix]


def _fraction(name: str, value: Any) -> Fraction:
    if isinstance(value, Fraction | int) and not isinstance(value, bool):
        return Fraction(value)
    return Fraction(real(name, value))


def _total(terms: Iterable[Fraction]) -> Fraction:
    """Return the sum. Terms are added in pairs, so that most additions have small denominators."""
    left = list(terms)
    while len(left) > 1:
        left = [sum(left[k : k + 2], Fraction(0)) for k in range(0, len(left), 2)]
    return left[0] if left else Fraction(0)


def _in_fractions(value: Fraction, why: str, group: str, length: int) -> Value:
    short = max(value.numerator.bit_length(), value.denominator.bit_length()) <= _SHOWN
    shown = {"fraction": str(value)} if short else {}
    return exact(float(value), why, group=group, length=length, **shown)


def _why(group: str) -> str:
    if group == "const":
        return "on a constant input all outputs are equal, so the least error is the variance of the targets (P2)"
    return f"a model that cannot {CAN[group]} is at best the mean of the target over these orders (P3)"


# ----------------------------------------------------------------------------------------------------- other targets


def _parity(group: str, n: int) -> float:
    """Return the least error for the running product of signs."""
    if group == "const":
        return 1.0 - (n % 2) / n**2
    if group == "rev":
        return 0.5 if n > 1 else 0.0
    # all sets of k earlier tokens are equally likely; the mean product of a set has the variance 1 / binom(n - 1, k)
    places = np.arange(1.0, n)
    variances = np.concatenate([[1.0], np.cumprod(places / (n - places))])
    return 1.0 - math.fsum(variances) / n**2


def _sorted_rev(x: Array) -> Array:
    ordered = np.sort(x, axis=1)
    # most of the noise is that of the mean square of x; subtracting it and adding its expectation, 1, reduces the noise
    return ((ordered - ordered[:, ::-1]) ** 2).mean(axis=1) / 4.0 - (x**2).mean(axis=1) + 1.0


def _max_rev(x: Array) -> Array:
    left, right = (np.maximum.accumulate(each, axis=1) for each in (x, x[:, ::-1]))
    return ((left - right[:, ::-1]) ** 2).mean(axis=1) / 4.0


def _max_perm(x: Array) -> Array:
    """Return the variance of the running maximum at a token over all orders of the tokens.

    For s >= r, the probability that no token before the token of rank r has a rank above s is 1 / (N - s + 1).
    """
    n = x.shape[1]
    ordered, rank = np.sort(x, axis=1), np.arange(1.0, n + 1.0)
    own, later = 1.0 / (n - rank + 1.0), 1.0 / ((n - rank + 1.0) * (n - rank + 2.0))

    def mean(values: Array) -> Array:
        parts = values * later
        return values * own + np.cumsum(parts[:, ::-1], axis=1)[:, ::-1] - parts

    return (mean(ordered**2) - mean(ordered) ** 2).mean(axis=1)


def _estimated(of_draws: Callable[[Array], Array], why: str, inputs: dict[str, Any], draws: int, seed: int) -> Value:
    """Return the mean over random sequences, with its 95 % interval."""
    n = inputs["length"]
    draws = min(draws, max(2, _MOST_NUMBERS // n))
    rows = max(1, _BLOCK // n)
    found = np.concatenate(
        [
            of_draws(Stream(seed, "orbits", block).normal((min(rows, draws - block * rows), n)))
            for block in range(-(-draws // rows))
        ]
    )
    mean, half = float(found.mean()), 1.96 * float(found.std(ddof=1)) / math.sqrt(draws)
    return estimate(mean, mean - half, mean + half, why, **inputs, draws=draws, seed=seed)
