"""Forward and backward passes of the small transformer on a pack of sequences (`model.pack`). This module computes the
embedding and the output head, and calls the layers (`model.layer`) between them.

A thread processes a whole pack forward and backward before its next pack (`model.batch`). It does so in its workspace;
only parameters, gradients and the batch are outside of it.

Let a sequence have n positions, the model c channels, f hidden units in a feed-forward network, q channels of queries
(all heads together), and k channels each of keys and of values. Each layer of the forward pass then takes
2 n (2 c q + 2 c k + 2 c f) + 4 n^2 q FLOP; with SWIGLU and GEGLU, 3 c f replaces 2 c f. The logits over V tokens take
2 n c V FLOP if all targets count. The backward pass takes twice as many FLOP. In training steps, some models save some
of these matrix products, because the embedding or the head is fused with a layer (`model.fused_embedding_and_head`).

`head` is the matrix that maps rows of the residual stream to logits: a parameter or, in a model with tied embeddings,
the transposed token embedding.
"""

import numpy as np

from fastpe.kernels.attention.terms.softcap import cap_cells, cap_cells_backward, cap_row
from fastpe.kernels.attention.tile import scale_row
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.model.convolution import convolution_backward, convolution_forward
from fastpe.kernels.model.embedding_and_head import (
    add,
    clear,
    copy,
    embed_backward,
    embed_forward,
    embed_tokens_backward,
    embed_tokens_forward,
    head_backward,
    head_forward,
)
from fastpe.kernels.model.fused_embedding_and_head import input_backward, input_forward, output_backward, output_forward
from fastpe.kernels.model.layer import (
    attention_layer_backward,
    feedforward_backward,
    layer_forward,
    linear,
    linear_back,
    linear_gradients,
    normalise,
    normalise_backward,
)
from fastpe.kernels.model.loss import counted, cross_entropy, pick_rows, spread_rows, squared_error
from fastpe.kernels.model.pack import drop_pack, first_place, pass_on, place_of, rows_of, take_turn
from fastpe.kernels.products.float_gemm import FROM, OVERWRITE
from fastpe.kernels.products.gemm import gemm
from fastpe.kernels.simd import at, part, pointer, scalar

ONE, NONE = np.int64(1), np.int64(0)


@inner
def stream_forward(x, w, wt, workspace, position, dropout, pack, sizes, o, t, a):
    """Compute the embedding and all layers on a pack; x: the batch."""
    c, z = sizes.width, at(workspace, a.streams)
    _input_forward(x, w, workspace, position, pack, sizes, o, a)
    drop_pack(dropout, z, c, NONE, pack)
    for layer in range(sizes.layers):
        z = at(workspace, a.streams + layer * a.stream_stride)
        layer_forward(
            part(z, NONE, pack.rows * c), part(z, a.stream_stride, pack.rows * c), layer, w,
            at(w, o.layers + layer * o.layer_stride), at(wt, layer * t.layer_stride),
            at(workspace, a.layers + layer * a.layer_stride), workspace, position, dropout, pack, sizes, o, t, a,
        )  # fmt: skip
    if sizes.final_norm:
        last = at(workspace, a.streams + sizes.layers * a.stream_stride)
        normalise(
            last, at(w, o.final_norm_weight), at(w, o.final_norm_bias), at(workspace, a.final), at(workspace,
            a.final_stats), pack.rows, sizes,
        )  # fmt: skip


