"""Soft caps: a score S becomes c tanh(S / c), as in Gemma 2 (2024, arXiv:2408.00118, section 2).

The error of tanh is at most about two units in the last place. tanh |x| is computed by its series near 0, and
elsewhere by (1 - e) / (1 + e) with e = exp(-2 |x|), a formula in which digits cancel near 0. An entry takes about 35
FLOP in float32.
"""

import numpy as np
from numba.extending import intrinsic

from fastpe.kernels.attention.tile import TILE_KEYS
from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.simd import (
    absolute,
    at,
    code,
    exp,
    lanes,
    load_first,
    minus,
    scalar,
    splat,
    store_first,
    where_negative,
    where_zero,
)

_NEAR = 0.25  # the series is used up to here
# tanh(x) / x in powers of x^2; the series is cut where its next term is below half a unit in the last place
_SERIES = (
    1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925, 21844 / 6081075, -929569 / 638512875,
    6404582 / 10854718875, -443861162 / 1856156927625, 18888466084 / 194896477400625,
)  # fmt: skip
_TERMS = {32: 6, 64: 11}


@intrinsic
def _series(typingctx, z):
    """Return tanh(x) / x from z = x^2."""

    def emit(context, b, signature, arguments):
        highest, *others = reversed(_SERIES[: _TERMS[z.dtype.bitwidth]])
        p = code.constant(z, highest)
        for coefficient in others:
            p = code.multiply_add(b, z, p, arguments[0], code.constant(z, coefficient))
        return p

    return z(z), emit


@inlined
def tanh(x, one, near):
    """Return tanh of every lane. near: in every lane, the limit up to which the series is used."""
    t = absolute(x)
    small = exp(minus(t + t))
    y = where_negative(t - near, t * _series(t * t), (one - small) / (one + small))
    return where_negative(x, minus(y), y)


@inner
def cap_row(scores, cap, n):
    """scores = cap tanh(scores / cap) for n elements."""
    one, near = splat(scalar(scores, 1.0)), splat(scalar(scores, _NEAR))
    most, inverse = splat(scalar(scores, cap)), splat(scalar(scores, np.float64(1.0) / cap))
    for j in range(0, n, lanes(scores)):
        store_first(scores, j, most * tanh(load_first(scores, j, n - j) * inverse, one, near), n - j)


@inner
def cap_cells(cells, slopes, cap, m, n, keeps):
    """cells = cap tanh(cells / cap). If `keeps`, write the derivative to `slopes`."""
    one, near = splat(scalar(cells, 1.0)), splat(scalar(cells, _NEAR))
    most, inverse = splat(scalar(cells, cap)), splat(scalar(cells, np.float64(1.0) / cap))
    for i in range(m):
        row, slope = at(cells, i * TILE_KEYS), at(slopes, i * TILE_KEYS)
        for j in range(0, n, lanes(cells)):
            t = tanh(load_first(row, j, n - j) * inverse, one, near)
            store_first(row, j, most * t, n - j)
            if keeps:
                store_first(slope, j, one - t * t, n - j)


@inner
def cap_cells_backward(cells, slopes, m, n):
    """`cells` holds the gradient of the result of `cap_cells`. Overwrite it with the gradient of the input."""
    for i in range(m):
        row, slope = at(cells, i * TILE_KEYS), at(slopes, i * TILE_KEYS)
        for j in range(0, n, lanes(cells)):
            d = load_first(row, j, n - j)
            store_first(row, j, where_zero(d, d, d * load_first(slope, j, n - j)), n - j)  # slope may be NaN
