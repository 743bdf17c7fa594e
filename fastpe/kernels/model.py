"""The small transformer on one sequence, forward and backward, and the loops over a batch that fork.

A layer (pre-norm; `u`, `w` are `z`, `y` themselves where there are no norms; "+ z" only with residual connections):

    u = norm1(z);  q, k, v = u Wqkv + bqkv;  o = attention per head;  y = z + o Wout + bout    (see `model_attention`)
    w = norm2(y);  a = w Win + bin;  h = relu(a) or gelu(a);          z' = y + h Wff + bff

One whole sequence goes forward and backward before the next, in a scratch arena of its thread; only parameters,
gradients and the input are touched outside it. Per sequence, forward:  2 n (4 c^2 + 2 c f) + 4 n^2 c FLOP a layer,
and 2 n c V for the logits of V tokens; backward twice that.

Same bits at any number of threads: a batch is cut into a fixed number of *groups* of sequences, each group sums its
gradients in order into its own row, and the rows are added in order. Threads only choose who runs which
(`kernels.threads`); a whole training step forks once.
"""

import numpy as np

from fastpe.kernels._jit import entry, inner
from fastpe.kernels.activation import gelu_backward, gelu_forward
from fastpe.kernels.adam import adam
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
from fastpe.kernels.gemm import FROM, OVERWRITE, PLUS, RELU, WHERE_POSITIVE, add_column_sums, gemm, transpose
from fastpe.kernels.loss import cross_entropy, squared_error, step_of
from fastpe.kernels.model_attention import attention_backward, attention_forward, project, project_backward
from fastpe.kernels.norm import layer_norm_backward, layer_norm_forward
from fastpe.kernels.simd import at, lanes, pointer, store_first, zeros
from fastpe.kernels.threads import claim, finish, in_lanes, wait_for

NORM_EPS = 1e-5
CHUNK = np.int64(4096)  # parameters that one task of the optimiser updates
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
def _clear(p, n):
    for j in range(0, n, lanes(p)):
        store_first(p, j, zeros(p), n - j)


@inner
def _clear_gradients(g, stride, sizes, o):
    """All but the matrices of the layers, which the first sequence overwrites."""
    _clear(g, o.layers)
    for layer in range(sizes.layers):
        _clear(at(g, o.layers + layer * o.layer_stride + o.qkv_bias), o.layer_stride - o.qkv_bias)
    rest = o.layers + sizes.layers * o.layer_stride
    _clear(at(g, rest), stride - rest)


@inner
def sequence_forward(x, w, arena, position, sizes, o, a):
    """Embedding, all layers and the head on one sequence; the output lies at arena + a.output."""
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
            z, at(z, a.stream_stride), layer, at(w, o.layers + layer * o.layer_stride),
            at(arena, a.layers + layer * a.layer_stride), arena, position, sizes, o, a,
        )  # fmt: skip
    z = at(arena, a.streams + sizes.layers * a.stream_stride)
    head, head_bias, output = at(w, o.head_weight), at(w, o.head_bias), at(arena, a.output)
    if sizes.vocabulary:
        _linear(z, c, head, head_bias, output, n, sizes.vocabulary, OVERWRITE)
    else:
        head_forward(z, head, head_bias, output, n, c)


@inner
def sequence_backward(x, w, wt, g, grow, arena, position, sizes, o, t, a):
    """Adds the gradients of one sequence to g, from the gradient of its output at arena + a.output.

    grow: FROM, or OVERWRITE for a group's first sequence, before which the matrices of the layers hold nothing.
    """
    n, c = sizes.length, sizes.width
    dz, top = at(arena, a.dz), at(arena, a.streams + sizes.layers * a.stream_stride)
    doutput, dhead, dhead_bias = at(arena, a.output), at(g, o.head_weight), at(g, o.head_bias)
    if sizes.vocabulary:
        _linear_gradients(top, c, doutput, sizes.vocabulary, dhead, dhead_bias, n, FROM)
        _linear_back(doutput, sizes.vocabulary, at(wt, t.head_weight), dz, c, n, OVERWRITE)
    else:
        head_backward(doutput, top, at(w, o.head_weight), dz, dhead, dhead_bias, n, c)
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
def _group_gradients(x, target, shares, step, first, last, w, wt, g, stride, arena, position, sizes, o, t, a):
    """Loss and gradients (into g) of the sequences first .. last - 1."""
    _clear_gradients(g, stride, sizes, o)
    loss = 0.0
    for sequence in range(first, last):
        row = at(x, sequence * sizes.length)
        sequence_forward(row, w, arena, position, sizes, o, a)
        loss += _loss(sequence, target, shares, step, arena, sizes, a)
        grow = OVERWRITE if sequence == first else FROM
        sequence_backward(row, w, wt, g, grow, arena, position, sizes, o, t, a)
    return loss


