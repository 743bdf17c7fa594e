"""Attention whose scores go through a small network, forward: see `mlp`."""

import numpy as np

from fastpe.kernels._jit import inner
from fastpe.kernels.attention.cells import clear, scale_row
from fastpe.kernels.attention.mlp import (
    HIDDEN,
    KEYS,
    LEAK,
    NONE,
    ONE,
    ROWS,
    block_of,
    cell_of,
    chunk_of,
    clear_outside,
    hide,
    seen,
)
from fastpe.kernels.gemm import FROM, OVERWRITE, float_gemm
from fastpe.kernels.simd import at, exp, get, lanes, load, maximum, put, scalar, splat, store, zeros


@inner
def turn_queries(side, block, arena, room):
    """The block's queries, times the scale, in columns."""
    for h in range(side.heads):
        turned, factor = at(arena, room.turned + h * side.width * ROWS), get(side.scale, h)
        clear(turned, side.width * ROWS)
        for i in range(block.rows):
            q = at(side.q, h * side.q_head + (block.query + i) * side.q_row)
            for c in range(side.width):
                put(turned, c * ROWS + i, factor * get(q, c))


@inner
def _make_x(side, block, chunk, arena, room):
    x, n = at(arena, room.x), chunk.x_end - chunk.x_start
    clear_outside(x, 2 * side.heads, chunk.x_start, chunk.x_end, chunk, room)
    place = cell_of(chunk.x_start, chunk, room)
    for h in range(side.heads):
        k = at(side.k, h // side.group * side.k_head + chunk.x_start * side.k_row)
        content, turned = at(x, h * room.grid + place), at(arena, room.turned + h * side.width * ROWS)
        float_gemm(
            k, side.k_row, ONE, turned, ROWS, content, ROWS, n, ROWS, side.width, OVERWRITE, turned, NONE, turned, NONE
        )
        _make_biases(side, block, chunk, h, at(x, (side.heads + h) * room.grid + place), n)
    hide(x, 2 * side.heads, block, chunk, arena, room)


@inner
def _make_biases(side, block, chunk, h, biases, n):
    clear(biases, n * ROWS)
    for j in range(n):
        key = chunk.x_start + j
        for i in range(block.rows):
            query, b = block.query + i, scalar(biases, 0.0)
            if side.biased:
                b += get(side.bias, h * side.bias_head + key - query + side.zero)
            if side.has_cells:
                b += get(side.cells, h * side.cells_head + query * side.cells_row + key)
            put(biases, j * ROWS + i, b)


@inner
def _make_u(side, net, chunk, arena, room):
    x, u, place = at(arena, room.x), at(arena, room.u), cell_of(chunk.u_start, chunk, room)
    reach, n, inputs = net.taps // 2, (chunk.u_end - chunk.u_start) * ROWS, 2 * side.heads
    clear_outside(u, net.hidden, chunk.u_start, chunk.u_end, chunk, room)
    for tap in range(net.taps):
        taken, made = at(x, place + (tap - reach) * ROWS), at(u, place)
        float_gemm(
            at(net.into, tap), inputs * net.taps, net.taps, taken, room.grid, made, room.grid, net.hidden, n, inputs,
            FROM if tap else OVERWRITE, made, room.grid, made, NONE,
        )  # fmt: skip
    leak = splat(scalar(u, LEAK))
    for unit in range(net.hidden):
        own, off = at(u, unit * room.grid + place), splat(get(net.bias, unit))
        for cell in range(0, n, lanes(u)):
            z = load(own, cell) + off
            store(own, cell, maximum(z, leak * z))


@inner
def make_scores(side, net, block, chunk, arena, room):
    """x, u and the scores of a chunk, hidden ones among them."""
    _make_x(side, block, chunk, arena, room)
    _make_u(side, net, chunk, arena, room)
    x, u, s, place = at(arena, room.x), at(arena, room.u), at(arena, room.s), cell_of(chunk.start, chunk, room)
    n, reach = (chunk.end - chunk.start) * ROWS, net.taps // 2
    for tap in range(net.taps):
        made, taken = at(s, place), at(u, place + (tap - reach) * ROWS)
        before = made if tap else at(x, place)
        float_gemm(
            at(net.out, tap), net.hidden * net.taps, net.taps, taken, room.grid, made, room.grid, side.heads, n,
            net.hidden, FROM, before, room.grid, made, NONE,
        )  # fmt: skip
    for h in range(side.heads):
        own, biases = at(s, h * room.grid + place), at(x, (side.heads + h) * room.grid + place)
        for cell in range(0, n, lanes(s)):
            store(own, cell, load(own, cell) + load(biases, cell))


@inner
def _weigh(chunk, h, arena, room):
    """Weights of a head in the place of scores, by the largest score so far, and their sums; `factors` shrink what was
    summed up before."""
    top, sums = at(arena, room.top + h * ROWS), at(arena, room.sum + h * ROWS)
    factors, s = at(arena, room.factors), at(arena, room.s + h * room.grid + cell_of(chunk.start, chunk, room))
    for lane in range(0, ROWS, lanes(s)):
        before, hidden = load(top, lane), splat(scalar(s, HIDDEN))
        largest = before
        for key in range(chunk.start, chunk.end):
            place = (key - chunk.start) * ROWS + lane
            score = seen(key, lane, load(s, place), hidden, arena, room)
            store(s, place, score)
            largest = maximum(largest, score)
        factor = exp(before - largest)
        total = load(sums, lane) * factor
        for key in range(chunk.start, chunk.end):
            place = (key - chunk.start) * ROWS + lane
            weight = seen(key, lane, exp(load(s, place) - largest), zeros(s), arena, room)
            store(s, place, weight)
            total = total + weight
        store(top, lane, largest)
        store(sums, lane, total)
        store(factors, lane, factor)


@inner
def _sum_values(side, block, chunk, h, arena, room):
    out, p = at(arena, room.out + h * ROWS * side.v_width), at(arena, room.s + h * room.grid)
    for i in range(block.rows):
        scale_row(at(out, i * side.v_width), side.v_width, get(at(arena, room.factors), i))
    v = at(side.v, h // side.group * side.v_head + chunk.start * side.v_row)
    float_gemm(
        at(p, cell_of(chunk.start, chunk, room)), ONE, ROWS, v, side.v_row, out, side.v_width, block.rows, side.v_width,
        chunk.end - chunk.start, FROM, out, side.v_width, out, NONE,
    )  # fmt: skip


@inner
def mlp_forward(side, net, query, rows, out, out_head, out_row, lse, lse_head, arena, room):
    """Outputs and lse of a block of queries."""
    block, h_rows = block_of(side, query, rows, arena, room), side.heads * ROWS
    turn_queries(side, block, arena, room)
    clear(at(arena, room.out), h_rows * side.v_width)
    clear(at(arena, room.sum), h_rows)
    for place in range(h_rows):
        put(at(arena, room.top), place, scalar(arena, HIDDEN))
    for start in range(block.start, block.end, KEYS):
        chunk = chunk_of(side, net, block, start)
        make_scores(side, net, block, chunk, arena, room)
        for h in range(side.heads):
            _weigh(chunk, h, arena, room)
            _sum_values(side, block, chunk, h, arena, room)
    for h in range(side.heads):
        for i in range(rows):
            own, target = (
                at(arena, room.out + (h * ROWS + i) * side.v_width),
                at(out, h * out_head + (query + i) * out_row),
            )
            total = get(at(arena, room.sum), h * ROWS + i)
            share = scalar(arena, 0.0) if total == 0 else scalar(arena, 1.0) / total
            for c in range(side.v_width):
                put(target, c, get(own, c) * share)
            whole = get(at(arena, room.top), h * ROWS + i) + np.log(total) if total > 0 else -np.inf
            put(lse, h * lse_head + query + i, scalar(arena, whole))
