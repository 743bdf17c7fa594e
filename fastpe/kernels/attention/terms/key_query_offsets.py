"""Terms of the score with one number per key or query, called *columns*, which a layer computes from its input.

    S_ij += key_offset_j + o (key_slope_j + query_slope_i),      o the offset of key and query

Key offsets (`key_offset`) may be sums over a whole sequence, but only their differences matter. They are float64. Each
tile subtracts a *base* from them: the largest key offset among the keys that its block of queries may see. So the key
offsets of the keys with the highest scores become small. Weights do not depend on the base; `lse` is smaller by the
base. A soft cap needs complete scores, so with a soft cap the base is 0.

The gradients of a key block's columns are written only by that block. The gradients of query_slope are sums over key
blocks; the blocks add to them in turn, as they do to the gradients of the queries."""

from typing import NamedTuple

import numpy as np

from fastpe.kernels.attention.inputs import first_offset, place
from fastpe.kernels.attention.slots import (
    GIVEN,
    KEY_OFFSET,
    KEY_SLOPE,
    QUERY_SLOPE,
    ROW_COUNT,
    has_slot,
    wants_gradient,
)
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES, add_scaled, clear
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import (
    at,
    counting,
    fma,
    get,
    keep_first,
    lanes,
    largest,
    load_first,
    maximum,
    part,
    pointer,
    put,
    scalar,
    splat,
    store_first,
    total,
    zeros,
)

COLUMN_SLOTS = ("key_offset", "key_slope", "query_slope")
"""Slots with one number per key or query, in the order of `Columns` and `ColumnGradients`."""


class Columns(NamedTuple):
    """The columns (see above) of a call, flattened. A column that is not given has a placeholder of the right type."""

    key_offset: np.ndarray  # float64
    key_slope: np.ndarray
    query_slope: np.ndarray
    bases: np.ndarray  # float64, one for each block of queries of each head, chosen by the forward pass
    # float64, (rows of key_offset, 2, key blocks): log sum exp (with a bias, the largest) of all key offsets up to each
    # key block, and from it on
    tails: np.ndarray


class HeadColumns(NamedTuple):
    """Pointers to the part of `Columns` that belongs to one head."""

    key_offset: int
    key_slope: int
    query_slope: int
    bases: int
    tails: int


class ColumnGradients(NamedTuple):
    """The gradients of the columns, (B, H, M or N) each, with placeholders for those that are not requested. For one
    head, the gradients for keys start at the first key of a key block.
    """

    dkey_offset: np.ndarray
    dkey_slope: np.ndarray
    dquery_slope: np.ndarray


