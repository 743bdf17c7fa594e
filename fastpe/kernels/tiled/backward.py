"""Attention backward: strips of keys, which take turns in adding to what they share."""

import numpy as np

from fastpe.kernels._jit import entry, inner
from fastpe.kernels.gemm import FROM, OVERWRITE, gemm, transpose
from fastpe.kernels.simd import (
    at,
    blend,
    exp,
    get,
    lanes,
    load,
    load_first,
    pointer,
    put,
    scalar,
    splat,
    store,
    store_first,
    zeros,
)
from fastpe.kernels.threads import claim, end_turn, finish, in_lanes, wait_for, wait_turn
from fastpe.kernels.tiled.bands import relative_gradient, relative_mix, relative_scores
from fastpe.kernels.tiled.cells import (
    TILE_KEYS,
    TILE_QUERIES,
    add_scaled,
    channel_gradients,
    clear,
    copy_cells,
    dot,
    key_terms_backward,
    scale_cells,
    scale_cells_backward,
    values_backward,
)
from fastpe.kernels.tiled.layout import (
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
    head_of,
    terms_of,
)
from fastpe.kernels.tiled.scores import bound, grown, hide, make_scores, negligible, prepare_keys, visible


@inner
def _remake_weights(tile, key_length, case, factor, bias, has_bias, lse, cells):
    """Scores to P = exp(S - lse), hidden keys to 0."""
    i0, m, j0, n = tile
    width, lowest, factors = lanes(cells), splat(scalar(cells, -np.inf)), splat(factor)
    for i in range(m):
        row, offsets, shift = at(cells, i * TILE_KEYS), at(bias, -i), get(lse, i0 + i)
        low, high = visible(i0 + i, key_length, case)
        shifts = splat(shift if shift > -np.inf else scalar(cells, 0.0))
        for j in range(0, n, width):
            x = load(row, j) * factors
            if has_bias:
                x = x + load_first(offsets, j, n - j)
            x = hide(x, j, low - j0, min(high - j0, n), lowest, width)
            store(row, j, exp(x - shifts))


@inner
def _weights_backward(m, n, weights, dweights, deltas, factor, dbias, wants_bias):
    """dP to dS = P (dP - delta), times factor; adds dS to dbias, whose cell (0, 0) it is given."""
    width, factors = lanes(weights), splat(factor)
    for i in range(m):
        row, grad, offsets, delta = (
            at(weights, i * TILE_KEYS),
            at(dweights, i * TILE_KEYS),
            at(dbias, -i),
            splat(get(deltas, i)),
        )
        for j in range(0, n, width):
            x = load(row, j) * (load(grad, j) - delta)
            if n - j < width:
                x = blend(x, n - j, zeros(weights))
            if wants_bias:
                store_first(offsets, j, load_first(offsets, j, n - j) + x, n - j)
            store(grad, j, x * factors)


