"""The model's attention where a layer makes reflections (`model.reflections`): head by head, by blocks of queries.

A head's rows are copied into one piece, which costs O(N D) of O(N^2 D). A few new queries, as of a text that is
written, go one at a time, and read keys and values where they lie, unless scores have other terms.
"""

import numpy as np

from fastpe.kernels.attention.extra_terms import Beside
from fastpe.kernels.attention.inputs import terms_of
from fastpe.kernels.attention.path.backward import Queries, block_back
from fastpe.kernels.attention.path.blocks import BLOCK, TILE, block_from, span_of
from fastpe.kernels.attention.path.dropout import dropped_of
from fastpe.kernels.attention.path.forward import Desk, Head, Sizes, block_forward
from fastpe.kernels.attention.path.products import tile_products
from fastpe.kernels.attention.path.rows import row_forward
from fastpe.kernels.attention.tile import FEW, add_scaled, clear, dot
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.model.attention_head import gradients_of, head_of, scratch_memory
from fastpe.kernels.model.gates import SIGN, gate_gradients, gates_of_head
from fastpe.kernels.model.reflections import NONE, RANK, given_of_head, made_of_head
from fastpe.kernels.rows.dropout import place_in
from fastpe.kernels.simd import at, lanes, load_first, part, pointer, put, scalar, store_first


@inner
def _copied(x, x_row, y, y_row, n, d):
    """n rows of d elements."""
    for i in range(n):
        for j in range(0, d, lanes(x)):
            store_first(y, i * y_row + j, load_first(x, i * x_row + j, d - j), d - j)


@inner
def _offsets_of(gates, layer, h, act, own, sizes, a):
    """Offsets of a head's keys, and whether the layer's gate makes any."""
    return gates_of_head(gates, h, act, own, sizes, a).key_offset, sizes.gated * np.int64(gates[layer, SIGN] != 0)


@inner
def _content(beside, q, c):
    """Queries and keys as the content has them, each with what lies from row to row."""
    if beside is None:
        return (q, 3 * c), (at(q, c), 3 * c)
    return (beside.head.qr, beside.case.qr_row), (beside.head.kr, beside.case.kr_row)


@inner
def _head_of(beside, h, act, memory, layout, offsets, own, sizes, a):
    """A head's rows in one piece, and the products of its tiles."""
    c, n = sizes.width, own.before + own.length
    d, qkv = c // sizes.heads, at(act, a.qkv + own.start * 3 * c + h * (c // sizes.heads))
    queries, keys = _content(beside, qkv, c)
    k, v, products, turned = (
        at(memory, layout.k),
        at(memory, layout.v),
        at(memory, layout.products),
        at(memory, layout.turned),
    )
    w, beta = made_of_head(h, act, own, sizes, a)
    _copied(queries[0], queries[1], at(memory, layout.q), d, n, d)
    _copied(keys[0], keys[1], k, d, n, d)
    _copied(at(qkv, 2 * c), 3 * c, v, d, n, d)
    for first in range(0, n, TILE):
        rows, own_products = min(TILE, n - first), at(products, 2 * TILE * first)
        tile_products(at(w, first * d), at(k, first * d), d, rows, turned, own_products)
    return Head(k, v, w, beta, products, *offsets)


@inner
def _offset_gradients(gates, h, unread, workspace, own, sizes, a):
    """Where attention adds those of offsets of keys; `unread` where no layer has any."""
    if not sizes.gated:
        return unread
    return gate_gradients(gates, h, NONE, workspace, own, sizes, a).dkey_offset


@inner
def _spans_of(layer, position, own):
    """The keys that a sequence's queries see, by their positions."""
    layers, batch, queries, _ = position.spans.shape
    which = min(layer, layers - 1) * batch + min(own.sequence, batch - 1)
    return at(pointer(position.spans), which * 2 * queries)


@inner
def _block(head, first, size, spans, spanned, own):
    """The block of a sequence's new queries that begins with this one."""
    i, count = own.before + first, min(size, own.length - first)
    return block_from(head, i, count, i, i + count, at(spans, 2 * i), spanned)


