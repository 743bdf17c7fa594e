"""The small transformer on one sequence, forward and backward.

A layer (pre-norm; `u`, `w` are `z`, `y` themselves where there are no norms; "+ z" only with residual connections):

    u = norm1(z);  q, k, v = u Wqkv + bqkv;  o = attention per head;  y = z + o Wout + bout    (see `model_attention`)
    w = norm2(y);  a = w Win + bin;  h = relu(a) or gelu(a);          z' = y + h Wff + bff

One whole sequence goes forward and backward before the next (`model_batch`), in a scratch arena of its thread; only
parameters, gradients and the input are touched outside it. Per sequence, forward:  2 n (4 c^2 + 2 c f) + 4 n^2 c FLOP a
layer, and 2 n c V for the logits of V tokens, where targets count; backward twice that.
"""

import numpy as np

from fastpe.kernels._jit import inner
from fastpe.kernels.activation import gelu_backward, gelu_forward
from fastpe.kernels.convolution import convolution_backward, convolution_forward
from fastpe.kernels.ends import (
    add,
    embed_backward,
    embed_forward,
    embed_tokens_backward,
    embed_tokens_forward,
    head_backward,
    head_forward,
)
from fastpe.kernels.gemm import FROM, OVERWRITE, PLUS, RELU, WHERE_POSITIVE, add_column_sums, gemm
from fastpe.kernels.loss import counted, cross_entropy, pick_rows, spread_rows, squared_error
from fastpe.kernels.model_attention import attention_backward, attention_forward, project, project_backward
from fastpe.kernels.model_memory import Sizes
from fastpe.kernels.norm import layer_norm_backward, layer_norm_forward
from fastpe.kernels.simd import at, part, pointer

NORM_EPS = 1e-5
ONE, NONE = np.int64(1), np.int64(0)


@inner
def _linear(x, c, weight, bias, y, n, width, mode):
    """y = f(x weight + bias), n rows of c elements into n rows of `width`."""
    gemm(x, c, ONE, weight, width, y, width, n, width, c, FROM | mode, bias, NONE, y, NONE)


@inner
def _linear_onto(x, c, weight, bias, z, y, n, width, residual):
    """y = z + x weight + bias, without z where there is no residual connection."""
    if residual:
        gemm(x, c, ONE, weight, width, y, width, n, width, c, FROM | PLUS, z, width, bias, NONE)
    else:
        _linear(x, c, weight, bias, y, n, width, OVERWRITE)


@inner
def _linear_gradients(x, c, dy, width, dweight, dbias, n, mode):
    """dweight = x^T dy (added to it with mode FROM), dbias += column sums of dy."""
    gemm(x, ONE, c, dy, width, dweight, width, c, width, n, mode, dweight, width, dweight, NONE)
    add_column_sums(dy, width, n, width, dbias)


@inner
def _linear_back(dy, width, transposed, dx, c, n, mode):
    """dx = dy weight^T (+ dx with mode FROM)."""
    gemm(dy, width, ONE, transposed, c, dx, c, n, c, width, mode, dx, c, dx, NONE)


@inner
def layer_forward(z, out, layer, w, act, arena, position, sizes, o, a):
    """One layer: z -> out (n, c). w: its parameters; act: its activations, kept for the backward pass."""
    n, c, f = sizes.length, sizes.width, sizes.hidden
    mixed, middle, hidden = at(act, a.mixed), at(act, a.middle), at(act, a.hidden)
    u = z
    if sizes.norms:
        u = at(act, a.normed1)
        layer_norm_forward(z, at(w, o.norm1_weight), at(w, o.norm1_bias), u, at(act, a.stats1), n, c, NORM_EPS)
    project(u, at(w, o.qkv_weight), at(w, o.qkv_bias), act, arena, position, sizes, a)
    attention_forward(layer, act, arena, position, sizes, a)
    _linear_onto(mixed, c, at(w, o.out_weight), at(w, o.out_bias), z, middle, n, c, sizes.residual)
    u = middle
    if sizes.norms:
        u = at(act, a.normed2)
        layer_norm_forward(middle, at(w, o.norm2_weight), at(w, o.norm2_bias), u, at(act, a.stats2), n, c, NORM_EPS)
    if sizes.gelu:
        _linear(u, c, at(w, o.in_weight), at(w, o.in_bias), at(act, a.before), n, f, OVERWRITE)
        gelu_forward(at(act, a.before), hidden, n * f)
    else:
        _linear(u, c, at(w, o.in_weight), at(w, o.in_bias), hidden, n, f, RELU)
    _linear_onto(hidden, f, at(w, o.ff_weight), at(w, o.ff_bias), middle, out, n, c, sizes.residual)


