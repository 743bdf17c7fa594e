"""Exact values of the scaling function and the wavelet of any orthogonal filter, at any float64 argument.

    phi(x) = sqrt2 sum_k h_k phi(2x - k)      psi(x) = sqrt2 sum_k g_k phi(2x - k)      g_k = (-1)^k h_{L-1-k}

Both vanish outside [0, L-1]. At the integers phi is the eigenvector of these equations. From there a binary digit D of
the argument is a matrix: with v the values of phi at f, f+1, ..., f+L-2, the values at (f+D)/2 + a are T_D v, where
T_D[a, b] = sqrt2 h_{2a-b+D} (Daubechies and Lagarias 1992, "Two-scale difference equations II"). A float64 has finitely
many binary digits, so nothing is approximated.
"""

import difflib
import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pywt

from fastpe.kernels._jit import entry, inner

MOST_DIGITS = 128
"""Binary digits that are used of an argument; what follows is below 2**-128."""

_ADMITTED = 1e-10


class Filter(NamedTuple):
    """sqrt2 h and sqrt2 g, both (L,), and phi(0) .. phi(L-2)."""

    low: np.ndarray
    high: np.ndarray
    integers: np.ndarray


@lru_cache(maxsize=64)
def orthogonal_filter(wavelet: str) -> Filter:
    """The filter of a wavelet that PyWavelets knows by this name ("db4" has 4 vanishing moments and 8 taps).

    Raises ValueError for an unknown name, with the nearest ones, and for wavelets whose functions are not orthogonal.
    """
    h = scaling_filter(wavelet)
    low = math.sqrt(2.0) * h
    for parity in (0, 1):  # so that the values of phi go on to sum to 1, digit after digit
        low[parity::2] /= low[parity::2].sum()
    high = low[::-1] * (-1.0) ** np.arange(len(h))
    values = Filter(low, high, _at_integers(low))
    for array in values:
        array.flags.writeable = False
    return values


