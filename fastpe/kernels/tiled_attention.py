"""Attention in tiles (online softmax), forward and backward, with every slot of the score: O(N) memory.

    out_i = sum_j P_ij (v_j + rel_value[o]),   P_ij = exp(S_ij - lse_i),   lse_i = log sum_j exp(S_ij)

S as in `tile_scores`. Which keys a query sees is one interval of them, whatever masks there are.

Forward, one task is one block of TILE_QUERIES queries of one head. Its tiles of keys come from the nearest to the
farthest; a running maximum m_i and sum l_i of every row make exp harmless. 4 D FLOP a cell.

Backward (FlashAttention-2; Dao 2023, algorithm 2), one task is one strip of TILE_KEYS keys of one key head. It goes
through the blocks of queries of every head that reads it, makes P again from `lse`, and keeps dk and dv:

    dP = dout v^T (+ dout . rel_value),   dS = P (dP - delta),   delta_i = dout_i . out_i
    dv += P^T dout,   dk += dS^T q,   dq += dS k

10 D FLOP a cell. Several strips add to the same dq and to the same gradients of slots: they take turns, in the order of
the strips, so that sums have one order at any number of threads.

Skipping. Where the score is s q.k + bias alone, |S_ij| <= s |q_i| max_J |k_j| + max_tile bias =: U_i for all keys j of a
tile J (Cauchy and Schwarz; rotations keep norms). Forward, a tile is left out when M exp(U_i - m_i) <= tolerance for each
of its rows: as l_i >= exp(m_i - m_i) = 1 from the row's first visible key on and m_i only grows, all that is left out of
row i has together at most the weight `tolerance` in the softmax, which changes out_i by at most 2 tolerance max|v|.
Backward, likewise with lse_i, which is at least m_i: what is left out of any row of P sums up to at most `tolerance`.
The computed norms are rounded up by 1 + 1e-3 for their own rounding.
"""

import math
from typing import NamedTuple

import numpy as np

