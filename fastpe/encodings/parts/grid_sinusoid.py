"""Sines and cosines of several coordinates: a block of channels for each axis of a grid."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastpe.encodings.parts.gather import Term, fill_terms, of_axis
from fastpe.encodings.parts.grids import along_axes, chosen_sides
from fastpe.encodings.parts.sinusoid import fill_sinusoid
from fastpe.encodings.slots import Spec

Array = np.ndarray[Any, Any]


class Axis(NamedTuple):
    """The coordinates along one axis. `values` (..., cells) has the coordinate of each cell. For a raster, `values` has
    shape (side,), and `rows` and `columns` give the index of each cell's coordinate, as in `gather.Term`."""

    values: Array
    rows: Array | None = None
    columns: Array | None = None


def axes_of(spec: Spec, grid: tuple[int, ...] | None, axes: int, *, extra: int = 0) -> list[Axis]:
    """The axes of given positions, or of the raster of the tokens; the values include `start`."""
    if spec.positions is not None:
        points = spec.points()[..., extra:, :]
        return [Axis(points[..., axis]) for axis in range(axes)]
    sides = chosen_sides(spec, grid, axes, extra=extra)
    places = along_axes(sides)
    return [Axis(np.arange(side) + spec.start, *of_axis(axis, places)) for axis, side in enumerate(sides)]


def fill_axes(table: Array, axes: Sequence[Axis], omega: Array, width: int, *, layout: str, scale: float) -> None:
    """Fill a table (..., cells, .) with blocks of `width` channels, one for each axis, then zeros.

    For a raster, a block is computed once for each value of its axis, not for each cell.
    """
    used, dim = width * len(axes), table.shape[-1]
    terms = []
    for number, (values, rows, columns) in enumerate(axes):
        first = number * width
        target = table[..., first : first + width]
        if rows is not None and columns is not None:
            own = np.zeros((values.size, width if number + 1 < len(axes) else dim - first), table.dtype)
            target = own[:, :width]
            terms.append(Term(own, rows, first, columns=columns))
        fill_sinusoid(
            target, np.ascontiguousarray(values, np.float64).reshape(-1).__getitem__, omega, layout=layout, scale=scale
        )
    if terms:
        fill_terms(table, terms)
    else:
        table[..., used:] = 0.0
