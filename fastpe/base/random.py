"""Random numbers as pure functions of (seed, stream, step): the same bits on every machine, with every NumPy.

This module has no state. Random words of 64 bits come from a fixed algorithm, Philox4x64-10 (Salmon et al. 2011,
"Parallel random numbers: as easy as 1, 2, 3"). Word ``4 b + w`` is word ``w`` of the block whose counter is
``(b + 1, step, 0, 0)`` under the key ``(seed, hash of the stream's name)``. A hash is the first 8 bytes of SHA-256,
little-endian. Words are converted to numbers only by operations that are exact or that IEEE 754 rounds correctly
(+ - * / and the square root), never by a library's logarithm, so that no upgrade changes a bit.
"""

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastpe.base import validation

Shape = int | tuple[int, ...]


@dataclass(frozen=True)
class Stream:
    """A named sequence of random numbers; equal requests give equal numbers.

    A shorter request is always a prefix of a longer one (in C order).

    Parameters
    ----------
    seed : int
        0 <= seed < 2**64.
    stream : str
        Purpose of the numbers, such as ``"init"``, ``"train"``, ``"order"``, ``"test"``.
    step : int or str
        Part of the stream: an epoch, a length, or the name of a parameter. An integer must be in 0 <= step < 2**64.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong type or out of range.

    Examples
    --------
    >>> stream = Stream(0, "train")
    >>> bool((stream.normal(10) == stream.normal(20)[:10]).all())
    True
    >>> Stream(0, "order", step=3).permutation(5).tolist()
    [3, 0, 2, 1, 4]
    """

    seed: int
    stream: str
    step: int | str = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", validation.seed("seed", self.seed))
        if not isinstance(self.stream, str):
            raise TypeError(f"stream must be a str, not {validation.shown(self.stream)}")
        if not isinstance(self.step, str):
            object.__setattr__(self, "step", validation.whole("step", self.step, 0, 2**64 - 1))

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return the first n words, each of 64 random bits, (n,) uint64."""
        n = validation.whole("n", n, 0)
        step = _hash(self.step) if isinstance(self.step, str) else self.step
        counter = np.array([0, step, 0, 0], dtype=np.uint64)
        words: NDArray[np.uint64] = np.random.Philox(key=self.key(), counter=counter).random_raw(n)
        return words

    def key(self) -> NDArray[np.uint64]:
        """Return the two key words of Philox: the seed, and the hash of the name, (2,) uint64."""
        return np.array([self.seed, _hash(self.stream)], dtype=np.uint64)

    def uniform(self, shape: Shape) -> NDArray[np.float64]:
        """Return float64 numbers uniform in (0, 1): odd multiples of 2**-53, so never 0, 1/2 or 1."""
        sizes = _sizes(shape)
        odd = (self.words(math.prod(sizes)) >> np.uint64(11)) | np.uint64(1)
        return odd.astype(np.float64).reshape(sizes) * 2.0**-53

    def normal(self, shape: Shape) -> NDArray[np.float64]:
        """Return standard normal float64 numbers, the normal quantiles of `uniform`."""
        return normal_quantile(self.uniform(shape))

    def choice(self, n: int, k: int) -> NDArray[np.intp]:
        """Return k different integers from 0 to n - 1, k <= n, in ascending order. All such sets are equally likely.

        They are the first k different values among the integer parts of n times `uniform`.

        >>> Stream(0, "positions").choice(100, 5).tolist()
        [23, 32, 49, 52, 66]
        """
        count = 2 * k
        while True:
            drawn = (self.uniform(count) * n).astype(np.intp)
            values, first = np.unique(drawn, return_index=True)
            if len(values) >= k:
                return values[first <= np.sort(first)[k - 1]]
            count *= 2

    def permutation(self, n: int) -> NDArray[np.intp]:
        """Return a random order of 0 .. n - 1: the stable argsort of the first n words."""
        return np.argsort(self.words(n), kind="stable")


def normal_quantile(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the inverse of the standard normal distribution function, relative error about 1e-15.

    Wichura 1988, "Algorithm AS 241: the percentage points of the normal distribution", routine PPND16, with this
    module's logarithm.

    Parameters
    ----------
    p : (...) float64
        Probabilities, 0 < p < 1.

    Returns
    -------
    (...) float64

    Raises
    ------
    ValueError
        If a probability is outside (0, 1) or NaN.

    Examples
    --------
    >>> normal_quantile(np.array([0.025, 0.5])).round(6).tolist()
    [-1.959964, 0.0]
    """
    p = np.asarray(p, dtype=np.float64)
    if not np.all((p > 0) & (p < 1)):
        raise ValueError("p must be strictly between 0 and 1 everywhere")
    flat = p.ravel()
    centred = flat - 0.5
    square = centred * centred
    x = centred * _ratio(_CENTRE, 0.180625 - square)
    outer = square > 0.180625
    tail = np.minimum(flat[outer], 1.0 - flat[outer])
    radius = np.sqrt(-_log(tail))
    size = _ratio(_NEAR_TAIL, radius - 1.6)
    far = radius > 5.0
    size[far] = _ratio(_FAR_TAIL, radius[far] - 5.0)
    x[outer] = np.where(centred[outer] < 0, -size, size)
    return x.reshape(p.shape)


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Natural logarithm of positive normal numbers: ln x = e ln 2 + 2 artanh((m - 1) / (m + 1)) where x = m 2**e."""
    mantissa, exponent = np.frexp(x)
    low = mantissa < math.sqrt(0.5)
    mantissa = np.where(low, 2.0 * mantissa, mantissa)
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    # |ratio| < 0.1716: the first omitted term is below 2e-18
    series = _polynomial(_ARTANH, ratio * ratio)
    return (exponent - low) * _LN2 + 2.0 * ratio * series


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: NDArray[np.float64]) -> NDArray[np.float64]:
    above, below = coefficients
    return _polynomial(above, x) / _polynomial(below, x)


def _polynomial(coefficients: tuple[float, ...], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Evaluate a polynomial by Horner's rule. Every product and every sum is rounded, because NumPy computes them in
    separate calls."""
    total = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total *= x
        total += coefficient
    return total


