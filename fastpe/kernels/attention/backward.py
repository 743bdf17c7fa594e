"""Attention backward: strips of keys, which take turns in adding to what they share."""

import numpy as np

from fastpe.kernels._jit import inner, part, stage
from fastpe.kernels.attention.bands import relative_gradient, relative_mix, relative_scores
from fastpe.kernels.attention.cells import (
    TILE_KEYS,
    TILE_QUERIES,
    add_cells,
    add_scaled,
    channel_gradients,
    clear,
    dot,
    key_terms_backward,
    scale_cells,
    scale_cells_backward,
    values_backward,
)
from fastpe.kernels.attention.layout import (
    BIAS,
    GAIN,
    GIVEN,
    GROWTH,
    KEY_BIAS,
    NONE,
    ONE,
    REL_GAIN,
    REL_KEY,
    REL_QUERY,
    REL_VALUE,
    ROWS,
    SCORES,
    VALUES,
    WANTED,
    Tile,
)
from fastpe.kernels.attention.scores import (
    bound,
    columns_of,
    faint,
    grown,
    hide,
    make_scores,
    negligible,
    on_diagonal,
    own_tile,
    prepare_keys,
    score_factor,
    visible,
)
from fastpe.kernels.gemm import LOWER_A, LOWER_C, ONTO, OVERWRITE, UPPER_A, gemm, transpose
from fastpe.kernels.simd import (
    at,
    blend,
    exp,
    get,
    lanes,
    load,
    load_first,
    put,
    scalar,
    splat,
    store,
    store_first,
    zeros,
)
from fastpe.kernels.threads import end_turn, wait_turn


