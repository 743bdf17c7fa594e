"""Basic operations on a tile of scores: its size, and sums and products over its entries.

A tile has m queries and n keys, with rows `TILE_KEYS` elements apart. The offset of entry (i, j) is that of entry
(0, 0) plus j - i. Every routine is one pass over the tile, with a few FLOP per entry.
"""

import numpy as np

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import (
    REGISTER_BYTES,
    at,
    bring_near,
    fma,
    get,
    lanes,
    load,
    load_first,
    put,
    put_totals,
    splat,
    store,
    store_first,
    total,
    zeros,
)

TILE_QUERIES, TILE_KEYS = np.int64(96), np.int64(128)
SUBTILE = np.int64(32)  # number of keys whose reflections are applied together
# number of queries up to which reading keys in place costs less than transposing a tile; then no tile is skipped
FEW = np.int64(4)
AHEAD = 16  # number of rows that are prefetched; the hardware prefetcher loads the rows after these
_VECTORS = np.int64(max(1, 64 // REGISTER_BYTES))  # vectors per cache line
PACKED = np.int64(32)  # columns of transposed `counts` are rounded up to a multiple of this
BAND = np.int64(256)  # elements between rows of a band: TILE_QUERIES + TILE_KEYS - 1, rounded up


@inner
def dot(x, y, n):
    """x . y for n elements."""
    products = zeros(x)
    for j in range(0, n, lanes(x)):
        products = fma(load_first(x, j, n - j), load_first(y, j, n - j), products)
    return total(products)


@inner
def dots(x, y, y_row, n, d, out):
    """Write the products of x with n rows of y, of d elements each, to `out`. Four rows are processed at a time,
    because their sums do not depend on each other.
    """
    width, four = lanes(x), n // 4 * 4
    whole = d // width * width
    for j in range(0, four, 4):
        first, second, third, fourth = (
            at(y, j * y_row), at(y, (j + 1) * y_row), at(y, (j + 2) * y_row), at(y, (j + 3) * y_row),
        )  # fmt: skip
        s, t, u, w = zeros(x), zeros(x), zeros(x), zeros(x)
        for c in range(0, whole, width):
            own = load(x, c)
            s, t = fma(own, load(first, c), s), fma(own, load(second, c), t)
            u, w = fma(own, load(third, c), u), fma(own, load(fourth, c), w)
        if whole < d:
            left, own = d - whole, load_first(x, whole, d - whole)
            s, t = fma(own, load_first(first, whole, left), s), fma(own, load_first(second, whole, left), t)
            u, w = fma(own, load_first(third, whole, left), u), fma(own, load_first(fourth, whole, left), w)
        put_totals(out, j, s, t, u, w)
    for j in range(four, n):
        put(out, j, dot(x, at(y, j * y_row), d))


@inner
def add_rows(weights, x, x_row, n, d, y):
    """y += the sum of weights[j] x_j over n rows of x, of d elements each.

    The sum over even rows and the sum over odd rows start at zero and are then added to y. So y, a sum over many tiles,
    is rounded once per tile, not once per row.
    """
    width, even = lanes(y), n // 2 * 2
    c = np.int64(0)
    while d - c >= 4 * width:
        a, b, e, f = zeros(y), zeros(y), zeros(y), zeros(y)
        s, t, u, w = zeros(y), zeros(y), zeros(y), zeros(y)
        for j in range(0, even, 2):
            row, one = at(x, j * x_row + c), splat(get(weights, j))
            s, t = fma(one, load(row, 0), s), fma(one, load(row, width), t)
            u, w = fma(one, load(row, 2 * width), u), fma(one, load(row, 3 * width), w)
            row, one = at(x, (j + 1) * x_row + c), splat(get(weights, j + 1))
            a, b = fma(one, load(row, 0), a), fma(one, load(row, width), b)
            e, f = fma(one, load(row, 2 * width), e), fma(one, load(row, 3 * width), f)
        if even < n:
            row, one = at(x, even * x_row + c), splat(get(weights, even))
            s, t = fma(one, load(row, 0), s), fma(one, load(row, width), t)
            u, w = fma(one, load(row, 2 * width), u), fma(one, load(row, 3 * width), w)
        store(y, c, load(y, c) + (s + a))
        store(y, c + width, load(y, c + width) + (t + b))
        store(y, c + 2 * width, load(y, c + 2 * width) + (u + e))
        store(y, c + 3 * width, load(y, c + 3 * width) + (w + f))
        c += 4 * width
    while c < d:
        s, a = zeros(y), zeros(y)
        for j in range(0, even, 2):
            s = fma(splat(get(weights, j)), load_first(x, j * x_row + c, d - c), s)
            a = fma(splat(get(weights, j + 1)), load_first(x, (j + 1) * x_row + c, d - c), a)
        if even < n:
            s = fma(splat(get(weights, even)), load_first(x, even * x_row + c, d - c), s)
        store_first(y, c, load_first(y, c, d - c) + (s + a), d - c)
        c += width


@inner
def bring_rows_near(x, x_row, d):
    """Prefetch the first AHEAD rows of x, which are read next; x may have fewer rows."""
    for j in range(AHEAD):
        for c in range(0, d, lanes(x) * _VECTORS):
            bring_near(x, j * x_row + c)


@inner
def add_scaled(y, alpha, x, n):
    """y += alpha x for n elements."""
    factor = splat(alpha)
    for j in range(0, n, lanes(y)):
        store_first(y, j, fma(factor, load_first(x, j, n - j), load_first(y, j, n - j)), n - j)


@inner
def scale_row(x, n, factor):
    """x *= factor for n elements."""
    for j in range(0, n, lanes(x)):
        store_first(x, j, load_first(x, j, n - j) * splat(factor), n - j)


@inner
def clear(x, n):
    for j in range(0, n, lanes(x)):
        store_first(x, j, zeros(x), n - j)


@inner
def cell_sums(cells, sums, m, n, by_key):
    """Fill `sums`. If `by_key`, the entries are the sums over queries for each key, otherwise the sums over keys for
    each query.
    """
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
