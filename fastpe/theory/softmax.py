"""Softmax: how far it moves with its scores, its entropy at initialisation, and the score gap of a sharp one."""

import math
from typing import Any

import numpy as np

from fastpe.base.random import Stream
from fastpe.base.validation import array, at_least_zero, finite, whole
from fastpe.theory.value import Value, certified, estimate, exact

Array = np.ndarray[Any, Any]

_BLOCK = 2**20  # scores that are drawn at once


def weights(scores: Array) -> Array:
    """Return the softmax over the last axis. A score of -inf hides a key.

    Parameters
    ----------
    scores : (..., n)

    Returns
    -------
    (..., n) float64

    Examples
    --------
    >>> weights(np.array([0.0, 0.0, -np.inf])).tolist()
    [0.5, 0.5, 0.0]
    """
    scores = np.asarray(scores, np.float64)
    found: Array = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found /= found.sum(axis=-1, keepdims=True)
    return found


def one_row(name: str, value: Array) -> Array:
    """The value, finite numbers of one row, as float64.

    >>> one_row("row", [0, -1]).tolist()
    [0.0, -1.0]
    """
    found = finite(name, array(name, value), np.float64)
    if found.ndim != 1 or not found.size:
        raise ValueError(f"{name} must have shape (n,) with n >= 1, not {found.shape}")
    return found


def entropy(shares: Array) -> Array:
    """The entropy in nats of weights that sum to 1, along the last axis.

    Examples
    --------
    >>> float(entropy(np.array([0.25, 0.25, 0.5]))) == 1.5 * math.log(2)
    True
    """
    logs = np.log(shares, out=np.zeros_like(shares, dtype=np.float64), where=shares > 0.0)
    found: Array = -(shares * logs).sum(axis=-1)
    return found


def softmax_bounds(difference: Array) -> dict[str, Value]:
    """How far the weights of a row can move where its scores move by `difference`, whatever the scores were (P6).

    Adding one number to all scores of a row changes nothing, so the largest difference counts only after the best such
    number: half of the oscillation max - min.

    Parameters
    ----------
    difference : (n,)
        Finite.

    Returns
    -------
    dict
        "tv": total variation, at most tanh(osc/4), attained by two groups of keys; "l1" and "l2": norms of the change
        of the weights, at most |difference|_inf and |difference|_2 / 2.

    Raises
    ------
    TypeError, ValueError
        If it is no row of finite numbers.

    Source: P6.

    Examples
    --------
    >>> {name: round(bound.value, 6) for name, bound in softmax_bounds(np.array([1.0, -1.0])).items()}
    {'tv': 0.462117, 'l1': 1.0, 'l2': 0.707107}
    """
    moved = one_row("difference", difference)
    keys, largest = len(moved), float(np.abs(moved).max())
    return {
        "tv": variation_bound(float(np.ptp(moved)), keys=keys),
        "l1": certified("|softmax x - softmax y|_1 <= |x - y|_inf (P6)", high=upward(largest), keys=keys),
        "l2": certified(
            "|softmax x - softmax y|_2 <= |x - y|_2 / 2 (P6)", high=upward(float(np.linalg.norm(moved)) / 2), keys=keys
        ),
    }


def variation_bound(oscillation: float, **inputs: Any) -> Value:
    """The most that weights can move, in total variation, where the change of the scores oscillates by so much (P6).

    Parameters
    ----------
    oscillation : float
        max - min of the change over the keys of a row.
    **inputs
        What else the value was computed from.

    Examples
    --------
    >>> round(variation_bound(0.098).value, 6)
    0.024495
    """
    bound = upward(math.tanh(at_least_zero("oscillation", oscillation) / 4.0))
    return certified("TV <= tanh(osc/4) (P6)", high=min(1.0, bound), oscillation=oscillation, **inputs)


def upward(bound: float) -> float:
    """A computed upper bound with what rounding may have taken off it.

    >>> upward(1.0) > 1.0
    True
    """
    return bound * (1.0 + 2.0**-48)


