"""The product of matrices rounded to bfloat16, with float32 sums: `products.gemm` for pointers that round.

Arguments and results are those of `kernels.products.gemm`. The depth is divided into slabs of `SLAB` terms, which are
added to C one after the other. In a slab, as many rows of A are packed (`pack`) as fit into the scratch memory, then as
many columns of B as fit. The packed columns are processed panel by panel. Each block of 32 x 32 sums is computed over
all of the slab's depth in registers; then start is added, f is applied, and the block is stored to C. Meanwhile the
next block of C and the next panel of B are prefetched (`sums`). They are usually not in a core's cache: C is as large
as that cache, and each weight (an element of B) is read only once for all rows.

A product takes 2 m n depth FLOP. In addition, A (m depth elements) is packed once, and B (n depth elements) once for
every `_ROWS` words of A, or not at all if B is already packed. A and B are read in the order of memory.
"""

import numpy as np
from numba.extending import intrinsic

from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.compile.overload import overload_by_type
from fastpe.kernels.products.bfloat16.pack import (
    BLOCK_ROWS,
    BLOCK_WORDS,
    PANEL_COLUMNS,
    STEP,
    pack_panels,
    pack_rows,
    pack_transpose,
    words_of_panel,
)
from fastpe.kernels.products.bfloat16.sums import BLOCK, Ahead, begin, end, sums_of_block
from fastpe.kernels.products.float_gemm import (
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
)
from fastpe.kernels.simd import (
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

SLAB = np.int64(4096)
_ROWS = np.int64(192 * 1024)  # words of A at a time: with panels of B they fit into a core's cache
_PANEL = np.int64(SLAB // 2 * PANEL_COLUMNS)  # words of one panel of depth SLAB, or of several panels of smaller depth
_SUMS = np.int64(BLOCK * BLOCK)
_AT_PANEL, _AT_SUMS, _AT_SPARE = _ROWS, np.int64(_ROWS + _PANEL), np.int64(_ROWS + _PANEL + _SUMS)
MEMORY = int(_AT_SPARE + SLAB)
"""Number of elements of scratch memory that a worker's products need."""

ONE = np.int64(1)
_START, _END = np.int64(FROM | PLUS | ONTO), np.int64(RELU | WHERE_POSITIVE)


# ---------------------------------------------------------------------------------------------------------------------
# The product


@inner
def _finish(sums, c, c_row, rows, mode, d, d_row, e, e_row):
    """C = f(start + sums), for a block of which all columns are inside the matrix."""
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
    """Do the same as `_finish`, for a block that has only its first `columns` columns."""
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
def _put_past_caches(sums, c, c_row):
    """C = sums, for a whole block. The stores bypass the caches, so that the cache lines of C need not be read
    first."""
    for i in range(BLOCK):
        for j in range(0, PANEL_COLUMNS, lanes(sums)):
            store_past_caches(c, i * c_row + j, load(sums, i * BLOCK + j))


@inlined
def _ahead(mode, c, c_row, i, rows, b, steps, more, far):
    """Return what to prefetch during the computation of one block of sums. This block begins at row i of the panel of C
    that starts at c.

    b: the next panel of B. more: whether there is a next panel. far: whether B was passed in packed form.
    """
    c_count, b_count, below = np.int64(0), np.int64(0), i + BLOCK < rows
    if not mode & NOT_SOON and (below or more):
        c_count = (BLOCK + steps - 1) // max(steps, ONE)
    number, blocks = i // BLOCK, (rows + BLOCK - 1) // BLOCK
    share = (STEP // 2 + blocks - 1) // blocks
    if more and far and number * share < STEP // 2:
        b_count = share
    c = at(c, (i + BLOCK) * c_row) if below else at(c, PANEL_COLUMNS)
    return Ahead(c, c_row, c_count, at(b, number * share * steps * PANEL_COLUMNS), b_count)


@inner
def _panel_of_either(b, panels, far, j, wide, stride):
    return at(b, j // PANEL_COLUMNS * stride) if far else at(panels, j % wide // PANEL_COLUMNS * stride)


@inner
def _panel_of_panels(b, panels, far, j, wide, stride):
    return at(panels, j % wide // PANEL_COLUMNS * stride)


@intrinsic
def _panel(typingctx, b, panels, far, j, wide, stride):
    """Return the panel of the columns from j on: a panel of B if B was passed in packed form (`far`), otherwise one of
    the panels that `_slab` has packed. An array of bfloat16 numbers is never in packed form."""
    own = _panel_of_either if b == panels else _panel_of_panels
    return overload_by_type(typingctx, own, (b, panels, far, j, wide, stride))


@inner
def _slab(isa, memory, a, a_row, a_col, b, b_row, c, c_row, m, n, before, depth, mode, d, d_row, e, e_row):
    """C = f(start + A B), for `depth` terms of the product, which follow `before` earlier terms."""
    words, panels, sums = part(memory, 0, _ROWS), part(memory, _AT_PANEL, _PANEL), part(memory, _AT_SUMS, _SUMS)
    steps, far = (depth + STEP - 1) // STEP, b_row < 0
    block, stride = steps * BLOCK_WORDS, words_of_panel(-b_row if far else depth)
    wide = _PANEL // max(stride, ONE) * PANEL_COLUMNS  # columns of B that are packed at a time
    most = _ROWS // max(2 * block, ONE) * BLOCK if steps else m
    for top in range(0, m, most):
        rows = min(most, m - top)
        pack_rows(isa, at(a, top * a_row), a_row, a_col, rows, depth, part(memory, _AT_SPARE, SLAB), words)
        for j in range(0, n, PANEL_COLUMNS):
            if mode & LOWER_C and j >= top + rows:
                break
            if not far and j % wide == 0:
                pack_panels(isa, at(b, j), b_row, min(n - j, wide), depth, panels)
            panel = _panel(b, panels, far, j, wide, stride)
            own_c, soon, more = at(c, top * c_row + j), at(panel, stride), j + PANEL_COLUMNS < n
            for i in range(0, rows, BLOCK):
                row, first, last = top + i, np.int64(0), steps
                if mode & LOWER_C and j >= row + BLOCK:
                    continue
                if mode & UPPER_A:
                    first = min(max(row - before, np.int64(0)) // STEP, steps)
                if mode & LOWER_A:
                    last = max(min((row + BLOCK - before + STEP - 1) // STEP, steps), np.int64(0))
                left, own, target = min(BLOCK, rows - i), at(words, i // BLOCK_ROWS * block), at(own_c, i * c_row)
                ahead = _ahead(mode, own_c, c_row, i, rows, soon, steps, more, far)
                bare = not mode & (_START | _END) and left == BLOCK and n - j >= PANEL_COLUMNS
                if bare and not mode & NOT_SOON:
                    sums_of_block(isa, own, block, panel, first, last, left, target, c_row, ahead)
                    continue
                sums_of_block(isa, own, block, panel, first, last, left, sums, BLOCK, ahead)
                start, end = at(d, row * d_row + j), at(e, row * e_row + j)
                if bare:
                    _put_past_caches(sums, target, c_row)
                elif n - j >= PANEL_COLUMNS:
                    _finish(sums, target, c_row, left, mode, start, d_row, end, e_row)
                else:
                    _finish_first(sums, target, c_row, left, n - j, mode, start, d_row, end, e_row)


@inner
def rounded_gemm(isa, memory, a, a_row, a_col, b, b_row, c, c_row, m, n, depth, mode, d, d_row, e, e_row):
    """Do the same as `kernels.products.gemm.gemm`, with rounded operands. memory: MEMORY elements."""
    parts, first, k = mode & ~(_START | _END), mode & _START, np.int64(0)
    begin(isa)
    while True:
        terms = min(SLAB, depth - k)
        slab = k // 2 * PANEL_COLUMNS if b_row < 0 else k * b_row
        own = parts | first | (mode & _END if k + terms == depth else OVERWRITE)
        _slab(
            isa, memory, at(a, k * a_col), a_row, a_col, at(b, slab), b_row, c, c_row, m, n, k, terms, own,
            d, d_row, e, e_row,
        )  # fmt: skip
        k += terms
        if k >= depth:
            break
        first, d, d_row = ONTO, c, c_row
    if mode & NOT_SOON:
        fence()
    end(isa)


@inner
def rounded_turn(isa, memory, source, source_row, target, target_row, m, n):
    """Do the same as `kernels.products.gemm.transpose_operand`, with a packed result. memory: MEMORY elements."""
    pack_transpose(isa, source, source_row, m, n, part(memory, _AT_SPARE, SLAB), target)