def scaling_filter(wavelet: str) -> np.ndarray:
    """h_0 .. h_{L-1}, with sum sqrt2 and sum of squares 1: PyWavelets' `rec_lo`.

    Daubechies' filters and coiflets satisfy the identities of orthogonality to 1e-15, some symlets only to 1e-11.
    """
    known = pywt.wavelist(kind="discrete")
    if wavelet not in known:
        close = difflib.get_close_matches(wavelet, known, n=3) or ["db4", "sym8", "coif2"]
        raise ValueError(f"option 'wavelet' {wavelet!r} is unknown; did you mean {' or '.join(map(repr, close))}?")
    if wavelet.startswith(("bior", "rbio")):
        raise ValueError(
            f"option 'wavelet' {wavelet!r} is biorthogonal: its functions are not orthogonal; use db, sym, coif"
        )
    h = np.array(pywt.Wavelet(wavelet).rec_lo)
    products = np.array([h[2 * m :] @ h[: len(h) - 2 * m] - (m == 0) for m in range(len(h) // 2)])
    defect = max(np.abs(products).max(), abs(h.sum() - math.sqrt(2.0)))
    if defect > _ADMITTED:
        raise ValueError(
            f"option 'wavelet' {wavelet!r} has no finite orthogonal filter: its coefficients miss the identities by "
            f"{defect:.1e}; use db, sym or coif"
        )
    return h


def _at_integers(low: np.ndarray) -> np.ndarray:
    """phi(0) .. phi(L-2): the eigenvector of T_0 for the eigenvalue 1 that sums to 1; Haar's phi(0) is 1."""
    count = len(low) - 1
    if count == 1:
        return np.ones(1)
    rows, columns = np.arange(1, count)[:, None], np.arange(1, count)
    index = 2 * rows - columns
    system = np.where((index >= 0) & (index <= count), low[np.clip(index, 0, count)], 0.0) - np.eye(count - 1)
    # the equations are dependent; the one to give up is that of the largest value, so that small ones stay precise
    give_up = 0
    for _ in range(2):
        trial, right = system.copy(), np.zeros(count - 1)
        trial[give_up], right[give_up] = 1.0, 1.0
        values = np.linalg.solve(trial, right)
        give_up = int(np.abs(values).argmax())
    return np.concatenate([[0.0], values])


# ---------------------------------------------------------------------------------------------------------------------
# Compiled


@inner
def refine(taps: np.ndarray, digit: int, values: np.ndarray, out: np.ndarray) -> None:
    """out[a] = sum_b taps[2a - b + digit] values[b]: T_D v, or the same with g."""
    count = values.shape[0]
    for a in range(count):
        total = 0.0
        for b in range(max(0, 2 * a + digit - count), min(count - 1, 2 * a + digit) + 1):
            total += taps[2 * a - b + digit] * values[b]
        out[a] = total


@inner
def binary_digits(x: float, digits: np.ndarray) -> int:
    """Write the binary digits of x - floor(x), first to last, and return their number; exact for negative x too."""
    count = 0
    if x >= 0.0:
        f = x - np.floor(x)
        while f > 0.0 and count < digits.shape[0]:
            f = f + f
            digits[count] = 1 if f >= 1.0 else 0
            f -= digits[count]
            count += 1
        return count
    r = x - (np.floor(x) + 1.0)  # the fraction is 1 + r, which would round; r in [-1, 0) does not
    while r > -1.0 and count < digits.shape[0]:
        r = r + r
        digits[count] = 0 if r < -1.0 else 1
        if r < -1.0:
            r += 1.0
        count += 1
    return count


@inner
def at_fraction(
    x: float,
    low: np.ndarray,
    high: np.ndarray,
    integers: np.ndarray,
    digits: np.ndarray,
    phi: np.ndarray,
    psi: np.ndarray,
) -> None:
    """phi[a], psi[a] at (x - floor(x)) + a, a = 0 .. L-2."""
    count = binary_digits(x, digits)
    phi[:] = integers
    for step in range(count - 1, 0, -1):
        refine(low, digits[step], phi, psi)
        phi[:] = psi
    first = digits[0] if count > 0 else 0
    refine(high, first, phi, psi)
    if count > 0:
        spare = np.empty_like(phi)
        refine(low, first, phi, spare)
        phi[:] = spare


@entry(label="wavelet values")
def _evaluate(
    x: np.ndarray, low: np.ndarray, high: np.ndarray, integers: np.ndarray, wavelet: bool, out: np.ndarray
) -> None:
    count = integers.shape[0]
    digits = np.empty(MOST_DIGITS, np.int64)
    phi = np.empty(count)
    psi = np.empty(count)
    for i in range(x.shape[0]):
        out[i] = 0.0
        if 0.0 <= x[i] < count:
            at_fraction(x[i], low, high, integers, digits, phi, psi)
            place = int(np.floor(x[i]))
            out[i] = psi[place] if wavelet else phi[place]


def evaluate(wavelet: str, x: Any, psi: bool = False) -> np.ndarray:
    """phi (or psi) of a wavelet that PyWavelets knows, at any float64 arguments.

    Parameters
    ----------
    wavelet : str
        Such as "db4", in PyWavelets' sense of the name.
    x : array of any shape
    psi : bool
        The wavelet instead of the scaling function.

    Returns
    -------
    float64 array of x's shape; zero outside the support.

    Examples
    --------
    >>> evaluate("db2", [0.5, 1.5], psi=True).round(12).tolist()
    [-0.25, 1.732050807569]
    """
    points = np.ascontiguousarray(x, dtype=np.float64)
    if not np.isfinite(points).all():
        raise ValueError("x must be finite, but holds NaN or infinity")
    out = np.empty(points.shape)
    _evaluate(points.ravel(), *orthogonal_filter(wavelet), bool(psi), out.reshape(-1))
    return out


# ---------------------------------------------------------------------------------------------------------------------
# NumPy


def reference_values(filters: Filter, fraction: Fraction) -> tuple[np.ndarray, np.ndarray]:
    """phi and psi at fraction + a, a = 0 .. L-2, by dense matrices; 0 <= fraction < 1."""
    low, high, integers = filters
    count = len(integers)
    a, b = np.arange(count)[:, None], np.arange(count)

    def matrix(taps: np.ndarray, digit: int) -> np.ndarray:
        index = 2 * a - b + digit
        return np.where((index >= 0) & (index <= count), taps[np.clip(index, 0, count)], 0.0)

    digits: list[int] = []
    while fraction and len(digits) < MOST_DIGITS:
        digit, fraction = divmod(2 * fraction, 1)
        digits.append(int(digit))
    values = integers
    for digit in reversed(digits[1:]):
        values = matrix(low, digit) @ values
    first = digits[0] if digits else 0
    return (matrix(low, first) @ values if digits else values), matrix(high, first) @ values


def evaluate_reference(wavelet: str, x: Any, psi: bool = False) -> np.ndarray:
    """The same as `evaluate`, in plain NumPy."""
    filters = orthogonal_filter(wavelet)
    points = np.asarray(x, dtype=np.float64)
    out = np.zeros(points.shape)
    for place, value in np.ndenumerate(points):
        whole = math.floor(value)
        if 0 <= whole < len(filters.integers):
            out[place] = reference_values(filters, Fraction(float(value)) - whole)[int(psi)][whole]
    return out
