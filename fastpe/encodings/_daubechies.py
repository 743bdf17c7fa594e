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
from fastpe.kernels.simd import at, fma, get, lanes, load, minus, pointer, splat, store, where_negative

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
# Compiled: lanes are arguments, each with its own binary digits; row a of (L-1, lanes) values is phi or psi at f + a


@inner
def binary_digits(x: float, digits: np.ndarray, lane: int) -> int:
    """digits[:, lane] = the binary digits of x - floor(x), first to last; their number; exact for negative x too."""
    count = 0
    if x >= 0.0:
        f = x - np.floor(x)
        while f > 0.0 and count < digits.shape[0]:
            f = f + f
            digits[count, lane] = 1.0 if f >= 1.0 else 0.0
            f -= digits[count, lane]
            count += 1
        return count
    r = x - (np.floor(x) + 1.0)  # the fraction is 1 + r, which would round; r in [-1, 0) does not
    while r > -1.0 and count < digits.shape[0]:
        r = r + r
        digits[count, lane] = 0.0 if r < -1.0 else 1.0
        if r < -1.0:
            r += 1.0
        count += 1
    return count


@inner
def refine(taps, digit, values, out, mixed):  # type: ignore[no-untyped-def]
    """out[a] = sum_b taps[2a - b + digit] values[b]: T_D v, or the same with g, on pointers.

    About L^2 operations for a vector of arguments. `digit` has one for each lane; `mixed` (L+1, lanes) is scratch.
    """
    count, width = taps.shape[0] - 1, lanes(digit)
    chooser = minus(load(digit, 0))
    for i in range(-1, count + 1):  # taps[i + digit], zero beyond both ends
        one = splat(taps[i] if i >= 0 else 0.0)
        other = splat(taps[i + 1] if i < count else 0.0)
        store(mixed, (i + 1) * width, where_negative(chooser, other, one))
    for a in range(count):
        total = splat(0.0)
        for b in range(max(0, 2 * a - count), min(count - 1, 2 * a + 1) + 1):
            total = fma(load(mixed, (2 * a - b + 1) * width), load(values, b * width), total)
        store(out, a * width, total)


@inner
def at_fractions(x, low, high, integers, digits, phi, psi, mixed):  # type: ignore[no-untyped-def]
    """phi[a], psi[a] at (x - floor(x)) + a, a = 0 .. L-2, for a vector of arguments.

    x, phi, psi and the scratch `mixed` are pointers; the scratch `digits` (MOST_DIGITS, lanes) is an array.
    """
    width, count = lanes(x), integers.shape[0]
    for a in range(count):
        store(phi, a * width, splat(integers[a]))
    most = 0
    for lane in range(width):
        if get(x, lane) != np.floor(get(x, lane)):
            most = digits.shape[0]
    if most > 0:
        digits[:] = 0.0
        known = np.zeros(width)
        for lane in range(width):
            known[lane] = binary_digits(get(x, lane), digits, lane)
        most = int(known.max())
        spare = np.empty((count, width))
        for step in range(most - 1, -1, -1):
            if step == 0:
                refine(high, pointer(digits), phi, psi, mixed)
            refine(low, at(pointer(digits), step * width), phi, pointer(spare), mixed)
            beyond = splat(float(step)) - load(pointer(known), 0)  # negative where a lane has this digit
            for a in range(count):
                found = load(pointer(spare), a * width)
                store(phi, a * width, where_negative(beyond, found, load(phi, a * width)))
    else:
        digits[0] = 0.0
        refine(high, pointer(digits), phi, psi, mixed)


@entry(label="wavelet values")
def _evaluate(
    x: np.ndarray, low: np.ndarray, high: np.ndarray, integers: np.ndarray, wavelet: bool, out: np.ndarray
) -> None:
    count, width = integers.shape[0], lanes(pointer(x))
    digits, mixed = np.zeros((MOST_DIGITS, width)), np.empty((count + 2, width))
    phi, psi, group = np.empty((count, width)), np.empty((count, width)), np.zeros(width)
    for i in range(0, x.shape[0], width):
        some = x[i : i + width]
        group[:] = 0.0
        for lane in range(some.shape[0]):
            if 0.0 <= some[lane] < count:
                group[lane] = some[lane]
        at_fractions(
            pointer(group), low, high, integers, digits, pointer(phi), pointer(psi), pointer(mixed)
        )  # fmt: skip
        for lane in range(some.shape[0]):
            out[i + lane] = 0.0
            if 0.0 <= some[lane] < count:
                place = int(np.floor(some[lane]))
                out[i + lane] = psi[place, lane] if wavelet else phi[place, lane]


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