@inner
def _input_forward(x, w, workspace, position, pack, sizes, o, a):
    """Compute the input of the first layer: the embedding, the convolution and the position table."""
    c, weight, start = sizes.width, at(w, o.embed_weight), NONE
    for sequence in range(pack.first, pack.last):
        own = rows_of(pack, sequence, start)
        n, z, x_own = own.length, at(workspace, a.streams + start * c), part(x, sequence * sizes.length, own.length)
        if sizes.fused_input:
            qkv = at(workspace, a.layers + a.qkv + start * 3 * c)
            input_forward(x_own, at(workspace, a.embedding), z, n, c, sizes)
            input_forward(x_own, at(workspace, a.projection), qkv, n, 3 * c, sizes)
            start += n
            continue
        embedded = at(workspace, a.embedded + (own.before + start) * c) if sizes.taps else z
        if sizes.vocabulary:
            embed_tokens_forward(x_own, weight, embedded, n, c)
            if sizes.embedding_scale != 1.0:
                scale_row(embedded, n * c, scalar(embedded, sizes.embedding_scale))
        else:
            embed_forward(x_own, weight, at(w, o.embed_bias), embedded, n, c, sizes.biased)
        if sizes.taps:
            convolution_forward(
                at(workspace, a.embedded + start * c), pointer(position.taps), sizes.taps, sizes.causal, z, own.before,
                own.before + n, c,
            )  # fmt: skip
        if sizes.has_table and sizes.gathers_table:
            for i in range(n):
                row = at(z, i * c)
                add(row, at(pointer(position.table), place_of(0, i, own) * c), row, c)
        elif sizes.has_table:
            add(z, at(pointer(position.table), (first_place(own) + own.before) * c), z, n * c)
        start += n


@inner
def _input_backward(dz, x, workspace, position, g, pack, sizes, o, a):
    """From dz, the gradient of the first layer's input, compute the gradients of table, convolution and embedding."""
    c, dweight, start = sizes.width, at(g, o.embed_weight), NONE
    for sequence in range(pack.first, pack.last):
        own = rows_of(pack, sequence, start)
        n, d, x_own = own.length, at(dz, start * c), part(x, sequence * sizes.length, own.length)
        if sizes.fused_input:
            input_backward(at(workspace, a.dqkv + start * 3 * c), x_own, at(g, o.projection), n, 3 * c, sizes)
        if sizes.wants_table and sizes.gathers_table:
            for i in range(n):  # tokens may share a row: add in their order
                drow = at(at(g, o.table), place_of(0, i, own) * c)
                add(drow, at(d, i * c), drow, c)
        elif sizes.wants_table:
            dtable = at(at(g, o.table), first_place(own) * c)
            add(dtable, d, dtable, n * c)
        if sizes.taps:
            whole = at(workspace, a.dmixed)
            convolution_backward(
                d, at(workspace, a.embedded + start * c), pointer(position.taps), sizes.taps, sizes.causal, whole,
                at(g, o.taps), sizes.wants_taps, n, c,
            )  # fmt: skip
            d = whole
        if sizes.vocabulary:
            if sizes.embedding_scale != 1.0:
                scale_row(d, n * c, scalar(d, sizes.embedding_scale))
            embed_tokens_backward(d, x_own, dweight, n, c)
        else:
            embed_backward(d, x_own, dweight, at(g, o.embed_bias), n, c, sizes.biased)
        start += n


@inner
def rows_of_stream(workspace, sizes, a):
    """Return the rows that the head multiplies."""
    if sizes.final_norm:
        return at(workspace, a.final)
    if sizes.fused_output:
        return at(_last_layer(workspace, sizes, a), a.middle)
    return at(workspace, a.streams + sizes.layers * a.stream_stride)


@inner
def _last_layer(workspace, sizes, a):
    return at(workspace, a.layers + (sizes.layers - 1) * a.layer_stride)


@inner
def outputs_of_rows(rows, n, head, row, w, output, workspace, sizes, o, a):
    """Compute the model's outputs for n rows: the outputs of the head, with the soft cap. row: row
    stride of the head.
    """
    head_of_rows(rows, n, head, row, w, output, workspace, sizes, o, a)
    if sizes.logit_softcap > 0.0:
        cap_row(output, sizes.logit_softcap, n * sizes.vocabulary)


@inner
def head_of_rows(rows, n, head, row, w, output, workspace, sizes, o, a):
    """Apply the head to n rows. row: row stride of the head."""
    bias = at(w, o.head_bias)
    if sizes.vocabulary:
        biased = sizes.biased and not sizes.tied
        linear(rows, sizes.width, head, row, bias, output, n, sizes.vocabulary, OVERWRITE, biased)
    else:
        head_forward(rows, head, bias, output, n, sizes.width, sizes.biased, False)
        if sizes.fused_output:
            output_forward(at(_last_layer(workspace, sizes, a), a.hidden), at(workspace, a.readout), output, n, sizes)


