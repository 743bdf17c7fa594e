"""What a mask hides where scores go through a network (`attention.dape`): the network reads 0 of a head for a key that
is hidden from it, and its units are 0 for a key that is hidden from all heads.

Masks stand query by query; a chunk's are turned to where its cells lie.
"""

from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.attention.dape.layout import NONE, ONE, ROWS, Block, cell_of
from fastpe.kernels.attention.inputs import place
from fastpe.kernels.attention.slots import GIVEN, HEAD, MASK
from fastpe.kernels.attention.slots import ROW_COUNT as ROWS_OF_SLOT
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.products.gemm import transpose
from fastpe.kernels.simd import (
    at,
    get,
    lanes,
    load,
    maximum,
    minus,
    pointer,
    put,
    scalar,
    splat,
    store,
    where_negative,
    zeros,
)


class Masked(NamedTuple):
    """The masks of one sample: a pointer to the first, how many heads have one of their own (1 where one serves all, 0
    without any), and what lies from one to the next, and from row to row."""

    mask: Any
    masks: int
    head: int
    row: int


@inner
def masked_of(x, b, case):
    """Those of a call."""
    masks = (case.heads if x.table[MASK, HEAD] else ONE) * x.table[MASK, GIVEN]
    first = at(pointer(x.mask), place(x.table, MASK, b, NONE) * x.table[MASK, GIVEN])
    return Masked(first, masks, x.table[MASK, HEAD], x.table[MASK, ROWS_OF_SLOT])


@inner
def masks_of(terms):
    """None, for which nothing is compiled, where there can be none."""
    if terms is None:
        return None
    return terms.masked


@inner
def _hides_from_all(masked, i, key):
    h = NONE
    while h < masked.masks and get(masked.mask, h * masked.head + i * masked.row + key) == -np.inf:
        h += 1
    return h == masked.masks


@inner
def begin_where_shown(masked, block, workspace, layout):
    """The block, whose queries see nothing before the first key that the mask shows them."""
    if masked is None:
        return block
    low, high = at(workspace, layout.low), at(workspace, layout.high)
    if masked.masks == 0:
        return block
    first, last = block.all_start, block.all_end
    for i in range(block.rows):
        key, end = np.int64(get(low, i)), np.int64(get(high, i))
        while key < end and _hides_from_all(masked, block.query + i, key):
            key += 1
        put(low, i, scalar(low, key if key < end else 0))
        put(high, i, scalar(low, end if key < end else 0))
        first, last = max(first, key), min(last, end if key < end else 0)
    return Block(block.query, block.rows, block.start, block.end, first, last)


@inner
def _turn(masked, h, block, start, end, target):
    """The mask of a head for keys of a chunk, a row for each; minus infinity for queries past the last."""
    n, lowest = end - start, splat(scalar(target, -np.inf))
    if block.rows < ROWS:
        for place_of_cell in range(0, n * ROWS, lanes(target)):
            store(target, place_of_cell, lowest)
    source = at(masked.mask, h * masked.head + block.query * masked.row + start)
    transpose(source, masked.row, target, ROWS, block.rows, n)


@inner
def _clear_hidden(x, first, step, grids, mask, start, end, chunk, layout):
    """Zeros in every `step`-th grid from the first one on, where the mask hides a key."""
    lowest = splat(scalar(x, -np.inf))
    for key in range(start, end):
        for lane in range(0, ROWS, lanes(x)):
            shown = minus(load(mask, (key - start) * ROWS + lane) - lowest)  # not a number where a key is hidden
            for number in range(first, grids, step):
                cells = at(x, number * layout.grid + cell_of(key, chunk, layout) + lane)
                store(cells, 0, where_negative(shown, load(cells, 0), zeros(x)))


@inner
def hide_masked(masked, x, grids, block, chunk, workspace, layout):
    """Zeros in x, or its gradients, of a head for keys that are hidden from it; so many grids, all heads once or
    twice."""
    if masked is None:
        return
    mask = at(workspace, layout.mask)
    for h in range(masked.masks):
        _turn(masked, h, block, chunk.x_start, chunk.x_end, mask)
        _clear_hidden(x, h, masked.masks, grids, mask, chunk.x_start, chunk.x_end, chunk, layout)


@inner
def hide_masked_units(masked, u, units, block, chunk, workspace, layout):
    """Zeros in u, or its gradients, for keys that are hidden from all heads."""
    if masked is None:
        return
    if masked.masks == 0:
        return
    mask, own, size = (
        at(workspace, layout.mask),
        at(workspace, layout.mask + layout.grid),
        (chunk.u_end - chunk.u_start) * ROWS,
    )
    _turn(masked, NONE, block, chunk.u_start, chunk.u_end, mask)
    for h in range(ONE, masked.masks):
        _turn(masked, h, block, chunk.u_start, chunk.u_end, own)
        for cell in range(0, size, lanes(u)):
            store(mask, cell, maximum(load(mask, cell), load(own, cell)))
    _clear_hidden(u, NONE, ONE, units, mask, chunk.u_start, chunk.u_end, chunk, layout)
