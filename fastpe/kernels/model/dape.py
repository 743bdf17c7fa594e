"""The model's attention where a layer has a network over the scores of all heads (`attention.mlp`).

A model without has `units` 0, and may have None as `net`. What else is in its scores is made a tile of a head at a time
(`attention.mlp_terms`); in a model that has none of it beside a network `slots` is None, and none of it is compiled.
"""

from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.attention.dape.backward import MlpGradients, mlp_backward
from fastpe.kernels.attention.dape.dropout import drops_of
from fastpe.kernels.attention.dape.forward import mlp_forward
from fastpe.kernels.attention.dape.layout import ROWS, DapeLayout, Net, Side, layout_for_dape
from fastpe.kernels.attention.dape.terms import Terms
from fastpe.kernels.attention.extra_terms import Beside, makes_extra_terms
from fastpe.kernels.attention.inputs import place, terms_of
from fastpe.kernels.attention.slots import BIAS, GIVEN, HEAD, INDEX, SCORES, VALUES, WANTED
from fastpe.kernels.attention.tile import clear
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.model.attention_head import gradients_of, head_of, scratch_memory
from fastpe.kernels.model.content import moves, moves_keys, widened
from fastpe.kernels.model.gates import first_base
from fastpe.kernels.rows.dropout import place_in
from fastpe.kernels.simd import at, pointer

ONE, NONE = np.int64(1), np.int64(0)


class Network(NamedTuple):
    """Arrays of one axis: layer by layer, or once for all, W1 (W, 2 H, T), b1 (W,) and W2 (H, W, T)."""

    into: np.ndarray
    bias: np.ndarray
    out: np.ndarray
    cells: np.ndarray  # the slot `scores`
    values: np.ndarray
    indices: np.ndarray  # int32, of the slot `index`


def network_gradient(slot: str, found: np.ndarray) -> np.ndarray:
    """The gradient of a slot (layers, ...) from what kernels add up: taps first, then a row for each unit."""
    if slot == "mlp_bias":
        return found
    layers, first, second, taps = found.shape
    if slot == "mlp_in":
        return np.moveaxis(found.reshape(layers, taps, first, second), 1, -1)
    return found.reshape(layers, taps, second, first).transpose(0, 3, 2, 1)


def layout_for_net(sizes: Any, *, backward: bool, dropped: bool) -> DapeLayout:
    """What it needs; of a model without one, a little. What else is in scores has its memory behind it."""
    units, taps, head = sizes.units, max(sizes.unit_taps, 1), sizes.width // sizes.heads
    heads, wide, dropped = sizes.heads if units else 0, head * (1 + sizes.lifted), dropped and units > 0
    return layout_for_dape(heads, wide, head, units, taps, backward=backward, dropped=dropped)


@inner
def _net(net, layer, sizes):
    own, cells = min(layer, sizes.net_layers - 1), sizes.units * sizes.heads * sizes.unit_taps
    into, bias, out = at(pointer(net.into), own * 2 * cells), at(pointer(net.bias), own * sizes.units), pointer(net.out)
    return Net(into, bias, at(out, own * cells), sizes.units, sizes.unit_taps)


@inner
def _side(net, layer, act, position, own, sizes, a):
    """All heads of one sequence, whose queries and keys are as the content has them."""
    case, numbers, c = position.case, position.numbers, sizes.width
    head = c // sizes.heads
    qkv, turned = at(act, a.qkv + own.start * 3 * c), at(act, a.turned + widened(own.start * 2 * c, sizes))
    q, of_query = (turned, widened(head, sizes)) if moves(sizes) else (qkv, head)
    k, of_key = (at(turned, widened(c, sizes)), widened(head, sizes)) if moves_keys(sizes) else (at(qkv, c), head)
    layers, batch, queries, _ = position.spans.shape
    which = min(layer, layers - 1) * batch + min(own.sequence, batch - 1)
    bias = at(pointer(position.bias), place(numbers, BIAS, layer, NONE))
    cells = at(pointer(net.cells), place(numbers, SCORES, layer, NONE))
    values = at(pointer(net.values), place(numbers, VALUES, layer, NONE))
    index = at(pointer(net.indices), place(numbers, INDEX, layer, NONE))
    more = sizes.unit_taps // 2 if sizes.causal else NONE  # keys that may follow
    return Side(
        q, of_query, case.qr_row, k, of_key, case.kr_row, at(qkv, 2 * c), head, 3 * c, bias, numbers[BIAS, HEAD],
        case.queries - 1, numbers[BIAS, GIVEN], cells, numbers[SCORES, HEAD], case.keys, numbers[SCORES, GIVEN],
        values, numbers[VALUES, HEAD], index, numbers[VALUES, GIVEN], at(pointer(position.scale), layer * sizes.heads),
        sizes.heads, ONE, case.width, head, own.before + own.length + more, NONE, sizes.causal, NONE,
        at(pointer(position.spans), which * 2 * queries), case.spanned,
    )  # fmt: skip


class OfSequence(NamedTuple):
    """A layer's activations of one sequence; None forward as `slot_gradients`."""

    slot_gradients: Any
    layer: int
    act: Any
    workspace: Any
    position: Any
    own: Any
    sizes: Any
    a: Any


