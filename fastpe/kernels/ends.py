"""The two ends of the model: a scalar or a token becomes a row of the residual stream, and a row becomes a scalar.

    embed           z_i = x_i weight + bias + table_i        weight, bias (c,), table (n, c)
    embed tokens    z_i = weight[token_i] + table_i          weight (vocabulary, c)
    head            y_i = z_i . weight + bias                weight (c,), bias a scalar

z: n rows of c contiguous elements; tokens are whole numbers, held in the type of z. At most 2 n c FLOP each, forward;
bound by the cache. From a row to the logits of all tokens is a matrix product (see `model`).
"""

import numpy as np

from fastpe.kernels._jit import inner
from fastpe.kernels.simd import at, fma, get, lanes, load_first, put, splat, store_first, total, zeros


@inner
def embed_forward(x, weight, bias, table, has_table, z, n, c):
    """z = x weight + bias (+ table)."""
    for i in range(n):
        xi = splat(get(x, i))
        for j in range(0, c, lanes(z)):
            row = fma(xi, load_first(weight, j, c - j), load_first(bias, j, c - j))
            if has_table:
                row = row + load_first(table, i * c + j, c - j)
            store_first(z, i * c + j, row, c - j)


@inner
def embed_backward(dz, x, dweight, dbias, dtable, wants_table, n, c):
    """Adds the gradients of weight, bias and, where wanted, of the table."""
    for j in range(0, c, lanes(dz)):
        sum_weight, sum_bias = load_first(dweight, j, c - j), load_first(dbias, j, c - j)
        for i in range(n):
            d = load_first(dz, i * c + j, c - j)
            sum_bias = sum_bias + d
            sum_weight = fma(splat(get(x, i)), d, sum_weight)
            if wants_table:
                store_first(dtable, i * c + j, load_first(dtable, i * c + j, c - j) + d, c - j)
        store_first(dweight, j, sum_weight, c - j)
        store_first(dbias, j, sum_bias, c - j)


@inner
def embed_tokens_forward(tokens, weight, table, has_table, z, n, c):
    """z_i = weight[token_i] (+ table_i)."""
    for i in range(n):
        source = at(weight, np.int64(get(tokens, i)) * c)
        for j in range(0, c, lanes(z)):
            row = load_first(source, j, c - j)
            if has_table:
                row = row + load_first(table, i * c + j, c - j)
            store_first(z, i * c + j, row, c - j)


@inner
def embed_tokens_backward(dz, tokens, dweight, dtable, wants_table, n, c):
    """Adds each row of dz to its token's, in the order of the positions, and, where wanted, to its position's."""
    for i in range(n):
        target = at(dweight, np.int64(get(tokens, i)) * c)
        for j in range(0, c, lanes(dz)):
            d = load_first(dz, i * c + j, c - j)
            store_first(target, j, load_first(target, j, c - j) + d, c - j)
            if wants_table:
                store_first(dtable, i * c + j, load_first(dtable, i * c + j, c - j) + d, c - j)


@inner
def head_forward(z, weight, bias, y, n, c):
    """y = z weight + bias."""
    for i in range(n):
        row, products = at(z, i * c), zeros(z)
        for j in range(0, c, lanes(z)):
            products = fma(load_first(row, j, c - j), load_first(weight, j, c - j), products)
        put(y, i, total(products) + get(bias, 0))


@inner
def head_backward(dy, z, weight, dz, dweight, dbias, n, c):
    """dz is overwritten, dweight and dbias are added to."""
    total_bias = get(dbias, 0)
    for i in range(n):
        total_bias += get(dy, i)
        d = splat(get(dy, i))
        for j in range(0, c, lanes(z)):
            store_first(dz, i * c + j, d * load_first(weight, j, c - j), c - j)
            store_first(dweight, j, fma(d, load_first(z, i * c + j, c - j), load_first(dweight, j, c - j)), c - j)
    put(dbias, 0, total_bias)
