"""Slots of biases that are functions of the offset j - i, with and without given positions.

Without given positions the slot is `bias` (H, 2N-1), with one value for each offset. With given positions, the
difference of two positions is not a function of j - i, so the slot is `scores` (..., H, N, N), with a value for every
pair.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fastpe.encodings.slots import Spec

Array = np.ndarray[Any, Any]

_PIECE = 2**11  # offsets that are computed together, so that little memory is needed in addition to the slot
_BLOCK = 2**16  # pairs that are computed together


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A row over offsets, or a square matrix for every sample if positions are given."""
    if spec.positions is None:
        return {"bias": (spec.heads, 2 * spec.length - 1)}
    return {"scores": (*spec.batch, spec.heads, spec.length, spec.length)}


def blocks(spec: Spec, slots: Mapping[str, Array]) -> Iterator[tuple[Array, Array]]:
    """Yield some offsets, an array of any shape (...), and a view (H, ...) of their part of the slot or of its
    gradient.

    `start` cancels and is left out, so that offsets of integers are exact.
    """
    if spec.positions is None:
        for first in range(1 - spec.length, spec.length, _PIECE):
            last = min(first + _PIECE, spec.length)
            yield (
                np.arange(first, last, dtype=np.float64),
                slots["bias"][:, first + spec.length - 1 : last + spec.length - 1],
            )
        return
    rows = max(1, _BLOCK // spec.length)
    for sample in np.ndindex(*spec.batch):
        points = spec.positions[sample]
        for first in range(0, spec.length, rows):
            some = slice(first, first + rows)
            yield points - points[some, None], slots["scores"][(*sample, slice(None), some)]


def pairwise(spec: Spec) -> Array:
    """The offset of every query (axis -2) and key (axis -1), (..., N, N), for references."""
    points = np.arange(float(spec.length)) if spec.positions is None else spec.positions
    return points[..., None, :] - points[..., :, None]


def as_slots(spec: Spec, scores: Array) -> dict[str, Array]:
    """The slot for (..., H, N, N) values of all pairs; for a `bias` only the first column and the first row of each
    matrix are used."""
    if spec.positions is not None:
        return {"scores": scores}
    return {"bias": np.concatenate([scores[:, :0:-1, 0], scores[:, 0, :]], axis=1)}


def check_integers(spec: Spec, name: str) -> None:
    """Raise ValueError if a position is not an integer."""
    if spec.positions is not None and (spec.positions != np.floor(spec.positions)).any():
        wrong = spec.positions[spec.positions != np.floor(spec.positions)].flat[0]
        raise ValueError(f"{name!r} needs integer positions, but one is {wrong:g}")
