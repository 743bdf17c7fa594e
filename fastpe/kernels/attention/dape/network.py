"""A small network over the scores of all heads, pointwise or with a few keys on either side (DAPE).

With the products C_h = s q_h k_h^T and the biases b_h of all heads, for every query and key (a cell)

    x = [C_1 .. C_H, b_1 .. b_H],    u = lrelu(W1 x + b1),    S = C + b + W2 u

W1 and W2 are convolutions along the keys, with T taps. The other terms of the score are as in `attention.score`:
products with rows over offsets, `rectify` and gains are in C; `bias`, `values` and `scores` are in b; columns, the soft
cap and the mask come after the network.

In x, the entries of a head (C_h and b_h) are 0 where the key is hidden from that head. u is 0 where the key is hidden
from all heads. Exception: in causal attention, u is not set to 0 for keys after those that the query sees. After the
last key, x and u are 0, with one exception: in a causal model, u is also computed for as many keys after the last one
as the taps reach (`Net.follow`), so that the outputs of the last tokens do not change when more tokens are appended.

A block of at most ROWS queries processes its keys in chunks, with the cells of all heads in memory: a grid of ROWS x
TILE_KEYS cells for C, b and the scores of each head, and for each unit, with rows as in `tile`. So each head's part of
a chunk is an ordinary tile, with a separate workspace (`head_scratch`). The number of columns in use is limited, so
that all grids fit into a core's second cache. With more queries in a block, a chunk would have fewer keys; with fewer
queries, the gradients of keys and values would be read and written more often. Let R be the reach of the taps.
Then u is computed for R more keys on either side of a chunk, and x for 2 R more keys. So the first key of a chunk is in
column 2 R of its row.

The backward pass recomputes x, u and the scores. The scores of a chunk also contribute to gradients of x and u beyond
its edges. These contributions are computed with the chunk, which is possible because the slopes of u are known there
and the rest is linear. The forward pass takes 6 H W FLOP per cell and tap, the backward pass three times as many.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import intrinsic

from fastpe.kernels.attention.dape.maps import (
    BOTH,
    FROM,
    GRID,
    LEAKY,
    ROWS,
    SLOPED,
    add_grid_sums,
    add_products,
    column_step,
    map_cells,
)
from fastpe.kernels.attention.inputs import NONE, ONE, Case, Tile
from fastpe.kernels.attention.slots import MASK, has_slot
from fastpe.kernels.attention.tile import AHEAD, TILE_KEYS, TILE_QUERIES, bring_rows_near, clear
from fastpe.kernels.attention.visibility import mask_of_row, visible, visible_of_block, where_shown
from fastpe.kernels.attention.workspace import Layout, layout_for, scratch_of, with_cells
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.compile.overload import overload_by_type
from fastpe.kernels.simd import at, lanes, load_first, maximum, put, region, scalar, splat, store_first, zeros

MOST_TAPS = 63
"""The largest number of taps. With so many taps, 4 R columns belong to the edges of a chunk, and four keys are left."""
_CELLS = np.int64(48)  # the largest number of keys of a chunk; a block with at most _FEW keys is one chunk instead
_FEW = np.int64(64)  # see `_CELLS`
_BLOCKS = (TILE_QUERIES + ROWS - ONE) // ROWS  # number of blocks for TILE_QUERIES queries, which share their bases
_NARROW = np.int64(3)  # reach up to which _CELLS includes the columns at the edges of a chunk
_LEAD = np.int64(64)  # elements before the first grid, which taps and dropout may access


class Net(NamedTuple):
    """The network: pointers to W1 (W, 2 H, T), b1 (W,) and W2 (H, W, T), and its sizes."""

    into: Any
    bias: Any
    out: Any
    units: int
    taps: int
    biased: int  # whether heads have a bias; in the table of slots it is missing, so that it is not added a second time
    follow: int  # number of keys after the last one for which u is computed, in causal attention


class NetGradients(NamedTuple):
    """Pointers to the network's gradients: (T, W, 2 H), (W,) and (T, W, H). Kernels add to them."""

    into: Any
    bias: Any
    out: Any
    wanted: int


class OneHead(NamedTuple):
    """The data of one head: `inputs.Head` and `Terms`, the addresses of its output and lse, and its `HeadGradients`
    from the first key on (None in the forward pass)."""

    head: Any
    terms: Any
    out: Any
    lse: Any
    grads: Any


_MAKERS: dict[type, Any] = {}


def makes_heads(kind: type) -> Callable[[Any], Any]:
    """Return a decorator that registers ``function(source, h)``: `head_in` calls it if `source` is a tuple of this
    type.
    """

    def registered(function: Any) -> Any:
        _MAKERS[kind] = function
        return function

    return registered


