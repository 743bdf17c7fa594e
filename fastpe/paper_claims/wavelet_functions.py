"""Scaling functions and wavelets of orthogonal filters: certified suprema, and integrals of products on a half-line."""

import math

import numpy as np

from fastpe.base.validation import at_least_zero, truth, whole
from fastpe.encodings.parts.daubechies import orthogonal_filter, scaling_filter
from fastpe.theory.pairs import Array
from fastpe.theory.value import Value, certified, exact

_LEVEL = 12  # default number of binary digits of the points at which functions are evaluated
_MOST_LEVEL = 14
_ROUNDED = 1.0 + 1e-12  # factor that covers the rounding error of a bound


def support_length(wavelet: str = "db4") -> Value:
    """Return L - 1, where L is the number of taps: phi and psi are zero outside [0, L - 1] (C77, C97).

    Parameters
    ----------
    wavelet : str
        An orthogonal wavelet of PyWavelets.

    Examples
    --------
    >>> support_length("db4").value
    7.0
    """
    return exact(len(scaling_filter(wavelet)) - 1.0, "number of taps minus one (Daubechies 1988)", wavelet=wavelet)


def supremum(wavelet: str = "db4", *, psi: bool = True, beta: float = 0.0, level: int = _LEVEL) -> Value:
    """Bound sup |psi(u)| e^(beta u), or sup |phi(u)| e^(beta u), from both sides (C81, C96).

    The lower bound is the largest value at multiples of 2^-level. The upper bound also covers the points x between two
    multiples. Let v(x) be the vector of the shifts of phi by integers, whose sum is 1. The two-scale equation gives
    v(x) = P v(y), where y is in [0, 1) and P is a product of `level` matrices. So v_a(x) differs from its value at the
    multiple below x by at most (1/2) osc(row a of P) |v(y) - v(0)|_1, where osc is the largest minus the smallest
    entry. Let r < 1 be the largest sum over a of (1/2) osc(row a of P), for all P. Then |v(y) - v(0)|_1 is at most its
    largest value at multiples of 2^-level, divided by 1 - r.

    Parameters
    ----------
    wavelet : str
        An orthogonal wavelet of PyWavelets.
    psi : bool
        Whether to bound the wavelet psi. Otherwise the scaling function phi is bounded.
    beta : float
        Exponent of the factor e^(beta u), at least 0. The support is [0, L - 1].
    level : int
        Number of binary digits of the points at which the function is evaluated, from 1 to 14.

    Returns
    -------
    Value
        Certified from both sides. The upper bound is infinite if `level` is too low for the filter.

    Raises
    ------
    ValueError, TypeError
        If the wavelet is unknown, beta is negative, or the level is outside 1 to 14.

    Examples
    --------
    >>> found = supremum("db4")
    >>> round(found.low, 6), found.high < 1.3596
    (1.359177, True)
    """
    psi, beta = truth("psi", psi), at_least_zero("beta", beta)
    level = whole("level", level, 1, _MOST_LEVEL)
    filters = orthogonal_filter(wavelet)
    phi = [_two_scale(filters.low, digit) for digit in (0, 1)]
    products = np.eye(len(filters.integers))[None]
    for _ in range(level - 1):
        products = _next_digit(products, phi)
    slack = _spread(_next_digit(products, phi), filters.integers)
    last = [_two_scale(filters.high, digit) for digit in (0, 1)] if psi else phi
    products = _next_digit(products, last)
    left = np.arange(len(products))[:, None] / len(products) + np.arange(len(filters.integers))
    values = np.abs(products @ filters.integers)
    low = float(np.max(values * np.exp(beta * left)))
    high = np.max((values + _half_oscillation(products) * slack) * np.exp(beta * (left + 1.0 / len(products))))
    name = f"|{'psi' if psi else 'phi'}|"
    why = f"the largest {name} e^(beta u) at multiples of 2^-{level}, and a bound on its values between them"
    return certified(why, low=low / _ROUNDED, high=float(high) * _ROUNDED, wavelet=wavelet, beta=beta, level=level)