@makes_extra_terms(OfSequence)
@inner
def _beside(given, h):
    """All other terms of a head's scores, backward with where their gradients go."""
    slot_gradients, layer, act, workspace, position, own, sizes, a = given
    memory, case = at(workspace, a.attention + position.net_layout.size), position.case
    head = head_of(layer, h, act, position, None, NONE, own, sizes, a)
    scratch = scratch_memory(h, act, memory, position, own, a)
    terms = terms_of(position.slots, layer, h)
    grads = _gradients_of(slot_gradients, layer, h, act, workspace, memory, position, own, sizes, a)
    return Beside(head, terms, case, scratch, grads)


@inner
def _gradients_of(slot_gradients, layer, h, act, workspace, memory, position, own, sizes, a):
    if slot_gradients is None:
        return None
    return gradients_of(layer, h, NONE, act, workspace, memory, slot_gradients, position, own, sizes, a)


@inner
def _terms(slots, slot_gradients, layer, act, workspace, position, own, sizes, a):
    """None, for which nothing is compiled, where nothing is beside the network."""
    if slots is None:
        return None
    given = OfSequence(slot_gradients, layer, act, workspace, position, own, sizes, a)
    return Terms(given, None, first_base(act, own, sizes, a), sizes.length)


@inner
def network_forward(net, layer, act, workspace, position, dropout, place_of_first, own, sizes, a):
    """Whether the model has a network; if so `mixed` from `qkv`, or from what was turned, of one sequence.

    place_of_first: where the weights of the first head are dropped out.
    """
    if net is None:
        return False
    if not sizes.units:
        return False
    case, c, end = position.case, sizes.width, own.before + own.length
    head = c // sizes.heads
    side, made = _side(net, layer, act, position, own, sizes, a), _net(net, layer, sizes)
    terms = _terms(position.slots, None, layer, act, workspace, position, own, sizes, a)
    drops = drops_of(dropout, place_in(dropout, own.sequence, place_of_first), case.keys)
    out, lse, memory = at(act, a.mixed + own.start * c), at(act, a.lse + own.start), at(workspace, a.attention)
    for query in range(own.before, end, ROWS):
        rows = min(ROWS, end - query)
        mlp_forward(side, made, terms, drops, query, rows, out, head, c, lse, case.queries, memory, position.net_layout)
    return True


@inner
def network_backward(net, layer, act, workspace, slot_gradients, position, dropout, place_of_first, own, sizes, o, a):
    """As `network_forward`; `dqkv`, or what is turned back, from `dmixed`, and the gradients of slots added."""
    if net is None:
        return False
    if not sizes.units:
        return False
    c, memory, layout = sizes.width, at(workspace, a.attention), position.net_layout
    side, made = _side(net, layer, act, position, own, sizes, a), _net(net, layer, sizes)
    terms = _terms(position.slots, slot_gradients, layer, act, workspace, position, own, sizes, a)
    drops = drops_of(dropout, place_in(dropout, own.sequence, place_of_first), position.case.keys)
    clear(at(workspace, a.dqkv + own.start * 3 * c), own.length * 3 * c)
    clear(at(memory, layout.dscale), sizes.heads)
    g = _gradients(layer, act, workspace, slot_gradients, position, own, sizes, o, a)
    for query in range(0, own.length, ROWS):
        mlp_backward(side, made, terms, drops, g, query, min(ROWS, own.length - query), memory, layout)
    return True


@inner
def _gradients(layer, act, workspace, slot_gradients, position, own, sizes, o, a):
    """Where gradients go; of queries and keys as the content has them, which are cleared."""
    case, c, memory = position.case, sizes.width, at(workspace, a.attention)
    places, numbers, head = position.places, position.numbers, c // sizes.heads
    of_layer = min(layer, sizes.net_layers - 1)
    dqkv = at(workspace, a.dqkv + own.start * 3 * c)
    dq = dqkv
    if moves_keys(sizes) or case.apart:
        dq = at(workspace, a.dcontent + own.start * case.g_row)
        clear(dq, own.length * case.g_row)
    units, wide = sizes.units * sizes.heads * sizes.unit_taps, widened(head, sizes)
    return MlpGradients(
        at(workspace, a.dmixed + own.start * c), at(act, a.mixed + own.start * c), head, c, at(act, a.lse + own.start),
        at(act, a.lse), case.queries, dq, wide, case.g_row, at(dq, widened(c, sizes)), wide, case.g_row,
        at(dqkv, 2 * c), head, 3 * c, at(memory, position.net_layout.dscale),
        at(slot_gradients, places[BIAS, 0] + layer * places[BIAS, 1]),
        at(slot_gradients, places[SCORES, 0] + layer * places[SCORES, 1]),
        at(slot_gradients, places[VALUES, 0] + layer * places[VALUES, 1]),
        at(slot_gradients, o.mlp_in + of_layer * 2 * units), at(slot_gradients, o.mlp_bias + of_layer * sizes.units),
        at(slot_gradients, o.mlp_out + of_layer * units), NONE, numbers[BIAS, WANTED], numbers[SCORES, WANTED],
        numbers[VALUES, WANTED], sizes.wants_net,
    )  # fmt: skip