@inner
def _feedforward_backward(dz, w, wt, g, grow, act, arena, sizes, o, t, a):
    """dz: the gradient of the layer's output on entry, of `middle` on return. grow: mode of the matrices' gradients."""
    n, c, f = sizes.length, sizes.width, sizes.hidden
    hidden, dhidden = at(act, a.hidden), at(arena, a.dhidden)
    middle, mode = at(act, a.middle), FROM if sizes.residual else OVERWRITE
    _linear_gradients(hidden, f, dz, c, at(g, o.ff_weight), at(g, o.ff_bias), n, grow)
    if sizes.gelu:
        _linear_back(dz, c, at(wt, t.ff_weight), dhidden, f, n, OVERWRITE)
        gelu_backward(at(act, a.before), dhidden, n * f)
    else:
        gemm(dz, c, ONE, at(wt, t.ff_weight), f, dhidden, f, n, f, c, WHERE_POSITIVE, dz, NONE, hidden, f)
    if sizes.norms:
        _linear_gradients(at(act, a.normed2), c, dhidden, f, at(g, o.in_weight), at(g, o.in_bias), n, grow)
        dnormed = at(arena, a.dnormed)
        _linear_back(dhidden, f, at(wt, t.in_weight), dnormed, c, n, OVERWRITE)
        layer_norm_backward(
            dnormed, middle, at(w, o.norm2_weight), at(act, a.stats2), dz, at(g, o.norm2_weight), at(g, o.norm2_bias),
            n, c, sizes.residual,
        )  # fmt: skip
    else:
        _linear_gradients(middle, c, dhidden, f, at(g, o.in_weight), at(g, o.in_bias), n, grow)
        _linear_back(dhidden, f, at(wt, t.in_weight), dz, c, n, mode)


@inner
def _attention_backward(dz, z, layer, w, wt, g, slot_gradients, grow, act, arena, position, sizes, o, t, a):
    """dz: the gradient of `middle` on entry, of the layer's input z on return."""
    n, c = sizes.length, sizes.width
    mixed, dmixed, dqkv = at(act, a.mixed), at(arena, a.dmixed), at(arena, a.dqkv)
    mode = FROM if sizes.residual else OVERWRITE
    _linear_gradients(mixed, c, dz, c, at(g, o.out_weight), at(g, o.out_bias), n, grow)
    _linear_back(dz, c, at(wt, t.out_weight), dmixed, c, n, OVERWRITE)
    attention_backward(layer, act, arena, slot_gradients, position, sizes, o, a)
    qkv_weight, qkv_bias = at(g, o.qkv_weight), at(g, o.qkv_bias)
    u = at(act, a.normed1) if sizes.norms else z
    if sizes.has_qk_table:
        project_backward(
            u, at(wt, t.qkv_weight), qkv_weight, qkv_bias, slot_gradients, grow, arena, position, sizes, o, a
        )
    else:
        _linear_gradients(u, c, dqkv, 3 * c, qkv_weight, qkv_bias, n, grow)
    if sizes.norms:
        dnormed = at(arena, a.dnormed)
        _linear_back(dqkv, 3 * c, at(wt, t.qkv_weight), dnormed, c, n, OVERWRITE)
        layer_norm_backward(
            dnormed, z, at(w, o.norm1_weight), at(act, a.stats1), dz, at(g, o.norm1_weight), at(g, o.norm1_bias),
            n, c, sizes.residual,
        )  # fmt: skip
    else:
        _linear_back(dqkv, 3 * c, at(wt, t.qkv_weight), dz, c, n, mode)


@inner
def of_length(s, n):
    """Sizes of a sequence."""
    return Sizes(
        n, s.width, s.heads, s.hidden, s.layers, s.causal, s.gelu, s.norms, s.residual, s.vocabulary, s.has_table,
        s.has_qk_table, s.taps, s.pairs, s.half, s.angles_layer, s.angles_head, s.wants_table, s.wants_qk_table,
        s.wants_taps, s.wants_angles,
    )  # fmt: skip


