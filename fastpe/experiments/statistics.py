"""One encoding on one task at one length, over seeds: means, geometric means, shares of solved runs, with intervals."""

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
        Ends of the interval; None where a single value tells nothing of the spread.
    sd : float or None
        Sample standard deviation (divisor count - 1).
    count : int
    """

    mean: float
    low: float | None
    high: float | None
    sd: float | None
    count: int


def estimate(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Mean of independent values and the t interval mean ± t * sd / sqrt(count).

    Parameters
    ----------
    values : sequence of float
        Finite, at least one.
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
    from scipy.stats import t

    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    half = float(t.ppf((1 + confidence) / 2, count - 1)) * sd / math.sqrt(count)
    return Estimate(mean, mean - half, mean + half, sd, count)


def paired_difference(first: Sequence[float], second: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Mean of first[k] - second[k], two results on the same data, and its t interval.

    Examples
    --------
    >>> paired_difference([1.0, 2.0], [0.5, 1.5]).mean
    0.5
    """
    if len(first) != len(second):
        raise ValueError(f"first and second must have as many values, not {len(first)} and {len(second)}")
    return estimate([a - b for a, b in zip(first, second, strict=True)], confidence)


def geometric(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Geometric mean of positive values and the t interval of their logarithms, which cannot reach 0.

    For errors, which are positive and skewed: a t interval of their own may. `sd` is that of the logarithms.

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
class Share:
    """How many of some runs did it, and the exact interval of the chance that one does.

    Attributes
    ----------
    count, of : int
    low, high : float
    """

    count: int
    of: int
    low: float
    high: float


def share(count: int, of: int, confidence: float = 0.95) -> Share:
    """The interval of Clopper and Pearson 1934: its coverage is at least as stated, also for none and for all.

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
