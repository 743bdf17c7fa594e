"""Forward pass of attention with a network over scores: see `attention.dape.network`."""

from fastpe.kernels.attention.dape.maps import GRID
from fastpe.kernels.attention.dape.network import (
    block_of,
    chunk_of,
    column_of,
    grids_of,
    head_in,
    head_scratch,
    hide_inputs,
    keys_of_chunk,
    make_units,
    read_out,
)
from fastpe.kernels.attention.forward import finish_rows, weigh_values
from fastpe.kernels.attention.inputs import NONE, at_offset
from fastpe.kernels.attention.products import make_content, make_products, prepare_keys
from fastpe.kernels.attention.terms.bias import add_offsets
from fastpe.kernels.attention.terms.key_query_offsets import choose_base, with_columns
from fastpe.kernels.attention.terms.scale_and_gain import scale_products
from fastpe.kernels.attention.terms.scores import add_scores
from fastpe.kernels.attention.terms.softcap import cap_cells
from fastpe.kernels.attention.terms.values import add_values
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES, clear, scale_row
from fastpe.kernels.attention.visibility import visible_of_block
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.products.float_gemm import ONTO
from fastpe.kernels.simd import at, scalar


@inner
def make_inner(head, terms, tile, case, scratch):
    """Compute a head's products, before the scale."""
    prepare_keys(head, terms, tile, case, scratch)
    if terms is None:
        keys = at(head.kr, tile.j0 * case.kr_row)
        make_content(at(head.qr, tile.i0 * case.qr_row), case.qr_row, keys, case.kr_row, head, tile, case, scratch)
    else:
        make_products(head, terms, tile, case, scratch)


@inner
def scale_cells(cells, scale, tile):
    for i in range(tile.m):
        scale_row(at(cells, i * TILE_KEYS), tile.n, scale)


@inner
def _make_content(head, terms, tile, case, scratch):
    """Compute the products of a head that the network reads."""
    make_inner(head, terms, tile, case, scratch)
    if terms is None:
        scale_cells(scratch.cells, head.scale, tile)
    else:
        scale_products(head, terms, tile, case, scratch.cells)


@inner
def _make_biases(head, terms, net, tile, case, cells):
    """Compute the sum of all biases of a head."""
    for i in range(tile.m):
        clear(at(cells, i * TILE_KEYS), tile.n)
    if net.biased:
        add_offsets(cells, at_offset(head.bias, tile, case), tile.m, tile.n)
    if terms is not None:
        add_values(head, terms, tile, case, cells)
        add_scores(head, terms, tile, case, cells)


@inner
def make_scores(source, net, chunk, case, grids):
    """Compute x, u and the scores of a chunk, also for hidden keys. The terms that follow the network are not added
    here.
    """
    column = column_of(chunk.x.j0, chunk)
    for h in range(case.heads):
        own, scratch = head_in(source, h), head_scratch(grids, h, grids.x, column, case)
        _make_content(own.head, own.terms, chunk.x, case, scratch)
        _make_biases(own.head, own.terms, net, chunk.x, case, at(grids.x, (case.heads + h) * GRID + column))
    hide_inputs(source, grids.x, chunk, case)
    make_units(source, net, chunk, case, grids)
    read_out(net, chunk, case, grids)


@inner
def finish_scores(head, terms, tile, case, scratch):
    """Add the terms that follow the network to a head's scores; return their factor, as `score.make_scores` does."""
    factor = with_columns(head.columns, scalar(scratch.cells, 1.0), head, tile, case, scratch)
    if terms is None:
        return factor
    if case.options.softcap > 0.0:
        cap_cells(scratch.cells, scratch.slopes, case.options.softcap, tile.m, tile.n, case.keep_slopes)
    return factor


@inner
def _choose_bases(source, i0, case):
    """Choose the bases of the block of TILE_QUERIES queries that contains i0. All smaller blocks inside this block get
    the same bases.
    """
    for h in range(case.heads):
        head = head_in(source, h).head
        first = i0 // TILE_QUERIES * TILE_QUERIES
        low, high = visible_of_block(first, min(TILE_QUERIES, head.query_length - first), head, case)
        choose_base(head.columns, head.table, first, low, high, case)


@inner
def forward_block(source, net, i0, rows, case, workspace, layout):
    """Compute outputs and lse of a block of queries from i0 on, for all heads. source: the argument of `head_in`."""
    grids = grids_of(workspace, layout)
    block = block_of(source, i0, rows, case, grids)
    _choose_bases(source, i0, case)
    for start in range(block.low, block.high, keys_of_chunk(net, block)):
        chunk = chunk_of(source, net, block, start, case, grids)
        make_scores(source, net, chunk, case, grids)
        for h in range(case.heads):
            own, scratch = head_in(source, h), head_scratch(grids, h, grids.s, column_of(start, chunk), case)
            factor = finish_scores(own.head, own.terms, chunk.scores, case, scratch)
            weigh_values(
                own.head, own.terms, chunk.scores, factor, ONTO, False, scratch.mixed, case.v_width, case, scratch
            )
    for h in range(case.heads):
        own, scratch = head_in(source, h), head_scratch(grids, h, grids.s, NONE, case)
        sums = at(scratch.stats, TILE_QUERIES)
        finish_rows(scratch.stats, sums, i0, block.m, own.out, own.lse, case, scratch)
