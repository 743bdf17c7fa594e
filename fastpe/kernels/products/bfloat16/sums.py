"""The sums of a 32 x 32 block of the product of packed operands, in AMX tiles or in vectors."""

from typing import NamedTuple

import numpy as np
from numba.extending import intrinsic

from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.compile.overload import overload_by_type
from fastpe.kernels.products.bfloat16.isa import AMX
from fastpe.kernels.products.bfloat16.pack import BLOCK_ROWS, BLOCK_WORDS, PANEL_COLUMNS
from fastpe.kernels.products.bfloat16.tiles import (
    begin_tiles,
    end_tiles,
    fetch_to_write,
    tile_clear,
    tile_keep,
    tile_load,
    tile_multiply_words,
    tile_products,
)
from fastpe.kernels.products.float_gemm import tile_store, tile_zeros
from fastpe.kernels.simd import REGISTER_BYTES, at, bring_near

BLOCK = np.int64(32)  # rows and columns of the sums that are computed at a time

# the size of a tile of sums in vector registers
TILE_ROWS = 8 if REGISTER_BYTES == 64 else 2
TILE_VECTORS = 128 // REGISTER_BYTES


class Ahead(NamedTuple):
    """What is prefetched while sums are computed: rows of 32 elements of the block of C that is written next, and rows
    of 32 words of the next panel of B. Each step of the depth prefetches some rows of both."""

    c: int  # pointer
    c_row: int
    c_count: int  # rows per step
    b: int  # pointer
    b_count: int


@inlined
def _bring(ahead, step):
    for i in range(step * ahead.c_count, (step + 1) * ahead.c_count):
        fetch_to_write(ahead.c, i * ahead.c_row)
        fetch_to_write(ahead.c, i * ahead.c_row + BLOCK_ROWS)
    for i in range(step * ahead.b_count, (step + 1) * ahead.b_count):
        bring_near(ahead.b, i * PANEL_COLUMNS)
        bring_near(ahead.b, i * PANEL_COLUMNS + BLOCK_ROWS)


# `first` and `last` are steps of the depth; consecutive blocks of 16 rows of A are `a_block` words apart.


@inner
def _sums_in_tiles(isa, a, a_block, b, first, last, rows, sums, row, ahead):
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
            _bring(ahead, step - first)
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
            _bring(ahead, step - first)
    tile_keep(0, sums, row)
    tile_keep(1, at(sums, BLOCK_ROWS), row)


@inner
def _sums_in_vectors(isa, a, a_block, b, first, last, rows, sums, row, ahead):
    for i in range(0, rows, TILE_ROWS):
        own = at(a, i // BLOCK_ROWS * a_block + i % BLOCK_ROWS * BLOCK_ROWS)
        tile = tile_zeros(sums, TILE_ROWS, TILE_VECTORS)
        for step in range(first, last):
            words, panel = at(own, step * BLOCK_WORDS), at(b, step * BLOCK_ROWS * PANEL_COLUMNS)
            for p in range(BLOCK_ROWS):
                tile = tile_multiply_words(tile, at(words, p), BLOCK_ROWS, at(panel, p * PANEL_COLUMNS), isa)
        tile_store(tile, at(sums, i * row), row, BLOCK)


@intrinsic
def sums_of_block(typingctx, isa, a, a_block, b, first, last, rows, sums, row, ahead):
    """Compute a block of 32 x 32 sums, or of 16 x 32 if `rows` is at most 16. Sum (i, j) is stored at
    sums[i * row + j]."""
    own = _sums_in_tiles if isa.isa == AMX.name else _sums_in_vectors
    return overload_by_type(typingctx, own, (isa, a, a_block, b, first, last, rows, sums, row, ahead))


@inner
def _nothing(isa):
    pass


@intrinsic
def begin(typingctx, isa):
    """Configure the AMX tiles before the first sums; do nothing for other instruction sets."""
    return overload_by_type(typingctx, _begin_tiles if isa.isa == AMX.name else _nothing, (isa,))


@intrinsic
def end(typingctx, isa):
    """Release the AMX tiles after the last sums; do nothing for other instruction sets."""
    return overload_by_type(typingctx, _end_tiles if isa.isa == AMX.name else _nothing, (isa,))


@inner
def _begin_tiles(isa):
    begin_tiles()


@inner
def _end_tiles(isa):
    end_tiles()
