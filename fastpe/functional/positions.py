"""Where queries and keys stand, and which rows of an array over positions they read."""

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Positions:
    """Key j stands at position j; query i at `starts` + i, by default so that the last query stands at the last key.

    Arrays over positions have a row for each from 0 on; by default they have max(N, M) rows, of which queries and keys
    read the last ones.
    """

    n: int
    m: int
    starts: Array | None = None  # (B,)

    @property
    def first(self) -> Array:
        """The position of the first query, (B,) or (1,)."""
        return np.array([self.m - self.n]) if self.starts is None else self.starts

    def offsets(self) -> Array:
        """Position of the key less that of the query, of every cell: (B or 1, N, M)."""
        queries = self.first[:, None] + np.arange(self.n)
        return np.arange(self.m) - queries[..., None]

    def offsets_met(self) -> Array:
        """All offsets of key and query from j - i = -(N - 1) to M - 1, (B or 1, N + M - 1)."""
        return np.arange(1 - self.n, self.m) - self.first[:, None]

    def of_queries(self, x: Array, axis: int) -> Array:
        """What queries read along an axis of an array (B or 1, ...) over positions, counted from its end."""
        if self.starts is None:
            return _last(x, self.n, axis)
        found = np.empty_like(x, shape=(len(self.starts), *_last(x, self.n, axis).shape[1:]))
        for b, start in enumerate(self.starts.tolist()):
            found[b] = np.take(x[b % len(x)], range(start, start + self.n), axis)
        return found

    def of_keys(self, x: Array, axis: int) -> Array:
        """What keys read along an axis, counted from the array's end."""
        if self.starts is None:
            return _last(x, self.m, axis)
        return np.moveaxis(np.moveaxis(x, axis, 0)[: self.m], 0, axis)

    def queries_back(self, x: Array, axis: int, size: int) -> Array:
        """The adjoint of `of_queries`, but for samples that share an array: `size` rows, 0 where no query reads."""
        firsts = [size - self.n] * len(x) if self.starts is None else self.starts.tolist()
        return _all_placed(x, firsts, axis, size)

    def keys_back(self, x: Array, axis: int, size: int) -> Array:
        """The adjoint of `of_keys`."""
        first = size - self.m if self.starts is None else 0
        return _all_placed(x, [first] * len(x), axis, size)


def _last(x: Array, count: int, axis: int) -> Array:
    where = range(x.ndim)[axis]
    return x[(*[slice(None)] * where, slice(x.shape[axis] - count, None))]


def _all_placed(x: Array, firsts: list[int], axis: int, size: int) -> Array:
    """The samples of x, each as the rows from its first on of an array of zeros; axis: counted from the end."""
    shape = list(x.shape)
    shape[axis] = size
    whole = np.empty_like(x, shape=shape)
    for b, first in enumerate(firsts):
        whole[b] = _placed(x[b], first, axis, size)
    return whole


def _placed(x: Array, first: int, axis: int, size: int) -> Array:
    """x as the rows from `first` on of an array of zeros."""
    if x.shape[axis] == size:
        return x
    moved = np.moveaxis(x, axis, 0)
    whole = np.zeros((size, *moved.shape[1:]), x.dtype)
    whole[first : first + len(moved)] = moved
    return np.moveaxis(whole, 0, axis)
