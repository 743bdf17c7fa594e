"""Growth: pairs of channels times powers, of a query its own, of a key the inverse of it (xPos).

Of both logarithms are given, float64, R a row: channels 2c and 2c + 1, or c and c + R with `half`, have one; those from
2 R on stay as they are. A row's power is that of the distance to an origin, the first query of a block: neither power
alone need be a finite number. Two to three FLOP an element beside the powers.
"""

import numpy as np

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import (
    at,
    exp,
    lanes,
    load_first,
    splat,
    store_first,
    store_interleaved,
    store_rounded,
    where_negative,
)

_HIGHEST = 708.0  # beyond it exp is no number that float64 has, or nearly so


@inner
def growth_factors(growth, origin, n, pairs, half, sign, factors):
    """exp(sign (growth - origin)) of n rows, for every channel of the pairs."""
    for i in range(n):
        own, out = at(growth, i * pairs), at(factors, i * 2 * pairs)
        for c in range(0, pairs, lanes(growth)):
            left = pairs - c
            power = splat(sign) * (load_first(own, c, left) - load_first(origin, c, left))
            factor = where_negative(splat(_HIGHEST) - power, splat(np.inf), exp(power))
            if half:
                store_rounded(out, c, factor, left)
                store_rounded(out, pairs + c, factor, left)
            else:
                store_interleaved(out, 2 * c, factor, factor, 2 * left)


@inner
def grown(x, x_row, factors, channels, y, n, width):
    """y = x times factors, the channels beyond theirs as they are; y has rows of `width` elements, and may be x."""
    for i in range(n):
        for c in range(0, channels, lanes(y)):
            left = channels - c
            factor = load_first(factors, i * channels + c, left)
            store_first(y, i * width + c, load_first(x, i * x_row + c, left) * factor, left)
        for c in range(channels, width, lanes(y)):
            store_first(y, i * width + c, load_first(x, i * x_row + c, width - c), width - c)
