"""The maps of a network over scores (`attention.dape`), and the products that are their gradients.

    y[i, cell] = f( start + sum over taps and k of A[tap][i, k] x[k, cell + shift of the tap] )

Rows of x and y are grids, cells of a key lie side by side, and a tap's shift is a whole number of keys. A register tile
of y is made for the whole depth and all taps, and goes through f before it is stored: what all units are is several
times as much as a core's own cache holds, and each pass over it costs as much as a product.
"""

import numpy as np
from numba import types
from numba.extending import intrinsic

from fastpe.kernels.attention.dape.layout import LEAK, ROWS
from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.products.gemm import (
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

PLAIN, FROM, LEAKY, SLOPED = (np.int64(number) for number in range(4))
"""f: nothing, the start 0 or d; lrelu, the start a number d for each row; times the slope of lrelu where it gave d."""
_MANY, _SOME, _ONE, _WIDE = 8, 4, 1, 2  # rows and vectors of tiles: named, as Numba takes a global as a literal


@intrinsic
def _leaky(typingctx, tile):
    """lrelu of every element."""

    def emit(context, b, signature, arguments):
        leak, kept = code.constant(tile.vector, LEAK), []
        for x in unpacked_tile(b, tile, arguments[0]):
            kept.append(code.larger(b, x, b.fmul(leak, x)))
        return packed_tile(b, tile, kept)

    return tile(tile), emit


@intrinsic
def _sloped(typingctx, tile, d, d_row, count):
    """The tile where D is positive, elsewhere times the slope of lrelu there."""

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
def _tile(a, strides, taps, depth, first, ones, x, y, grid, f, d, d_grid, rows):
    """One tile: `rows` rows of y, two vectors wide. strides: of A's rows, columns and taps; first: of the shifts."""
    tile, count = tile_zeros(y, rows, _WIDE), _WIDE * lanes(y)
    if f == FROM:
        tile = tile_add(tile, d, d_grid, count)
    if f == LEAKY:
        tile = tile_multiply_add(tile, d, d_grid, ones, count)
    for tap in range(taps):
        own, taken = at(a, tap * strides[2]), at(x, (tap - first[0]) * first[1] * ROWS)
        for k in range(depth):
            tile = tile_multiply_add(tile, at(own, k * strides[1]), strides[0], at(taken, k * grid), count)
    if f == LEAKY:
        tile = _leaky(tile)
    if f == SLOPED:
        tile = _sloped(tile, d, d_grid, count)
    tile_store(tile, y, grid, count)


@inner
def map_cells(a, strides, taps, depth, way, ones, x, y, grid, m, cells, f, d, d_grid):
    """y, m grids of so many cells, from x, `depth` of them.

    way: 1, or -1 where taps go the other way, as they do in the adjoint map. ones: `_WIDE` vectors of them. d: see `f`;
    its rows are `d_grid` apart.
    """
    first = taps // 2, way
    for cell in range(0, cells, _WIDE * lanes(y)):
        i, xc, yc = np.int64(0), at(x, cell), at(y, cell)
        own = d if f == LEAKY else at(d, cell)
        while i < m:
            ai, yi, di = at(a, i * strides[0]), at(yc, i * grid), at(own, i * d_grid)
            if i + _MANY <= m:
                _tile(ai, strides, taps, depth, first, ones, xc, yi, grid, f, di, d_grid, _MANY)
                i += _MANY
            elif i + _SOME <= m:
                _tile(ai, strides, taps, depth, first, ones, xc, yi, grid, f, di, d_grid, _SOME)
                i += _SOME
            else:
                _tile(ai, strides, taps, depth, first, ones, xc, yi, grid, f, di, d_grid, _ONE)
                i += _ONE


@inner
def add_products(a, a_row, m, b, b_row, n, cells, out):
    """out[i, j] += the product of rows i < m of a and j < n of b, of so many cells; four rows of each at a time."""
    for i in range(0, m, 4):
        a0 = at(a, i * a_row)
        a1, a2, a3 = (
            at(a, min(i + 1, m - 1) * a_row),
            at(a, min(i + 2, m - 1) * a_row),
            at(a, min(i + 3, m - 1) * a_row),
        )
        for j in range(0, n, 2):
            b0, b1 = at(b, j * b_row), at(b, min(j + 1, n - 1) * b_row)
            s0, s1, s2, s3 = zeros(a), zeros(a), zeros(a), zeros(a)
            t0, t1, t2, t3 = zeros(a), zeros(a), zeros(a), zeros(a)
            for cell in range(0, cells, lanes(a)):
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
