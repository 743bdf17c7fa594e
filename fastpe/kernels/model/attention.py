"""The attention of one layer of the model: the projections of a pack of sequences, the rotation, then
`kernels.attention` for each head.

    q, k = (u + qk_table) Wqk + bqk;   v = u Wv + bv;   q^, k^ = content rows of q and k (`model.content`);
    o = attention of each head

q^ and k^ are q and k after up to five steps: the norm of `model.qk_norm`, and the matrices, the polar form, the
rotation and the factors of `model.content`. Several successive query heads may share a head of keys and values, whose
gradients are then summed over these query heads. If sequences have at most TILE_KEYS positions, so that their keys form
one block, the weights of attention are usually kept in the workspace for the backward pass (`Case.kept`); otherwise
they are computed again. If the encoding uses reflections or a network over scores, the products of attention are not
rounded to bfloat16.
"""

import numpy as np

from fastpe.kernels.attention.backward import Ticket, key_block_backward, prepare_deltas, prepare_key_block
from fastpe.kernels.attention.forward import forward_rows
from fastpe.kernels.attention.inputs import terms_of
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.model.attention_head import gradients_of, head_of, lse_of, mixed_of, scratch_memory, transient_of
from fastpe.kernels.model.content import content_backward, make_content, moves
from fastpe.kernels.model.dape import network_backward, network_forward
from fastpe.kernels.model.embedding_and_head import add
from fastpe.kernels.model.gates import clear_gate_gradients
from fastpe.kernels.model.pack import rows_of
from fastpe.kernels.model.path import reflected_backward, reflected_forward
from fastpe.kernels.products.bfloat16.isa import exact
from fastpe.kernels.products.float_gemm import FROM, OVERWRITE, add_column_sums
from fastpe.kernels.products.gemm import gemm
from fastpe.kernels.simd import at, pointer

ONE, NONE = np.int64(1), np.int64(0)


@inner
def _shifted(u, workspace, position, pack, sizes, a):
    """Compute u + qk_table; the rows of qk_table start again with every sequence."""
    c, shifted, start = sizes.width, at(workspace, a.shifted), NONE
    for sequence in range(pack.first, pack.last):
        own = rows_of(pack, sequence, start)
        add(at(u, start * c), at(pointer(position.qk_table), own.before * c), at(shifted, start * c), own.length * c)
        start += own.length
    return shifted


@inner
def project(u, weight, row, bias, act, workspace, position, pack, sizes, a):
    """Compute q, k and v of all heads. row: row stride of the weight. With a qk_table, it is the weight's number of
    columns.
    """
    n, c, wide, start = pack.rows, sizes.width, sizes.projected, FROM if sizes.qkv_biased else OVERWRITE
    qkv = at(act, a.qkv + pack.before * wide)
    if not sizes.has_qk_table:
        gemm(u, c, ONE, weight, row, qkv, wide, n, wide, c, start, bias, NONE, qkv, NONE)
        return
    qk, values = wide - sizes.key_width, sizes.key_width
    shifted, v = _shifted(u, workspace, position, pack, sizes, a), at(qkv, qk)
    gemm(shifted, c, ONE, weight, row, qkv, wide, n, qk, c, start, bias, NONE, qkv, NONE)
    gemm(u, c, ONE, at(weight, qk), row, v, wide, n, values, c, start, at(bias, qk), NONE, v, NONE)


@inner
def project_backward(u, transposed, row, dweight, dbias, slot_gradients, grow, workspace, position, pack, sizes, o, a):
    """Compute the gradients of the projections' parameters and of qk_table from the gradients of q, k and v."""
    n, c, wide, dqkv, start = pack.rows, sizes.width, sizes.projected, at(workspace, a.dqkv), NONE
    qk, values, shifted = wide - sizes.key_width, sizes.key_width, _shifted(u, workspace, position, pack, sizes, a)
    gemm(shifted, ONE, c, dqkv, wide, dweight, wide, c, qk, n, grow, dweight, wide, dweight, NONE)
    dv, dwv = at(dqkv, qk), at(dweight, qk)
    gemm(u, ONE, c, dv, wide, dwv, wide, c, values, n, grow, dwv, wide, dwv, NONE)
    if sizes.qkv_biased:
        add_column_sums(dqkv, wide, n, wide, dbias)
    if sizes.wants_qk_table:
        dtable = at(slot_gradients, o.qk_table)
        for sequence in range(pack.first, pack.last):
            own = rows_of(pack, sequence, start)
            d = at(dqkv, start * wide)
            gemm(d, wide, ONE, transposed, row, dtable, c, own.length, c, qk, FROM, dtable, c, dtable, NONE)
            start += own.length


@inner
def attention_forward(layer, act, workspace, position, dropout, place_of_first, own, sizes, a):
    """Compute `mixed` from `qkv` for one sequence.

    place_of_first: the number of the dropout of the first head's weights, as counted in `rows.dropout.places_of`.
    """
    case, transient = position.case, transient_of(layer, workspace, a)
    make_content(layer, act, workspace, position, own, sizes, a)
    rest = exact(act), exact(workspace), position, dropout, place_of_first, own, sizes, a
    if network_forward(position.net, layer, *rest):
        return
    if reflected_forward(position.reflections, layer, *rest):
        return
    for h in range(sizes.heads):
        head = head_of(layer, h, act, position, dropout, place_of_first, own, sizes, a)
        terms = terms_of(position.slots, layer, h)
        scratch = scratch_memory(h, act, at(workspace, a.attention), position, own, a)
        out, lse = mixed_of(h, transient, own, sizes, a), lse_of(h, transient, position, own, a)
        for i in range(0, own.length, TILE_QUERIES):
            forward_rows(head, terms, own.before + i, out, lse, case, scratch)


@inner
def attention_backward(layer, act, workspace, slot_gradients, position, dropout, place_of_first, own, sizes, o, a):
    """Compute `dqkv` from `dmixed` for one sequence, and add to the gradients of slots."""
    n, case, group, memory = own.length, position.case, sizes.heads // sizes.key_heads, at(workspace, a.attention)
    clear_gate_gradients(position.gates, workspace, own, sizes, a)
    exactly = exact(act), exact(workspace), exact(slot_gradients)
    rest = position, dropout, place_of_first, own, sizes
    networked = network_backward(position.net, layer, *exactly, *rest, o, a)
    reflected = reflected_backward(position.reflections, layer, *exactly, *rest, a)
    for key_head in range(0 if networked or reflected else sizes.key_heads):
        for key_block in range((n + TILE_KEYS - 1) // TILE_KEYS):
            for h in range(key_head * group, (key_head + 1) * group):
                head = head_of(layer, h, act, position, dropout, place_of_first, own, sizes, a)
                terms, j0 = terms_of(position.slots, layer, h), key_block * TILE_KEYS
                scratch = scratch_memory(h, act, memory, position, own, a)
                grads = gradients_of(layer, h, j0, act, workspace, memory, slot_gradients, position, own, sizes, a)
                if key_block == 0:
                    out = mixed_of(h, act, own, sizes, a)
                    for block in range((n + TILE_QUERIES - 1) // TILE_QUERIES):
                        prepare_deltas(grads.dout, out, grads.deltas, block, n, case)
                if h == key_head * group:
                    prepare_key_block(head, terms, grads, key_block, case, scratch)
                ticket = Ticket(pointer(position.places), NONE, key_block)  # never waited for: one thread does all
                key_block_backward(head, terms, grads, key_block, ticket, case, scratch)
    if moves(sizes) or case.apart:
        content_backward(layer, act, workspace, slot_gradients, position, own, sizes, o, a)
