"""Attention forward: blocks of queries, an online softmax over tiles of keys."""

import math

import numpy as np

from fastpe.kernels._jit import entry, inner
from fastpe.kernels.gemm import FROM, gemm
from fastpe.kernels.simd import (
    at,
    exp,
    get,
    lanes,
    largest,
    load,
    load_first,
    maximum,
    pointer,
    put,
    scalar,
    splat,
    store,
    store_first,
    total,
    zeros,
)
from fastpe.kernels.threads import claim, in_lanes
from fastpe.kernels.tiled.bands import relative_mix
from fastpe.kernels.tiled.cells import (
    TILE_KEYS,
    TILE_QUERIES,
    clear,
)
from fastpe.kernels.tiled.layout import (
    BIAS,
    GIVEN,
    NONE,
    ONE,
    REL_VALUE,
    ROWS,
    Tile,
    head_of,
    terms_of,
)
from fastpe.kernels.tiled.scores import bound, hide, make_scores, negligible, prepare_keys, visible


@inner
def _soften(tile, key_length, case, factor, bias, has_bias, cells, tops, sums, mixed):
    """Scores to exp(score - running maximum), hidden keys to 0; what was mixed so far is scaled to the new maximum."""
    i0, m, j0, n = tile
    width, lowest, factors = lanes(cells), splat(scalar(cells, -np.inf)), splat(factor)
    for i in range(m):
        row, offsets, best = at(cells, i * TILE_KEYS), at(bias, -i), lowest
        low, high = visible(i0 + i, key_length, case)
        for j in range(0, n, width):
            x = load(row, j) * factors
            if has_bias:
                x = x + load_first(offsets, j, n - j)
            x = hide(x, j, low - j0, min(high - j0, n), lowest, width)
            store(row, j, x)
            best = maximum(best, x)
        old = get(tops, i)
        top = max(old, largest(best))
        shift = splat(top if top > -np.inf else scalar(cells, 0.0))
        mass = zeros(cells)
        for j in range(0, n, width):
            x = exp(load(row, j) - shift)
            store(row, j, x)
            mass = mass + x
        if top > old:
            keep = exp(splat(old) - shift)
            put(sums, i, get(sums, i) * largest(keep))
            for c in range(0, case.width, width):
                left = case.width - c
                store_first(mixed, i * case.width + c, load_first(mixed, i * case.width + c, left) * keep, left)
            put(tops, i, top)
        put(sums, i, get(sums, i) + total(mass))


@inner
def forward_block(q, qr, k, kr, v, out, lse, block, lengths, norms, key_norms, bias_tops, terms, table, case, scale,
                  limit, arena, room):  # fmt: skip
    """out and lse of one block of queries of one head. lengths: of its queries and keys. limit: log(tolerance / M)."""
    query_length, key_length = lengths
    i0 = block * TILE_QUERIES
    rows = min(TILE_QUERIES, case.queries - i0)
    m = max(np.int64(0), min(rows, query_length - i0))
    d, cells, mixed = case.width, at(arena, room.cells), at(arena, room.mixed)
    tops, sums = at(arena, room.stats), at(arena, room.stats + TILE_QUERIES)
    clear(mixed, rows * d)
    clear(sums, rows)
    for i in range(rows):
        put(tops, i, scalar(tops, -np.inf))
    low, high = np.int64(0), np.int64(0)
    if m > 0:
        low, high = visible(i0, key_length, case)[0], visible(i0 + m - 1, key_length, case)[1]
    farthest, after = low // TILE_KEYS, (high + TILE_KEYS - 1) // TILE_KEYS
    nearest = min(max((i0 + m - 1 + case.keys - case.queries) // TILE_KEYS, farthest), after - 1)
    for step in range(after - farthest):  # from the queries' own keys down, then those after them upwards
        number = nearest - step if step <= nearest - farthest else farthest + step
        j0 = number * TILE_KEYS
        tile = Tile(i0, m, j0, min(TILE_KEYS, high - j0))
        if case.skip:
            slope, top = bound(tile, key_norms[number], bias_tops, case, scale)
            if negligible(at(norms, i0), tops, m, slope, top, limit):
                continue
        k_tile = at(k, j0 * case.k_row)
        prepare_keys(k_tile, at(kr, j0 * case.k_row), j0, tile.n, i0, terms, table, case, arena, room)
        q_tile, qr_tile = at(q, i0 * case.q_row), at(qr, i0 * case.q_row)
        factor = make_scores(q_tile, qr_tile, k_tile, tile, terms, table, case, scale, arena, room)
        bias = at(terms.bias, j0 - i0 + case.queries - 1)
        _soften(tile, key_length, case, factor, bias, table[BIAS, GIVEN], cells, tops, sums, mixed)
        values = at(v, j0 * case.v_row)
        gemm(cells, TILE_KEYS, ONE, values, case.v_row, mixed, d, m, d, tile.n, FROM, mixed, d, mixed, NONE)
        if table[REL_VALUE, GIVEN]:
            first, reach = j0 - (i0 + case.keys - case.queries), table[REL_VALUE, ROWS] // 2
            relative_mix(
                cells, terms.rel_value, reach, d, first, mixed, d, m, tile.n, at(arena, room.band),
                at(arena, room.rows), False,
            )  # fmt: skip
    for i in range(rows):
        mass = np.float64(get(sums, i))
        put(lse, i0 + i, scalar(lse, np.float64(get(tops, i)) + math.log(mass) if mass > 0.0 else -np.inf))
        share = splat(scalar(out, 1.0 / mass if mass > 0.0 else 0.0))
        for c in range(0, d, lanes(out)):
            store_first(out, (i0 + i) * d + c, load_first(mixed, i * d + c, d - c) * share, d - c)


@inner
def _forward_lane(lane, board, x, out, lse, slots, table, case, limit, arenas, room):
    """One task is one block of queries of one head, the longest rows first."""
    blocks = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES
    heads = case.batch * case.heads
    arena = at(pointer(arenas), lane * arenas.shape[1])
    task = claim(board)
    while task < heads * blocks:
        b, h = task % heads // case.heads, task % heads % case.heads
        kh = h // (case.heads // case.key_heads)
        rows = (b * case.heads + h) * case.queries
        forward_block(
            head_of(x.q, case.q_batch, case.q_head, b, h), head_of(x.qr, case.q_batch, case.q_head, b, h),
            head_of(x.k, case.k_batch, case.k_head, b, kh), head_of(x.kr, case.k_batch, case.k_head, b, kh),
            head_of(x.v, case.v_batch, case.v_head, b, kh), at(pointer(out), rows * case.width), at(pointer(lse), rows),
            blocks - 1 - task // heads, (x.lengths[b, 0], x.lengths[b, 1]), at(pointer(x.q_norms), rows),
            x.key_norms[b, kh], x.bias_tops[b % x.bias_tops.shape[0], h], terms_of(slots, table, b, h, case), table,
            case, x.scale[h], limit, arena, room,
        )  # fmt: skip
        task = claim(board)


@entry(label="attention")
def forward(crew, board, x, out, lse, slots, table, case, limit, arenas, room):
    """out (B, H, N, D) and lse (B, H, N)."""
    in_lanes(crew, _forward_lane, (pointer(board), x, out, lse, slots, table, case, limit, arenas, room))
