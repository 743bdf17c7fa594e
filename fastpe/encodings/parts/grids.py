"""Grids: tokens in raster order, the last axis fastest (index = y W + x, or (t H + y) W + x)."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.encodings.slots import Spec

Array = np.ndarray[Any, Any]


@lru_cache(maxsize=64)
def sides(count: int, axes: int) -> tuple[int, ...]:
    """The factors of `count` that are closest to each other, in ascending order.

    >>> sides(50, 2), sides(64, 3), sides(7, 2)
    ((5, 10), (4, 4, 4), (1, 7))
    """
    if axes == 1:
        return (count,)
    root = round(count ** (1 / axes))
    first = next(side for side in range(min(root + 1, count), 0, -1) if count % side == 0 and side**axes <= count)
    return (first, *sides(count // first, axes - 1))


def chosen_sides(
    spec: Spec,
    grid: tuple[int, ...] | None,
    axes: int,
    *,
    extra: int = 0,
    length: int | None = None,
    option: str = "grid",
) -> tuple[int, ...]:
    """The grid of the tokens after the first `extra`: `grid` if given, otherwise the sides that are closest to each
    other.

    `length` is the number of tokens (default: that of `spec`), and `option` the name of the option that gave the grid,
    for the error message.

    Raises
    ------
    ValueError
        If the grid has a wrong number of cells or axes.
    """
    count = (spec.length if length is None else length) - extra
    if count < 1:
        raise ValueError(
            f"length and train_length must be at least {extra + 1} with a class token, not {count + extra}"
        )
    if grid is None:
        return sides(count, axes)
    if len(grid) != axes or min(grid) < 1 or math.prod(grid) != count:
        raise ValueError(f"option {option!r} must be {axes} sides whose product is {count}, not {grid}")
    return grid


def raster(grid: tuple[int, ...]) -> Array:
    """The coordinates of every cell in raster order, (cells, axes) float64.

    >>> raster((1, 3)).tolist()
    [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]]
    """
    return np.ascontiguousarray(np.indices(grid).reshape(len(grid), -1).T, np.float64)


def along_axes(grid: Sequence[int]) -> list[Array]:
    """The indices 0, 1, ... along each axis of a grid, as arrays that broadcast together.

    >>> [axis.shape for axis in along_axes((2, 5))]
    [(2, 1), (5,)]
    """
    return [np.arange(side).reshape(-1, *(1,) * (len(grid) - 1 - axis)) for axis, side in enumerate(grid)]


def coordinates(spec: Spec, grid: tuple[int, ...] | None, axes: int, *, extra: int = 0) -> Array:
    """The coordinates of every token after the first `extra`, (..., cells, axes): the given positions, or the cells of
    the grid in raster order, plus `start`.
    """
    if spec.positions is not None:
        return spec.points()[..., extra:, :]
    return raster(chosen_sides(spec, grid, axes, extra=extra)) + spec.start


def axis_places(spec: Spec, grid: tuple[int, ...], *, extra: int = 0) -> list[Array]:
    """The coordinates of every token after the first `extra`, one array for each axis; the arrays broadcast.

    For given positions, each array has shape (..., cells); for a raster, each array runs along its axis of the grid.
    """
    if spec.positions is not None:
        points = spec.points()[..., extra:, :]
        return [points[..., axis] for axis in range(len(grid))]
    return [axis + spec.start for axis in along_axes(grid)]


def learned_grid(
    spec: Spec, grid: tuple[int, ...] | None, train_grid: tuple[int, ...] | None, axes: int, *, extra: int = 0
) -> tuple[int, ...]:
    """The learned grid: `train_grid`; or `grid` if it has one cell for each position of the training length (except for
    `extra` ones); or the closest sides."""
    fits = grid is not None and len(grid) == axes and min(grid) > 0  # if false, `extent` raises an error
    if train_grid is None and grid is not None and fits and math.prod(grid) == spec.train_length - extra:
        train_grid = grid
    return chosen_sides(spec, train_grid, axes, extra=extra, length=spec.train_length, option="train_grid")


def extent(spec: Spec, grid: tuple[int, ...] | None, learned: tuple[int, ...], *, extra: int = 0) -> tuple[int, ...]:
    """The grid of the tokens' coordinates: `grid`; or `learned` if positions are given or the length is the training
    length; or the closest sides."""
    if grid is None and (spec.positions is not None or spec.length == spec.train_length):
        return learned
    if spec.positions is None:
        return chosen_sides(spec, grid, len(learned), extra=extra)
    if grid is None or len(grid) != len(learned) or min(grid) < 1:
        raise ValueError(f"option 'grid' must be {len(learned)} sides of at least 1, not {grid}")
    return grid


def check_inside(name: str, places: Sequence[Array], grid: tuple[int, ...], helps: str = "") -> None:
    """Raise BeyondTrainingLength if coordinates (`places`, one array for each axis) are outside the grid; `helps` is
    appended to the message."""
    for axis, (values, side) in enumerate(zip(places, grid, strict=True)):
        outside = values[(values < 0) | (values > side - 1)]
        if outside.size:
            raise BeyondTrainingLength(
                f"{name!r} has no vector for coordinate {outside[0]:g} of axis {axis}: its grid is {grid}{helps}"
            )


def whole_points(name: str, points: Array) -> Array:
    """Return positions or coordinates unchanged, after checking that they are integers >= 0.

    Raises
    ------
    ValueError
        If a position is not an integer >= 0.
    """
    wrong = (points != np.floor(points)) | (points < 0)
    if wrong.any():
        raise ValueError(f"{name!r} needs integer positions >= 0, but one is {points[wrong][0]:g}")
    return points
