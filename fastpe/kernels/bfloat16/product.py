"""The product of matrices rounded to bfloat16, with float32 sums: `gemm` for pointers that round.

The contract is that of `kernels.gemm`, to the letter. Of the depth, slabs of `SLAB` terms are finished one after the
other, each onto C; within a slab as many rows of A as there is room for are packed (`pack`), then panel by panel the
columns of B; each block of 32 x 32 sums goes through all of the slab's depth in registers and then, with what start
and f ask for, to C.

2 m n depth FLOP, and the packing: m depth elements once, n depth once for every `_ROWS` words of A, or not at all where
B is packed already.
"""

import numpy as np
from numba.extending import intrinsic

from fastpe.kernels._jit import inner
from fastpe.kernels.bfloat16.pack import (
    BLOCK_ROWS,
    BLOCK_WORDS,
    PANEL_COLUMNS,
    STEP,
    pack_panel,
    pack_rows,
    words_of_panel,
)
from fastpe.kernels.bfloat16.tiles import (
    begin_tiles,
    end_tiles,
    fetch_to_write,
    tile_clear,
    tile_keep,
    tile_load,
    tile_multiply_words,
    tile_products,
)
from fastpe.kernels.bfloat16.way import AMX
from fastpe.kernels.choice import called
from fastpe.kernels.gemm import (
    FROM,
    LOWER_A,
    LOWER_C,
    NOT_SOON,
    ONTO,
    OVERWRITE,
    PLUS,
    RELU,
    UPPER_A,
    WHERE_POSITIVE,
    tile_store,
    tile_zeros,
)
from fastpe.kernels.simd import (
    REGISTER_BYTES,
    at,
    fence,
    lanes,
    load,
    load_first,
    minus,
    part,
    relu,
    store,
    store_first,
    store_past_caches,
    where_negative,
    zeros,
)

