"""Dropout of weights on their way through reflections: the same are dropped as without (`dropout`).

Weights of a block stand key by key, a lane for each query, and cells of dropout along the row of a query. So a cell's
factors are made row by row and turned, once for the tiles that share them.
"""

from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.attention.path.blocks import BLOCK
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.products.gemm import transpose
from fastpe.kernels.rows.dropout import CELL, drop_row, drops
from fastpe.kernels.simd import at, lanes, load, scalar, splat, store

NOTHING = np.int64(-1)  # in the place of the cell whose factors lie there


class Dropped(NamedTuple):
    """What drops the weights of a head, if anything does: its place in the sequence, how many cells a row has, and a
    pointer to the factors of a cell, (CELL, lanes), with room behind them for those of a vector of queries, row by
    row."""

    dropout: Any
    on: bool
    place: int
    in_row: int
    factors: Any


@inner
def dropped_of(dropout, place, keys, factors):
    """None, for which nothing is compiled, where nothing is dropped out."""
    if dropout is None:
        return None
    return Dropped(dropout, drops(dropout), place, (keys + CELL - 1) // CELL, factors)


@inner
def lay_factors(dropped, block, first, held):
    """Those of the cell in which a tile lies, where they are not there: they are of the cell `held`. Returns whose they
    are now."""
    if dropped is None:
        return held
    if not dropped.on:
        return held
    cell, lane = first // CELL, lanes(dropped.factors)
    if cell == held:
        return held
    size, one = BLOCK * lane, splat(scalar(dropped.factors, 1.0))
    rows = at(dropped.factors, CELL * size)
    for i in range(0, size, lane):  # lanes without a query too: sums go over all of them, and NaN would stay
        for j in range(0, lane * CELL, lane):
            store(rows, j, one)
        for r in range(lane):
            number = (block.first + i + r) * dropped.in_row + cell
            drop_row(dropped.dropout, at(rows, r * CELL), CELL, number, dropped.place)
        transpose(rows, CELL, at(dropped.factors, i), size, lane, CELL)
    return cell


@inner
def drop_tile(dropped, first, weights, count):
    """A tile's weights, or their gradients, times the factors that lie there."""
    if dropped is None:
        return
    if not dropped.on:
        return
    lane = lanes(weights)
    size = BLOCK * lane
    factors = at(dropped.factors, first % CELL * size)
    for i in range(0, count * size, lane):
        store(weights, i, load(weights, i) * load(factors, i))


@inner
def margin(dropped, near):
    """How many numbers lie before the weights of a row's keys from `near` on, for a cell to begin with the first."""
    if dropped is None:
        return near * 0
    return near % CELL


@inner
def drop_from(dropped, i, weights, near, last):
    """Query i's weights of the keys near .. last - 1, behind their margin."""
    if dropped is None:
        return
    if not dropped.on:
        return
    count = near % CELL + last - near
    drop_row(dropped.dropout, weights, count, i * dropped.in_row + near // CELL, dropped.place)
