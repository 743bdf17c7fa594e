"""The attention of one layer of the model: projections of a pack, rotation, `kernels.attention` head by head.

    q, k = (u + qk_table) Wqk + bqk;   v = u Wv + bv;   q^, k^ = row_scale times mapped and rotated q, such k;
    o = attention of each head

Where a head is one strip (at most TILE_KEYS positions), its weights stay in the arena for the backward pass; longer
sequences make them again. Where they are not q and k themselves, `turned` holds q^ and k^, 2 c elements a row, as q and
k stand in `qkv`.
"""

import numpy as np

from fastpe.kernels._jit import inner
from fastpe.kernels.attention.backward import prepare_deltas, prepare_strip, strip_backward
from fastpe.kernels.attention.cells import TILE_KEYS, TILE_QUERIES, add_scaled, dot, scale_row
from fastpe.kernels.attention.forward import forward_rows
from fastpe.kernels.attention.records import (
    BIAS,
    GAIN,
    GROWTH,
    KEY_BIAS,
    REL_GAIN,
    REL_KEY,
    REL_QUERY,
    REL_VALUE,
    ROWS,
    SCORES,
    VALUES,
    WANTED,
    Guard,
    Head,
    HeadGradients,
    Sight,
    Turns,
    place,
    terms_of,
)
from fastpe.kernels.attention.room import scratch_of
from fastpe.kernels.dropout import place_in
from fastpe.kernels.ends import add
from fastpe.kernels.gemm import FROM, OVERWRITE, add_column_sums, gemm
from fastpe.kernels.model_gates import clear_gate_gradients, gate_gradients, gates_of_head
from fastpe.kernels.pack import place_of, rows_of
from fastpe.kernels.rotate import add_angle_gradients, add_growth_gradients, factors_of_row, rotate_row
from fastpe.kernels.rotors import add_map_gradients, map_row
from fastpe.kernels.simd import at, get, part, pointer, put, scalar

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
def _place_of_factor(layer, h, i, sizes):
    """Where the factor of query i stands, and its gradient."""
    return layer * sizes.row_scale_layer + h * sizes.row_scale_head + i


