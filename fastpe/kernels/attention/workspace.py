"""A worker's scratch memory: where things lie in it."""

import math
from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.attention.inputs import (
    COUNTS,
    GIVEN,
    GROWTH,
    KEY_BIAS,
    OF_CELLS,
    PLACES,
    REL_GAIN,
    REL_KEY,
    REL_QUERY,
    REL_VALUE,
    ROWS,
    SLOTS,
    SUMMED,
    VALUES,
    WANTED,
    Case,
)
from fastpe.kernels.attention.tile import BAND, FEW, PACKED, TILE_KEYS, TILE_QUERIES
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import at, region

_PAIRS = 16  # rows of words at least where keys or values are packed: channels go in pairs, 32 at a time


class Layout(NamedTuple):
    """Offsets in elements, of regions (see `simd.pointers`)."""

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
    sums: int  # a key block's own, for gradients of slots
    size: int


def layout_for(case: Case, table: np.ndarray, *, backward: bool) -> Layout:
    """Lay out a worker's scratch memory."""
    cursor = 0

    def take(count: Any) -> int:
        nonlocal cursor
        start = cursor
        cursor += -(-int(count) // 16) * 16
        return region(start, count)

    d, n, k, few = case.width, case.queries, int(TILE_KEYS), case.queries <= FEW and not case.alone
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
    channels = 2 * int(table[GROWTH, ROWS])
    counted, packed = bool(table[COUNTS, GIVEN]), int(PACKED)
    vectors = -(-int(table[COUNTS, ROWS]) // packed) * packed

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
        values=take(backward and table[VALUES, WANTED] and table[VALUES, ROWS]),
        sums=take(backward and not case.alone and sum_places(case, table)[1]), size=cursor,
    )  # fmt: skip


def gradient_shape(slot: str, rows: int, case: Case) -> tuple[int, ...]:
    """That of the gradient of one head's slot, before it is folded; rows: as the table of slots has them."""
    if slot in ("gain", "bias"):
        return (case.queries + case.keys - 1,)
    if slot in OF_CELLS:
        return case.queries, case.keys
    if slot == "key_bias":
        return (case.width,)
    return (rows,) if slot == "values" else (rows, case.v_width if slot == "rel_value" else case.width)


def sum_places(case: Case, table: np.ndarray) -> tuple[np.ndarray, int]:
    """Where a key block's own sums lie, as `inputs.gradient_of` reads it, and their size."""
    places, end = np.zeros((len(SLOTS), int(PLACES)), np.int64), 0
    for number, slot in enumerate(SLOTS):
        if slot in SUMMED and table[number, WANTED]:
            size = math.prod(gradient_shape(slot, int(table[number, ROWS]), case))
            if slot in ("gain", "bias"):  # of the offsets that a key block meets
                size = case.queries + int(TILE_KEYS)
            places[number] = end, 0, 0, size
            end += -(-size // 16) * 16
    return places, end


def gradient_places(case: Case, table: np.ndarray, parts: int = 1) -> tuple[np.ndarray, int]:
    """Where the gradients of slots, (B, H, ...) each, lie in one array, as `inputs.gradient_of` reads it; its size.

    parts: how many there are of each sum over queries and keys, for every sample.
    """
    places, end = np.zeros((len(SLOTS), int(PLACES)), np.int64), 0
    for number, slot in enumerate(SLOTS):
        if slot in (*SUMMED, *OF_CELLS) and table[number, WANTED]:
            size = math.prod(gradient_shape(slot, int(table[number, ROWS]), case))
            places[number] = end, case.heads * size, size, size
            end += case.batch * (parts if slot in SUMMED else 1) * case.heads * size
    return places, end


class Scratch(NamedTuple):
    """Pointers to what `Layout` lays out, but for gradients of slots."""

    cells: int  # the scores of a tile, then its weights
    dcells: int
    raw: int
    slopes: int  # of the soft cap
    dropped: int  # the weights of a tile, backward, less those that were dropped out
    band: int
    rows: int
    k_columns: int
    v_columns: int
    q_scaled: int  # rows that grew, or to which vectors of keys' terms were added; after those that grew, room for one
    k_scaled: int
    q_factors: int
    k_factors: int
    mixed: int
    dq_scaled: int
    dk_scaled: int
    stats: int
    gates: int  # of `contextual_positions`, as all that follows
    places: int
    wholes: int
    count_range: int
    count_scores: int
    dcount_scores: int
    count_columns: int
    values: int  # a tile's own sums for the gradient of `values`


@inner
def scratch_of(workspace, layout, cells):
    """A worker's scratch memory; cells, where they lie elsewhere, are not those of the room."""
    return Scratch(
        cells, at(workspace, layout.dcells), at(workspace, layout.raw), at(workspace, layout.slopes), at(workspace,
        layout.dropped), at(workspace, layout.band), at(workspace, layout.rows), at(workspace, layout.k_columns),
        at(workspace, layout.v_columns), at(workspace, layout.q_scaled), at(workspace, layout.k_scaled), at(workspace,
        layout.q_factors), at(workspace, layout.k_factors), at(workspace, layout.mixed), at(workspace,
        layout.dq_scaled), at(workspace, layout.dk_scaled), at(workspace, layout.stats), at(workspace, layout.gates),
        at(workspace, layout.places), at(workspace, layout.wholes), at(workspace, layout.count_range), at(workspace,
        layout.count_scores), at(workspace, layout.dcount_scores), at(workspace, layout.count_columns), at(workspace,
        layout.values),
    )  # fmt: skip


@inner
def at_block(scratch, i0, case):
    """The scratch memory for the block of queries from i0 on: cells that are kept stand one block after the other."""
    moved = i0 * TILE_KEYS if case.kept else np.int64(0)
    return Scratch(
        at(scratch.cells, moved), scratch.dcells, scratch.raw, scratch.slopes, scratch.dropped, scratch.band,
        scratch.rows, scratch.k_columns, scratch.v_columns, scratch.q_scaled, scratch.k_scaled, scratch.q_factors,
        scratch.k_factors, scratch.mixed, scratch.dq_scaled, scratch.dk_scaled, scratch.stats, scratch.gates,
        scratch.places, scratch.wholes, scratch.count_range, scratch.count_scores, scratch.dcount_scores,
        scratch.count_columns, scratch.values,
    )  # fmt: skip


@inner
def with_cells(scratch, cells, dcells, mixed, stats):
    """The scratch memory with these in other places; `dropped` from its second row on, as `drop_cells` may write before
    a tile's first cell."""
    return Scratch(
        cells, dcells, scratch.raw, scratch.slopes, at(scratch.dropped, TILE_KEYS), scratch.band, scratch.rows,
        scratch.k_columns, scratch.v_columns, scratch.q_scaled, scratch.k_scaled, scratch.q_factors, scratch.k_factors,
        mixed, scratch.dq_scaled, scratch.dk_scaled, stats, scratch.gates, scratch.places, scratch.wholes,
        scratch.count_range, scratch.count_scores, scratch.dcount_scores, scratch.count_columns, scratch.values,
    )  # fmt: skip
