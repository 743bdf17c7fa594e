"""The slots `values` and `index`: S += values[index], a number selected for each query and key."""

import numpy as np

from fastpe.kernels.attention.inputs import gradient_of
from fastpe.kernels.attention.slots import INDEX, VALUES, floats_of, has_slot, integers_of, rows_of, wants_gradient
from fastpe.kernels.attention.tile import TILE_KEYS, add_scaled, clear
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import at, get, put, scalar


@inner
def add_values(head, terms, tile, case, cells):
    """Add the selected values to cells."""
    if has_slot(head.table, VALUES):
        index = at(integers_of(head.table, INDEX, terms), tile.i0 * case.keys + tile.j0)
        values = floats_of(head.table, VALUES, terms, cells)
        _add_values(cells, index, case.keys, values, tile.m, tile.n)


@inner
def values_backward(head, terms, grads, tile, case, dcells, scratch):
    """Add to the gradient of the values. `dcells`, the gradient of the cells, is not changed."""
    if wants_gradient(head.table, VALUES):
        index = at(integers_of(head.table, INDEX, terms), tile.i0 * case.keys + tile.j0)
        count = rows_of(head.table, VALUES)
        dvalues = gradient_of(grads.sums, VALUES)
        _values_backward(dcells, index, case.keys, dvalues, scratch.values, count, tile.m, tile.n)


@inner
def _add_values(cells, index, index_row, values, m, n):
    """cells[i, j] += values[index[i, j]]."""
    for i in range(m):
        for j in range(n):
            where = np.int64(get(index, i * index_row + j))
            put(cells, i * TILE_KEYS + j, get(cells, i * TILE_KEYS + j) + get(values, where))


@inner
def _values_backward(cells, index, index_row, dvalues, own, count, m, n):
    """dvalues[index[i, j]] += cells[i, j].

    If there are at most as many values as cells, the tile is first summed in `own`.
    """
    if count > m * n:
        _add_by_index(cells, index, index_row, dvalues, m, n)
        return
    clear(own, count)
    _add_by_index(cells, index, index_row, own, m, n)
    add_scaled(dvalues, scalar(own, 1.0), own, count)


@inner
def _add_by_index(cells, index, index_row, dvalues, m, n):
    for i in range(m):
        for j in range(n):
            where = np.int64(get(index, i * index_row + j))
            put(dvalues, where, get(dvalues, where) + get(cells, i * TILE_KEYS + j))