from fastpe.kernels._jit import entry, inner, part
from fastpe.kernels.gemm import FROM, OVERWRITE, gemm, transpose
from fastpe.kernels.simd import (
    at,
    blend,
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
from fastpe.kernels.threads import claim, end_turn, finish, in_lanes, wait_for, wait_turn
from fastpe.kernels.tile_scores import (
    BAND,
    TILE_KEYS,
    TILE_QUERIES,
    add_cells,
    add_key_terms,
    add_scaled,
    add_values,
    channel_gradients,
    channel_scores,
    copy_cells,
    dot,
    key_terms_backward,
    relative_gradient,
    relative_mix,
    relative_scores,
    scale_cells,
    scale_cells_backward,
    values_backward,
)

ONE, NONE = np.int64(1), np.int64(0)
SLOTS = (
    "rel_gain",
    "rel_key",
    "rel_query",
    "rel_value",
    "key_bias",
    "gain",
    "bias",
    "values",
    "index",
    "scores",
    "growth",
)
REL_GAIN, REL_KEY, REL_QUERY, REL_VALUE, KEY_BIAS, GAIN, BIAS, VALUES, INDEX, SCORES, GROWTH = (
    np.int64(number) for number in range(len(SLOTS))
)
# columns of the table of slots: whether it is given and its gradient wanted, strides of batch and head, rows
GIVEN, WANTED, BATCH, HEAD, ROWS = (np.int64(number) for number in range(5))
CHUNK = np.int64(64)  # offsets for which one largest bias is known
UNDERFLOW = 1e-30  # more than what squares that underflow may take from a squared norm


class Case(NamedTuple):
    """Sizes and flags of a call, and the strides of its arrays in elements; rows are contiguous."""

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    width: int
    causal: int
    window: int  # 0: none
    strips: int  # of keys
    half: int  # whether rotations pair channels c and c + R/2, not 2c and 2c + 1
    rectify: int
    keep_raw: int  # whether the scores before the scale are needed later
    skip: int
    q_batch: int
    q_head: int
    q_row: int
    k_batch: int
    k_head: int
    k_row: int
    v_batch: int
    v_head: int
    v_row: int


class Room(NamedTuple):
    """Where things lie in a lane's scratch memory; offsets in elements."""

    cells: int
    dcells: int
    raw: int
    band: int
    rows: int
    k_columns: int
    v_columns: int
    q_scaled: int
    k_scaled: int
    mixed: int
    dq: int
    dk: int
    dv: int
    dk_scaled: int
    stats: int
    dbias: int
    dgain: int
    drel_gain: int
    drel_key: int
    drel_query: int
    drel_value: int
    dkey_bias: int
    dvalues: int
    size: int


def room_for(case: Case, table: np.ndarray, *, backward: bool) -> Room:
    """Lay out a lane's scratch memory."""
    cursor = 0

    def take(count: int) -> int:
        nonlocal cursor
        start = cursor
        cursor += -(-int(count) // 16) * 16
        return start

    tile, d, n, k = int(TILE_QUERIES * TILE_KEYS), case.width, case.queries, int(TILE_KEYS)
    longer = max(int(TILE_QUERIES), k)
    relative = bool(table[[REL_KEY, REL_QUERY, REL_VALUE], GIVEN].any())
    scaled = bool(table[[REL_GAIN, GROWTH], GIVEN].any())

    def gradient(slot: int, count: int) -> int:
        return take(backward and table[slot, WANTED] and count)

    return Room(
        cells=take(tile), dcells=take(backward * tile), raw=take(backward and case.keep_raw and tile),
        band=take(longer * BAND if relative else longer), rows=take(relative and max(d, 1) * BAND),
        k_columns=take(d * k), v_columns=take(backward * d * k),
        q_scaled=take(scaled and TILE_QUERIES * d), k_scaled=take(scaled and k * d),
        mixed=take(TILE_QUERIES * d), dq=take(backward and scaled and TILE_QUERIES * d),
        dk=take(backward * 2 * k * d), dv=take(backward * k * d), dk_scaled=take(backward and scaled and k * d), stats=take(2 * TILE_QUERIES),
        dbias=gradient(BIAS, n + k), dgain=gradient(GAIN, n + k),
        drel_gain=gradient(REL_GAIN, table[REL_GAIN, ROWS] * d), drel_key=gradient(REL_KEY, table[REL_KEY, ROWS] * d),
        drel_query=gradient(REL_QUERY, table[REL_QUERY, ROWS] * d),
        drel_value=gradient(REL_VALUE, table[REL_VALUE, ROWS] * d),
        dkey_bias=gradient(KEY_BIAS, d), dvalues=gradient(VALUES, table[VALUES, ROWS]), size=cursor,
    )  # fmt: skip


class Slots(NamedTuple):
    """The arrays of the score, flat; one that is not given is any array of the right type."""

    rel_gain: np.ndarray
    rel_key: np.ndarray
    rel_query: np.ndarray
    rel_value: np.ndarray
    key_bias: np.ndarray
    gain: np.ndarray  # unfolded: one entry for each of the N + M - 1 offsets
    bias: np.ndarray
    values: np.ndarray
    index: np.ndarray  # int32
    scores: np.ndarray
    growth_q: np.ndarray  # float64
    growth_k: np.ndarray


class Terms(NamedTuple):
    """Pointers to what of the slots belongs to one head."""

    rel_gain: int
    rel_key: int
    rel_query: int
    rel_value: int
    key_bias: int
    gain: int
    bias: int
    values: int
    index: int
    scores: int
    growth_q: int
    growth_k: int


@inner
def _place(table, slot, b, h):
    return b * table[slot, BATCH] + h * table[slot, HEAD]


@inner
def _terms(slots, table, b, h, case):
    pairs = table[GROWTH, ROWS]
    led = b * table[GROWTH, BATCH]
    return Terms(
        at(pointer(slots.rel_gain), _place(table, REL_GAIN, b, h)),
        at(pointer(slots.rel_key), _place(table, REL_KEY, b, h)),
        at(pointer(slots.rel_query), _place(table, REL_QUERY, b, h)),
        at(pointer(slots.rel_value), _place(table, REL_VALUE, b, h)),
        at(pointer(slots.key_bias), _place(table, KEY_BIAS, b, h)),
        at(pointer(slots.gain), _place(table, GAIN, b, h)),
        at(pointer(slots.bias), _place(table, BIAS, b, h)),
        at(pointer(slots.values), _place(table, VALUES, b, h)),
        at(pointer(slots.index), _place(table, INDEX, b, h)),
        at(pointer(slots.scores), _place(table, SCORES, b, h)),
        at(pointer(slots.growth_q), led * case.queries * pairs),
        at(pointer(slots.growth_k), led * case.keys * pairs),
    )


class Tile(NamedTuple):
    """A tile's first query, number of queries, first key, number of keys."""

    i0: int
    m: int
    j0: int
    n: int


# ---------------------------------------------------------------------------------------------------------------------
# What is visible


@inner
def _visible(i, key_length, case):
    """The keys low .. high - 1 that query i sees."""
    position = i + case.keys - case.queries
    low, high = np.int64(0), key_length
    if case.causal:
        high = min(high, position + 1)
    if case.window:
        low, high = max(low, position - case.window + 1), min(high, position + case.window)
    return low, max(low, high)


@inner
def _hide(x, j, low, high, lowest, width):
    """A vector of scores of the keys from j on, with those outside low .. high - 1 at minus infinity."""
    if high - j < width:
        x = blend(x, high - j, lowest)
    if low > j:
        x = blend(lowest, low - j, x)
    return x


# ---------------------------------------------------------------------------------------------------------------------
# Scores of a tile


@inner
def _grown(x, x_row, growth, origin, pairs, half, sign, y, n, width):
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
def _make_scores(q, qr, k, tile, terms, table, case, scale, arena, room):
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
        _grown(qr, case.q_row, growth, growth, pairs, case.half, 1.0, content, m, d)
    if table[REL_GAIN, GIVEN]:
        reach = table[REL_GAIN, ROWS] // 2
        channel_scores(content, at(arena, room.k_scaled), terms.rel_gain, reach, d, first, cells, m, n)
    else:
        columns = at(arena, room.k_columns)
        gemm(
            content,
            content_row,
            ONE,
            columns,
            TILE_KEYS,
            cells,
            TILE_KEYS,
            m,
            n,
            d,
            OVERWRITE,
            cells,
            NONE,
            cells,
            NONE,
        )
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
        add_values(cells, at(terms.index, i0 * case.keys + j0), case.keys, terms.values, m, n)
    if table[SCORES, GIVEN]:
        add_cells(cells, at(terms.scores, i0 * case.keys + j0), case.keys, m, n)
    return scalar(cells, 1.0)


@inner
def _prepare_keys(k, kr, j0, n, i0, terms, table, case, arena, room):
    """The tile's rotated keys, transposed; with growth they are scaled for the block of queries from i0 on."""
    d, source, row = case.width, kr, case.k_row
    if table[GROWTH, GIVEN] or table[REL_GAIN, GIVEN]:
        pairs = table[GROWTH, ROWS]
        source, row = at(arena, room.k_scaled), d
        origin = at(terms.growth_q, i0 * pairs)
        _grown(kr, case.k_row, at(terms.growth_k, j0 * pairs), origin, pairs, case.half, -1.0, source, n, d)
    transpose(source, row, at(arena, room.k_columns), TILE_KEYS, n, d)


@inner
def _bound(tile, key_norm, bias_tops, case, scale):
    """The factor of |q_i|, and the term, whose sum no score of the tile exceeds."""
    i0, m, j0, n = tile
    first = j0 - i0 + case.queries - 1
    top = -np.inf
    for chunk in range((first - (m - 1)) // CHUNK, (first + n - 1) // CHUNK + 1):
        top = max(top, np.float64(bias_tops[chunk]))
    return abs(np.float64(scale)) * np.float64(key_norm) * 1.001, top


@inner
def _negligible(norms, floors, m, slope, top, limit):
    """Whether slope |q_i| + top is below floor_i + limit for every row."""
    for i in range(m):
        if not slope * np.float64(get(norms, i)) + top < np.float64(get(floors, i)) + limit:
            return False
    return True


# ---------------------------------------------------------------------------------------------------------------------
# Forward


@inner
def _soften(tile, key_length, case, factor, bias, has_bias, cells, tops, sums, mixed):
    """Scores to exp(score - running maximum), hidden keys to 0; what was mixed so far is scaled to the new maximum."""
    i0, m, j0, n = tile
    width, lowest, factors = lanes(cells), splat(scalar(cells, -np.inf)), splat(factor)
    for i in range(m):
        row, offsets, best = at(cells, i * TILE_KEYS), at(bias, -i), lowest
        low, high = _visible(i0 + i, key_length, case)
        for j in range(0, n, width):
            x = load(row, j) * factors
            if has_bias:
                x = x + load_first(offsets, j, n - j)
            x = _hide(x, j, low - j0, min(high - j0, n), lowest, width)
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
def _clear(x, n):
    for j in range(0, n, lanes(x)):
        store_first(x, j, zeros(x), n - j)


@inner
def forward_block(q, qr, k, kr, v, out, lse, block, lengths, norms, key_norms, bias_tops, terms, table, case, scale, limit,
                  arena, room):  # fmt: skip
    """out and lse of one block of queries of one head. lengths: of its queries and keys. limit: log(tolerance / M)."""
    query_length, key_length = lengths
    i0 = block * TILE_QUERIES
    rows = min(TILE_QUERIES, case.queries - i0)
    m = max(np.int64(0), min(rows, query_length - i0))
    d, cells, mixed = case.width, at(arena, room.cells), at(arena, room.mixed)
    tops, sums = at(arena, room.stats), at(arena, room.stats + TILE_QUERIES)
    _clear(mixed, rows * d)
    _clear(sums, rows)
    for i in range(rows):
        put(tops, i, scalar(tops, -np.inf))
    low, high = np.int64(0), np.int64(0)
    if m > 0:
        low, high = _visible(i0, key_length, case)[0], _visible(i0 + m - 1, key_length, case)[1]
    number = (high + TILE_KEYS - 1) // TILE_KEYS
    while number * TILE_KEYS > low and number > 0:
        number -= 1
        j0 = number * TILE_KEYS
        tile = Tile(i0, m, j0, min(TILE_KEYS, high - j0))
        if case.skip:
            slope, top = _bound(tile, key_norms[number], bias_tops, case, scale)
            if _negligible(at(norms, i0), tops, m, slope, top, limit):
                continue
        k_tile = at(k, j0 * case.k_row)
        _prepare_keys(k_tile, at(kr, j0 * case.k_row), j0, tile.n, i0, terms, table, case, arena, room)
        q_tile, qr_tile = at(q, i0 * case.q_row), at(qr, i0 * case.q_row)
        factor = _make_scores(q_tile, qr_tile, k_tile, tile, terms, table, case, scale, arena, room)
        bias = at(terms.bias, j0 - i0 + case.queries - 1)
        _soften(tile, key_length, case, factor, bias, table[BIAS, GIVEN], cells, tops, sums, mixed)
        values = at(v, j0 * case.v_row)
        gemm(cells, TILE_KEYS, ONE, values, case.v_row, mixed, d, m, d, tile.n, FROM, mixed, d, mixed, NONE)
        if table[REL_VALUE, GIVEN]:
            first, reach = j0 - (i0 + case.keys - case.queries), table[REL_VALUE, ROWS] // 2
            relative_mix(
                cells, terms.rel_value, reach, d, first, mixed, d, m, tile.n, at(arena, room.band), at(arena, room.rows),
                False,
            )  # fmt: skip
    for i in range(rows):
        mass = np.float64(get(sums, i))
        put(lse, i0 + i, scalar(lse, np.float64(get(tops, i)) + math.log(mass) if mass > 0.0 else -np.inf))
        share = splat(scalar(out, 1.0 / mass if mass > 0.0 else 0.0))
        for c in range(0, d, lanes(out)):
            store_first(out, (i0 + i) * d + c, load_first(mixed, i * d + c, d - c) * share, d - c)


class Inputs(NamedTuple):
    """Arrays of a call: q and k before and after rotation, what bounds scores, and lengths (B, 2) of queries and keys."""

    q: np.ndarray
    qr: np.ndarray
    k: np.ndarray
    kr: np.ndarray
    v: np.ndarray
    scale: np.ndarray  # (H,)
    lengths: np.ndarray
    q_norms: np.ndarray  # (B H N,)
    key_norms: np.ndarray  # (B, Hk, tiles): the largest norm of each tile of keys
    bias_tops: np.ndarray  # (B or 1, H, chunks): the largest bias of CHUNK offsets


@part
def _head(x, case_batch, case_head, b, h):
    return at(pointer(x), b * case_batch + h * case_head)


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
            _head(x.q, case.q_batch, case.q_head, b, h), _head(x.qr, case.q_batch, case.q_head, b, h),
            _head(x.k, case.k_batch, case.k_head, b, kh), _head(x.kr, case.k_batch, case.k_head, b, kh),
            _head(x.v, case.v_batch, case.v_head, b, kh), at(pointer(out), rows * case.width), at(pointer(lse), rows),
            blocks - 1 - task // heads, (x.lengths[b, 0], x.lengths[b, 1]), at(pointer(x.q_norms), rows), x.key_norms[b, kh],
            x.bias_tops[b % x.bias_tops.shape[0], h], _terms(slots, table, b, h, case), table, case, x.scale[h],
            limit, arena, room,
        )  # fmt: skip
        task = claim(board)


@entry(label="attention")
def forward(crew, board, x, out, lse, slots, table, case, limit, arenas, room):
    """out (B, H, N, D) and lse (B, H, N)."""
    in_lanes(crew, _forward_lane, (pointer(board), x, out, lse, slots, table, case, limit, arenas, room))


# ---------------------------------------------------------------------------------------------------------------------
# Backward


class Gradients(NamedTuple):
    """What the backward pass fills: (B, H, ...) each, k and v (B, Hk, M, D); those of slots not wanted are any array.

    dq and dk are those of the content (after rotation), dq_rest and dk_rest of the terms without it.
    """

    dq: np.ndarray
    dq_rest: np.ndarray
    dk: np.ndarray
    dk_rest: np.ndarray
    dv: np.ndarray
    drel_gain: np.ndarray
    drel_key: np.ndarray
    drel_query: np.ndarray
    drel_value: np.ndarray
    dkey_bias: np.ndarray
    dgain: np.ndarray
    dbias: np.ndarray
    dvalues: np.ndarray
    dscores: np.ndarray
    dscale: np.ndarray


@inner
def _remake_weights(tile, key_length, case, factor, bias, has_bias, lse, cells):
    """Scores to P = exp(S - lse), hidden keys to 0."""
    i0, m, j0, n = tile
    width, lowest, factors = lanes(cells), splat(scalar(cells, -np.inf)), splat(factor)
    for i in range(m):
        row, offsets, shift = at(cells, i * TILE_KEYS), at(bias, -i), get(lse, i0 + i)
        low, high = _visible(i0 + i, key_length, case)
        shifts = splat(shift if shift > -np.inf else scalar(cells, 0.0))
        for j in range(0, n, width):
            x = load(row, j) * factors
            if has_bias:
                x = x + load_first(offsets, j, n - j)
            x = _hide(x, j, low - j0, min(high - j0, n), lowest, width)
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
        _prepare_keys(k, kr, j0, n, i0, terms, table, case, arena, room)
    factor = _make_scores(q_tile, qr_tile, k, tile, terms, table, case, scale, arena, room)
    _remake_weights(
        tile, key_length, case, factor, at(terms.bias, j0 - i0 + case.queries - 1), table[BIAS, GIVEN], lse, cells
    )
    gemm(
        do,
        d,
        ONE,
        at(arena, room.v_columns),
        TILE_KEYS,
        dcells,
        TILE_KEYS,
        m,
        n,
        d,
        OVERWRITE,
        dcells,
        NONE,
        dcells,
        NONE,
    )
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
        values_backward(dcells, at(terms.index, i0 * case.keys + j0), case.keys, at(arena, room.dvalues), m, n)
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
    _clear(mine, m * d)
    _clear(theirs, n * d)
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
    _grown(theirs, d, key_growth, growth, pairs, case.half, -1.0, theirs, n, d)
    _grown(mine, d, growth, growth, pairs, case.half, 1.0, mine, m, d)
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
def _flush(g, b, h, j0, n, table, case, arena, room):
    """Add the strip's own sums to the gradients of the head's slots."""
    head = b * case.heads + h
    d, offsets = case.width, case.queries + case.keys - 1
    if table[BIAS, WANTED]:
        _add_rows(at(pointer(g.dbias), head * offsets + j0), at(arena, room.dbias), case.queries - 1 + n)
    if table[GAIN, WANTED]:
        _add_rows(at(pointer(g.dgain), head * offsets + j0), at(arena, room.dgain), case.queries - 1 + n)
    if table[REL_GAIN, WANTED]:
        size = table[REL_GAIN, ROWS] * d
        _add_rows(at(pointer(g.drel_gain), head * size), at(arena, room.drel_gain), size)
    if table[REL_KEY, WANTED]:
        size = table[REL_KEY, ROWS] * d
        _add_rows(at(pointer(g.drel_key), head * size), at(arena, room.drel_key), size)
    if table[REL_QUERY, WANTED]:
        size = table[REL_QUERY, ROWS] * d
        _add_rows(at(pointer(g.drel_query), head * size), at(arena, room.drel_query), size)
    if table[REL_VALUE, WANTED]:
        size = table[REL_VALUE, ROWS] * d
        _add_rows(at(pointer(g.drel_value), head * size), at(arena, room.drel_value), size)
    if table[KEY_BIAS, WANTED]:
        _add_rows(at(pointer(g.dkey_bias), head * d), at(arena, room.dkey_bias), d)
    if table[VALUES, WANTED]:
        _add_rows(at(pointer(g.dvalues), head * table[VALUES, ROWS]), at(arena, room.dvalues), table[VALUES, ROWS])


@inner
def _strip(b, kh, number, x, dout, lse, deltas, g, slots, table, case, limit, turns, arena, room):
    """Gradients of one strip of keys and of all that meets it."""
    group, d = case.heads // case.key_heads, case.width
    j0 = number * TILE_KEYS
    n = min(TILE_KEYS, case.keys - j0)
    query_length, key_length = x.lengths[b, 0], x.lengths[b, 1]
    blocks = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES
    k = at(_head(x.k, case.k_batch, case.k_head, b, kh), j0 * case.k_row)
    kr = at(_head(x.kr, case.k_batch, case.k_head, b, kh), j0 * case.k_row)
    v = at(_head(x.v, case.v_batch, case.v_head, b, kh), j0 * case.v_row)
    _clear(at(arena, room.dk), 2 * TILE_KEYS * d)
    _clear(at(arena, room.dv), TILE_KEYS * d)
    transpose(v, case.v_row, at(arena, room.v_columns), TILE_KEYS, n, d)
    if not table[GROWTH, GIVEN]:
        _prepare_keys(k, kr, j0, n, NONE, _terms(slots, table, b, kh * group, case), table, case, arena, room)
    for h in range(kh * group, (kh + 1) * group):
        head = b * case.heads + h
        terms = _terms(slots, table, b, h, case)
        _clear(at(arena, room.dbias), room.size - room.dbias)
        for block in range(blocks):
            i0, place = block * TILE_QUERIES, head * blocks + block
            m = max(np.int64(0), min(TILE_QUERIES, min(case.queries, query_length) - i0))
            seen = False
            if m > 0:
                low, high = _visible(i0, key_length, case)[0], _visible(i0 + m - 1, key_length, case)[1]
                seen = low < j0 + n and high > j0
            tile = Tile(i0, m, j0, n)
            if seen and case.skip:
                norms = at(pointer(x.q_norms), head * case.queries + i0)
                slope, top = _bound(tile, x.key_norms[b, kh, number], x.bias_tops[b % x.bias_tops.shape[0], h], case,
                                    x.scale[h])  # fmt: skip
                floors = at(pointer(lse), head * case.queries + i0)
                seen = not _negligible(norms, floors, m, slope, top, limit)
            if not seen:
                wait_turn(turns, place, number)
                end_turn(turns, place)
                continue
            _tile_backward(
                _head(x.q, case.q_batch, case.q_head, b, h), _head(x.qr, case.q_batch, case.q_head, b, h), k, kr, v,
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