@inner
def _gathered(count, pack):
    """Whether the rows whose targets count are copied together. If the pack is a single sequence and all its targets
    count, rows and targets are used in place. count: the number of targets that count.
    """
    return count < pack.rows or pack.last - pack.first > 1


@inner
def _gather(target, shares, step, workspace, pack, sizes, a):
    """Copy the rows of the residual stream whose targets count, with their targets and shares."""
    c, found, start = sizes.width, NONE, NONE
    rows, picked, tokens, kept = (
        rows_of_stream(workspace, sizes, a),
        at(workspace, a.picked),
        at(workspace, a.tokens),
        a.shares,
    )
    for sequence in range(pack.first, pack.last):
        own, first = rows_of(pack, sequence, start), sequence * sizes.length
        found += pick_rows(
            at(rows, start * c), part(target, first, own.length), at(shares, first * step), step,
            at(picked, found * c), at(tokens, found), at(workspace, kept + found), own.length, c,
        )  # fmt: skip
        start += own.length


@inner
def _scatter(drows, shares, step, dz, pack, sizes):
    """Copy the gradients of gathered rows back to the places of these rows in dz, and write 0 to all other rows."""
    c, found, start = sizes.width, NONE, NONE
    for sequence in range(pack.first, pack.last):
        own, first = rows_of(pack, sequence, start), sequence * sizes.length
        found += spread_rows(at(drows, found * c), at(shares, first * step), step, at(dz, start * c), own.length, c)
        start += own.length


@inner
def _head_backward(head, w, wt, g, shares, step, count, workspace, pack, sizes, o, t, a):
    """Compute dz, the gradient of the residual stream, from the gradient of the output. count: the number of targets
    that count."""
    c, tokens, dz, rows = sizes.width, sizes.vocabulary, at(workspace, a.dz), rows_of_stream(workspace, sizes, a)
    doutput, dhead_bias = at(workspace, a.output), at(g, o.head_bias)
    if not tokens:
        take_turn(pack)
        head_backward(doutput, rows, head, dz, at(g, o.head_weight), dhead_bias, pack.rows, c, sizes.biased)
        if sizes.fused_output:
            hidden = at(_last_layer(workspace, sizes, a), a.hidden)
            output_backward(doutput, hidden, at(g, o.readout), pack.rows, sizes)
        pass_on(pack)
        return
    drows = dz
    if _gathered(count, pack):
        rows, drows = at(workspace, a.picked), at(workspace, a.dpicked)
    if sizes.tied:  # `pack_backward` adds the gradient of the embedding in the last turn, for both of its uses
        linear_back(doutput, tokens, at(w, o.embed_weight), c, drows, c, count, OVERWRITE)
    else:
        linear_gradients(rows, c, doutput, tokens, at(g, o.head_weight), dhead_bias, count, FROM, sizes.biased, pack)
        linear_back(doutput, tokens, at(wt, t.head_weight), c, drows, c, count, OVERWRITE)
    if _gathered(count, pack):
        _scatter(drows, shares, step, dz, pack, sizes)


