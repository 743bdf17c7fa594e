"""Matrix products in float32 or float64. `products.gemm.gemm` calls `float_gemm` unless operands are rounded to
bfloat16.

    C[i, j] = f( start[i, j] + sum_k A[i, k] B[k, j] )        i < m, j < n, k < depth

    A[i, k] = a[i * a_row + k * a_col]      any strides: plain (a_col = 1) or transposed (a_row = 1)
    B[k, j] = b[k * b_row + j]              rows contiguous; call `transpose` first to multiply by a transpose.
                                            In bfloat16 products, b_row = -r means that b holds a packed matrix of
                                            r rows (`products.bfloat16.pack`), and B is its first rows and columns
    C[i, j] = c[i * c_row + j]              rows contiguous; C may be the same memory as D (see
                                            FROM and ONTO), but not as A or B

`mode` is a sum of flags that say where the sum starts and what f is:

    OVERWRITE       start 0
    FROM            start[i, j] = d[i * d_row + j]; d_row = 0 repeats one row (a bias)
    PLUS            e[i * e_row + j] is added to start; e_row = 0 repeats one row
    ONTO            start 0, and d[i * d_row + j] is added to the finished sum, which is more accurate if D is far
                    larger than the terms
    RELU            f = max(., 0)
    WHERE_POSITIVE  f = . where e[i * e_row + j] > 0, else 0 (the backward pass of RELU)

Further flags say which parts of the product may be skipped, for causal attention:

    LOWER_A         A[i, k] is zero for k > i: the sums may stop at k = i
    UPPER_A         A[i, k] is zero for k < i: the sums may start at k = i
    LOWER_C         C[i, j] is needed for j <= i only; other entries may or may not be written

The last flag is a hint, allowed only if all rows of C begin on cache lines:

    NOT_SOON        C is not read soon: stores may bypass the caches, if that is faster

A product takes 2 m n depth FLOP, about half of that if a part is skipped. All operands are expected in cache. The loops
are, from the outermost to the innermost: column panels of B (`PANEL` vectors wide), blocks of rows, depth. The part of
C that belongs to one block and one panel stays in registers for the whole depth. So each step of the innermost loop
loads `PANEL` vectors of B, broadcasts one element of A per row, and does rows x `PANEL` multiply-adds.

Accuracy. The rounding error of one running sum grows with its length. So a sum of more than `TERMS` terms is computed
in pieces of `TERMS` terms. Each finished piece is added to C; the start value of the mode is added to the first piece.
This costs a load, an addition and a store per `TERMS` multiply-adds. Pieces begin at multiples of `TERMS`, even if the
first terms are skipped, so that a sum has the same order in every block of rows.

Edges. Row blocks of `ROWS` and of `ROWS - 1` together cover every m >= (ROWS - 1) (ROWS - 2) exactly; for smaller m,
the last rows may be processed one at a time. The columns after the last whole panel are processed one vector at a time,
the last one masked: nothing outside the matrices is read or written. The sum over k has the same order for all m and n.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import (
    REGISTER_BYTES,
    Vector,
    at,
    code,
    get,
    lanes,
    llvm_vector,
    load_first,
    put,
    store_first,
    transpose_block,
)

OVERWRITE, FROM, PLUS, RELU, WHERE_POSITIVE, LOWER_A, UPPER_A, LOWER_C, ONTO, NOT_SOON = (
    np.int64(flag) for flag in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
)

# The register tile: 32 vector registers with AVX-512 and NEON hold 24 of C, 4 of B and one of A; 16 registers hold 12.
ROWS = 6
PANEL = 4 if REGISTER_BYTES == 64 else 2
TERMS = np.int64(256)  # largest number of terms of one running sum
FEWER_ROWS = ROWS - 1  # has a name, because Numba treats a global as a literal, but not an expression
ONE_ROW, ONE_VECTOR = 1, 1


class Tile(types.Type):
    """`rows` x `columns` vectors, held in registers."""

    def __init__(self, rows, columns, dtype):
        self.rows, self.columns, self.vector = rows, columns, Vector(dtype)
        super().__init__(name=f"Tile({rows} x {columns} of {self.vector})")


@register_model(Tile)
class _TileModel(models.PrimitiveModel):
    def __init__(self, manager, tile):
        super().__init__(manager, tile, ir.ArrayType(llvm_vector(tile.vector), tile.rows * tile.columns))


def _index(value):
    return ir.Constant(ir.IntType(64), value)


def cells_of(tile):
    """Return (number, row, column) for every vector of the tile."""
    return [(i * tile.columns + j, i, j) for i in range(tile.rows) for j in range(tile.columns)]


def packed_tile(b, tile, vectors):
    packed = ir.Constant(ir.ArrayType(llvm_vector(tile.vector), len(vectors)), ir.Undefined)
    for number, vector in enumerate(vectors):
        packed = b.insert_value(packed, vector, number)
    return packed


def unpacked_tile(b, tile, packed):
    return [b.extract_value(packed, number) for number, _, _ in cells_of(tile)]


def load_cell(b, tile, dtype, p, p_row, i, j, count):
    """Load vector (i, j) of a matrix with elements of `dtype`. For a tile that is one vector wide, read only the first
    `count` lanes.
    """
    offset = b.add(b.mul(p_row, _index(i)), _index(j * tile.vector.lanes))
    if tile.columns == 1:
        return code.load_lanes(b, tile.vector, dtype, p, offset, count)
    return code.load_vector(b, tile.vector, dtype, p, offset)


@intrinsic(prefer_literal=True)
def tile_zeros(typingctx, p, rows, columns):
    """Return a tile of zeros, of the element type of the pointer `p`."""
    tile = Tile(rows.literal_value, columns.literal_value, p.dtype)

    def emit(context, b, signature, arguments):
        return packed_tile(b, tile, [code.constant(tile.vector, 0.0) for _ in cells_of(tile)])

    return tile(p, rows, columns), emit


@intrinsic
def tile_add(typingctx, tile, p, p_row, count):
    """Return tile + P, where P[i, j] = p[i * p_row + j]."""

    def emit(context, b, signature, arguments):
        packed, start, p_row, count = arguments
        old = unpacked_tile(b, tile, packed)
        new = [load_cell(b, tile, p.dtype, start, p_row, i, j, count) for _, i, j in cells_of(tile)]
        return packed_tile(b, tile, [b.fadd(x, y) for x, y in zip(old, new, strict=True)])

    return tile(tile, p, types.intp, types.intp), emit


@intrinsic
def tile_multiply_add(typingctx, tile, a, a_row, b_, count):
    """Return tile + the product of the column a[i * a_row] and the row b[j]."""

    def emit(context, b, signature, arguments):
        packed, column, a_row, row, count = arguments
        old, vector = unpacked_tile(b, tile, packed), tile.vector
        across = [load_cell(b, tile, b_.dtype, row, _index(0), 0, j, count) for j in range(tile.columns)]
        down = [code.load_element(b, a.dtype, column, b.mul(a_row, _index(i))) for i in range(tile.rows)]
        down = [code.broadcast(b, vector, each) for each in down]
        return packed_tile(
            b, tile, [code.multiply_add(b, vector, down[i], across[j], old[c]) for c, i, j in cells_of(tile)]
        )

    return tile(tile, a, types.intp, b_, types.intp), emit


@intrinsic
def tile_relu(typingctx, tile):
    """Return max(tile, 0)."""

    def emit(context, b, signature, arguments):
        return packed_tile(b, tile, [code.rectified(b, tile.vector, v) for v in unpacked_tile(b, tile, arguments[0])])

    return tile(tile), emit


@intrinsic
def tile_where_positive(typingctx, tile, e, e_row, count):
    """Return the tile where E[i, j] = e[i * e_row + j] is positive, and 0 elsewhere."""

    def emit(context, b, signature, arguments):
        packed, start, e_row, count = arguments
        old = unpacked_tile(b, tile, packed)
        kept = [
            code.where_positive(b, tile.vector, old[c], load_cell(b, tile, e.dtype, start, e_row, i, j, count))
            for c, i, j in cells_of(tile)
        ]
        return packed_tile(b, tile, kept)

    return tile(tile, e, types.intp, types.intp), emit


@intrinsic
def tile_store(typingctx, tile, c, c_row, count):
    """Store the tile to C, where C[i, j] = c[i * c_row + j]."""

    def emit(context, b, signature, arguments):
        packed, p, p_row, count = arguments
        for number, i, j in cells_of(tile):
            value = b.extract_value(packed, number)
            offset = b.add(b.mul(p_row, _index(i)), _index(j * tile.vector.lanes))
            if tile.columns == 1:
                code.store_lanes(b, tile.vector, c.dtype, p, offset, value, count)
            else:
                code.store_vector(b, tile.vector, c.dtype, p, offset, value)
        return context.get_dummy_value()

    return types.void(tile, c, types.intp, types.intp), emit


@inner
def _block(
    a, a_row, a_col, b, b_row, c, c_row, count, before, depth, mode, d, d_row, e, e_row, rows, columns
):  # fmt: skip
    """Compute one register tile of C over the whole depth. If the tile is one vector wide, only its first `count`
    columns are read and written.

    before: number of terms of the whole product that are skipped at the start.
    """
    tile, done, end = tile_zeros(c, rows, columns), np.int64(0), min(TERMS - before % TERMS, depth)
    whole = end == depth
    if whole and mode & FROM:
        tile = tile_add(tile, d, d_row, count)
    if whole and mode & PLUS:
        tile = tile_add(tile, e, e_row, count)
    while True:
        for k in range(done, end):
            tile = tile_multiply_add(tile, at(a, k * a_col), a_row, at(b, k * b_row), count)
        if done:
            tile = tile_add(tile, c, c_row, count)
        elif not whole:
            if mode & (FROM | ONTO):
                tile = tile_add(tile, d, d_row, count)
            if mode & PLUS:
                tile = tile_add(tile, e, e_row, count)
        if end == depth:
            break
        tile_store(tile, c, c_row, count)
        tile, done, end = tile_zeros(c, rows, columns), end, min(end + TERMS, depth)
    if whole and mode & ONTO:
        tile = tile_add(tile, d, d_row, count)
    if mode & RELU:
        tile = tile_relu(tile)
    if mode & WHERE_POSITIVE:
        tile = tile_where_positive(tile, e, e_row, count)
    tile_store(tile, c, c_row, count)


@inner
def _column_panel(a, a_row, a_col, b, b_row, c, c_row, top, m, count, depth, mode, d, d_row, e, e_row, columns):
    """Compute the rows of C from `top` on, in a panel of `columns` vectors: first blocks of ROWS rows, then blocks of
    ROWS - 1 rows, then single rows."""
    shorter = (top - m) % ROWS
    if shorter * FEWER_ROWS > m - top:
        shorter = np.int64(0)
    i = top
    while i < m:
        first = i if mode & UPPER_A else np.int64(0)
        last = min(i + ROWS, depth) if mode & LOWER_A else depth
        ai, bi, terms = at(a, i * a_row + first * a_col), at(b, first * b_row), last - first
        ci, di, ei = at(c, i * c_row), at(d, i * d_row), at(e, i * e_row)
        if i + ROWS + shorter * FEWER_ROWS <= m:
            _block(
                ai, a_row, a_col, bi, b_row, ci, c_row, count, first, terms, mode, di, d_row, ei, e_row, ROWS, columns
            )
            i += ROWS
        elif i + FEWER_ROWS <= m:
            _block(
                ai, a_row, a_col, bi, b_row, ci, c_row, count, first, terms, mode, di, d_row, ei, e_row, FEWER_ROWS,
                columns,
            )  # fmt: skip
            i += FEWER_ROWS
        else:
            _block(
                ai, a_row, a_col, bi, b_row, ci, c_row, count, first, terms, mode, di, d_row, ei, e_row, ONE_ROW,
                columns,
            )  # fmt: skip
            i += ONE_ROW


@inner
def float_gemm(a, a_row, a_col, b, b_row, c, c_row, m, n, depth, mode, d, d_row, e, e_row):
    """C = f(start + A B); see the head of this file for every argument."""
    j = np.int64(0)
    while j < n:
        bj, cj, dj, ej, count = at(b, j), at(c, j), at(d, j), at(e, j), n - j
        top = min(j, m) if mode & LOWER_C else np.int64(0)
        if count >= PANEL * lanes(c):
            _column_panel(
                a, a_row, a_col, bj, b_row, cj, c_row, top, m, count, depth, mode, dj, d_row, ej, e_row, PANEL
            )
            j += PANEL * lanes(c)
        else:
            _column_panel(
                a, a_row, a_col, bj, b_row, cj, c_row, top, m, count, depth, mode, dj, d_row, ej, e_row, ONE_VECTOR
            )
            j += lanes(c)


@inner
def transpose(source, source_row, target, target_row, m, n):
    """Write the transpose of source (m, n) to target: target[j, i] = source[i, j]."""
    width = lanes(source)
    whole_m, whole_n = m - m % width, n - n % width
    for i in range(0, whole_m, width):
        for j in range(0, whole_n, width):
            block, turned = at(source, i * source_row + j), at(target, j * target_row + i)
            transpose_block(block, source_row, turned, target_row, False)
    for i in range(m):
        for j in range(whole_n if i < whole_m else 0, n):
            put(target, j * target_row + i, get(source, i * source_row + j))


@inner
def add_column_sums(x, x_row, m, n, out):
    """out[j] += sum_i X[i, j]. This is the gradient of a bias row."""
    for j in range(0, n, lanes(x)):
        column = load_first(out, j, n - j)
        for i in range(m):
            column = column + load_first(x, i * x_row + j, n - j)
        store_first(out, j, column, n - j)
