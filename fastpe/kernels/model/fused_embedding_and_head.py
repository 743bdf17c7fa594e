"""Fused embedding and head: in a training step, two consecutive weight matrices are multiplied by each other first.

    forward      (X A) B = X M;  M = A B is computed once, and has fewer rows than X
    backward     dM = X^T dY is summed over the batch;  dA = dM B^T  and  dB = A^T dM  are then computed once

At the input, A is the embedding, and B is the first layer's matrix of queries, keys and values. A row of X holds a
number (or, in a model with a vocabulary, a one at its token), and a one at its position. So A and M begin with `first`
rows: one row for the number, or a row for each token of the vocabulary. Then comes the table, with a row for each of n
positions:

    A = [embed.weight; embed.bias + table]  (first + n, c)      M = [weight; table]  (first + n, 3 c)

At the output, A is the last layer's second feed-forward matrix, and B the head of a model of numbers:

    A = [ff.weight; ff.bias]  (f + 1, c)                        M = [weight; bias]  (f + 1,)

Residual connections carry values past one of the two matrices: past B at the input, past A at the output. Such values
are multiplied by the other matrix separately. If both the embedding and the head are fused, a step saves
3 * 2 n (3 c^2 + c f) FLOP of matrix products per sequence; the operations that replace these products are limited by
the cache. `fastpe.model.scratch` decides for which models they are fused.
"""

import numpy as np

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.model.embedding_and_head import add, embed_tokens_backward, embed_tokens_forward, head_forward
from fastpe.kernels.products.float_gemm import FROM, OVERWRITE, add_column_sums
from fastpe.kernels.products.gemm import gemm
from fastpe.kernels.simd import at, lanes, load_first, pointer, store_first, zeros

ONE, NONE = np.int64(1), np.int64(0)


@inner
def _first_rows(sizes):
    """Return the number of rows of A and M before the rows of positions."""
    return max(sizes.vocabulary, 1)


# ---------------------------------------------------------------------------------------------------------------------
# The input


@inner
def _embedding(w, workspace, position, sizes, o, a):
    """Compute A of the input, in the workspace; after its first rows it has a row for every possible position."""
    c, whole, first, embedding = sizes.width, sizes.length, _first_rows(sizes), at(workspace, a.embedding)
    weight, bias, table = at(w, o.embed_weight), at(w, o.embed_bias), pointer(position.table)
    biased = sizes.biased and not sizes.vocabulary
    for j in range(0, c, lanes(embedding)):
        for i in range(first):
            store_first(embedding, i * c + j, load_first(weight, i * c + j, c - j), c - j)
        start = load_first(bias, j, c - j) if biased else zeros(embedding)
        for i in range(whole):
            row = load_first(table, i * c + j, c - j) if sizes.has_table else zeros(embedding)
            store_first(embedding, (first + i) * c + j, start + row, c - j)


@inner
def compose_input(w, workspace, position, sizes, o, a):
    """Compute A and M of the input, in the workspace."""
    c, first, embedding, projection = (
        sizes.width,
        _first_rows(sizes),
        at(workspace, a.embedding),
        at(workspace, a.projection),
    )
    layer, wide = at(w, o.layers), 3 * c
    weight, bias = at(layer, o.qkv_weight), at(layer, o.qkv_bias)
    _embedding(w, workspace, position, sizes, o, a)
    gemm(embedding, c, ONE, weight, wide, projection, wide, first, wide, c, OVERWRITE, bias, NONE, bias, NONE)
    table, projected = at(embedding, first * c), at(projection, first * wide)
    start = FROM if sizes.biased else OVERWRITE
    gemm(table, c, ONE, weight, wide, projected, wide, sizes.length, wide, c, start, bias, NONE, bias, NONE)


@inner
def input_forward(x, map, y, n, width, sizes):
    """y = X M (or y = X A, if `map` is A), for the first n rows of a sequence."""
    table = at(map, _first_rows(sizes) * width)
    if sizes.vocabulary:
        embed_tokens_forward(x, map, y, n, width)
        add(y, table, y, n * width)
    else:
        gemm(x, ONE, ONE, map, width, y, width, n, width, ONE, FROM, table, width, table, NONE)


@inner
def input_backward(dy, x, dmap, n, width, sizes):
    """dM += X^T dy."""
    if sizes.vocabulary:
        embed_tokens_backward(dy, x, dmap, n, width)
    else:
        gemm(x, NONE, ONE, dy, width, dmap, width, ONE, width, n, FROM, dmap, width, dmap, NONE)
    dtable = at(dmap, _first_rows(sizes) * width)
    add(dtable, dy, dtable, n * width)


