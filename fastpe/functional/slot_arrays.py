"""Conversion of slots to the arrays that attention kernels take, for calls of `fastpe.attention` and for the model."""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import maximum_filter1d, minimum_filter1d

from fastpe.functional.layouts import address_of, contiguous
from fastpe.functional.visibility import Positions
from fastpe.kernels.attention import expand_relative_bias as unfolding
from fastpe.kernels.attention.inputs import Inputs
from fastpe.kernels.attention.slots import COLUMNS, COUNTS, GIVEN, ROWS, slot_number
from fastpe.kernels.attention.terms.contextual_positions import RUNNING_COUNT
from fastpe.kernels.attention.terms.key_query_offsets import COLUMN_SLOTS, Columns
from fastpe.kernels.attention.tile import TILE_QUERIES
from fastpe.kernels.rows.dropout import NO_DROPOUT, Dropout

Array = np.ndarray[Any, Any]

_MOST_GROWTH = 0.9  # largest change of growth within a block of queries, as a fraction of the dtype's largest exponent
_APART = {"bias", "mask", *COLUMN_SLOTS}  # slots that kernels take as separate arguments; see `Arrays.slots`
_TABLE = len(ROWS), int(COLUMNS)


class Arrays(NamedTuple):
    """All slots of a call, in the form that kernels take."""

    arrays: dict[str, Array]  # by name, flattened; the table holds their addresses, so they must stay alive with it
    shapes: dict[str, tuple[int, ...]]  # of the array of one head
    table: Array  # in the form of `kernels.attention.slots`
    bias: Array
    mask: Array
    columns: Columns | None  # `bases` and `tails` are not filled yet
    slots: int | None  # 1, or None if there are no slots but bias, mask and columns


def slot_arrays(
    given: Mapping[str, Array], wanted: Collection[str], positions: Positions, dtype: Any, has_terms: bool
) -> Arrays:
    """Convert slots to the form that kernels take, with a table of their sizes and addresses.

    The table also says whether each slot is given and whether its gradient is wanted.

    Parameters
    ----------
    given : dict of str to array
        Slots with a leading axis of samples or of layers, which may have size 1.
    wanted : collection of str
        The slots to compute gradients for.
    positions : Positions
        The positions of queries and keys.
    has_terms : bool
        Whether separate passes over the scores of a tile are needed even without slots.
    """
    table, nothing = np.zeros(_TABLE, np.int64), np.zeros(1, dtype)
    arrays: dict[str, Array] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, array in _as_read(given, positions, dtype).items():
        if ROWS[name].axes[0] not in ("H", "H1"):
            array = array[:, None]
        led, heads, *shape = array.shape
        size = math.prod(shape)
        flat = contiguous(array, np.int32 if name == "index" else array.dtype).reshape(-1)
        table[slot_number(name)] = (
            1, name in wanted, heads * size * (led > 1), size * (heads > 1), _rows(name, shape), size,
            address_of(flat), flat.size,
        )  # fmt: skip
        arrays[name], shapes[name] = flat, tuple(shape)
    columns = None
    if not arrays.keys().isdisjoint(COLUMN_SLOTS):
        wide = np.zeros(1)
        key_offset = arrays.get("key_offset", wide)
        slopes = (arrays.get(name, nothing) for name in COLUMN_SLOTS[1:])
        columns = Columns._make((key_offset, *slopes, wide, wide))
    has_terms |= not arrays.keys() <= _APART
    bias, mask = arrays.get("bias", nothing), arrays.get("mask", nothing)
    return Arrays(arrays, shapes, table, bias, mask, columns, 1 if has_terms else None)


def _as_read(given: Mapping[str, Array], positions: Positions, dtype: Any) -> dict[str, Array]:
    """Return the arrays that tiles read. Arrays over offsets are expanded; arrays over pairs of positions are cut to
    the queries and keys."""
    found = {}
    for name, array in given.items():
        layout = ROWS[name].layout if name in ROWS and array is not None else ""
        if layout == "offsets":
            found[name] = expand_relative_bias(array, positions)
        elif layout == "cells" and name != "mask":
            found[name] = cells_of(array, positions)
        elif name == "growth":
            check_growth(array, dtype)
            found["growth"] = positions.of_queries(array, -2).astype(np.float64, copy=False)
            found["growth_k"] = positions.of_keys(array, -2).astype(np.float64, copy=False)
        elif layout:
            found[name] = array
    return found


def _rows(name: str, shape: Sequence[int]) -> int:
    """Return the number of rows of one head's array, or the number of its entries if the array has one axis.

    Exceptions: for growth, return the number of pairs; for a mask, the stride of rows, 0 if all queries share one row.
    """
    if name in ("growth", "growth_k"):
        return shape[-1]
    if name == "mask":
        return shape[-1] if shape[-2] > 1 else 0
    return shape[0] if shape else 1


