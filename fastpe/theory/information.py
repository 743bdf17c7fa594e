"""The information, in nats, that a table row with added noise contains about its position.

Li (2025) asks for encodings with a high "mutual information between positions" but does not define this quantity. Here
a position is drawn uniformly, and its row is observed with noise. The information says whether positions can be
distinguished, not whether a model learns to distinguish them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.base.random import Stream
from fastpe.theory.pairs import Window, bounds
from fastpe.theory.precision_information import ROWS, checked_table
from fastpe.theory.value import Value, certified, estimate, exact

Array = np.ndarray[Any, Any]

_COLUMNS, _NUMBERS = 2048, 2**21  # largest numbers of rows and of entries in a block of `Centred.columns`
_SKEWED = 0.15  # above this skewness / sqrt(draws), an interval from the standard deviation is too short
_ALIKE = 1e-12  # standard deviations below this are rounding errors


@dataclass(frozen=True)
class PositionInformation:
    """I(position; table row + noise), see `position_information`.

    Attributes
    ----------
    lower, upper : Value
        Certified bounds. `upper` is the smallest of three upper bounds. All three are in the inputs of `upper`.
    estimate : Value
        A Monte Carlo estimate with its 95 % interval.
    sigma : float
        Standard deviation of the noise in each channel.
    most : float
        ln n, the largest possible information.
    """

    lower: Value
    estimate: Value
    upper: Value
    sigma: float
    most: float


@dataclass(frozen=True)
class InformationCurve:
    """Certified bounds on the information in nats: arrays with one entry for each noise level. `most` is ln n."""

    sigmas: Array
    lower: Array
    upper: Array
    most: float


class Centred:
    """The rows of a table in float64, minus the mean row. They are computed a block at a time.

    Equal rows stay exactly equal. If all rows of the table are equal, all centred rows are 0.

    Parameters
    ----------
    table : array_like (n, d)
    window : (first, end), optional
        The positions first .. end - 1 are used. The default is all positions.
    """

    def __init__(self, table: Any, window: Window | None = None) -> None:
        rows = checked_table(table)
        self.window = bounds((0, len(rows)) if window is None else window)
        if self.window[1] > len(rows):
            raise ValueError(f"window must end within the {len(rows)} rows of table, not at {self.window[1]}")
        self._rows = rows[slice(*self.window)]
        self.length, self.dim = self._rows.shape
        self._first, self._mean = self._rows[0].astype(np.float64), np.zeros(self.dim)
        self._mean = sum(block.sum(axis=0) for _, block in self.blocks()) / self.length
        self.squares = np.concatenate([np.einsum("ij,ij->i", block, block) for _, block in self.blocks()])
        self.power = float(self.squares.mean())

    def rows(self, chosen: Any) -> Array:
        """Return the chosen rows, (chosen, d)."""
        found: Array = self._rows[chosen].astype(np.float64)
        found -= self._first
        found -= self._mean
        return found

    def blocks(self, size: int = ROWS) -> Iterator[tuple[slice, Array]]:
        """Yield all rows in order, in blocks."""
        for start in range(0, self.length, size):
            yield (part := slice(start, min(start + size, self.length))), self.rows(part)

    def columns(self) -> Iterator[tuple[slice, Array]]:
        """Yield all rows in order, in the largest blocks that keep the memory bounded."""
        return self.blocks(min(_COLUMNS, max(ROWS, _NUMBERS // self.dim)))

    def distances(self, rows: Array, part: slice, others: Array) -> Array:
        """Return the squared distances of `rows`, (k, d), from `others`, the block of rows at `part`."""
        found = np.einsum("ij,ij->i", rows, rows)[:, None] + self.squares[part] - 2.0 * (rows @ others.T)
        return np.maximum(found, 0.0, out=found)

    def noise(self, sigma: Any, snr: Any) -> float:
        """Return the standard deviation of the noise: `sigma`, or without `sigma` the value that gives `snr`.

        If all rows are equal, no value gives `snr`, and 1 is returned.
        """
        if sigma is not None:
            return validation.positive("sigma", sigma)
        return math.sqrt(self.power / (self.dim * validation.positive("snr", snr))) or 1.0


def position_information(
    table: Any, *, sigma: float | None = None, snr: float = 1.0, window: Window | None = None,
    draws: int = 1024, seed: int = 0,
) -> PositionInformation:  # fmt: skip
    """Bound and estimate I(I; T[I] + sigma e) for a uniform position I among n, with e standard normal in each channel.

    The information says whether positions can be identified. It does not rank encodings: random rows also have an
    information near ln n.

    Parameters
    ----------
    table : array_like (positions, channels)
    sigma : float, optional
        Standard deviation of the noise in the units of the table ("raw").
    snr : float
        Signal-to-noise ratio, used if `sigma` is not given: the centred power of the rows,
        (1/n) sum |T[p] - mean|^2, divided by the power of the noise, d sigma^2. With the same ratio, the scale of a
        table does not matter, and tables are compared by their shape only ("shape").
    window : (first, end), optional
        Use only the positions first .. end - 1.
    draws : int
        Number of draws of e, at least 2. With more than 256 positions, each draw uses a random part of the positions.
    seed : int
        Seed of the draws.

    Returns
    -------
    PositionInformation

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range.

    Notes
    -----
    P12. Let D = |T[p] - T[q]|^2. The bounds are:

    - lower: -mean_p ln mean_q exp(-D/8 sigma^2) (Kolchinsky and Tracey 2017, arXiv:1706.02419);
    - upper, pairwise: the same expression with 2 sigma^2 in place of 8 sigma^2 (same source);
    - upper, Gaussian: (1/2) ln det(1 + Cov/sigma^2), from the maximum of entropy;
    - upper: ln n.

    Examples
    --------
    >>> found = position_information([[-1.0], [1.0]], sigma=1.0)
    >>> round(found.lower.value, 6), round(found.upper.value, 6)
    (0.21907, 0.346574)
    """
    centred, draws = Centred(table, window), validation.whole("draws", draws, 2)
    noise = centred.noise(sigma, snr)
    (lower,), uppers = _bounds(centred, np.array([noise]))
    inputs = {"sigma": noise, "window": centred.window, "dim": centred.dim}
    kinds = dict(zip(("pairwise", "gaussian", "entropy"), uppers[:, 0].tolist(), strict=True))
    upper = min(kinds.values())
    low = certified("P12: pairwise Bhattacharyya distances", low=min(float(lower), upper), **inputs)
    high = certified("P12: the smallest of three upper bounds", high=upper, **inputs, **kinds)
    found = _monte_carlo(centred, noise, draws, seed)
    ends = _interval(found, float(low.value), kinds["entropy"])
    inner = estimate(
        *ends, "Monte Carlo over the noise, with an exact sum over positions", **inputs, draws=draws, seed=seed
    )
    return PositionInformation(low, inner, high, noise, kinds["entropy"])


def information_curve(table: Any, sigmas: Any, *, window: Window | None = None) -> InformationCurve:
    """Return the certified bounds of `position_information` at several noise levels, for plots.

    Parameters
    ----------
    table : array_like (positions, channels)
    sigmas : array_like (levels,)
        Standard deviations above 0.
    window : (first, end), optional

    Returns
    -------
    InformationCurve

    Examples
    --------
    >>> curve = information_curve(np.eye(4), [0.1, 1.0, 10.0])
    >>> curve.lower.round(3).tolist(), bool((curve.lower <= curve.upper).all())
    ([1.386, 0.181, 0.002], True)
    """
    levels = validation.array("sigmas", sigmas).astype(np.float64)
    if levels.ndim != 1 or not levels.size or not (np.isfinite(levels) & (levels > 0)).all():
        raise ValueError(f"sigmas must be a one-dimensional array of finite numbers above 0, not {sigmas!r}")
    centred = Centred(table, window)
    lower, uppers = _bounds(centred, levels)
    upper = uppers.min(axis=0)
    return InformationCurve(levels, np.minimum(lower, upper), upper, math.log(centred.length))


def _bounds(centred: Centred, sigmas: Array) -> tuple[Array, Array]:
    """Return the lower bound at each noise level, and the upper bounds (3, levels): pairwise, Gaussian, ln n."""
    rates = 1.0 / np.concatenate([8.0 * sigmas**2, 2.0 * sigmas**2])
    totals = np.zeros(len(rates))
    for _, rows in centred.blocks():
        sums = np.zeros((len(rates), len(rows)))
        for part, others in centred.columns():
            distances = centred.distances(rows, part, others)
            for own, rate in zip(sums, rates, strict=True):
                own += np.exp(-rate * distances).sum(axis=1)
        totals += np.log(sums / centred.length).sum(axis=1)
    lower, pairwise = np.maximum(-totals / centred.length, 0.0).reshape(2, -1)
    gaussian = 0.5 * np.log1p(_spectrum(centred)[:, None] / sigmas**2).sum(axis=0)
    return lower, np.stack([pairwise, gaussian, np.full(len(sigmas), math.log(centred.length))])


def _spectrum(centred: Centred) -> Array:
    """Return the eigenvalues of the covariance of the rows.

    With fewer rows than channels, only as many eigenvalues as rows are returned. The others are 0.
    """
    from scipy.linalg import blas, eigvalsh

    if centred.length < centred.dim:
        products = np.empty((centred.length, centred.length), order="F")
        for part, rows in centred.blocks():
            for other, others in centred.blocks():
                products[part, other] = rows @ others.T
    else:
        products = np.zeros((centred.dim, centred.dim), order="F")
        for _, rows in centred.blocks():  # in place, because one such matrix has 134 MB for 4,096 channels
            products = blas.dsyrk(1.0, rows.T, beta=1.0, c=products, lower=1, overwrite_c=1)
    values: Array = eigvalsh(products, lower=True, overwrite_a=True, check_finite=False)
    return np.maximum(values, 0.0) / centred.length


def _monte_carlo(centred: Centred, sigma: float, draws: int, seed: int) -> Array:
    """Return -mean_p ln mean_q exp(-(D + 2 sigma e.(T[p] - T[q])) / 2 sigma^2) for each draw of e, (draws,).

    D is |T[p] - T[q]|^2.
    """
    n, found = centred.length, np.empty(draws)
    count = min(n, max(8, 2**16 // n))
    together = ROWS if count == n else ROWS // count  # few large products are faster than many small ones
    for start in range(0, draws, together):
        some = range(start, min(start + together, draws))
        noise = Stream(seed, "noise", start).normal((len(some), centred.dim)) / sigma
        picked = [np.arange(n)] if count == n else [Stream(seed, "positions", draw).choice(n, count) for draw in some]
        rows, along = centred.rows(np.concatenate(picked)), np.empty((len(some), n))
        apart = np.empty((len(rows), n))
        for part, others in centred.columns():
            apart[:, part] = centred.distances(rows, part, others) / (2.0 * sigma**2)
            along[:, part] = noise @ others.T
        for draw, own in zip(some, along, strict=True):
            which = 0 if count == n else draw - start
            exponents = own - apart[which * count : (which + 1) * count]
            largest = exponents.max(axis=1)
            sums = np.exp(exponents - largest[:, None]).sum(axis=1)
            found[draw] = np.mean(own[picked[which]] - largest - np.log(sums / n))
    return found


def _interval(found: Array, lower: float, most: float) -> tuple[float, float, float]:
    """Return the mean of the draws and its 95 % interval.

    If the information is close to ln n, only a few draws lose information, and all other draws are equal. The standard
    deviation of such skewed or equal draws gives an interval that is too short. So the interval is then extended down
    to the certified lower bound, which is close to the mean in this case.
    """
    mean, deviation, root = float(found.mean()), float(found.std(ddof=1)), math.sqrt(len(found))
    low, high = mean - 1.96 * deviation / root, mean + 1.96 * deviation / root
    third = float(np.mean((found - mean) ** 3))
    if deviation < _ALIKE or abs(third) > _SKEWED * root * deviation**3:
        low = min(low, lower)
    return mean, low, max(mean, min(high, most))


def two_point_information(distance: float, sigma: float = 1.0) -> Value:
    """Return the exact information about which of two equally likely points was observed in normal noise.

    The information is ln 2 - E ln(1 + exp(-2 a^2 - 2 a Z)), with a = `distance` / 2 `sigma` and Z standard normal.

    Parameters
    ----------
    distance : float
        Distance between the points, in any dimension.
    sigma : float
        Standard deviation of the noise.

    Examples
    --------
    >>> round(two_point_information(2.0).value, 9)
    0.33683082
    """
    from scipy.integrate import quad

    a = validation.at_least_zero("distance", distance) / (2.0 * validation.positive("sigma", sigma))
    density = 1.0 / math.sqrt(2.0 * math.pi)
    lost, _ = quad(
        lambda z: density * math.exp(-z * z / 2.0) * np.logaddexp(0.0, -2.0 * a * (a + z)), -12.0, 12.0,
        points=[max(-a, -12.0)], epsabs=1e-15, epsrel=1e-13, limit=200,
    )  # fmt: skip
    why = "I1: two points, the integral over the noise along the line through them"
    return exact(max(math.log(2.0) - lost, 0.0), why, distance=float(distance), sigma=float(sigma))


def fano(information: Value, length: int) -> Value:
    """Return the smallest possible error rate of any guess of the position (Fano): 1 - (I + ln 2) / ln n.

    Parameters
    ----------
    information : Value
        The information I with an upper bound, such as `PositionInformation.upper` or an exact value.
    length : int
        Number of positions n, at least 2.

    Returns
    -------
    Value
        Certified from below; 0 if the inequality gives no bound.

    Examples
    --------
    >>> round(fano(position_information(0.1 * np.eye(64), sigma=1.0).upper, 64).value, 2)
    0.83
    """
    length = validation.whole("length", length, 2)
    validation.instance("information", information, Value, "fano(position_information(table).upper, length)")
    if information.high is None or information.kind == "estimate":
        raise ValueError(
            f"information must be certified from above, not {information.kind} of at least {information.low}"
        )
    low = max(0.0, 1.0 - (information.high + math.log(2.0)) / math.log(length))
    return certified("I6: Fano's inequality, position uniform", low=low, information=information.high, length=length)