@inner
def _place_of_maps(layer, h, i, sizes):
    """Where the maps of a row begin."""
    row = layer * sizes.rotors_layer + h * sizes.rotors_head + i * sizes.rotors_row
    return row * (sizes.width // sizes.heads) * sizes.block


@inner
def _map_rows(rotors, qkv, turned, scratch, own, layer, sizes):
    """The queries and keys of all heads, mapped: the rows of a sequence from `before` on."""
    if rotors is None:
        return
    c, head = sizes.width, sizes.width // sizes.heads
    for h in range(sizes.heads):
        for i in range(own.before, own.before + own.length):
            maps = at(pointer(rotors), _place_of_maps(layer, h, i, sizes))
            for which in range(2):
                x, y = at(qkv, (3 * i + which) * c + h * head), at(turned, (2 * i + which) * c + h * head)
                map_row(x, maps, y, head, sizes.block, sizes.half, False, scratch)


@inner
def _content_of_factor(rotors, q, dq, place, scratch, sizes):
    """The product of a query, mapped, and the gradient of what was made of it but for the factor."""
    head = sizes.width // sizes.heads
    if rotors is None:
        return dot(q, dq, head)
    map_row(q, at(pointer(rotors), place), at(scratch, 3 * head), head, sizes.block, sizes.half, False, scratch)
    return dot(at(scratch, 3 * head), dq, head)


@inner
def _map_row_back(rotors, x, dy, dx, place, dmaps, scratch, sizes):
    """The gradient of a row before its maps, in `dx`, and that of the maps added; `dy` where there are none."""
    if rotors is None:
        return dy
    head = sizes.width // sizes.heads
    if sizes.wants_rotors:
        add_map_gradients(x, dy, at(dmaps, place), 0, head, head, sizes.block, sizes.half, scratch)
    map_row(dy, at(pointer(rotors), place), dx, head, sizes.block, sizes.half, True, scratch)
    return dx


@inner
def _turn(qkv, turned, own, layer, position, sizes):
    """The queries and keys of all heads, rotated, queries with their factors: a sequence's rows from `before` on.

    Mapped ones are turned in place; keys that are neither mapped nor rotated stay where they are.
    """
    c, pairs = sizes.width, sizes.pairs
    head, row = c // sizes.heads, factors_of_row(pairs, sizes.half)
    for h in range(sizes.heads):
        first = layer * sizes.angles_layer + h * sizes.angles_head
        for i in range(own.before, own.before + own.length):
            angle = place_of(1, i - own.before, own) if sizes.gathers_angles else i
            cos = at(pointer(position.turns), (first + angle) * row)
            for which in range(2 if pairs else 1):
                x, y = at(qkv, (3 * i + which) * c + h * head), at(turned, (2 * i + which) * c + h * head)
                if sizes.block:
                    x = y
                rotate_row(x, cos, at(cos, position.turns.size // 3), y, head, pairs, sizes.half)
            if sizes.scales_rows:
                factor = get(pointer(position.row_scale), _place_of_factor(layer, h, i, sizes))
                scale_row(at(turned, 2 * i * c + h * head), head, factor)


@inner
def _content_backward(act, arena, layer, slot_gradients, position, own, sizes, o, a):
    """dqkv = the content's gradients turned and mapped back, added where it holds others; and those of angles, growth,
    factors and maps.

    dcontent has rows as dqkv. A factor on a query divides its gradient by itself: products of the two know none.
    """
    c, case, pairs = sizes.width, position.case, sizes.pairs
    head, row = c // sizes.heads, factors_of_row(pairs, sizes.half)
    places, growing = position.places, position.numbers[GROWTH, ROWS]
    for h in range(sizes.heads):
        first = layer * sizes.angles_layer + h * sizes.angles_head
        for i in range(own.length):
            angle = place_of(1, i, own) if sizes.gathers_angles else i
            for which in range(2):
                place = (3 * (own.start + i) + which) * c + h * head
                dy, dx, y = at(arena, a.dcontent + place), at(arena, a.dqkv + place), at(act, a.qkv + place)
                x = y
                if pairs or sizes.block or (sizes.scales_rows and which == 0):
                    y = at(act, a.turned + (2 * (own.start + i) + which) * c + h * head)
                if position.numbers[GROWTH, WANTED]:
                    dgrowth = at(slot_gradients, places[GROWTH, 0] + layer * places[GROWTH, 1] + i * growing)
                    add_growth_gradients(y, dy, dgrowth, growing, sizes.half, scalar(y, 1.0 - 2.0 * which))
                if sizes.wants_angles:
                    add_angle_gradients(
                        y, dy, at(slot_gradients, o.angles + (first + angle) * pairs), pairs, sizes.half
                    )
                target = dy if case.apart or sizes.block else dx
                if pairs:
                    cos = at(pointer(position.turns), (first + angle) * row)
                    rotate_row(dy, cos, at(cos, position.turns.size // 3 * 2), target, head, pairs, sizes.half)
                of_maps, spare = _place_of_maps(layer, h, i, sizes), at(arena, a.mapped)
                if sizes.scales_rows and which == 0:
                    spot = _place_of_factor(layer, h, i, sizes)
                    if sizes.wants_row_scale:
                        spot_of_gradient = at(slot_gradients, o.row_scale + spot)
                        content = _content_of_factor(position.rotors, x, target, of_maps, spare, sizes)
                        put(spot_of_gradient, 0, get(spot_of_gradient, 0) + content)
                    scale_row(target, head, get(pointer(position.row_scale), spot))
                dy = _map_row_back(
                    position.rotors, x, dy, at(spare, 2 * head) if case.apart else dx, of_maps,
                    at(slot_gradients, o.rotors), spare, sizes,
                )  # fmt: skip
                if case.apart:
                    add_scaled(dx, scalar(dx, 1.0), dy, head)


@inner
def _head(layer, h, act, position, dropout, place_of_first, own, sizes, a):
    """What attention reads of one head. Nothing is left out: sequences are short, and what guards them is not read."""
    n, c = own.before + own.length, sizes.width
    head = c // sizes.heads
    q = at(act, a.qkv + own.start * 3 * c + h * head)
    k, v = at(q, c), at(q, 2 * c)
    qr, kr = q, k
    if sizes.pairs or sizes.scales_rows or sizes.block:
        qr = at(act, a.turned + own.start * 2 * c + h * head)
    if sizes.pairs or sizes.block:
        kr = at(qr, c)
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
        dropped, gates_of_head(position.gates, h, act, own, sizes, a),
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
def _lse(h, act, position, own, a):
    case = position.case
    return at(part(at(act, a.lse), h * case.queries, case.queries), own.start)


@inner
def attention_forward(layer, act, arena, position, dropout, place_of_first, own, sizes, a):
    """`mixed` from `qkv`, of one sequence. place_of_first: where the weights of the first head are dropped out."""
    c, case = sizes.width, position.case
    if sizes.pairs or sizes.scales_rows or sizes.block:
        qkv, turned = at(act, a.qkv + own.start * 3 * c), at(act, a.turned + own.start * 2 * c)
        _map_rows(position.rotors, qkv, turned, at(arena, a.mapped), own, layer, sizes)
        _turn(qkv, turned, own, layer, position, sizes)
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
    rest = at(arena, a.dqkv + first)
    content = at(arena, a.dcontent + first) if sizes.pairs or sizes.block or case.apart else rest
    if not case.apart:
        rest = content
    return HeadGradients(
        at(arena, a.dmixed + own.start * c + channel), _lse(h, act, position, own, a), at(arena, a.deltas), content,
        rest, at(content, c + keys), at(rest, c + keys), at(arena, a.dqkv + 2 * c + first + keys),
        at(_sum_of(BIAS, layer, h, places, g), j0),
        at(_sum_of(GAIN, layer, h, places, g), j0), _sum_of(REL_GAIN, layer, h, places, g),
        _sum_of(REL_KEY, layer, h, places, g), _sum_of(REL_QUERY, layer, h, places, g),
        _sum_of(REL_VALUE, layer, h, places, g), _sum_of(KEY_BIAS, layer, h, places, g),
        _sum_of(VALUES, layer, h, places, g), _sum_of(SCORES, layer, h, places, g),
        at(arena, a.attention + position.room.stats), at(arena, a.attention + position.room.stats),
        gate_gradients(position.gates, h, j0, arena, own, sizes, a),
    )  # fmt: skip


@inner
def attention_backward(layer, act, arena, slot_gradients, position, dropout, place_of_first, own, sizes, o, a):
    """`dqkv` from `dmixed`, of one sequence; adds to the gradients of slots."""
    n, c, case = own.length, sizes.width, position.case
    clear_gate_gradients(position.gates, arena, own, sizes, a)
    for h in range(sizes.heads):
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
    if sizes.pairs or sizes.scales_rows or sizes.block or case.apart:
        _content_backward(act, arena, layer, slot_gradients, position, own, sizes, o, a)
