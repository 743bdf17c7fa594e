"""Exact values of the scaling function and the wavelet of any orthogonal filter, at any float64 argument.

    phi(x) = sqrt2 sum_k h_k phi(2x - k)      psi(x) = sqrt2 sum_k g_k phi(2x - k)      g_k = (-1)^k h_{L-1-k}

Both vanish outside [0, L-1]. The values of phi at the integers are an eigenvector of these equations. The values at
other arguments follow from these values: for each binary digit D of the argument, a matrix is applied. With v the
values of phi at f, f+1, ..., f+L-2, the values at (f+D)/2 + a are T_D v, where T_D[a, b] = sqrt2 h_{2a-b+D} (Daubechies
and Lagarias 1992, "Two-scale difference equations II"). A float64 has finitely many binary digits, so there is no
approximation.
"""

import difflib
import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pywt

from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.simd import (
    aligned_zeros,
    at,
    fma,
    get,
    lanes,
    load,
    minus,
    pointer,
    put,
    splat,
    store,
    where_negative,
    whole_vectors,
)

_MOST_DIGITS = 1074
"""The largest number of binary digits in the fraction of a float64."""

_STACKED = 32
"""The number of digits stored in one float64; the digit that was added last comes first after the binary point."""

_SUMMED = 64
"""The number of digits after which the values of phi are divided by their sum, which is 1 up to rounding."""

_ADMITTED = 1e-10


class Filter(NamedTuple):
    """sqrt2 h and sqrt2 g, both (L,), and phi(0) .. phi(L-2)."""

    low: np.ndarray
    high: np.ndarray
    integers: np.ndarray


@lru_cache(maxsize=64)
def orthogonal_filter(wavelet: str) -> Filter:
    """The filter of a wavelet, by its name in PyWavelets ("db4" has 4 vanishing moments and 8 taps).

    Raises ValueError for an unknown name, suggesting similar ones, and for wavelets whose functions are not orthogonal.
    """
    h = scaling_filter(wavelet)
    low = math.sqrt(2.0) * h
    for parity in (0, 1):  # with this scaling the values of phi sum to 1 after every digit
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
            f"option 'wavelet' {wavelet!r} has no finite orthogonal filter: its coefficients violate the identities by "
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
    # The equations are linearly dependent. The one of the largest value is left out: this keeps small values precise.
    give_up = 0
    for _ in range(2):
        trial, right = system.copy(), np.zeros(count - 1)
        trial[give_up], right[give_up] = 1.0, 1.0
        values = np.linalg.solve(trial, right)
        give_up = int(np.abs(values).argmax())
    return np.concatenate([[0.0], values])


# ---------------------------------------------------------------------------------------------------------------------
# Compiled functions on pointers. Each lane is an argument with its own binary digits; row a of the values (L-1, lanes)
# is phi or psi at f + a, with f the fraction of the argument.


def shifted_taps(filters: Filter) -> np.ndarray:
    """taps[digit, 0 or 1, i + 1] = sqrt2 h or sqrt2 g at i + digit, i = -1 .. L-1, in all lanes; zero past the ends."""
    padded = np.pad(np.stack([filters.low, filters.high]), ((0, 0), (1, 0)))
    shifted = np.stack([padded, np.pad(padded[:, 1:], ((0, 0), (0, 1)))])
    taps = aligned_zeros((*shifted.shape, whole_vectors(1, np.float64)), np.float64)
    taps[...] = shifted[..., None]
    return taps


