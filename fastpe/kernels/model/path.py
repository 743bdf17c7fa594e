"""The attention of a layer that computes reflections (`model.reflections`): `kernels.attention` for each head."""

from fastpe.kernels.attention.backward import prepare_deltas
from fastpe.kernels.attention.forward import forward_rows
from fastpe.kernels.attention.inputs import HeadPath, terms_of
from fastpe.kernels.attention.path.backward import PathGradients, head_backward
from fastpe.kernels.attention.path.content import OF_PAIR, subtile_products
from fastpe.kernels.attention.tile import FEW, SUBTILE, TILE_QUERIES
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.model.attention_head import (
    gradients_of,
    lse_of,
    mixed_of,
    reflected_head_of,
    scratch_memory,
    transient_of,
)
from fastpe.kernels.model.reflections import NONE, RANK, given_of_head, made_of_head
from fastpe.kernels.simd import at


@inner
def _head_of(back, layer, h, act, scratch, position, dropout, place_of_first, own, sizes, a):
    """Return one head with its reflections, and compute the products of reflectors and keys. With few queries, the
    forward pass (`back` is false) does not need these products."""
    w, beta = made_of_head(h, act, own, sizes, a)
    path, case = HeadPath(w, beta, scratch.path.products), position.case
    head = reflected_head_of(path, layer, h, act, position, dropout, place_of_first, own, sizes, a)
    for first in range(0, head.key_length if back or own.length > FEW else NONE, SUBTILE):
        count, k = min(SUBTILE, head.key_length - first), at(head.kr, first * case.kr_row)
        products = at(path.products, first // SUBTILE * 2 * OF_PAIR)
        subtile_products(at(w, first * case.width), k, case.kr_row, case.width, count, scratch.path.x_rows, products)
    return head


@inner
def reflected_forward(reflections, layer, act, workspace, position, dropout, place_of_first, own, sizes, a):
    """Return whether the layer computes reflections. If it does, compute `mixed` from `qkv` for one sequence.

    place_of_first: the number of the dropout at the first head's weights, as counted in `rows.dropout.places_of`.
    """
    if reflections is None:
        return False
    if reflections.layers[layer, RANK] == 0:
        return False
    case, transient = position.case, transient_of(layer, workspace, a)
    for h in range(sizes.heads):
        scratch = scratch_memory(h, act, at(workspace, a.attention), position, own, a)
        head = _head_of(False, layer, h, act, scratch, position, dropout, place_of_first, own, sizes, a)
        terms = terms_of(position.slots, layer, h)
        out, lse = mixed_of(h, transient, own, sizes, a), lse_of(h, transient, position, own, a)
        for i in range(0, own.length, TILE_QUERIES):
            forward_rows(head, terms, own.before + i, out, lse, case, scratch)
    return True


@inner
def reflected_backward(
    reflections, layer, act, workspace, slot_gradients, position, dropout, place_of_first, own, sizes, a
):
    """The backward pass of `reflected_forward`: compute `dqkv` and the gradients of w and beta from `dmixed`. Return
    whether the layer computes reflections.
    """
    if reflections is None:
        return False
    if reflections.layers[layer, RANK] == 0:
        return False
    case, n, memory = position.case, own.length, at(workspace, a.attention)
    for h in range(sizes.heads):
        scratch = scratch_memory(h, act, memory, position, own, a)
        head = _head_of(True, layer, h, act, scratch, position, dropout, place_of_first, own, sizes, a)
        terms = terms_of(position.slots, layer, h)
        grads = gradients_of(layer, h, NONE, act, workspace, memory, slot_gradients, position, own, sizes, a)
        out = mixed_of(h, act, own, sizes, a)
        for block in range((n + TILE_QUERIES - 1) // TILE_QUERIES):
            prepare_deltas(grads.dout, out, grads.deltas, block, n, case)
        dw, dbeta = given_of_head(h, workspace, own, sizes, a)
        head_backward(head, terms, grads, PathGradients(dw, dbeta), case, scratch)
    return True