def _sizes(shape: Shape) -> tuple[int, ...]:
    return tuple(validation.whole("shape", size, 0) for size in (shape if isinstance(shape, tuple) else (shape,)))


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


_LN2 = 0.6931471805599453
_ARTANH = tuple(1.0 / (2 * k + 1) for k in range(11))
# Wichura 1988: (numerator, denominator), lowest power first; the tails begin where sqrt(-ln p) = 5
_CENTRE = (
    (
        3.3871328727963666080e0,
        1.3314166789178437745e2,
        1.9715909503065514427e3,
        1.3731693765509461125e4,
        4.5921953931549871457e4,
        6.7265770927008700853e4,
        3.3430575583588128105e4,
        2.5090809287301226727e3,
    ),
    (
        1.0,
        4.2313330701600911252e1,
        6.8718700749205790830e2,
        5.3941960214247511077e3,
        2.1213794301586595867e4,
        3.9307895800092710610e4,
        2.8729085735721942674e4,
        5.2264952788528545610e3,
    ),
)
_NEAR_TAIL = (
    (
        1.42343711074968357734e0,
        4.63033784615654529590e0,
        5.76949722146069140550e0,
        3.64784832476320460504e0,
        1.27045825245236838258e0,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    ),
    (
        1.0,
        2.05319162663775882187e0,
        1.67638483018380384940e0,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ),
)
_FAR_TAIL = (
    (
        6.65790464350110377720e0,
        5.46378491116411436990e0,
        1.78482653991729133580e0,
        2.96560571828504891230e-1,
        2.65321895265761230930e-2,
        1.24266094738807843860e-3,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    ),
    (
        1.0,
        5.99832206555887937690e-1,
        1.36929880922735805310e-1,
        1.48753612908506148525e-2,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    ),
)
