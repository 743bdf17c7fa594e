"""Tables with an entry for each offset between two cells of a grid, query minus key: index and resampling.

Tokens are in raster order. In the table of a window of h by w cells, the offset (dy, dx) has entry
(dy + h - 1) (2w - 1) + dx + w - 1. Tokens before the cells, such as a class token, have no cell.

A bias that is a function of the offset is computed once for each offset between cells of the tokens' grid; if positions
are given, it is computed for every pair.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.encodings.parts.grids import chosen_sides, raster, sides
from fastpe.encodings.parts.resizing import only_table, whole_sides
from fastpe.encodings.slots import Spec

Array = np.ndarray[Any, Any]
Sides = tuple[int, ...]

GRID = Option(None, "rows and columns of the tokens; none: the closest factors of their number", tuple, optional=True)
WINDOW = Option(None, "rows and columns of the table; none: the grid of the training length", tuple, optional=True)


def grid_of(spec: Spec, grid: Sides | None, extra: int = 0) -> Sides:
    """Rows and columns of the tokens after the first `extra`.

    Raises
    ------
    ValueError
        If there are no tokens left, or the option `grid` does not fit them.
    """
    if spec.length <= extra:
        raise ValueError(f"length must exceed {extra:d}, the tokens without a cell, not {spec.length}")
    return chosen_sides(spec, grid, 2, extra=extra)


def window_of(spec: Spec, window: Sides | None, grid: Sides | None, extra: int = 0) -> Sides:
    """Rows and columns of the learned table: as given, or the grid of the training length."""
    if window is not None:
        if len(window) != 2 or min(window) < 1:
            raise ValueError(f"option 'window' must be two sides of at least 1, not {window}")
        return window
    count = spec.train_length - extra
    if count < 1:
        raise ValueError(f"train_length must exceed {extra:d}, the tokens without a cell, not {spec.train_length}")
    return grid if grid is not None and len(grid) == 2 and math.prod(grid) == count else sides(count, 2)


def entries(window: Sides) -> int:
    """The number of offsets in a window."""
    return (2 * window[0] - 1) * (2 * window[1] - 1)


def checked(params: Any, window: Any, new_window: Any, more: tuple[int, ...] = (0,)) -> tuple[Array, Sides, Sides]:
    """Check the arguments of a `resize` function; return the table of `window`, and both windows. `more` lists the
    allowed numbers of additional rows of the table."""
    old, new = whole_sides("window", window, 2), whole_sides("new_window", new_window, 2)
    return only_table(params, tuple(entries(old) + each for each in more), "H"), old, new


def cells(spec: Spec, grid: Sides | None, extra: int = 0) -> Array:
    """Row and column of every token after the first `extra`, (..., cells, 2) float64. `start` is left out, because it
    cancels."""
    if spec.positions is None:
        return raster(grid_of(spec, grid, extra))
    return spec.positions[..., extra:, :]


def check_inside(name: str, spec: Spec, window: Sides, grid: Sides | None, extra: int, resize: bool) -> None:
    """Raise an error if cells have no entry in the window's table.

    Raises
    ------
    ValueError
        If given positions are not integers.
    BeyondTrainingLength
        If two cells are farther apart than the window reaches, and the table is not resampled.
    """
    extent = grid_of(spec, grid if spec.positions is None else None, extra)
    if spec.positions is not None:
        found = cells(spec, grid, extra)
        if (found != np.floor(found)).any():
            raise ValueError(f"{name!r} needs integer positions, but one is {found[found != np.floor(found)][0]:g}")
        extent = tuple(int(side) for side in np.ptp(found, axis=-2).reshape(-1, 2).max(axis=0) + 1)
    elif resize:
        return
    if extent[0] > window[0] or extent[1] > window[1]:
        what = f"a grid of {extent[0]} x {extent[1]}" if spec.positions is None else f"positions over {extent} cells"
        way = "; option beyond='resize' resamples it" if spec.positions is None else ""
        raise BeyondTrainingLength(
            f"{name!r} has a table for windows of {window[0]} x {window[1]}, not for {what}{way}"
        )


def write_index(index: Array, spec: Spec, window: Sides, grid: Sides | None, extra: int = 0) -> None:
    """Write the entry of every pair to the cells' part of an index (..., N, N)."""
    width = 2 * window[1] - 1
    if spec.positions is None:
        rows, columns = (np.arange(side, dtype=np.int32) for side in grid_of(spec, grid, extra))
        places = (rows[:, None] * np.int32(width) + columns).reshape(-1)
    else:
        found = cells(spec, grid, extra)
        found = found - found.min(axis=-2, keepdims=True)  # otherwise cells far from the origin would overflow int32
        places = (found @ np.array([width, 1.0])).astype(np.int32)
    inner = index[..., extra:, extra:]
    np.subtract(places[..., :, None], places[..., None, :], out=inner)
    inner += np.int32((window[0] - 1) * width + window[1] - 1)


@lru_cache(maxsize=8)
def offsets(window: Sides) -> Array:
    """The offset of every entry, (V, 2) float64."""
    found: Array = raster((2 * window[0] - 1, 2 * window[1] - 1)) - (np.array(window) - 1)
    found.flags.writeable = False
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Functions of the offset