BLOCK = np.int64(32)  # rows and columns of the sums that are made at a time
SLAB = np.int64(4096)
_ROWS = np.int64(192 * 1024)  # words of A at a time: with a panel of B they stay in a core's own cache
_PANEL = np.int64(SLAB // 2 * PANEL_COLUMNS)
_SUMS = np.int64(BLOCK * BLOCK)
_AT_PANEL, _AT_SUMS, _AT_SPARE = _ROWS, np.int64(_ROWS + _PANEL), np.int64(_ROWS + _PANEL + _SUMS)
MEMORY = int(_AT_SPARE + SLAB)
"""Elements of scratch memory that a lane's products need."""

# the tile of sums in vector registers
TILE_ROWS = 8 if REGISTER_BYTES == 64 else 2
TILE_VECTORS = 128 // REGISTER_BYTES
_START, _END = np.int64(FROM | PLUS | ONTO), np.int64(RELU | WHERE_POSITIVE)


# ---------------------------------------------------------------------------------------------------------------------
# Sums of a block: `first` and `last` are steps of the depth, `a_block` words lie between blocks of 16 rows


@inner
def _sums_in_tiles(way, a, a_block, b, first, last, rows, sums, row):
    lower = at(a, a_block)
    tile_clear(0)
    tile_clear(1)
    tile_clear(2)
    tile_clear(3)
    if rows > BLOCK_ROWS:
        for step in range(first, last):
            panel = at(b, step * BLOCK_ROWS * PANEL_COLUMNS)
            tile_load(4, at(a, step * BLOCK_WORDS), BLOCK_ROWS)
            tile_load(6, panel, PANEL_COLUMNS)
            tile_products(0, 4, 6)
            tile_load(7, at(panel, BLOCK_ROWS), PANEL_COLUMNS)
            tile_products(1, 4, 7)
            tile_load(5, at(lower, step * BLOCK_WORDS), BLOCK_ROWS)
            tile_products(2, 5, 6)
            tile_products(3, 5, 7)
        tile_keep(2, at(sums, BLOCK_ROWS * row), row)
        tile_keep(3, at(sums, BLOCK_ROWS * row + BLOCK_ROWS), row)
    else:
        for step in range(first, last):
            panel = at(b, step * BLOCK_ROWS * PANEL_COLUMNS)
            tile_load(4, at(a, step * BLOCK_WORDS), BLOCK_ROWS)
            tile_load(6, panel, PANEL_COLUMNS)
            tile_load(7, at(panel, BLOCK_ROWS), PANEL_COLUMNS)
            tile_products(0, 4, 6)
            tile_products(1, 4, 7)
    tile_keep(0, sums, row)
    tile_keep(1, at(sums, BLOCK_ROWS), row)


@inner
def _sums_in_vectors(way, a, a_block, b, first, last, rows, sums, row):
    for i in range(0, rows, TILE_ROWS):
        own = at(a, i // BLOCK_ROWS * a_block + i % BLOCK_ROWS * BLOCK_ROWS)
        tile = tile_zeros(sums, TILE_ROWS, TILE_VECTORS)
        for step in range(first, last):
            words, panel = at(own, step * BLOCK_WORDS), at(b, step * BLOCK_ROWS * PANEL_COLUMNS)
            for p in range(BLOCK_ROWS):
                tile = tile_multiply_words(tile, at(words, p), BLOCK_ROWS, at(panel, p * PANEL_COLUMNS), way)
        tile_store(tile, at(sums, i * row), row, BLOCK)


@intrinsic
def _sums_of_block(typingctx, way, a, a_block, b, first, last, rows, sums, row):
    """sums[i * row + j]: 32 x 32 of them, or 16 x 32 where there are no more than 16 `rows`."""
    own = _sums_in_tiles if way.way == AMX.name else _sums_in_vectors
    return called(typingctx, own, (way, a, a_block, b, first, last, rows, sums, row))


@inner
def _nothing(way):
    pass


@intrinsic
def _begin(typingctx, way):
    return called(typingctx, _begin_tiles if way.way == AMX.name else _nothing, (way,))


@intrinsic
def _end(typingctx, way):
    return called(typingctx, _end_tiles if way.way == AMX.name else _nothing, (way,))


@inner
def _begin_tiles(way):
    begin_tiles()


@inner
def _end_tiles(way):
    end_tiles()


# ---------------------------------------------------------------------------------------------------------------------
# The product


@inner
def _finish(sums, c, c_row, rows, mode, d, d_row, e, e_row):
    """C = f(start + sums), of a block of all its columns."""
    for i in range(rows):
        own, target, di, ei = at(sums, i * BLOCK), at(c, i * c_row), at(d, i * d_row), at(e, i * e_row)
        for j in range(0, PANEL_COLUMNS, lanes(sums)):
            value = load(own, j)
            if mode & (FROM | ONTO):
                value = value + load(di, j)
            if mode & PLUS:
                value = value + load(ei, j)
            if mode & RELU:
                value = relu(value)
            if mode & WHERE_POSITIVE:
                value = where_negative(minus(load(ei, j)), value, zeros(sums))
            store(target, j, value)


@inner
def _finish_first(sums, c, c_row, rows, columns, mode, d, d_row, e, e_row):
    """As `_finish`, of the first columns."""
    for i in range(rows):
        own, target, di, ei = at(sums, i * BLOCK), at(c, i * c_row), at(d, i * d_row), at(e, i * e_row)
        for j in range(0, columns, lanes(sums)):
            left, value = columns - j, load(own, j)
            if mode & (FROM | ONTO):
                value = value + load_first(di, j, left)
            if mode & PLUS:
                value = value + load_first(ei, j, left)
            if mode & RELU:
                value = relu(value)
            if mode & WHERE_POSITIVE:
                value = where_negative(minus(load_first(ei, j, left)), value, zeros(sums))
            store_first(target, j, value, left)


@inner
def _fetch(c, c_row, rows, columns):
    """Have a block of C brought near while its sums are made: nothing else reads where it is only written."""
    for i in range(rows):
        for j in range(0, columns, BLOCK_ROWS):
            fetch_to_write(at(c, i * c_row + j))


@inner
def _put_past_caches(sums, c, c_row):
    """C = sums, of a whole block: a line that is only written need not be read before."""
    for i in range(BLOCK):
        for j in range(0, PANEL_COLUMNS, lanes(sums)):
            store_past_caches(c, i * c_row + j, load(sums, i * BLOCK + j))


@inner
def _slab(way, memory, a, a_row, a_col, b, b_row, c, c_row, m, n, before, depth, mode, d, d_row, e, e_row):
    """C = f(start + A B), of terms that `before` others of the product precede."""
    words, panel, sums = part(memory, 0, _ROWS), part(memory, _AT_PANEL, _PANEL), part(memory, _AT_SUMS, _SUMS)
    steps = (depth + STEP - 1) // STEP
    block = steps * BLOCK_WORDS
    most = _ROWS // max(2 * block, np.int64(1)) * BLOCK if steps else m
    for top in range(0, m, most):
        rows = min(most, m - top)
        pack_rows(way, at(a, top * a_row), a_row, a_col, rows, depth, part(memory, _AT_SPARE, SLAB), words)
        for j in range(0, n, PANEL_COLUMNS):
            if mode & LOWER_C and j >= top + rows:
                break
            if b_row < 0:
                panel = at(b, j // PANEL_COLUMNS * words_of_panel(-b_row))
            else:
                pack_panel(way, at(b, j), b_row, n - j, depth, panel)
            for i in range(0, rows, BLOCK):
                row, first, last = top + i, np.int64(0), steps
                if mode & LOWER_C and j >= row + BLOCK:
                    continue
                if mode & UPPER_A:
                    first = min(max(row - before, np.int64(0)) // STEP, steps)
                if mode & LOWER_A:
                    last = max(min((row + BLOCK - before + STEP - 1) // STEP, steps), np.int64(0))
                left, own, target = min(BLOCK, rows - i), at(words, i // BLOCK_ROWS * block), at(c, row * c_row + j)
                bare = not mode & (_START | _END) and left == BLOCK and n - j >= PANEL_COLUMNS
                if bare and mode & NOT_SOON:
                    _sums_of_block(way, own, block, panel, first, last, left, sums, BLOCK)
                    _put_past_caches(sums, target, c_row)
                    continue
                _fetch(target, c_row, left, min(PANEL_COLUMNS, n - j))
                if bare:
                    _sums_of_block(way, own, block, panel, first, last, left, target, c_row)
                    continue
                _sums_of_block(way, own, block, panel, first, last, left, sums, BLOCK)
                start, end = at(d, row * d_row + j), at(e, row * e_row + j)
                if n - j >= PANEL_COLUMNS:
                    _finish(sums, target, c_row, left, mode, start, d_row, end, e_row)
                else:
                    _finish_first(sums, target, c_row, left, n - j, mode, start, d_row, end, e_row)


@inner
def rounded_gemm(way, memory, a, a_row, a_col, b, b_row, c, c_row, m, n, depth, mode, d, d_row, e, e_row):
    """As `kernels.gemm.gemm`; memory: MEMORY elements."""
    parts, first, k = mode & ~(_START | _END), mode & _START, np.int64(0)
    _begin(way)
    while True:
        terms = min(SLAB, depth - k)
        slab = k // 2 * PANEL_COLUMNS if b_row < 0 else k * b_row
        own = parts | first | (mode & _END if k + terms == depth else OVERWRITE)
        _slab(
            way, memory, at(a, k * a_col), a_row, a_col, at(b, slab), b_row, c, c_row, m, n, k, terms, own,
            d, d_row, e, e_row,
        )  # fmt: skip
        k += terms
        if k >= depth:
            break
        first, d, d_row = ONTO, c, c_row
    if mode & NOT_SOON:
        fence()
    _end(way)
