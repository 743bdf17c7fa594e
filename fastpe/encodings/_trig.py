"""Sines and cosines of position times frequency, without losing the phase at large positions.

At position 2**24 a float64 product of position and frequency is off by 1e-9 radians before its sine is even taken.
Here the frequency is held as an unevaluated sum of two float64, the product is formed without error (Dekker 1971, "A
floating-point technique for extending the available precision"), multiples of pi/2 are taken away exactly, and the
sine and cosine of what is left are Taylor sums on [-pi/4, pi/4]. Plain arithmetic throughout, so that the bits are
the same on every machine, compiled or not.
"""

import math
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np

from fastpe.kernels._jit import inner

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803")


def _parts_of_half_pi() -> tuple[float, float, float, float]:
    """pi/2 as a sum: three numbers of 26 bits, whose products with integers below 2**27 are exact, and the rest."""
    with localcontext() as context:
        context.prec = 80
        rest = PI / 2
        parts = []
        for bits in (25, 51, 77):
            part = int(rest * 2**bits) / 2.0**bits
            parts.append(part)
            rest -= Decimal(part)
        return parts[0], parts[1], parts[2], float(rest)


HALF_PI_1, HALF_PI_2, HALF_PI_3, HALF_PI_4 = _parts_of_half_pi()
TWO_OVER_PI = 2.0 / math.pi
_SPLITTER = 2.0**27 + 1.0
S3, S5, S7, S9, S11, S13, S15, S17 = ((-1.0) ** (n // 2) / math.factorial(n) for n in range(3, 18, 2))
C4, C6, C8, C10, C12, C14, C16, C18 = ((-1.0) ** (n // 2) / math.factorial(n) for n in range(4, 19, 2))


@lru_cache(maxsize=64)
def frequencies(base: float, dim: int) -> np.ndarray:
    """base**(-2t/dim), t = 0 .. ceil(dim/2)-1, as (2, ceil(dim/2)) float64: rounded, and what rounding lost."""
    with localcontext() as context:
        context.prec = 50
        context.Emin, context.Emax = -999999, 999999
        exact = [Decimal(base) ** (Decimal(-2 * t) / Decimal(dim)) for t in range((dim + 1) // 2)]
        table = np.array([[float(w), float(w - Decimal(float(w)))] for w in exact]).T.copy()
    table.flags.writeable = False
    return table


@inner
def sincos(position: float, high: float, low: float) -> tuple[float, float]:
    """Sine and cosine of position * (high + low), for products up to 2**27: about one unit in the last place each."""
    # the product as angle + rest, without error but for low's own rounding
    angle = position * high
    t = _SPLITTER * position
    p1 = t - (t - position)
    p2 = position - p1
    t = _SPLITTER * high
    w1 = t - (t - high)
    w2 = high - w1
    rest = ((p1 * w1 - angle) + p1 * w2 + p2 * w1) + p2 * w2
    rest += position * low

    # minus the nearest multiple of pi/2; every product with the first three parts is exact
    turns = np.floor(angle * TWO_OVER_PI + 0.5)
    a = angle - turns * HALF_PI_1
    b = turns * HALF_PI_2
    r = a - b
    shadow = r - a
    rest += (a - (r - shadow)) - (b + shadow)
    a = r
    b = turns * HALF_PI_3
    r = a - b
    shadow = r - a
    rest += (a - (r - shadow)) - (b + shadow)
    rest -= turns * HALF_PI_4
    x = r + rest
    tail = rest - (x - r)

    # sin(x + tail) and cos(x + tail), the large terms kept apart from the small
    z = x * x
    s = z * (S5 + z * (S7 + z * (S9 + z * (S11 + z * (S13 + z * (S15 + z * S17))))))
    sine = x + (x * z * (S3 + s) + tail * (1.0 - 0.5 * z))
    c = z * z * (C4 + z * (C6 + z * (C8 + z * (C10 + z * (C12 + z * (C14 + z * (C16 + z * C18)))))))
    half = 0.5 * z
    one = 1.0 - half
    cosine = one + (((1.0 - one) - half) + (c - x * tail))

    # quarter turns: 0 sin, 1 cos, 2 -sin, 3 -cos
    quarter = turns - 4.0 * np.floor(turns * 0.25)
    odd = quarter == 1.0 or quarter == 3.0
    if odd:
        sine, cosine = cosine, sine
    if quarter >= 2.0:
        sine = -sine
    if quarter == 1.0 or quarter == 2.0:
        cosine = -cosine
    return sine, cosine