_BLOCK = 2**11  # offsets that are computed together


def shapes(spec: Spec, *, grid: Sides | None, **options: Any) -> dict[str, tuple[int, ...]]:
    """The index of every pair and a value for every offset, or a value for every pair of given positions."""
    if spec.positions is not None:
        return {"scores": (*spec.batch, spec.heads, spec.length, spec.length)}
    return {"index": (spec.length, spec.length), "values": (spec.heads, entries(grid_of(spec, grid)))}


def blocks(spec: Spec, slots: Mapping[str, Array], grid: Sides | None) -> Iterator[tuple[Array, Array]]:
    """Yield some offsets (M, 2), and a view (H, M) of their part of the slot or of its gradient."""
    if spec.positions is None:
        every = offsets(grid_of(spec, grid))
        for first in range(0, len(every), _BLOCK):
            # a copy, because read-only arrays have another type in compiled code
            yield every[first : first + _BLOCK].copy(), slots["values"][:, first : first + _BLOCK]
        return
    for sample in np.ndindex(*spec.batch):
        points = spec.positions[sample]
        for query in range(spec.length):
            for first in range(0, spec.length, _BLOCK):
                some = slice(first, first + _BLOCK)
                yield points[query] - points[some], slots["scores"][(*sample, slice(None), query, some)]


def write_own_index(slots: Mapping[str, Array], spec: Spec, grid: Sides | None) -> None:
    """Unless positions are given, fill `index` with the entry of every pair in the `values` of `blocks`."""
    if spec.positions is None:
        write_index(slots["index"], spec, grid_of(spec, grid), grid)


def printed_offsets(spec: Spec, grid: Sides | None) -> tuple[Array, Array | None]:
    """For references: the offsets (..., 2) of all entries, and the index of every pair; or, with given positions, the
    offsets of all pairs, and None."""
    points = cells(spec, grid)
    c = points[..., :, None, :] - points[..., None, :, :]
    if spec.positions is not None:
        return c, None
    h, w = grid_of(spec, grid)
    index = (c[..., 0] + h - 1) * (2 * w - 1) + c[..., 1] + w - 1
    return np.stack(np.meshgrid(np.arange(1.0 - h, h), np.arange(1.0 - w, w), indexing="ij"), -1).reshape(-1, 2), index


def as_slots(values: Array, index: Array | None) -> dict[str, Array]:
    """For references: the slots for the values (..., H) of `printed_offsets`."""
    if index is None:
        return {"scores": np.moveaxis(values, -1, -3)}
    return {"index": index, "values": np.moveaxis(values, -1, 0)}


# ---------------------------------------------------------------------------------------------------------------------
# Resampling


@lru_cache(maxsize=64)
def bicubic(source: int, target: int) -> Array:
    """The matrix (target, source) that resamples a row of values by cubic convolution with a = -0.75.

    As in image libraries (PyTorch's `interpolate`, mode "bicubic"), pixels are areas: target row o lies at (o + 1/2)
    source / target - 1/2, and rows beyond an end repeat the end row. Keys 1981, "Cubic convolution interpolation for
    digital image processing", eq. (4), with a in place of -1/2.

    >>> bicubic(2, 4).sum(axis=1).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    a = -0.75
    place = (np.arange(target) + 0.5) * source / target - 0.5
    matrix = np.zeros((target, source))
    for tap in range(-1, 3):
        row = np.floor(place).astype(int) + tap
        x = np.abs(place - row)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = a * (((x - 5) * x + 8) * x - 4)
        np.add.at(matrix, (np.arange(target), np.clip(row, 0, source - 1)), np.where(x <= 1, near, far))
    matrix.flags.writeable = False
    return matrix


Line = Callable[[int, int], Array]
"""A function from the source and target sizes of a side to the matrix (target, source) that resamples it."""


def resized(table: Array, window: Sides, grid: Sides, line: Line = bicubic) -> Array:
    """Resample a window's table (V, H) along both sides for another window. The result is float64; if the windows are
    equal, it is `table` itself."""
    if window == grid:
        return table
    old, new = ([2 * side - 1 for side in each] for each in (window, grid))
    image = table.astype(np.float64).reshape(*old, -1)
    image = np.einsum("ay,yxh->axh", line(old[0], new[0]), image)
    return np.einsum("bx,axh->abh", line(old[1], new[1]), image).reshape(new[0] * new[1], -1)


def resized_gradient(dtable: Array, window: Sides, grid: Sides, line: Line = bicubic) -> Array:
    """The pullback of `resized`: the gradient of `table` from the gradient `dtable` of the result."""
    if window == grid:
        return dtable
    old, new = ([2 * side - 1 for side in each] for each in (window, grid))
    image = np.einsum("bx,abh->axh", line(old[1], new[1]), dtable.astype(np.float64).reshape(*new, -1))
    return np.einsum("ay,axh->yxh", line(old[0], new[0]), image).reshape(old[0] * old[1], -1)
