"""Sines and cosines of several coordinates: a block of channels for each axis of a grid."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastpe.encoding import Spec
from fastpe.encodings._gather import Term, fill_terms
from fastpe.encodings._grid import chosen_sides
from fastpe.encodings._sinusoid import fill_sinusoid

Array = np.ndarray[Any, Any]


class Axis(NamedTuple):
    """One axis: its values, (..., cells), or (side,) and which of them each cell has, in `rows` (cells,)."""

    values: Array
    rows: Array | None


def axes_of(spec: Spec, grid: tuple[int, ...] | None, axes: int, *, extra: int = 0) -> list[Axis]:
    """The axes of given positions, or of the tokens' raster, which has few values on each; `start` is added."""
    if spec.positions is not None:
        points = spec.points()[..., extra:, :]
        return [Axis(points[..., axis], None) for axis in range(axes)]
    sides = chosen_sides(spec, grid, axes, extra=extra)
    rows = np.indices(sides, np.int32).reshape(axes, -1)
    return [Axis(np.arange(side) + spec.start, rows[axis]) for axis, side in enumerate(sides)]


def fill_axes(table: Array, axes: Sequence[Axis], omega: Array, width: int, *, layout: str, scale: float) -> None:
    """Fill a table (..., cells, .) with blocks of `width` channels, one for each axis, then zeros.

    A raster's blocks are computed once for each side, not for each cell.
    """
    used = width * len(axes)
    terms = []
    for number, (values, rows) in enumerate(axes):
        target = table[..., number * width : (number + 1) * width]
        if rows is not None:
            target = np.empty((values.size, width), table.dtype)
            terms.append(Term(target, rows, number * width))
        fill_sinusoid(
            target, np.ascontiguousarray(values, np.float64).reshape(-1).__getitem__, omega, layout=layout, scale=scale
        )
    if not terms:
        table[..., used:] = 0.0
        return
    if left := table.shape[-1] - used:
        terms.append(Term(np.zeros((1, left), table.dtype), np.zeros_like(terms[0].rows), used))
    fill_terms(table, terms)
