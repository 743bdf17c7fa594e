"""Dropout of the weights of attention through a network (`attention.dape`): which are dropped is found row by row, as
elsewhere (`dropout`), and turned to where a chunk's cells lie."""

from typing import Any, NamedTuple

from fastpe.kernels.attention.dape.layout import NONE, ROWS, cell_of
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.products.gemm import transpose
from fastpe.kernels.rows.dropout import CELL, drop_row, drops, place_in
from fastpe.kernels.simd import at, lanes, load, scalar, splat, store


class Drops(NamedTuple):
    """What one sample needs to drop weights."""

    dropout: Any
    on: bool
    place: int  # that of its first head
    in_row: int  # cells of dropout


@inner
def drops_of(dropout, place, keys):
    """None without dropout: then nothing of this is compiled. keys: how many a row has, padding too."""
    if dropout is None:
        return None
    return Drops(dropout, drops(dropout), place, (keys + CELL - 1) // CELL)


@inner
def _draw(drops, h, block, cell, target, workspace, layout):
    """The factors of one cell of every query's row, a row for each key."""
    drawn, one, place = (
        at(workspace, layout.drawn),
        splat(scalar(workspace, 1.0)),
        place_in(drops.dropout, NONE, drops.place + h),
    )
    for i in range(ROWS):
        own = at(drawn, i * CELL)
        for j in range(0, CELL, lanes(drawn)):
            store(own, j, one)
        if i < block.rows:
            drop_row(drops.dropout, own, CELL, (block.query + i) * drops.in_row + cell, place)
    transpose(drawn, CELL, target, ROWS, ROWS, CELL)


@inner
def _make_factors(drops, h, block, chunk, workspace, layout):
    """What a head's weights of a chunk are multiplied by. A cell reaches beyond a chunk: it stays for the next."""
    kept, turned, start = at(workspace, layout.kept), at(workspace, layout.turned_cell + h * CELL * ROWS), chunk.start
    while start < chunk.end:
        cell = start // CELL
        if start == max(block.start, cell * CELL):  # no chunk before had a key of it
            _draw(drops, h, block, cell, turned, workspace, layout)
        end = min(chunk.end, (cell + 1) * CELL)
        own, target = at(turned, (start - cell * CELL) * ROWS), at(kept, (start - chunk.start) * ROWS)
        for place in range(0, (end - start) * ROWS, lanes(kept)):
            store(target, place, load(own, place))
        start = end


@inner
def _times_factors(x, target, chunk, workspace, layout):
    """target = x, cells of a chunk, times their factors."""
    kept = at(workspace, layout.kept)
    for cell in range(0, (chunk.end - chunk.start) * ROWS, lanes(x)):
        store(target, cell, load(x, cell) * load(kept, cell))


@inner
def drop_weights(drops, h, block, chunk, workspace, layout):
    """A head's weights in place of its scores, in place."""
    if drops is None:
        return
    if drops.on:
        own = at(workspace, layout.s + h * layout.grid + cell_of(chunk.start, chunk, layout))
        _make_factors(drops, h, block, chunk, workspace, layout)
        _times_factors(own, own, chunk, workspace, layout)


@inner
def mixed_weights(drops, weights, target, h, block, chunk, workspace, layout):
    """What a chunk's values were mixed with: its weights themselves, or, in the target, what was kept of them."""
    if drops is None:
        return weights
    if not drops.on:
        return weights
    _make_factors(drops, h, block, chunk, workspace, layout)
    _times_factors(weights, target, chunk, workspace, layout)
    return target


@inner
def drop_again(drops, x, chunk, workspace, layout):
    """Cells of a chunk times the factors that `mixed_weights` has left, in place."""
    if drops is None:
        return
    if drops.on:
        _times_factors(x, x, chunk, workspace, layout)
