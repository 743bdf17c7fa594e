"""A layer of the small transformer on a pack of sequences, forward and backward.

    u = norm1(z);  q, k, v = u Wqkv + bqkv;  o = attention per head;  y = z + drop(o Wout + bout)   (`model.attention`)
    w = norm2(y);  a = w Win + bin;          h = f(a);                z' = y + drop(h Wff + bff)

In a model whose norms are not at the inputs (`Sizes.norms` is 0), `u` and `w` are `z` and `y`. With `post_norms`, the
outputs of both parts are normalised before drop: y = z + drop(post_norm1(o Wout + bout)). In a `parallel` model,
w = norm2(z). "z +" and "y +" are left out in a model without residual connections, and biases in a model without
biases; `qkv_biased` says separately whether there is bqkv. With `qk_norm`, q and k are normalised (`model.qk_norm`).

f is an activation (`rows.activation`). SWIGLU and GEGLU take the results of two matrix products; the two matrices are
adjacent columns of Win. drop applies `dropout`; if the model has no dropout, `dropout` may be None, and no code for
dropout is compiled.

If the input of the model is fused (`model.fused_embedding_and_head`), the first layer's q, k and v are already
computed. If the output is fused, Wff of the last layer is part of the matrix that computes the model's output from h.
In both cases the layer skips its own matrix (Wqkv or Wff); the product with it and the gradients of its parameters are
computed elsewhere.
"""

import numpy as np

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.model.attention import attention_backward, attention_forward, project, project_backward
from fastpe.kernels.model.attention_head import transient_of
from fastpe.kernels.model.embedding_and_head import add, copy
from fastpe.kernels.model.gated_slopes import make_slopes, slopes_backward
from fastpe.kernels.model.gates import gates_backward, make_gates
from fastpe.kernels.model.pack import drop_pack, pass_on, rows_of, take_turn
from fastpe.kernels.model.qk_norm import normalise_heads, normalise_heads_backward
from fastpe.kernels.model.reflections import make_reflections, reflections_backward
from fastpe.kernels.model.selective_angles import angles_backward, make_angles
from fastpe.kernels.model.sinks import apply_sinks, sinks_backward
from fastpe.kernels.products.float_gemm import (
    FROM,
    NOT_SOON,
    ONTO,
    OVERWRITE,
    PLUS,
    RELU,
    WHERE_POSITIVE,
    add_column_sums,
)
from fastpe.kernels.products.gemm import gemm
from fastpe.kernels.rows.activation import RELU as ACTIVATION_RELU
from fastpe.kernels.rows.activation import activate, activate_backward
from fastpe.kernels.rows.dropout import drops
from fastpe.kernels.rows.norm import norm_backward, norm_forward
from fastpe.kernels.simd import at

_LARGE = np.int64(2**17)  # a gradient with at least this many elements leaves the caches before it is read
_LINE = np.int64(16)  # elements of one cache line in float32, of two in float64
ONE, NONE = np.int64(1), np.int64(0)


@inner
def linear(x, c, weight, row, bias, y, n, width, mode, biased):
    """Compute y = f(x weight + bias), where x has n rows of c elements and y has n rows of `width`. The bias is added
    only if `biased`. row: row stride of weight, as for `products.gemm`.
    """
    start = FROM if biased else OVERWRITE
    gemm(x, c, ONE, weight, row, y, width, n, width, c, start | mode, bias, NONE, y, NONE)


@inner
def _linear_onto(x, c, weight, row, bias, z, y, width, dropout, place, pack, sizes):
    """Compute y = z + drop(x weight + bias), without z if there is no residual connection.

    With norms, the residual stream may grow to thousands of times what a layer adds. A sum that starts with z would
    round every term at the size of z, so z is added to the finished sum. Models without norms have no such large
    values, and their sums start with z.
    """
    n = pack.rows
    if sizes.residual and not drops(dropout):
        start = ONTO if sizes.norms else FROM
        if sizes.biased:
            gemm(x, c, ONE, weight, row, y, width, n, width, c, start | PLUS, z, width, bias, NONE)
        else:
            gemm(x, c, ONE, weight, row, y, width, n, width, c, start, z, width, y, NONE)
        return
    linear(x, c, weight, row, bias, y, n, width, OVERWRITE, sizes.biased)
    drop_pack(dropout, y, width, place, pack)
    if sizes.residual:
        add(y, z, y, n * width)


