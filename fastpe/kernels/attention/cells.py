"""What slots do to one tile of scores, forward and backward, but for those of `bands`.

    u = scale (content + q . rel_key[o] + k . rel_query[o] + key_bias . k),      o the offset of key and query
    u = max(u, 0) where `rectify`
    S = gain[o] u + bias[o] + values[index] + scores

A tile is m queries by n keys, its rows `TILE_KEYS` elements apart; cell (0, 0) has the offset `first`, cell (i, j)
the offset first + j - i. Arrays of vectors over offsets have the rows -reach .. reach, and offsets beyond them read
the last ones. Every routine is one pass over the tile, called only where its slot is given; a few FLOP a cell, 2 D
for `channel_scores`, 8 D for its gradients.
"""

import numpy as np

from fastpe.kernels._jit import inner
from fastpe.kernels.simd import (
    at,
    fma,
    get,
    lanes,
    load_first,
    put,
    relu,
    splat,
    store_first,
    total,
    where_negative,
    zeros,
)

TILE_QUERIES, TILE_KEYS = np.int64(96), np.int64(128)
BAND = np.int64(256)  # elements from one row of a band to the next: TILE_QUERIES + TILE_KEYS - 1, rounded up
ONE, NONE = np.int64(1), np.int64(0)


@inner
def dot(x, y, n):
    """x . y for n elements."""
    products = zeros(x)
    for j in range(0, n, lanes(x)):
        products = fma(load_first(x, j, n - j), load_first(y, j, n - j), products)
    return total(products)


@inner
def add_scaled(y, alpha, x, n):
    """y += alpha x for n elements."""
    factor = splat(alpha)
    for j in range(0, n, lanes(y)):
        store_first(y, j, fma(factor, load_first(x, j, n - j), load_first(y, j, n - j)), n - j)


@inner
def row_of(offset, reach):
    return min(max(offset, -reach), reach) + reach


@inner
def clear(x, n):
    for j in range(0, n, lanes(x)):
        store_first(x, j, zeros(x), n - j)


@inner
def cell_sums(cells, sums, m, n, by_key):
    """Sums of the rows of the tile, or of its columns."""
    if by_key:
        for j in range(0, n, lanes(sums)):
            column = zeros(sums)
            for i in range(m):
                column = column + load_first(cells, i * TILE_KEYS + j, n - j)
            store_first(sums, j, column, n - j)
    else:
        for i in range(m):
            row = zeros(sums)
            for j in range(0, n, lanes(sums)):
                row = row + load_first(cells, i * TILE_KEYS + j, n - j)
            put(sums, i, total(row))


# ---------------------------------------------------------------------------------------------------------------------
# Content with a factor for every channel and offset (rel_gain): no matrix product


@inner
def channel_scores(q, k, gain, reach, width, first, cells, m, n):
    """cells[i, j] = sum_d q_id k_jd gain[o, d]; q and k with rows of `width` elements."""
    for i in range(m):
        for j in range(n):
            factors, sums = at(gain, row_of(first + j - i, reach) * width), zeros(q)
            for d in range(0, width, lanes(q)):
                product = load_first(q, i * width + d, width - d) * load_first(k, j * width + d, width - d)
                sums = fma(product, load_first(factors, d, width - d), sums)
            put(cells, i * TILE_KEYS + j, total(sums))


@inner
def channel_gradients(cells, q, k, gain, reach, width, first, dq, dk, dgain, wants_gain, m, n):
    """Adds the gradients of `channel_scores`, cells being that of its result."""
    for i in range(m):
        for j in range(n):
            c, row = splat(get(cells, i * TILE_KEYS + j)), row_of(first + j - i, reach) * width
            for d in range(0, width, lanes(q)):
                left = width - d
                x, y = load_first(q, i * width + d, left), load_first(k, j * width + d, left)
                g = load_first(gain, row + d, left)
                store_first(dq, i * width + d, fma(c * y, g, load_first(dq, i * width + d, left)), left)
                store_first(dk, j * width + d, fma(c * x, g, load_first(dk, j * width + d, left)), left)
                if wants_gain:
                    store_first(dgain, row + d, fma(c * x, y, load_first(dgain, row + d, left)), left)


