"""What else is in the scores of attention that goes a way of its own, through reflections or a network.

It is laid out as `calls` takes it. Cells stand key by key on those ways, a lane for each query, and `score` has them
query by query: they are turned for its passes, and turned back.
"""

from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.attention.calls import head_of_call
from fastpe.kernels.attention.inputs import (
    MASK,
    NONE,
    REL_KEY,
    REL_VALUE,
    HeadGradients,
    SlotGradients,
    given,
    gradient_of,
    terms_of,
    wanted,
)
from fastpe.kernels.attention.key_query_offsets import ColumnGradients, column_gradients
from fastpe.kernels.attention.products import products_backward
from fastpe.kernels.attention.relative import offsets_of, relative_gradient, relative_mix, relative_scores
from fastpe.kernels.attention.tile import TILE_KEYS, add_cells
from fastpe.kernels.attention.visibility import mask_of_row, masked
from fastpe.kernels.attention.workspace import scratch_of
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.products.gemm import transpose
from fastpe.kernels.simd import at, lanes, load_first, pointer, row, scalar, splat, store_first


class Others(NamedTuple):
    """What a call has: `Inputs`, `Case` and `Layout`; memory of every lane; backward `Gradients`, of which those of
    slots and `_rest` are added to, else None."""

    x: Any
    case: Any
    layout: Any
    workspaces: Any
    gradients: Any


class Beside(NamedTuple):
    """The same of one head: `inputs.Head`, `Terms` and `HeadGradients`, all of its keys; a lane's `Scratch`."""

    head: Any
    terms: Any
    case: Any
    scratch: Any
    gradients: Any


@inner
def extra_terms_of(others, worker, b, h, place):
    """What belongs to one head; None, for which nothing is compiled, where there is nothing. place: as `gradients_of`
    has it."""
    if others is None:
        return None
    x, case, workspace = others.x, others.case, row(others.workspaces, worker)
    return Beside(
        head_of_call(x, b, h, None, None, case, workspace, None), terms_of(x.slots, x.table, b, h, case), case,
        scratch_of(workspace, others.layout, at(workspace, others.layout.cells)),
        gradients_of(others.gradients, place, b * case.heads + h, case),
    )  # fmt: skip


@inner
def turned(cells, cells_row, tile, target):
    """A tile's cells, key by key, query by query in `target`."""
    transpose(cells, cells_row, target, TILE_KEYS, tile.n, tile.m)


@inner
def turned_back(cells, tile, target, target_row):
    """The other way."""
    transpose(cells, TILE_KEYS, target, target_row, tile.m, tile.n)


@inner
def add_mask(head, tile, cells):
    """Cells with the mask, where there is one."""
    if given(head.table, MASK):
        lowest = splat(scalar(cells, -np.inf))
        for i in range(tile.m):
            own, mask = at(cells, i * TILE_KEYS), mask_of_row(tile.i0 + i, tile.j0, head)
            for j in range(0, tile.n, lanes(cells)):
                left = tile.n - j
                store_first(own, j, masked(load_first(own, j, left), load_first(mask, j, left), lowest), left)


@inner
def add_to_mask(head, grads, tile, dcells, case):
    """Its gradient, where it is wanted: that of cells."""
    if wanted(head.table, MASK):
        whole = gradient_of(grads.whole, MASK)
        add_cells(at(whole, tile.i0 * case.keys + tile.j0), case.keys, dcells, TILE_KEYS, tile.m, tile.n)


@inner
def mix_offsets(head, terms, tile, weights, weights_row, y, y_row, case, scratch):
    """y, a row for each query, += rows of rel_value by weights, key by key; returns whether there are any."""
    if terms is None:
        return False
    if not given(head.table, REL_VALUE):
        return False
    turned(weights, weights_row, tile, scratch.cells)
    offsets = offsets_of(terms.rel_value, REL_VALUE, head, tile, case, scratch)
    relative_mix(scratch.cells, offsets, y, y_row, False)
    return True


@inner
def add_offset_scores(head, terms, tile, dout, dout_row, dweights, row_of_keys, case, scratch):
    """dweights, key by key, += dout . rel_value."""
    if terms is None:
        return
    if given(head.table, REL_VALUE):
        turned(dweights, row_of_keys, tile, scratch.dcells)
        offsets = offsets_of(terms.rel_value, REL_VALUE, head, tile, case, scratch)
        relative_scores(dout, dout_row, offsets, scratch.dcells, False)
        turned_back(scratch.dcells, tile, dweights, row_of_keys)


@inner
def add_rel_value(head, terms, grads, tile, dout, dout_row, weights, row_of_keys, case, scratch):
    """Its gradient, by the weights that mixed it."""
    if terms is None:
        return
    if wanted(head.table, REL_VALUE):
        turned(weights, row_of_keys, tile, scratch.cells)
        offsets = offsets_of(terms.rel_value, REL_VALUE, head, tile, case, scratch)
        relative_gradient(scratch.cells, dout, dout_row, gradient_of(grads.sums, REL_VALUE), offsets, False)


@inner
def relative_backward(head, terms, grads, tile, case, scratch):
    """Gradients of what is in `inner` beside the content. dcells: that of `inner`."""
    products_backward(head, terms, grads, tile, case, scratch)
    if given(head.table, REL_KEY):
        offsets = offsets_of(terms.rel_key, REL_KEY, head, tile, case, scratch)
        relative_mix(scratch.dcells, offsets, at(grads.dq_rest, tile.i0 * case.g_row), case.g_row, False)


@inner
def gradients_of(g, place, own, case):
    """Where those of one head go; of what is `unread` here others take care. place: the number of the head where they
    are sums over queries; own: where they are not."""
    if g is None:
        return None
    d, n, m, unread, buffer, places = (
        case.width,
        case.queries,
        case.keys,
        pointer(g.dq),
        pointer(g.slots),
        pointer(g.places),
    )
    return HeadGradients(
        unread, unread, unread, unread, at(pointer(g.dq_rest), own * n * d), unread,
        at(pointer(g.dk_rest), place * m * d), unread, SlotGradients(buffer, places, NONE, place),
        SlotGradients(buffer, places, NONE, own), NONE, at(pointer(g.dscale), place),
        column_gradients(g.columns, place, NONE, m, case),
    )  # fmt: skip


@inner
def from_key(g, first, case):
    """The same, those of keys and over offsets from this key on."""
    return HeadGradients(
        g.dout, g.lse, g.deltas, g.dq, g.dq_rest, g.dk, at(g.dk_rest, first * case.g_row), g.dv, g.sums, g.whole, first,
        g.dscale, _columns_from_key(g.columns, first),
    )  # fmt: skip


@inner
def _columns_from_key(columns, first):
    if columns is None:
        return None
    return ColumnGradients(at(columns.dkey_offset, first), at(columns.dkey_slope, first), columns.dquery_slope)