@inner
def _branch_onto(
    x, c, weight, row, bias, norm_weight, norm_bias, branch, stats, z, y, dropout, place, pack, sizes
):  # fmt: skip
    """Compute y = z + drop(norm(x weight + bias)). Leave out z if there is no residual connection. The norm is applied
    only with `post_norms`; `branch` then keeps its input.
    """
    if not sizes.post_norms:
        _linear_onto(x, c, weight, row, bias, z, y, sizes.width, dropout, place, pack, sizes)
        return
    n, width = pack.rows, sizes.width
    linear(x, c, weight, row, bias, branch, n, width, OVERWRITE, sizes.biased)
    normalise(branch, norm_weight, norm_bias, y, stats, n, sizes)
    drop_pack(dropout, y, width, place, pack)
    if sizes.residual:
        add(y, z, y, n * width)


@inner
def linear_gradients(x, c, dy, width, dweight, dbias, n, mode, biased, pack):
    """Compute dweight = x^T dy (with mode FROM, add it), and add the column sums of dy to dbias, in the turn of the
    pack.
    """
    if mode == OVERWRITE and c * width >= _LARGE and width % _LINE == 0:
        mode = NOT_SOON
    take_turn(pack)
    gemm(x, ONE, c, dy, width, dweight, width, c, width, n, mode, dweight, width, dweight, NONE)
    if biased:
        add_column_sums(dy, width, n, width, dbias)
    pass_on(pack)


@inner
def linear_back(dy, width, transposed, row, dx, c, n, mode):
    """dx = dy weight^T (+ dx with mode FROM). row: row stride of `transposed`."""
    gemm(dy, width, ONE, transposed, row, dx, c, n, c, width, mode, dx, c, dx, NONE)


@inner
def normalise(x, weight, bias, y, stats, n, sizes):
    """Write the norm of n rows of x to y."""
    norm_forward(x, weight, bias, y, stats, n, sizes.width, sizes.norm_eps, sizes.centred, sizes.norm_biased)


@inner
def normalise_backward(dy, x, weight, stats, dx, dweight, dbias, residual, pack, sizes):
    """Compute the gradients of `normalise`, in the turn of the pack. If `residual`, add the gradient of x to dx."""
    take_turn(pack)
    norm_backward(
        dy, x, weight, stats, dx, dweight, dbias, pack.rows, sizes.width, residual, sizes.centred, sizes.norm_biased
    )  # fmt: skip
    pass_on(pack)


@inner
def _place(layer, which, sizes):
    """Return the number of one of a layer's dropouts, as counted in `rows.dropout.places_of`."""
    return 1 + layer * (2 + sizes.heads) + which


@inner
def _matrix(w, wt, place, packed, sizes, t):
    """Return one of a layer's matrices in the form that products take."""
    return at(at(wt, t.words), packed) if sizes.packed else at(w, place)


@inner
def row_of(depth, columns, sizes):
    """Return the row stride that products take for one of a layer's matrices, or its transpose. The matrix has `depth`
    rows.
    """
    return -depth if sizes.packed else columns


@inner
def layer_forward(z, out, layer, all_w, w, wt, cache, workspace, position, dropout, pack, sizes, o, t, a):
    """Compute one layer: z -> out (n, c). w: the parameters of the layer, a part of all_w; wt: their transposes.

    cache: the activations of the layer that later positions read. `act`, below: the transient activations, which only
    the backward pass reads again (`memory.Arena`).
    Without a backward pass, `out` may be z, because z is not read any more when `out` is written.
    """
    n, c, f, across, start = pack.rows, sizes.width, sizes.hidden, sizes.query_width, NONE
    act = transient_of(layer, workspace, a)
    mixed, middle, hidden = at(act, a.mixed + pack.before * across), at(act, a.middle), at(act, a.hidden)
    u = z
    if sizes.norms:
        u = at(act, a.normed1)
        normalise(z, at(w, o.norm1_weight), at(w, o.norm1_bias), u, at(act, a.stats1), n, sizes)
    if layer or not sizes.fused_input:
        weight, row = _matrix(w, wt, o.qkv_weight, t.qkv_weight, sizes, t), row_of(c, sizes.projected, sizes)
        if sizes.has_qk_table:
            weight, row = at(w, o.qkv_weight), sizes.projected
        project(u, weight, row, at(w, o.qkv_bias), cache, workspace, position, pack, sizes, a)
    normalise_heads(w, cache, act, pack, sizes, o, a)
    make_gates(position.gates, layer, position.slopes, u, all_w, cache, pack, sizes, a)
    make_slopes(position.gates, layer, position.slopes, all_w, cache, pack, sizes, a)
    make_angles(position.selective, layer, position.frequencies, u, all_w, cache, workspace, pack, sizes, a)
    make_reflections(position.reflections, layer, u, all_w, cache, pack, sizes, a)
    for sequence in range(pack.first, pack.last):
        own = rows_of(pack, sequence, start)
        attention_forward(layer, cache, workspace, position, dropout, _place(layer, 2, sizes), own, sizes, a)
        start += own.length
    apply_sinks(w, act, position, pack, sizes, o, a)
    _branch_onto(
        mixed, across, _matrix(w, wt, o.out_weight, t.out_weight, sizes, t), row_of(across, c, sizes),
        at(w, o.out_bias), at(w, o.post_norm1_weight), at(w, o.post_norm1_bias), at(act, a.branch1),
        at(act, a.branch_stats1), z, middle, dropout, _place(layer, 0, sizes), pack, sizes,
    )  # fmt: skip
    second = z if sizes.parallel else middle
    u = second
    if sizes.norms:
        u = at(act, a.normed2)
        normalise(second, at(w, o.norm2_weight), at(w, o.norm2_bias), u, at(act, a.stats2), n, sizes)
    weight, row = _matrix(w, wt, o.in_weight, t.in_weight, sizes, t), row_of(c, sizes.inner, sizes)
    if sizes.activation == ACTIVATION_RELU:
        linear(u, c, weight, row, at(w, o.in_bias), hidden, n, f, RELU, sizes.biased)
    else:
        slopes = at(act, a.slopes)
        linear(u, c, weight, row, at(w, o.in_bias), slopes, n, sizes.inner, OVERWRITE, sizes.biased)
        activate(slopes, hidden, n, f, sizes.activation)
    if layer < sizes.layers - 1 or not sizes.fused_output:
        _branch_onto(
            hidden, f, _matrix(w, wt, o.ff_weight, t.ff_weight, sizes, t), row_of(f, c, sizes), at(w, o.ff_bias),
            at(w, o.post_norm2_weight), at(w, o.post_norm2_bias), at(act, a.branch2), at(act, a.branch_stats2), middle,
            out, dropout, _place(layer, 1, sizes), pack, sizes,
        )  # fmt: skip


