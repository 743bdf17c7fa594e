"""Whole calls of attention: many heads, many lanes."""

import numpy as np

from fastpe.kernels.attention.backward import Turns, prepare_deltas, prepare_strip, strip_backward
from fastpe.kernels.attention.bf16_panels import pack_strip, strips_of_words, words_of_head
from fastpe.kernels.attention.contextual_positions import tallies_of
from fastpe.kernels.attention.forward import forward_rows
from fastpe.kernels.attention.inputs import (
    BIAS,
    COUNT,
    GAIN,
    GIVEN,
    MASK,
    NONE,
    ONE,
    ROWS,
    Guard,
    Head,
    HeadGradients,
    Sight,
    SlotGradients,
    gradient_of,
    place,
    terms_of,
)
from fastpe.kernels.attention.key_query_offsets import column_gradients, columns_of
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES, add_scaled, clear
from fastpe.kernels.attention.workspace import scratch_of
from fastpe.kernels.compile.decorators import entry, inlined, inner
from fastpe.kernels.products.bfloat16.isa import rounding
from fastpe.kernels.simd import at, part, plain, pointer, row, scalar
from fastpe.kernels.threads.task_counter import claim, claim_at_ends, end_turn, finish, wait_for, wait_turn
from fastpe.kernels.threads.team import in_lanes

_OF_A_CLAIM = 2**15  # multiplications that a claim is to bring


@inlined
def _own(array, memory, way):
    """The pointer to an array as products take it: rounding, with the lane's memory for it, unless `way` is None."""
    return rounding(pointer(array), memory, way)


@inner
def _sight(x, b, h, case):
    """What the queries of one head see."""
    by_sample, by_head = x.occupied.shape[:2]
    blocks = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES * case.strips
    own = (b % by_sample * by_head + h % by_head) * blocks
    spans = b % x.spans.shape[0] * case.queries * 2
    size = max(x.table[MASK, ROWS] * case.queries, case.keys)
    return Sight(
        x.starts[b], part(pointer(x.spans), spans, 2 * case.queries * case.spanned),
        part(pointer(x.mask), place(x.table, MASK, b, h), size * x.table[MASK, GIVEN]),
        part(pointer(x.occupied), own, blocks * x.table[MASK, GIVEN]),
    )  # fmt: skip


@inner
def head_of_call(x, b, h, dropout, words, case, memory, way):
    """What attention reads of one head."""
    kh = h // (case.heads // case.key_heads)
    q, k = b * case.q_batch + h * case.q_head, b * case.k_batch + kh * case.k_head
    guard = Guard(
        part(pointer(x.q_norms), (b * case.heads + h) * case.queries, case.queries), pointer(x.key_norms[b, kh]),
        pointer(x.bias_tails[b % x.bias_tails.shape[0], h]), x.limits[0], x.limits[1],
    )  # fmt: skip
    return Head(
        at(_own(x.q, memory, way), q), at(_own(x.qr, memory, way), q), at(_own(x.k, memory, way), k),
        at(_own(x.kr, memory, way), k), at(_own(x.v, memory, way), b * case.v_batch + kh * case.v_head),
        part(pointer(x.bias), place(x.table, BIAS, b, h), case.queries + case.keys - 1), pointer(x.table),
        x.scale[h], x.lengths[b, 0], x.lengths[b, 1], _sight(x, b, h, case), guard, dropout, b * case.heads + h,
        columns_of(x.columns, x.table, b, h, case), tallies_of(x.slots, pointer(x.scale), b, h, case),
        words_of_head(words, b, kh, memory, way, case),
    )  # fmt: skip


