"""The attention of one layer of the model: projections of a pack, rotation, `kernels.attention` head by head.

    q, k = (u + qk_table) Wqk + bqk;   v = u Wv + bv;   q^, k^ = q and k as the content has them (`model_content`);
    o = attention of each head

Where a head is one strip (at most TILE_KEYS positions), its weights stay in the arena for the backward pass; longer
sequences make them again.
"""

import numpy as np

from fastpe.kernels._jit import inner
from fastpe.kernels.attention.backward import Turns, prepare_deltas, prepare_strip, strip_backward
from fastpe.kernels.attention.cells import TILE_KEYS, TILE_QUERIES
from fastpe.kernels.attention.counted import TALLY
from fastpe.kernels.attention.forward import forward_rows
from fastpe.kernels.attention.records import (
    BIAS,
    COUNTS,
    GAIN,
    KEY_BIAS,
    REL_GAIN,
    REL_KEY,
    REL_QUERY,
    REL_VALUE,
    SCORES,
    VALUES,
    Guard,
    Head,
    HeadGradients,
    Sight,
    place,
    terms_of,
)
from fastpe.kernels.attention.room import scratch_of
from fastpe.kernels.dropout import place_in
from fastpe.kernels.ends import add
from fastpe.kernels.gemm import FROM, OVERWRITE, add_column_sums, gemm
from fastpe.kernels.model_content import content_backward, make_content, moves, moves_keys, widened
from fastpe.kernels.model_gates import clear_gate_gradients, gate_gradients, gates_of_head
from fastpe.kernels.model_network import network_backward, network_forward
from fastpe.kernels.model_reflected import reflected_backward, reflected_forward
from fastpe.kernels.pack import rows_of
from fastpe.kernels.simd import at, part, pointer

ONE, NONE = np.int64(1), np.int64(0)


@inner
def _shifted(u, arena, position, pack, sizes, a):
    """u + qk_table, which begins anew with every sequence."""
    c, shifted, start = sizes.width, at(arena, a.shifted), NONE
    for sequence in range(pack.first, pack.last):
        own = rows_of(pack, sequence, start)
        add(at(u, start * c), at(pointer(position.qk_table), own.before * c), at(shifted, start * c), own.length * c)
        start += own.length
    return shifted


@inner
def project(u, weight, row, bias, act, arena, position, pack, sizes, a):
    """q, k, v of all heads. row: that of the weight, 3 c with a qk_table."""
    n, c, start = pack.rows, sizes.width, FROM if sizes.biased else OVERWRITE
    qkv = at(act, a.qkv + pack.before * 3 * c)
    if not sizes.has_qk_table:
        gemm(u, c, ONE, weight, row, qkv, 3 * c, n, 3 * c, c, start, bias, NONE, qkv, NONE)
        return
    shifted, v = _shifted(u, arena, position, pack, sizes, a), at(qkv, 2 * c)
    gemm(shifted, c, ONE, weight, row, qkv, 3 * c, n, 2 * c, c, start, bias, NONE, qkv, NONE)
    gemm(u, c, ONE, at(weight, 2 * c), row, v, 3 * c, n, c, c, start, at(bias, 2 * c), NONE, v, NONE)


@inner
def project_backward(u, transposed, row, dweight, dbias, slot_gradients, grow, arena, position, pack, sizes, o, a):
    """Gradients of the projections' parameters and of qk_table, from those of q, k and v."""
    n, c, dqkv, start = pack.rows, sizes.width, at(arena, a.dqkv), NONE
    shifted = _shifted(u, arena, position, pack, sizes, a)
    gemm(shifted, ONE, c, dqkv, 3 * c, dweight, 3 * c, c, 2 * c, n, grow, dweight, 3 * c, dweight, NONE)
    dv, dwv = at(dqkv, 2 * c), at(dweight, 2 * c)
    gemm(u, ONE, c, dv, 3 * c, dwv, 3 * c, c, c, n, grow, dwv, 3 * c, dwv, NONE)
    if sizes.biased:
        add_column_sums(dqkv, 3 * c, n, 3 * c, dbias)
    if sizes.wants_qk_table:
        dtable = at(slot_gradients, o.qk_table)
        for sequence in range(pack.first, pack.last):
            own = rows_of(pack, sequence, start)
            d = at(dqkv, start * 3 * c)
            gemm(d, 3 * c, ONE, transposed, row, dtable, c, own.length, c, 2 * c, FROM, dtable, c, dtable, NONE)
            start += own.length


@inner
def _head(layer, h, act, position, dropout, place_of_first, own, sizes, a):
    """What attention reads of one head. Nothing is left out: sequences are short, and what guards them is not read."""
    n, c = own.before + own.length, sizes.width
    head = c // sizes.heads
    q = at(act, a.qkv + own.start * 3 * c + h * head)
    k, v = at(q, c), at(q, 2 * c)
    qr, kr = q, k
    if moves(sizes):
        qr = at(act, a.turned + widened(own.start * 2 * c + h * head, sizes))
    if moves_keys(sizes):
        kr = at(qr, widened(c, sizes))
    offsets = position.case.queries + position.case.keys - 1  # those of the longest sequence
    bias = part(pointer(position.bias), place(position.numbers, BIAS, layer, h), offsets)
    guard = Guard(q, q, pointer(position.no_guard), 0.0, 0.0)
    dropped = place_in(dropout, own.sequence, place_of_first + h)
    layers, batch, queries, _ = position.spans.shape
    which = min(layer, layers - 1) * batch + min(own.sequence, batch - 1)
    spans = at(pointer(position.spans), which * 2 * queries)
    sight = Sight(NONE, spans, q, pointer(position.places))  # of the last two nothing is read
    return Head(
        q, qr, k, kr, v, bias, pointer(position.numbers), position.scale[layer, h], n, n, sight, guard, dropout,
        dropped, gates_of_head(position.gates, h, act, own, sizes, a), _tallies(h, act, position, own, sizes, a),
        None,
    )  # fmt: skip


