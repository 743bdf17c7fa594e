"""All other terms of the score beside reflections: those of `score`, and masks.

Scores of a block of queries stand key by key there, a lane for each query, and `score` has them query by query. So a
tile of them is turned, goes through its passes, and is turned back; likewise their gradients, and the weights that mix
rows of rel_value. 10 moves a cell at most, of 8 D FLOP and more.

Content that is mapped, turned or scaled comes so to `reflected`; queries and keys as they were are here.
"""

from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels._jit import inner
from fastpe.kernels.attention.bands import offsets_of, relative_gradient, relative_mix, relative_scores
from fastpe.kernels.attention.calls import head_of_call
from fastpe.kernels.attention.cells import TILE_KEYS, add_cells, clear, scale_row
from fastpe.kernels.attention.columns import ColumnGradients, add_query_slopes, column_gradients, with_slopes
from fastpe.kernels.attention.masks import mask_of_row, masked
from fastpe.kernels.attention.products import add_relative_products, products_backward
from fastpe.kernels.attention.records import (
    BIAS,
    MASK,
    NONE,
    REL_KEY,
    REL_QUERY,
    REL_VALUE,
    VALUES,
    HeadGradients,
    Tile,
    at_offset,
    given,
    rows_of,
    terms_of,
    wanted,
)
from fastpe.kernels.attention.reflected_blocks import BLOCK, ahead_of, hide, raise_scores
from fastpe.kernels.attention.room import scratch_of
from fastpe.kernels.attention.score import (
    add_bias,
    adds_bias,
    bias_backward,
    score_factor,
    scores_backward,
    scores_of_products,
)
from fastpe.kernels.gemm import transpose
from fastpe.kernels.simd import (
    at,
    blend,
    get,
    lanes,
    load,
    load_first,
    pointer,
    put,
    row,
    scalar,
    splat,
    store,
    store_first,
)


class Others(NamedTuple):
    """What a call has beside reflections, as `calls` takes it: `Inputs`, `Case` and `Room`; memory of every lane;
    backward `Gradients`, of which those of slots and `_rest` are added to, else None."""

    x: Any
    case: Any
    room: Any
    arenas: Any
    gradients: Any


class Beside(NamedTuple):
    """The same of one head: `records.Head`, `Terms` and `HeadGradients`, all of its keys; a lane's `Scratch`."""

    head: Any
    terms: Any
    case: Any
    scratch: Any
    gradients: Any


@inner
def beside_of(others, lane, b, h):
    """None, for which nothing is compiled, where nothing is beside reflections."""
    if others is None:
        return None
    x, case, arena = others.x, others.case, row(others.arenas, lane)
    return Beside(
        head_of_call(x, b, h, None, None, case, arena, None), terms_of(x.slots, x.table, b, h, case), case,
        scratch_of(arena, others.room, at(arena, others.room.cells)),
        _gradients_of(others.gradients, b * case.heads + h, pointer(x.table), case),
    )  # fmt: skip


@inner
def _turned(cells, block, count, target):
    """A tile's cells, key by key, query by query in `target`."""
    transpose(cells, BLOCK * lanes(cells), target, TILE_KEYS, count, block.queries)


@inner
def _turned_back(cells, block, count, target):
    transpose(cells, TILE_KEYS, target, BLOCK * lanes(target), block.queries, count)


@inner
def finish_scores(head, beside, block, first, back, scores, count, sight):
    """Scores of a tile from products with its keys; minus infinity where a key is not seen."""
    if beside is None:
        return
    own, case, scratch = beside.head, beside.case, beside.scratch
    tile = Tile(block.first, block.queries, first, count)
    _turned(scores, block, count, scratch.cells)
    factor = _with_terms(own, beside.terms, tile, back, case, scratch)
    _add_what_is_last(own, tile, factor, case, scratch.cells)
    _turned_back(scratch.cells, block, count, scores)
    raise_scores(head, block, first, scores, count)
    _hide_ahead(scores, count, ahead_of(block, first))
    hide(block, scores, count, sight)