def scratch(filters: Filter) -> np.ndarray:
    """The array that `at_fractions` and `mixed_taps` need as `work`."""
    count = len(filters.integers)
    rows = 2 + 2 * (count + 2) + count + -(-_MOST_DIGITS // _STACKED)
    return aligned_zeros((rows, whole_vectors(1, np.float64)), np.float64)


@inner
def _push_digits(x, stacks, lane):  # type: ignore[no-untyped-def]
    """Write the binary digits of x - floor(x) to one lane, first to last, and return the number of digits. The digits
    are exact for negative x, too."""
    count, width, raised = 0, lanes(stacks), 1.0 if x < 0.0 else 0.0
    rest = x - (math.floor(x) + raised)  # for x < 0 the fraction would be rounded; minus 1, it is exact
    while rest > -raised:
        rest = rest + rest
        digit = 1.0 if rest >= 1.0 - 2.0 * raised else 0.0
        rest += raised - digit
        place = count // _STACKED * width + lane
        below = get(stacks, place) if count % _STACKED else 0.0
        put(stacks, place, 0.5 * (below + digit))
        count += 1
    return count


@inner
def mixed_taps(taps, digit, mixed, count):  # type: ignore[no-untyped-def]
    """Write both filters of `shifted_taps`, shifted by the digit of each lane, to the scratch array `mixed`."""
    width, size = lanes(taps), 2 * (count + 2) * lanes(taps)
    chooser = minus(load(digit, 0))
    for i in range(0, size, width):
        store(mixed, i, where_negative(chooser, load(taps, size + i), load(taps, i)))
    return mixed


@inner
def refine(taps, values, phi, psi, count):  # type: ignore[no-untyped-def]
    """Apply a digit: phi[a] = sum_b taps[2a - b + 1] values[b], which is T_D v, and psi in the same way with the taps
    of g. This takes about 2 L^2 operations for a vector."""
    width = lanes(values)
    high = at(taps, (count + 2) * width)
    for a in range(count):
        smooth, rough = splat(0.0), splat(0.0)
        for b in range(max(0, 2 * a - count), min(count - 1, 2 * a + 1) + 1):
            value, tap = load(values, b * width), (2 * a - b + 1) * width
            smooth, rough = fma(load(taps, tap), value, smooth), fma(load(high, tap), value, rough)
        store(phi, a * width, smooth)
        store(psi, a * width, rough)


@inner
def at_fractions(x, taps, integers, count, phi, psi, work):  # type: ignore[no-untyped-def]
    """phi[a], psi[a] at (x - floor(x)) + a, a = 0 .. L-2, for a vector of arguments."""
    width = lanes(x)
    known, digit, mixed = work, at(work, width), at(work, 2 * width)
    spare = at(mixed, 2 * (count + 2) * width)
    stacks = at(spare, count * width)
    for a in range(count):
        store(phi, a * width, splat(get(integers, a)))
    store(stacks, 0, splat(0.0))
    longest = 1  # at least one step, for a digit 0: psi is only computed in steps
    for lane in range(width):
        number = _push_digits(get(x, lane), stacks, lane)
        put(known, lane, float(number))
        longest = max(longest, number)
    for step in range(longest - 1, -1, -1):
        beyond = splat(float(step)) - load(known, 0)  # negative in lanes that have this digit
        stack = at(stacks, step // _STACKED * width)
        left = load(stack, 0) + load(stack, 0)
        store(digit, 0, where_negative(left - splat(1.0), splat(0.0), splat(1.0)))
        store(stack, 0, where_negative(beyond, left - load(digit, 0), load(stack, 0)))
        chosen = mixed_taps(taps, digit, mixed, count)
        refine(chosen, phi, spare, psi, count)
        factor = splat(1.0)
        if step % _SUMMED == _SUMMED - 1:
            total = splat(0.0)
            for a in range(count):
                total = total + load(spare, a * width)
            factor = splat(1.0) / total
        for a in range(count):
            value = factor * load(spare, a * width)
            store(phi, a * width, where_negative(beyond, value, load(phi, a * width)))


@entry(label="wavelet values")
def _evaluate(
    x: np.ndarray, taps: np.ndarray, integers: np.ndarray, values: np.ndarray, work: np.ndarray, wavelet: bool,
    out: np.ndarray,
) -> None:  # fmt: skip
    count, width = integers.shape[0], lanes(pointer(x))
    phi = pointer(values)  # then psi, then the arguments of the group
    psi, group = at(phi, count * width), at(phi, 2 * count * width)
    for i in range(0, x.shape[0], width):
        number = min(width, x.shape[0] - i)
        store(group, 0, splat(0.0))
        for lane in range(number):
            if 0.0 <= x[i + lane] < count:
                put(group, lane, x[i + lane])
        at_fractions(group, pointer(taps), pointer(integers), count, phi, psi, pointer(work))
        for lane in range(number):
            out[i + lane] = 0.0
            if 0.0 <= x[i + lane] < count:
                out[i + lane] = get(psi if wavelet else phi, math.floor(x[i + lane]) * width + lane)


def evaluate(wavelet: str, x: Any, psi: bool = False) -> np.ndarray:
    """phi (or psi) of a wavelet of PyWavelets, at any float64 arguments.

    Parameters
    ----------
    wavelet : str
        The name in PyWavelets, such as "db4".
    x : array of any shape
        The arguments, finite numbers.
    psi : bool
        Whether to evaluate the wavelet psi instead of the scaling function phi.

    Returns
    -------
    array of the shape of x
        The values, float64; zero outside the support.

    Examples
    --------
    >>> evaluate("db2", [0.5, 1.5], psi=True).round(12).tolist()
    [-0.25, 1.732050807569]
    """
    points = np.ascontiguousarray(x, dtype=np.float64)
    if not np.isfinite(points).all():
        raise ValueError("x must be finite, but holds NaN or infinity")
    out = np.empty(points.shape)
    filters = orthogonal_filter(wavelet)
    values = aligned_zeros((2 * len(filters.integers) + 1, whole_vectors(1, np.float64)), np.float64)
    _evaluate(
        points.ravel(), shifted_taps(filters), filters.integers, values, scratch(filters), bool(psi), out.reshape(-1)
    )
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
    while fraction:
        digit, fraction = divmod(2 * fraction, 1)
        digits.append(int(digit))
    values = integers
    for step in range(len(digits) - 1, 0, -1):
        values = matrix(low, digits[step]) @ values
        if step % _SUMMED == _SUMMED - 1:
            values = values / values.sum()
    first = digits[0] if digits else 0
    return (matrix(low, first) @ values if digits else values), matrix(high, first) @ values


def evaluate_reference(wavelet: str, x: Any, psi: bool = False) -> np.ndarray:
    """`evaluate` in plain NumPy."""
    filters = orthogonal_filter(wavelet)
    points = np.asarray(x, dtype=np.float64)
    out = np.zeros(points.shape)
    for place, value in np.ndenumerate(points):
        whole = math.floor(value)
        if 0 <= whole < len(filters.integers):
            out[place] = reference_values(filters, Fraction(float(value)) - whole)[int(psi)][whole]
    return out
