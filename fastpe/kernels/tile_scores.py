"""One tile of scores, queries by keys, and what every slot does to it, forward and backward.

    u = scale (content + q . rel_key[o] + k . rel_query[o] + key_bias . k),      o the offset of key and query
    u = max(u, 0) where `rectify`
    S = gain[o] u + bias[o] + values[index] + scores

A tile is m queries by n keys, its rows `TILE_KEYS` elements apart; cell (0, 0) has the offset `first`, cell (i, j) the
offset first + j - i. Arrays over offsets have the rows -reach .. reach, and offsets beyond them read the last ones.

What multiplies vectors with rows of such an array (rel_key, rel_query, rel_value) works on *bands*: a band is a matrix
with a row for each query (or key) and m + n - 1 columns, one for each offset that the tile meets, so that all its
products are matrix products; `_band_onto_cells` and `_cells_into_band` move between bands and tiles. A tile that lies
wholly beyond the reach meets a single row, and its band is one column.

FLOP a cell: content 2 D, each term with bands 2 D (m + n - 1) / n, or 2 where clipped, the others a few.
"""

import numpy as np

from fastpe.kernels._jit import inner
from fastpe.kernels.gemm import FROM, OVERWRITE, gemm
from fastpe.kernels.simd import (
    at,
    fma,
    get,
    lanes,
    load_first,
    put,
    relu,
    scalar,
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


# ---------------------------------------------------------------------------------------------------------------------
# Bands


@inner
def _clipped_row(first, m, n, reach):
    """The row of an array over offsets that all cells of the tile read, or -1."""
    if first - (m - 1) >= reach:
        return 2 * reach
    if first + n - 1 <= -reach:
        return NONE
    return -ONE


@inner
def _row(offset, reach):
    return min(max(offset, -reach), reach) + reach


@inner
def _collect_rows(rel, reach, width, first, m, n, rows, transposed):
    """The rows that the tile meets, from offset first - (m - 1) on: (m + n - 1, width), or that transposed."""
    for t in range(m + n - 1):
        source = at(rel, _row(first - (m - 1) + t, reach) * width)
        if transposed:
            for d in range(width):
                put(rows, d * BAND + t, get(source, d))
        else:
            for d in range(0, width, lanes(rel)):
                store_first(rows, t * width + d, load_first(source, d, width - d), width - d)


@inner
def _band_onto_cells(band, cells, m, n, by_key):
    """cells[i, j] += band[i or j, column of j - i]."""
    for i in range(m):
        row = at(cells, i * TILE_KEYS)
        if by_key:
            for j in range(n):
                put(row, j, get(row, j) + get(band, j * BAND + j - i + m - 1))
        else:
            source = at(band, i * BAND + m - 1 - i)
            for j in range(0, n, lanes(band)):
                store_first(row, j, load_first(row, j, n - j) + load_first(source, j, n - j), n - j)


@inner
def _cells_into_band(cells, band, m, n, by_key):
    """band[i or j, column of j - i] = cells[i, j], the rest zero."""
    rows = n if by_key else m
    for r in range(rows):
        for t in range(0, m + n - 1, lanes(band)):
            store_first(band, r * BAND + t, zeros(band), m + n - 1 - t)
    for i in range(m):
        row = at(cells, i * TILE_KEYS)
        if by_key:
            for j in range(n):
                put(band, j * BAND + j - i + m - 1, get(row, j))
        else:
            target = at(band, i * BAND + m - 1 - i)
            for j in range(0, n, lanes(band)):
                store_first(target, j, load_first(row, j, n - j), n - j)


@inner
def _cell_sums(cells, sums, m, n, by_key):
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


@inner
def relative_scores(x, x_row, rel, reach, width, first, cells, m, n, band, rows, by_key):
    """cells[i, j] += x_i . rel[o], or x_j . rel[o] where `by_key`. band, rows: scratch."""
    count = n if by_key else m
    clipped = _clipped_row(first, m, n, reach)
    if clipped < 0:
        _collect_rows(rel, reach, width, first, m, n, rows, True)
        gemm(x, x_row, ONE, rows, BAND, band, BAND, count, m + n - 1, width, OVERWRITE, band, NONE, band, NONE)
        _band_onto_cells(band, cells, m, n, by_key)
        return
    row = at(rel, clipped * width)
    for r in range(count):
        put(band, r, dot(at(x, r * x_row), row, width))
    for i in range(m):
        for j in range(0, n, lanes(cells)):
            more = load_first(band, j, n - j) if by_key else splat(get(band, i))
            store_first(cells, i * TILE_KEYS + j, load_first(cells, i * TILE_KEYS + j, n - j) + more, n - j)


@inner
def relative_mix(cells, rel, reach, width, first, y, y_row, m, n, band, rows, by_key):
    """y_i += sum_j cells[i, j] rel[o], or y_j += the sum over i where `by_key`. band, rows: scratch."""
    count = n if by_key else m
    clipped = _clipped_row(first, m, n, reach)
    if clipped < 0:
        _collect_rows(rel, reach, width, first, m, n, rows, False)
        _cells_into_band(cells, band, m, n, by_key)
        gemm(band, BAND, ONE, rows, width, y, y_row, count, width, m + n - 1, FROM, y, y_row, y, NONE)
        return
    _cell_sums(cells, band, m, n, by_key)
    for r in range(count):
        add_scaled(at(y, r * y_row), get(band, r), at(rel, clipped * width), width)


@inner
def relative_gradient(cells, x, x_row, drel, reach, width, first, m, n, band, rows, by_key):
    """drel[o] += the sum of cells[i, j] x_i, or cells[i, j] x_j where `by_key`. band, rows: scratch."""
    count = n if by_key else m
    clipped = _clipped_row(first, m, n, reach)
    if clipped < 0:
        _cells_into_band(cells, band, m, n, by_key)
        gemm(band, ONE, BAND, x, x_row, rows, width, m + n - 1, width, count, OVERWRITE, rows, NONE, rows, NONE)
        for t in range(m + n - 1):
            add_scaled(
                at(drel, _row(first - (m - 1) + t, reach) * width), scalar(rows, 1.0), at(rows, t * width), width
            )
        return
    _cell_sums(cells, band, m, n, by_key)
    for r in range(count):
        add_scaled(at(drel, clipped * width), get(band, r), at(x, r * x_row), width)


# ---------------------------------------------------------------------------------------------------------------------
# Content with a factor for every channel and offset (rel_gain): no matrix product


@inner
def channel_scores(q, k, gain, reach, width, first, cells, m, n):
    """cells[i, j] = sum_d q_id k_jd gain[o, d]; q and k with rows of `width` elements."""
    for i in range(m):
        for j in range(n):
            factors, sums = at(gain, _row(first + j - i, reach) * width), zeros(q)
            for d in range(0, width, lanes(q)):
                product = load_first(q, i * width + d, width - d) * load_first(k, j * width + d, width - d)
                sums = fma(product, load_first(factors, d, width - d), sums)
            put(cells, i * TILE_KEYS + j, total(sums))


@inner
def channel_gradients(cells, q, k, gain, reach, width, first, dq, dk, dgain, wants_gain, m, n):
    """Adds the gradients of `channel_scores`, cells being that of its result."""
    for i in range(m):
        for j in range(n):
            c, row = splat(get(cells, i * TILE_KEYS + j)), _row(first + j - i, reach) * width
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
def key_terms_backward(cells, key_bias, k, k_row, width, dkey_bias, wants_bias, dk, m, n, sums):
    """Adds the gradients of `add_key_terms`; dk has rows of `width` elements."""
    _cell_sums(cells, sums, m, n, True)
    for j in range(n):
        if wants_bias:
            add_scaled(dkey_bias, get(sums, j), at(k, j * k_row), width)
        add_scaled(at(dk, j * width), get(sums, j), key_bias, width)


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
def add_cells(cells, scores, scores_row, m, n):
    """cells += scores."""
    for i in range(m):
        for j in range(0, n, lanes(cells)):
            x = load_first(cells, i * TILE_KEYS + j, n - j) + load_first(scores, i * scores_row + j, n - j)
            store_first(cells, i * TILE_KEYS + j, x, n - j)


@inner
def copy_cells(cells, target, target_row, m, n):
    """target = cells."""
    for i in range(m):
        for j in range(0, n, lanes(cells)):
            store_first(target, i * target_row + j, load_first(cells, i * TILE_KEYS + j, n - j), n - j)
