"""Whole calls of attention: many heads, many lanes."""

from fastpe.kernels._jit import entry, inner
from fastpe.kernels.attention.backward import prepare_deltas, prepare_strip, strip_backward
from fastpe.kernels.attention.cells import TILE_KEYS, TILE_QUERIES, add_scaled, clear
from fastpe.kernels.attention.forward import forward_block
from fastpe.kernels.attention.layout import (
    BIAS,
    GAIN,
    KEY_BIAS,
    ONE,
    REL_GAIN,
    REL_KEY,
    REL_QUERY,
    REL_VALUE,
    ROWS,
    VALUES,
    WANTED,
    Guard,
    Head,
    Rows,
    Sums,
    head_of,
    place,
    terms_of,
)
from fastpe.kernels.simd import at, pointer, scalar
from fastpe.kernels.threads import claim, end_turn, finish, in_lanes, wait_for, wait_turn


@inner
def _forward_lane(lane, board, x, out, lse, slots, table, case, limits, arenas, room):
    """One task is one block of queries of one head, the longest rows first."""
    blocks = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES
    heads = case.batch * case.heads
    arena = at(pointer(arenas), lane * arenas.shape[1])
    task = claim(board)
    while task < heads * blocks:
        b, h = task % heads // case.heads, task % heads % case.heads
        kh = h // (case.heads // case.key_heads)
        rows = (b * case.heads + h) * case.queries
        head = Head(
            head_of(x.q, case.q_batch, case.q_head, b, h), head_of(x.qr, case.q_batch, case.q_head, b, h),
            head_of(x.k, case.k_batch, case.k_head, b, kh), head_of(x.kr, case.k_batch, case.k_head, b, kh),
            head_of(x.v, case.v_batch, case.v_head, b, kh), at(pointer(x.bias), place(table, BIAS, b, h)), x.scale[h],
        )  # fmt: skip
        guard = Guard(
            at(pointer(x.q_norms), rows), x.key_norms[b, kh], x.bias_tails[b % x.bias_tails.shape[0], h], *limits
        )
        forward_block(
            head, terms_of(slots, table, b, h, case), at(pointer(out), rows * case.o_row), at(pointer(lse), rows),
            at(arena, room.cells), blocks - 1 - task // heads, (x.lengths[b, 0], x.lengths[b, 1]), guard, table, case,
            arena, room,
        )  # fmt: skip
        task = claim(board)


@entry(label="attention")
def forward(crew, board, x, out, lse, slots, table, case, limits, arenas, room):
    """out (B, H, N, D) and lse (B, H, N). slots: the terms but `bias`, or None of none."""
    in_lanes(crew, _forward_lane, (pointer(board), x, out, lse, slots, table, case, limits, arenas, room))


@inner
def _add(target, source, n):
    add_scaled(target, scalar(source, 1.0), source, n)


@inner
def _flush_slot(table, slot, gradient, head, own, width):
    """Add the strip's own sums for a slot with rows of `width` elements, where its gradient is wanted."""
    if table[slot, WANTED]:
        size = table[slot, ROWS] * width
        _add(at(pointer(gradient), head * size), own, size)


@inner
def _flush(g, terms, sums, head, j0, n, table, case):
    """Add the strip's own sums to the gradients of the head's slots."""
    d, offsets = case.width, case.queries + case.keys - 1
    if table[BIAS, WANTED]:
        _add(at(pointer(g.dbias), head * offsets + j0), sums.bias, case.queries - 1 + n)
    if terms is not None:
        if table[GAIN, WANTED]:
            _add(at(pointer(g.dgain), head * offsets + j0), sums.gain, case.queries - 1 + n)
        _flush_slot(table, REL_GAIN, g.drel_gain, head, sums.rel_gain, d)
        _flush_slot(table, REL_KEY, g.drel_key, head, sums.rel_key, d)
        _flush_slot(table, REL_QUERY, g.drel_query, head, sums.rel_query, d)
        _flush_slot(table, REL_VALUE, g.drel_value, head, sums.rel_value, d)
        _flush_slot(table, VALUES, g.dvalues, head, sums.values, ONE)
        if table[KEY_BIAS, WANTED]:
            _add(at(pointer(g.dkey_bias), head * d), sums.key_bias, d)


