"""The slot `scores`: S += scores[i, j], a number for each query and key."""

from fastpe.kernels.attention.inputs import gradient_of
from fastpe.kernels.attention.slots import SCORES, floats_of, has_slot, wants_gradient
from fastpe.kernels.attention.tile import TILE_KEYS, add_cells
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import at


@inner
def add_scores(head, terms, tile, case, cells):
    """Add the slot to cells."""
    if has_slot(head.table, SCORES):
        scores = at(floats_of(head.table, SCORES, terms, cells), tile.i0 * case.keys + tile.j0)
        add_cells(cells, TILE_KEYS, scores, case.keys, tile.m, tile.n)


@inner
def slot_scores_backward(head, grads, tile, case, dcells):
    """Add to the gradient of the slot, which is the gradient of the cells. `dcells` is not changed."""
    if wants_gradient(head.table, SCORES):
        target = at(gradient_of(grads.whole, SCORES), tile.i0 * case.keys + tile.j0)
        add_cells(target, case.keys, dcells, TILE_KEYS, tile.m, tile.n)
