"""The model's attention where a layer has a network over the scores of all heads (`attention.mlp`).

A model without has `units` 0, and may have None as `net`.
"""

from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels._jit import inner
from fastpe.kernels.attention.cells import clear
from fastpe.kernels.attention.mlp import ROWS, MlpRoom, Net, Side, room_for_mlp
from fastpe.kernels.attention.mlp_backward import MlpGradients, mlp_backward
from fastpe.kernels.attention.mlp_dropped import drops_of
from fastpe.kernels.attention.mlp_forward import mlp_forward
from fastpe.kernels.attention.records import BIAS, GIVEN, HEAD, SCORES, WANTED, place
from fastpe.kernels.dropout import place_in
from fastpe.kernels.model_content import moves_keys, widened
from fastpe.kernels.simd import at, pointer

ONE, NONE = np.int64(1), np.int64(0)


class Network(NamedTuple):
    """Arrays of one axis: layer by layer, or once for all, W1 (W, 2 H, T), b1 (W,) and W2 (H, W, T)."""

    into: np.ndarray
    bias: np.ndarray
    out: np.ndarray
    cells: np.ndarray  # the slot `scores`


def network_gradient(slot: str, found: np.ndarray) -> np.ndarray:
    """The gradient of a slot (layers, ...) from what kernels add up: taps first, then a row for each unit."""
    if slot == "mlp_bias":
        return found
    layers, first, second, taps = found.shape
    if slot == "mlp_in":
        return np.moveaxis(found.reshape(layers, taps, first, second), 1, -1)
    return found.reshape(layers, taps, second, first).transpose(0, 3, 2, 1)


def room_for_net(sizes: Any, *, backward: bool, dropped: bool) -> MlpRoom:
    """What it needs; of a model without one, a little."""
    units, taps, head = sizes.units, max(sizes.unit_taps, 1), sizes.width // sizes.heads
    dropped = dropped and units > 0
    return room_for_mlp(sizes.heads if units else 0, head, head, units, taps, backward=backward, dropped=dropped)


@inner
def _net(net, layer, sizes):
    own, cells = min(layer, sizes.net_layers - 1), sizes.units * sizes.heads * sizes.unit_taps
    into, bias, out = at(pointer(net.into), own * 2 * cells), at(pointer(net.bias), own * sizes.units), pointer(net.out)
    return Net(into, bias, at(out, own * cells), sizes.units, sizes.unit_taps)


@inner
def _side(net, layer, act, arena, position, own, sizes, a):
    """All heads of one sequence."""
    case, numbers, c = position.case, position.numbers, sizes.width
    head = c // sizes.heads
    q = at(act, a.qkv + own.start * 3 * c)
    k, v, row = at(q, c), at(q, 2 * c), 3 * c
    if moves_keys(sizes):
        q, row = at(act, a.turned + own.start * 2 * c), case.qr_row
        k = at(q, c)
    scale = at(pointer(position.scale), layer * sizes.heads)
    layers, batch, queries, _ = position.spans.shape
    which = min(layer, layers - 1) * batch + min(own.sequence, batch - 1)
    bias = at(pointer(position.bias), place(numbers, BIAS, layer, NONE))
    cells = at(pointer(net.cells), place(numbers, SCORES, layer, NONE))
    more = sizes.unit_taps // 2 if sizes.causal else NONE  # keys that may follow
    return Side(
        q, head, row, k, head, row, v, head, 3 * c, bias, numbers[BIAS, HEAD], case.queries - 1, numbers[BIAS, GIVEN],
        cells, numbers[SCORES, HEAD], case.keys, numbers[SCORES, GIVEN], scale, sizes.heads, ONE, head, head,
        own.before + own.length + more, NONE, sizes.causal, NONE, at(pointer(position.spans), which * 2 * queries),
        case.spanned,
    )  # fmt: skip


@inner
def network_forward(net, layer, act, arena, position, dropout, place_of_first, own, sizes, a):
    """Whether the model has a network; if so `mixed` from `qkv`, or from what was turned, of one sequence.

    place_of_first: where the weights of the first head are dropped out.
    """
    if net is None:
        return False
    if not sizes.units:
        return False
    case, c, end = position.case, sizes.width, own.before + own.length
    head = c // sizes.heads
    side, made = _side(net, layer, act, arena, position, own, sizes, a), _net(net, layer, sizes)
    drops = drops_of(dropout, place_in(dropout, own.sequence, place_of_first), case.keys)
    out, lse, memory = at(act, a.mixed + own.start * c), at(act, a.lse + own.start), at(arena, a.attention)
    for query in range(own.before, end, ROWS):
        rows = min(ROWS, end - query)
        mlp_forward(side, made, None, drops, query, rows, out, head, c, lse, case.queries, memory, position.net_room)
    return True


@inner
def network_backward(net, layer, act, arena, slot_gradients, position, dropout, place_of_first, own, sizes, o, a):
    """As `network_forward`; `dqkv`, or what is turned back, from `dmixed`, and the gradients of slots added."""
    if net is None:
        return False
    if not sizes.units:
        return False
    case, c, memory, room = position.case, sizes.width, at(arena, a.attention), position.net_room
    places, numbers, head, of_layer = (
        position.places,
        position.numbers,
        c // sizes.heads,
        min(layer, sizes.net_layers - 1),
    )
    dqkv = at(arena, a.dqkv + own.start * 3 * c)
    dq, row = dqkv, 3 * c
    clear(dqkv, own.length * 3 * c)
    if moves_keys(sizes):
        dq, row = at(arena, a.dcontent + own.start * case.g_row), case.g_row
        clear(dq, own.length * row)
    units, dlse = sizes.units * sizes.heads * sizes.unit_taps, at(act, a.lse)
    g = MlpGradients(
        at(arena, a.dmixed + own.start * c), at(act, a.mixed + own.start * c), head, c, at(act, a.lse + own.start),
        dlse, case.queries, dq, head, row, at(dq, widened(c, sizes)), head, row, at(dqkv, 2 * c), head, 3 * c,
        at(memory, room.dscale), at(slot_gradients, places[BIAS, 0] + layer * places[BIAS, 1]),
        at(slot_gradients, places[SCORES, 0] + layer * places[SCORES, 1]),
        at(slot_gradients, o.mlp_in + of_layer * 2 * units), at(slot_gradients, o.mlp_bias + of_layer * sizes.units),
        at(slot_gradients, o.mlp_out + of_layer * units), NONE, numbers[BIAS, WANTED], numbers[SCORES, WANTED],
        sizes.wants_net,
    )  # fmt: skip
    clear(at(memory, room.dscale), sizes.heads)
    side, made = _side(net, layer, act, arena, position, own, sizes, a), _net(net, layer, sizes)
    drops = drops_of(dropout, place_in(dropout, own.sequence, place_of_first), case.keys)
    for query in range(0, own.length, ROWS):
        mlp_backward(side, made, None, drops, g, query, min(ROWS, own.length - query), memory, room)
    return True
