"""All other terms of the score beside a network over scores (`attention.dape`), a tile of a head at a time (see
`extra_terms`).

Products of rows over offsets, the scale, `rectify` and gains come before the network, which reads what they make of the
content. Columns, the soft cap and the mask come after it. Biases are the network's own.

Offsets of keys are taken less the largest that a block of queries may see, its base, as in `key_query_offsets`, unless
there is a soft cap, which sees whole scores; lse is left less the base."""

from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.attention.dape.layout import ROWS, cell_of
from fastpe.kernels.attention.extra_terms import (
    add_mask,
    add_offset_scores,
    add_rel_value,
    add_to_mask,
    extra_terms_in,
    from_key,
    mix_offsets,
    relative_backward,
    turned,
    turned_back,
)
from fastpe.kernels.attention.inputs import Tile
from fastpe.kernels.attention.products import add_relative_products
from fastpe.kernels.attention.score import scale_products, scale_products_backward
from fastpe.kernels.attention.slots import KEY_OFFSET, MASK, has_slot
from fastpe.kernels.attention.terms.key_query_offsets import add_query_slopes, columns_backward, with_slopes
from fastpe.kernels.attention.terms.softcap import cap_cells, cap_cells_backward
from fastpe.kernels.attention.tile import TILE_KEYS, copy_cells, scale_row
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import (
    at,
    get,
    keep_first,
    lanes,
    largest,
    load_first,
    maximum,
    minus,
    put,
    scalar,
    splat,
    store_first,
    where_negative,
)

_LEAST = -1e36  # above `dape.layout.HIDDEN`


class Terms(NamedTuple):
    """What a lane has of the terms of one sample."""

    given: Any  # what `extra_terms_in` takes
    masked: Any  # `dape.masks.Masked`, None where no mask is compiled
    bases: Any  # pointer to those of all queries, (H, N), which nobody reads where keys have no offsets
    bases_head: int


@inner
def _of_head(terms, h):
    return extra_terms_in(terms.given, h)


@inner
def _base_at(terms, h, query):
    return at(terms.bases, h * terms.bases_head + query)


@inner
def factor_of(terms, side, h):
    """What a head's queries are multiplied by: other terms multiply products by the scale."""
    if terms is None:
        return get(side.scale, h)
    return scalar(side.q, 1.0)


@inner
def choose_bases(terms, heads, block):
    """Those of a block of queries."""
    if terms is None:
        return
    for h in range(heads):
        own = _of_head(terms, h)
        _choose(own.head, own.head.columns, own.case, block, _base_at(terms, h, block.query))


@inner
def _choose(head, columns, case, block, bases):
    """The largest offset of a key that a query of the block sees; 0 under a soft cap."""
    if columns is None:
        return
    if not has_slot(head.table, KEY_OFFSET):
        return
    base = 0.0
    if block.end > block.start and not case.options.softcap > 0.0:
        lowest = scalar(columns.key_offset, -np.inf)
        best = splat(lowest)
        for j in range(block.start, block.end, lanes(columns.key_offset)):
            left = block.end - j
            best = maximum(best, keep_first(load_first(columns.key_offset, j, left), left, lowest))
        base = largest(best)
    for i in range(block.rows):
        put(bases, i, scalar(bases, base))


# ---------------------------------------------------------------------------------------------------------------------
# Before the network


@inner
def finish_products(terms, h, block, first, n, content):
    """From products of queries and n keys, key by key, to what a network reads of a head."""
    if terms is None:
        return
    own = _of_head(terms, h)
    for start in range(0, n, TILE_KEYS):
        tile, cells = Tile(block.query, block.rows, first + start, min(TILE_KEYS, n - start)), own.scratch.cells
        turned(at(content, start * ROWS), ROWS, tile, cells)
        _finish(own.head, own.terms, tile, own.case, own.scratch)
        turned_back(cells, tile, at(content, start * ROWS), ROWS)


@inner
def _finish(head, terms, tile, case, scratch):
    if terms is None:
        for i in range(tile.m):
            scale_row(at(scratch.cells, i * TILE_KEYS), tile.n, head.scale)
    else:
        add_relative_products(head, terms, tile, case, scratch)
        scale_products(head, terms, tile, case, scratch.cells)


@inner
def products_back(terms, h, block, first, n, content, dcontent):
    """The gradients of `finish_products`; content: again the products alone."""
    if terms is None:
        return
    own = _of_head(terms, h)
    for start in range(0, n, TILE_KEYS):
        tile, scratch = Tile(block.query, block.rows, first + start, min(TILE_KEYS, n - start)), own.scratch
        turned(at(content, start * ROWS), ROWS, tile, scratch.cells)
        turned(at(dcontent, start * ROWS), ROWS, tile, scratch.dcells)
        _back(own.head, own.terms, from_key(own.gradients, tile.j0, own.case), tile, own.case, scratch)
        turned_back(scratch.dcells, tile, at(dcontent, start * ROWS), ROWS)


