"""Gradients of attention whose scores go through a small network: see `mlp`."""

from typing import Any, NamedTuple

from fastpe.kernels._jit import inner
from fastpe.kernels.attention.cells import clear, dot, scale_row
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
from fastpe.kernels.attention.mlp_forward import make_scores, turn_queries
from fastpe.kernels.gemm import FROM, OVERWRITE, float_gemm, transpose
from fastpe.kernels.simd import (
    at,
    backwards,
    exp,
    get,
    lanes,
    load,
    minus,
    put,
    scalar,
    splat,
    store,
    total,
    where_negative,
    zeros,
)


class MlpGradients(NamedTuple):
    """Pointers to where gradients go, and strides; those of keys, values, biases and the network are added to."""

    dout: Any
    out: Any
    out_head: int
    out_row: int
    lse: Any
    dlse: Any
    lse_head: int
    dq: Any
    dq_head: int
    dq_row: int
    dk: Any
    dk_head: int
    dk_row: int
    dv: Any
    dv_head: int
    dv_row: int
    dscale: Any  # of each head
    dbias: Any  # laid out as the bias
    dcells: Any  # as `Side.cells`
    dinto: Any  # (T, W, 2 H): other than the network itself
    dhidden: Any  # (W,)
    dreadout: Any  # (T, W, H)
    has_dlse: int
    wants_bias: int
    wants_cells: int
    wants_net: int


@inner
def _prepare(side, g, block, arena, room):
    """Of the block's queries: columns of the gradients of outputs, rows times the scale, lse, and what is taken from
    the gradients of weights."""
    clear(at(arena, room.dturned), side.heads * side.v_width * ROWS)
    clear(at(arena, room.scaled), side.heads * ROWS * side.width)
    clear(at(arena, room.dq), side.heads * ROWS * side.width)
    for h in range(side.heads):
        turned, factor = at(arena, room.dturned + h * side.v_width * ROWS), get(side.scale, h)
        for i in range(ROWS):
            spot, query = h * ROWS + i, block.query + i
            put(at(arena, room.top), spot, scalar(arena, -HIDDEN))
            put(at(arena, room.sum), spot, scalar(arena, 0.0))
            if i < block.rows:
                place = h * g.out_head + query * g.out_row
                dout, lse = at(g.dout, place), get(g.lse, h * g.lse_head + query)
                for c in range(side.v_width):
                    put(turned, c * ROWS + i, get(dout, c))
                q, scaled = at(side.q, h * side.q_head + query * side.q_row), at(arena, room.scaled + spot * side.width)
                for c in range(side.width):
                    put(scaled, c, factor * get(q, c))
                taken = dot(dout, at(g.out, place), side.v_width)
                if g.has_dlse:
                    taken -= get(g.dlse, h * g.lse_head + query)
                put(at(arena, room.sum), spot, taken)
                if lse > HIDDEN:
                    put(at(arena, room.top), spot, lse)


@inner
def _weights_back(side, g, block, chunk, h, arena, room):
    """Weights in the place of a head's scores, with the gradients of values; then the gradients of the scores."""
    s, place, n = at(arena, room.s + h * room.grid), cell_of(chunk.start, chunk, room), chunk.end - chunk.start
    own, dp = at(s, place), at(arena, room.dp)
    lse, taken = at(arena, room.top + h * ROWS), at(arena, room.sum + h * ROWS)
    for lane in range(0, ROWS, lanes(s)):
        for key in range(chunk.start, chunk.end):
            cell = (key - chunk.start) * ROWS + lane
            weight = exp(load(own, cell) - load(lse, lane))
            store(own, cell, seen(key, lane, weight, zeros(s), arena, room))
    of_keys = h // side.group
    dv, v = (
        at(g.dv, of_keys * g.dv_head + chunk.start * g.dv_row),
        at(side.v, of_keys * side.v_head + chunk.start * side.v_row),
    )
    dout = at(g.dout, h * g.out_head + block.query * g.out_row)
    float_gemm(own, ROWS, ONE, dout, g.out_row, dv, g.dv_row, n, side.v_width, block.rows, FROM, dv, g.dv_row, dv, NONE)
    turned = at(arena, room.dturned + h * side.v_width * ROWS)
    float_gemm(v, side.v_row, ONE, turned, ROWS, dp, ROWS, n, ROWS, side.v_width, OVERWRITE, dp, NONE, dp, NONE)
    for lane in range(0, ROWS, lanes(s)):
        less = load(taken, lane)
        for j in range(n):
            cell = j * ROWS + lane
            store(own, cell, load(own, cell) * (load(dp, cell) - less))


