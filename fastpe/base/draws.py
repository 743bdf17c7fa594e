"""Arrays of random numbers for tasks, drawn one after the other from separate parts of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fastpe.base.random import Shape, Stream

Array = np.ndarray[Any, Any]

_ROUNDS = 1000


class Draws:
    """The random numbers of a task: every call returns new numbers, which depend on the stream and the number of calls.

    Each call has a separate part of the stream, so its numbers do not depend on how many numbers earlier calls drew. If
    the first axis is that of sequences, the first ten of twenty sequences are the same as in a draw of ten sequences.

    Parameters
    ----------
    stream : Stream
        The source of the random numbers.
    dtype : float32 or float64
        Dtype to which normal numbers are rounded. A model that reads its inputs in this dtype then reads exactly the
        numbers from which the targets are computed. The arrays themselves are float64.

    Examples
    --------
    >>> draws = Draws(Stream(0, "train"))
    >>> draws.integers(10, (2, 4)).tolist(), draws.integers(10, (2, 4)).tolist()
    ([[2, 8, 4, 3], [1, 0, 9, 1]], [[4, 2, 5, 7], [1, 1, 6, 2]])
    """

    def __init__(self, stream: Stream, dtype: DTypeLike = np.float64) -> None:
        self._stream, self._dtype = stream, np.dtype(dtype)
        self._calls = 0

    def _next(self) -> Stream:
        """Return the stream of the next call; the first call uses the given stream itself."""
        number, self._calls = self._calls, self._calls + 1
        if not number:
            return self._stream
        return Stream(self._stream.seed, f"{self._stream.stream}#{number}", self._stream.step)

    def normal(self, shape: Shape) -> Array:
        """Return standard normal numbers, rounded to the dtype."""
        return self._next().normal(shape).astype(self._dtype).astype(np.float64)

    def uniform(self, shape: Shape) -> Array:
        """Return numbers uniform in (0, 1), float64."""
        return self._next().uniform(shape)

    def integers(self, n: int | Array, shape: Shape) -> Array:
        """Return integers from 0 to n - 1, int64; n may be an array that broadcasts to the shape."""
        return (self.uniform(shape) * n).astype(np.int64)

    def orders(self, count: int, n: int) -> Array:
        """Return random permutations of 0 .. n - 1, (count, n)."""
        return np.argsort(self.uniform((count, n)), axis=1, kind="stable")

    def subsets(self, n: int, k: int, count: int, weights: Array | None = None) -> Array:
        """Return k different integers from 0 to n - 1, k <= n, in random order, (count, k).

        With `weights` (n,), the integers are drawn one after the other, each time with probabilities proportional to
        the weights of the integers that are left. This is the order of n exponential random numbers whose rates are the
        weights.

        >>> Draws(Stream(0, "test")).subsets(100, 3, count=2).tolist()
        [[32, 89, 11], [76, 98, 56]]
        """
        if weights is not None:
            return np.argsort(-np.log(self.uniform((count, n))) / weights, axis=1, kind="stable")[:, :k]
        if n <= 8 * k:
            return self.orders(count, n)[:, :k]
        tried = 4 * k + 16
        drawn = self.until(lambda own: own.integers(n, (count, tried)), lambda rows: _first(rows).sum(axis=1) >= k)
        first = _first(drawn)
        return drawn[first & (np.cumsum(first, axis=1) <= k)].reshape(count, k)

    def until(self, make: Callable[[Draws], Array], accepted: Callable[[Array], Array]) -> Array:
        """Return random rows that are all accepted: rows that are not accepted are replaced by new ones.

        Parameters
        ----------
        make : callable
            ``make(draws)`` returns random rows, (count, ...).
        accepted : callable
            ``accepted(rows)`` returns whether each row is accepted, (count,) bool.

        Examples
        --------
        >>> draws = Draws(Stream(0, "train"))
        >>> rows = draws.until(lambda draws: draws.integers(2, (5, 3)), lambda rows: rows.any(axis=1))
        >>> rows.any(axis=1).tolist()
        [True, True, True, True, True]
        """
        number, self._calls = self._calls, self._calls + 1
        rows, missing = None, np.ones(0, bool)
        for turn in range(_ROUNDS):
            name = f"{self._stream.stream}#{number}.{turn}"
            fresh = make(Draws(Stream(self._stream.seed, name, self._stream.step), self._dtype))
            good = np.asarray(accepted(fresh))
            if rows is None:
                rows, missing = fresh, ~good
            else:
                better = missing & good
                rows[better] = fresh[better]
                missing &= ~good
            if not missing.any():
                return rows
        raise ValueError(f"some sequences were not accepted in any of {_ROUNDS} draws")


def _first(rows: Array) -> Array:
    """Return whether each entry is the first entry of its row with that value."""
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    new = np.ones(rows.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    found = np.empty_like(new)
    np.put_along_axis(found, order, new, axis=1)
    return found