@inner
def _tile_backward(q, qr, k, kr, v, dout, lse, deltas, tile, key_length, terms, table, case, scale, arena, room, dq,
                   dq_rest, dscores, dscale, turns, place, turn):  # fmt: skip
    """All gradients of one tile; dq's are added when it is the strip's turn."""
    i0, m, j0, n = tile
    d, first = case.width, j0 - (i0 + case.keys - case.queries)
    cells, dcells, raw = at(arena, room.cells), at(arena, room.dcells), at(arena, room.raw)
    band, rows, dk, dk_rest = (
        at(arena, room.band),
        at(arena, room.rows),
        at(arena, room.dk),
        at(arena, room.dk + d * TILE_KEYS),
    )
    q_tile, qr_tile, do = at(q, i0 * case.q_row), at(qr, i0 * case.q_row), at(dout, i0 * d)
    if table[GROWTH, GIVEN]:
        prepare_keys(k, kr, j0, n, i0, terms, table, case, arena, room)
    factor = make_scores(q_tile, qr_tile, k, tile, terms, table, case, scale, arena, room)
    _remake_weights(
        tile, key_length, case, factor, at(terms.bias, j0 - i0 + case.queries - 1), table[BIAS, GIVEN], lse, cells
    )
    gemm(
        do, d, ONE, at(arena, room.v_columns), TILE_KEYS, dcells, TILE_KEYS, m, n, d, OVERWRITE, dcells, NONE, dcells,
        NONE,
    )  # fmt: skip
    dv = at(arena, room.dv)
    gemm(cells, ONE, TILE_KEYS, do, d, dv, d, n, d, m, FROM, dv, d, dv, NONE)
    if table[REL_VALUE, GIVEN]:
        reach = table[REL_VALUE, ROWS] // 2
        relative_scores(do, d, terms.rel_value, reach, d, first, dcells, m, n, band, rows, False)
        if table[REL_VALUE, WANTED]:
            relative_gradient(cells, do, d, at(arena, room.drel_value), reach, d, first, m, n, band, rows, False)
    corner = case.queries - 1 - i0  # where a strip's own sums over offsets hold cell (0, 0)
    _weights_backward(m, n, cells, dcells, at(deltas, i0), factor, at(arena, room.dbias + corner), table[BIAS, WANTED])
    if table[SCORES, WANTED]:
        copy_cells(dcells, at(dscores, i0 * case.keys + j0), case.keys, m, n)
    if table[VALUES, WANTED]:
        values_backward(dcells, at(terms.indices, i0 * case.keys + j0), case.keys, at(arena, room.dvalues), m, n)
    if case.keep_raw:
        gain, dgain = at(terms.gain, j0 - i0 + case.queries - 1), at(arena, room.dgain + corner)
        found = scale_cells_backward(
            dcells, raw, scale, case.rectify, gain, table[GAIN, GIVEN], dgain, table[GAIN, WANTED], m, n
        )
        put(dscale, 0, get(dscale, 0) + np.float64(found))
    elif table[VALUES, GIVEN] or table[SCORES, GIVEN]:
        scale_cells(dcells, scale, False, terms.gain, False, m, n)
    if table[REL_KEY, WANTED]:
        reach = table[REL_KEY, ROWS] // 2
        drel = at(arena, room.drel_key)
        relative_gradient(dcells, q_tile, case.q_row, drel, reach, d, first, m, n, band, rows, False)
    if table[REL_QUERY, GIVEN]:
        reach = table[REL_QUERY, ROWS] // 2
        if table[REL_QUERY, WANTED]:
            drel = at(arena, room.drel_query)
            relative_gradient(dcells, k, case.k_row, drel, reach, d, first, m, n, band, rows, True)
        relative_mix(dcells, terms.rel_query, reach, d, first, dk_rest, d, m, n, band, rows, True)
    if table[KEY_BIAS, GIVEN]:
        key_terms_backward(dcells, terms.key_bias, k, case.k_row, d, at(arena, room.dkey_bias), table[KEY_BIAS, WANTED],
                           dk_rest, m, n, band)  # fmt: skip
    _content_backward(
        qr_tile, kr, tile, dcells, terms, table, case, arena, room, dk, at(dq, i0 * d), turns, place, turn
    )
    if table[REL_KEY, GIVEN]:  # still the strip's turn
        reach = table[REL_KEY, ROWS] // 2
        relative_mix(dcells, terms.rel_key, reach, d, first, at(dq_rest, i0 * d), d, m, n, band, rows, False)


