"""Growth (xPos): pairs of channels of queries are multiplied by powers, pairs of keys by the inverse powers.

The powers are given as float64 logarithms, R per row: channels 2c and 2c + 1, or c and c + R with `half`, share one
logarithm; channels from 2 R on are unchanged. The power of a row is relative to an origin, the first query of a block,
because the power itself may overflow. An element takes two to three FLOP, not counting the computation of the powers.
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

_HIGHEST = 708.0  # exp of larger numbers overflows float64, or nearly so


@inner
def growth_factors(growth, origin, n, pairs, half, sign, factors):
    """Compute exp(sign (growth - origin)) for n rows and every channel of the pairs."""
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
    """y = x times factors; channels without factors are copied. y has rows of `width` elements, and may be x."""
    for i in range(n):
        for c in range(0, channels, lanes(y)):
            left = channels - c
            factor = load_first(factors, i * channels + c, left)
            store_first(y, i * width + c, load_first(x, i * x_row + c, left) * factor, left)
        for c in range(channels, width, lanes(y)):
            store_first(y, i * width + c, load_first(x, i * x_row + c, width - c), width - c)
