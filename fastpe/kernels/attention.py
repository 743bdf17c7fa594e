"""Softmax attention of one head over one sequence, with a bias that depends on the offset j - i.

    S[i, j] = scale q_i . k_j + bias[j - i + n - 1]        masked: j > i when causal
    P = softmax of the rows of S,      o_i = sum_j P[i, j] v_j

q, k, v, o: n rows of `width` elements, `row` (for o: `o_row`) elements apart, so heads may lie side by side.
P: n rows, `p_row` elements apart, p_row = n rounded up to whole vectors; columns past n are zero. It is kept for the
backward pass (Vaswani et al. 2017, eq. 1; the bias row of query i is the slice bias[n - 1 - i : 2 n - 1 - i]).

Forward 4 n^2 width FLOP, backward 8 n^2 width; about half of that when causal, as the products leave out what is
masked. Everything lies in cache for the lengths that are trained here.
`scratch` holds width x p_row elements whose columns past n are zero: K or V transposed.
"""

import numpy as np

from fastpe.kernels._jit import inner, part
from fastpe.kernels.gemm import LOWER_A, LOWER_C, OVERWRITE, UPPER_A, gemm, transpose
from fastpe.kernels.simd import (
    at,
    exp,
    fma,
    keep_first,
    lanes,
    largest,
    load,
    load_first,
    maximum,
    scalar,
    splat,
    store,
    store_first,
    total,
    zeros,
)

ONE, NONE = np.int64(1), np.int64(0)


@inner
def softmax_forward(s, s_row, n, scale, bias, has_bias, causal):
    """S <- softmax(scale S + bias), row by row; what is masked, and the columns past n, become 0."""
    width, factor = lanes(s), splat(scale)
    lowest = scalar(s, -np.inf)
    for i in range(n):
        row, offsets = at(s, i * s_row), at(bias, n - 1 - i)
        count = i + 1 if causal else n
        top = splat(lowest)
        for j in range(0, count, width):
            x = load(row, j) * factor
            if has_bias:
                x = x + load_first(offsets, j, count - j)
            if count - j < width:
                x = keep_first(x, count - j, lowest)
            store(row, j, x)
            top = maximum(top, x)
        peak = splat(largest(top))
        mass = zeros(s)
        for j in range(0, count, width):
            x = exp(load(row, j) - peak)
            store(row, j, x)
            mass = mass + x
        share = splat(scalar(s, 1.0) / total(mass))
        for j in range(0, count, width):
            store(row, j, load(row, j) * share)
        for j in range((count + width - 1) // width * width, s_row, width):
            store(row, j, zeros(s))


@inner
def softmax_backward(p, ds, s_row, n, scale, dbias, wants_bias, causal):
    """ds: gradient of P on entry, of q . k (scale included) on return. Adds the gradient of S to dbias."""
    width, factor = lanes(p), splat(scale)
    for i in range(n):
        row, grad, offsets = at(p, i * s_row), at(ds, i * s_row), at(dbias, n - 1 - i)
        count = i + 1 if causal else n
        mean = zeros(p)
        for j in range(0, count, width):
            mean = fma(load(row, j), load(grad, j), mean)
        mean = splat(total(mean))
        for j in range(0, count, width):
            x = (load(grad, j) - mean) * load(row, j)
            if wants_bias:
                store_first(offsets, j, load_first(offsets, j, count - j) + x, count - j)
            store(grad, j, x * factor)
        for j in range((count + width - 1) // width * width, s_row, width):
            store(grad, j, zeros(ds))


@part
def _parts(causal):
    """Modes of the products with P, with its transpose, and of those that make scores."""
    if causal:
        return LOWER_A, UPPER_A, LOWER_C
    return OVERWRITE, OVERWRITE, OVERWRITE


@inner
def attention_forward(q, k, v, row, o, o_row, p, p_row, scratch, n, width, scale, bias, has_bias, causal):
    """O and P of one head; see the head of this file."""
    lower_p, _, scores = _parts(causal)
    transpose(k, row, scratch, p_row, n, width)
    gemm(q, row, ONE, scratch, p_row, p, p_row, n, p_row, width, scores, p, NONE, p, NONE)
    softmax_forward(p, p_row, n, scale, bias, has_bias, causal)
    gemm(p, p_row, ONE, v, row, o, o_row, n, width, n, lower_p, o, NONE, o, NONE)


@inner
def attention_backward(
    do, o_row, q, k, v, row, p, p_row, dq, dk, dv, ds, scratch, n, width, scale, dbias, wants_bias, causal
):
    """Gradients of one head, from do; dq, dk, dv (rows apart as q, k, v) are overwritten, dbias is added to.

    ds: n x p_row elements of scratch. dP = dO V^T; dS = P (dP - rowsum(P dP)); then dq = scale dS K, dk = scale dS^T q
    and dv = P^T dO.
    """
    lower_p, upper_p, scores = _parts(causal)
    transpose(v, row, scratch, p_row, n, width)
    gemm(do, o_row, ONE, scratch, p_row, ds, p_row, n, p_row, width, scores, ds, NONE, ds, NONE)
    gemm(p, ONE, p_row, do, o_row, dv, row, n, width, n, upper_p, dv, NONE, dv, NONE)
    softmax_backward(p, ds, p_row, n, scale, dbias, wants_bias, causal)
    gemm(ds, p_row, ONE, k, row, dq, row, n, width, n, lower_p, dq, NONE, dq, NONE)
    gemm(ds, ONE, p_row, q, row, dk, row, n, width, n, upper_p, dk, NONE, dk, NONE)
