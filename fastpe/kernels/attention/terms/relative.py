"""Terms with a vector for each offset: rel_key, rel_query, rel_value and rel_gain.

These arrays have a row for each offset -reach .. reach; offsets beyond the reach read the first or last row.

A *band* is a matrix with a row for each query (or key) of a tile and m + n - 1 columns, one for each offset in the
tile. With bands, all products with such an array are matrix products; entries are copied between bands and tiles. A
tile that is entirely beyond the reach of the array reads a single row, and its band is one column.

A tile with few queries is processed row by row, without a band, except for the gradient of the array.

An entry takes 2 D (m + n - 1) / n FLOP, or 2 if the tile is entirely beyond the reach. rel_gain has a factor for every
channel, which matrix products do not support: it takes 2 D FLOP per entry, and its gradients take 8 D.
"""

from typing import NamedTuple

import numpy as np

from fastpe.kernels.attention.inputs import first_offset
from fastpe.kernels.attention.nonfinite import add_product, add_weighted_rows, all_finite
from fastpe.kernels.attention.slots import REL_VALUE, floats_of, rows_of
from fastpe.kernels.attention.tile import BAND, FEW, TILE_KEYS, add_cells, add_scaled, cell_sums, dot, dots
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.products.float_gemm import ONTO, OVERWRITE
from fastpe.kernels.products.gemm import gemm
from fastpe.kernels.simd import at, fma, get, lanes, load_first, put, scalar, splat, store_first, total, zeros

ONE, NONE = np.int64(1), np.int64(0)


class Offsets(NamedTuple):
    """An array with a vector for each offset, and the tile that reads it. first: the offset of the
    tile's entry (0, 0).
    """

    rel: int  # pointer
    reach: int
    width: int
    first: int
    m: int
    n: int
    band: int  # scratch
    rows: int


@inner
def offsets_of(terms, slot, head, tile, case, scratch):
    """Return the array of a slot, in the form in which a tile reads it."""
    rel = floats_of(head.table, slot, terms, scratch.band)
    reach, first = rows_of(head.table, slot) // 2, first_offset(head, tile)
    width = case.v_width if slot == REL_VALUE else case.width
    return Offsets(rel, reach, width, first, tile.m, tile.n, scratch.band, scratch.rows)


@inner
def _row_of(offset, reach):
    return min(max(offset, -reach), reach) + reach


@inner
def clipped_row(offsets):
    """Return the row that all entries of the tile read, or -1 if they read several rows."""
    first, reach = offsets.first, offsets.reach
    if first - (offsets.m - 1) >= reach:
        return 2 * reach
    if first + offsets.n - 1 <= -reach:
        return NONE
    return -ONE


@inner
def _beyond_reach(offsets, i):
    """Return two keys, for query i: all keys before the first of them read the array's first row, and all keys from the
    second of them on read its last row."""
    own = i - offsets.first
    low = min(max(own - offsets.reach + 1, NONE), offsets.n)
    return low, min(max(own + offsets.reach, low), offsets.n)


@inner
def _collect_rows(offsets, transposed):
    """Copy the rows that the tile reads, from offset first - (m - 1) on, to `rows`, (m + n - 1, width). If
    `transposed`, write the transpose.
    """
    rel, reach, width, first, m, n, _, rows = offsets
    for t in range(m + n - 1):
        source = at(rel, _row_of(first - (m - 1) + t, reach) * width)
        if transposed:
            for d in range(width):
                put(rows, d * BAND + t, get(source, d))
        else:
            for d in range(0, width, lanes(rel)):
                store_first(rows, t * width + d, load_first(source, d, width - d), width - d)


@inner
def _band_onto_cells(band, cells, m, n, by_key):
    """Add the band to the cells: cells[i, j] += band[i, column of j - i], or band[j, column of j - i] if `by_key`."""
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
    """Copy the cells into the band, in the order of `_band_onto_cells`; other entries of the band become zero."""
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
def _row_sums(x, x_row, offsets, i, by_key):
    """For query i, band[j] = x_i . rel[o], or x_j . rel[o] if `by_key`, where o is the offset of key j and query i."""
    rel, reach, width, first, _, n, sums, _ = offsets
    low, high = _beyond_reach(offsets, i)
    last, near = at(rel, 2 * reach * width), at(rel, _row_of(first + low - i, reach) * width)
    if by_key:
        dots(rel, x, x_row, low, width, sums)
        for j in range(low, high):
            put(sums, j, dot(at(x, j * x_row), at(near, (j - low) * width), width))
        dots(last, at(x, high * x_row), x_row, n - high, width, at(sums, high))
        return
    own = at(x, i * x_row)
    _fill(sums, dot(own, rel, width), low)
    dots(own, near, width, high - low, width, at(sums, low))
    _fill(at(sums, high), dot(own, last, width), n - high)


@inner
def _fill(y, value, n):
    for j in range(0, n, lanes(y)):
        store_first(y, j, splat(value), n - j)