@inner
def _remake_weights(tile, key_length, case, factor, bias, has_bias, lse, cells):
    """Scores to P = exp(S - lse), hidden keys to 0."""
    i0, m, j0, n = tile
    width, lowest, factors = lanes(cells), splat(scalar(cells, -np.inf)), splat(factor)
    for i in range(m):
        row, offsets, shift = at(cells, i * TILE_KEYS), at(bias, -i), get(lse, i0 + i)
        low, high = visible(i0 + i, key_length, case)
        count = min(max(high - j0, np.int64(0)), n)
        shifts = splat(shift if shift > -np.inf else scalar(cells, 0.0))
        for j in range(0, count, width):
            x = load(row, j) * factors
            if has_bias:
                x = x + load_first(offsets, j, count - j)
            x = hide(x, j, low - j0, count, lowest, width)
            store(row, j, exp(x - shifts))
        for j in range((count + width - 1) // width * width, n, width):
            store(row, j, zeros(cells))


@inner
def _weights_backward(tile, diagonal, weights, dweights, deltas, factor, dbias, wants_bias):
    """dP to dS = P (dP - delta), times factor; adds dS to dbias, whose cell (0, 0) it is given."""
    width, factors = lanes(weights), splat(factor)
    for i in range(tile.m):
        row, grad, offsets = at(weights, i * TILE_KEYS), at(dweights, i * TILE_KEYS), at(dbias, -i)
        delta, count = splat(get(deltas, i)), min(tile.n, i + 1) if diagonal else tile.n
        for j in range(0, count, width):
            x = load(row, j) * (load(grad, j) - delta)
            if count - j < width:
                x = blend(x, count - j, zeros(weights))
            if wants_bias:
                store_first(offsets, j, load_first(offsets, j, count - j) + x, count - j)
            store(grad, j, x * factors)
        for j in range((count + width - 1) // width * width, tile.n, width):
            store(grad, j, zeros(weights))


@inner
def _is_alone(terms, case):
    """Whether a tile makes all there is of its rows' gradients."""
    return case.kept and terms is None


@part
def _tile_weights(x, terms, lse, tile, key_length, cells, guard, slope, table, case, arena, room):
    """The weights of the tile, in `cells`; what gradients of scores are to be multiplied by; whether weights count."""
    i0, j0 = tile.i0, tile.j0
    if case.kept:
        return score_factor(x, terms, table, case), True
    bias = at(x.bias, j0 - i0 + case.queries - 1)
    if terms is not None and table[GROWTH, GIVEN]:
        prepare_keys(x, terms, j0, tile.n, i0, table, case, arena, room)
    factor = make_scores(x, terms, tile, table, case, cells, arena, room)
    if case.skip and faint(cells, factor, bias, table[BIAS, GIVEN], tile, guard, slope, at(lse, i0)):
        return factor, False
    _remake_weights(tile, key_length, case, factor, bias, table[BIAS, GIVEN], lse, cells)
    return factor, True


@part
def _tile_backward(x, terms, dout, deltas, tile, factor, cells, sums, rows, turns, spot, turn, table, case, arena,
                   room):  # fmt: skip
    """All gradients of one tile; dq's are added when it is the strip's turn."""
    i0, m, j0, n = tile
    d, dcells, do = case.width, at(arena, room.dcells), at(dout, i0 * case.o_row)
    diagonal = on_diagonal(tile, case)
    gemm(
        do, case.o_row, ONE, at(arena, room.v_columns), TILE_KEYS, dcells, TILE_KEYS, m, columns_of(n, cells), d,
        LOWER_C if diagonal else OVERWRITE, dcells, NONE, dcells, NONE,
    )  # fmt: skip
    start = OVERWRITE if _is_alone(terms, case) else ONTO
    over_queries, over_keys = start | UPPER_A if diagonal else start, start | LOWER_A if diagonal else start
    gemm(
        cells, ONE, TILE_KEYS, do, case.o_row, rows.dv, case.g_row, n, d, m, over_queries, rows.dv, case.g_row,
        rows.dv, NONE,
    )  # fmt: skip
    if terms is not None:
        _values_backward(terms, do, tile, cells, dcells, sums, table, case, arena, room)
    corner = case.queries - 1 - i0  # where sums over offsets hold cell (0, 0)
    _weights_backward(tile, diagonal, cells, dcells, at(deltas, i0), factor, at(sums.bias, corner), table[BIAS, WANTED])
    if terms is not None:
        _terms_backward(x, terms, tile, dcells, sums, rows, table, case, arena, room)
    scaled = False
    if terms is not None:
        scaled = bool(table[GROWTH, GIVEN] or table[REL_GAIN, GIVEN])
    dq = at(rows.dq, i0 * case.g_row)
    if not scaled:
        qr, kr = at(x.qr, i0 * case.qr_row), at(x.kr, j0 * case.kr_row)
        gemm(
            dcells, ONE, TILE_KEYS, qr, case.qr_row, rows.dk, case.g_row, n, d, m, over_queries, rows.dk, case.g_row,
            rows.dk, NONE,
        )  # fmt: skip
        if not case.alone:
            wait_turn(turns, spot, turn)
        gemm(dcells, TILE_KEYS, ONE, kr, case.kr_row, dq, case.g_row, m, d, n, over_keys, dq, case.g_row, dq, NONE)
    if terms is not None:
        if scaled:
            _scaled_content_backward(
                tile, terms, dcells, sums, rows.dk, dq, turns, spot, turn, table, case, arena, room
            )
        if table[REL_KEY, GIVEN]:  # still the strip's turn
            first, reach = j0 - (i0 + case.keys - case.queries), table[REL_KEY, ROWS] // 2
            relative_mix(
                dcells, terms.rel_key, reach, d, first, at(rows.dq_rest, i0 * case.g_row), case.g_row, m, n,
                at(arena, room.band), at(arena, room.rows), False,
            )  # fmt: skip


@part
def _values_backward(terms, do, tile, cells, dcells, sums, table, case, arena, room):
    """dcells += dout . rel_value, and the gradient of rel_value."""
    if table[REL_VALUE, GIVEN]:
        i0, m, j0, n = tile
        band, rows, reach = at(arena, room.band), at(arena, room.rows), table[REL_VALUE, ROWS] // 2
        d, first = case.width, j0 - (i0 + case.keys - case.queries)
        relative_scores(do, case.o_row, terms.rel_value, reach, d, first, dcells, m, n, band, rows, False)
        if table[REL_VALUE, WANTED]:
            relative_gradient(cells, do, case.o_row, sums.rel_value, reach, d, first, m, n, band, rows, False)


@part
def _terms_backward(x, terms, tile, dcells, sums, rows, table, case, arena, room):
    """Gradients of the terms, but of what rel_key makes of dq; dcells: from that of the scores to that of their sum."""
    i0, m, j0, n = tile
    d, first = case.width, j0 - (i0 + case.keys - case.queries)
    band, offset_rows, k = at(arena, room.band), at(arena, room.rows), at(x.k, j0 * case.k_row)
    if table[SCORES, WANTED]:
        add_cells(at(sums.scores, i0 * case.keys + j0), case.keys, dcells, TILE_KEYS, m, n)
    if table[VALUES, WANTED]:
        values_backward(dcells, at(terms.indices, i0 * case.keys + j0), case.keys, sums.values, m, n)
    if case.keep_raw:
        gain, dgain = at(terms.gain, j0 - i0 + case.queries - 1), at(sums.gain, case.queries - 1 - i0)
        found = scale_cells_backward(
            dcells, at(arena, room.raw), x.scale, case.rectify, gain, table[GAIN, GIVEN], dgain, table[GAIN, WANTED],
            m, n,
        )  # fmt: skip
        put(sums.scale, 0, get(sums.scale, 0) + np.float64(found))
    elif table[VALUES, GIVEN] or table[SCORES, GIVEN]:
        scale_cells(dcells, x.scale, False, terms.gain, False, m, n)
    if table[REL_KEY, WANTED]:
        q, reach = at(x.q, i0 * case.q_row), table[REL_KEY, ROWS] // 2
        relative_gradient(dcells, q, case.q_row, sums.rel_key, reach, d, first, m, n, band, offset_rows, False)
    if table[REL_QUERY, GIVEN]:
        reach = table[REL_QUERY, ROWS] // 2
        if table[REL_QUERY, WANTED]:
            relative_gradient(dcells, k, case.k_row, sums.rel_query, reach, d, first, m, n, band, offset_rows, True)
        relative_mix(dcells, terms.rel_query, reach, d, first, rows.dk_rest, case.g_row, m, n, band, offset_rows, True)
    if table[KEY_BIAS, GIVEN]:
        key_terms_backward(
            dcells, terms.key_bias, k, case.k_row, d, sums.key_bias, table[KEY_BIAS, WANTED], rows.dk_rest,
            case.g_row, m, n, band,
        )  # fmt: skip


@part
def _scaled_content_backward(tile, terms, dcells, sums, dk, dq, turns, spot, turn, table, case, arena, room):
    """Adds to dk, waits for the strip's turn, and adds to dq, where the content has factors (growth, rel_gain)."""
    i0, m, j0, n = tile
    d = case.width
    q_scaled, k_scaled = at(arena, room.q_scaled), at(arena, room.k_scaled)
    mine, theirs = at(arena, room.dq_scaled), at(arena, room.dk_scaled)
    if table[REL_GAIN, GIVEN]:
        reach, first = table[REL_GAIN, ROWS] // 2, j0 - (i0 + case.keys - case.queries)
        clear(mine, m * d)
        clear(theirs, n * d)
        channel_gradients(
            dcells, q_scaled, k_scaled, terms.rel_gain, reach, d, first, mine, theirs, sums.rel_gain,
            table[REL_GAIN, WANTED], m, n,
        )  # fmt: skip
    else:
        diagonal = on_diagonal(tile, case)
        over_queries, over_keys = (UPPER_A, LOWER_A) if diagonal else (OVERWRITE, OVERWRITE)
        gemm(dcells, ONE, TILE_KEYS, q_scaled, d, theirs, d, n, d, m, over_queries, theirs, d, theirs, NONE)
        gemm(dcells, TILE_KEYS, ONE, k_scaled, d, mine, d, m, d, n, over_keys, mine, d, mine, NONE)
    channels = 2 * table[GROWTH, ROWS]
    grown(theirs, d, at(arena, room.k_factors), channels, theirs, n, d)
    grown(mine, d, at(arena, room.q_factors), channels, mine, m, d)
    _add_rows(dk, case.g_row, theirs, n, d)
    if not case.alone:
        wait_turn(turns, spot, turn)
    _add_rows(dq, case.g_row, mine, m, d)


@part
def _add_rows(target, target_row, source, n, d):
    for i in range(n):
        add_scaled(at(target, i * target_row), scalar(source, 1.0), at(source, i * d), d)


@inner
def _clear_rows(rows, row, n, d):
    for i in range(n):
        clear(at(rows, i * row), d)


@inner
def prepare_deltas(dout, out, deltas, block, case):
    """deltas of one block of queries: dout . out."""
    for i in range(block * TILE_QUERIES, min((block + 1) * TILE_QUERIES, case.queries)):
        put(deltas, i, dot(at(dout, i * case.o_row), at(out, i * case.o_row), case.width))


@part
def prepare_strip(x, terms, number, rows, table, case, arena, room):
    """What all heads that share a strip's keys have in common; its own gradients are cleared."""
    d, j0 = case.width, number * TILE_KEYS
    n = min(TILE_KEYS, case.keys - j0)
    if not _is_alone(terms, case):
        _clear_rows(rows.dk, case.g_row, n, d)
        _clear_rows(rows.dv, case.g_row, n, d)
    if case.apart:
        _clear_rows(rows.dk_rest, case.g_row, n, d)
    transpose(at(x.v, j0 * case.v_row), case.v_row, at(arena, room.v_columns), TILE_KEYS, n, d)
    by_block = False  # with growth, keys are prepared anew for every block of queries
    if terms is not None:
        by_block = bool(table[GROWTH, GIVEN])
    if not (case.kept or by_block):
        prepare_keys(x, terms, j0, n, NONE, table, case, arena, room)


@stage
def strip_backward(x, terms, dout, lse, deltas, cells, sums, rows, number, lengths, guard, turns, spot, table, case,
                   arena, room):  # fmt: skip
    """Gradients of one head from one strip of keys. turns: counters of its blocks of queries, from `spot` on."""
    query_length, key_length = lengths
    j0 = number * TILE_KEYS
    n = min(TILE_KEYS, case.keys - j0)
    for block in range((case.queries + TILE_QUERIES - 1) // TILE_QUERIES):
        i0 = block * TILE_QUERIES
        whole = min(TILE_QUERIES, case.queries - i0)
        m = max(np.int64(0), min(whole, query_length - i0))
        low, high = np.int64(0), np.int64(0)
        if m > 0:
            low, high = visible(i0, key_length, case)[0], visible(i0 + m - 1, key_length, case)[1]
        seen = low < j0 + n and high > j0
        tile, slope, factor = Tile(i0, m, j0, min(n, high - j0)), 0.0, x.scale  # nothing of what is padding
        if seen and case.skip:
            ahead = np.int64(number > own_tile(i0 + m, case))
            slope, term = bound(tile, number, ahead, guard, case, x.scale)
            seen = not negligible(at(guard.q_norms, i0), at(lse, i0), m, slope, term, guard.limit)
        if number == 0 and not _is_alone(terms, case):  # the first to have its turn
            _clear_rows(at(rows.dq, i0 * case.g_row), case.g_row, whole, case.width)
            if case.apart:
                _clear_rows(at(rows.dq_rest, i0 * case.g_row), case.g_row, whole, case.width)
        if seen:
            factor, seen = _tile_weights(x, terms, lse, tile, key_length, cells, guard, slope, table, case, arena, room)
        if seen:
            _tile_backward(
                x, terms, dout, deltas, tile, factor, cells, sums, rows, turns, spot + block, number, table, case,
                arena, room,
            )  # fmt: skip
        elif not case.alone:
            wait_turn(turns, spot + block, number)
        if not case.alone:
            end_turn(turns, spot + block)