@inner
def _scratch(h, act, arena, position, own, sizes, a):
    """Scratch memory for one head, its weights where they are kept."""
    memory = at(arena, a.attention)
    cells = at(memory, position.room.cells)
    if position.case.kept:
        size = position.case.queries * TILE_KEYS
        cells = at(part(at(act, a.weights), h * size, size), own.start * TILE_KEYS)
    return scratch_of(memory, position.room, cells)


@inner
def _tallies(h, act, position, own, sizes, a):
    size = position.case.queries * TALLY * sizes.counted
    return at(part(at(act, a.tallies), h * size, size), own.start * TALLY * sizes.counted)


@inner
def _lse(h, act, position, own, a):
    case = position.case
    return at(part(at(act, a.lse), h * case.queries, case.queries), own.start)


@inner
def attention_forward(layer, act, arena, position, dropout, place_of_first, own, sizes, a):
    """`mixed` from `qkv`, of one sequence. place_of_first: where the weights of the first head are dropped out."""
    c, case = sizes.width, position.case
    make_content(layer, act, arena, position, own, sizes, a)
    if network_forward(position.net, layer, act, arena, position, dropout, place_of_first, own, sizes, a):
        return
    if reflected_forward(position.reflections, layer, act, arena, position, dropout, place_of_first, own, sizes, a):
        return
    for h in range(sizes.heads):
        head = _head(layer, h, act, position, dropout, place_of_first, own, sizes, a)
        terms = terms_of(position.slots, position.numbers, layer, h, case)
        scratch = _scratch(h, act, arena, position, own, sizes, a)
        out, lse = at(act, a.mixed + own.start * c + h * (c // sizes.heads)), _lse(h, act, position, own, a)
        for i in range(0, own.length, TILE_QUERIES):
            forward_rows(head, terms, own.before + i, out, lse, case, scratch)


@inner
def _sum_of(slot, layer, h, places, gradients):
    return part(gradients, places[slot, 0] + layer * places[slot, 1] + h * places[slot, 2], places[slot, 3])


@inner
def _gradients(layer, h, j0, act, arena, slot_gradients, position, own, sizes, a):
    """Where gradients of one head go; those of the scale, which has none, where nobody reads them."""
    c, case, places, g = sizes.width, position.case, position.places, slot_gradients
    channel, keys = h * (c // sizes.heads), j0 * case.g_row
    first = own.start * 3 * c + channel
    content = rest = at(arena, a.dqkv + first)
    if moves_keys(sizes) or case.apart:
        content = at(arena, a.dcontent + own.start * case.g_row + widened(channel, sizes))
    if not case.apart:
        rest = content
    return HeadGradients(
        at(arena, a.dmixed + own.start * c + channel), _lse(h, act, position, own, a), at(arena, a.deltas), content,
        rest, at(content, widened(c, sizes) + keys), at(rest, widened(c, sizes) + keys),
        at(arena, a.dqkv + 2 * c + first + j0 * case.gv_row),
        at(_sum_of(BIAS, layer, h, places, g), j0),
        at(_sum_of(GAIN, layer, h, places, g), j0), _sum_of(REL_GAIN, layer, h, places, g),
        _sum_of(REL_KEY, layer, h, places, g), _sum_of(REL_QUERY, layer, h, places, g),
        _sum_of(REL_VALUE, layer, h, places, g), _sum_of(KEY_BIAS, layer, h, places, g),
        _sum_of(VALUES, layer, h, places, g), _sum_of(COUNTS, layer, h, places, g),
        _sum_of(SCORES, layer, h, places, g),
        at(arena, a.attention + position.room.stats), at(arena, a.attention + position.room.stats),
        gate_gradients(position.gates, h, j0, arena, own, sizes, a),
    )  # fmt: skip


@inner
def attention_backward(layer, act, arena, slot_gradients, position, dropout, place_of_first, own, sizes, o, a):
    """`dqkv` from `dmixed`, of one sequence; adds to the gradients of slots."""
    n, c, case = own.length, sizes.width, position.case
    clear_gate_gradients(position.gates, arena, own, sizes, a)
    networked = network_backward(
        position.net, layer, act, arena, slot_gradients, position, dropout, place_of_first, own, sizes, o, a
    )
    reflected = reflected_backward(
        position.reflections, layer, act, arena, position, dropout, place_of_first, own, sizes, a
    )
    for h in range(0 if networked or reflected else sizes.heads):
        head = _head(layer, h, act, position, dropout, place_of_first, own, sizes, a)
        terms = terms_of(position.slots, position.numbers, layer, h, case)
        scratch = _scratch(h, act, arena, position, own, sizes, a)
        out = at(act, a.mixed + own.start * c + h * (c // sizes.heads))
        for strip in range((n + TILE_KEYS - 1) // TILE_KEYS):
            grads = _gradients(layer, h, strip * TILE_KEYS, act, arena, slot_gradients, position, own, sizes, a)
            if strip == 0:
                for block in range((n + TILE_QUERIES - 1) // TILE_QUERIES):
                    prepare_deltas(grads.dout, out, grads.deltas, block, n, case)
            prepare_strip(head, terms, grads, strip, case, scratch)
            turns = Turns(pointer(position.places), NONE, strip)  # of which nobody takes any: one thread does all
            strip_backward(head, terms, grads, strip, turns, case, scratch)
    if moves(sizes) or case.apart:
        content_backward(layer, act, arena, slot_gradients, position, own, sizes, o, a)