@inner
def _strip(b, kh, number, x, dout, lse, deltas, g, slots, table, case, limits, turns, arena, room):
    """Gradients of one strip of keys and of all that meets it."""
    group, d = case.heads // case.key_heads, case.width
    blocks = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES
    j0 = number * TILE_KEYS
    keys = ((b * case.key_heads + kh) * case.keys + j0) * d
    for h in range(kh * group, (kh + 1) * group):
        head = b * case.heads + h
        queries = head * case.queries
        terms = terms_of(slots, table, b, h, case)
        own = Head(
            head_of(x.q, case.q_batch, case.q_head, b, h), head_of(x.qr, case.q_batch, case.q_head, b, h),
            head_of(x.k, case.k_batch, case.k_head, b, kh), head_of(x.kr, case.k_batch, case.k_head, b, kh),
            head_of(x.v, case.v_batch, case.v_head, b, kh), at(pointer(x.bias), place(table, BIAS, b, h)), x.scale[h],
        )  # fmt: skip
        rows = Rows(
            at(pointer(g.dq), queries * d), at(pointer(g.dq_rest), queries * d), at(pointer(g.dk), keys),
            at(pointer(g.dk_rest), keys), at(pointer(g.dv), keys),
        )  # fmt: skip
        if h == kh * group:
            prepare_strip(own, terms, number, rows, table, case, arena, room)
        clear(at(arena, room.dbias), room.size - room.dbias)
        sums = Sums(
            at(arena, room.dbias), at(arena, room.dgain), at(arena, room.drel_gain), at(arena, room.drel_key),
            at(arena, room.drel_query), at(arena, room.drel_value), at(arena, room.dkey_bias), at(arena, room.dvalues),
            at(pointer(g.dscores), queries * case.keys), at(pointer(g.dscale), head * case.strips + number),
        )  # fmt: skip
        guard = Guard(
            at(pointer(x.q_norms), queries), x.key_norms[b, kh], x.bias_tails[b % x.bias_tails.shape[0], h], *limits
        )
        strip_backward(
            own, terms, at(pointer(dout), queries * d), at(pointer(lse), queries), at(pointer(deltas), queries),
            at(arena, room.cells), sums, rows, number, (x.lengths[b, 0], x.lengths[b, 1]), guard, turns, head * blocks,
            table, case, arena, room,
        )  # fmt: skip
        spot = case.batch * case.heads * blocks + head
        wait_turn(turns, spot, number)
        _flush(g, terms, sums, head, j0, min(TILE_KEYS, case.keys - j0), table, case)
        end_turn(turns, spot)


@inner
def _backward_lane(lane, board, x, out, dout, lse, deltas, g, slots, table, case, limits, turns, arenas, room):
    """Tasks of two phases: the deltas of a block of queries; a strip of keys."""
    blocks, heads = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES, case.batch * case.heads
    arena = at(pointer(arenas), lane * arenas.shape[1])
    prepared = heads * blocks
    tasks = prepared + case.batch * case.key_heads * case.strips
    task = claim(board)
    while task < tasks:
        if task < prepared:
            rows = task // blocks * case.queries
            prepare_deltas(
                at(pointer(dout), rows * case.width), at(pointer(out), rows * case.width), at(pointer(deltas), rows),
                task % blocks, case,
            )  # fmt: skip
        else:
            wait_for(board, prepared)
            strip = task - prepared
            b, kh = strip // case.strips // case.key_heads, strip // case.strips % case.key_heads
            _strip(b, kh, strip % case.strips, x, dout, lse, deltas, g, slots, table, case, limits, pointer(turns),
                   arena, room)  # fmt: skip
        finish(board)
        task = claim(board)
    wait_for(board, tasks)


@entry(label="the gradients of attention")
def backward(crew, board, x, out, dout, lse, deltas, g, slots, table, case, limits, turns, arenas, room):
    """Fills the gradients of rows in g, and adds to those of slots, which hold zeros."""
    in_lanes(
        crew, _backward_lane,
        (pointer(board), x, out, dout, lse, deltas, g, slots, table, case, limits, turns, arenas, room),
    )  # fmt: skip