@inner
def _content_backward(qr, kr, tile, dcells, terms, table, case, arena, room, dk, dq, turns, place, turn):
    """Adds to dk, waits for the strip's turn, and adds to dq."""
    i0, m, j0, n = tile
    d = case.width
    if not (table[GROWTH, GIVEN] or table[REL_GAIN, GIVEN]):
        gemm(dcells, ONE, TILE_KEYS, qr, case.q_row, dk, d, n, d, m, FROM, dk, d, dk, NONE)
        wait_turn(turns, place, turn)
        gemm(dcells, TILE_KEYS, ONE, kr, case.k_row, dq, d, m, d, n, FROM, dq, d, dq, NONE)
        return
    q_scaled, k_scaled = at(arena, room.q_scaled), at(arena, room.k_scaled)
    mine, theirs = at(arena, room.dq), at(arena, room.dk_scaled)
    clear(mine, m * d)
    clear(theirs, n * d)
    if table[REL_GAIN, GIVEN]:
        reach, first = table[REL_GAIN, ROWS] // 2, j0 - (i0 + case.keys - case.queries)
        channel_gradients(
            dcells, q_scaled, k_scaled, terms.rel_gain, reach, d, first, mine, theirs, at(arena, room.drel_gain),
            table[REL_GAIN, WANTED], m, n,
        )  # fmt: skip
    else:
        gemm(dcells, ONE, TILE_KEYS, q_scaled, d, theirs, d, n, d, m, FROM, theirs, d, theirs, NONE)
        gemm(dcells, TILE_KEYS, ONE, k_scaled, d, mine, d, m, d, n, FROM, mine, d, mine, NONE)
    pairs = table[GROWTH, ROWS]
    growth, key_growth = at(terms.growth_q, i0 * pairs), at(terms.growth_k, j0 * pairs)
    grown(theirs, d, key_growth, growth, pairs, case.half, -1.0, theirs, n, d)
    grown(mine, d, growth, growth, pairs, case.half, 1.0, mine, m, d)
    add_scaled(dk, scalar(dk, 1.0), theirs, n * d)
    wait_turn(turns, place, turn)
    add_scaled(dq, scalar(dq, 1.0), mine, m * d)


@inner
def _prepare_block(dout, out, deltas, block, case):
    """deltas of one block of queries: dout . out."""
    d = case.width
    for i in range(block * TILE_QUERIES, min((block + 1) * TILE_QUERIES, case.queries)):
        put(deltas, i, dot(at(dout, i * d), at(out, i * d), d))


@inner
def _add_rows(target, source, n):
    add_scaled(target, scalar(source, 1.0), source, n)


@inner
def _flush_rows(table, slot, gradient, head, own, width):
    """Add the strip's own sums for a slot with rows of `width` elements, where its gradient is wanted."""
    if table[slot, WANTED]:
        size = table[slot, ROWS] * width
        _add_rows(at(pointer(gradient), head * size), own, size)


@inner
def _flush(g, b, h, j0, n, table, case, arena, room):
    """Add the strip's own sums to the gradients of the head's slots."""
    head = b * case.heads + h
    d, offsets = case.width, case.queries + case.keys - 1
    if table[BIAS, WANTED]:
        _add_rows(at(pointer(g.dbias), head * offsets + j0), at(arena, room.dbias), case.queries - 1 + n)
    if table[GAIN, WANTED]:
        _add_rows(at(pointer(g.dgain), head * offsets + j0), at(arena, room.dgain), case.queries - 1 + n)
    _flush_rows(table, REL_GAIN, g.drel_gain, head, at(arena, room.drel_gain), d)
    _flush_rows(table, REL_KEY, g.drel_key, head, at(arena, room.drel_key), d)
    _flush_rows(table, REL_QUERY, g.drel_query, head, at(arena, room.drel_query), d)
    _flush_rows(table, REL_VALUE, g.drel_value, head, at(arena, room.drel_value), d)
    _flush_rows(table, VALUES, g.dvalues, head, at(arena, room.dvalues), ONE)
    if table[KEY_BIAS, WANTED]:
        _add_rows(at(pointer(g.dkey_bias), head * d), at(arena, room.dkey_bias), d)


