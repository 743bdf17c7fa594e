"""Growth: pairs of channels times powers, of a query its own, of a key the inverse of it (xPos).

Of both logarithms are given, float64, R a row: channels 2c and 2c + 1, or c and c + R with `half`, have one; those from
2 R on stay as they are. A row's power is that of the distance to an origin, the first query of a block: neither power
alone need be a finite number. The powers are made once for all heads. Two to three FLOP an element beside them.
"""

import numpy as np

from fastpe.kernels._jit import allocating, entry, inner
from fastpe.kernels.board import BOARD, claim
from fastpe.kernels.simd import (
    at,
    exp,
    hold,
    lanes,
    load_first,
    pointer,
    row,
    splat,
    store_first,
    store_interleaved,
    store_rounded,
    where_negative,
)
from fastpe.kernels.threads import in_lanes

ROWS_OF_A_TASK = 64
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


@inner
def _lane(lane, board, x, growth, origin, sign, factors, y, shape, pairs, half):
    """One task is a block of rows of all heads."""
    batch, heads, rows, width = shape
    own, task = row(factors, lane), claim(board)
    while task * ROWS_OF_A_TASK < rows:
        first = task * ROWS_OF_A_TASK
        count = min(ROWS_OF_A_TASK, rows - first)
        growth_factors(at(pointer(growth), first * pairs), pointer(origin), count, pairs, half, sign, own)
        for head in range(batch * heads):
            place = (head * rows + first) * width
            grown(at(pointer(x), place), width, own, 2 * pairs, at(pointer(y), place), count, width)
        task = claim(board)


def scratch_size(pairs: int) -> int:
    """Elements that a lane needs for the powers of a task."""
    return _OF_A_PAIR * pairs


_OF_A_PAIR = 2 * ROWS_OF_A_TASK


@allocating
def grow_within(crew, x, growth, origin, sign, y, shape, pairs, half):
    """As `grow`, for compiled code; crew: as a plain tuple."""
    board, factors = np.zeros(BOARD, np.int64), np.empty((crew[1], _OF_A_PAIR * pairs), y.dtype)
    first = pointer(board)
    in_lanes(crew, _lane, (first, x, growth, origin, sign, factors, y, shape, pairs, half))
    hold(board)


@entry(label="growth of pairs")
def grow(crew, board, x, growth, origin, sign, factors, y, shape, pairs, half):
    """y (B, H, N, D), in one piece, which may be x, from x, in one piece.

    growth: of the rows, in one piece, for all samples and heads; origin: of the row that stays as it is. sign: 1 of
    queries, -1 of keys. factors: scratch of `scratch_size` elements for every lane.
    """
    in_lanes(crew, _lane, (pointer(board), x, growth, origin, sign, factors, y, shape, pairs, half))