@inner
def _dropped(dropout, dz, target, c, place, pack):
    """Write the gradient of the input of dropout to `target`, and return it. dz: the gradient of dropout's output.

    dz is not changed, because the residual connection also needs it. Without dropout, return dz.
    """
    if not drops(dropout):
        return dz
    copy(dz, target, pack.rows * c)
    drop_pack(dropout, target, c, place, pack)
    return target


@inner
def _branch_gradient(
    dropout, dz, norm_weight, dnorm_weight, dnorm_bias, branch, stats, workspace, place, pack, sizes, a
):  # fmt: skip
    """Return the gradient of x weight + bias in `_branch_onto`, given dz, the gradient of y, which is not changed."""
    target = at(workspace, a.dbranch)
    dout = _dropped(dropout, dz, target, sizes.width, place, pack)
    if not sizes.post_norms:
        return dout
    normalise_backward(dout, branch, norm_weight, stats, target, dnorm_weight, dnorm_bias, NONE, pack, sizes)
    return target


@inner
def feedforward_backward(dz, z, layer, w, wt, g, grow, act, workspace, dropout, pack, sizes, o, t, a):
    """The backward pass of the feed-forward part.

    dz: on entry, the gradient of the layer's output. On return, it is the gradient of `middle`; in a parallel model, it
    is the part of the gradient of the layer's input z that does not come through attention.
    grow: the mode of the matrix products that compute the gradients of the weights: OVERWRITE, or FROM to add.
    """
    n, c, f, wide = pack.rows, sizes.width, sizes.hidden, sizes.inner
    hidden, dhidden, middle = at(act, a.hidden), at(workspace, a.dhidden), at(act, a.middle)
    dout, columns, transposed, row = at(workspace, a.output), ONE, at(workspace, a.readout), f
    if layer < sizes.layers - 1 or not sizes.fused_output:
        dout = _branch_gradient(
            dropout, dz, at(w, o.post_norm2_weight), at(g, o.post_norm2_weight), at(g, o.post_norm2_bias),
            at(act, a.branch2), at(act, a.branch_stats2), workspace, _place(layer, 1, sizes), pack, sizes, a,
        )  # fmt: skip
        columns, transposed, row = c, at(wt, t.ff_weight), row_of(c, f, sizes)
        linear_gradients(hidden, f, dout, c, at(g, o.ff_weight), at(g, o.ff_bias), n, grow, sizes.biased, pack)
    dactive = at(dhidden, wide - f)
    mode = WHERE_POSITIVE if sizes.activation == ACTIVATION_RELU else OVERWRITE
    gemm(dout, columns, ONE, transposed, row, dactive, wide, n, f, columns, mode, dout, NONE, hidden, f)
    if sizes.activation != ACTIVATION_RELU:
        activate_backward(at(act, a.slopes), dhidden, n, f, sizes.activation)
    second = z if sizes.parallel else middle
    u = at(act, a.normed2) if sizes.norms else second
    linear_gradients(u, c, dhidden, wide, at(g, o.in_weight), at(g, o.in_bias), n, grow, sizes.biased, pack)
    transposed, row = at(wt, t.in_weight), row_of(wide, c, sizes)
    if sizes.norms:
        dnormed = at(workspace, a.dnormed)
        linear_back(dhidden, wide, transposed, row, dnormed, c, n, OVERWRITE)
        normalise_backward(
            dnormed, second, at(w, o.norm2_weight), at(act, a.stats2), dz, at(g, o.norm2_weight), at(g, o.norm2_bias),
            sizes.residual, pack, sizes,
        )  # fmt: skip
    else:
        linear_back(dhidden, wide, transposed, row, dz, c, n, FROM if sizes.residual else OVERWRITE)


