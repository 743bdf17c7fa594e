"""Sine and cosine of position times frequency, on float64 vectors, without losing the phase at large positions.

At position 2**24 a float64 product of position and frequency is off by 1e-9 radians before its sine is computed. Here
the frequency is an unevaluated sum of two float64 numbers, and the product is computed without error (Dekker 1971, "A
floating-point technique for extending the available precision", or one fused multiply-add). Multiples of pi/2 are
subtracted exactly (Cody and Waite 1980, "Software Manual for the Elementary Functions"), and the sine and cosine of the
remainder are computed by Taylor sums on [-pi/4, pi/4]. A vector of sines and one of cosines take about 60 operations.
"""

import math
from decimal import Decimal, localcontext

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastpe.kernels.compile.decorators import inlined
from fastpe.kernels.simd import FUSED, fma, llvm_vector, maximum, minimum, minus, splat

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803")


def _parts_of_half_pi() -> tuple[float, float, float]:
    """Return pi/2 as a sum of three numbers. The first has 26 bits, so its products with integers below 2**27 are
    exact."""
    with localcontext() as context:
        context.prec = 80
        first = int(PI / 2 * 2**25) / 2.0**25
        second = float(PI / 2 - Decimal(first))
        return first, second, float(PI / 2 - Decimal(first) - Decimal(second))