def all_or_none(
    slots: int | None, columns: Columns | None, dropout: Dropout | None, dtype: Any
) -> tuple[int | None, Columns | None, Dropout | None]:
    """Return the first three arguments. If at least one of them is not None, the others get placeholders.

    Kernels are compiled for all three, or for none (see `kernels.attention.inputs.terms_of`).
    """
    if slots is None and columns is None and dropout is None:
        return None, None, None
    return 1, columns or _no_columns(np.dtype(dtype)), dropout or NO_DROPOUT


@lru_cache
def _no_columns(dtype: np.dtype[Any]) -> Columns:
    nothing, wide = np.zeros(1, dtype), np.zeros(1)
    return Columns(wide, nothing, nothing, bases=wide, tails=wide)


def running_counts(made: Arrays, queries: int, dtype: Any) -> Array:
    """Return memory for the running counts of `queries` queries, or a placeholder if there are no `counts`."""
    return np.zeros(queries * int(RUNNING_COUNT) if made.table[COUNTS, GIVEN] else 1, dtype)


def for_gradients(inputs: Inputs) -> Inputs:
    """Return the inputs of one backward pass, with a copy of the running counts, because the pass overwrites them."""
    return inputs._replace(running_counts=inputs.running_counts.copy())


def check_growth(growth: Array, dtype: Any) -> None:
    """Raise ValueError if factors relative to the first query of a block could overflow or underflow the dtype."""
    span, most = min(int(TILE_QUERIES), growth.shape[1]), _MOST_GROWTH * float(np.log(np.finfo(dtype).max))
    if (growth.max(axis=1) - growth.min(axis=1)).max() <= most:
        return
    change = float((maximum_filter1d(growth, span, axis=1) - minimum_filter1d(growth, span, axis=1)).max())
    if change > most:
        raise ValueError(
            f"growth must change by at most {most:.0f} within {span} positions in {np.dtype(dtype)}, "
            f"not by {change:.3g}"
        )


def cells_of(array: Array, positions: Positions) -> Array:
    """Cut an array (B or 1, ..., L, L) over positions to the N queries and M keys. Return an array (B or 1, ..., N, M)
    unchanged."""
    if array.shape[-2:] == (positions.n, positions.m):
        return array
    return positions.of_keys(positions.of_queries(array, -2), -1)


def cells_back(cells: Array, positions: Positions, sizes: tuple[int, ...]) -> Array:
    """Return the gradient of the array passed to `cells_of`, from the gradient `cells` of its result. Gradients of
    samples that share an array are not summed.
    """
    if cells.shape[-2:] == sizes:
        return cells
    return positions.queries_back(positions.keys_back(cells, -1, sizes[1]), -2, sizes[0])


def expand_relative_bias(array: Array, positions: Positions) -> Array:
    """Expand an array over clipped offsets (B or 1, ..., 2K+1) to one entry for each j - i from -(N - 1) to M - 1."""
    if positions.starts is None and positions.n == positions.m and array.shape[-1] == 2 * positions.n - 1:
        return array
    array, first, count = contiguous(array, array.dtype), positions.first, array.shape[-1]
    shape = len(array) if len(first) == 1 else len(first), *array.shape[1:-1], positions.n + positions.m - 1
    unfolded = np.empty(shape, array.dtype)
    flat, heads = array.reshape(-1), math.prod(array.shape[1:-1])
    unfolding.expand_relative_bias(flat, heads, count, first, positions.n, positions.m, unfolded.reshape(-1))
    return unfolded


def _offset_rows(positions: Positions, count: int) -> Array:
    """For every offset, return the index of its row in an array of `count` rows: (B or 1, N + M - 1). Offsets beyond
    the array use its first or last row.
    """
    reach = count // 2
    return np.clip(positions.offsets_met(), -reach, reach) + reach


@lru_cache(maxsize=8)
def _first_of_rows(n: int, m: int, count: int) -> tuple[Array, Array]:
    """For default positions, return the rows of an array of `count` rows that any offset uses, each row once. Also
    return, for each of these rows, the index of the first offset that uses it.
    """
    return _first_of_equals(_offset_rows(Positions(n, m), count)[0])


def _first_of_equals(rows: Array) -> tuple[Array, Array]:
    """Return the distinct values of an array in which equal values are adjacent, and the first index of each value."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(rows)) + 1])
    return rows[edges], edges


def sum_by_offset(unfolded: Array, positions: Positions, count: int) -> Array:
    """Return the gradient of the array passed to `expand_relative_bias`, from the gradient of its result: (B, ...,
    2K+1). Gradients of samples that share an array are not summed.
    """
    if positions.starts is None and positions.n == positions.m and count == 2 * positions.n - 1:
        return unfolded
    folded = np.zeros((*unfolded.shape[:-1], count), unfolded.dtype)
    if positions.starts is None:
        met, edges = _first_of_rows(positions.n, positions.m, count)
        folded[..., met] = np.add.reduceat(unfolded, edges, axis=-1)
        return folded
    rows = _offset_rows(positions, count)
    for which, own in enumerate(rows):
        samples = slice(None) if len(rows) == 1 else slice(which, which + 1)
        met, edges = _first_of_equals(own)
        folded[samples][..., met] = np.add.reduceat(unfolded[samples], edges, axis=-1)
    return folded