@inner
def _out_of_head(h, act, own, sizes, a):
    """Its rows of `mixed`, and lse."""
    lse = part(at(act, a.lse), h * sizes.length, sizes.length)
    return at(act, a.mixed + own.start * sizes.width + h * (sizes.width // sizes.heads)), at(lse, own.start)


@inner
def _dropped(dropout, place, position, own, factors):
    """What drops the weights of the head with this place, as `model.attention` has them dropped."""
    return dropped_of(dropout, place_in(dropout, own.sequence, place), position.case.keys, factors)


@inner
def _beside(given, layer, h, act, memory, position, own, sizes, a):
    """All other terms of the scores; None, for which nothing is compiled, where `given` is."""
    if given is None:
        return None
    own_head = head_of(layer, h, act, position, None, NONE, own, sizes, a)
    terms, scratch = (
        terms_of(position.slots, layer, h),
        scratch_memory(h, act, at(memory, position.reflections.layout.others), position, own, a),
    )
    return Beside(own_head, terms, position.case, scratch, None)


@inner
def _with_gradients(beside, layer, h, act, workspace, memory, slot_gradients, position, own, sizes, a):
    """The same, with where gradients go, which those of rows are added to."""
    if beside is None:
        return None
    others, case, n = at(memory, position.reflections.layout.others), position.case, own.length
    grads = gradients_of(layer, h, NONE, act, workspace, others, slot_gradients, position, own, sizes, a)
    for i in range(n):
        clear(at(grads.dq, i * case.g_row), case.width)
        clear(at(grads.dk, i * case.g_row), case.width)
    for i in range(n if case.apart else 0):
        clear(at(grads.dq_rest, i * case.g_row), case.width)
        clear(at(grads.dk_rest, i * case.g_row), case.width)
    return Beside(beside.head, beside.terms, case, beside.scratch, grads)


@inner
def _give_rows(beside, dq, dk, dqkv, n, d, c):
    """The gradients of queries and keys as the content has them."""
    if beside is None:
        _copied(dq, d, dqkv, 3 * c, n, d)
        _copied(dk, d, at(dqkv, c), 3 * c, n, d)
    else:
        row, grads, one = beside.case.g_row, beside.gradients, scalar(dq, 1.0)
        for i in range(n):
            add_scaled(at(grads.dq, i * row), one, at(dq, i * d), d)
            add_scaled(at(grads.dk, i * row), one, at(dk, i * d), d)


@inner
def _is_none(given):
    return given is None


@inner
def _factor(beside, scale, one):
    """What queries are multiplied by: all products are by the scale, where there are others than these."""
    if beside is None:
        return scale
    return one


@inner
def reflected_forward(reflections, layer, act, workspace, position, dropout, place_of_first, own, sizes, a):
    """Whether the layer makes reflections; if so `mixed` from `qkv`, of one sequence. place_of_first: where the weights
    of the first head are dropped out."""
    if reflections is None:
        return False
    if reflections.layers[layer, RANK] == 0:
        return False
    c, layout, memory = sizes.width, reflections.layout, at(workspace, a.attention)
    few = own.length <= FEW and _is_none(reflections.beside)
    d, x, of_row = c // sizes.heads, at(memory, layout.x), at(memory, layout.of_row)
    desk = Desk(
        x, at(memory, layout.along), at(memory, layout.scores), at(memory, layout.steps), at(memory, layout.peaks),
        at(memory, layout.sums), at(memory, layout.mixed), at(memory, layout.visibility),
    )  # fmt: skip
    size, spans, spanned = BLOCK * lanes(x), _spans_of(layer, position, own), position.case.spanned
    for h in range(sizes.heads):
        (out, lse), scale = _out_of_head(h, act, own, sizes, a), position.scale[layer, h]
        offsets = _offsets_of(position.gates, layer, h, act, own, sizes, a)
        dropped = _dropped(dropout, place_of_first + h, position, own, at(memory, layout.factors))
        if few:
            q, (w, beta) = at(act, a.qkv + own.start * 3 * c + h * d), made_of_head(h, act, own, sizes, a)
            head = Head(at(q, c), at(q, 2 * c), w, beta, w, *offsets)
            base = _block(head, NONE, FEW, spans, spanned, own).base
            for i in range(own.before, own.before + own.length):
                row, found, seen = at(q, i * 3 * c), at(out, i * c), span_of(spans, spanned, i, i + 1)
                of_query = row_forward(
                    head, None, d, 3 * c, d, 3 * c, row, scale, seen, i + 1, base, dropped, i, x, of_row, found
                )
                put(lse, i, of_query)
        else:
            beside = _beside(reflections.beside, layer, h, act, memory, position, own, sizes, a)
            head, factor = (
                _head_of(beside, h, act, memory, layout, offsets, own, sizes, a),
                _factor(beside, scale, scalar(x, 1.0)),
            )
            for first in range(0, own.length, size):
                block = _block(head, first, size, spans, spanned, own)
                i = block.position
                q = at(memory, layout.q + i * d)
                block_forward(
                    head, beside, d, d, block, q, factor, layout.lowest, dropped, desk, at(out, i * c), c, at(lse, i)
                )
    return True


@inner
def reflected_backward(
    reflections, layer, act, workspace, slot_gradients, position, dropout, place_of_first, own, sizes, a
):
    """As `reflected_forward`; `dqkv`, and the gradients of w and beta, from `dmixed`."""
    if reflections is None:
        return False
    if reflections.layers[layer, RANK] == 0:
        return False
    c, layout, memory, n = sizes.width, reflections.layout, at(workspace, a.attention), own.length
    d, deltas, back = c // sizes.heads, at(workspace, a.deltas), at(memory, layout.back)
    dq, dk, dv, dout = at(memory, layout.dq), at(memory, layout.dk), at(memory, layout.dv), at(memory, layout.dout)
    size, widths = BLOCK * lanes(back), Sizes(1, 1, 1, n, n, d, d, 0, 0, 1, 0, 0, 0, 0)
    spans, spanned = _spans_of(layer, position, own), position.case.spanned
    for h in range(sizes.heads):
        (out, lse), (dw, dbeta) = _out_of_head(h, act, own, sizes, a), given_of_head(h, workspace, own, sizes, a)
        offsets = _offsets_of(position.gates, layer, h, act, own, sizes, a)
        beside, one = _beside(reflections.beside, layer, h, act, memory, position, own, sizes, a), scalar(back, 1.0)
        head, scale = _head_of(beside, h, act, memory, layout, offsets, own, sizes, a), position.scale[layer, h]
        others = _with_gradients(beside, layer, h, act, workspace, memory, slot_gradients, position, own, sizes, a)
        dropped = _dropped(dropout, place_of_first + h, position, own, at(back, reflections.back.factors))
        grads = dk, dv, dw, dbeta, _offset_gradients(position.gates, h, dbeta, workspace, own, sizes, a)
        _copied(at(workspace, a.dmixed + own.start * c + h * d), c, dout, d, n, d)
        for i in range(n):
            put(deltas, i, dot(at(dout, i * d), at(out, i * c), d))
        clear(dk, n * d)
        clear(dv, n * d)
        clear(dw, n * d)
        clear(dbeta, n)
        for first in range(0, n, size):
            block, rows = _block(head, first, size, spans, spanned, own), first * d
            queries = Queries(
                at(memory, layout.q + rows), at(dout, rows), at(lse, first), at(deltas, first), at(dq, rows)
            )  # fmt: skip
            factor = _factor(beside, scale, one)
            block_back(head, others, widths, block, queries, factor, one, dropped, back, reflections.back, grads)
        dqkv = at(workspace, a.dqkv + own.start * 3 * c + h * d)
        _give_rows(others, dq, dk, dqkv, n, d, c)
        _copied(dv, d, at(dqkv, 2 * c), 3 * c, n, d)
    return True
