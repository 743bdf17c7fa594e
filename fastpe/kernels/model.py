"""The small transformer on one sequence, forward and backward: its two ends, and the layers (`model_layer`) between.

One whole sequence goes forward and backward before the next (`model_batch`), in a scratch arena of its thread; only
parameters, gradients and the input are touched outside it. Per sequence, forward:  2 n (4 c^2 + 2 c f) + 4 n^2 c FLOP a
layer (3 c f with SWIGLU), and 2 n c V for the logits of V tokens, where targets count; backward twice that.

`head` is the matrix that takes rows of the stream to logits: a parameter, or, of a model with tied embeddings, the
transposed table of tokens.
"""

import numpy as np

from fastpe.kernels._jit import inner
from fastpe.kernels.convolution import convolution_backward, convolution_forward
from fastpe.kernels.dropout import drop_rows, place_in
from fastpe.kernels.ends import (
    add,
    embed_backward,
    embed_forward,
    embed_tokens_backward,
    embed_tokens_forward,
    head_backward,
    head_forward,
)
from fastpe.kernels.gemm import FROM, OVERWRITE, gemm
from fastpe.kernels.loss import counted, cross_entropy, pick_rows, spread_rows, squared_error
from fastpe.kernels.model_layer import (
    attention_layer_backward,
    feedforward_backward,
    layer_forward,
    linear,
    linear_back,
    linear_gradients,
    normalise,
    normalise_backward,
)
from fastpe.kernels.model_memory import Sizes
from fastpe.kernels.simd import at, part, pointer

ONE, NONE = np.int64(1), np.int64(0)


@inner
def of_sequence(s, number, lengths, shifts):
    """Sizes of a sequence of the batch: its number, its length, and where in the table it begins."""
    return Sizes(
        lengths[min(number, lengths.size - 1)], number, shifts[min(number, shifts.size - 1)], s.width, s.heads,
        s.hidden, s.inner, s.layers, s.causal, s.activation, s.norms, s.centred, s.norm_biased, s.final_norm, s.biased,
        s.residual, s.vocabulary, s.tied, s.has_table, s.has_qk_table, s.taps, s.pairs, s.half, s.angles_layer,
        s.angles_head, s.wants_table, s.wants_qk_table, s.wants_taps, s.wants_angles,
    )  # fmt: skip


@inner
def stream_forward(x, w, arena, position, dropout, sizes, o, a):
    """Embedding and all layers on one sequence."""
    n, c, z = sizes.length, sizes.width, at(arena, a.streams)
    embedded = at(arena, a.embedded) if sizes.taps else z
    if sizes.vocabulary:
        embed_tokens_forward(x, at(w, o.embed_weight), embedded, n, c)
    else:
        embed_forward(x, at(w, o.embed_weight), at(w, o.embed_bias), embedded, n, c, sizes.biased)
    if sizes.taps:
        convolution_forward(embedded, pointer(position.taps), sizes.taps, sizes.causal, z, n, c)
    if sizes.has_table:
        add(z, at(pointer(position.table), sizes.shift * c), z, n * c)
    drop_rows(dropout, z, n, c, place_in(dropout, sizes.sequence, NONE))
    for layer in range(sizes.layers):
        z = at(arena, a.streams + layer * a.stream_stride)
        layer_forward(
            part(z, NONE, n * c), part(z, a.stream_stride, n * c), layer, at(w, o.layers + layer * o.layer_stride),
            at(arena, a.layers + layer * a.layer_stride), arena, position, dropout, sizes, o, a,
        )  # fmt: skip
    if sizes.final_norm:
        last = at(arena, a.streams + sizes.layers * a.stream_stride)
        normalise(
            last, at(w, o.final_norm_weight), at(w, o.final_norm_bias), at(arena, a.final), at(arena, a.final_stats),
            n, sizes,
        )  # fmt: skip


@inner
def rows_of_stream(arena, sizes, a):
    """What the head is applied to."""
    if sizes.final_norm:
        return at(arena, a.final)
    return at(arena, a.streams + sizes.layers * a.stream_stride)


@inner
def head_of_rows(rows, n, head, w, arena, sizes, o, a):
    """The head on n rows; the output lies at arena + a.output."""
    bias, output = at(w, o.head_bias), at(arena, a.output)
    if sizes.vocabulary:
        biased = sizes.biased and not sizes.tied
        linear(rows, sizes.width, head, bias, output, n, sizes.vocabulary, OVERWRITE, biased)
    else:
        head_forward(rows, head, bias, output, n, sizes.width, sizes.biased)


