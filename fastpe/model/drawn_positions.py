"""Randomly drawn positions that all sequences of a call share: "random:L", "float:L" and "pose:L"."""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.random import Stream

Array = np.ndarray[Any, Any]


def drawn(way: str, most: int, length: int, stream: Stream, *, training: bool) -> Array:
    """Draw `length` ascending positions from 0 .. most - 1.

    Parameters
    ----------
    way : {"random", "float", "pose"}
        How they are drawn (see `fastpe.model.positions`).
    stream : Stream
        The random stream of this call.
    training : bool
        Whether it is a training step.
    """
    if way == "random":
        return stream.choice(most, length)
    if way == "float":
        return np.sort(stream.uniform(length)) * (most - 1)
    if not training:
        return np.arange(length)
    draws = Draws(stream)
    first = 1 + int(draws.integers((length + 1) // 2, (1,))[0])
    return with_gap(length, first, int(draws.integers(most - length + 1, (1,))[0]))


def with_gap(length: int, first: int, gap: int) -> Array:
    """Return `length` positions: 0 .. first - 1, and the others after a gap of `gap` unused positions.

    >>> with_gap(8, 4, 1).tolist()
    [0, 1, 2, 3, 5, 6, 7, 8]
    """
    places = np.arange(length)
    return places + gap * (places >= first)
