"""What all work on a tile of cells is made of: its size, and sums and products over its cells.

A tile is m queries by n keys, its rows `TILE_KEYS` elements apart; the offset of cell (i, j) is that of cell (0, 0)
plus j - i. Every routine is one pass over the tile, a few FLOP a cell.
"""

import numpy as np

from fastpe.kernels._jit import inner
from fastpe.kernels.simd import fma, lanes, load_first, put, splat, store_first, total, zeros

TILE_QUERIES, TILE_KEYS = np.int64(96), np.int64(128)
BAND = np.int64(256)  # elements from one row of a band to the next: TILE_QUERIES + TILE_KEYS - 1, rounded up


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
