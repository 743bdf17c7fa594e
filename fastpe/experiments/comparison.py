"""Comparisons of an encoding with the baseline over seeds: paired tests, detectable differences, equivalence.

All statistics are paired: run k of an encoding and run k of the baseline have the same seed, data and test sequences.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.base.random import Stream
from fastpe.experiments.statistics import Estimate, estimate

Array = np.ndarray[Any, Any]

ALPHA = 0.05
POWER = 0.8
_EXACT = 16  # up to this many differences, all choices of signs are tried
_DRAWN, _PARTS = 100_000, 20
MOST_SEEDS = 10_000
_SIGNS_OF_BYTES = 1.0 - 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)


def sign_flip(differences: Sequence[float]) -> float:
    """The two-sided p value of the paired sign-flip test.

    The p value is the probability of a mean at least as far from 0 if the sign of every difference were random.

    For up to 16 differences, all 2^n choices of signs are tried; for more, 100,000 random ones. The p value is at least
    2^(1 - n), which is 0.0625 for 5 seeds.

    Parameters
    ----------
    differences : sequence of float
        At least one finite value.

    Examples
    --------
    >>> sign_flip([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), sign_flip([1.0, -1.0, 2.0])
    (0.03125, 0.75)
    """
    values = _finite(differences)
    observed = abs(values.sum()) - _slack(values)
    return _share(values, lambda sums: np.abs(sums) >= observed)


def equivalence(differences: Sequence[float], margin: float) -> float:
    """The p value of two one-sided sign-flip tests (Schuirmann 1987). It is small if the mean lies within the margin.

    The first test shows that the mean is above -margin: it draws random signs for the distances of the differences from
    -margin. The second test shows in the same way that the mean is below margin. The result is the larger of the two p
    values. It is at least 2^-n for n differences, which is 0.03125 for 5 seeds. The tests assume that the differences
    are spread symmetrically about their mean. They cannot detect rare and large failures if none of these seeds failed.

    Parameters
    ----------
    differences : sequence of float
        At least one finite value.
    margin : float
        Above 0, in the unit of the differences.

    Examples
    --------
    >>> equivalence([0.01, -0.02, 0.0, 0.01, 0.03], 0.1), equivalence([0.01, -0.02, 0.0, 0.01, 0.3], 0.1)
    (0.03125, 0.28125)
    """
    values = _finite(differences)
    return max(_one_sided(values + margin), _one_sided(margin - values))


def _one_sided(values: Array) -> float:
    """The probability of a sum at least this large if every sign were random."""
    observed = values.sum() - _slack(values)
    return _share(values, lambda sums: sums >= observed)


def _finite(differences: Sequence[float]) -> Array:
    values = np.asarray(differences, np.float64)
    if not values.size or not np.isfinite(values).all():
        raise ValueError(f"differences must be finite numbers, at least one, not {values.tolist()}")
    return values


def _slack(values: Array) -> float:
    """The rounding error by which sums of the same numbers in different orders may differ."""
    return 1e-12 * float(np.abs(values).sum())


def _share(values: Array, counts: Callable[[Array], Array]) -> float:
    """The share of choices of signs for whose sum `counts` is true.

    It is the share of all choices, or of the random choices together with the observed signs, which always count.
    """
    found = sum(int(np.sum(counts(_sums(part, values)))) for part in _coins(len(values)))
    return found / 2 ** len(values) if len(values) <= _EXACT else (1 + found) / (1 + _DRAWN)


@lru_cache(maxsize=1)
def _coins(count: int) -> list[Array]:
    """All choices of signs, or 100,000 random ones, in several arrays with eight signs per byte.

    All comparisons use the same choices.
    """
    if count <= _EXACT:
        return [np.packbits(np.array(list(itertools.product((0, 1), repeat=count)), np.uint8), axis=1)]
    each = _DRAWN // _PARTS
    return [np.packbits(Stream(0, "signs", part).uniform((each, count)) < 0.5, axis=1) for part in range(_PARTS)]


def _sums(coins: Array, values: Array) -> Array:
    """The sums of the values with each choice of signs. Sums of eight values are looked up in a table of 256."""
    eights = np.zeros((coins.shape[1], 8))
    eights.reshape(-1)[: len(values)] = values
    found = np.zeros(len(coins))
    for sums, column in zip(eights @ _SIGNS_OF_BYTES.T, coins.T, strict=True):
        found += sums[column]
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """p values adjusted by Holm (1979): at level 5 %, the probability of any false rejection is at most 5 %.

    Examples
    --------
    >>> [round(p, 6) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def detectable(sd: float, count: int, family: int = 1) -> float | None:
    """The true difference that `count` paired runs detect with a power of 80 %; None if they can detect none.

    The power is computed for the t test, at a level of 5 % divided by the number of comparisons in the family. The
    result is None if there are so few runs that the sign-flip test cannot be significant.

    Parameters
    ----------
    sd : float
        Standard deviation of the paired differences.
    count : int
        Number of paired runs.
    family : int
        Number of comparisons over which the level is divided.

    Examples
    --------
    >>> round(detectable(1.0, 10), 3), detectable(1.0, 5)
    (0.996, None)
    """
    if not _can_be_significant(count, family):
        return None
    return sd * _least_effect(count, family)


@lru_cache
def _least_effect(count: int, family: int) -> float:
    """The value of `detectable` for a standard deviation of 1."""
    from scipy import optimize

    most = 1.0
    while _power(most, count, family) < POWER:
        most *= 2.0
    return float(optimize.brentq(lambda effect: _power(effect, count, family) - POWER, 0.0, most))


def seeds_needed(difference: float, sd: float, family: int = 1) -> int | None:
    """The number of seeds needed to detect a difference with a power of 80 %; None if it is above 10,000.

    Examples
    --------
    >>> seeds_needed(1.0, 1.0), seeds_needed(5.0, 1.0), seeds_needed(0.001, 1.0)
    (10, 6, None)
    """
    effect = math.inf if sd == 0.0 and difference else abs(difference) / sd if sd else 0.0
    low, high = 1, MOST_SEEDS
    if not (_enough(effect, high, family)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _enough(effect, middle, family) else (middle, high)
    return high


def _enough(effect: float, count: int, family: int) -> bool:
    return _can_be_significant(count, family) and (math.isinf(effect) or _power(effect, count, family) >= POWER)


def least_seeds(family: int = 1) -> int:
    """The least number of seeds with which a difference can be significant.

    >>> least_seeds(), least_seeds(9)
    (6, 9)
    """
    return next(count for count in itertools.count(1) if _can_be_significant(count, family))


def _can_be_significant(count: int, family: int) -> bool:
    return 2.0 ** (1 - count) <= ALPHA / family


def _power(effect: float, count: int, family: int) -> float:
    """The power of the two-sided t test, where `effect` is the true mean in standard deviations."""
    from scipy import special  # scipy.stats calls the same function but takes 20 times as long

    limit, shift = special.stdtrit(count - 1, 1.0 - ALPHA / (2 * family)), effect * math.sqrt(count)
    tails = (float(special.nctdtr(count - 1, shift, end)) for end in (limit, -limit))
    # nctdtr returns NaN for tails that are nearly 0
    below, lower = (0.0 if math.isnan(tail) else tail for tail in tails)
    return 1.0 - below + lower


@dataclass(frozen=True)
class Comparison:
    """The comparison of one encoding with the baseline at one length of one task.

    Attributes
    ----------
    difference : Estimate
        Mean of encoding - baseline over seeds, with its t interval.
    p, adjusted : float
        The p value of the sign-flip test, and this p value adjusted by Holm for the family.
    within : float or None
        The p value of `equivalence` with the margin, adjusted by Holm for the family; None if there is no margin.
    verdict : str
        "equivalent" if `within` is at most 5 %, whether or not the difference is significant; else "better" or "worse"
        if `adjusted` is at most 5 %; else "inconclusive".
    could_find : float or None
        The difference that these seeds can detect, see `detectable`.
    needed : int or None
        The number of seeds that would detect the observed difference, see `seeds_needed`.
    """

    difference: Estimate
    p: float
    adjusted: float
    within: float | None
    verdict: str
    could_find: float | None
    needed: int | None


VERDICTS = ("better", "worse", "equivalent", "inconclusive")


def compare_paired(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], *, larger_is_better: bool, margin: float | None = None
) -> list[Comparison]:
    """Compare several sets of runs with those of a baseline. All comparisons are one family for Holm's adjustment.

    Parameters
    ----------
    pairs : sequence of (values, values of the baseline)
        Each a sequence of at least two finite values, one for each seed.
    larger_is_better : bool
        Whether a larger value is better.
    margin : float, optional
        Differences within the margin count as equivalent.

    Returns
    -------
    list of Comparison
        One for each pair.

    Examples
    --------
    >>> base = [0.50, 0.51, 0.49, 0.52, 0.50, 0.48]
    >>> found = compare_paired([([x + 0.2 for x in base], base), (base, base)], larger_is_better=True, margin=0.05)
    >>> [each.verdict for each in found]
    ['inconclusive', 'equivalent']
    >>> found[0].adjusted, found[0].needed
    (0.0625, 7)
    """
    differences = [[a - b for a, b in zip(*pair, strict=True)] for pair in pairs]
    p_values = [sign_flip(each) for each in differences]
    found = []
    inside: Sequence[float | None] = [None] * len(pairs)
    if margin is not None:
        inside = holm([equivalence(each, margin) for each in differences])
    for each, p, adjusted, within in zip(differences, p_values, holm(p_values), inside, strict=True):
        mean = estimate(each)
        sd = mean.sd or 0.0
        found.append(
            Comparison(
                mean, p, adjusted, within, _verdict(mean, adjusted, within, larger_is_better),
                detectable(sd, len(each), len(pairs)), seeds_needed(mean.mean, sd, len(pairs)) if mean.mean else None,
            )
        )  # fmt: skip
    return found


def _verdict(mean: Estimate, adjusted: float, within: float | None, larger_is_better: bool) -> str:
    if within is not None and within <= ALPHA:
        return "equivalent"
    if adjusted <= ALPHA:
        return "better" if (mean.mean > 0) == larger_is_better else "worse"
    return "inconclusive"