@inner
def _back(head, terms, grads, tile, case, scratch):
    if terms is None:
        for i in range(tile.m):
            scale_row(at(scratch.dcells, i * TILE_KEYS), tile.n, head.scale)
    else:
        add_relative_products(head, terms, tile, case, scratch)
        copy_cells(scratch.cells, scratch.raw, TILE_KEYS, tile.m, tile.n)
        scale_products_backward(head, terms, grads, tile, case, scratch)
        relative_backward(head, terms, grads, tile, case, scratch)


# ---------------------------------------------------------------------------------------------------------------------
# After the network


@inner
def _tile(block, chunk):
    return Tile(block.query, block.rows, chunk.start, chunk.end - chunk.start)


@inner
def finish_scores(terms, h, block, chunk, workspace, layout):
    """A head's scores of a chunk, from what the network has left of them."""
    if terms is None:
        return
    own, tile, base = _of_head(terms, h), _tile(block, chunk), _base_at(terms, h, block.query)
    s, cells = at(workspace, layout.s + h * layout.grid + cell_of(chunk.start, chunk, layout)), own.scratch.cells
    turned(s, ROWS, tile, cells)
    with_slopes(own.head.columns, scalar(cells, 1.0), own.head, tile, cells)
    _add_offsets(own.head, own.head.columns, tile, base, cells)
    if own.case.options.softcap > 0.0:
        keeps = own.case.keep_slopes
        cap_cells(cells, own.scratch.slopes, own.case.options.softcap, tile.m, tile.n, keeps)
    add_mask(own.head, tile, cells)
    if has_slot(own.head.table, MASK):
        _raise_least(tile, cells)
    turned_back(cells, tile, s, ROWS)


@inner
def _raise_least(tile, cells):
    """What a mask makes as good as hidden stays above what is: rows of nothing else share their weight."""
    least, lowest = splat(scalar(cells, _LEAST)), splat(scalar(cells, -np.inf))
    for i in range(tile.m):
        own = at(cells, i * TILE_KEYS)
        for j in range(0, tile.n, lanes(cells)):
            x = load_first(own, j, tile.n - j)
            store_first(own, j, where_negative(minus(x - lowest), maximum(x, least), lowest), tile.n - j)


@inner
def _add_offsets(head, columns, tile, base, cells):
    """base: pointer to that of the tile's queries."""
    if columns is None:
        return
    if not has_slot(head.table, KEY_OFFSET):
        return
    less = np.float64(get(base, 0))
    for j in range(tile.n):
        offset = scalar(cells, get(columns.key_offset, tile.j0 + j) - less)
        for i in range(tile.m):
            put(cells, i * TILE_KEYS + j, get(cells, i * TILE_KEYS + j) + offset)


@inner
def mix_rel_value(terms, h, block, chunk, weights, out, v_width):
    """out, a row for each query, += rows of rel_value by a chunk's weights."""
    if terms is not None:
        own = _of_head(terms, h)
        mix_offsets(
            own.head, own.terms, _tile(block, chunk), weights, ROWS, out, v_width, own.case, own.scratch
        )  # fmt: skip


@inner
def of_offsets(terms, h, block, chunk, dout, dout_row, weights):
    """Adds the gradient of rel_value. weights: those that mixed it."""
    if terms is not None:
        own, tile = _of_head(terms, h), _tile(block, chunk)
        grads = from_key(own.gradients, tile.j0, own.case)
        add_rel_value(own.head, own.terms, grads, tile, dout, dout_row, weights, ROWS, own.case, own.scratch)


@inner
def add_offsets_to(terms, h, block, chunk, dout, dout_row, dweights):
    """dweights += dout . rel_value."""
    if terms is not None:
        own, tile = _of_head(terms, h), _tile(block, chunk)
        add_offset_scores(own.head, own.terms, tile, dout, dout_row, dweights, ROWS, own.case, own.scratch)


@inner
def scores_back(terms, h, block, chunk, dscores):
    """The gradients of `finish_scores`, which was the last to be called, of this head; dscores: from those of its
    scores to those of what it was given."""
    if terms is None:
        return
    own, tile = _of_head(terms, h), _tile(block, chunk)
    scratch, grads = own.scratch, from_key(own.gradients, tile.j0, own.case)
    turned(dscores, ROWS, tile, scratch.dcells)
    add_to_mask(own.head, grads, tile, scratch.dcells, own.case)
    if own.case.options.softcap > 0.0:
        cap_cells_backward(scratch.dcells, scratch.slopes, tile.m, tile.n)
    columns_backward(own.head.columns, grads.columns, own.head, tile, scratch)
    add_query_slopes(own.head.columns, grads.columns, own.head.table, tile, scratch)
    turned_back(scratch.dcells, tile, dscores, ROWS)