@intrinsic
def head_in(typingctx, source, h):
    """Return the `OneHead` of head h in a call, or in a layer of a model."""
    return overload_by_type(typingctx, _MAKERS[source.instance_class], (source, h))


# ---------------------------------------------------------------------------------------------------------------------
# Workspace


class DapeLayout(NamedTuple):
    """The layout of a worker's workspace."""

    x: int  # 2 H grids
    u: int  # W
    s: int  # H: scores, then weights
    dx: int  # 2 H; the first H hold the gradients of scores, then those of products
    du: int  # W
    ones: int
    mixed: int  # for each head, as in `workspace.Layout`, like `stats`
    stats: int
    rest: int  # start of the memory laid out by `general`
    general: Layout
    size: int


def layout_for_dape(case: Case, table: np.ndarray, units: int, *, backward: bool) -> DapeLayout:
    """The layout of the workspace for a network with `units` units."""
    general, cursor = layout_for(case, table, backward=backward), 0

    def take(count: int) -> int:
        nonlocal cursor
        start, cursor = cursor, cursor + -(-count // 16) * 16
        return region(start, count)

    def grids(count: int) -> int:
        return take(count and int(_LEAD + count * GRID))

    h = case.heads
    places = {
        "x": grids(2 * h), "u": grids(units), "s": grids(h),
        "dx": grids(backward * 2 * h), "du": grids(backward * units),
        "ones": take(int(_CELLS)), "mixed": take(h * int(ROWS) * case.v_width),
        "stats": take(h * 2 * int(TILE_QUERIES)),
    }  # fmt: skip
    return DapeLayout(**places, rest=take(general.size), general=general, size=cursor)


class Grids(NamedTuple):
    """Pointers to the regions of `DapeLayout`, and the `Scratch` that all heads share. `head_scratch` replaces some
    parts of it for each head.
    """

    x: Any
    u: Any
    s: Any
    dx: Any
    du: Any
    ones: Any
    mixed: Any
    stats: Any
    scratch: Any


@inner
def grids_of(workspace, layout):
    general = at(workspace, layout.rest)
    return Grids(
        at(at(workspace, layout.x), _LEAD), at(at(workspace, layout.u), _LEAD), at(at(workspace, layout.s), _LEAD),
        at(at(workspace, layout.dx), _LEAD), at(at(workspace, layout.du), _LEAD), at(workspace, layout.ones),
        at(workspace, layout.mixed), at(workspace, layout.stats),
        scratch_of(general, layout.general, at(general, layout.general.cells)),
    )  # fmt: skip


@inner
def head_scratch(grids, h, cells, column, case):
    """The `Scratch` of head h. From `column` on, its cells are in grid h of `cells`, and their gradients are in grid h
    of `dx`.
    """
    mixed, stats = at(grids.mixed, h * ROWS * case.v_width), at(grids.stats, h * 2 * TILE_QUERIES)
    place = h * GRID + column
    return with_cells(grids.scratch, at(cells, place), at(grids.dx, place), mixed, stats)


# ---------------------------------------------------------------------------------------------------------------------
# Blocks and chunks


class Block(NamedTuple):
    """A block of m queries from i0 on, and the range low .. high - 1 of keys that any of them sees."""

    i0: int
    m: int
    low: int
    high: int


class Chunk(NamedTuple):
    """Three ranges of keys: those with scores, those with nonzero x, and those with nonzero u."""

    scores: Tile
    x: Tile
    u_start: int
    u_end: int
    reach: int
    columns: int  # number in use, a multiple of `column_step`
    cleared: int  # number that is cleared: `columns` and, with taps, further columns that the taps reach


@inner
def count_blocks(n):
    """The number of blocks for n queries. Every TILE_QUERIES queries are divided into equal blocks, and so are the
    remaining queries.
    """
    return n // TILE_QUERIES * _BLOCKS + (n % TILE_QUERIES + ROWS - ONE) // ROWS


@inner
def _size_of_blocks(first, n):
    """The size of the blocks into which the queries from `first` on, at most TILE_QUERIES, are divided."""
    left = min(TILE_QUERIES, n - first)
    count = (left + ROWS - ONE) // ROWS
    return (left + count - ONE) // count


@inner
def start_of_block(number, n):
    """The first query of the block with this number. n: the number of all queries."""
    first = number // _BLOCKS * TILE_QUERIES
    return first + number % _BLOCKS * _size_of_blocks(first, n)


@inner
def end_of_block(i0, n):
    """The query after the last query of the block that contains i0."""
    first = i0 // TILE_QUERIES * TILE_QUERIES
    rows = _size_of_blocks(first, n)
    return min(first + ((i0 - first) // rows + ONE) * rows, first + TILE_QUERIES, n)


@inner
def block_of(source, i0, rows, case, grids):
    """Return the block of at most `rows` queries from i0 on, without padding. Set the running sums and maxima of all
    heads to zero.
    """
    head = head_in(source, NONE).head
    m = max(NONE, min(rows, head.query_length - i0))
    for column in range(0, _CELLS, lanes(grids.ones)):
        store_first(grids.ones, column, splat(scalar(grids.ones, 1.0)), _CELLS - column)
    clear(grids.mixed, case.heads * ROWS * case.v_width)
    clear(grids.stats, case.heads * 2 * TILE_QUERIES)
    for h in range(case.heads):
        for i in range(ROWS):
            put(grids.stats, h * 2 * TILE_QUERIES + i, scalar(grids.stats, -np.inf))
    low, high = visible_of_block(i0, m, head, case)
    return Block(i0, m, low, high)


@inner
def keys_of_chunk(net, block):
    """The largest number of keys of a chunk."""
    reach = net.taps // 2
    if block.high - block.low <= _FEW and _FEW + 4 * reach <= TILE_KEYS:
        return _FEW
    return _CELLS - 4 * reach if reach <= _NARROW else min(_CELLS, TILE_KEYS - 4 * reach)


@inner
def chunk_of(source, net, block, start, case, grids):
    """The chunk from key `start` on."""
    reach, end, head = net.taps // 2, min(start + keys_of_chunk(net, block), block.high), head_in(source, NONE).head
    x_start, x_end = max(block.low, start - 2 * reach), min(block.high, end + 2 * reach)
    last = head.key_length + net.follow if case.causal else block.high
    step = column_step(grids.x)
    columns = (end - start + 4 * reach + step - 1) // step * step
    cleared = min(columns + step, TILE_KEYS) if reach else columns
    return Chunk(
        Tile(block.i0, block.m, start, end - start), Tile(block.i0, block.m, x_start, x_end - x_start),
        max(block.low, start - reach), min(last, end + reach), reach, columns, cleared,
    )  # fmt: skip


@inner
def column_of(key, chunk):
    """The column of a key."""
    return key - chunk.scores.j0 + 2 * chunk.reach


@inner
def _columns_between(low, high, chunk):
    """Return the range of columns of the keys low .. high - 1."""
    first = max(NONE, min(column_of(low, chunk), chunk.cleared))
    return first, max(first, min(column_of(high, chunk), chunk.cleared))


@inner
def _columns(first, last, x):
    """Return a range of columns that `map_cells` can process and that includes the columns from `first` to `last`."""
    step = column_step(x)
    return first // step * step, (last + step - 1) // step * step


@inner
def clear_around(cells, grids, first, last, chunk):
    """In one row of each of `grids` grids, set all columns to zero except those from `first` to `last`."""
    for number in range(grids):
        row = at(cells, number * GRID)
        clear(row, first)
        clear(at(row, last), chunk.cleared - last)


@inner
def bring_tile_near(x, x_row, n, d):
    """Prefetch n rows that are read soon."""
    for j in range(0, n, AHEAD):
        bring_rows_near(at(x, j * x_row), x_row, d)


# ---------------------------------------------------------------------------------------------------------------------
# Hidden keys


@inner
def hide_inputs(source, x, chunk, case):
    """Set x, or its gradients, to zero where a query does not see a key."""
    head, (i0, m, j0, n) = head_in(source, NONE).head, chunk.x
    for i in range(m):
        low, high = visible(i0 + i, head, case)
        first, last = _columns_between(max(low, j0), min(high, j0 + n), chunk)
        clear_around(at(x, i * TILE_KEYS), 2 * case.heads, first, last, chunk)
    if has_slot(head.table, MASK):
        for h in range(case.heads):
            own, place = head_in(source, h).head, column_of(j0, chunk)
            for i in range(m):
                row, mask = at(x, h * GRID + i * TILE_KEYS + place), mask_of_row(i0 + i, j0, own)
                _hide_masked(row, mask, n)
                _hide_masked(at(row, case.heads * GRID), mask, n)


@inner
def _hide_masked(row, mask, n):
    lowest, none = splat(scalar(row, -np.inf)), zeros(row)
    for j in range(0, n, lanes(row)):
        store_first(row, j, where_shown(load_first(row, j, n - j), load_first(mask, j, n - j), lowest, none), n - j)


@inner
def _hide_units(source, net, u, chunk, case, scratch):
    """Set u, or its gradients, to zero where a query does not see a key. In causal attention, this applies only to keys
    before those that the query sees.
    """
    head, (i0, m, _, _) = head_in(source, NONE).head, chunk.scores
    for i in range(m):
        low, high = visible(i0 + i, head, case)
        low, high = max(low, chunk.u_start), chunk.u_end if case.causal else min(high, chunk.u_end)
        first, last = _columns_between(low, high, chunk)
        clear_around(at(u, i * TILE_KEYS), net.units, first, last, chunk)
        if has_slot(head.table, MASK) and not case.causal and high > low:
            shown = scratch.band
            _mask_of_all(source, i0 + i, low, high - low, case, shown)
            for unit in range(net.units):
                _hide_masked(at(u, unit * GRID + i * TILE_KEYS + first), shown, high - low)


@inner
def _mask_of_all(source, i, j0, n, case, out):
    """For query i and each of n keys from j0 on, write to `out` the largest number that the mask of any head adds."""
    for h in range(case.heads):
        mask = mask_of_row(i, j0, head_in(source, h).head)
        for j in range(0, n, lanes(out)):
            own = load_first(mask, j, n - j)
            store_first(out, j, maximum(own, load_first(out, j, n - j)) if h else own, n - j)


# ---------------------------------------------------------------------------------------------------------------------
# The network


@inner
def make_units(source, net, chunk, case, grids):
    """Compute u from x."""
    inputs, reach = 2 * case.heads, chunk.reach
    columns = _columns(reach, chunk.scores.n + 3 * reach, grids.u)
    strides = inputs * net.taps, net.taps, ONE
    map_cells(
        net.into, strides, net.taps, inputs, ONE, grids.ones, grids.x, grids.u, net.units, chunk.scores.m, columns,
        LEAKY, net.bias,
    )  # fmt: skip
    _hide_units(source, net, grids.u, chunk, case, grids.scratch)


@inner
def read_out(net, chunk, case, grids):
    """Compute all heads' scores from x and u."""
    columns, strides = _columns_of_scores(chunk, grids.s), (net.units * net.taps, net.taps, ONE)
    map_cells(
        net.out, strides, net.taps, net.units, ONE, grids.ones, grids.u, grids.s, case.heads, chunk.scores.m, columns,
        BOTH, grids.x,
    )  # fmt: skip


@inner
def _columns_of_scores(chunk, x):
    return _columns(2 * chunk.reach, 2 * chunk.reach + chunk.scores.n, x)


@inner
def units_backward(source, net, dnet, chunk, case, grids):
    """Compute the gradients of the argument of lrelu, in `du`, and add to the gradients of W2 and b1. `dx` holds the
    gradients of scores, which are 0 outside of the chunk.
    """
    w, heads, m, whole = net.units, case.heads, chunk.scores.m, (NONE, chunk.columns)
    map_cells(
        net.out, (net.taps, w * net.taps, ONE), net.taps, heads, -ONE, grids.ones, grids.dx, grids.du, w, m, whole,
        SLOPED, grids.u,
    )  # fmt: skip
    _hide_units(source, net, grids.du, chunk, case, grids.scratch)
    if dnet.wanted:
        columns = _columns_of_scores(chunk, grids.s)
        for tap in range(net.taps):
            taken = at(grids.u, tap - chunk.reach)
            add_products(taken, w, grids.dx, heads, m, columns, at(dnet.out, tap * w * heads))
        add_grid_sums(grids.du, w, m, whole, dnet.bias)


@inner
def inputs_backward(source, net, dnet, chunk, case, grids):
    """Compute the gradients of products and biases in `dx`, where they overwrite the gradients of scores. Add to the
    gradient of W1.
    """
    w, heads, m, whole = net.units, case.heads, chunk.scores.m, (NONE, chunk.columns)
    if dnet.wanted:
        for tap in range(net.taps):
            taken = at(grids.x, tap - chunk.reach)
            add_products(grids.du, w, taken, 2 * heads, m, whole, at(dnet.into, tap * w * 2 * heads))
    strides = net.taps, 2 * heads * net.taps, ONE
    # biases first: both sums start with the gradients of scores, which the gradients of products overwrite
    for half in range(ONE, -ONE, -ONE):
        first = half * heads
        map_cells(
            at(net.into, first * net.taps), strides, net.taps, w, -ONE, grids.ones, grids.du,
            at(grids.dx, first * GRID), heads, m, whole, FROM, grids.dx,
        )  # fmt: skip
    hide_inputs(source, grids.dx, chunk, case)
