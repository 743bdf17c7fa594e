"""The slot `bias`: a number for each offset of key and query, S += bias[o].

In most calls there is no term between the products and the bias: `score.score` then adds it where scores are read.
Under a soft cap it is added here, before the cap.
"""

from fastpe.kernels.attention.inputs import at_offset, offset_gradient_of
from fastpe.kernels.attention.slots import BIAS, has_slot, wants_gradient
from fastpe.kernels.attention.tile import TILE_KEYS
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import at, lanes, load_first, store_first


@inner
def add_bias(head, tile, case, cells):
    """Add the bias to cells."""
    if has_slot(head.table, BIAS):
        add_offsets(cells, at_offset(head.bias, tile, case), tile.m, tile.n)


@inner
def bias_backward(head, grads, tile, case, dcells):
    """Add to the gradient of the bias. `dcells`, the gradient of the cells, is not changed."""
    if wants_gradient(head.table, BIAS):
        target = at(offset_gradient_of(grads, BIAS), case.queries - 1 - tile.i0)
        sum_by_offset(dcells, target, tile.m, tile.n)


@inner
def add_offsets(cells, bias, m, n):
    """cells += bias, where `bias` points to the bias of the tile's entry (0, 0)."""
    for i in range(m):
        row, offsets = at(cells, i * TILE_KEYS), at(bias, -i)
        for j in range(0, n, lanes(cells)):
            store_first(row, j, load_first(row, j, n - j) + load_first(offsets, j, n - j), n - j)


@inner
def sum_by_offset(cells, dbias, m, n):
    """Sum the gradients of cells for each offset, and add the sums to dbias."""
    for i in range(m):
        row, offsets = at(cells, i * TILE_KEYS), at(dbias, -i)
        for j in range(0, n, lanes(cells)):
            store_first(offsets, j, load_first(offsets, j, n - j) + load_first(row, j, n - j), n - j)