@inner
def decompose_input(w, wt, g, stride, groups, workspace, position, sizes, o, t, a):
    """Compute the gradients of both matrices from dM, summed over all groups, in the first group's row of g.

    The gradient of the layer's matrix overwrites this memory, to which no group has written; all other gradients are
    added.
    """
    c, whole, first, wide = sizes.width, sizes.length, _first_rows(sizes), 3 * sizes.width
    embedding, dprojection, layer = at(workspace, a.embedding), at(g, o.projection), at(g, o.layers)
    for group in range(1, groups):
        add(dprojection, at(g, group * stride + o.projection), dprojection, (first + whole) * wide)
    _embedding(w, workspace, position, sizes, o, a)
    dweight, dpositions = at(layer, o.qkv_weight), at(dprojection, first * wide)
    gemm(embedding, ONE, c, dprojection, wide, dweight, wide, c, wide, first + whole, OVERWRITE, w, NONE, w, NONE)
    if not sizes.wants_table:  # only the sum of the positions' rows is wanted
        add_column_sums(at(dpositions, wide), wide, whole - 1, wide, dpositions)
        whole = ONE
    if sizes.biased:
        add_column_sums(dpositions, wide, whole, wide, at(layer, o.qkv_bias))
    transposed, rows = at(wt, t.qkv_weight), first + whole
    gemm(dprojection, wide, ONE, transposed, c, embedding, c, rows, c, wide, OVERWRITE, w, NONE, w, NONE)  # dA
    dweight, dpositions = at(g, o.embed_weight), at(embedding, first * c)
    add(dweight, embedding, dweight, first * c)
    if sizes.biased and not sizes.vocabulary:
        add_column_sums(dpositions, c, whole, c, at(g, o.embed_bias))
    if sizes.wants_table:
        add(at(g, o.table), dpositions, at(g, o.table), whole * c)


# ---------------------------------------------------------------------------------------------------------------------
# The output


@inner
def _last_layer(p, sizes, o):
    return at(p, o.layers + (sizes.layers - 1) * o.layer_stride)


@inner
def compose_output(w, workspace, sizes, o, a):
    """Compute M of the output, in the workspace."""
    head, layer, readout = at(w, o.head_weight), _last_layer(w, sizes, o), at(workspace, a.readout)
    head_forward(at(layer, o.ff_weight), head, head, readout, sizes.hidden, sizes.width, False, False)
    if sizes.biased:
        head_forward(at(layer, o.ff_bias), head, head, at(readout, sizes.hidden), ONE, sizes.width, False, False)


@inner
def output_forward(x, map, y, n, sizes):
    """y += X M."""
    f = sizes.hidden
    head_forward(x, map, at(map, f), y, n, f, sizes.biased, True)


@inner
def output_backward(dy, x, dmap, n, sizes):
    """dM += X^T dy. `model.layer.feedforward_backward` computes the gradient of X, as for a matrix that
    is not fused.
    """
    f = sizes.hidden
    gemm(dy, NONE, ONE, x, f, dmap, f, ONE, f, n, FROM, dmap, f, dmap, NONE)
    if sizes.biased:
        add_column_sums(dy, ONE, n, ONE, at(dmap, f))


@inner
def decompose_output(w, g, stride, groups, sizes, o):
    """Compute the gradients of both matrices of the output from dM, summed over all groups, as
    `decompose_input` does.
    """
    c, f, dreadout = sizes.width, sizes.hidden, at(g, o.readout)
    for group in range(1, groups):
        add(dreadout, at(g, group * stride + o.readout), dreadout, f + sizes.biased)
    layer, dlayer = _last_layer(w, sizes, o), _last_layer(g, sizes, o)
    head, dhead = at(w, o.head_weight), at(g, o.head_weight)
    gemm(dreadout, ONE, ONE, head, c, at(dlayer, o.ff_weight), c, f, c, ONE, OVERWRITE, w, NONE, w, NONE)
    gemm(dreadout, NONE, ONE, at(layer, o.ff_weight), c, dhead, c, ONE, c, f, FROM, dhead, c, w, NONE)
    if sizes.biased:
        dlast, bias, dbias = at(dreadout, f), at(layer, o.ff_bias), at(dlayer, o.ff_bias)
        gemm(dlast, ONE, ONE, head, c, dbias, c, ONE, c, ONE, FROM, dbias, c, w, NONE)
        gemm(dlast, ONE, ONE, bias, c, dhead, c, ONE, c, ONE, FROM, dhead, c, w, NONE)


# ---------------------------------------------------------------------------------------------------------------------
# The embedding and the head


@inner
def compose(w, workspace, position, sizes, o, a):
    """Compute M of the fused embedding and of the fused head, as far as they are fused, in the workspace."""
    if sizes.fused_input:
        compose_input(w, workspace, position, sizes, o, a)
    if sizes.fused_output:
        compose_output(w, workspace, sizes, o, a)


@inner
def decompose(end, w, wt, g, stride, groups, workspace, position, sizes, o, t, a):
    """Split the gradients of the fused input (end 0) or, if it is not fused or `end` is 1, of the fused output."""
    if sizes.fused_input and end == 0:
        decompose_input(w, wt, g, stride, groups, workspace, position, sizes, o, t, a)
    else:
        decompose_output(w, g, stride, groups, sizes, o)
