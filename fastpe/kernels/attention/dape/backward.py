"""Gradients of attention with a network over scores: see `attention.dape.network`."""

from fastpe.kernels.attention.backward import gradients_from_key, recompute_weights, rel_key_backward, softmax_backward
from fastpe.kernels.attention.dape.forward import finish_scores, make_inner, make_scores, scale_cells
from fastpe.kernels.attention.dape.maps import GRID
from fastpe.kernels.attention.dape.network import (
    block_of,
    bring_tile_near,
    chunk_of,
    clear_around,
    column_of,
    grids_of,
    head_in,
    head_scratch,
    inputs_backward,
    keys_of_chunk,
    units_backward,
)
from fastpe.kernels.attention.inputs import COUNT, NONE, ONE, PLACES, offset_gradient_of
from fastpe.kernels.attention.products import products_backward
from fastpe.kernels.attention.slots import BIAS
from fastpe.kernels.attention.terms.bias import sum_by_offset
from fastpe.kernels.attention.terms.key_query_offsets import add_query_slopes, columns_backward
from fastpe.kernels.attention.terms.scale_and_gain import scale_products_backward
from fastpe.kernels.attention.terms.scores import slot_scores_backward
from fastpe.kernels.attention.terms.softcap import cap_cells_backward
from fastpe.kernels.attention.terms.values import values_backward
from fastpe.kernels.attention.tile import TILE_KEYS, copy_cells
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.products.float_gemm import ONTO
from fastpe.kernels.products.gemm import gemm, transpose_operand
from fastpe.kernels.simd import at, get


@inner
def _scores_backward(head, terms, grads, tile, case, scratch):
    """Compute the gradients of the output of the network for one head, in `dcells`; `cells` holds this output. Add to
    the gradients of all terms that follow the network.
    """
    bring_tile_near(grads.dv, case.gv_row, tile.n, case.v_width)
    factor = finish_scores(head, terms, tile, case, scratch)
    transpose_operand(at(head.v, tile.j0 * case.v_row), case.v_row, scratch.v_columns, TILE_KEYS, tile.n, case.v_width)
    recompute_weights(head, tile, factor, grads.lse, case, scratch)
    softmax_backward(head, terms, grads, tile, factor, False, case, scratch)
    if terms is not None and case.options.softcap > 0.0:
        cap_cells_backward(scratch.dcells, scratch.slopes, tile.m, tile.n)
    columns_backward(head.columns, grads.columns, head, tile, scratch)
    add_query_slopes(head.columns, grads.columns, head.table, tile, scratch)


@inner
def _biases_backward(head, terms, grads, tile, case, cells, scratch):
    """Add the gradients of the biases of a head; cells: the gradient of their sum."""
    if get(grads.sums.places, BIAS * PLACES + COUNT) > 0:
        target = at(offset_gradient_of(grads, BIAS), case.queries - 1 - tile.i0)
        sum_by_offset(cells, target, tile.m, tile.n)
    if terms is not None:
        slot_scores_backward(head, grads, tile, case, cells)
        values_backward(head, terms, grads, tile, case, cells, scratch)


@inner
def _products_backward(head, terms, grads, tile, case, scratch):
    """Add the gradients of a head's queries and keys, and of all terms in its products. `dcells` holds the gradient of
    the products that the network reads. The products are recomputed in `cells` if they are needed.
    """
    d = case.width
    bring_tile_near(grads.dk, case.g_row, tile.n, d)
    if terms is None:
        scale_cells(scratch.dcells, head.scale, tile)
    else:
        if case.keep_raw:
            make_inner(head, terms, tile, case, scratch)
            copy_cells(scratch.cells, scratch.raw, TILE_KEYS, tile.m, tile.n)
            scale_products_backward(head, terms, grads, tile, case, scratch)
        else:
            scale_cells(scratch.dcells, head.scale, tile)
        products_backward(head, terms, grads, tile, case, scratch)
        rel_key_backward(head, terms, grads, tile, case, scratch)
    cells, (i0, m, j0, n) = scratch.dcells, tile
    qr, kr, dq = at(head.qr, i0 * case.qr_row), at(head.kr, j0 * case.kr_row), at(grads.dq, i0 * case.g_row)
    gemm(cells, ONE, TILE_KEYS, qr, case.qr_row, grads.dk, case.g_row, n, d, m, ONTO, grads.dk, case.g_row, qr, NONE)
    gemm(cells, TILE_KEYS, ONE, kr, case.kr_row, dq, case.g_row, m, d, n, ONTO, dq, case.g_row, kr, NONE)


@inner
def backward_block(source, net, dnet, i0, rows, case, workspace, layout):
    """Add the gradients of a block of queries from i0 on, for all heads. source: the argument of `head_in`."""
    grids = grids_of(workspace, layout)
    block = block_of(source, i0, rows, case, grids)
    for start in range(block.low, block.high, keys_of_chunk(net, block)):
        chunk = chunk_of(source, net, block, start, case, grids)
        make_scores(source, net, chunk, case, grids)
        first = column_of(start, chunk)
        for h in range(case.heads):
            own, scratch = head_in(source, h), head_scratch(grids, h, grids.s, first, case)
            grads = gradients_from_key(own.grads, start, case)
            _scores_backward(own.head, own.terms, grads, chunk.scores, case, scratch)
        for i in range(block.m):
            clear_around(at(grids.dx, i * TILE_KEYS), case.heads, first, first + chunk.scores.n, chunk)
        units_backward(source, net, dnet, chunk, case, grids)
        inputs_backward(source, net, dnet, chunk, case, grids)
        column = column_of(chunk.x.j0, chunk)
        for h in range(case.heads):
            own, scratch = head_in(source, h), head_scratch(grids, h, grids.s, column, case)
            grads = gradients_from_key(own.grads, chunk.x.j0, case)
            biases = at(grids.dx, (case.heads + h) * GRID + column)
            _biases_backward(own.head, own.terms, grads, chunk.x, case, biases, scratch)
            _products_backward(own.head, own.terms, grads, chunk.x, case, scratch)
