"""Operands of a product as words (pairs of bfloat16 along the depth), in the order that the instructions read.

    A    blocks of 16 rows x 16 words, one after the other along the depth, then the next 16 rows
    B    a panel of `PANEL_COLUMNS` columns: row p holds the words of rows 2 p and 2 p + 1 of B

Matrices are padded with zeros to whole blocks, so that the products need no masks. Nothing outside a matrix is read.
The speed of packing is limited by the caches: each element is read once, and half as many bytes are written.

A matrix that is operand B of many products is packed once, together with its transpose (`pack_band`). Panels are stored
one after the other, each over the whole depth.
"""

import math

import numpy as np

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.products.bfloat16.tiles import words_across, words_along
from fastpe.kernels.simd import at, get, lanes, load_first, put, store, transpose_block, zeros

STEP = np.int64(32)  # terms that one block holds
BLOCK_ROWS, BLOCK_WORDS = np.int64(16), np.int64(256)
PANEL_COLUMNS = np.int64(32)


@inner
def _row_of_words(isa, row, depth, out):
    """Copy a contiguous row of A into the blocks."""
    width = lanes(row)
    for k in range(0, depth, 2 * width):
        words = words_along(load_first(row, k, depth - k), load_first(row, k + width, depth - k - width), isa)
        store(out, k // STEP * BLOCK_WORDS + k % STEP // 2, words)
    for k in range((depth + 2 * width - 1) // (2 * width) * 2 * width, (depth + STEP - 1) // STEP * STEP, 2 * width):
        store(out, k // STEP * BLOCK_WORDS + k % STEP // 2, zeros(row))


@inner
def _columns_to_words(isa, a, a_col, m, depth, turned, out):
    """Pack A, whose columns are contiguous. The words of a few columns and of `lanes` rows form a square, which is
    transposed into its block. All rows of these columns are read before the next columns, because memory is read
    fastest in order."""
    width, steps = lanes(a), (depth + STEP - 1) // STEP
    for k in range(0, steps * STEP, 2 * width):
        for i in range(0, (m + BLOCK_ROWS - 1) // BLOCK_ROWS * BLOCK_ROWS, width):
            for p in range(width):
                first = k + 2 * p
                x = load_first(a, first * a_col + i, m - i if first < depth else 0)
                y = load_first(a, (first + 1) * a_col + i, m - i if first + 1 < depth else 0)
                store(turned, p * width, words_across(x, y, isa))
            block = i // BLOCK_ROWS * steps * BLOCK_WORDS + i % BLOCK_ROWS * (STEP // 2)
            place = at(out, block + k // STEP * BLOCK_WORDS + k % STEP // 2)
            transpose_block(turned, width, place, STEP // 2, False)


@inner
def pack_rows(isa, a, a_row, a_col, m, depth, spare, out):
    """Pack A (m, depth). spare: memory for a row of A, or for a square of `lanes` x `lanes` words."""
    steps = (depth + STEP - 1) // STEP
    if a_row == 1 and a_col != 1:
        _columns_to_words(isa, a, a_col, m, depth, spare, out)
        return
    for i in range((m + BLOCK_ROWS - 1) // BLOCK_ROWS * BLOCK_ROWS):
        row, place = at(a, i * a_row), at(out, i // BLOCK_ROWS * steps * BLOCK_WORDS + i % BLOCK_ROWS * (STEP // 2))
        own = depth if i < m else np.int64(0)
        if a_col == 1:
            _row_of_words(isa, row, own, place)
        else:
            for k in range(own):
                put(spare, k, get(row, k * a_col))
            _row_of_words(isa, spare, own, place)
        if i >= m:
            for k in range(0, steps * STEP, 2 * lanes(a)):
                store(place, k // STEP * BLOCK_WORDS + k % STEP // 2, zeros(a))


@inner
def words_of_panel(depth):
    """Return the number of words from one panel of a packed matrix of `depth` rows to the next."""
    return (depth + STEP - 1) // STEP * (STEP // 2) * PANEL_COLUMNS


@inner
def pack_panels(isa, b, b_row, n, depth, out):
    """Pack B (depth, n), panel after panel."""
    width, stride = lanes(b), words_of_panel(depth)
    for p in range((depth + STEP - 1) // STEP * (STEP // 2)):
        k = 2 * p
        for j in range(0, (n + PANEL_COLUMNS - 1) // PANEL_COLUMNS * PANEL_COLUMNS, width):
            x = load_first(b, k * b_row + j, n - j if k < depth else 0)
            y = load_first(b, (k + 1) * b_row + j, n - j if k + 1 < depth else 0)
            place = j // PANEL_COLUMNS * stride + p * PANEL_COLUMNS + j % PANEL_COLUMNS
            store(out, place, words_across(x, y, isa))


def packed_words(rows: int, columns: int) -> int:
    """Return the number of words of a packed matrix; its packed transpose has the same number."""
    return math.ceil(rows / STEP) * math.ceil(columns / STEP) * int(STEP * STEP // 2)


@inner
def pack_band(isa, matrix, first, rows, columns, turned, words, words_of_transpose):
    """Pack a band of a matrix, i.e. at most STEP rows from `first` on, and the same part of the transpose. To pack the
    whole matrix and its transpose, call this function for every band.

    matrix: pointer to the first element of the whole matrix. turned: memory for a square of words.
    """
    band, width = at(matrix, first * columns), lanes(matrix)
    left, stride = min(rows - first, STEP), words_of_panel(rows)
    step = at(words, first // 2 * PANEL_COLUMNS)
    for p in range(STEP // 2):
        k = 2 * p
        for j in range(0, (columns + PANEL_COLUMNS - 1) // PANEL_COLUMNS * PANEL_COLUMNS, width):
            x = load_first(band, k * columns + j, columns - j if k < left else 0)
            y = load_first(band, (k + 1) * columns + j, columns - j if k + 1 < left else 0)
            store(step, j // PANEL_COLUMNS * stride + p * PANEL_COLUMNS + j % PANEL_COLUMNS, words_across(x, y, isa))
    panel = at(words_of_transpose, first // PANEL_COLUMNS * words_of_panel(columns))
    _panel_of_transpose(isa, band, columns, left, columns, turned, panel)


@inner
def _panel_of_transpose(isa, rows, row, m, n, turned, out):
    """Pack the panel whose columns are m rows of n elements; m is at most PANEL_COLUMNS."""
    width = lanes(rows)
    for j in range(0, PANEL_COLUMNS, width):
        for k in range(0, (n + STEP - 1) // STEP * STEP, 2 * width):
            for i in range(width):
                own, count = at(rows, (j + i) * row), n if j + i < m else np.int64(0)
                words = words_along(load_first(own, k, count - k), load_first(own, k + width, count - k - width), isa)
                store(turned, i * width, words)
            transpose_block(turned, width, at(out, k // 2 * PANEL_COLUMNS + j), PANEL_COLUMNS, False)


@inner
def pack_transpose(isa, matrix, row, m, n, turned, words):
    """Pack the transpose of m rows of n elements, panel after panel. turned: memory for a square of words."""
    for first in range(0, m, PANEL_COLUMNS):
        panel = at(words, first // PANEL_COLUMNS * words_of_panel(n))
        _panel_of_transpose(isa, at(matrix, first * row), row, min(m - first, PANEL_COLUMNS), n, turned, panel)
