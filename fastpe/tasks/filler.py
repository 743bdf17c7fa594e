"""Blocks of tokens at random places of a filler that repeats itself. Used by several tasks."""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws

Array = np.ndarray[Any, Any]

SYMBOLS = ".,;:"


def scattered(draws: Draws, blocks: Array, length: int, first: int) -> tuple[Array, Array]:
    """Return blocks (count, m, w) in this order among filler, (count, length), and where they begin, (count, m).

    The filler is the symbols `first`, `first` + 1, .. in turn, as many as `SYMBOLS` has. All ways to place the blocks
    are equally likely.

    >>> from fastpe.base.random import Stream
    >>> found, begins = scattered(Draws(Stream(0, "test")), np.array([[[7, 8]]]), 6, first=0)
    >>> found.tolist(), begins.tolist()
    ([[0, 1, 2, 3, 7, 8]], [[4]])
    """
    count, number, width = blocks.shape
    slots = np.sort(draws.subsets(length - number * (width - 1), number, count), axis=1)
    begins = slots + (width - 1) * np.arange(number)
    places = (begins[:, :, None] + np.arange(width)).reshape(count, -1)
    free = np.ones((count, length), np.int64)
    np.put_along_axis(free, places, 0, axis=1)
    found = first + (np.cumsum(free, axis=1) - 1) % len(SYMBOLS)
    np.put_along_axis(found, places, blocks.reshape(count, -1), axis=1)
    return found, begins