@inner
def stream_forward(x, w, arena, position, sizes, o, a):
    """Embedding and all layers on one sequence."""
    n, c, z = sizes.length, sizes.width, at(arena, a.streams)
    embedded = at(arena, a.embedded) if sizes.taps else z
    if sizes.vocabulary:
        embed_tokens_forward(x, at(w, o.embed_weight), embedded, n, c)
    else:
        embed_forward(x, at(w, o.embed_weight), at(w, o.embed_bias), embedded, n, c)
    if sizes.taps:
        convolution_forward(embedded, pointer(position.taps), sizes.taps, sizes.causal, z, n, c)
    if sizes.has_table:
        add(z, pointer(position.table), z, n * c)
    for layer in range(sizes.layers):
        z = at(arena, a.streams + layer * a.stream_stride)
        layer_forward(
            part(z, NONE, n * c), part(z, a.stream_stride, n * c), layer, at(w, o.layers + layer * o.layer_stride),
            at(arena, a.layers + layer * a.layer_stride), arena, position, sizes, o, a,
        )  # fmt: skip


@inner
def head_of_rows(rows, n, w, arena, sizes, o, a):
    """The head on n rows; the output lies at arena + a.output."""
    head, head_bias, output = at(w, o.head_weight), at(w, o.head_bias), at(arena, a.output)
    if sizes.vocabulary:
        _linear(rows, sizes.width, head, head_bias, output, n, sizes.vocabulary, OVERWRITE)
    else:
        head_forward(rows, head, head_bias, output, n, sizes.width)


@inner
def _head_backward(w, wt, g, shares, step, count, arena, sizes, o, t, a):
    """dz, the gradient of the stream, from that of the output; `count` targets count."""
    n, c = sizes.length, sizes.width
    dz, rows = at(arena, a.dz), at(arena, a.streams + sizes.layers * a.stream_stride)
    doutput, dhead, dhead_bias = at(arena, a.output), at(g, o.head_weight), at(g, o.head_bias)
    if not sizes.vocabulary:
        head_backward(doutput, rows, at(w, o.head_weight), dz, dhead, dhead_bias, n, c)
        return
    drows = dz
    if count < n:
        rows, drows = at(arena, a.picked), at(arena, a.dpicked)
    _linear_gradients(rows, c, doutput, sizes.vocabulary, dhead, dhead_bias, count, FROM)
    _linear_back(doutput, sizes.vocabulary, at(wt, t.head_weight), drows, c, count, OVERWRITE)
    if count < n:
        spread_rows(drows, shares, step, dz, n, c)


@inner
def sequence_backward(x, w, wt, g, grow, shares, step, count, arena, position, sizes, o, t, a):
    """Adds the gradients of one sequence to g, from the gradient of its output at arena + a.output.

    grow: FROM, or OVERWRITE for a group's first sequence, before which the matrices of the layers hold nothing.
    """
    n, c, dz = sizes.length, sizes.width, at(arena, a.dz)
    _head_backward(w, wt, g, shares, step, count, arena, sizes, o, t, a)
    for back in range(sizes.layers):
        layer = sizes.layers - 1 - back
        shift = o.layers + layer * o.layer_stride
        wl, gl, wtl = at(w, shift), at(g, shift), at(wt, layer * t.layer_stride)
        act = at(arena, a.layers + layer * a.layer_stride)
        z = at(arena, a.streams + layer * a.stream_stride)
        _feedforward_backward(dz, wl, wtl, gl, grow, act, arena, sizes, o, t, a)
        _attention_backward(dz, z, layer, wl, wtl, gl, g, grow, act, arena, position, sizes, o, t, a)
    if sizes.wants_table:
        add(at(g, o.table), dz, at(g, o.table), n * c)
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
        embed_backward(dz, x, at(g, o.embed_weight), at(g, o.embed_bias), n, c)


@inner
def sequence_loss(target, shares, step, w, arena, sizes, o, a):
    """What one sequence adds to the loss, and how many of its targets count, where that matters.

    The gradient takes the place of the output. Of tokens the head is applied to rows whose targets count.
    """
    n, c, output = sizes.length, sizes.width, at(arena, a.output)
    rows = at(arena, a.streams + sizes.layers * a.stream_stride)
    if not sizes.vocabulary:
        head_of_rows(rows, n, w, arena, sizes, o, a)
        return squared_error(output, target, output, n, shares, step), n
    count = counted(shares, step, n)
    if count < n:
        picked, tokens, own = at(arena, a.picked), at(arena, a.tokens), at(arena, a.shares)
        pick_rows(rows, target, shares, step, picked, tokens, own, n, c)
        rows, target, shares = picked, tokens, own
    head_of_rows(rows, count, w, arena, sizes, o, a)
    return cross_entropy(output, target, output, count, sizes.vocabulary, shares, step), count
