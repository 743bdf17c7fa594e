"""The embedding and the output head: a number or a token becomes a row of the residual stream, and a row a number.

    embed           z_i = x_i weight (+ bias)         weight, bias (c,)
    embed tokens    z_i = weight[token_i]             weight (vocabulary, c)
    add             z + table                         table (n, c)
    head            y_i = z_i . weight (+ bias)       weight (c,), bias a scalar

z: n rows of c contiguous elements; tokens are integers, held in the type of z. Each operation takes at most 2 n c FLOP
in the forward pass; the cache is the bottleneck. The logits of tokens are a matrix product (see `model.transformer`).
"""

import numpy as np

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import at, fma, get, lanes, load_first, put, scalar, splat, store_first, total, zeros


@inner
def embed_forward(x, weight, bias, z, n, c, biased):
    """Compute z = x weight, plus the bias if `biased`."""
    for i in range(n):
        xi = splat(get(x, i))
        for j in range(0, c, lanes(z)):
            start = load_first(bias, j, c - j) if biased else zeros(z)
            row = fma(xi, load_first(weight, j, c - j), start)
            store_first(z, i * c + j, row, c - j)


@inner
def embed_backward(dz, x, dweight, dbias, n, c, biased):
    """Add the gradients of weight and bias."""
    for j in range(0, c, lanes(dz)):
        sum_weight = load_first(dweight, j, c - j)
        sum_bias = load_first(dbias, j, c - j) if biased else zeros(dz)
        for i in range(n):
            d = load_first(dz, i * c + j, c - j)
            sum_bias = sum_bias + d
            sum_weight = fma(splat(get(x, i)), d, sum_weight)
        store_first(dweight, j, sum_weight, c - j)
        if biased:
            store_first(dbias, j, sum_bias, c - j)


@inner
def clear(p, n):
    """Write n zeros."""
    for j in range(0, n, lanes(p)):
        store_first(p, j, zeros(p), n - j)


@inner
def copy(x, y, n):
    """Write n elements of x to y."""
    for j in range(0, n, lanes(x)):
        store_first(y, j, load_first(x, j, n - j), n - j)


@inner
def add(x, y, sums, n):
    """Compute sums = x + y, n elements; sums may be x or y."""
    for j in range(0, n, lanes(x)):
        store_first(sums, j, load_first(x, j, n - j) + load_first(y, j, n - j), n - j)


@inner
def embed_tokens_forward(tokens, weight, z, n, c):
    """Compute z_i = weight[token_i]."""
    # rows are added to zeros: for loops that copy, LLVM generates four times the code, which takes longer to compile
    clear(z, n * c)
    for i in range(n):
        row = at(z, i * c)
        add(row, at(weight, np.int64(get(tokens, i)) * c), row, c)


@inner
def embed_tokens_backward(dz, tokens, dweight, n, c):
    """Add each row of dz to the row of its token in dweight, in the order of the positions."""
    for i in range(n):
        row = at(dweight, np.int64(get(tokens, i)) * c)
        add(row, at(dz, i * c), row, c)


@inner
def head_forward(z, weight, bias, y, n, c, biased, onto):
    """Compute y = z weight, plus the bias if `biased`, plus y if `onto`."""
    shift = get(bias, 0) if biased else scalar(z, 0.0)
    for i in range(n):
        row, products = at(z, i * c), zeros(z)
        for j in range(0, c, lanes(z)):
            products = fma(load_first(row, j, c - j), load_first(weight, j, c - j), products)
        sum_ = total(products) + shift
        put(y, i, get(y, i) + sum_ if onto else sum_)


@inner
def head_backward(dy, z, weight, dz, dweight, dbias, n, c, biased):
    """Write the gradient of z to dz; add the gradients of weight and bias to dweight and dbias."""
    if biased:
        total_bias = get(dbias, 0)
        for i in range(n):
            total_bias += get(dy, i)
        put(dbias, 0, total_bias)
    for j in range(0, c, lanes(z)):
        row, sum_weight = load_first(weight, j, c - j), load_first(dweight, j, c - j)
        for i in range(n):
            d = splat(get(dy, i))
            store_first(dz, i * c + j, d * row, c - j)
            sum_weight = fma(d, load_first(z, i * c + j, c - j), sum_weight)
        store_first(dweight, j, sum_weight, c - j)
