"""The linear layers ("maps") of a network over scores (`attention.dape`), and the gradients of their weights.

    y[i, cell] = f( start + sum over taps and k of A[tap][i, k] x[k, cell + shift of the tap] )

y has a grid for each i, and x one for each k; grids are `GRID` elements apart. An entry of a grid is a cell. Keys are
adjacent in a row, so that a tap is a shift by a whole number of elements. A register tile of y is computed over the
whole depth and all taps, and f is applied before the tile is stored. A separate pass for f would cost as much as a
product, because all units together are larger than a core's first cache.
"""

import numpy as np
from numba import types
from numba.extending import intrinsic

from fastpe.kernels.attention.tile import TILE_KEYS
from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.products.float_gemm import (
    cells_of,
    load_cell,
    packed_tile,
    tile_add,
    tile_multiply_add,
    tile_store,
    tile_zeros,
    unpacked_tile,
)
from fastpe.kernels.simd import at, code, fma, get, lanes, load, put, total, zeros

ROWS = np.int64(26)  # largest number of queries of a grid
GRID = ROWS * TILE_KEYS + np.int64(80)
"""Elements between grids. Cells at the same position of all grids are read together; the padding between two grids puts
these cells into different sets of the caches."""
LEAK = 0.01  # slope of a unit below 0
FROM, BOTH, LEAKY, SLOPED = (np.int64(number) for number in range(4))
"""The function f of a map, and the role of its argument d:

    FROM     the identity; the start is the grids d
    BOTH     the identity; the start is the sum of the grids d and of as many grids that follow them
    LEAKY    lrelu; the start is a number for each grid, in d
    SLOPED   multiplication by the slope of lrelu at the grids d; the start is 0
"""
_MANY, _FEWER, _SOME, _ONE, _WIDE = 6, 5, 4, 1, 2  # grids (_WIDE: vectors) of a tile; Numba treats globals as literals


@intrinsic
def _leaky(typingctx, tile):
    """Return lrelu, the leaky ReLU, of every element."""

    def emit(context, b, signature, arguments):
        leak, kept = code.constant(tile.vector, LEAK), []
        for x in unpacked_tile(b, tile, arguments[0]):
            kept.append(code.larger(b, x, b.fmul(leak, x)))
        return packed_tile(b, tile, kept)

    return tile(tile), emit


@intrinsic
def _sloped(typingctx, tile, d, d_row, count):
    """Return the tile times the slope of lrelu at D. The slope is 1 where D is positive, and LEAK elsewhere."""

    def emit(context, b, signature, arguments):
        packed, start, d_row, count = arguments
        old, kept = unpacked_tile(b, tile, packed), []
        leak, zero = code.constant(tile.vector, LEAK), code.constant(tile.vector, 0.0)
        for number, i, j in cells_of(tile):
            above = b.fcmp_ordered(">", load_cell(b, tile, d.dtype, start, d_row, i, j, count), zero)
            kept.append(b.select(above, old[number], b.fmul(leak, old[number])))
        return packed_tile(b, tile, kept)

    return tile(tile, d, types.intp, types.intp), emit


