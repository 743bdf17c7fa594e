"""Attention whose scores go through a small network, forward: see `attention.dape`."""

import numpy as np

from fastpe.kernels.attention.dape.dropout import drop_weights
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
from fastpe.kernels.attention.dape.maps import FROM, LEAKY, map_cells
from fastpe.kernels.attention.dape.masks import begin_where_shown, hide_masked, hide_masked_units, masks_of
from fastpe.kernels.attention.dape.terms import (
    choose_bases,
    factor_of,
    finish_products,
    finish_scores,
    mix_rel_value,
)
from fastpe.kernels.attention.tile import clear, scale_row
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.products.gemm import ONTO, OVERWRITE, float_gemm, transpose
from fastpe.kernels.simd import (
    at,
    backwards,
    exp,
    get,
    lanes,
    load,
    load_first,
    maximum,
    put,
    scalar,
    splat,
    store,
    store_first,
    zeros,
)


@inner
def in_columns(x, x_row, y, rows, width):
    """Rows of x in columns of y, which has `ROWS`; the others are zero."""
    if rows < ROWS:
        clear(y, width * ROWS)
    transpose(x, x_row, y, ROWS, rows, width)


@inner
def transpose_queries(side, terms, block, workspace, layout):
    """The block's queries, times the scale, in columns."""
    for h in range(side.heads):
        turned, size = at(workspace, layout.turned + h * side.width * ROWS), side.width * ROWS
        in_columns(at(side.q, h * side.q_head + block.query * side.q_row), side.q_row, turned, block.rows, side.width)
        scale_row(turned, size, factor_of(terms, side, h))