@inner
def _strip(b, kh, number, x, dout, lse, deltas, g, slots, table, case, limit, turns, arena, room):
    """Gradients of one strip of keys and of all that meets it."""
    group, d = case.heads // case.key_heads, case.width
    j0 = number * TILE_KEYS
    n = min(TILE_KEYS, case.keys - j0)
    query_length, key_length = x.lengths[b, 0], x.lengths[b, 1]
    blocks = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES
    k = at(head_of(x.k, case.k_batch, case.k_head, b, kh), j0 * case.k_row)
    kr = at(head_of(x.kr, case.k_batch, case.k_head, b, kh), j0 * case.k_row)
    v = at(head_of(x.v, case.v_batch, case.v_head, b, kh), j0 * case.v_row)
    clear(at(arena, room.dk), 2 * TILE_KEYS * d)
    clear(at(arena, room.dv), TILE_KEYS * d)
    transpose(v, case.v_row, at(arena, room.v_columns), TILE_KEYS, n, d)
    if not table[GROWTH, GIVEN]:
        prepare_keys(k, kr, j0, n, NONE, terms_of(slots, table, b, kh * group, case), table, case, arena, room)
    for h in range(kh * group, (kh + 1) * group):
        head = b * case.heads + h
        terms = terms_of(slots, table, b, h, case)
        clear(at(arena, room.dbias), room.size - room.dbias)
        for block in range(blocks):
            i0, place = block * TILE_QUERIES, head * blocks + block
            m = max(np.int64(0), min(TILE_QUERIES, min(case.queries, query_length) - i0))
            seen = False
            if m > 0:
                low, high = visible(i0, key_length, case)[0], visible(i0 + m - 1, key_length, case)[1]
                seen = low < j0 + n and high > j0
            tile = Tile(i0, m, j0, n)
            if seen and case.skip:
                norms = at(pointer(x.q_norms), head * case.queries + i0)
                slope, top = bound(tile, x.key_norms[b, kh, number], x.bias_tops[b % x.bias_tops.shape[0], h], case,
                                    x.scale[h])  # fmt: skip
                floors = at(pointer(lse), head * case.queries + i0)
                seen = not negligible(norms, floors, m, slope, top, limit)
            if not seen:
                wait_turn(turns, place, number)
                end_turn(turns, place)
                continue
            _tile_backward(
                head_of(x.q, case.q_batch, case.q_head, b, h), head_of(x.qr, case.q_batch, case.q_head, b, h), k, kr, v,
                at(pointer(dout), head * case.queries * d), at(pointer(lse), head * case.queries),
                at(pointer(deltas), head * case.queries), tile, key_length, terms, table, case, x.scale[h], arena,
                room, at(pointer(g.dq), head * case.queries * d), at(pointer(g.dq_rest), head * case.queries * d),
                at(pointer(g.dscores), head * case.queries * case.keys),
                at(pointer(g.dscale), head * case.strips + number), turns, place, number,
            )  # fmt: skip
            end_turn(turns, place)
        place = case.batch * case.heads * blocks + head
        wait_turn(turns, place, number)
        _flush(g, b, h, j0, n, table, case, arena, room)
        end_turn(turns, place)
    keys = ((b * case.key_heads + kh) * case.keys + j0) * d
    _add_rows(at(pointer(g.dk), keys), at(arena, room.dk), n * d)
    _add_rows(at(pointer(g.dk_rest), keys), at(arena, room.dk + TILE_KEYS * d), n * d)
    _add_rows(at(pointer(g.dv), keys), at(arena, room.dv), n * d)


@inner
def _backward_lane(lane, board, x, out, dout, lse, deltas, g, slots, table, case, limit, turns, arenas, room):
    """Tasks of two phases: the deltas of a block of queries; a strip of keys."""
    blocks, heads = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES, case.batch * case.heads
    arena = at(pointer(arenas), lane * arenas.shape[1])
    prepared = heads * blocks
    tasks = prepared + case.batch * case.key_heads * case.strips
    task = claim(board)
    while task < tasks:
        if task < prepared:
            rows = task // blocks * case.queries
            _prepare_block(
                at(pointer(dout), rows * case.width), at(pointer(out), rows * case.width), at(pointer(deltas), rows),
                task % blocks, case,
            )  # fmt: skip
        else:
            wait_for(board, prepared)
            strip = task - prepared
            b, kh = strip // case.strips // case.key_heads, strip // case.strips % case.key_heads
            _strip(b, kh, strip % case.strips, x, dout, lse, deltas, g, slots, table, case, limit, pointer(turns),
                   arena, room)  # fmt: skip
        finish(board)
        task = claim(board)
    wait_for(board, tasks)


@entry(label="the gradients of attention")
def backward(crew, board, x, out, dout, lse, deltas, g, slots, table, case, limit, turns, arenas, room):
    """Adds to all arrays of g, which hold zeros."""
    in_lanes(
        crew, _backward_lane,
        (pointer(board), x, out, dout, lse, deltas, g, slots, table, case, limit, turns, arenas, room),
    )  # fmt: skip