@inner
def _loss(sequence, targets, shares, step, arena, sizes, a):
    """What one sequence adds to the loss; the gradient takes the place of the output."""
    output, first = at(arena, a.output), sequence * sizes.length
    target, share = at(targets, first), at(shares, first * step)
    if sizes.vocabulary:
        return cross_entropy(output, target, output, sizes.length, sizes.vocabulary, share, step)
    return squared_error(output, target, output, sizes.length, share, step)


@inner
def _step_lane(lane, board, x, target, shares, w, wt, panels, gradients, groups, losses, arenas, position, moments,
               rates, chunks, sizes, o, t, a):  # fmt: skip
    """Tasks of three phases: transpose a panel of a matrix; go through a group of sequences; update some parameters."""
    transposes, (rows, stride), batch = panels.shape[0], gradients.shape, x.shape[0]
    before_update = transposes + groups
    task = claim(board)
    while task < before_update + chunks:
        if task < transposes:
            _transpose_panel(pointer(w), pointer(wt), panels, task)
        elif task < before_update:
            wait_for(board, transposes)
            group = task - transposes
            losses[group] = _group_gradients(
                pointer(x), pointer(target), pointer(shares), step_of(shares), batch * group // groups,
                batch * (group + 1) // groups, pointer(w), pointer(wt), at(pointer(gradients), group * stride), stride,
                at(pointer(arenas), lane * arenas.shape[1]), position, sizes, o, t, a,
            )  # fmt: skip
        else:
            wait_for(board, before_update)
            start = (task - before_update) * CHUNK
            adam(
                pointer(w), pointer(moments), at(pointer(moments), w.size), pointer(gradients), stride, rows, start,
                min(start + CHUNK, w.size), rates,
            )  # fmt: skip
        finish(board)
        task = claim(board)
    wait_for(board, before_update + chunks)  # lanes that leave together need not wake each other up


@inner
def _transpose_panel(w, wt, panels, number):
    """panels (P, 5): a panel's start in w, its rows and columns, where its transpose starts in wt, and that one's row.

    The transposes are made anew in every step: parameters are the user's to change.
    """
    columns = panels[number, 2]
    transpose(
        at(w, panels[number, 0]), columns, at(wt, panels[number, 3]), panels[number, 4], panels[number, 1], columns
    )


@entry(label="the training step")
def step(crew, board, x, target, shares, w, wt, panels, gradients, groups, losses, arenas, position, moments, rates,
         chunks, steps, sizes, o, t, a):  # fmt: skip
    """Losses (G,) and gradients (G, stride) of a batch x, target (B, n) in `groups` groups, then Adam on w (P,).

    shares (B n,), or (1,) where all are the same: what the targets have of the mean, as in `kernels.loss`.
    Tokens come as whole numbers in the type of w, so that everything is compiled once for scalars and tokens. One arena
    per lane. moments (2, P); without an update `chunks` is 0, without gradients there are no groups and no panels.
    steps (1,) counts updates.
    """
    in_lanes(
        crew, _step_lane,
        (pointer(board), x, target, shares, w, wt, panels, gradients, groups, losses, arenas, position, moments,
         rates, chunks, sizes, o, t, a),
    )  # fmt: skip
    if chunks:
        steps[0] += 1


@inner
def _forward_lane(lane, board, x, y, w, arenas, position, sizes, o, a):
    """One task is one sequence."""
    arena = at(pointer(arenas), lane * arenas.shape[1])
    sequence = claim(board)
    while sequence < x.shape[0]:
        row = at(pointer(x), sequence * sizes.length)
        sequence_forward(row, pointer(w), arena, position, sizes, o, a)
        for i in range(y.shape[1]):
            y[sequence, i] = arenas[lane, a.output + i]
        sequence = claim(board)


@entry(label="the forward pass")
def forward(crew, board, x, y, w, arenas, position, sizes, o, a):
    """y (B, n), or (B, n V) logits, from x (B, n); one arena per lane."""
    in_lanes(crew, _forward_lane, (pointer(board), x, y, w, arenas, position, sizes, o, a))


@inner
def _losses_lane(lane, board, x, target, shares, losses, w, arenas, position, sizes, o, a):
    """One task is one group of sequences, as in a step, so that the sums have the same order."""
    arena, (batch, length), groups = at(pointer(arenas), lane * arenas.shape[1]), x.shape, losses.size
    group = claim(board)
    while group < groups:
        loss = 0.0
        for sequence in range(batch * group // groups, batch * (group + 1) // groups):
            sequence_forward(at(pointer(x), sequence * length), pointer(w), arena, position, sizes, o, a)
            loss += _loss(sequence, pointer(target), pointer(shares), step_of(shares), arena, sizes, a)
        losses[group] = loss
        group = claim(board)


@entry(label="the loss")
def losses(crew, board, x, target, shares, losses, w, arenas, position, sizes, o, a):
    """losses (G,), those of the groups of a batch x, target (B, n), which add up to the mean; one arena per lane."""
    in_lanes(crew, _losses_lane, (pointer(board), x, target, shares, losses, w, arenas, position, sizes, o, a))
