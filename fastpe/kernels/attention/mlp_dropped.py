"""Dropout of the weights of attention through a network (`mlp`): which are dropped is found row by row, as elsewhere
(`dropped`), and turned to where a chunk's cells lie."""

from typing import Any, NamedTuple

from fastpe.kernels._jit import inner
from fastpe.kernels.attention.mlp import ACROSS, NONE, ROWS, cell_of
from fastpe.kernels.dropout import CELL, drop_row, place_in
from fastpe.kernels.gemm import transpose
from fastpe.kernels.simd import at, lanes, load, scalar, splat, store


class Drops(NamedTuple):
    """What one sample needs to drop weights."""

    dropout: Any
    place: int  # that of its first head
    in_row: int  # cells of dropout


@inner
def drops_of(dropout, place, keys):
    """None without dropout: then nothing of this is compiled. keys: how many a row has, padding too."""
    if dropout is None:
        return None
    return Drops(dropout, place, (keys + CELL - 1) // CELL)


@inner
def _make_factors(drops, h, block, chunk, arena, room):
    """What a head's weights of a chunk are multiplied by, a row for each key."""
    rows, one, first = at(arena, room.drawn), splat(scalar(arena, 1.0)), chunk.start // CELL
    count, place = ((chunk.end - 1) // CELL + 1 - first) * CELL, place_in(drops.dropout, NONE, drops.place + h)
    for i in range(ROWS):
        own = at(rows, i * ACROSS)
        for j in range(0, count, lanes(rows)):
            store(own, j, one)
        if i < block.rows:
            drop_row(drops.dropout, own, count, (block.query + i) * drops.in_row + first, place)
    transpose(at(rows, chunk.start - first * CELL), ACROSS, at(arena, room.kept), ROWS, ROWS, ROWS)


@inner
def _times_factors(x, target, chunk, arena, room):
    """target = x, cells of a chunk, times their factors."""
    kept = at(arena, room.kept)
    for cell in range(0, (chunk.end - chunk.start) * ROWS, lanes(x)):
        store(target, cell, load(x, cell) * load(kept, cell))


@inner
def drop_weights(drops, h, block, chunk, arena, room):
    """A head's weights in place of its scores, in place."""
    if drops is not None:
        own = at(arena, room.s + h * room.grid + cell_of(chunk.start, chunk, room))
        _make_factors(drops, h, block, chunk, arena, room)
        _times_factors(own, own, chunk, arena, room)


@inner
def mixed_weights(drops, weights, target, h, block, chunk, arena, room):
    """What a chunk's values were mixed with: its weights themselves, or, in the target, what was kept of them."""
    if drops is None:
        return weights
    _make_factors(drops, h, block, chunk, arena, room)
    _times_factors(weights, target, chunk, arena, room)
    return target


@inner
def drop_again(drops, x, chunk, arena, room):
    """Cells of a chunk times the factors that `mixed_weights` has left, in place."""
    if drops is not None:
        _times_factors(x, x, chunk, arena, room)