@inner
def _make_x(side, terms, block, chunk, workspace, layout):
    x, n = at(workspace, layout.x), chunk.x_end - chunk.x_start
    clear_outside(x, 2 * side.heads, chunk.x_start, chunk.x_end, chunk, layout)
    place = cell_of(chunk.x_start, chunk, layout)
    for h in range(side.heads):
        k = at(side.k, h // side.group * side.k_head + chunk.x_start * side.k_row)
        content, turned = at(x, h * layout.grid + place), at(workspace, layout.turned + h * side.width * ROWS)
        float_gemm(
            k, side.k_row, ONE, turned, ROWS, content, ROWS, n, ROWS, side.width, OVERWRITE, turned, NONE, turned, NONE
        )
        finish_products(terms, h, block, chunk.x_start, n, content)
        _make_biases(side, block, chunk, h, at(x, (side.heads + h) * layout.grid + place), n, workspace, layout)
    hide(x, 2 * side.heads, block, chunk, workspace, layout)
    hide_masked(masks_of(terms), x, 2 * side.heads, block, chunk, workspace, layout)


@inner
def value_of(side, query, key):
    """Which of the values they have."""
    return np.int64(get(side.index, query * side.cells_row + key))


@inner
def _make_biases(side, block, chunk, h, biases, n, workspace, layout):
    """Biases of a head, of n keys. Cells of a key lie one offset below each other."""
    if not side.biased:
        clear(biases, n * ROWS)
    else:
        offsets, nearest, width = at(workspace, layout.offsets), ROWS - block.rows, lanes(biases)
        clear(offsets, nearest)  # of queries past the last one
        first = h * side.bias_head + chunk.x_start - block.query + 1 - ROWS + side.zero
        for place in range(nearest, n + ROWS - 1, width):
            left = n + ROWS - 1 - place
            store_first(offsets, place, load_first(side.bias, first + place, left), left)
        for j in range(n):
            for lane in range(0, ROWS, width):
                store(biases, j * ROWS + lane, backwards(load(offsets, j + ROWS - width - lane)))
    if side.has_cells:
        for j in range(n):
            for i in range(block.rows):
                cell = get(side.cells, h * side.cells_head + (block.query + i) * side.cells_row + chunk.x_start + j)
                put(biases, j * ROWS + i, get(biases, j * ROWS + i) + cell)
    if side.has_values:
        for j in range(n):
            for i in range(block.rows):
                chosen = get(side.values, h * side.values_head + value_of(side, block.query + i, chunk.x_start + j))
                put(biases, j * ROWS + i, get(biases, j * ROWS + i) + chosen)


@inner
def _make_u(side, net, terms, block, chunk, workspace, layout):
    x, u, place = at(workspace, layout.x), at(workspace, layout.u), cell_of(chunk.u_start, chunk, layout)
    cells, inputs = (chunk.u_end - chunk.u_start) * ROWS, 2 * side.heads
    clear_outside(u, net.hidden, chunk.u_start, chunk.u_end, chunk, layout)
    map_cells(
        net.into, (inputs * net.taps, net.taps, ONE), net.taps, inputs, ONE, at(workspace, layout.ones), at(x, place),
        at(u, place), layout.grid, net.hidden, cells, LEAKY, net.bias, ONE,
    )  # fmt: skip
    hide_units(side, u, net.hidden, block, chunk, workspace, layout)
    if not side.causal:
        hide_masked_units(masks_of(terms), u, net.hidden, block, chunk, workspace, layout)


@inner
def make_scores(side, net, terms, block, chunk, workspace, layout):
    """x, u and the scores of a chunk, hidden ones among them, before what comes after the network."""
    _make_x(side, terms, block, chunk, workspace, layout)
    _make_u(side, net, terms, block, chunk, workspace, layout)
    x, u, s, place = (
        at(workspace, layout.x),
        at(workspace, layout.u),
        at(workspace, layout.s),
        cell_of(chunk.start, chunk, layout),
    )
    cells = (chunk.end - chunk.start) * ROWS
    for h in range(side.heads):
        content, biases = at(x, h * layout.grid + place), at(x, (side.heads + h) * layout.grid + place)
        for cell in range(0, cells, lanes(s)):
            store(s, h * layout.grid + place + cell, load(content, cell) + load(biases, cell))
    own = at(s, place)
    map_cells(
        net.out, (net.hidden * net.taps, net.taps, ONE), net.taps, net.hidden, ONE, at(workspace, layout.ones),
        at(u, place), own, layout.grid, side.heads, cells, FROM, own, layout.grid,
    )  # fmt: skip


@inner
def _weigh(block, chunk, h, workspace, layout):
    """Weights of a head in the place of scores, by the largest score so far, and their sums; `factors` shrink what was
    summed up before."""
    top, sums = at(workspace, layout.top + h * ROWS), at(workspace, layout.sum + h * ROWS)
    factors, s = (
        at(workspace, layout.factors),
        at(workspace, layout.s + h * layout.grid + cell_of(chunk.start, chunk, layout)),
    )
    whole = sees_all(block, chunk.start, chunk.end)
    for lane in range(0, ROWS, lanes(s)):
        before, hidden = load(top, lane), splat(scalar(s, HIDDEN))
        largest = before
        for key in range(chunk.start, chunk.end):
            place = (key - chunk.start) * ROWS + lane
            score = load(s, place)
            largest = maximum(largest, score if whole else seen(key, lane, score, hidden, workspace, layout))
        factor = exp(before - largest)
        total = zeros(s)
        for key in range(chunk.start, chunk.end):
            place = (key - chunk.start) * ROWS + lane
            weight = exp(load(s, place) - largest)
            if not whole:
                weight = seen(key, lane, weight, zeros(s), workspace, layout)
            store(s, place, weight)
            total = total + weight
        store(top, lane, largest)
        store(sums, lane, load(sums, lane) * factor + total)
        store(factors, lane, factor)


@inner
def _sum_values(side, terms, block, chunk, h, workspace, layout):
    out, p = at(workspace, layout.out + h * ROWS * side.v_width), at(workspace, layout.s + h * layout.grid)
    for i in range(block.rows):
        scale_row(at(out, i * side.v_width), side.v_width, get(at(workspace, layout.factors), i))
    v = at(side.v, h // side.group * side.v_head + chunk.start * side.v_row)
    float_gemm(
        at(p, cell_of(chunk.start, chunk, layout)), ONE, ROWS, v, side.v_row, out, side.v_width, block.rows,
        side.v_width, chunk.end - chunk.start, ONTO, out, side.v_width, out, NONE,
    )  # fmt: skip
    mix_rel_value(terms, h, block, chunk, at(p, cell_of(chunk.start, chunk, layout)), out, side.v_width)


@inner
def mlp_forward(side, net, terms, drops, query, rows, out, out_head, out_row, lse, lse_head, workspace, layout):
    """Outputs and lse of a block of queries. terms: `dape.terms.Terms`, or None."""
    block, h_rows = block_of(side, query, rows, workspace, layout), side.heads * ROWS
    block = begin_where_shown(masks_of(terms), block, workspace, layout)
    transpose_queries(side, terms, block, workspace, layout)
    choose_bases(terms, side.heads, block)
    clear(at(workspace, layout.out), h_rows * side.v_width)
    clear(at(workspace, layout.sum), h_rows)
    for place in range(h_rows):
        put(at(workspace, layout.top), place, scalar(workspace, HIDDEN))
    for start in range(block.start, block.end, KEYS):
        chunk = chunk_of(side, net, block, start)
        make_scores(side, net, terms, block, chunk, workspace, layout)
        for h in range(side.heads):
            finish_scores(terms, h, block, chunk, workspace, layout)
            _weigh(block, chunk, h, workspace, layout)
            drop_weights(drops, h, block, chunk, workspace, layout)
            _sum_values(side, terms, block, chunk, h, workspace, layout)
    for h in range(side.heads):
        for i in range(rows):
            own, target = (
                at(workspace, layout.out + (h * ROWS + i) * side.v_width),
                at(out, h * out_head + (query + i) * out_row),
            )
            total = get(at(workspace, layout.sum), h * ROWS + i)
            share = splat(scalar(workspace, 0.0) if total == 0 else scalar(workspace, 1.0) / total)
            for c in range(0, side.v_width, lanes(own)):
                store_first(target, c, share * load_first(own, c, side.v_width - c), side.v_width - c)
            whole = get(at(workspace, layout.top), h * ROWS + i) + np.log(total) if total > 0 else -np.inf
            put(lse, h * lse_head + query + i, scalar(workspace, whole))
