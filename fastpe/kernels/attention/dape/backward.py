"""Gradients of attention whose scores go through a small network: see `attention.dape`."""

from typing import Any, NamedTuple

from fastpe.kernels.attention.dape.dropout import drop_again, mixed_weights
from fastpe.kernels.attention.dape.forward import in_columns, make_scores, transpose_queries, value_of
from fastpe.kernels.attention.dape.layout import (
    HIDDEN,
    KEYS,
    NONE,
    ONE,
    ROWS,
    block_of,
    cell_of,
    chunk_of,
    clear_outside,
    hide,
    hide_units,
    seen,
    sees_all,
)
from fastpe.kernels.attention.dape.maps import PLAIN, SLOPED, add_products, map_cells
from fastpe.kernels.attention.dape.masks import begin_where_shown, hide_masked, hide_masked_units, masks_of
from fastpe.kernels.attention.dape.terms import (
    add_offsets_to,
    choose_bases,
    factor_of,
    finish_scores,
    of_offsets,
    products_back,
    scores_back,
)
from fastpe.kernels.attention.tile import clear, dot
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.products.gemm import ONTO, OVERWRITE, float_gemm
from fastpe.kernels.simd import (
    at,
    backwards,
    exp,
    fma,
    get,
    lanes,
    load,
    load_first,
    put,
    scalar,
    splat,
    store,
    store_first,
    total,
    zeros,
)


class MlpGradients(NamedTuple):
    """Pointers to where gradients go, and strides; all are added to."""

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
    dvalues: Any  # as `Side.values`
    dinto: Any  # (T, W, 2 H): other than the network itself
    dhidden: Any  # (W,)
    dreadout: Any  # (T, W, H)
    has_dlse: int
    wants_bias: int
    wants_cells: int
    wants_values: int
    wants_net: int


@inner
def _prepare(side, terms, g, block, workspace, layout):
    """Of the block's queries: columns of the gradients of outputs, rows times the scale, lse, and what is taken from
    the gradients of weights."""
    clear(at(workspace, layout.dq), side.heads * ROWS * side.width)
    for h in range(side.heads):
        turned, factor = at(workspace, layout.dturned + h * side.v_width * ROWS), splat(factor_of(terms, side, h))
        in_columns(at(g.dout, h * g.out_head + block.query * g.out_row), g.out_row, turned, block.rows, side.v_width)
        for i in range(ROWS):
            spot, query = h * ROWS + i, block.query + i
            put(at(workspace, layout.top), spot, scalar(workspace, -HIDDEN))
            put(at(workspace, layout.sum), spot, scalar(workspace, 0.0))
            if i < block.rows:
                place = h * g.out_head + query * g.out_row
                dout, lse = at(g.dout, place), get(g.lse, h * g.lse_head + query)
                q, scaled = (
                    at(side.q, h * side.q_head + query * side.q_row),
                    at(workspace, layout.scaled + spot * side.width),
                )
                for c in range(0, side.width, lanes(q)):
                    store_first(scaled, c, factor * load_first(q, c, side.width - c), side.width - c)
                taken = dot(dout, at(g.out, place), side.v_width)
                if g.has_dlse:
                    taken -= get(g.dlse, h * g.lse_head + query)
                put(at(workspace, layout.sum), spot, taken)
                if lse > HIDDEN:
                    put(at(workspace, layout.top), spot, lse)


@inner
def _weights_back(side, terms, drops, g, block, chunk, h, workspace, layout):
    """Weights in the place of a head's scores, with the gradients of values; then the gradients of the scores."""
    s, place, n = (
        at(workspace, layout.s + h * layout.grid),
        cell_of(chunk.start, chunk, layout),
        chunk.end - chunk.start,
    )
    own, dp = at(s, place), at(workspace, layout.dp)
    lse, taken = at(workspace, layout.top + h * ROWS), at(workspace, layout.sum + h * ROWS)
    whole = sees_all(block, chunk.start, chunk.end)
    finish_scores(terms, h, block, chunk, workspace, layout)
    for lane in range(0, ROWS, lanes(s)):
        less = load(lse, lane)
        for key in range(chunk.start, chunk.end):
            cell = (key - chunk.start) * ROWS + lane
            weight = exp(load(own, cell) - less)
            store(own, cell, weight if whole else seen(key, lane, weight, zeros(s), workspace, layout))
    of_keys = h // side.group
    dv, v = (
        at(g.dv, of_keys * g.dv_head + chunk.start * g.dv_row),
        at(side.v, of_keys * side.v_head + chunk.start * side.v_row),
    )
    dout = at(g.dout, h * g.out_head + block.query * g.out_row)
    mixed = mixed_weights(drops, own, dp, h, block, chunk, workspace, layout)
    float_gemm(
        mixed, ROWS, ONE, dout, g.out_row, dv, g.dv_row, n, side.v_width, block.rows, ONTO, dv, g.dv_row, dv, NONE
    )
    turned = at(workspace, layout.dturned + h * side.v_width * ROWS)
    of_offsets(terms, h, block, chunk, dout, g.out_row, mixed)
    float_gemm(v, side.v_row, ONE, turned, ROWS, dp, ROWS, n, ROWS, side.v_width, OVERWRITE, dp, NONE, dp, NONE)
    add_offsets_to(terms, h, block, chunk, dout, g.out_row, dp)
    drop_again(drops, dp, chunk, workspace, layout)
    for lane in range(0, ROWS, lanes(s)):
        less = load(taken, lane)
        for j in range(n):
            cell = j * ROWS + lane
            store(own, cell, load(own, cell) * (load(dp, cell) - less))
    scores_back(terms, h, block, chunk, own)


