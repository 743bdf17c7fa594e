"""Frequencies that are exponentials of learned numbers, in more than float64 precision.

exp(x / s) / (2 pi) = 2^n (1 + e) / (2 pi), e = exp(t 2^6) - 1 with t = (x / s - n ln 2) / 2^6, all as unevaluated sums
of two float64: t by division with a known remainder (Dekker 1971), exp(t) - 1 by Taylor's series, e from exp(t) - 1 by
6 steps (1 + e)^2 - 1 = 2 e + e^2, which keep the accuracy. The relative error is below 2^-88. (`Decimal` would take
some microseconds for each number.)
"""

import math
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from fastpe.kernels.compile.decorators import entry, inlined
from fastpe.kernels.fills.trig import PI, exact_sum, nearest, product_error
from fastpe.kernels.simd import aligned_zeros, fma, lanes, load, minus, pointer, splat, store, whole_vectors

Array = np.ndarray[Any, Any]

_LN_2 = Decimal("0.69314718055994530941723212145817656807550013436025525412068")
_PARTS = 32  # ln 2 is split after this many bits, so that the product of its first part and n (11 bits) is exact
_DOUBLINGS = 6


def _two(value: Decimal) -> tuple[float, float]:
    """A decimal number as a sum of two float64."""
    with localcontext() as context:
        context.prec = 60
        return float(value), float(value - Decimal(float(value)))


with localcontext() as _context:
    _context.prec = 60
    _LN_1 = math.floor(_LN_2 * 2**_PARTS) / 2.0**_PARTS
    _LN_2_HIGH, _LN_3 = _two(_LN_2 - Decimal(_LN_1))
    _TURN_1, _TURN_2 = _two(1 / (2 * PI))
    _THIRD_1, _THIRD_2 = _two(1 / Decimal(6))
    _FOURTH_1, _FOURTH_2 = _two(1 / Decimal(24))
_C5, _C6, _C7, _C8, _C9, _C10, _C11 = (1.0 / math.factorial(n) for n in range(5, 12))
_FAR = 2000.0  # exponents are clipped here: farther ones give 0 or overflow, and n stays small
_PER_OCTAVE, _SMALLER = 1.0 / math.log(2.0), 2.0**-_DOUBLINGS


def in_turns(x: Array, scale: float) -> Array:
    """exp(x / scale) radians per position, x (G, pairs), converted to turns as by `angles.turns_of`: (G, 1, 2, .)."""
    padded = whole_vectors(x.shape[1], np.float64)
    given, found = aligned_zeros((len(x), padded), np.float64), aligned_zeros((3, len(x), padded), np.float64)
    given[:, : x.shape[1]] = np.clip(x, -_FAR * scale, _FAR * scale)
    _exponentials(given, scale, found)
    table = aligned_zeros((len(x), 1, 2, padded), np.float64)
    for part in (0, 1):
        table[:, 0, part, : x.shape[1]] = np.ldexp(found[part], found[2].astype(np.int32))[:, : x.shape[1]]
    table.flags.writeable = False
    return table


@inlined
def _plus(a1, a2, b1, b2):  # type: ignore[no-untyped-def] # a kernel's types are Numba's
    high, low = exact_sum(a1, b1)
    return exact_sum(high, low + (a2 + b2))


@inlined
def _times(a1, a2, b1, b2):  # type: ignore[no-untyped-def]
    high = a1 * b1
    return exact_sum(high, fma(a1, b2, fma(a2, b1, product_error(a1, b1, high))))


@entry(label="exponentials to more than float64")
def _exponentials(x: Array, scale: float, found: Array) -> None:
    source, target, divisor = pointer(x), pointer(found), splat(scale)
    for i in range(0, x.size, lanes(source)):
        given = load(source, i)
        first = given / divisor
        product = first * divisor
        second = ((given - product) - product_error(first, divisor, product)) / divisor
        n = nearest(first * splat(_PER_OCTAVE))
        part = n * splat(_LN_2_HIGH)
        high, low = exact_sum(first - n * splat(_LN_1), minus(part))
        low = low + (second - product_error(n, splat(_LN_2_HIGH), part) - n * splat(_LN_3))
        high, low = exact_sum(high, low)
        high, low = high * splat(_SMALLER), low * splat(_SMALLER)
        e, rest = _small(high, low)
        for _ in range(_DOUBLINGS):
            square, more = _times(e, rest, e, rest)
            e, rest = _plus(e + e, rest + rest, square, more)
        e, rest = _plus(splat(1.0), splat(0.0), e, rest)
        e, rest = _times(e, rest, splat(_TURN_1), splat(_TURN_2))
        store(target, i, e)
        store(target, x.size + i, rest)
        store(target, 2 * x.size + i, n)


@inlined
def _small(high, low):  # type: ignore[no-untyped-def]
    """exp(t) - 1 for t = high + low, |t| < 0.0055: the first four terms as sums of two, the others in float64."""
    c = fma(high, splat(_C11), splat(_C10))
    c = fma(high, c, splat(_C9))
    c = fma(high, c, splat(_C8))
    c = fma(high, c, splat(_C7))
    c = fma(high, c, splat(_C6))
    c = fma(high, c, splat(_C5))
    a, b = _plus(splat(_FOURTH_1), splat(_FOURTH_2), high * c, splat(0.0))
    a, b = _times(a, b, high, low)
    a, b = _plus(splat(_THIRD_1), splat(_THIRD_2), a, b)
    a, b = _times(a, b, high, low)
    a, b = _plus(splat(0.5), splat(0.0), a, b)
    a, b = _times(a, b, high, low)
    a, b = _times(a, b, high, low)
    return _plus(high, low, a, b)