@inner
def _u_back(side, net, g, chunk, arena, room):
    """The gradients of what lrelu takes, in `du`, and those of W2 and b1."""
    u, s, du, turned = at(arena, room.u), at(arena, room.s), at(arena, room.du), at(arena, room.s_turned)
    place, first, reach = cell_of(chunk.u_start, chunk, room), cell_of(chunk.start, chunk, room), net.taps // 2
    n, cells, w, heads = (chunk.u_end - chunk.u_start) * ROWS, (chunk.end - chunk.start) * ROWS, net.hidden, side.heads
    clear_outside(du, w, chunk.u_start, chunk.u_end, chunk, room)
    transpose(at(s, first), room.grid, turned, heads, heads, cells)
    for tap in range(net.taps):
        made, shift = at(du, place), (reach - tap) * ROWS
        float_gemm(
            at(net.out, tap), net.taps, w * net.taps, at(s, place + shift), room.grid, made, room.grid, w, n, heads,
            FROM if tap else OVERWRITE, made, room.grid, made, NONE,
        )  # fmt: skip
        if g.wants_net:
            dreadout = at(g.dreadout, tap * w * heads)
            float_gemm(
                at(u, first - shift), room.grid, ONE, turned, heads, dreadout, heads, w, heads, cells, FROM, dreadout,
                heads, dreadout, NONE,
            )  # fmt: skip
    leak = splat(scalar(u, LEAK))
    for unit in range(w):
        own, units, sums = at(du, unit * room.grid + place), at(u, unit * room.grid + place), zeros(u)
        for cell in range(0, n, lanes(u)):
            d = load(own, cell)
            d = where_negative(minus(load(units, cell)), d, leak * d)
            store(own, cell, d)
            sums = sums + d
        if g.wants_net:
            put(g.dhidden, unit, get(g.dhidden, unit) + total(sums))


@inner
def _x_back(side, net, g, block, chunk, arena, room):
    """The gradients of products and biases, in `dx`, and those of W1."""
    x, dx, du, turned = at(arena, room.x), at(arena, room.dx), at(arena, room.du), at(arena, room.x_turned)
    place, of_u, reach = cell_of(chunk.x_start, chunk, room), cell_of(chunk.u_start, chunk, room), net.taps // 2
    n, inputs, w = (chunk.x_end - chunk.x_start) * ROWS, 2 * side.heads, net.hidden
    units = (chunk.u_end - chunk.u_start) * ROWS
    transpose(x, room.grid, turned, inputs, inputs, room.grid)
    for tap in range(net.taps):
        made, shift = at(dx, place), (reach - tap) * ROWS
        float_gemm(
            at(net.into, tap), net.taps, inputs * net.taps, at(du, place + shift), room.grid, made, room.grid, inputs,
            n, w, FROM if tap else OVERWRITE, made, room.grid, made, NONE,
        )  # fmt: skip
        if g.wants_net:
            dinto = at(g.dinto, tap * w * inputs)
            float_gemm(
                at(du, of_u), room.grid, ONE, at(turned, (of_u - shift) * inputs), inputs, dinto, inputs, w, inputs,
                units, FROM, dinto, inputs, dinto, NONE,
            )  # fmt: skip
    hide(dx, inputs, block, chunk, arena, room)
    first, cells = cell_of(chunk.start, chunk, room), (chunk.end - chunk.start) * ROWS
    for number in range(inputs):
        own, e = at(dx, number * room.grid + first), at(arena, room.s + number % side.heads * room.grid + first)
        for cell in range(0, cells, lanes(x)):
            store(own, cell, load(own, cell) + load(e, cell))


