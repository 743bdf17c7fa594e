"""A small network over the scores of all heads, cell by cell or with a few keys on either side (DAPE).

With the products C_h = s q_h k_h^T and the biases b_h of all heads, at every cell

    x = [C_1 .. C_H, b_1 .. b_H],    u = lrelu(W1 x + b1),    S = C + b + W2 u

W1 and W2 are T taps of a convolution along the keys. x is 0 where a key is hidden, and so is u; but in causal attention
x alone of keys behind the query. Past the last of `Side.keys` there is neither: a model counts in as many more as the
taps reach, so that what its last tokens give stays as it is when others follow.

A block of `ROWS` queries goes through its keys `KEYS` at a time, with the cells of all heads at hand. Those of a key
lie side by side, so that a tap is a product whose columns begin a row earlier or later. Of keys beyond a chunk's edges,
as far as the taps reach, x and u are made twice.

Backward, all of that is made again. What a chunk's own scores say of x and u beyond its edges is added there: the
slopes of u are known, and the rest is linear. Per cell and tap 6 H W FLOP forward, three times as many backward.
"""

from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.attention.tile import clear
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.rows.dropout import CELL
from fastpe.kernels.simd import (
    at,
    get,
    lanes,
    load,
    put,
    region,
    scalar,
    splat,
    store,
    where_negative,
    zeros,
)

ROWS, KEYS = np.int64(32), np.int64(30)
"""Queries of a block, and keys of a chunk: a product has no single rows then."""
LEAK = 0.01  # slope of u below 0
HIDDEN = -1e37  # the score of a key that is not seen; and, negated, the lse of a query that sees none
ONE, NONE = np.int64(1), np.int64(0)


class Net(NamedTuple):
    """The network: W1 (W, 2 H, T), b1 (W,), W2 (H, W, T)."""

    into: Any  # pointers, as all that has no other type
    bias: Any
    out: Any
    hidden: int
    taps: int


class Side(NamedTuple):
    """What a block of queries reads of one sample: pointers to its first query, key and bias, and strides."""

    q: Any
    q_head: int
    q_row: int
    k: Any
    k_head: int
    k_row: int
    v: Any
    v_head: int
    v_row: int
    bias: Any  # that of key j and query i stands at j - i + zero
    bias_head: int  # 0 with `biased` 0
    zero: int
    biased: int
    cells: Any  # a bias of every query and key
    cells_head: int
    cells_row: int
    has_cells: int
    values: Any  # of which every query and key has one as a bias,
    values_head: int
    index: Any  # the one that this says, in rows as those of cells
    has_values: int
    scale: Any  # of each head; not read where other terms have it
    heads: int
    group: int  # heads that share keys
    width: int
    v_width: int
    keys: int
    first: int  # position of query 0, key j being at j
    causal: int
    window: int  # 0: none
    spans: Any  # the first key that each query sees, and the first that it no longer does
    spanned: int


class DapeLayout(NamedTuple):
    """Where things lie in a lane's memory. A grid has a row of `ROWS` cells for every key of a chunk and `edge` more on
    either side."""

    edge: int
    grid: int  # elements of a grid
    x: int  # 2 H grids
    u: int  # W
    s: int  # H: scores, then weights, then the gradients of scores
    offsets: int  # of a head: its biases, one for each offset that cells have, and gradients of them
    mask: int  # of a head, and another
    turned: int  # (H, D, ROWS): queries times the scale, transposed
    out: int  # (H, ROWS, Dv)
    top: int  # (H, ROWS): the largest score so far, or lse
    sum: int  # (H, ROWS): that of weights so far, or what is taken from gradients of weights
    factors: int  # (ROWS,)
    ones: int  # (ROWS,)
    low: int  # (ROWS,): the first key that each query sees,
    high: int  # and the first that it no longer does
    scaled: int  # (H, ROWS, D): queries times the scale
    dturned: int  # (H, Dv, ROWS): gradients of outputs
    dx: int
    du: int
    dp: int
    dq: int  # (H, ROWS, D), before the scale
    dscale: int  # (H,)
    drawn: int  # (ROWS, CELL): factors of dropout, as they are found,
    turned_cell: int  # (H, CELL, ROWS): in columns, of each head those that were found last,
    kept: int  # (KEYS, ROWS): and those of a chunk
    size: int


