"""The layout of a worker's scratch memory."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.attention.inputs import PLACES, Case
from fastpe.kernels.attention.slots import (
    COUNT,
    COUNTS,
    GIVEN,
    GROWTH,
    KEY_BIAS,
    REL_GAIN,
    REL_KEY,
    REL_QUERY,
    REL_VALUE,
    ROW_COUNT,
    ROWS,
    VALUES,
    WANTED,
    slot_number,
)
from fastpe.kernels.attention.tile import BAND, FEW, PACKED, SUBTILE, TILE_KEYS, TILE_QUERIES
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import at, region

_PAIRS = 16  # smallest number of rows of packed keys or values: channels are packed in pairs, 32 channels at a time


class PathLayout(NamedTuple):
    """Offsets of the regions for reflections (`path`), in the order of `PathScratch`."""

    x: int
    along: int
    steps: int
    content: int
    contents: int
    v_columns: int
    back: int
    y: int
    x_rows: int
    y_rows: int
    step_rows: int
    pairs: int
    products: int


class Layout(NamedTuple):
    """Offsets of regions in elements (see `simd.pointers`)."""

    cells: int
    dcells: int
    raw: int
    slopes: int
    dropped: int
    band: int
    rows: int
    k_columns: int
    v_columns: int
    q_scaled: int
    k_scaled: int
    q_factors: int
    k_factors: int
    mixed: int
    dq_scaled: int
    dk_scaled: int
    stats: int
    gates: int
    places: int
    wholes: int
    count_range: int
    count_scores: int
    dcount_scores: int
    count_columns: int
    values: int
    path: PathLayout | None
    sums: int  # a key block's sums for gradients of slots
    size: int


def layout_for(case: Case, table: np.ndarray, *, backward: bool, reflected: bool = False) -> Layout:
    """Lay out a worker's scratch memory. reflected: whether there are reflections between key and query."""
    cursor = 0

    def take(count: Any) -> int:
        nonlocal cursor
        start = cursor
        cursor += -(-int(count) // 16) * 16
        return region(start, count)

    d, n, k, few = case.width, case.queries, int(TILE_KEYS), bool(case.queries <= FEW and not case.alone)
    rows = n if few else int(TILE_QUERIES)
    tile = rows * k
    dv = case.v_width
    longer = max(int(TILE_QUERIES), k)
    relative = bool(table[[REL_KEY, REL_QUERY, REL_VALUE], GIVEN].any())
    grown = bool(table[GROWTH, GIVEN])
    summed = few and bool(table[[KEY_BIAS, REL_QUERY], GIVEN].any())
    gained = bool(table[REL_GAIN, GIVEN])
    rows_of_queries = (rows * (grown or summed) + gained) * d
    scaled = backward and (grown or gained)
    channels = 2 * int(table[GROWTH, ROW_COUNT])
    counted, packed = bool(table[COUNTS, GIVEN]), int(PACKED)
    vectors = -(-int(table[COUNTS, ROW_COUNT]) // packed) * packed

    return Layout(
        cells=take(not case.kept and tile), dcells=take(backward * tile), raw=take(backward and case.keep_raw and tile),
        slopes=take(backward and case.keep_slopes and tile), dropped=take(backward and case.dropped and tile),
        band=take(longer * BAND if relative else longer), rows=take(relative and max(d, dv) * BAND),
        k_columns=take(not few and max(d, _PAIRS) * k), v_columns=take(backward * max(dv, _PAIRS) * k),
        q_scaled=take(rows_of_queries), k_scaled=take(grown and k * d),
        q_factors=take(rows * channels), k_factors=take(k * channels),
        mixed=take(rows * dv),
        dq_scaled=take(scaled and rows * d), dk_scaled=take(scaled and k * d),
        stats=take(2 * TILE_QUERIES),
        gates=take(counted and tile), places=take(counted and tile), wholes=take(counted and tile),
        count_range=take(counted and 2), count_scores=take(rows * vectors),
        dcount_scores=take(backward * rows * vectors), count_columns=take(not few and max(d, _PAIRS) * vectors),
        values=take(backward and table[VALUES, WANTED] and table[VALUES, ROW_COUNT]),
        path=_path_layout(case, take, backward=backward, few=few) if reflected else None,
        sums=take(backward and not case.alone and sum_places(case, table)[1]), size=cursor,
    )  # fmt: skip


def _path_layout(case: Case, take: Callable[[Any], int], *, backward: bool, few: bool) -> PathLayout:
    """Lay out the memory for reflections. The backward pass keeps x and the products of x with reflectors for every
    sub-tile, and the content of every tile."""
    d, lanes, sub = case.width, int(TILE_QUERIES), int(SUBTILE)
    if few and not backward:  # rows of x, and one step for each
        x, steps = take(int(FEW) * (d + 16)), take(int(FEW))
        return PathLayout(x, x, steps, *[x] * (len(PathLayout._fields) - 3))
    subtiles = -(-case.keys // sub)
    kept = subtiles if backward else 1
    return PathLayout(
        x=take(kept * d * lanes), along=take(kept * sub * lanes), steps=take(sub * lanes), content=take(sub * lanes),
        contents=take(backward * case.key_blocks * lanes * TILE_KEYS),
        v_columns=take(backward * case.key_blocks * max(case.v_width, _PAIRS) * TILE_KEYS),
        back=take(backward * sub * lanes), y=take(backward * d * lanes),
        x_rows=take((backward or bool(case.alone)) * d * lanes), y_rows=take(backward * d * lanes),
        step_rows=take(backward * sub * lanes), pairs=take(backward * sub * sub),
        products=take(case.alone * subtiles * 2 * sub * sub),
    )  # fmt: skip


def gradient_size(slot: str, table: np.ndarray, case: Case) -> int:
    """Return the number of elements of a slot's gradient for one head, in the form in which kernels sum it."""
    if ROWS[slot].gradient == "cells":
        return case.queries * case.keys
    return int(table[slot_number(slot), COUNT])


def _with_gradients(table: np.ndarray, kinds: tuple[str, ...]) -> list[str]:
    """Return the slots whose gradients are wanted, among the slots whose `Slot.gradient` is one of `kinds`."""
    return [slot for slot, row in ROWS.items() if row.gradient in kinds and table[slot_number(slot), WANTED]]


def sum_places(case: Case, table: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the layout of a key block's sums, in the form that `inputs.gradient_of` reads, and their total size."""
    places, end = np.zeros((len(ROWS), int(PLACES)), np.int64), 0
    for slot in _with_gradients(table, ("sum",)):
        size = gradient_size(slot, table, case)
        if ROWS[slot].layout == "offsets":  # the offsets of one key block
            size = case.queries + int(TILE_KEYS)
        places[slot_number(slot)] = end, 0, 0, size
        end += -(-size // 16) * 16
    return places, end


def gradient_places(case: Case, table: np.ndarray, parts: int = 1) -> tuple[np.ndarray, int]:
    """Return the layout of the gradients of slots, (B, H, ...) each, in one array, in the form that
    `inputs.gradient_of` reads. Also return the size of this array.

    parts: number of partial sums over queries and keys for every sample.
    """
    places, end = np.zeros((len(ROWS), int(PLACES)), np.int64), 0
    for slot in _with_gradients(table, ("sum", "cells")):
        size = gradient_size(slot, table, case)
        places[slot_number(slot)] = end, case.heads * size, size, size
        end += case.batch * (parts if ROWS[slot].gradient == "sum" else 1) * case.heads * size
    return places, end


class PathScratch(NamedTuple):
    """Pointers to the regions of `PathLayout`, see `path.content` and `path.backward`; L: TILE_QUERIES."""

    x: int  # (D, L), in the backward pass for each sub-tile; forward with few queries, rows
    along: int  # (SUBTILE, L), in the backward pass for each sub-tile
    steps: int  # (SUBTILE, L)
    content: int  # (SUBTILE, L), of one sub-tile; in the backward pass also the gradient of that content
    contents: int  # cells of every tile
    v_columns: int  # the values of every tile, transposed
    back: int  # (SUBTILE, L)
    y: int  # (D, L)
    x_rows: int  # (L, D); in the model also a sub-tile's reflectors, transposed
    y_rows: int  # (L, D)
    step_rows: int  # (L, SUBTILE)
    pairs: int  # (SUBTILE, SUBTILE)
    products: int  # in the model, as in `HeadPath`


class Scratch(NamedTuple):
    """Pointers to the regions of `Layout`, without gradients of slots."""

    cells: int  # the scores of a tile, then its weights
    dcells: int
    raw: int
    slopes: int  # derivative of the soft cap
    dropped: int  # in the backward pass, the weights of a tile without those that were dropped out
    band: int
    rows: int
    k_columns: int
    v_columns: int
    # queries times growth, or queries plus the vectors of terms of keys; with rel_gain, also memory for one row
    q_scaled: int
    k_scaled: int
    q_factors: int
    k_factors: int
    mixed: int
    dq_scaled: int
    dk_scaled: int
    stats: int
    gates: int  # of `contextual_positions`, like all up to `count_columns`
    places: int
    wholes: int
    count_range: int
    count_scores: int
    dcount_scores: int
    count_columns: int
    values: int  # a tile's sums for the gradient of `values`
    path: PathScratch | None


@inner
def scratch_of(workspace, layout, cells):
    """Return a worker's scratch memory. cells: the address of the tile's scores, which may be outside of
    the workspace.
    """
    return Scratch(
        cells, at(workspace, layout.dcells), at(workspace, layout.raw), at(workspace, layout.slopes),
        at(workspace, layout.dropped), at(workspace, layout.band), at(workspace, layout.rows),
        at(workspace, layout.k_columns), at(workspace, layout.v_columns), at(workspace, layout.q_scaled),
        at(workspace, layout.k_scaled), at(workspace, layout.q_factors), at(workspace, layout.k_factors),
        at(workspace, layout.mixed), at(workspace, layout.dq_scaled), at(workspace, layout.dk_scaled),
        at(workspace, layout.stats), at(workspace, layout.gates), at(workspace, layout.places),
        at(workspace, layout.wholes), at(workspace, layout.count_range), at(workspace, layout.count_scores),
        at(workspace, layout.dcount_scores), at(workspace, layout.count_columns), at(workspace, layout.values),
        _path_scratch(workspace, layout.path),
    )  # fmt: skip


@inner
def _path_scratch(workspace, layout):
    if layout is None:
        return None
    return PathScratch(
        at(workspace, layout.x), at(workspace, layout.along), at(workspace, layout.steps),
        at(workspace, layout.content), at(workspace, layout.contents), at(workspace, layout.v_columns),
        at(workspace, layout.back), at(workspace, layout.y), at(workspace, layout.x_rows),
        at(workspace, layout.y_rows), at(workspace, layout.step_rows), at(workspace, layout.pairs),
        at(workspace, layout.products),
    )  # fmt: skip


@inner
def at_block(scratch, i0, case):
    """Return the scratch memory for the block of queries from i0 on. If weights are kept, each block has separate
    cells.
    """
    moved = i0 * TILE_KEYS if case.kept else np.int64(0)
    return with_tile(scratch, at(scratch.cells, moved), scratch.v_columns)


@inner
def with_tile(scratch, cells, v_columns):
    """Return the scratch memory with other addresses of the scores and the transposed values."""
    return Scratch(
        cells, scratch.dcells, scratch.raw, scratch.slopes, scratch.dropped, scratch.band, scratch.rows,
        scratch.k_columns, v_columns, scratch.q_scaled, scratch.k_scaled, scratch.q_factors, scratch.k_factors,
        scratch.mixed, scratch.dq_scaled, scratch.dk_scaled, scratch.stats, scratch.gates, scratch.places,
        scratch.wholes, scratch.count_range, scratch.count_scores, scratch.dcount_scores, scratch.count_columns,
        scratch.values, scratch.path,
    )  # fmt: skip


@inner
def with_cells(scratch, cells, dcells, mixed, stats):
    """Return the scratch memory with other addresses of scores, their gradients, weighted values and `stats`. `dropped`
    starts at its second row, because `drop_cells` may write before a tile's first entry.
    """
    return Scratch(
        cells, dcells, scratch.raw, scratch.slopes, at(scratch.dropped, TILE_KEYS), scratch.band, scratch.rows,
        scratch.k_columns, scratch.v_columns, scratch.q_scaled, scratch.k_scaled, scratch.q_factors, scratch.k_factors,
        mixed, scratch.dq_scaled, scratch.dk_scaled, stats, scratch.gates, scratch.places, scratch.wholes,
        scratch.count_range, scratch.count_scores, scratch.dcount_scores, scratch.count_columns, scratch.values,
        scratch.path,
    )  # fmt: skip
