"""The positions of queries and keys, and which keys a query sees: checks of `query_start`, `spans` and `mask`.

A mask that shows every query one interval of keys, the same for all heads, is converted to spans, so that no N x M
array is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastpe.base import validation
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Positions:
    """The positions of queries and keys: key j is at position j, and query i at position `starts` + i.

    With `starts`, arrays over positions have a row for each position, starting at position 0. If `starts` is None, the
    last query has the position of the last key, and arrays over positions have max(N, M) rows: queries read the last N
    rows, keys the last M rows.
    """

    n: int
    m: int
    starts: Array | None = None  # (B,)

    @property
    def first(self) -> Array:
        """The position of the first query, (B,) or (1,) int."""
        return np.array([self.m - self.n]) if self.starts is None else self.starts

    def offsets(self) -> Array:
        """Return the position of the key minus the position of the query, for all pairs: (B or 1, N, M)."""
        queries = self.first[:, None] + np.arange(self.n)
        return np.arange(self.m) - queries[..., None]

    def offsets_met(self) -> Array:
        """For each j - i from -(N - 1) to M - 1, return the offset of key j and query i: (B or 1, N + M - 1)."""
        return np.arange(1 - self.n, self.m) - self.first[:, None]

    def of_queries(self, x: Array, axis: int) -> Array:
        """Return the entries of x (B or 1, ...) for the queries, along an axis over positions. `axis` is negative."""
        if self.starts is None:
            return _last(x, self.n, axis)
        found = np.empty_like(x, shape=(len(self.starts), *_last(x, self.n, axis).shape[1:]))
        for b, start in enumerate(self.starts.tolist()):
            found[b] = np.take(x[b % len(x)], range(start, start + self.n), axis)
        return found

    def of_keys(self, x: Array, axis: int) -> Array:
        """Return the entries of x (B or 1, ...) for the keys, along an axis over positions. `axis` is negative."""
        if self.starts is None:
            return _last(x, self.m, axis)
        return np.moveaxis(np.moveaxis(x, axis, 0)[: self.m], 0, axis)

    def queries_back(self, x: Array, axis: int, size: int) -> Array:
        """Return the gradient of the array passed to `of_queries`, from the gradient x of its result, without summing
        over samples. The result has `size` rows along the axis; rows that no query reads are 0.
        """
        firsts = [size - self.n] * len(x) if self.starts is None else self.starts.tolist()
        return _all_placed(x, firsts, axis, size)

    def keys_back(self, x: Array, axis: int, size: int) -> Array:
        """Return the gradient of the array passed to `of_keys`, in the same way as `queries_back`."""
        first = size - self.m if self.starts is None else 0
        return _all_placed(x, [first] * len(x), axis, size)


def _last(x: Array, count: int, axis: int) -> Array:
    where = range(x.ndim)[axis]
    return x[(*[slice(None)] * where, slice(x.shape[axis] - count, None))]


def _all_placed(x: Array, firsts: list[int], axis: int, size: int) -> Array:
    """Return zeros with `size` rows along a negative axis, in which each sample of x begins at its row in `firsts`."""
    shape = list(x.shape)
    shape[axis] = size
    whole = np.empty_like(x, shape=shape)
    for b, first in enumerate(firsts):
        whole[b] = _placed(x[b], first, axis, size)
    return whole


def _placed(x: Array, first: int, axis: int, size: int) -> Array:
    """Return an array with `size` rows along an axis: x from row `first` on, and zeros in all other rows."""
    if x.shape[axis] == size:
        return x
    moved = np.moveaxis(x, axis, 0)
    whole = np.zeros((size, *moved.shape[1:]), x.dtype)
    whole[first : first + len(moved)] = moved
    return np.moveaxis(whole, 0, axis)


@dataclass(frozen=True)
class Mask:
    """Numbers that are added to the scores after the soft cap, (B or 1, H or 1, N or 1, M); -inf hides a key."""

    added: Array
    hides_only: bool  # whether all added numbers are 0 or minus infinity

    @property
    def seen(self) -> Array:
        """An array of bool: whether each key is visible."""
        return np.asarray(self.added > -np.inf)

    def occupied(self, n: int) -> Array:
        """Return whether each tile has a visible key: (B or 1, H or 1, blocks of queries, blocks of keys)."""
        seen, blocks = self.seen, range(0, n, int(TILE_QUERIES))
        key_blocks = np.logical_or.reduceat(seen, range(0, seen.shape[-1], int(TILE_KEYS)), axis=-1)
        if seen.shape[-2] == 1:
            key_blocks = np.broadcast_to(key_blocks, (*key_blocks.shape[:-2], len(blocks), key_blocks.shape[-1]))
        else:
            key_blocks = np.logical_or.reduceat(key_blocks, blocks, axis=-2)
        return np.ascontiguousarray(key_blocks, np.int64)


def check_mask(value: Any, sizes: Mapping[str, int], batched: bool) -> tuple[Array, Array]:
    """Return the mask twice: as it was passed, and with all four axes. The second is bool, or floats below infinity."""
    given = validation.array("mask", value, "bool, or floats that are added to scores", "bfV")
    if given.dtype != bool and given.dtype.name not in ("float32", "float64", "float16", "bfloat16"):
        raise TypeError(f"mask must hold bool, or floats that are added to scores, not {given.dtype}")
    whole = tuple(sizes[axis] for axis in ("BHNM" if batched else "HNM"))
    padded = (1,) * (len(whole) - given.ndim) + given.shape
    if given.ndim > len(whole) or any(size not in (1, most) for size, most in zip(padded, whole, strict=True)):
        axes = "(B, H, N, M)" if batched else "(H, N, M)"
        raise ValueError(f"mask must have a shape that broadcasts to {axes} = {whole}, not {given.shape}")
    array = given if given.dtype in (bool, np.float32, np.float64) else given.astype(np.float32)
    if array.dtype != bool and array.size and not array.max() < np.inf:  # also true for NaN
        raise ValueError("mask must hold finite numbers or minus infinity, not infinity or NaN")
    return given, array.reshape((1,) * (4 - len(padded)) + padded)


NO_SPANS = np.zeros((1, 1, 2), np.int64)


class Visibility(NamedTuple):
    """The arrays that say which keys each query sees, contiguous as kernels need them."""

    lengths: Array  # (B, 2): of queries and keys
    starts: Array  # (B,) or (1,): the positions of first queries
    spans: Array  # (B or 1, N, 2); `NO_SPANS` if there are none


def as_spans(mask: Array, m: int) -> Array | None:
    """Return the interval of keys that each query sees, (B or 1, N or 1, 2); None if a row has gaps or heads differ.

    >>> as_spans(np.array([[[[True, True, False], [False, False, False]]]]), 3).tolist()
    [[[0, 2], [0, 0]]]
    """
    if mask.dtype != bool or mask.shape[1] != 1:
        return None
    rows = mask[:, 0]
    count = rows.sum(axis=-1) * (m if rows.shape[-1] == 1 else 1)
    if rows.shape[-1] == 1:
        return np.stack([np.zeros_like(count), count], axis=-1)
    first = rows.argmax(axis=-1)
    last = m - rows[..., ::-1].argmax(axis=-1)
    if not np.all((count == 0) | (last - first == count)):
        return None
    return np.stack([np.where(count, first, 0), np.where(count, last, 0)], axis=-1)


def added_mask(mask: Array, m: int, dtype: Any) -> Mask:
    """Return the mask as numbers to add to scores, with a column for each of the m keys."""
    if mask.dtype == bool:
        return Mask(np.broadcast_to(np.where(mask, 0.0, -np.inf).astype(dtype), (*mask.shape[:-1], m)), True)
    with np.errstate(over="ignore"):  # values below the range of float32 become minus infinity
        added = mask.astype(dtype)
    hides_only = bool(np.all((added == 0.0) | (added == -np.inf)))
    return Mask(np.broadcast_to(added, (*mask.shape[:-1], m)), hides_only)


def check_spans(value: Any, sizes: Mapping[str, int], batched: bool) -> Array:
    """Return the checked spans (B or 1, N, 2): the index of the first key that each query sees, and the index after the
    last key."""
    given = validation.integers("spans", value, 0, sizes["M"], clipped=True)
    array = given if given.ndim == 3 else given[None]
    fits = given.ndim in ((2, 3) if batched else (2,)) and array.shape[0] in (1, sizes["B"])
    if not fits or array.shape[1:] != (sizes["N"], 2):
        expected = f"(B or 1, N, 2), N = {sizes['N']}" if batched else f"(N, 2) = ({sizes['N']}, 2)"
        raise ValueError(f"spans must have the shape {expected}, not {given.shape}")
    return array


def check_starts(value: Any, sizes: Mapping[str, int], batched: bool) -> Array | None:
    """Return the checked position of every sample's first query, (B,), or None for the default."""
    if value is None:
        return None
    given = validation.integers("query_start", value, 0, validation.FARTHEST)
    if given.shape not in (((), (sizes["B"],)) if batched else ((),)):
        expected = f"be one integer or have the shape (B,) = ({sizes['B']},)" if batched else "be one integer"
        raise ValueError(f"query_start must {expected}, not {given.shape}")
    return np.array(np.broadcast_to(given, (sizes["B"],)))
