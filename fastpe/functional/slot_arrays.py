"""The slots of a score as the kernels of attention take them, for a call of `fastpe.attention` and for the model."""

import math
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import maximum_filter1d, minimum_filter1d

from fastpe.functional.layouts import contiguous
from fastpe.functional.visibility import Positions
from fastpe.kernels.attention import expand_relative_bias as unfolding
from fastpe.kernels.attention.contextual_positions import RUNNING_COUNT
from fastpe.kernels.attention.inputs import COLUMNS, COUNTS, GIVEN, SLOTS, Inputs, Slots
from fastpe.kernels.attention.key_query_offsets import Columns
from fastpe.kernels.attention.tile import TILE_QUERIES
from fastpe.kernels.rows.dropout import NO_DROPOUT, Dropout

Array = np.ndarray[Any, Any]

_MOST_GROWTH = 0.9  # of the exponent that the dtype has room for, by which growth may change within a block of queries
_NUMBERS = {name: number for number, name in enumerate(SLOTS)}
_TABLE = len(SLOTS), int(COLUMNS)
_COLUMNS = ("key_offset", "key_slope", "query_slope")
_TERMS = [name for name in SLOTS if name not in ("bias", "mask", *_COLUMNS)]
_HEADED = ("gain", "bias", "values", "key_bias", *_COLUMNS)  # with an axis of heads before their last


class Arrays(NamedTuple):
    """All slots of a call."""

    bias: Array
    mask: Array
    slots: Slots | None
    table: Array
    columns: Columns | None  # without bases and tails


def slot_arrays(
    given: Mapping[str, Array], wanted: Collection[str], positions: Positions, dtype: Any, has_terms: bool
) -> Arrays:
    """The slots as kernels take them, and the table of what is given, what is wanted, strides and rows.

    Where nothing but a bias, a mask and columns is given there are no others, and where there is no column no columns.

    Parameters
    ----------
    given : dict of str to array
        Slots with a leading axis, of samples or of layers, that may be 1.
    wanted : collection of str
        The slots whose gradients are wanted.
    positions : Positions
        Where queries and keys stand.
    has_terms : bool
        Whether passes over scores are made for something else than a slot.
    """
    table, nothing = np.zeros(_TABLE, np.int64), np.zeros(1, dtype)
    if not (given or has_terms):
        return Arrays(nothing, nothing, None, table, None)
    arrays = dict.fromkeys(SLOTS, nothing)
    for name, array in given.items():
        number = _NUMBERS.get(name)
        if number is None or array is None:
            continue
        rows = array.shape[1 if name in ("index", "growth") else 2] if array.ndim > 2 else 0
        if name in ("gain", "bias"):
            array = expand_relative_bias(array, positions)
        elif name in ("index", "scores"):
            array = cells_of(array, positions)
        elif name == "growth":
            rows = array.shape[-1]
        elif name == "mask":
            rows = array.shape[-1] if array.shape[-2] > 1 else 0
        heads = array.ndim > 3 or name in _HEADED
        per_head = math.prod(array.shape[2:]) if heads else 0
        table[number] = (
            1, name in wanted, math.prod(array.shape[1:]) if array.shape[0] > 1 else 0,
            per_head if heads and array.shape[1] > 1 else 0,
            array.shape[-1] if name == "values" else rows,
        )  # fmt: skip
        arrays[name] = contiguous(array, np.int32 if name == "index" else array.dtype).reshape(-1)
    indices, bias, mask = (arrays.pop(name) for name in ("index", "bias", "mask"))
    key_offset, key_slope, query_slope = (arrays.pop(name) for name in _COLUMNS)
    columns = None
    if any(given.get(name) is not None for name in _COLUMNS):
        wide = np.zeros(1)
        key_offset = key_offset if given.get("key_offset") is not None else wide
        columns = Columns(key_offset, key_slope, query_slope, bases=wide, tails=wide)
    if not has_terms and all(given.get(name) is None for name in _TERMS):
        return Arrays(bias, mask, None, table, columns)
    indices = indices if given.get("index") is not None else np.zeros(1, np.int32)
    growth = given.get("growth")
    if growth is None:
        growth_q = growth_k = np.zeros(1)
    else:
        table[SLOTS.index("growth"), 2] = growth.shape[0] > 1
        check_growth(growth, dtype)
        parts = positions.of_queries(growth, -2), positions.of_keys(growth, -2)
        if positions.starts is not None and len(growth) == 1:  # one stride serves queries and keys
            table[SLOTS.index("growth"), 2] = 1
            parts = parts[0], np.broadcast_to(parts[1], (len(parts[0]), *parts[1].shape[1:]))
        growth_q, growth_k = (contiguous(part, np.float64).reshape(-1) for part in parts)
    del arrays["growth"]
    slots = Slots(**arrays, indices=indices, growth_q=growth_q, growth_k=growth_k, running_counts=nothing)
    return Arrays(bias, mask, slots, table, columns)