@inner
def pack_backward(x, head, w, wt, g, grow, shares, step, count, workspace, position, dropout, pack, sizes, o, t, a):
    """Add the gradients of a pack to g, from the gradient of its output at workspace + a.output.

    Gradients to which several parts of the model contribute are added in the last turn only; otherwise they would not
    be added in the order of the packs. Therefore the gradients of layers' slots are first summed in the workspace.
    grow: the mode for the gradients of the layers' matrices: OVERWRITE for a group's first pack, otherwise FROM."""
    c, dz, slots = sizes.width, at(workspace, a.dz), at(workspace, a.slots)
    clear(slots, sizes.slots)
    _head_backward(head, w, wt, g, shares, step, count, workspace, pack, sizes, o, t, a)
    if sizes.final_norm:
        last = at(workspace, a.streams + sizes.layers * a.stream_stride)
        normalise_backward(
            dz, last, at(w, o.final_norm_weight), at(workspace, a.final_stats), dz, at(g, o.final_norm_weight),
            at(g, o.final_norm_bias), NONE, pack, sizes,
        )  # fmt: skip
    for back in range(sizes.layers):
        layer = sizes.layers - 1 - back
        shift = o.layers + layer * o.layer_stride
        wl, gl, wtl = at(w, shift), at(g, shift), at(wt, layer * t.layer_stride)
        act = at(workspace, a.layers + layer * a.layer_stride)
        z, dmiddle = at(workspace, a.streams + layer * a.stream_stride), dz
        if sizes.parallel:
            dmiddle = at(workspace, a.dmiddle)
            copy(dz, dmiddle, pack.rows * c)
        feedforward_backward(dz, z, layer, wl, wtl, gl, grow, act, workspace, dropout, pack, sizes, o, t, a)
        attention_layer_backward(
            dz, dmiddle, z, layer, w, wl, wtl, gl, g, slots, grow, act, workspace, position, dropout, pack, sizes, o, t,
            a,
        )  # fmt: skip
    drop_pack(dropout, dz, c, NONE, pack)
    take_turn(pack)
    add(at(g, o.slots), slots, at(g, o.slots), sizes.slots)
    if sizes.tied:
        rows = at(workspace, a.picked) if _gathered(count, pack) else rows_of_stream(workspace, sizes, a)
        doutput, dtable, tokens = at(workspace, a.output), at(g, o.embed_weight), sizes.vocabulary
        gemm(doutput, ONE, tokens, rows, c, dtable, c, tokens, c, count, FROM, dtable, c, dtable, NONE)
    _input_backward(dz, x, workspace, position, g, pack, sizes, o, a)
    pass_on(pack)


@inner
def pack_loss(target, shares, step, head, row, w, workspace, pack, sizes, o, a):
    """Return the pack's contribution to the loss, and the number of its targets that count (in a model of numbers, the
    number of its rows).

    The gradient overwrites the output. With tokens, the head is applied only to rows whose targets count, to `a.block`
    rows at a time; each block overwrites the one before it. In a training step all rows are one block.
    """
    output, rows, count, start, loss = at(workspace, a.output), rows_of_stream(workspace, sizes, a), NONE, NONE, 0.0
    if not sizes.vocabulary:
        head_of_rows(rows, pack.rows, head, row, w, output, workspace, sizes, o, a)
        for sequence in range(pack.first, pack.last):
            own, first = rows_of(pack, sequence, start), sequence * sizes.length
            y, n = at(output, start), own.length
            loss += squared_error(y, part(target, first, n), y, n, at(shares, first * step), step)
            start += n
        return loss, pack.rows
    for sequence in range(pack.first, pack.last):
        count += counted(at(shares, sequence * sizes.length * step), step, rows_of(pack, sequence, NONE).length)
    own_target, own_shares = at(target, pack.first * sizes.length), at(shares, pack.first * sizes.length * step)
    if _gathered(count, pack):
        _gather(target, shares, step, workspace, pack, sizes, a)
        rows, own_target, own_shares, step = (
            at(workspace, a.picked),
            at(workspace, a.tokens),
            at(workspace, a.shares),
            ONE,
        )
    for i in range(0, count, a.block):
        n, own, ends = min(a.block, count - i), at(own_shares, i * step), at(own_target, i)
        head_of_rows(at(rows, i * sizes.width), n, head, row, w, output, workspace, sizes, o, a)
        if sizes.logit_softcap > 0.0:
            loss = _capped_cross_entropy(output, ends, n, own, step, workspace, sizes, a, loss)
        else:
            loss = cross_entropy(output, ends, output, n, sizes.vocabulary, own, step, loss)
    return loss, count


@inner
def _capped_cross_entropy(output, target, count, shares, step, workspace, sizes, a, loss):
    """Do the same as `cross_entropy`, with the soft cap of the logits, one row at a time. The gradient of a row
    overwrites its logits. The derivative of the cap is stored only for the current row.
    """
    size, slopes = sizes.vocabulary, at(workspace, a.cap_slopes)
    for i in range(count):
        row = at(output, i * size)
        cap_cells(row, slopes, sizes.logit_softcap, ONE, size, ONE)
        loss = cross_entropy(row, at(target, i), row, ONE, size, at(shares, i * step), step, loss)
        cap_cells_backward(row, slopes, ONE, size)
    return loss