@inner
def _claim(board, lane, run, tasks):
    """The first of some tasks that are now the lane's, and the one after them. run: see `_run_of`."""
    if run == 0:
        task = claim(board)
        return task, task + 1
    first = run * claim_at_ends(board, lane, (tasks + run - 1) // run)
    return min(first, tasks), min(first + run, tasks)


@inner
def _run_of(blocks, packed, tasks, lanes, case):
    """How many tasks a lane claims at once where a head is one block, so that none is longer than another; else 0.

    A counter that another lane's core has just changed takes as long to come as a query needs for a dozen keys.
    """
    if blocks > 1 or packed > 0:
        return np.int64(0)
    many = _OF_A_CLAIM // max(case.queries * case.keys * (case.width + case.v_width), 1)
    return max(np.int64(1), min(many, (tasks + lanes - 1) // lanes))


@inner
def _forward_lane(lane, board, x, dropout, out, lse, case, room, arenas, way, words):
    """One task is one block of queries of one head, the longest rows first; before them, strips of words."""
    blocks = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES
    heads, packed = case.batch * case.heads, strips_of_words(words)
    memory = at(row(arenas, lane), room.size)
    arena = rounding(row(arenas, lane), memory, way)
    scratch = scratch_of(arena, room, at(arena, room.cells))
    tasks = packed + heads * blocks
    run = _run_of(blocks, packed, tasks, arenas.shape[0], case)
    task, after = _claim(board, lane, run, tasks)
    if words is not None:
        while task < packed:
            pack_strip(task, words, x, memory, way, case)
            finish(board)
            task, after = _claim(board, lane, run, tasks)
        wait_for(board, packed)
    while task < tasks:
        block, head = (task - packed) // heads, (task - packed) % heads
        b, h = head // case.heads, head % case.heads
        rows = (b * case.heads + h) * case.queries
        i0, terms = (blocks - 1 - block) * TILE_QUERIES, terms_of(x.slots, x.table, b, h, case)
        forward_rows(
            head_of_call(x, b, h, dropout, words, case, memory, way), terms, i0,
            part(_own(out, memory, way), rows * case.o_row, case.queries * case.o_row),
            part(_own(lse, memory, way), rows, case.queries), case, scratch,
        )  # fmt: skip
        task += 1
        if task == after:
            task, after = _claim(board, lane, run, tasks)


@entry(label="attention")
def forward(crew, board, x, dropout, out, lse, case, room, arenas):
    """out (B, H, N, D) and lse (B, H, N); x: `Inputs`."""
    in_lanes(crew, _forward_lane, (pointer(board), x, dropout, out, lse, case, room, arenas, None, None))


@entry(label="attention with bfloat16 products")
def rounded_forward(crew, board, way, words, x, dropout, out, lse, case, room, arenas):
    """As `forward`, of operands rounded to bfloat16; words: `Words`; arenas: `MEMORY` elements longer (see
    `products.bfloat16.product`)."""
    in_lanes(crew, _forward_lane, (pointer(board), x, dropout, out, lse, case, room, arenas, way, words))


@inner
def _add(target, source, n):
    add_scaled(target, scalar(source, 1.0), source, n)


@inner
def _flush(g, own, head, number, case):
    """Add the strip's own sums to the gradients of the head's slots."""
    whole = SlotGradients(pointer(g.slots), pointer(g.places), NONE, head)
    for slot in range(g.sum_places.shape[0]):
        size = g.sum_places[slot, COUNT]
        if size > 0:
            shift = number * TILE_KEYS if slot in (BIAS, GAIN) else NONE
            _add(
                at(gradient_of(whole, slot), shift),
                gradient_of(own.sums, slot),
                min(size, g.places[slot, COUNT] - shift),
            )


@inner
def _gradients(g, b, h, number, case, arena, room, memory, way):
    """Where gradients of one head go: sums over offsets, and of other slots, into the lane's own memory first."""
    d, dv, n, head, j0 = case.width, case.v_width, case.queries, b * case.heads + h, number * TILE_KEYS
    first, queries = head * n, head * n * d
    kh = h // (case.heads // case.key_heads)
    row, rows = (b * case.key_heads + kh) * case.keys + j0, min(TILE_KEYS, case.keys - j0)
    keys, met = row * d, rows * d
    return HeadGradients(
        part(_own(g.dout, memory, way), first * dv, n * dv), part(_own(g.lse, memory, way), first, n),
        part(_own(g.deltas, memory, way), first, n), part(_own(g.dq, memory, way), queries, n * d),
        part(_own(g.dq_rest, memory, way), queries, n * d), part(_own(g.dk, memory, way), keys, met),
        part(_own(g.dk_rest, memory, way), keys, met), part(_own(g.dv, memory, way), row * dv, rows * dv),
        SlotGradients(at(arena, room.sums), pointer(g.sum_places), NONE, NONE),
        SlotGradients(_own(g.slots, memory, way), pointer(g.places), NONE, head), NONE,
        part(_own(g.dscale, memory, None), head * case.strips + number, ONE),
        column_gradients(g.columns, head, j0, min(TILE_KEYS, case.keys - j0), case),
    )  # fmt: skip


@inner
def _strip(b, kh, number, x, dropout, g, turns, case, room, arena, memory, way):
    """Gradients of one strip of keys and of all that meets it."""
    group, heads = case.heads // case.key_heads, case.batch * case.heads
    blocks = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES
    scratch = scratch_of(arena, room, at(arena, room.cells))
    for h in range(kh * group, (kh + 1) * group):
        head = b * case.heads + h
        own, terms = head_of_call(x, b, h, dropout, None, case, memory, way), terms_of(x.slots, x.table, b, h, case)
        grads = _gradients(g, b, h, number, case, arena, room, memory, way)
        if h == kh * group:
            prepare_strip(own, terms, grads, number, case, scratch)
        clear(at(arena, plain(room.sums)), room.size - plain(room.sums))
        strip_backward(own, terms, grads, number, Turns(turns, head * blocks, number), case, scratch)
        spot = heads * blocks + head
        wait_turn(turns, spot, number)
        _flush(g, grads, head, number, case)
        end_turn(turns, spot)


@inner
def _subtract(deltas, dlse, block, case):
    """lse grows with a score by its weight: its gradient counts as that much less of dout . out."""
    i0 = block * TILE_QUERIES
    add_scaled(at(deltas, i0), scalar(deltas, -1.0), at(dlse, i0), min(TILE_QUERIES, case.queries - i0))


@inner
def _backward_lane(lane, board, x, dropout, g, turns, case, room, arenas, way):
    """Tasks of two phases: the deltas of a block of queries; a strip of keys."""
    blocks, heads = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES, case.batch * case.heads
    memory = at(row(arenas, lane), room.size)
    arena = rounding(row(arenas, lane), memory, way)
    prepared = heads * blocks
    tasks = prepared + case.batch * case.key_heads * case.strips
    task = claim(board)
    while task < tasks:
        if task < prepared:
            rows = task // blocks * case.queries
            prepare_deltas(
                at(pointer(g.dout), rows * case.v_width), at(pointer(g.out), rows * case.v_width),
                at(pointer(g.deltas), rows), task % blocks, case.queries, case,
            )  # fmt: skip
            _subtract(at(pointer(g.deltas), rows), at(pointer(g.dlse), rows), task % blocks, case)
        else:
            wait_for(board, prepared)
            strip = task - prepared
            b, kh = strip // case.strips // case.key_heads, strip // case.strips % case.key_heads
            _strip(b, kh, strip % case.strips, x, dropout, g, pointer(turns), case, room, arena, memory, way)
        finish(board)
        task = claim(board)
    wait_for(board, tasks)


@entry(label="the gradients of attention")
def backward(crew, board, x, dropout, g, turns, case, room, arenas):
    """Fills the gradients of rows in g, and adds to those of slots, which hold zeros."""
    in_lanes(crew, _backward_lane, (pointer(board), x, dropout, g, turns, case, room, arenas, None))


@entry(label="the gradients of attention with bfloat16 products")
def rounded_backward(crew, board, way, x, dropout, g, turns, case, room, arenas):
    """As `backward`, of operands rounded to bfloat16; arenas as for `rounded_forward`."""
    in_lanes(crew, _backward_lane, (pointer(board), x, dropout, g, turns, case, room, arenas, way))