@inner
def _with_terms(head, terms, tile, back, case, scratch):
    """As `score.make_scores`, of the content in `cells`; offsets of keys come later, but under a soft cap."""
    if terms is None:
        return head.scale
    add_relative_products(head, terms, tile, case, scratch)
    factor = scores_of_products(head, terms, tile, back, case, scratch)
    if case.options.softcap > 0.0:
        return factor
    return with_slopes(head.columns, factor, head, tile, scratch.cells)


@inner
def _add_what_is_last(head, tile, factor, case, cells):
    """Cells times the factor, with bias and mask."""
    for i in range(tile.m):
        scale_row(at(cells, i * TILE_KEYS), tile.n, factor)
    if adds_bias(head.table, case):
        add_bias(cells, at_offset(head.bias, tile, case), tile.m, tile.n)
    if given(head.table, MASK):
        lowest = splat(scalar(cells, -np.inf))
        for i in range(tile.m):
            own, mask = at(cells, i * TILE_KEYS), mask_of_row(tile.i0 + i, tile.j0, head)
            for j in range(0, tile.n, lanes(cells)):
                left = tile.n - j
                store_first(own, j, masked(load_first(own, j, left), load_first(mask, j, left), lowest), left)


@inner
def _hide_ahead(scores, count, ahead):
    """Minus infinity where the key stands after the query."""
    lane, hidden = lanes(scores), splat(scalar(scores, -np.inf))
    for j in range(count):
        for i in range(0, BLOCK * lane, lane):
            s = at(scores, j * BLOCK * lane + i)
            store(s, 0, blend(hidden, ahead + j - i, load(s, 0)))


@inner
def mix_offsets(beside, block, first, weights, count, v_width, mixed):
    """mixed (Dv, lanes) += rows of rel_value, by a tile's weights."""
    if beside is not None:
        tile = Tile(block.first, block.queries, first, count)
        _mix_offsets(beside.head, beside.terms, tile, block, weights, v_width, mixed, beside.case, beside.scratch)


@inner
def _mix_offsets(head, terms, tile, block, weights, v_width, mixed, case, scratch):
    if terms is None:
        return
    if not given(head.table, REL_VALUE):
        return
    size = BLOCK * lanes(mixed)
    _turned(weights, block, tile.n, scratch.cells)
    clear(scratch.mixed, tile.m * v_width)
    offsets = offsets_of(terms.rel_value, REL_VALUE, head, tile, case, scratch)
    relative_mix(scratch.cells, offsets, scratch.mixed, v_width, False)
    for i in range(tile.m):
        for c in range(v_width):
            put(mixed, c * size + i, get(mixed, c * size + i) + get(scratch.mixed, i * v_width + c))


# ---------------------------------------------------------------------------------------------------------------------
# Backward


@inner
def offsets_of_weights(beside, block, first, dout, count, dweights):
    """dweights += dout . rel_value."""
    if beside is not None:
        tile = Tile(block.first, block.queries, first, count)
        _offsets_of_weights(beside.head, beside.terms, tile, block, dout, dweights, beside.case, beside.scratch)


@inner
def _offsets_of_weights(head, terms, tile, block, dout, dweights, case, scratch):
    if terms is None:
        return
    if given(head.table, REL_VALUE):
        _turned(dweights, block, tile.n, scratch.dcells)
        offsets = offsets_of(terms.rel_value, REL_VALUE, head, tile, case, scratch)
        relative_scores(dout, case.v_width, offsets, scratch.dcells, False)
        _turned_back(scratch.dcells, block, tile.n, dweights)


@inner
def _add_rel_value(head, terms, drel_value, tile, block, weights, dout, case, scratch):
    """Its gradient, by the weights that mixed it."""
    if terms is None:
        return
    if wanted(head.table, REL_VALUE):
        _turned(weights, block, tile.n, scratch.cells)
        offsets = offsets_of(terms.rel_value, REL_VALUE, head, tile, case, scratch)
        relative_gradient(scratch.cells, dout, case.v_width, drel_value, offsets, False)


