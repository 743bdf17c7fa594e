"""Rademacher complexities of linear readouts of table rows and of single linear maps."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpe.base.random import Stream
from fastpe.base.validation import array, at_least_zero, finite, whole
from fastpe.theory.value import Value, certified, estimate, exact

Array = np.ndarray[Any, Any]

MOST_ENUMERATED = 16  # largest number of signs for which all choices are tried (the first sign is always +1)
_LEAST_DRAWS, _MOST_DRAWS = 64, 4096  # with fewer than 64 draws the mean is not close to normal
_PRODUCTS = 2**33  # largest number of multiplications for all draws
_MOST_WIDTH = 1024
_ENTRIES = 2**20  # largest number of array entries in memory at once
_Z = 1.959963984540054  # 97.5 % quantile of the standard normal
_KHINTCHINE = math.sqrt(0.5)


def readout_complexity(rows: Any, bound: float = 1.0, *, draws: int | None = None, seed: int = 0) -> Value:
    """Return the Rademacher complexity of linear readouts of rows: eq. (7) of Li (2025) for {p -> <w, T[p]>, |w| <= B}.

    The complexity is (B / N) E|sum_p s_p T[p]|, where E is the expectation over random signs s (proof P11).

    Parameters
    ----------
    rows : (N, d)
        The rows T, for example the table of an encoding.
    bound : float
        B, the largest norm of the readout weights.
    draws : int, optional
        Number of random draws of the signs, used for more than 16 rows. The default is 4096. For large tables the
        default is smaller, but at least 64.
    seed : int
        Seed of the draws.

    Returns
    -------
    Value
        Exact for at most 16 rows, where all choices of signs are tried; otherwise an estimate.

    Raises
    ------
    ValueError, TypeError
        If `rows` is not a two-dimensional array of finite numbers, or the bound is negative.

    Examples
    --------
    >>> import fastpe
    >>> table = fastpe.build("sinusoidal", 10, dim=64, dtype="float64")["table"]
    >>> round(readout_complexity(table).value, 9)
    1.577573448
    """
    rows, bound = _rows(rows), at_least_zero("bound", bound)
    count = len(rows)
    why = "(B / N) E|sum of s_p T[p]|, P11"
    if count <= MOST_ENUMERATED:
        norms = np.concatenate([np.linalg.norm(signs @ rows, axis=1) for signs in _all_signs(count)])
        return exact(bound * float(norms.mean()) / count, f"{why}, all signs", rows=count, bound=bound)
    draws = max(_LEAST_DRAWS, min(_MOST_DRAWS, _PRODUCTS // rows.size)) if draws is None else draws
    draws, block = whole("draws", draws, _LEAST_DRAWS), max(1, _ENTRIES // max(rows.shape))
    norms = np.concatenate(
        [
            np.linalg.norm(_signs(seed, first, (min(block, draws - first), count)) @ rows, axis=1)
            for first in range(0, draws, block)
        ]
    )
    return _mean_of(norms * (bound / count), why, rows=count, bound=bound, seed=seed)


def readout_bounds(rows: Any, bound: float = 1.0) -> Value:
    """Bound `readout_complexity` without draws: it lies between B |T|_F / (N sqrt 2) and B |T|_F / N (proof P11).

    The upper bound follows from Jensen's inequality. The lower bound follows from Khintchine's inequality with the best
    constant (Latala and Oleszkiewicz 1994).

    Parameters
    ----------
    rows, bound
        The same as for `readout_complexity`.

    Examples
    --------
    >>> bounds = readout_bounds(np.eye(4))
    >>> round(bounds.low, 6), bounds.high
    (0.353553, 0.5)
    """
    rows, bound = _rows(rows), at_least_zero("bound", bound)
    high = bound * float(np.linalg.norm(rows)) / len(rows)
    return certified("Khintchine and Jensen, P11", low=_KHINTCHINE * high, high=high, rows=len(rows), bound=bound)


def mean_absolute_sum(count: int) -> Value:
    """Return the expectation of |s_1 + ... + s_m| for m independent random signs. It is about sqrt(2 m / pi).

    Parameters
    ----------
    count : int
        Number of signs m, at least 1.

    Returns
    -------
    Value
        Exact: k binom(m, k) / 2^(m-1) with k = floor(m / 2) + 1.

    Examples
    --------
    >>> mean_absolute_sum(2).value, round(mean_absolute_sum(50).value, 9)
    (1.0, 5.613758633)
    """
    import mpmath

    count = whole("count", count, 1)
    half = count // 2 + 1
    with mpmath.workdps(40):
        sum_of_sizes = half * mpmath.binomial(count, half) * mpmath.mpf(2) ** (1 - count)
        return exact(float(sum_of_sizes), "k binom(m, k) / 2^(m-1), k = floor(m/2) + 1", count=count)


def shifted_complexity(
    rows: Any, bound: float = 1.0, shift: float = 1.0, *, draws: int | None = None, seed: int = 0
) -> Value:
    """Return the Rademacher complexity of {x -> <w, x + p>, |w| <= B_w, |p| <= B_p}.

    These are linear readouts w of rows x to which a learned row p is added. The complexity is exactly
    B_w (E|sum s x| + B_p E|sum s|) / m for random signs s (claim C46).

    Parameters
    ----------
    rows : (m, d)
        The inputs x.
    bound, shift : float
        B_w and B_p.
    draws, seed
        The same as for `readout_complexity`.

    Examples
    --------
    >>> round(shifted_complexity(np.zeros((50, 4))).value * 50, 9)
    5.613758633
    """
    shift = at_least_zero("shift", shift)
    of_rows = readout_complexity(rows, bound, draws=draws, seed=seed)
    count = int(of_rows.inputs["rows"])
    learned = bound * shift * mean_absolute_sum(count).value / count
    facts = {**of_rows.inputs, "shift": shift}
    why = "B_w (E|sum s x| + B_p E|sum s|) / m, C46"
    if of_rows.low is None or of_rows.high is None or of_rows.kind == "exact":
        return exact(of_rows.value + learned, why, **facts)
    return estimate(of_rows.value + learned, of_rows.low + learned, of_rows.high + learned, why, **facts)


def nuclear_complexity(width: int, bound: float = 1.0, *, draws: int = 64, seed: int = 0) -> dict[str, Value]:
    """Return the Rademacher complexity of {(x, t) -> t^T W x, |W| <= 1}, which is not O(B / sqrt m) (proof P10).

    The sample consists of all m = d^2 pairs of x = B e_a and t = e_b, where e_a and e_b are unit vectors. For given
    signs, the supremum over W is B times the nuclear norm of the (d, d) matrix of signs. Li (2025, section 4.2) claims
    a bound O(B / sqrt m) for transformers with maps of bounded spectral norm. The case that W is a value or
    feed-forward layer and <t, f(x)> is the loss contradicts this bound.

    Parameters
    ----------
    width : int
        d.
    bound : float
        B.
    draws : int
        Number of random draws of the signs, used if d is above 5. For smaller d all choices are tried.
    seed : int
        Seed of the draws.

    Returns
    -------
    dict of str to Value
        - "complexity": the Rademacher complexity;
        - "claimed": B / sqrt m;
        - "factor": "complexity" divided by "claimed";
        - "limit": (8 / (3 pi)) sqrt d, which the factor approaches.

    Examples
    --------
    >>> found = nuclear_complexity(2)
    >>> round(found["complexity"].value, 9), found["claimed"].value, round(found["factor"].value, 6)
    (0.603553391, 0.5, 1.207107)
    """
    width, bound = whole("width", width, 1), at_least_zero("bound", bound)
    if width > _MOST_WIDTH:
        raise ValueError(f"width must be at most {_MOST_WIDTH}, as each draw decomposes a square matrix, not {width}")
    free = (width - 1) ** 2
    if free <= MOST_ENUMERATED:
        norms = np.concatenate([_nuclear_norms(signs[:, 1:], width) for signs in _all_signs(free + 1)])
        factor = exact(float(norms.mean()) / width, "E|M|_* / d, all sign matrices, P10", width=width)
    else:
        block, draws = max(1, _ENTRIES // width**2), whole("draws", draws, _LEAST_DRAWS)
        norms = np.concatenate(
            [
                _nuclear_norms(_signs(seed, first, (min(block, draws - first), free)), width)
                for first in range(0, draws, block)
            ]
        )
        factor = _mean_of(norms / width, "E|M|_* / d, P10", width=width, seed=seed)
    claimed = exact(bound / width, "B / sqrt m, m = d^2", width=width, bound=bound)
    limit = exact(8.0 / (3.0 * math.pi) * math.sqrt(width), "quarter-circle law", width=width)
    return {"complexity": _times(factor, claimed.value), "claimed": claimed, "factor": factor, "limit": limit}


def _nuclear_norms(free: Array, width: int) -> Array:
    """Return the nuclear norms of the sign matrices whose first row and column are 1 and whose other entries are given.

    Other sign matrices are not needed: flipping the signs of rows and columns keeps the singular values.
    """
    matrices = np.ones((len(free), width, width))
    matrices[:, 1:, 1:] = free.reshape(len(free), width - 1, width - 1)
    norms: Array = np.linalg.svd(matrices, compute_uv=False).sum(axis=1)
    return norms


def _rows(rows: Any) -> Array:
    found = finite("rows", array("rows", rows), np.float64)
    if found.ndim != 2 or found.size == 0:
        raise ValueError(f"rows must have shape (N, d), not {found.shape}")
    return found


def _all_signs(count: int) -> Iterator[Array]:
    """Yield all choices of signs in blocks. The first sign is always +1, since flipping all signs changes no norm."""
    numbers, block = np.arange(2 ** (count - 1)), max(1, _ENTRIES // count)
    for first in range(0, len(numbers), block):
        bits = numbers[first : first + block, None] >> np.arange(count - 1) & 1
        yield np.concatenate([np.ones((len(bits), 1)), 1.0 - 2.0 * bits], axis=1)


def _signs(seed: int, part: int, shape: tuple[int, int]) -> Array:
    return np.where(Stream(seed, "capacity", part).uniform(shape) < 0.5, -1.0, 1.0)


def _mean_of(draws: Array, why: str, **inputs: Any) -> Value:
    mean, error = float(draws.mean()), _Z * float(draws.std(ddof=1)) / math.sqrt(len(draws))
    return estimate(mean, mean - error, mean + error, f"{why}, mean of draws", draws=len(draws), **inputs)


def _times(value: Value, factor: float) -> Value:
    if value.low is None or value.high is None or value.kind == "exact":
        return exact(value.value * factor, value.why, **value.inputs)
    return estimate(value.value * factor, value.low * factor, value.high * factor, value.why, **value.inputs)
