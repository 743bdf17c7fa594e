"""Estimates over seeds, with intervals: means, geometric means, medians, and shares of runs that solve a task."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A mean and its confidence interval.

    Attributes
    ----------
    mean : float
    low, high : float or None
        Ends of the interval; None if there is only one value.
    sd : float or None
        Sample standard deviation (divisor count - 1); None if there is only one value.
    count : int
        Number of values.
    """

    mean: float
    low: float | None
    high: float | None
    sd: float | None
    count: int


def estimate(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """The mean of independent values, with the t interval mean ± t * sd / sqrt(count).

    Parameters
    ----------
    values : sequence of float
        At least one finite value.
    confidence : float
        Coverage of the interval, in (0, 1).

    Raises
    ------
    ValueError
        If there is no value, or `confidence` is out of range.

    Examples
    --------
    >>> found = estimate([1.0, 2.0, 3.0])
    >>> found.mean, round(found.low, 4), round(found.high, 4)
    (2.0, -0.4841, 4.4841)
    """
    if not len(values):
        raise ValueError("values must hold at least one number")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), not {confidence}")
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean, None, None, None, 1)
    from scipy.special import stdtrit  # the quantile of scipy.stats.t, without slow checks

    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    half = float(stdtrit(count - 1, (1 + confidence) / 2)) * sd / math.sqrt(count)
    return Estimate(mean, mean - half, mean + half, sd, count)


def paired_difference(first: Sequence[float], second: Sequence[float], confidence: float = 0.95) -> Estimate:
    """The mean of first[k] - second[k] with its t interval, for pairs of results on the same data.

    Examples
    --------
    >>> paired_difference([1.0, 2.0], [0.5, 1.5]).mean
    0.5
    """
    if len(first) != len(second):
        raise ValueError(f"first and second must have equally many values, not {len(first)} and {len(second)}")
    return estimate([a - b for a, b in zip(first, second, strict=True)], confidence)


def geometric(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """The geometric mean of positive values. The interval is the t interval of their logarithms, mapped back by exp.

    Use it for errors, which are positive and skewed: a t interval of the errors themselves could extend below 0. `sd`
    of the result is the standard deviation of the logarithms.

    Raises
    ------
    ValueError
        If a value is not positive.

    Examples
    --------
    >>> found = geometric([0.1, 1.0, 10.0])
    >>> round(found.mean, 12), found.low > 0
    (1.0, True)
    """
    if not all(value > 0 for value in values):
        raise ValueError(f"values must be positive, not {min(values)}")
    logs = estimate([math.log(value) for value in values], confidence)
    low, high = (None if end is None else math.exp(end) for end in (logs.low, logs.high))
    return Estimate(math.exp(logs.mean), low, high, logs.sd, logs.count)


@dataclass(frozen=True)
class MedianInterval:
    """An interval between two of the sorted values, and a lower bound of its coverage of the population median.

    Attributes
    ----------
    low, high, coverage : float
    """

    low: float
    high: float
    coverage: float


def median_interval(values: Sequence[float], confidence: float = 0.95) -> MedianInterval:
    """The shortest symmetric interval of order statistics with at least this coverage of the median.

    If no interval has this coverage, the result is the interval from the smallest to the largest value. The interval
    from the k-th smallest to the k-th largest of n values covers the median with probability 1 - 2 P(B < k), where B is
    binomial with parameters n and 1/2; if values can be equal, the probability is at least this (Thompson 1936; David &
    Nagaraja 2003, 7.1).

    Examples
    --------
    >>> found = median_interval([3, 1, 2, 5, 4, 6, 7, 9, 8, 10])
    >>> found.low, found.high, round(found.coverage, 4)
    (2, 9, 0.9785)
    >>> median_interval([1, 2, 3])
    MedianInterval(low=1, high=3, coverage=0.75)
    """
    if not len(values):
        raise ValueError("values must hold at least one number")
    from scipy.stats import binom

    ordered, count = sorted(values), len(values)
    depth = next((k for k in range(count // 2, 1, -1) if 1 - 2 * binom.cdf(k - 1, count, 0.5) >= confidence), 1)
    coverage = max(0.0, float(1 - 2 * binom.cdf(depth - 1, count, 0.5)))
    return MedianInterval(ordered[depth - 1], ordered[-depth], coverage)


@dataclass(frozen=True)
class Share:
    """The number of successes among some runs, and the exact interval of the probability of success.

    Attributes
    ----------
    count, of : int
        Number of successes and number of runs.
    low, high : float
        Ends of the interval.
    """

    count: int
    of: int
    low: float
    high: float


def share(count: int, of: int, confidence: float = 0.95) -> Share:
    """The interval of Clopper and Pearson (1934). Its coverage is at least `confidence`, even if `count` is 0 or `of`.

    Examples
    --------
    >>> found = share(5, 5)
    >>> round(found.low, 3), found.high
    (0.478, 1.0)
    """
    if not 0 <= count <= of or of < 1:
        raise ValueError(f"count must lie in [0, {of}], not {count}")
    from scipy.stats import beta

    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, count, of - count + 1)) if count else 0.0
    high = float(beta.ppf(1 - tail, count + 1, of - count)) if count < of else 1.0
    return Share(count, of, low, high)