def _two_scale(taps: Array, digit: int) -> Array:
    """Return the matrix that maps the values at the points f + b to those at (f + digit) / 2 + a, for integers a, b."""
    count = len(taps) - 1
    index = 2 * np.arange(count)[:, None] - np.arange(count) + digit
    return np.where((index >= 0) & (index <= count), taps[np.clip(index, 0, count)], 0.0)


def _next_digit(products: Array, matrices: list[Array]) -> Array:
    """Return the products of matrices for one more binary digit in front, in the order of the intervals."""
    return np.concatenate([matrix @ products for matrix in matrices])


def _half_oscillation(products: Array) -> Array:
    found: Array = np.ptp(products, axis=2) / 2.0
    return found


def _spread(products: Array, integers: Array) -> float:
    """Return a bound on sum_a |v_a(y) - v_a(0)| over y in [0, 1)."""
    contraction = float(_half_oscillation(products).sum(axis=1).max())
    seen = float(np.abs(products @ integers - integers).sum(axis=1).max())
    return math.inf if contraction >= 1.0 else seen / (1.0 - contraction) * _ROUNDED


def edge_product(first: int, second: int, wavelet: str = "db4") -> Value:
    """Return the integral of psi(x + first) psi(x + second) over x >= 0.

    The two factors are wavelets that an end of [0, N] cuts (C93). For an orthonormal basis of [0, inf) the integral
    would be 1 for equal shifts and 0 for different ones. The integral is computed exactly from integrals I(m, n) of
    phi(x + m) phi(x + n). They solve the linear equations I(m, n) = sum_kl h_k h_l I(2m - k, 2n - l). If one of the two
    functions is 0 for all x > 0, I is 0. If one of them is 0 for all x < 0, I is 1 for m = n, and 0 otherwise.

    Parameters
    ----------
    first, second : int
        Shifts to the left.
    wavelet : str
        An orthogonal wavelet of PyWavelets.

    Returns
    -------
    Value

    Raises
    ------
    ValueError, TypeError
        If the wavelet is unknown, or the shifts are not integers.

    Examples
    --------
    >>> round(edge_product(3, 4).value, 6), round(edge_product(0, 0).value, 6)
    (0.213711, 1.0)
    """
    m, n, h = whole("first", first), whole("second", second), scaling_filter(wavelet)
    g = h[::-1] * (-1.0) ** np.arange(len(h))
    inside = _half_line(h)
    found = sum(g[k] * g[j] * _product(inside, 2 * m - k, 2 * n - j) for k in range(len(h)) for j in range(len(h)))
    return exact(float(found), "linear equations from the two-scale equation", wavelet=wavelet, first=m, second=n)


def _half_line(h: Array) -> Array:
    """Return the integrals of phi(x + m) phi(x + n) over x >= 0 for m, n = 1 .. L - 2, at the index [m - 1, n - 1]."""
    cut = len(h) - 2
    system, right = np.eye(cut * cut), np.zeros(cut * cut)
    nothing = np.full((cut, cut), np.nan)
    for row, (m, n) in enumerate(np.ndindex(cut, cut)):
        for k, j in np.ndindex(len(h), len(h)):
            a, b, weight = 2 * (m + 1) - k, 2 * (n + 1) - j, h[k] * h[j]
            if 1 <= a <= cut and 1 <= b <= cut:
                system[row, (a - 1) * cut + b - 1] -= weight
            else:
                right[row] += weight * _product(nothing, a, b)
    return np.linalg.solve(system, right).reshape(cut, cut)


def _product(inside: Array, m: int, n: int) -> float:
    if m > len(inside) or n > len(inside):
        return 0.0
    return float(m == n) if m < 1 or n < 1 else float(inside[m - 1, n - 1])