@inner
def _u_back(side, net, terms, g, block, chunk, workspace, layout):
    """The gradients of what lrelu takes, in `du`, and those of W2 and b1."""
    u, s, du = at(workspace, layout.u), at(workspace, layout.s), at(workspace, layout.du)
    place, first, reach = cell_of(chunk.u_start, chunk, layout), cell_of(chunk.start, chunk, layout), net.taps // 2
    n, cells, w, heads = (chunk.u_end - chunk.u_start) * ROWS, (chunk.end - chunk.start) * ROWS, net.hidden, side.heads
    clear_outside(du, w, chunk.u_start, chunk.u_end, chunk, layout)
    map_cells(
        net.out, (net.taps, w * net.taps, ONE), net.taps, heads, -ONE, at(workspace, layout.ones), at(s, place),
        at(du, place), layout.grid, w, n, SLOPED, at(u, place), layout.grid,
    )  # fmt: skip
    hide_units(side, du, w, block, chunk, workspace, layout)
    if not side.causal:
        hide_masked_units(masks_of(terms), du, w, block, chunk, workspace, layout)
    if g.wants_net:
        for tap in range(net.taps):
            scores, taken = at(s, first), at(u, first + (tap - reach) * ROWS)
            add_products(taken, layout.grid, w, scores, layout.grid, heads, cells, at(g.dreadout, tap * w * heads))
        for unit in range(w):
            own, sums = at(du, unit * layout.grid + place), zeros(u)
            for cell in range(0, n, lanes(u)):
                sums = sums + load(own, cell)
            put(g.dhidden, unit, get(g.dhidden, unit) + total(sums))


@inner
def _x_back(side, net, terms, g, block, chunk, workspace, layout):
    """The gradients of products and biases, in `dx`, and those of W1."""
    x, dx, du = at(workspace, layout.x), at(workspace, layout.dx), at(workspace, layout.du)
    place, of_u, reach = cell_of(chunk.x_start, chunk, layout), cell_of(chunk.u_start, chunk, layout), net.taps // 2
    n, inputs, w = (chunk.x_end - chunk.x_start) * ROWS, 2 * side.heads, net.hidden
    units = (chunk.u_end - chunk.u_start) * ROWS
    map_cells(
        net.into, (net.taps, inputs * net.taps, ONE), net.taps, w, -ONE, at(workspace, layout.ones), at(du, place),
        at(dx, place), layout.grid, inputs, n, PLAIN, dx, NONE,
    )  # fmt: skip
    if g.wants_net:
        for tap in range(net.taps):
            taken = at(x, of_u + (tap - reach) * ROWS)
            add_products(at(du, of_u), layout.grid, w, taken, layout.grid, inputs, units, at(g.dinto, tap * w * inputs))
    hide(dx, inputs, block, chunk, workspace, layout)
    hide_masked(masks_of(terms), dx, inputs, block, chunk, workspace, layout)
    first, cells = cell_of(chunk.start, chunk, layout), (chunk.end - chunk.start) * ROWS
    for number in range(inputs):
        own, e = (
            at(dx, number * layout.grid + first),
            at(workspace, layout.s + number % side.heads * layout.grid + first),
        )
        for cell in range(0, cells, lanes(x)):
            store(own, cell, load(own, cell) + load(e, cell))