@inner
def relative_scores(x, x_row, offsets, cells, by_key):
    """cells[i, j] += x_i . rel[o], or x_j . rel[o] if `by_key`, where o is the offset of key j and query i."""
    rel, _, width, _, m, n, band, rows = offsets
    count = n if by_key else m
    clipped = clipped_row(offsets)
    if clipped < 0 and m <= FEW:
        for i in range(m):
            _row_sums(x, x_row, offsets, i, by_key)
            add_cells(at(cells, i * TILE_KEYS), NONE, band, NONE, ONE, n)
        return
    if clipped < 0:
        _collect_rows(offsets, True)
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
def relative_mix(cells, offsets, y, y_row, by_key):
    """y_i += sum_j cells[i, j] rel[o], where o is the offset of key j and query i. If `by_key`: y_j += sum_i."""
    rel, _, width, _, m, n, band, rows = offsets
    count = n if by_key else m
    clipped = clipped_row(offsets)
    if clipped < 0 and m <= FEW:
        for i in range(m):
            for j in range(n):
                row = at(rel, _row_of(offsets.first + j - i, offsets.reach) * width)
                add_scaled(at(y, (j if by_key else i) * y_row), get(cells, i * TILE_KEYS + j), row, width)
        return
    if clipped < 0:
        _collect_rows(offsets, False)
        _cells_into_band(cells, band, m, n, by_key)
        gemm(band, BAND, ONE, rows, width, y, y_row, count, width, m + n - 1, ONTO, y, y_row, y, NONE)
        return
    cell_sums(cells, band, m, n, by_key)
    for r in range(count):
        add_scaled(at(y, r * y_row), get(band, r), at(rel, clipped * width), width)


@inner
def relative_gradient(cells, x, x_row, drel, offsets, by_key):
    """drel[o] += the sum of cells[i, j] x_i (or x_j if `by_key`) over all entries whose offset is o."""
    _, reach, width, first, m, n, band, rows = offsets
    count = n if by_key else m
    clipped = clipped_row(offsets)
    if clipped < 0:
        _cells_into_band(cells, band, m, n, by_key)
        careful = not all_finite(x, x_row, count, width, rows)
        add_product(band, ONE, BAND, x, x_row, rows, width, m + n - 1, width, count, OVERWRITE, careful)
        for t in range(m + n - 1):
            target = at(drel, _row_of(first - (m - 1) + t, reach) * width)
            add_scaled(target, scalar(rows, 1.0), at(rows, t * width), width)
        return
    cell_sums(cells, band, m, n, by_key)
    add_weighted_rows(band, x, x_row, count, width, at(drel, clipped * width))


@inner
def _row_scores(x, factors, k, k_row, n, width, own, out):
    """Compute the products of one query, multiplied by the factors, with n keys. own: scratch memory for a row."""
    for d in range(0, width, lanes(own)):
        store_first(own, d, load_first(x, d, width - d) * load_first(factors, d, width - d), width - d)
    dots(own, k, k_row, n, width, out)


@inner
def channel_scores(q, q_row, k, k_row, offsets, own, cells):
    """cells[i, j] = sum_d q_id k_jd rel[o, d], where o is the offset of key j and query i. own: scratch memory for a
    row.
    """
    rel, reach, width, first, m, n, _, _ = offsets
    for i in range(m):
        x, row, (low, high) = at(q, i * q_row), at(cells, i * TILE_KEYS), _beyond_reach(offsets, i)
        if low > 0:
            _row_scores(x, rel, k, k_row, low, width, own, row)
        for j in range(low, high):
            y, factors, sums = at(k, j * k_row), at(rel, _row_of(first + j - i, reach) * width), zeros(own)
            for d in range(0, width, lanes(own)):
                product = load_first(x, d, width - d) * load_first(y, d, width - d)
                sums = fma(product, load_first(factors, d, width - d), sums)
            put(row, j, total(sums))
        if high < n:
            last = at(rel, 2 * reach * width)
            _row_scores(x, last, at(k, high * k_row), k_row, n - high, width, own, at(row, high))


@inner
def channel_gradients(cells, q, q_row, k, k_row, offsets, dq, dk, drel, wants_rel):
    """Add the gradients of the queries, keys and array of `channel_scores`. cells: the gradient of its result."""
    rel, reach, width, first, m, n, _, _ = offsets
    for i in range(m):
        for j in range(n):
            if get(cells, i * TILE_KEYS + j) == 0.0:  # a hidden key or query may hold NaN
                continue
            c, row = splat(get(cells, i * TILE_KEYS + j)), _row_of(first + j - i, reach) * width
            for d in range(0, width, lanes(cells)):
                left = width - d
                x, y = load_first(q, i * q_row + d, left), load_first(k, j * k_row + d, left)
                g = load_first(rel, row + d, left)
                store_first(dq, i * width + d, fma(c * y, g, load_first(dq, i * width + d, left)), left)
                store_first(dk, j * width + d, fma(c * x, g, load_first(dk, j * width + d, left)), left)
                if wants_rel:
                    store_first(drel, row + d, fma(c * x, y, load_first(drel, row + d, left)), left)
