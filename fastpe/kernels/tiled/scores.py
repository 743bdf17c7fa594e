"""The scores of a tile put together, what is visible of it, and what bounds it."""

import math

import numpy as np

from fastpe.kernels._jit import inner
from fastpe.kernels.gemm import OVERWRITE, gemm, transpose
from fastpe.kernels.simd import (
    at,
    blend,
    get,
    put,
    scalar,
)
from fastpe.kernels.tiled.bands import relative_scores
from fastpe.kernels.tiled.cells import (
    TILE_KEYS,
    add_cells,
    add_key_terms,
    add_values,
    channel_scores,
    copy_cells,
    scale_cells,
)
from fastpe.kernels.tiled.layout import (
    CHUNK,
    GAIN,
    GIVEN,
    GROWTH,
    KEY_BIAS,
    NONE,
    ONE,
    REL_GAIN,
    REL_KEY,
    REL_QUERY,
    ROWS,
    SCORES,
    VALUES,
)

# ---------------------------------------------------------------------------------------------------------------------
# What is visible


@inner
def visible(i, key_length, case):
    """The keys low .. high - 1 that query i sees."""
    position = i + case.keys - case.queries
    low, high = np.int64(0), key_length
    if case.causal:
        high = min(high, position + 1)
    if case.window:
        low, high = max(low, position - case.window + 1), min(high, position + case.window)
    return low, max(low, high)


@inner
def hide(x, j, low, high, lowest, width):
    """A vector of scores of the keys from j on, with those outside low .. high - 1 at minus infinity."""
    if high - j < width:
        x = blend(x, high - j, lowest)
    if low > j:
        x = blend(lowest, low - j, x)
    return x


# ---------------------------------------------------------------------------------------------------------------------
# Scores of a tile


@inner
def grown(x, x_row, growth, origin, pairs, half, sign, y, n, width):
    """y = x exp(sign (growth - growth[origin])), channel pair by channel pair; y has rows of `width` elements.

    Only differences are raised to a power: neither power alone need be a finite number.
    """
    for i in range(n):
        for c in range(width):
            factor = 1.0
            if c < 2 * pairs:
                pair = c % pairs if half else c // 2
                factor = math.exp(sign * (get(growth, i * pairs + pair) - get(origin, pair)))
            put(y, i * width + c, get(x, i * x_row + c) * scalar(y, factor))


@inner
def make_scores(q, qr, k, tile, terms, table, case, scale, arena, room):
    """The tile's scores without bias and masks, in `cells`; returns what they are still to be multiplied by.

    q, k: before rotation; qr: rotated. The tile's keys stand transposed in `k_columns`, scaled in `k_scaled`.
    """
    i0, m, j0, n = tile
    d, first = case.width, j0 - (i0 + case.keys - case.queries)
    cells, band, rows = at(arena, room.cells), at(arena, room.band), at(arena, room.rows)
    content, content_row = qr, case.q_row
    if table[GROWTH, GIVEN] or table[REL_GAIN, GIVEN]:
        pairs = table[GROWTH, ROWS]
        content, content_row = at(arena, room.q_scaled), d
        growth = at(terms.growth_q, i0 * pairs)
        grown(qr, case.q_row, growth, growth, pairs, case.half, 1.0, content, m, d)
    if table[REL_GAIN, GIVEN]:
        reach = table[REL_GAIN, ROWS] // 2
        channel_scores(content, at(arena, room.k_scaled), terms.rel_gain, reach, d, first, cells, m, n)
    else:
        columns = at(arena, room.k_columns)
        gemm(
            content, content_row, ONE, columns, TILE_KEYS, cells, TILE_KEYS, m, n, d, OVERWRITE, cells, NONE, cells,
            NONE,
        )  # fmt: skip
    if table[REL_KEY, GIVEN]:
        reach = table[REL_KEY, ROWS] // 2
        relative_scores(q, case.q_row, terms.rel_key, reach, d, first, cells, m, n, band, rows, False)
    if table[REL_QUERY, GIVEN]:
        reach = table[REL_QUERY, ROWS] // 2
        relative_scores(k, case.k_row, terms.rel_query, reach, d, first, cells, m, n, band, rows, True)
    if table[KEY_BIAS, GIVEN]:
        add_key_terms(cells, terms.key_bias, k, case.k_row, d, m, n, band)
    if case.keep_raw:
        copy_cells(cells, at(arena, room.raw), TILE_KEYS, m, n)
    if not (case.keep_raw or table[VALUES, GIVEN] or table[SCORES, GIVEN] or case.rectify or table[GAIN, GIVEN]):
        return scale
    gain = at(terms.gain, j0 - i0 + case.queries - 1)
    scale_cells(cells, scale, case.rectify, gain, table[GAIN, GIVEN], m, n)
    if table[VALUES, GIVEN]:
        add_values(cells, at(terms.indices, i0 * case.keys + j0), case.keys, terms.values, m, n)
    if table[SCORES, GIVEN]:
        add_cells(cells, at(terms.scores, i0 * case.keys + j0), case.keys, m, n)
    return scalar(cells, 1.0)


@inner
def prepare_keys(k, kr, j0, n, i0, terms, table, case, arena, room):
    """The tile's rotated keys, transposed; with growth they are scaled for the block of queries from i0 on."""
    d, source, row = case.width, kr, case.k_row
    if table[GROWTH, GIVEN] or table[REL_GAIN, GIVEN]:
        pairs = table[GROWTH, ROWS]
        source, row = at(arena, room.k_scaled), d
        origin = at(terms.growth_q, i0 * pairs)
        grown(kr, case.k_row, at(terms.growth_k, j0 * pairs), origin, pairs, case.half, -1.0, source, n, d)
    transpose(source, row, at(arena, room.k_columns), TILE_KEYS, n, d)


@inner
def bound(tile, key_norm, bias_tops, case, scale):
    """The factor of |q_i|, and the term, whose sum no score of the tile exceeds."""
    i0, m, j0, n = tile
    first = j0 - i0 + case.queries - 1
    top = -np.inf
    for chunk in range((first - (m - 1)) // CHUNK, (first + n - 1) // CHUNK + 1):
        top = max(top, np.float64(bias_tops[chunk]))
    return abs(np.float64(scale)) * np.float64(key_norm) * 1.001, top


@inner
def negligible(norms, floors, m, slope, top, limit):
    """Whether slope |q_i| + top is below floor_i + limit for every row."""
    held = True
    for i in range(m):
        held &= slope * np.float64(get(norms, i)) + top < np.float64(get(floors, i)) + limit
    return held
