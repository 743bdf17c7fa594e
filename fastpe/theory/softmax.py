"""Softmax: its change with the scores, its entropy at initialisation, and the score gap for a sharp distribution."""

import math
from typing import Any

import numpy as np

from fastpe.base.random import Stream
from fastpe.base.validation import array, at_least_zero, finite, whole
from fastpe.theory.value import Value, certified, estimate, exact

Array = np.ndarray[Any, Any]

_BLOCK = 2**20  # number of scores that are drawn at once


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
    """Return one row of finite numbers as float64.

    >>> one_row("row", [0, -1]).tolist()
    [0.0, -1.0]
    """
    found = finite(name, array(name, value), np.float64)
    if found.ndim != 1 or not found.size:
        raise ValueError(f"{name} must have shape (n,) with n >= 1, not {found.shape}")
    return found


def entropy(shares: Array) -> Array:
    """Return the entropy in nats of weights that sum to 1, along the last axis.

    Parameters
    ----------
    shares : (..., n)
        Weights of at least 0, which sum to 1 along the last axis.

    Examples
    --------
    >>> float(entropy(np.array([0.25, 0.25, 0.5]))) == 1.5 * math.log(2)
    True
    """
    logs = np.log(shares, out=np.zeros_like(shares, dtype=np.float64), where=shares > 0.0)
    found: Array = -(shares * logs).sum(axis=-1)
    return found


def softmax_bounds(difference: Array) -> dict[str, Value]:
    """Bound the change of the weights of a row if its scores change by `difference`, for any scores (P6).

    Adding the same number to all scores of a row does not change the weights. So |difference|_inf is computed after
    adding the number that makes it smallest. It is then half of the oscillation max - min.

    Parameters
    ----------
    difference : (n,)
        Finite numbers.

    Returns
    -------
    dict
        - "tv": total variation, at most tanh(osc/4). Two groups of keys can attain this bound;
        - "l1" and "l2": norms of the change of the weights, at most |difference|_inf and |difference|_2 / 2.

    Raises
    ------
    TypeError, ValueError
        If `difference` is not a row of finite numbers.

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
    """Bound the change of the weights in total variation by the oscillation of the change of the scores (P6).

    Parameters
    ----------
    oscillation : float
        max - min of the change over the keys of a row.
    **inputs
        Other inputs to store with the value.

    Examples
    --------
    >>> round(variation_bound(0.098).value, 6)
    0.024495
    """
    bound = upward(math.tanh(at_least_zero("oscillation", oscillation) / 4.0))
    return certified("TV <= tanh(osc/4) (P6)", high=min(1.0, bound), oscillation=oscillation, **inputs)


def upward(bound: float) -> float:
    """Return an upper bound raised by the largest possible rounding error.

    >>> upward(1.0) > 1.0
    True
    """
    return bound * (1.0 + 2.0**-48)


def initial_entropy(length: int, deviation: float, *, draws: int = 256, seed: int = 0) -> dict[str, Value]:
    """Estimate the entropy of attention over n keys with independent N(0, s^2) scores, as at initialisation.

    Parameters
    ----------
    length : int
        Number n of keys.
    deviation : float
        Standard deviation s of the scores.
    draws : int
        Number of random rows.
    seed : int
        Seed of the draws.

    Returns
    -------
    dict
        - "entropy": the mean over the rows in nats, an estimate;
        - "limit": ln n - s^2/2, which the entropy approaches as n grows, for s < sqrt(2 ln n). For larger s a few keys
          take all the weight, and "limit" is None.

    Raises
    ------
    TypeError, ValueError
        If n < 1, there are fewer than two draws, or the deviation is below 0.

    Source: Q18. For a score x from N(0, s^2), E[e^x x] / E[e^x] = s^2 and ln E[e^x] = s^2/2. By the law of large
    numbers, means over the keys approach these expectations. The threshold sqrt(2 ln n) comes from the random energy
    model (Derrida 1981).

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
    mean = estimate(*_mean_interval(found), f"mean over {draws} random rows", **inputs, draws=draws, seed=seed)
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
    """Return how far the score of one key must be above the equal scores of all other keys to get a given weight.

    Parameters
    ----------
    length : int
        Number of all keys, at least 2.
    weight : float
        Weight of the one key, in (0, 1).

    Raises
    ------
    TypeError, ValueError
        If there are fewer than two keys, or the weight is not in (0, 1).

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
    """Return the factor on scores that keeps the weight of one key at a longer length, and a common rule for it.

    Parameters
    ----------
    length, longer : int
        Number of keys in training and in the test, at least 2.
    weight : float
        Weight of the one key, in (0, 1).

    Returns
    -------
    dict
        - "factor": the score gap at the longer length divided by the gap at the shorter length. It is left out if the
          gap at the shorter length is not above 0. In this case the key needs no higher score for its weight.
        - "logarithms": ln N' / ln N, the common rule.

    Raises
    ------
    TypeError, ValueError
        If there are fewer than two keys, or the weight is not in (0, 1).

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
        found["factor"] = exact(
            far / near, "score gap at the longer length divided by the gap at the shorter one", **inputs, weight=weight
        )
    return found