@inner
def columns_of(columns, table, b, h, case):
    """Return the columns of one head, or None if kernels are compiled without code for columns (`inputs.terms_of`)."""
    if columns is None:
        return None
    blocks = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES
    own, sides = place(table, KEY_OFFSET, b, h), 2 * case.key_blocks * case.skip * table[KEY_OFFSET, GIVEN]
    return HeadColumns(
        part(pointer(columns.key_offset), own, table[KEY_OFFSET, ROW_COUNT]),
        part(pointer(columns.key_slope), place(table, KEY_SLOPE, b, h), table[KEY_SLOPE, ROW_COUNT]),
        part(pointer(columns.query_slope), place(table, QUERY_SLOPE, b, h), table[QUERY_SLOPE, ROW_COUNT]),
        part(pointer(columns.bases), (b * case.heads + h) * blocks, blocks),
        part(pointer(columns.tails), own // case.keys * sides, sides),
    )  # fmt: skip


@inner
def has_columns(table):
    """Whether any column is given."""
    return has_slot(table, KEY_OFFSET) or has_slot(table, KEY_SLOPE) or has_slot(table, QUERY_SLOPE)


@inner
def column_gradients(gradients, head, j0, keys, case):
    """Return the addresses of the gradients of one head. Those for keys are limited to the `keys` keys from j0 on."""
    if gradients is None:
        return None
    queries = case.queries
    return ColumnGradients(
        part(pointer(gradients.dkey_offset), head * case.keys + j0, keys),
        part(pointer(gradients.dkey_slope), head * case.keys + j0, keys),
        part(pointer(gradients.dquery_slope), head * queries, queries),
    )  # fmt: skip


@inner
def columns_from_key(columns, j0):
    """Return the gradients of one head, with the gradients for keys starting at key j0."""
    if columns is None:
        return None
    return ColumnGradients(at(columns.dkey_offset, j0), at(columns.dkey_slope, j0), columns.dquery_slope)


@inner
def choose_base(columns, table, i0, low, high, case):
    """Choose the base of the block of queries from i0 on. These queries see only the keys low .. high - 1."""
    if columns is None:
        return
    if not has_slot(table, KEY_OFFSET):
        return
    base = 0.0
    if high > low and not case.options.softcap > 0.0:
        lowest = scalar(columns.key_offset, -np.inf)
        best = splat(lowest)
        for j in range(low, high, lanes(columns.key_offset)):
            best = maximum(best, keep_first(load_first(columns.key_offset, j, high - j), high - j, lowest))
        base = largest(best)
    put(columns.bases, i0 // TILE_QUERIES, base)


@inner
def with_columns(columns, factor, head, tile, case, scratch):
    """Add the columns to the scores. Before, the scores are cells times `factor`; return the new factor
    of the cells.
    """
    if columns is None:
        return factor
    if not has_columns(head.table):
        return factor
    i0, m, j0, n = tile
    cells, offsets, width, factors = scratch.cells, scratch.band, lanes(scratch.cells), splat(factor)
    clear(offsets, n)
    if has_slot(head.table, KEY_OFFSET):
        base = get(columns.bases, i0 // TILE_QUERIES)
        for j in range(n):
            put(offsets, j, scalar(offsets, get(columns.key_offset, j0 + j) - base))
    for i in range(m):
        row = at(cells, i * TILE_KEYS)
        for j in range(0, n, width):
            s = fma(load_first(row, j, n - j), factors, load_first(offsets, j, n - j))
            store_first(row, j, s, n - j)
    if _has_slopes(head.table):
        _add_slopes(columns, head, tile, cells)
    return scalar(cells, 1.0)


@inner
def _has_slopes(table):
    return has_slot(table, KEY_SLOPE) or has_slot(table, QUERY_SLOPE)


@inner
def _offsets(cells, head, tile, i, j):
    """Return the offsets of the entries of a row from j on."""
    return counting(scalar(cells, first_offset(head, tile) - i + j))


@inner
def _add_slopes(columns, head, tile, cells):
    i0, m, j0, n = tile
    for i in range(m):
        row, own = at(cells, i * TILE_KEYS), zeros(cells)
        if has_slot(head.table, QUERY_SLOPE):
            own = splat(get(columns.query_slope, i0 + i))
        for j in range(0, n, lanes(cells)):
            slopes = own
            if has_slot(head.table, KEY_SLOPE):
                slopes = slopes + load_first(columns.key_slope, j0 + j, n - j)
            s = fma(_offsets(cells, head, tile, i, j), slopes, load_first(row, j, n - j))
            store_first(row, j, s, n - j)


@inner
def columns_backward(columns, grads, head, tile, scratch):
    """`dcells` holds the gradients of the scores. Add to the gradients of key_offset and key_slope, and leave the
    tile's part of the gradient of query_slope in `stats`.
    """
    if columns is None:
        return
    if not has_columns(head.table):
        return
    _, m, _, n = tile
    cells, sums, width = scratch.dcells, scratch.stats, lanes(scratch.dcells)
    if wants_gradient(head.table, KEY_OFFSET):
        for j in range(0, n, width):
            column = zeros(cells)
            for i in range(m):
                column = column + load_first(cells, i * TILE_KEYS + j, n - j)
            store_first(grads.dkey_offset, j, load_first(grads.dkey_offset, j, n - j) + column, n - j)
    if wants_gradient(head.table, KEY_SLOPE):
        for j in range(0, n, width):
            column = zeros(cells)
            for i in range(m):
                column = fma(_offsets(cells, head, tile, i, j), load_first(cells, i * TILE_KEYS + j, n - j), column)
            store_first(grads.dkey_slope, j, load_first(grads.dkey_slope, j, n - j) + column, n - j)
    clear(sums, TILE_QUERIES)
    if wants_gradient(head.table, QUERY_SLOPE):
        for i in range(m):
            row = zeros(cells)
            for j in range(0, n, width):
                row = fma(_offsets(cells, head, tile, i, j), load_first(cells, i * TILE_KEYS + j, n - j), row)
            put(sums, i, total(row))


@inner
def add_query_slopes(columns, grads, table, tile, scratch):
    """Add the sums that `columns_backward` left in `stats` to the gradient of query_slope. Call this only when it is
    the key block's turn.
    """
    if columns is None:
        return
    if wants_gradient(table, QUERY_SLOPE):
        add_scaled(at(grads.dquery_slope, tile.i0), scalar(scratch.stats, 1.0), scratch.stats, tile.m)


@inner
def tail_of_keys(columns, table, tile, number, ahead, case):
    """Return the term of the bound of scores that comes from the key offsets of the keys in a tile and of all keys
    beyond it: see the docstring of `kernels.attention`.
    """
    if columns is None:
        return 0.0
    if not has_slot(table, KEY_OFFSET):
        return 0.0
    return get(columns.tails, ahead * case.key_blocks + number) - get(columns.bases, tile.i0 // TILE_QUERIES)