def initial_entropy(length: int, deviation: float, *, draws: int = 256, seed: int = 0) -> dict[str, Value]:
    """The entropy of attention over n keys whose scores are independent N(0, s^2), as at initialisation.

    Parameters
    ----------
    length : int
        Keys n.
    deviation : float
        Standard deviation s of the scores.
    draws : int
        Rows drawn.
    seed : int

    Returns
    -------
    dict
        "entropy": the mean over the rows in nats, an estimate; "limit": ln n - s^2/2, which it approaches as n grows,
        for s < sqrt(2 ln n); None for larger s, where a few keys take all the weight.

    Raises
    ------
    TypeError, ValueError
        For n < 1, fewer than two draws, or a deviation below 0.

    Source: Q18; E[e^s s] / E[e^s] = s^2 and ln E[e^s] = s^2/2 by the law of large numbers; the threshold is that of the
    random energy model (Derrida 1981).

    Examples
    --------
    >>> found = initial_entropy(4096, 0.5)
    >>> found["entropy"].low < 8.19285 < found["entropy"].high, round(found["limit"].value, 6)
    (True, 8.192766)
    """
    length, draws = whole("length", length, 1), whole("draws", draws, 2)
    at_least_zero("deviation", deviation)
    rows = max(1, _BLOCK // length)
    found = np.concatenate([
        entropy(weights(deviation * Stream(seed, "entropy", part).normal((min(rows, draws - first), length))))
        for part, first in enumerate(range(0, draws, rows))
    ])  # fmt: skip
    inputs = {"length": length, "deviation": deviation}
    mean = estimate(*_mean_interval(found), f"mean of {draws} rows", **inputs, draws=draws, seed=seed)
    if deviation >= math.sqrt(2.0 * math.log(length)):
        return {"entropy": mean}
    limit = math.log(length) - deviation**2 / 2.0
    return {"entropy": mean, "limit": exact(limit, "ln n - s^2/2, the limit for large n at s < sqrt(2 ln n)", **inputs)}


def _mean_interval(found: Array) -> tuple[float, float, float]:
    from scipy.stats import t

    mean, draws = float(found.mean()), len(found)
    half = float(t.ppf(0.975, draws - 1)) * float(found.std(ddof=1)) / math.sqrt(draws)
    return mean, mean - half, mean + half


def score_gap(length: int, weight: float) -> Value:
    """Return how far the score of one key must be above the equal scores of all others to get this weight.

    Parameters
    ----------
    length : int
        Keys, that one included; at least 2.
    weight : float
        In (0, 1).

    Raises
    ------
    TypeError, ValueError

    Source: Q19.

    Examples
    --------
    >>> round(score_gap(50, 0.9).value, 6)
    6.089045
    """
    keys = whole("length", length, 2)
    if at_least_zero("weight", weight, 1.0) == 0.0:
        raise ValueError(f"weight must lie in (0, 1), not {weight}")
    gap = math.log(keys - 1) + math.log(weight / (1.0 - weight))
    return exact(gap, "ln(n - 1) + ln(w / (1 - w))", length=length, weight=weight)


def temperature(length: int, longer: int, weight: float = 0.9) -> dict[str, Value]:
    """By what scores must be multiplied at a longer length for the same weight on one key, and what is often taken.

    Parameters
    ----------
    length, longer : int
        Keys in training and in the test; at least 2.
    weight : float
        On the one key, in (0, 1).

    Returns
    -------
    dict
        "factor": the quotient of the two score gaps; "logarithms": ln N' / ln N, the common rule. No "factor" where the
        shorter gap is not above 0: the scores then need not point at the key at all.

    Raises
    ------
    TypeError, ValueError

    Source: Q19.

    Examples
    --------
    >>> {name: round(value.value, 6) for name, value in temperature(50, 200).items()}
    {'logarithms': 1.354368, 'factor': 1.230165}
    """
    near, far = score_gap(length, weight).value, score_gap(longer, weight).value
    inputs = {"length": length, "longer": longer}
    found = {"logarithms": exact(math.log(longer) / math.log(length), "ln N' / ln N, the common rule", **inputs)}
    if near > 0.0:
        found["factor"] = exact(far / near, "quotient of the score gaps of both lengths", **inputs, weight=weight)
    return found
