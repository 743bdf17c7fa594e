"""Dropout of attention's weights, tile by tile. The weights of a query for all keys are one row in `rows.dropout`."""

from fastpe.kernels.attention.tile import TILE_KEYS, copy_cells
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.rows.dropout import CELL, drop_row
from fastpe.kernels.simd import at


@inner
def drop_cells(dropout, place, cells, tile, case):
    """Multiply the tile's weights by their factors of dropout. place: the number of the head in dropout.

    If a tile's first key is not the first of a dropout cell, the cell's unused elements before that key are multiplied,
    too.
    """
    if dropout is None:
        return
    if case.dropped:
        i0, m, j0, n = tile
        in_row, before = (case.keys + CELL - 1) // CELL, j0 % CELL
        for i in range(m):
            row = at(cells, i * TILE_KEYS - before)
            drop_row(dropout, row, n + before, (i0 + i) * in_row + j0 // CELL, place)


@inner
def mixed_weights(dropout, place, tile, case, scratch):
    """Return the weights that multiply the tile's values: `cells` itself, or a copy to which dropout is applied."""
    if dropout is None:
        return scratch.cells
    if not case.dropped:
        return scratch.cells
    copy_cells(scratch.cells, scratch.dropped, TILE_KEYS, tile.m, tile.n)
    drop_cells(dropout, place, scratch.dropped, tile, case)
    return scratch.dropped