# ---------------------------------------------------------------------------------------------------------------------
# Terms of single cells


@inner
def add_key_terms(cells, key_bias, k, k_row, width, m, n, sums):
    """cells[i, j] += key_bias . k_j."""
    for j in range(n):
        put(sums, j, dot(key_bias, at(k, j * k_row), width))
    for i in range(m):
        for j in range(0, n, lanes(cells)):
            more = load_first(sums, j, n - j)
            store_first(cells, i * TILE_KEYS + j, load_first(cells, i * TILE_KEYS + j, n - j) + more, n - j)


@inner
def key_terms_backward(cells, key_bias, k, k_row, width, dkey_bias, wants_bias, dk, dk_row, m, n, sums):
    """Adds the gradients of `add_key_terms`."""
    cell_sums(cells, sums, m, n, True)
    for j in range(n):
        if wants_bias:
            add_scaled(dkey_bias, get(sums, j), at(k, j * k_row), width)
        add_scaled(at(dk, j * dk_row), get(sums, j), key_bias, width)


@inner
def scale_cells(cells, scale, rectify, gain, has_gain, m, n):
    """cells *= scale, then max(cells, 0) where `rectify`, then times gain; gain at the tile's cell (0, 0)."""
    factor = splat(scale)
    for i in range(m):
        row, offsets = at(cells, i * TILE_KEYS), at(gain, -i)
        for j in range(0, n, lanes(cells)):
            u = load_first(row, j, n - j) * factor
            if rectify:
                u = relu(u)
            if has_gain:
                u = u * load_first(offsets, j, n - j)
            store_first(row, j, u, n - j)


@inner
def scale_cells_backward(cells, raw, scale, rectify, gain, has_gain, dgain, wants_gain, m, n):
    """cells: the gradient of `scale_cells`' result on entry, of its input (`raw`) on return; adds to dgain.

    Returns the gradient of the scale.
    """
    factor, scale_sum, none = splat(scale), zeros(cells), zeros(cells)
    for i in range(m):
        row, inputs, offsets, doffsets = at(cells, i * TILE_KEYS), at(raw, i * TILE_KEYS), at(gain, -i), at(dgain, -i)
        for j in range(0, n, lanes(cells)):
            left = n - j
            d, x = load_first(row, j, left), load_first(inputs, j, left)
            if has_gain:
                u = x * factor
                if rectify:
                    u = relu(u)
                if wants_gain:
                    store_first(doffsets, j, fma(d, u, load_first(doffsets, j, left)), left)
                d = d * load_first(offsets, j, left)
            if rectify:
                d = where_negative(none - x * factor, d, none)
            scale_sum = fma(d, x, scale_sum)
            store_first(row, j, d * factor, left)
    return total(scale_sum)


@inner
def add_values(cells, index, index_row, values, m, n):
    """cells[i, j] += values[index[i, j]]."""
    for i in range(m):
        for j in range(n):
            where = np.int64(get(index, i * index_row + j))
            put(cells, i * TILE_KEYS + j, get(cells, i * TILE_KEYS + j) + get(values, where))


@inner
def values_backward(cells, index, index_row, dvalues, m, n):
    """dvalues[index[i, j]] += cells[i, j]."""
    for i in range(m):
        for j in range(n):
            where = np.int64(get(index, i * index_row + j))
            put(dvalues, where, get(dvalues, where) + get(cells, i * TILE_KEYS + j))


@inner
def add_cells(x, x_row, y, y_row, m, n):
    """x += y."""
    for i in range(m):
        for j in range(0, n, lanes(x)):
            both = load_first(x, i * x_row + j, n - j) + load_first(y, i * y_row + j, n - j)
            store_first(x, i * x_row + j, both, n - j)


@inner
def copy_cells(cells, target, target_row, m, n):
    """target = cells."""
    for i in range(m):
        for j in range(0, n, lanes(cells)):
            store_first(target, i * target_row + j, load_first(cells, i * TILE_KEYS + j, n - j), n - j)
