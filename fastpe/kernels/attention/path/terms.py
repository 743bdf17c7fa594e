"""All other terms of the score beside reflections: those of `score`, and masks, a tile at a time (see `extra_terms`).

Content that is mapped, turned or scaled comes so to `path.forward`; queries and keys as they were are here. 10 moves a
cell at most, of 8 D FLOP and more.
"""

import numpy as np

from fastpe.kernels.attention.extra_terms import (
    add_mask,
    add_offset_scores,
    add_rel_value,
    add_to_mask,
    from_key,
    mix_offsets,
    relative_backward,
    turned,
    turned_back,
)
from fastpe.kernels.attention.inputs import ONE, Tile, at_offset, offset_gradient_of
from fastpe.kernels.attention.path.blocks import BLOCK, ahead_of, hide, raise_scores
from fastpe.kernels.attention.products import add_relative_products
from fastpe.kernels.attention.score import (
    adds_bias,
    score_factor,
    scores_backward,
    scores_of_products,
)
from fastpe.kernels.attention.slots import BIAS, wants_gradient
from fastpe.kernels.attention.terms.bias import add_offsets, sum_by_offset
from fastpe.kernels.attention.terms.key_query_offsets import add_query_slopes, with_slopes
from fastpe.kernels.attention.tile import TILE_KEYS, clear, copy_cells, scale_row
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import at, blend, get, lanes, load, put, scalar, splat, store


@inner
def _tile(block, first, count):
    return Tile(block.first, block.queries, first, count)


@inner
def finish_scores(head, beside, block, first, back, scores, count, visibility):
    """Scores of a tile from products with its keys; minus infinity where a key is not seen."""
    if beside is None:
        return
    own, case, scratch, tile = beside.head, beside.case, beside.scratch, _tile(block, first, count)
    size = BLOCK * lanes(scores)
    turned(scores, size, tile, scratch.cells)
    factor = _with_terms(own, beside.terms, tile, back, case, scratch)
    _add_what_is_last(own, tile, factor, case, scratch.cells)
    turned_back(scratch.cells, tile, scores, size)
    raise_scores(head, block, first, scores, count)
    _hide_ahead(scores, count, ahead_of(block, first))
    hide(block, scores, count, visibility)


@inner
def finish_row(beside, i, near, last, scores):
    """As `finish_scores`, of the keys near .. last - 1 of query i, but for their offsets."""
    if beside is None:
        return
    own, case, cells = beside.head, beside.case, beside.scratch.cells
    for first in range(near, last, TILE_KEYS):
        tile, row = Tile(i, ONE, first, min(TILE_KEYS, last - first)), at(scores, first - near)
        copy_cells(row, cells, TILE_KEYS, ONE, tile.n)
        factor = _with_terms(own, beside.terms, tile, False, case, beside.scratch)
        _add_what_is_last(own, tile, factor, case, cells)
        copy_cells(cells, row, TILE_KEYS, ONE, tile.n)


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
        add_offsets(cells, at_offset(head.bias, tile, case), tile.m, tile.n)
    add_mask(head, tile, cells)


@inner
def _hide_ahead(scores, count, ahead):
    """Minus infinity where the key stands after the query."""
    lane, hidden = lanes(scores), splat(scalar(scores, -np.inf))
    for j in range(count):
        for i in range(0, BLOCK * lane, lane):
            s = at(scores, j * BLOCK * lane + i)
            store(s, 0, blend(hidden, ahead + j - i, load(s, 0)))


@inner
def mix_rel_value(beside, block, first, weights, count, v_width, mixed):
    """mixed (Dv, lanes) += rows of rel_value, by a tile's weights."""
    if beside is None:
        return
    tile, size, own = _tile(block, first, count), BLOCK * lanes(mixed), beside.scratch.mixed
    clear(own, tile.m * v_width)
    if mix_offsets(beside.head, beside.terms, tile, weights, size, own, v_width, beside.case, beside.scratch):
        for i in range(tile.m):
            for c in range(v_width):
                put(mixed, c * size + i, get(mixed, c * size + i) + get(own, i * v_width + c))


@inner
def mix_rel_value_of_row(beside, i, near, last, weights, v_width, y):
    """y += rows of rel_value, by the weights of query i's keys near .. last - 1."""
    if beside is None:
        return
    for first in range(near, last, TILE_KEYS):
        tile, own = Tile(i, ONE, first, min(TILE_KEYS, last - first)), at(weights, first - near)
        mix_offsets(beside.head, beside.terms, tile, own, ONE, y, v_width, beside.case, beside.scratch)


# ---------------------------------------------------------------------------------------------------------------------
# Backward


@inner
def offsets_of_weights(beside, block, first, dout, count, dweights):
    """dweights += dout . rel_value."""
    if beside is not None:
        tile, size, case = _tile(block, first, count), BLOCK * lanes(dweights), beside.case
        add_offset_scores(beside.head, beside.terms, tile, dout, case.v_width, dweights, size, case, beside.scratch)


@inner
def terms_back(beside, block, first, weights, dout, count, dscores):
    """Gradients of all other terms; dscores: from those of scores to those of the content. weights: those that mixed
    values."""
    if beside is None:
        return
    own, case, scratch, terms = beside.head, beside.case, beside.scratch, beside.terms
    tile, dcells, size = _tile(block, first, count), scratch.dcells, BLOCK * lanes(dscores)
    grads = from_key(beside.gradients, first, case)
    add_rel_value(own, terms, grads, tile, dout, case.v_width, weights, size, case, scratch)
    turned(dscores, size, tile, dcells)
    add_to_mask(own, grads, tile, dcells, case)
    if adds_bias(own.table, case) and wants_gradient(own.table, BIAS):
        sum_by_offset(dcells, at(offset_gradient_of(grads, BIAS), case.queries - 1 - tile.i0), tile.m, count)
    factor = score_factor(own, terms, case)
    for i in range(tile.m):
        scale_row(at(dcells, i * TILE_KEYS), count, factor)
    _of_terms(own, terms, grads, tile, case, scratch)
    turned_back(dcells, tile, dscores, size)


@inner
def _of_terms(head, terms, grads, tile, case, scratch):
    if terms is None:
        return
    scores_backward(head, terms, grads, tile, case, scratch)
    relative_backward(head, terms, grads, tile, case, scratch)
    add_query_slopes(head.columns, grads.columns, head.table, tile, scratch)
