"""The scores of a tile put together, what is visible of it, and what bounds it."""

import numpy as np

from fastpe.kernels._jit import inner, part
from fastpe.kernels.attention.bands import relative_scores
from fastpe.kernels.attention.cells import (
    TILE_KEYS,
    add_cells,
    add_key_terms,
    add_values,
    channel_scores,
    copy_cells,
    scale_cells,
)
from fastpe.kernels.attention.layout import (
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
from fastpe.kernels.gemm import LOWER_C, OVERWRITE, PANEL, gemm, transpose
from fastpe.kernels.simd import (
    absolute,
    at,
    blend,
    exp,
    get,
    lanes,
    largest,
    load_first,
    maximum,
    minus,
    scalar,
    splat,
    store_first,
    store_interleaved,
    store_rounded,
    where_negative,
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
def growth_factors(growth, origin, n, pairs, half, sign, factors):
    """exp(sign (growth - origin)) of n rows, for every channel of the pairs.

    Only differences are raised to a power: neither power alone need be a finite number.
    """
    for i in range(n):
        row, out = at(growth, i * pairs), at(factors, i * 2 * pairs)
        for c in range(0, pairs, lanes(growth)):
            left = pairs - c
            power = splat(sign) * (load_first(row, c, left) - load_first(origin, c, left))
            below_one = exp(minus(absolute(power)))
            factor = where_negative(power, below_one, splat(1.0) / below_one)
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


@part
def on_diagonal(tile, case):
    """Whether the tile's first query and key stand at one position, and causal attention leaves half of it out."""
    return case.causal and not case.keep_raw and tile.i0 + case.keys - case.queries == tile.j0


@part
def columns_of(n, cells):
    """Columns of a product with n of them: a whole panel costs less than most of its vectors alone."""
    panel = PANEL * lanes(cells)
    return n if n % panel <= panel // 2 else n + panel - n % panel


@part
def _has_more(table, case):
    """Whether something is done to the scores after they are scaled."""
    return case.keep_raw or table[VALUES, GIVEN] or table[SCORES, GIVEN] or case.rectify or table[GAIN, GIVEN]


@inner
def score_factor(x, terms, table, case):
    """What sums of products are still to be multiplied by when all terms but `bias` have been added."""
    if terms is not None and _has_more(table, case):
        return scalar(x.q, 1.0)
    return x.scale


@inner
def make_content(content, content_row, columns, tile, case, cells):
    """cells = content . key, of all that may be visible."""
    mode = LOWER_C if on_diagonal(tile, case) else OVERWRITE
    gemm(
        content, content_row, ONE, columns, TILE_KEYS, cells, TILE_KEYS, tile.m,
        columns_of(tile.n, cells), case.width, mode, cells, NONE, cells, NONE,
    )  # fmt: skip


@inner
def make_scores(x, terms, tile, table, case, cells, arena, room):
    """The tile's scores without bias and masks; returns what they are still to be multiplied by.

    The tile's keys stand transposed in `k_columns`, scaled in `k_scaled`.
    """
    qr = at(x.qr, tile.i0 * case.qr_row)
    if terms is None:
        make_content(qr, case.qr_row, at(arena, room.k_columns), tile, case, cells)
        return x.scale
    return _make_all_scores(x, terms, tile, table, case, cells, arena, room)


@part
def _make_all_scores(x, terms, tile, table, case, cells, arena, room):
    i0, m, j0, n = tile
    d, first = case.width, j0 - (i0 + case.keys - case.queries)
    band, rows = at(arena, room.band), at(arena, room.rows)
    q, k = at(x.q, i0 * case.q_row), at(x.k, j0 * case.k_row)
    content, content_row = at(x.qr, i0 * case.qr_row), case.qr_row
    if table[GROWTH, GIVEN] or table[REL_GAIN, GIVEN]:
        pairs = table[GROWTH, ROWS]
        content, content_row = at(arena, room.q_scaled), d
        growth, factors = at(terms.growth_q, i0 * pairs), at(arena, room.q_factors)
        growth_factors(growth, growth, m, pairs, case.half, 1.0, factors)
        grown(at(x.qr, i0 * case.qr_row), case.qr_row, factors, 2 * pairs, content, m, d)
    if table[REL_GAIN, GIVEN]:
        reach = table[REL_GAIN, ROWS] // 2
        channel_scores(content, at(arena, room.k_scaled), terms.rel_gain, reach, d, first, cells, m, n)
    else:
        make_content(content, content_row, at(arena, room.k_columns), tile, case, cells)
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
    if not _has_more(table, case):
        return x.scale
    gain = at(terms.gain, j0 - i0 + case.queries - 1)
    scale_cells(cells, x.scale, case.rectify, gain, table[GAIN, GIVEN], m, n)
    if table[VALUES, GIVEN]:
        add_values(cells, at(terms.indices, i0 * case.keys + j0), case.keys, terms.values, m, n)
    if table[SCORES, GIVEN]:
        add_cells(cells, TILE_KEYS, at(terms.scores, i0 * case.keys + j0), case.keys, m, n)
    return scalar(cells, 1.0)


@inner
def prepare_keys(x, terms, j0, n, i0, table, case, arena, room):
    """The tile's rotated keys, transposed; with growth they are scaled for the block of queries from i0 on."""
    d, source, row = case.width, at(x.kr, j0 * case.kr_row), case.kr_row
    if terms is None:
        transpose(source, row, at(arena, room.k_columns), TILE_KEYS, n, d)
        return
    if table[GROWTH, GIVEN] or table[REL_GAIN, GIVEN]:
        pairs, scaled = table[GROWTH, ROWS], at(arena, room.k_scaled)
        growth, factors = at(terms.growth_k, j0 * pairs), at(arena, room.k_factors)
        growth_factors(growth, at(terms.growth_q, i0 * pairs), n, pairs, case.half, -1.0, factors)
        grown(source, row, factors, 2 * pairs, scaled, n, d)
        source, row = scaled, d
    transpose(source, row, at(arena, room.k_columns), TILE_KEYS, n, d)


@inner
def bound(tile, number, ahead, guard, case, scale):
    """The factor of |q_i|, and the term: log of the sum of exp(scores) that the tile and all beyond it cannot exceed.

    ahead: 1 where beyond means larger offsets, as of keys after the query, else 0.
    """
    first = tile.j0 - tile.i0 + case.queries - 1
    offset = first - (tile.m - 1) if ahead else first + tile.n - 1
    slope = abs(np.float64(scale)) * np.float64(guard.key_norms[ahead, number]) * 1.001
    return slope, guard.bias_tails[ahead, offset // CHUNK]


@inner
def negligible(norms, floors, m, slope, term, limit):
    """Whether slope |q_i| + term is below floor_i + limit for every row."""
    held = True
    for i in range(m):
        held &= slope * np.float64(get(norms, i)) + term < np.float64(get(floors, i)) + limit
    return held


@inner
def faint(cells, factor, bias, has_bias, tile, guard, slope, floors):
    """Whether every score of the tile is below its row's floor + `cell_limit`.

    slope |q_i| times 0 is not a number where some score may be none, which the largest would not tell.
    """
    width, factors, none = lanes(cells), splat(factor), splat(scalar(cells, -np.inf))
    for i in range(tile.m):
        row, offsets, best = at(cells, i * TILE_KEYS), at(bias, -i), none
        for j in range(0, tile.n, width):
            x = load_first(row, j, tile.n - j) * factors
            if has_bias:
                x = x + load_first(offsets, j, tile.n - j)
            best = maximum(best, x)
        row_best = np.float64(largest(best)) + 0.0 * slope * np.float64(get(guard.q_norms, tile.i0 + i))
        if not row_best < np.float64(get(floors, i)) + guard.cell_limit:
            return False
    return True


@part
def own_tile(tile_queries_end, case):
    """The tile of keys in which a block's last query stands."""
    return (tile_queries_end - 1 + case.keys - case.queries) // TILE_KEYS
