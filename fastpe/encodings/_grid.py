"""Grids: tokens in raster order, the last axis fastest (index = y W + x, or (t H + y) W + x)."""

import math
from typing import Any

import numpy as np

from fastpe.encoding import Spec

Array = np.ndarray[Any, Any]


def sides(count: int, axes: int) -> tuple[int, ...]:
    """The factors of `count`, as close to each other as they get, in ascending order.

    >>> sides(50, 2), sides(64, 3), sides(7, 2)
    ((5, 10), (4, 4, 4), (1, 7))
    """
    if axes == 1:
        return (count,)
    root = round(count ** (1 / axes))
    first = next(side for side in range(min(root + 1, count), 0, -1) if count % side == 0 and side**axes <= count)
    return (first, *sides(count // first, axes - 1))


def chosen_sides(spec: Spec, grid: tuple[int, ...] | None, axes: int, *, extra: int = 0) -> tuple[int, ...]:
    """The grid of a spec's tokens but for `extra` ones: as given, or of the sides closest to each other.

    Raises
    ------
    ValueError
        If the grid has other tokens than there are, or other axes.
    """
    count = spec.length - extra
    if grid is None:
        return sides(count, axes)
    if len(grid) != axes or min(grid) < 1 or math.prod(grid) != count:
        raise ValueError(f"option 'grid' must be {axes} sides whose product is {count}, not {grid}")
    return grid


def raster(grid: tuple[int, ...]) -> Array:
    """The coordinates of every cell in raster order, (cells, axes) float64.

    >>> raster((1, 3)).tolist()
    [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]]
    """
    return np.ascontiguousarray(np.indices(grid).reshape(len(grid), -1).T, np.float64)


def coordinates(spec: Spec, grid: tuple[int, ...] | None, axes: int) -> Array:
    """The coordinates of every token, (..., N, axes): as given, or those of the raster of its grid; plus `start`."""
    if spec.positions is not None:
        return spec.points()
    return raster(chosen_sides(spec, grid, axes)) + spec.start