@inner
def _biases_back(side, g, block, chunk, h, arena, room):
    """Adds up the gradients of a head's biases: cells of a key lie one offset below each other."""
    own = at(arena, room.dx + (side.heads + h) * room.grid)
    if g.wants_cells:
        for key in range(chunk.x_start, chunk.x_end):
            for i in range(block.rows):
                place = h * side.cells_head + (block.query + i) * side.cells_row + key
                put(g.dcells, place, get(g.dcells, place) + get(own, cell_of(key, chunk, room) + i))
    if g.wants_bias:
        sums, n, width = at(arena, room.dbias), chunk.x_end - chunk.x_start, lanes(own)
        clear(sums, n + ROWS)
        for key in range(chunk.x_start, chunk.x_end):
            for lane in range(0, ROWS, width):
                place = key - chunk.x_start + ROWS - width - lane
                cells = backwards(load(own, cell_of(key, chunk, room) + lane))
                store(sums, place, load(sums, place) + cells)
        # sums[p] is that of keys less queries, x_start - query + p + 1 - ROWS; queries past the last one have none
        nearest = ROWS - block.rows
        for place in range(nearest, n + ROWS - 1):
            offset = chunk.x_start - block.query + place + 1 - ROWS
            target = h * side.bias_head + offset + side.zero
            put(g.dbias, target, get(g.dbias, target) + get(sums, place))


@inner
def _rows_back(side, g, block, chunk, h, arena, room):
    """Adds to the gradients of a head's queries, before the scale, and of keys."""
    n, d, of_keys = chunk.x_end - chunk.x_start, side.width, h // side.group
    dx = at(arena, room.dx + h * room.grid + cell_of(chunk.x_start, chunk, room))
    dq, scaled = at(arena, room.dq + h * ROWS * d), at(arena, room.scaled + h * ROWS * d)
    k = at(side.k, of_keys * side.k_head + chunk.x_start * side.k_row)
    dk = at(g.dk, of_keys * g.dk_head + chunk.x_start * g.dk_row)
    float_gemm(dx, ONE, ROWS, k, side.k_row, dq, d, block.rows, d, n, FROM, dq, d, dq, NONE)
    float_gemm(dx, ROWS, ONE, scaled, d, dk, g.dk_row, n, d, block.rows, FROM, dk, g.dk_row, dk, NONE)


@inner
def mlp_backward(side, net, g, query, rows, arena, room):
    """Gradients of a block of queries: those of q and of the scale as they are, all others added to."""
    block = block_of(side, query, rows, arena, room)
    turn_queries(side, block, arena, room)
    _prepare(side, g, block, arena, room)
    for start in range(block.start, block.end, KEYS):
        chunk = chunk_of(side, net, block, start)
        make_scores(side, net, block, chunk, arena, room)
        clear_outside(at(arena, room.s), side.heads, chunk.start, chunk.end, chunk, room)
        for h in range(side.heads):
            _weights_back(side, g, block, chunk, h, arena, room)
        _u_back(side, net, g, chunk, arena, room)
        _x_back(side, net, g, block, chunk, arena, room)
        for h in range(side.heads):
            _biases_back(side, g, block, chunk, h, arena, room)
            _rows_back(side, g, block, chunk, h, arena, room)
    for h in range(side.heads):
        summed = get(g.dscale, h)
        for i in range(rows):
            dq, own = at(g.dq, h * g.dq_head + (query + i) * g.dq_row), at(arena, room.dq + (h * ROWS + i) * side.width)
            summed += dot(at(side.q, h * side.q_head + (query + i) * side.q_row), own, side.width)
            scale_row(own, side.width, get(side.scale, h))
            for c in range(side.width):
                put(dq, c, get(own, c))
        put(g.dscale, h, summed)