@inner
def terms_back(beside, block, first, weights, dout, count, dscores):
    """Gradients of all other terms; dscores: from those of scores to those of the content. weights: those that mixed
    values."""
    if beside is None:
        return
    own, case, scratch, terms = beside.head, beside.case, beside.scratch, beside.terms
    tile, dcells = Tile(block.first, block.queries, first, count), scratch.dcells
    grads = _from_key(beside.gradients, first, case)
    _add_rel_value(own, terms, grads.drel_value, tile, block, weights, dout, case, scratch)
    _turned(dscores, block, count, dcells)
    if wanted(own.table, MASK):
        add_cells(at(grads.dmask, tile.i0 * case.keys + first), case.keys, dcells, TILE_KEYS, tile.m, count)
    if adds_bias(own.table, case) and wanted(own.table, BIAS):
        bias_backward(dcells, at(grads.dbias, case.queries - 1 - tile.i0), tile.m, count)
    factor = score_factor(own, terms, case)
    for i in range(tile.m):
        scale_row(at(dcells, i * TILE_KEYS), count, factor)
    _of_terms(own, terms, grads, tile, case, scratch)
    _turned_back(dcells, block, count, dscores)


@inner
def _of_terms(head, terms, grads, tile, case, scratch):
    if terms is None:
        return
    scores_backward(head, terms, grads, tile, case, scratch)
    products_backward(head, terms, grads, tile, case, scratch)
    if given(head.table, REL_KEY):
        offsets = offsets_of(terms.rel_key, REL_KEY, head, tile, case, scratch)
        relative_mix(scratch.dcells, offsets, at(grads.dq_rest, tile.i0 * case.g_row), case.g_row, False)
    add_query_slopes(head.columns, grads.columns, head.table, tile, scratch)


@inner
def _gradients_of(g, place, table, case):
    """Where those of one head go; of what is `unread` here others take care."""
    if g is None:
        return None
    d, n, m, unread = case.width, case.queries, case.keys, pointer(g.dq)
    offsets = n + m - 1
    return HeadGradients(
        unread, unread, unread, unread, at(pointer(g.dq_rest), place * n * d), unread,
        at(pointer(g.dk_rest), place * m * d), unread, at(pointer(g.dbias), place * offsets),
        at(pointer(g.dgain), place * offsets), unread, at(pointer(g.drel_key), place * rows_of(table, REL_KEY) * d),
        at(pointer(g.drel_query), place * rows_of(table, REL_QUERY) * d),
        at(pointer(g.drel_value), place * rows_of(table, REL_VALUE) * case.v_width),
        at(pointer(g.dkey_bias), place * d), at(pointer(g.dvalues), place * rows_of(table, VALUES)), unread,
        at(pointer(g.dscores), place * n * m), at(pointer(g.dmask), place * n * m), at(pointer(g.dscale), place),
        column_gradients(g.columns, place, NONE, case),
    )  # fmt: skip


@inner
def _from_key(g, first, case):
    """The same, those of keys and over offsets from this key on."""
    return HeadGradients(
        g.dout, g.lse, g.deltas, g.dq, g.dq_rest, g.dk, at(g.dk_rest, first * case.g_row), g.dv, at(g.dbias, first),
        at(g.dgain, first), g.drel_gain, g.drel_key, g.drel_query, g.drel_value, g.dkey_bias, g.dvalues, g.dcounts,
        g.dscores, g.dmask, g.dscale, _columns_from_key(g.columns, first),
    )  # fmt: skip


@inner
def _columns_from_key(columns, first):
    if columns is None:
        return None
    return ColumnGradients(at(columns.dkey_offset, first), at(columns.dkey_slope, first), columns.dquery_slope)