@inner
def _head_backward(head, w, wt, g, shares, step, count, arena, sizes, o, t, a):
    """dz, the gradient of the stream, from that of the output; `count` targets count."""
    n, c, tokens = sizes.length, sizes.width, sizes.vocabulary
    dz, rows, doutput, dhead_bias = (
        at(arena, a.dz),
        rows_of_stream(arena, sizes, a),
        at(arena, a.output),
        at(g, o.head_bias),
    )
    if not tokens:
        head_backward(doutput, rows, head, dz, at(g, o.head_weight), dhead_bias, n, c, sizes.biased)
        return
    drows = dz
    if count < n:
        rows, drows = at(arena, a.picked), at(arena, a.dpicked)
    if sizes.tied:
        dtable = at(g, o.embed_weight)
        gemm(doutput, ONE, tokens, rows, c, dtable, c, tokens, c, count, FROM, dtable, c, dtable, NONE)
        linear_back(doutput, tokens, at(w, o.embed_weight), drows, c, count, OVERWRITE)
    else:
        linear_gradients(rows, c, doutput, tokens, at(g, o.head_weight), dhead_bias, count, FROM, sizes.biased)
        linear_back(doutput, tokens, at(wt, t.head_weight), drows, c, count, OVERWRITE)
    if count < n:
        spread_rows(drows, shares, step, dz, n, c)


@inner
def sequence_backward(x, head, w, wt, g, grow, shares, step, count, arena, position, dropout, sizes, o, t, a):
    """Adds the gradients of one sequence to g, from the gradient of its output at arena + a.output.

    grow: FROM, or OVERWRITE for a group's first sequence, before which the matrices of the layers hold nothing.
    """
    n, c, dz = sizes.length, sizes.width, at(arena, a.dz)
    _head_backward(head, w, wt, g, shares, step, count, arena, sizes, o, t, a)
    if sizes.final_norm:
        last = at(arena, a.streams + sizes.layers * a.stream_stride)
        normalise_backward(
            dz, last, at(w, o.final_norm_weight), at(arena, a.final_stats), dz, at(g, o.final_norm_weight),
            at(g, o.final_norm_bias), n, NONE, sizes,
        )  # fmt: skip
    for back in range(sizes.layers):
        layer = sizes.layers - 1 - back
        shift = o.layers + layer * o.layer_stride
        wl, gl, wtl = at(w, shift), at(g, shift), at(wt, layer * t.layer_stride)
        act = at(arena, a.layers + layer * a.layer_stride)
        z = at(arena, a.streams + layer * a.stream_stride)
        feedforward_backward(dz, layer, wl, wtl, gl, grow, act, arena, dropout, sizes, o, t, a)
        attention_layer_backward(dz, z, layer, wl, wtl, gl, g, grow, act, arena, position, dropout, sizes, o, t, a)
    drop_rows(dropout, dz, n, c, place_in(dropout, sizes.sequence, NONE))
    if sizes.wants_table:
        dtable = at(at(g, o.table), sizes.shift * c)
        add(dtable, dz, dtable, n * c)
    if sizes.taps:
        whole = at(arena, a.dmixed)
        convolution_backward(
            dz, at(arena, a.embedded), pointer(position.taps), sizes.taps, sizes.causal, whole, at(g, o.taps),
            sizes.wants_taps, n, c,
        )  # fmt: skip
        dz = whole
    if sizes.vocabulary:
        embed_tokens_backward(dz, x, at(g, o.embed_weight), n, c)
    else:
        embed_backward(dz, x, at(g, o.embed_weight), at(g, o.embed_bias), n, c, sizes.biased)


@inner
def sequence_loss(target, shares, step, head, w, arena, sizes, o, a):
    """What one sequence adds to the loss, and how many of its targets count, where that matters.

    The gradient takes the place of the output. Of tokens the head is applied to rows whose targets count.
    """
    n, c, output, rows = sizes.length, sizes.width, at(arena, a.output), rows_of_stream(arena, sizes, a)
    if not sizes.vocabulary:
        head_of_rows(rows, n, head, w, arena, sizes, o, a)
        return squared_error(output, target, output, n, shares, step), n
    count = counted(shares, step, n)
    if count < n:
        picked, tokens, own = at(arena, a.picked), at(arena, a.tokens), at(arena, a.shares)
        pick_rows(rows, target, shares, step, picked, tokens, own, n, c)
        rows, target, shares = picked, tokens, own
    head_of_rows(rows, count, head, w, arena, sizes, o, a)
    return cross_entropy(output, target, output, count, sizes.vocabulary, shares, step), count