_HALF_PI_1, _HALF_PI_2, _HALF_PI_3 = _parts_of_half_pi()
_TWO_OVER_PI = 2.0 / math.pi
_SPLITTER = 2.0**27 + 1.0
_ROUNDER = 1.5 * 2.0**52  # adding it rounds to an integer, which is left in the low bits
_S3, _S5, _S7, _S9, _S11, _S13, _S15, _S17 = ((-1.0) ** (n // 2) / math.factorial(n) for n in range(3, 18, 2))
_C4, _C6, _C8, _C10, _C12, _C14, _C16, _C18 = ((-1.0) ** (n // 2) / math.factorial(n) for n in range(4, 19, 2))


@inlined
def exact_sum(a, b):
    """Return a + b, rounded, and its exact rounding error (Knuth's two-sum)."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


@inlined
def product_error(x, y, product):
    """Return x * y - product exactly, where `product` is x * y rounded."""
    if FUSED:
        return fma(x, y, minus(product))
    t = splat(_SPLITTER) * x
    x1 = t - (t - x)
    x2 = x - x1
    t = splat(_SPLITTER) * y
    y1 = t - (t - y)
    y2 = y - y1
    return ((x1 * y1 - product) + x1 * y2 + x2 * y1) + x2 * y2


@inlined
def nearest(x):
    """Return the nearest integer, for |x| up to 2**51."""
    return (x + splat(_ROUNDER)) - splat(_ROUNDER)


@inlined
def sincos(position, high, low):
    """Return sine and cosine of position * (high + low), for products up to 2**27; each is off by about one unit in the
    last place."""
    angle = position * high
    rest = fma(position, low, product_error(position, high, angle))

    # subtract the nearest multiple of pi/2, in three parts; collect the rounding errors in `rest`
    shifted = fma(angle, splat(_TWO_OVER_PI), splat(_ROUNDER))
    turns = shifted - splat(_ROUNDER)
    first = angle - turns * splat(_HALF_PI_1)
    second = turns * splat(_HALF_PI_2)
    r = first - second
    shadow = r - first
    rest = rest + ((first - (r - shadow)) - (second + shadow))
    rest = rest - product_error(turns, splat(_HALF_PI_2), second)
    rest = fma(turns, splat(-_HALF_PI_3), rest)
    x = r + rest
    tail = rest - (x - r)

    # sin(x + tail) and cos(x + tail): large terms are kept separate from small terms
    z = x * x
    s = fma(z, splat(_S17), splat(_S15))
    s = fma(z, s, splat(_S13))
    s = fma(z, s, splat(_S11))
    s = fma(z, s, splat(_S9))
    s = fma(z, s, splat(_S7))
    s = fma(z, s, splat(_S5))
    s = fma(z, s, splat(_S3))
    half = z * splat(0.5)
    one = splat(1.0) - half
    sine = x + fma(x * z, s, tail * one)
    c = fma(z, splat(_C18), splat(_C16))
    c = fma(z, c, splat(_C14))
    c = fma(z, c, splat(_C12))
    c = fma(z, c, splat(_C10))
    c = fma(z, c, splat(_C8))
    c = fma(z, c, splat(_C6))
    c = fma(z, c, splat(_C4))
    cosine = one + (((splat(1.0) - one) - half) + (z * z * c - x * tail))
    return _of_quarter(sine, cosine, shifted), _of_quarter(cosine, minus(sine), shifted)


@inlined
def sincos_near(angle):
    """Return sine and cosine of angles up to 2**27 with a relative error of 2**-36, for results in float32. This takes
    half as many operations as `sincos`."""
    shifted = fma(angle, splat(_TWO_OVER_PI), splat(_ROUNDER))
    turns = shifted - splat(_ROUNDER)
    x = fma(turns, splat(-_HALF_PI_2), angle - turns * splat(_HALF_PI_1))
    z = x * x
    s = fma(z, splat(_S11), splat(_S9))
    s = fma(z, s, splat(_S7))
    s = fma(z, s, splat(_S5))
    s = fma(z, s, splat(_S3))
    c = fma(z, splat(_C12), splat(_C10))
    c = fma(z, c, splat(_C8))
    c = fma(z, c, splat(_C6))
    c = fma(z, c, splat(_C4))
    sine, cosine = fma(x * z, s, x), fma(z * z, c, fma(z, splat(-0.5), splat(1.0)))
    return _of_quarter(sine, cosine, shifted), _of_quarter(cosine, minus(sine), shifted)


@intrinsic
def _of_quarter(typingctx, first, second, turns):
    """Return first, second, -first or -second for 0, 1, 2 or 3 quarter turns (mod 4); the low bits of `turns` hold this
    number."""
    integers = ir.VectorType(ir.IntType(64), first.lanes)

    def emit(context, b, signature, arguments):
        x, y, count = arguments
        count = b.bitcast(count, integers)
        chosen = b.select(b.trunc(count, ir.VectorType(ir.IntType(1), first.lanes)), y, x)
        sign = b.shl(b.lshr(count, ir.Constant(integers, [1] * first.lanes)), ir.Constant(integers, [63] * first.lanes))
        return b.bitcast(b.xor(b.bitcast(chosen, integers), sign), llvm_vector(first))

    return (first if first.dtype == types.float64 else None)(first, second, turns), emit


# Angles themselves, for encodings that store angles. They are counted in turns instead of radians, because whole turns
# can then be subtracted without error.


_TAU_1 = 2.0 * math.pi
_TAU_2 = float(2 * PI - Decimal(_TAU_1))


@inlined
def part_of_turn(position, high, low):
    """Return position * (high + low) without whole turns, as a sum of two numbers. The first is within ±1/2, the second
    is below the rounding error of the first.

    high + low: the number of turns per position.
    """
    product = position * high
    rest = fma(position, low, product_error(position, high, product))
    return product - nearest(product), rest


@inlined
def plus_part(first, second, part, rest):
    """Return the sum of two results of `part_of_turn`, again as a sum of two numbers."""
    total, error = exact_sum(first, part)
    return total, second + rest + error


@inlined
def radians_of(first, second):
    """Return (first + second) turns as an angle in [-pi, pi], rounded once if `fma` rounds once, otherwise twice."""
    total = first + second
    second = second - (total - first)
    return _radians(total - nearest(total), second)


@inlined
def on_grid(first, second):
    """Return two other numbers whose sum is first + second. The first of these is a multiple of 2**-52, and two such
    multiples are added without error."""
    high = ((first + second) + splat(1.5)) - splat(1.5)
    return high, (first - high) + second


@inlined
def radians_of_sum(first, second, part, rest):
    """Return the result of `radians_of` for the sum of two results of `on_grid`."""
    total, second = first + part, second + rest
    return _radians(total - nearest(total + second), second)


@inlined
def _radians(first, second):
    angle = fma(first, splat(_TAU_1), fma(second, splat(_TAU_1), first * splat(_TAU_2)))
    return minimum(maximum(angle, splat(-math.pi)), splat(math.pi))
