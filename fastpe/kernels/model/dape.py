"""The attention of a layer with a network that transforms the scores of all heads (`attention.dape.network`).

A model without a network has `units` 0, and may have None as `net`.
"""

from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.attention.backward import prepare_deltas
from fastpe.kernels.attention.dape.backward import backward_block
from fastpe.kernels.attention.dape.forward import forward_block
from fastpe.kernels.attention.dape.network import (
    Net,
    NetGradients,
    OneHead,
    count_blocks,
    end_of_block,
    makes_heads,
    start_of_block,
)
from fastpe.kernels.attention.inputs import terms_of
from fastpe.kernels.attention.tile import TILE_QUERIES, clear
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.model.attention_head import gradients_of, head_of, lse_of, mixed_of, transient_of
from fastpe.kernels.model.content import moves_keys
from fastpe.kernels.simd import at, pointer

NONE = np.int64(0)


class Network(NamedTuple):
    """The weights of the networks, flattened: W1 (W, 2 H, T), b1 (W,) and W2 (H, W, T) for every layer, or once for
    all.
    """

    into: np.ndarray
    bias: np.ndarray
    out: np.ndarray
    biased: int  # as in `Net`


def network_gradient(slot: str, found: np.ndarray) -> np.ndarray:
    """Return the gradient of a slot (layers, ...). `found` holds the sums of the kernels: it has the shape of the slot,
    but in memory the axes of each layer have the order taps, units, heads."""
    if slot == "mlp_bias":
        return found
    layers, first, second, taps = found.shape
    if slot == "mlp_in":
        return np.moveaxis(found.reshape(layers, taps, first, second), 1, -1)
    return found.reshape(layers, taps, second, first).transpose(0, 3, 2, 1)


class OfSequence(NamedTuple):
    """One sequence in the attention of a layer, as the argument `source` of `head_in`. In the forward pass,
    `slot_gradients` is None.
    """

    slot_gradients: Any
    layer: int
    act: Any
    workspace: Any
    position: Any
    dropout: Any
    place_of_first: int
    own: Any
    sizes: Any
    a: Any


@makes_heads(OfSequence)
@inner
def _head(source, h):
    slot_gradients, layer, act, workspace, position, dropout, place_of_first, own, sizes, a = source
    head = head_of(layer, h, act, position, dropout, place_of_first, own, sizes, a)
    terms = terms_of(position.slots, layer, h)
    transient = transient_of(layer, workspace, a)
    out = mixed_of(h, transient, own, sizes, a)
    grads = _gradients_of(slot_gradients, layer, h, act, workspace, position, own, sizes, a)
    return OneHead(head, terms, out, lse_of(h, transient, position, own, a), grads)


@inner
def _gradients_of(slot_gradients, layer, h, act, workspace, position, own, sizes, a):
    if slot_gradients is None:
        return None
    memory = at(at(workspace, a.attention), position.net_layout.rest)
    return gradients_of(layer, h, NONE, act, workspace, memory, slot_gradients, position, own, sizes, a)


@inner
def _net(net, layer, sizes):
    own, cells = min(layer, sizes.net_layers - 1), sizes.units * sizes.heads * sizes.unit_taps
    return Net(
        at(pointer(net.into), own * 2 * cells), at(pointer(net.bias), own * sizes.units),
        at(pointer(net.out), own * cells), sizes.units, sizes.unit_taps, net.biased, sizes.unit_taps // 2,
    )  # fmt: skip


@inner
def network_forward(net, layer, act, workspace, position, dropout, place_of_first, own, sizes, a):
    """Compute `mixed` from `qkv`, or from rotated rows, for one sequence, if the model has a network. Return whether it
    has one.

    place_of_first: the number of the dropout at the first head's weights, as counted in `rows.dropout.places_of`.
    """
    if net is None:
        return False
    if not sizes.units:
        return False
    made, memory, layout = _net(net, layer, sizes), at(workspace, a.attention), position.net_layout
    source = OfSequence(None, layer, act, workspace, position, dropout, place_of_first, own, sizes, a)
    i0, n = own.before, own.before + own.length
    while i0 < n:
        end = end_of_block(i0, n)
        forward_block(source, made, i0, end - i0, position.case, memory, layout)
        i0 = end
    return True


@inner
def network_backward(net, layer, act, workspace, slot_gradients, position, dropout, place_of_first, own, sizes, o, a):
    """The backward pass of `network_forward`: compute `dqkv`, or the gradients of rotated rows, from `dmixed`, and add
    the gradients of slots. Return whether the model has a network.
    """
    if net is None:
        return False
    if not sizes.units:
        return False
    case, memory, layout = position.case, at(workspace, a.attention), position.net_layout
    made, own_net = _net(net, layer, sizes), min(layer, sizes.net_layers - 1)
    weights = sizes.units * sizes.heads * sizes.unit_taps
    dnet = NetGradients(
        at(slot_gradients, o.mlp_in + own_net * 2 * weights), at(slot_gradients, o.mlp_bias + own_net * sizes.units),
        at(slot_gradients, o.mlp_out + own_net * weights), sizes.wants_net,
    )  # fmt: skip
    clear(at(workspace, a.dqkv + own.start * sizes.projected), own.length * sizes.projected)
    if moves_keys(sizes) or case.apart:
        clear(at(workspace, a.dcontent + own.start * case.g_row), own.length * case.g_row)
    source = OfSequence(slot_gradients, layer, act, workspace, position, dropout, place_of_first, own, sizes, a)
    for h in range(sizes.heads):
        one = _head(source, h)
        for block in range((own.length + TILE_QUERIES - 1) // TILE_QUERIES):
            prepare_deltas(one.grads.dout, one.out, one.grads.deltas, block, own.length, case)
    for number in range(count_blocks(own.length)):
        i0 = start_of_block(number, own.length)
        backward_block(source, made, dnet, i0, end_of_block(i0, own.length) - i0, case, memory, layout)
    return True
