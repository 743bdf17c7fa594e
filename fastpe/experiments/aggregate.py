"""Statistics over several tasks: interquartile means, performance profiles, probabilities of improvement, and ranks
(Agarwal et al. 2021, arXiv:2108.13264; Demsar 2006).

Scores are in [0, 1], and larger is better. For tasks of tokens, the score is the share of answers that are entirely
right. For tasks of numbers, it is max(0, 1 - error / error of always answering 0).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastpe.base.random import Stream
from fastpe.experiments.statistics import Estimate

Array = np.ndarray[Any, Any]

RESAMPLED = 2000
LEAST_SEEDS = 5  # with fewer seeds, bootstrap intervals are too short
MOST_ENCODINGS, LEAST_TASKS = 10, 10  # limits of a useful diagram of critical differences


def interquartile_mean(scores: Array) -> float:
    """The mean of the middle half of all runs of all tasks, without the best and the worst quarter.

    Parameters
    ----------
    scores : ndarray (tasks, seeds)

    Examples
    --------
    >>> interquartile_mean(np.array([[0.0, 0.5], [0.7, 1.0]]))
    0.6
    """
    ordered = np.sort(np.asarray(scores, np.float64), axis=None)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def aggregate(scores: Array) -> Estimate:
    """The interquartile mean of scores (tasks, seeds), with a 95 % bootstrap interval.

    The bootstrap is stratified: it resamples the seeds within each task. With fewer than 5 seeds there is no interval,
    because it would be too short.

    Examples
    --------
    >>> found = aggregate(np.linspace(0, 1, 30).reshape(3, 10))
    >>> round(found.mean, 3), found.low < 0.5 < found.high
    (0.5, True)
    """
    tasks, seeds = scores.shape
    mean = interquartile_mean(scores)
    if seeds < LEAST_SEEDS:
        return Estimate(mean, None, None, None, seeds)
    chosen = (Stream(0, "bootstrap").uniform((RESAMPLED, tasks, seeds)) * seeds).astype(np.intp)
    drawn = np.sort(np.take_along_axis(scores[None], chosen, axis=2).reshape(RESAMPLED, -1), axis=1)
    cut = drawn.shape[1] // 4
    means = drawn[:, cut : drawn.shape[1] - cut].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Estimate(mean, float(low), float(high), float(means.std(ddof=1)), seeds)


def profile(scores: Array, thresholds: Array) -> Array:
    """The share of all runs whose score is above each threshold, (thresholds,).

    Examples
    --------
    >>> profile(np.array([[0.2, 0.8], [0.5, 1.0]]), np.array([0.0, 0.5, 0.9])).tolist()
    [1.0, 0.5, 0.25]
    """
    return (np.asarray(scores)[..., None] > thresholds).mean(axis=(0, 1))


def improvement(scores: Array, others: Array) -> float:
    """Return the probability that a random run of `scores` is better than one of `others` on a random task.

    A tie counts as half.

    Examples
    --------
    >>> improvement(np.array([[1.0, 1.0]]), np.array([[0.0, 1.0]]))
    0.75
    """
    first, second = np.asarray(scores)[:, :, None], np.asarray(others)[:, None, :]
    return float(np.mean((first > second) + 0.5 * (first == second)))


def effective_length(scores: Mapping[int, float], threshold: float) -> int | None:
    """Return the longest length up to which every length has a score of at least the threshold.

    The result is None if the first length has a lower score.

    Examples
    --------
    >>> effective_length({50: 0.99, 100: 0.96, 200: 0.4, 400: 0.95}, 0.9), effective_length({50: 0.1}, 0.9)
    (100, None)
    """
    longest = None
    for length in sorted(scores):
        if not scores[length] >= threshold:
            break
        longest = length
    return longest


def ranks(scores: Sequence[Array]) -> Array:
    """The mean rank of each encoding over tasks, (encodings,). Rank 1 is the best; equal mean scores share a rank.

    Parameters
    ----------
    scores : sequence of ndarray (tasks, seeds)
        One array for each encoding.

    Examples
    --------
    >>> ranks([np.array([[0.9], [0.2]]), np.array([[0.5], [0.4]])]).tolist()
    [1.5, 1.5]
    """
    from scipy.stats import rankdata

    means = np.array([np.asarray(each).mean(axis=1) for each in scores])
    found: Array = np.mean([rankdata(-column) for column in means.T], axis=0)
    return found


def critical_difference(encodings: int, tasks: int) -> float | None:
    """Return the difference of mean ranks that is significant at 5 % (Nemenyi 1963).

    The result is None for more than 10 encodings or fewer than 10 tasks.

    Examples
    --------
    >>> round(critical_difference(10, 10), 2), critical_difference(20, 10)
    (4.28, None)
    """
    if encodings > MOST_ENCODINGS or tasks < LEAST_TASKS or encodings < 2:
        return None
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(0.95, encodings, math.inf)) / math.sqrt(2.0)
    return quantile * math.sqrt(encodings * (encodings + 1) / (6.0 * tasks))