def layout_for_dape(
    heads: int, width: int, v_width: int, hidden: int, taps: int, *, backward: bool, dropped: bool
) -> DapeLayout:
    """The room for such a network.

    >>> room_for_mlp(2, 4, 4, 3, 1, backward=False, dropped=False).grid
    960
    """
    edge, rows, cursor = taps // 2 * 3, int(ROWS), 0
    grid = (int(KEYS) + 2 * edge) * rows

    def take(count: int) -> int:
        nonlocal cursor
        start, cursor = cursor, cursor + -(-count // 16) * 16
        return region(start, count)

    sizes = {
        "x": 2 * heads * grid, "u": hidden * grid, "s": heads * grid, "offsets": grid // rows + 2 * rows,
        "mask": 2 * grid,
        "turned": heads * width * rows,
        "out": heads * rows * v_width, "top": heads * rows, "sum": heads * rows, "factors": rows,
        "ones": rows, "low": rows, "high": rows,
    }  # fmt: skip
    more = {
        "scaled": heads * rows * width, "dturned": heads * v_width * rows, "dx": 2 * heads * grid, "du": hidden * grid,
        "dp": heads * grid, "dq": heads * rows * width,
        "dscale": heads,
    }  # fmt: skip
    places = {name: take(count) for name, count in sizes.items()}
    places |= {name: take(backward * count) for name, count in more.items()}
    cell = dropped * int(CELL) * rows
    places |= {"drawn": take(cell), "turned_cell": take(heads * cell), "kept": take(dropped * int(KEYS) * rows)}
    return DapeLayout(edge=edge, grid=grid, **places, size=cursor)


class Block(NamedTuple):
    """Queries, and the keys that any of them sees, and all of them."""

    query: int
    rows: int
    start: int
    end: int
    all_start: int
    all_end: int


class Chunk(NamedTuple):
    """Some keys that have scores, those of x that are not 0, and those of u."""

    start: int
    end: int
    x_start: int
    x_end: int
    u_start: int
    u_end: int


@inner
def block_of(side, query, rows, workspace, layout):
    """The queries from `query` on; in the lane's memory, what each sees."""
    low, high = at(workspace, layout.low), at(workspace, layout.high)
    start, end, all_start, all_end = side.keys, NONE, NONE, side.keys
    for i in range(ROWS):
        first, last, position = NONE, side.keys, side.first + query + i
        if side.causal:
            last = min(last, position + 1)
        if side.window:
            first, last = max(first, position - side.window + 1), min(last, position + side.window)
        if side.spanned and i < rows:
            first = max(first, get(side.spans, 2 * (query + i)))
            last = min(last, get(side.spans, 2 * (query + i) + 1))
        if i >= rows or last <= first:
            first = last = NONE
        else:
            start, end = min(start, first), max(end, last)
        if i < rows:
            all_start, all_end = max(all_start, first), min(all_end, last)
        put(low, i, scalar(low, first))
        put(at(workspace, layout.ones), i, scalar(low, 1.0))
        put(high, i, scalar(low, last))
    return Block(query, rows, start, end, all_start, all_end)


@inner
def chunk_of(side, net, block, start):
    """The chunk from key `start` on."""
    reach, end = net.taps // 2, min(start + KEYS, block.end)
    x_start, u_start = max(block.start, start - 2 * reach), max(block.start, start - reach)
    u_end = min(side.keys if side.causal else block.end, end + reach)
    return Chunk(start, end, x_start, min(block.end, end + 2 * reach), u_start, u_end)


@inner
def cell_of(key, chunk, layout):
    """Where the cells of a key begin in a grid."""
    return (key - chunk.start + layout.edge) * ROWS


@inner
def clear_outside(x, grids, start, end, chunk, layout):
    """Zeros in the cells of keys before `start` and from `end` on, as far as taps reach."""
    first, last = cell_of(start, chunk, layout), cell_of(end, chunk, layout)
    before, after = min(first, layout.edge * ROWS), min(layout.grid - last, layout.edge * ROWS)
    if layout.edge:
        for number in range(grids):
            clear(at(x, number * layout.grid + first - before), before)
            clear(at(x, number * layout.grid + last), after)


@inner
def seen(key, lane, x, other, workspace, layout):
    """x where queries, from `lane` on, see the key; `other` elsewhere."""
    at_key = splat(scalar(workspace, key))
    past = at_key - load(at(workspace, layout.low), lane)
    ahead = load(at(workspace, layout.high), lane) - at_key - splat(scalar(workspace, 1.0))
    return where_negative(past, other, where_negative(ahead, other, x))


@inner
def sees_all(block, start, end):
    """Whether all queries see these keys."""
    return block.all_start <= start and end <= block.all_end


@inner
def hide(x, grids, block, chunk, workspace, layout):
    """Zeros where a query does not see its key."""
    if sees_all(block, chunk.x_start, chunk.x_end):
        return
    for key in range(chunk.x_start, chunk.x_end):
        for number in range(grids):
            cells = at(x, number * layout.grid + cell_of(key, chunk, layout))
            for lane in range(0, ROWS, lanes(x)):
                store(cells, lane, seen(key, lane, load(cells, lane), zeros(x), workspace, layout))


@inner
def hide_units(side, u, units, block, chunk, workspace, layout):
    """Zeros of u where a query does not see its key; in causal attention of keys before those alone."""
    if sees_all(block, chunk.u_start, block.all_end if side.causal else chunk.u_end):
        return
    for key in range(chunk.u_start, chunk.u_end):
        for unit in range(units):
            cells = at(u, unit * layout.grid + cell_of(key, chunk, layout))
            for lane in range(0, ROWS, lanes(u)):
                own, none = load(cells, lane), zeros(u)
                if side.causal:
                    past = splat(scalar(u, key)) - load(at(workspace, layout.low), lane)
                    store(cells, lane, where_negative(past, none, own))
                else:
                    store(cells, lane, seen(key, lane, own, none, workspace, layout))