@inner
def _tile(a, strides, taps, depth, way, ones, x, y, f, d, behind, grids):
    """Compute one register tile: `grids` grids of y, two vectors wide. strides: the strides of A's rows, columns and
    taps.
    """
    tile, count = tile_zeros(y, grids, _WIDE), _WIDE * lanes(y)
    if f in (FROM, BOTH):
        tile = tile_add(tile, d, GRID, count)
    if f == BOTH:
        tile = tile_add(tile, at(d, behind), GRID, count)
    if f == LEAKY:
        tile = tile_multiply_add(tile, d, np.int64(1), ones, count)
    for tap in range(taps):
        own, taken = at(a, tap * strides[2]), at(x, (tap - taps // 2) * way)
        for k in range(depth):
            tile = tile_multiply_add(tile, at(own, k * strides[1]), strides[0], at(taken, k * GRID), count)
    if f == LEAKY:
        tile = _leaky(tile)
    if f == SLOPED:
        tile = _sloped(tile, d, GRID, count)
    tile_store(tile, y, GRID, count)


@inner
def map_cells(a, strides, taps, depth, way, ones, x, y, grids, rows, columns, f, d):
    """Compute `grids` grids y from `depth` grids x, in the columns columns[0] .. columns[1] - 1 of each row. Both
    numbers must be multiples of `column_step`.

    way: 1, or -1 if the order of the taps is reversed, as in the backward pass. ones: a row of ones. f, d: see `FROM`.
    """
    fewer, behind = -grids % _MANY, grids * GRID
    if fewer * _FEWER > grids:
        fewer = grids
    for row in range(rows):
        for column in range(columns[0], columns[1], _WIDE * lanes(y)):
            i, cell = np.int64(0), row * TILE_KEYS + column
            xc, yc = at(x, cell), at(y, cell)
            while i < grids:
                ai, yi = at(a, i * strides[0]), at(yc, i * GRID)
                di = at(d, i) if f == LEAKY else at(d, i * GRID + cell)
                if i + _MANY + fewer * _FEWER <= grids:
                    _tile(ai, strides, taps, depth, way, ones, xc, yi, f, di, behind, _MANY)
                    i += _MANY
                elif fewer < grids and i + _FEWER <= grids:
                    _tile(ai, strides, taps, depth, way, ones, xc, yi, f, di, behind, _FEWER)
                    i += _FEWER
                elif i + _SOME <= grids:
                    _tile(ai, strides, taps, depth, way, ones, xc, yi, f, di, behind, _SOME)
                    i += _SOME
                else:
                    _tile(ai, strides, taps, depth, way, ones, xc, yi, f, di, behind, _ONE)
                    i += _ONE


@inlined
def column_step(x):
    """The number of columns that a map processes at a time."""
    return np.int64(_WIDE * lanes(x))


@inner
def add_products(a, m, b, n, rows, columns, out):
    """out[i, j] += the sum over cells of grid i of a times grid j of b, for i < m and j < n. `rows` and `columns` are
    as for `map_cells`.
    """
    for i in range(0, m, 4):
        a0 = at(a, i * GRID)
        a1, a2, a3 = (
            at(a, min(i + 1, m - 1) * GRID), at(a, min(i + 2, m - 1) * GRID), at(a, min(i + 3, m - 1) * GRID)
        )  # fmt: skip
        for j in range(0, n, 2):
            b0, b1 = at(b, j * GRID), at(b, min(j + 1, n - 1) * GRID)
            s0, s1, s2, s3 = zeros(a), zeros(a), zeros(a), zeros(a)
            t0, t1, t2, t3 = zeros(a), zeros(a), zeros(a), zeros(a)
            for row in range(rows):
                for cell in range(row * TILE_KEYS + columns[0], row * TILE_KEYS + columns[1], lanes(a)):
                    x, y = load(b0, cell), load(b1, cell)
                    v0, v1, v2, v3 = load(a0, cell), load(a1, cell), load(a2, cell), load(a3, cell)
                    s0, s1, s2, s3 = fma(v0, x, s0), fma(v1, x, s1), fma(v2, x, s2), fma(v3, x, s3)
                    t0, t1, t2, t3 = fma(v0, y, t0), fma(v1, y, t1), fma(v2, y, t2), fma(v3, y, t3)
            _add_totals(s0, s1, s2, s3, i, j, m, n, out)
            if j + 1 < n:
                _add_totals(t0, t1, t2, t3, i, j + 1, m, n, out)


@inlined
def _add_totals(s0, s1, s2, s3, i, j, m, n, out):
    put(out, i * n + j, get(out, i * n + j) + total(s0))
    if i + 1 < m:
        put(out, (i + 1) * n + j, get(out, (i + 1) * n + j) + total(s1))
    if i + 2 < m:
        put(out, (i + 2) * n + j, get(out, (i + 2) * n + j) + total(s2))
    if i + 3 < m:
        put(out, (i + 3) * n + j, get(out, (i + 3) * n + j) + total(s3))


@inner
def add_grid_sums(x, grids, rows, columns, out):
    """out[i] += the sum over grid i of x."""
    for i in range(grids):
        sums = zeros(x)
        for row in range(rows):
            for cell in range(row * TILE_KEYS + columns[0], row * TILE_KEYS + columns[1], lanes(x)):
                sums = sums + load(x, i * GRID + cell)
        put(out, i, get(out, i) + total(sums))