@inner
def _made_backward(layer, u, du, w, g, act, workspace, position, pack, sizes, a):
    """From the gradients of the gates, angles and reflections that the layer computes from u, compute the gradient of u
    and add it to du. Also add to g, which holds the gradients of all parameters.
    """
    gates_backward(position.gates, layer, u, du, w, g, act, workspace, pack, sizes, a)
    angles_backward(position.selective, layer, position.frequencies, u, du, w, g, act, workspace, pack, sizes, a)
    reflections_backward(position.reflections, layer, u, du, w, g, act, workspace, pack, sizes, a)


@inner
def attention_layer_backward(
    dz, dmiddle, z, layer, all_w, w, wt, g, all_g, slot_gradients, grow, act, workspace, position, dropout, pack, sizes,
    o, t, a,
):  # fmt: skip
    """The backward pass of the attention part.

    dz: on return, the gradient of the layer's input z; on entry, the part of it that does not come through attention.
    dmiddle: the gradient of `middle`; the memory may be that of dz.
    all_w, all_g: all parameters of the model and their gradients; slot_gradients: the slot gradients of the pack.
    """
    n, c, across, wide, start = pack.rows, sizes.width, sizes.query_width, sizes.projected, NONE
    mixed, dmixed, dqkv = at(act, a.mixed), at(workspace, a.dmixed), at(workspace, a.dqkv)
    dout = _branch_gradient(
        dropout, dmiddle, at(w, o.post_norm1_weight), at(g, o.post_norm1_weight), at(g, o.post_norm1_bias),
        at(act, a.branch1), at(act, a.branch_stats1), workspace, _place(layer, 0, sizes), pack, sizes, a,
    )  # fmt: skip
    linear_gradients(mixed, across, dout, c, at(g, o.out_weight), at(g, o.out_bias), n, grow, sizes.biased, pack)
    linear_back(dout, c, at(wt, t.out_weight), row_of(c, across, sizes), dmixed, across, n, OVERWRITE)
    sinks_backward(w, g, act, workspace, position, pack, sizes, o, a)
    for sequence in range(pack.first, pack.last):
        own, place = rows_of(pack, sequence, start), _place(layer, 2, sizes)
        attention_backward(layer, act, workspace, slot_gradients, position, dropout, place, own, sizes, o, a)
        start += own.length
    if layer == 0 and sizes.fused_input:
        return
    slopes_backward(position.gates, layer, position.slopes, all_w, all_g, act, workspace, pack, sizes, a)
    normalise_heads_backward(w, g, act, workspace, pack, sizes, o, a)
    qkv_weight, qkv_bias = at(g, o.qkv_weight), at(g, o.qkv_bias)
    u, transposed, row = at(act, a.normed1) if sizes.norms else z, at(wt, t.qkv_weight), row_of(wide, c, sizes)
    if sizes.has_qk_table:
        take_turn(pack)
        project_backward(
            u, transposed, row, qkv_weight, qkv_bias, slot_gradients, grow, workspace, position, pack, sizes, o, a
        )  # fmt: skip
        pass_on(pack)
    else:
        linear_gradients(u, c, dqkv, wide, qkv_weight, qkv_bias, n, grow, sizes.qkv_biased, pack)
    if sizes.norms:
        dnormed = at(workspace, a.dnormed)
        linear_back(dqkv, wide, transposed, row, dnormed, c, n, OVERWRITE)
        _made_backward(layer, u, dnormed, all_w, all_g, act, workspace, position, pack, sizes, a)
        normalise_backward(
            dnormed, z, at(w, o.norm1_weight), at(act, a.stats1), dz, at(g, o.norm1_weight), at(g, o.norm1_bias),
            sizes.residual, pack, sizes,
        )  # fmt: skip
    else:
        linear_back(dqkv, wide, transposed, row, dz, c, n, FROM if sizes.residual else OVERWRITE)
        _made_backward(layer, u, dz, all_w, all_g, act, workspace, position, pack, sizes, a)
