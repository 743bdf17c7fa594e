"""Keys and values as packed bfloat16 operands (`products.bfloat16.pack`), shared by all blocks of queries, in the
forward pass.

For each key block of TILE_KEYS keys, the transposed keys and the values are packed, each as operand B of products. The
packed operands take as much memory as keys and values in bfloat16, for any number of queries.
"""

from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.attention.tile import TILE_KEYS
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.products.bfloat16.isa import named, rounding
from fastpe.kernels.products.bfloat16.pack import STEP, pack_panels, packed_words
from fastpe.kernels.products.gemm import transpose_operand
from fastpe.kernels.simd import aligned_empty, at, part, pointer, row

Array = np.ndarray[Any, Any]


class Panels(NamedTuple):
    """The packed operands (panels) of keys and of values, with a row for each key block of each key head."""

    keys: Array
    values: Array


class HeadPanels(NamedTuple):
    """Pointers to the panels of one key head, and the number of elements between key blocks."""

    keys: int
    values: int
    keys_of_block: int
    values_of_block: int


def panels_for(key_blocks: int, width: int, v_width: int) -> Panels:
    """Return memory for the packed operands of this many key blocks, over all key heads."""
    tile = int(TILE_KEYS)
    return Panels(
        aligned_empty((key_blocks, packed_words(width, tile)), np.float32),
        aligned_empty((key_blocks, packed_words(tile, v_width)), np.float32),
    )


@inner
def blocks_of_panels(words):
    """Return the number of key blocks, of all key heads, that are packed in advance."""
    return np.int64(0) if words is None else np.int64(words.keys.shape[0])


@inner
def pack_key_block(key_block, words, x, memory, isa, case):
    """Pack one key block. key_block: its number among the key blocks of all key heads. x: `Inputs`."""
    head, j0 = key_block // case.key_blocks, key_block % case.key_blocks * TILE_KEYS
    b, kh, n = head // case.key_heads, head % case.key_heads, min(TILE_KEYS, case.keys - j0)
    keys = at(pointer(x.kr), b * case.k_batch + kh * case.k_head + j0 * case.kr_row)
    values = at(pointer(x.v), b * case.v_batch + kh * case.v_head + j0 * case.v_row)
    transpose_operand(keys, case.kr_row, rounding(row(words.keys, key_block), memory, isa), TILE_KEYS, n, case.width)
    pack_panels(named(isa), values, case.v_row, case.v_width, n, row(words.values, key_block))


@inner
def panels_of_head(words, b, kh, memory, isa, case):
    """Return the panels of one key head, or None if nothing is packed."""
    if words is None:
        return None
    key_blocks, first = case.key_blocks, (b * case.key_heads + kh) * case.key_blocks
    keys, values = np.int64(words.keys.shape[1]), np.int64(words.values.shape[1])
    return HeadPanels(
        part(rounding(pointer(words.keys), memory, isa), first * keys, key_blocks * keys),
        part(rounding(pointer(words.values), memory, isa), first * values, key_blocks * values), keys, values,
    )  # fmt: skip


@inner
def is_packed(words):
    return words is not None


@inner
def keys_of_tile(words, tile, otherwise):
    """Return the tile's transposed keys in packed form, or `otherwise` if no keys are packed."""
    if words is None:
        return otherwise
    return at(words.keys, tile.j0 // TILE_KEYS * words.keys_of_block)


@inner
def packs_values(tile, case):
    """Whether the tile's values can be read from the packed panels.

    A product reads whole steps of STEP packed keys. If a tile ends before its key block and within a step, the rest of
    that step holds values that no query of the tile sees, which may be NaN.
    """
    return tile.n == _keys_of(tile, case) or tile.n % STEP == 0


@inner
def values_of_tile(words, tile, case):
    """Return the tile's values in packed form, as operand B of products, and their row stride."""
    return at(words.values, tile.j0 // TILE_KEYS * words.values_of_block), -_keys_of(tile, case)


@inner
def _keys_of(tile, case):
    return min(TILE_KEYS, case.keys - tile.j0)