def all_or_none(
    slots: Slots | None, columns: Columns | None, dropout: Dropout | None, dtype: Any
) -> tuple[Slots | None, Columns | None, Dropout | None]:
    """What kernels are given for these: where a call has any of them, for the others something that is not read.

    Kernels are compiled for all of them, or for none (see `records.terms_of`).
    """
    if slots is None and columns is None and dropout is None:
        return None, None, None
    return slots or no_slots(np.dtype(dtype)), columns or _no_columns(np.dtype(dtype)), dropout or NO_DROPOUT


@lru_cache
def no_slots(dtype: np.dtype[Any]) -> Slots:
    """What is given for slots that nobody reads."""
    nothing, wide = np.zeros(1, dtype), np.zeros(1)
    own = dict.fromkeys(Slots._fields, nothing) | {"indices": np.zeros(1, np.int32)}
    return Slots(**own | {"growth_q": wide, "growth_k": wide})


@lru_cache
def _no_columns(dtype: np.dtype[Any]) -> Columns:
    nothing, wide = np.zeros(1, dtype), np.zeros(1)
    return Columns(wide, nothing, nothing, bases=wide, tails=wide)


def with_running_counts(made: Arrays, b: int, h: int, n: int) -> Slots | None:
    """The slots of a call, with a tally for each query where keys are counted."""
    if made.slots is None or not made.table[COUNTS, GIVEN]:
        return made.slots
    return made.slots._replace(running_counts=np.zeros(b * h * n * int(RUNNING_COUNT), made.slots.counts.dtype))


def for_gradients(inputs: Inputs) -> Inputs:
    """What one backward pass takes, which counts the tallies down."""
    slots = inputs.slots
    return (
        inputs if slots is None else inputs._replace(slots=slots._replace(running_counts=slots.running_counts.copy()))
    )


def check_growth(growth: Array, dtype: Any) -> None:
    """Raise ValueError where factors would leave the dtype; a block of queries takes them from its first one on."""
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
    """Of an array (B or 1, ..., N, M), or over all positions twice, what cells of queries and keys read."""
    if array.shape[-2:] == (positions.n, positions.m):
        return array
    return positions.of_keys(positions.of_queries(array, -2), -1)


def cells_back(cells: Array, positions: Positions, sizes: tuple[int, ...]) -> Array:
    """The adjoint of `cells_of`, but for samples that share an array."""
    if cells.shape[-2:] == sizes:
        return cells
    return positions.queries_back(positions.keys_back(cells, -1, sizes[1]), -2, sizes[0])


def expand_relative_bias(array: Array, positions: Positions) -> Array:
    """An array over clipped offsets (B or 1, ..., 2K+1) with an entry for each j - i from -(N - 1) to M - 1."""
    if positions.starts is None and positions.n == positions.m and array.shape[-1] == 2 * positions.n - 1:
        return array
    array, first, count = contiguous(array, array.dtype), positions.first, array.shape[-1]
    shape = len(array) if len(first) == 1 else len(first), *array.shape[1:-1], positions.n + positions.m - 1
    unfolded = np.empty(shape, array.dtype)
    flat, heads = array.reshape(-1), math.prod(array.shape[1:-1])
    unfolding.expand_relative_bias(flat, heads, count, first, positions.n, positions.m, unfolded.reshape(-1))
    return unfolded


def _offset_rows(positions: Positions, count: int) -> Array:
    """The row that each offset reads in an array of `count` rows, (B or 1, N + M - 1)."""
    reach = count // 2
    return np.clip(positions.offsets_met(), -reach, reach) + reach


@lru_cache(maxsize=8)
def _first_of_rows(n: int, m: int, count: int) -> tuple[Array, Array]:
    """The rows that offsets read, of samples that all begin alike, and the first offset that reads each."""
    return _first_of_equals(_offset_rows(Positions(n, m), count)[0])


def _first_of_equals(rows: Array) -> tuple[Array, Array]:
    """Of rows of which equal ones stand side by side: each once, and where it first stands."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(rows)) + 1])
    return rows[edges], edges


def sum_by_offset(unfolded: Array, positions: Positions, count: int) -> Array:
    """The adjoint of `expand_relative_bias`, but for samples that share an array: (B, ..., 2K+1)."""
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