@inner
def _biases_back(side, g, block, chunk, h, workspace, layout):
    """Adds up the gradients of a head's biases: cells of a key lie one offset below each other."""
    own = at(workspace, layout.dx + (side.heads + h) * layout.grid)
    if g.wants_cells:
        for key in range(chunk.x_start, chunk.x_end):
            for i in range(block.rows):
                place = h * side.cells_head + (block.query + i) * side.cells_row + key
                put(g.dcells, place, get(g.dcells, place) + get(own, cell_of(key, chunk, layout) + i))
    if g.wants_values:
        for key in range(chunk.x_start, chunk.x_end):
            for i in range(block.rows):
                place = h * side.values_head + value_of(side, block.query + i, key)
                put(g.dvalues, place, get(g.dvalues, place) + get(own, cell_of(key, chunk, layout) + i))
    if g.wants_bias:
        sums, n, width = at(workspace, layout.offsets), chunk.x_end - chunk.x_start, lanes(own)
        clear(sums, n + ROWS)
        for key in range(chunk.x_start, chunk.x_end):
            for lane in range(0, ROWS, width):
                place = key - chunk.x_start + ROWS - width - lane
                cells = backwards(load(own, cell_of(key, chunk, layout) + lane))
                store(sums, place, load(sums, place) + cells)
        # sums[p] is that of keys less queries, x_start - query + p + 1 - ROWS; queries past the last one have none
        nearest = ROWS - block.rows
        for place in range(nearest, n + ROWS - 1):
            offset = chunk.x_start - block.query + place + 1 - ROWS
            target = h * side.bias_head + offset + side.zero
            put(g.dbias, target, get(g.dbias, target) + get(sums, place))


@inner
def _products_back(side, terms, block, chunk, h, k, dx, workspace, layout):
    """From the gradients of what the network reads of a head to those of products of its queries and keys."""
    if terms is None:
        return
    n, turned, content = (
        chunk.x_end - chunk.x_start,
        at(workspace, layout.turned + h * side.width * ROWS),
        at(workspace, layout.dp),
    )
    float_gemm(
        k, side.k_row, ONE, turned, ROWS, content, ROWS, n, ROWS, side.width, OVERWRITE, turned, NONE, turned, NONE
    )
    products_back(terms, h, block, chunk.x_start, n, content, dx)


@inner
def _rows_back(side, terms, g, block, chunk, h, workspace, layout):
    """Adds to the gradients of a head's queries, before the scale, and of keys."""
    n, d, of_keys = chunk.x_end - chunk.x_start, side.width, h // side.group
    dx = at(workspace, layout.dx + h * layout.grid + cell_of(chunk.x_start, chunk, layout))
    dq, scaled = at(workspace, layout.dq + h * ROWS * d), at(workspace, layout.scaled + h * ROWS * d)
    k = at(side.k, of_keys * side.k_head + chunk.x_start * side.k_row)
    dk = at(g.dk, of_keys * g.dk_head + chunk.x_start * g.dk_row)
    _products_back(side, terms, block, chunk, h, k, dx, workspace, layout)
    float_gemm(dx, ONE, ROWS, k, side.k_row, dq, d, block.rows, d, n, ONTO, dq, d, dq, NONE)
    float_gemm(dx, ROWS, ONE, scaled, d, dk, g.dk_row, n, d, block.rows, ONTO, dk, g.dk_row, dk, NONE)


@inner
def mlp_backward(side, net, terms, drops, g, query, rows, workspace, layout):
    """Adds the gradients of a block of queries. terms: as those of `dape.forward`."""
    block = begin_where_shown(masks_of(terms), block_of(side, query, rows, workspace, layout), workspace, layout)
    transpose_queries(side, terms, block, workspace, layout)
    choose_bases(terms, side.heads, block)
    _prepare(side, terms, g, block, workspace, layout)
    for start in range(block.start, block.end, KEYS):
        chunk = chunk_of(side, net, block, start)
        make_scores(side, net, terms, block, chunk, workspace, layout)
        clear_outside(at(workspace, layout.s), side.heads, chunk.start, chunk.end, chunk, layout)
        for h in range(side.heads):
            _weights_back(side, terms, drops, g, block, chunk, h, workspace, layout)
        _u_back(side, net, terms, g, block, chunk, workspace, layout)
        _x_back(side, net, terms, g, block, chunk, workspace, layout)
        for h in range(side.heads):
            _biases_back(side, g, block, chunk, h, workspace, layout)
            _rows_back(side, terms, g, block, chunk, h, workspace, layout)
    for h in range(side.heads):
        summed, factor = 0.0, splat(factor_of(terms, side, h))
        for i in range(rows):
            own, dq = (
                at(workspace, layout.dq + (h * ROWS + i) * side.width),
                at(g.dq, h * g.dq_head + (query + i) * g.dq_row),
            )
            summed += dot(at(side.q, h * side.q_head + (query + i) * side.q_row), own, side.width)
            for c in range(0, side.width, lanes(own)):
                left = side.width - c
                store_first(dq, c, fma(factor, load_first(own, c, left), load_first(dq, c, left)), left)
        put(g.dscale, h, scalar(g.dscale, get(g.dscale, h) + summed))
