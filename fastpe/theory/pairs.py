"""Distances between rows of a table in tiles: a matrix product finds the pairs that are then measured exactly."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpe.base.validation import array, finite, whole

Array = np.ndarray[Any, Any]
Window = tuple[int, int]

BLOCK = 512
_MEASURED = 2**21  # entries of the differences that are measured at once
_MOST = 1e150  # the square of a larger entry overflows


def checked(table: Any, window: Window | None = None) -> Array:
    """Rows [start, stop) of a table, or all of them, as finite float64.

    Parameters
    ----------
    table : (positions, channels)
        At least one row and one channel; real, finite, below 1e150 in size. Distances below 1e-154 are 0 here.
    window : (start, stop), optional
        At least one row of the table.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, its value and what was expected.

    Examples
    --------
    >>> checked([[1, 2], [3, 4]], (1, 2)).tolist()
    [[3.0, 4.0]]
    """
    rows = finite("table", array("table", table), np.float64)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"table must have shape (positions, channels), at least (1, 1), not {rows.shape}")
    largest = max(float(rows.max()), -float(rows.min()))
    if largest > _MOST:
        raise ValueError(f"table must hold values below {_MOST:.0e} in size, as they are squared, not {largest:.3g}")
    if window is None:
        return rows
    start, stop = bounds(window)
    if stop > len(rows):
        raise ValueError(f"window must end within the {len(rows)} rows of table, not at {stop}")
    return rows[start:stop]


def bounds(window: Any) -> Window:
    """`window` as two integers, 0 <= start < stop.

    Examples
    --------
    >>> bounds((0, 50))
    (0, 50)
    """
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise TypeError(f"window must be two integers (start, stop), not {window!r}")
    start, stop = whole("window[0]", window[0], 0), whole("window[1]", window[1])
    if stop <= start:
        raise ValueError(f"window must hold at least one row, not {window!r}")
    return start, stop


def tiles(rows: Array, others: Array | None = None) -> Iterator[tuple[slice, slice, Array, float]]:
    """Squared distances in tiles of 512 x 512, by a product of matrices, and how far each may be from the exact one.

    Parameters
    ----------
    rows, others : (n, C), (m, C)
        Without `others` those of each row to the other rows; its distance to itself is infinite.

    Yields
    ------
    Rows and others of the tile, the squared distances, and their error: at most (C + 8) 2^-52 times the squared norms
    about the mean row, which rounding of the means, the squares and the product does not exceed.
    """
    targets = rows if others is None else others
    centre = targets.mean(axis=0)
    for i in range(0, len(rows), BLOCK):
        block = rows[i : i + BLOCK] - centre
        sizes = np.einsum("ij,ij->i", block, block)
        for j in _starts(i if others is None else 0, len(targets)):
            tile = targets[j : j + BLOCK] - centre
            lengths = np.einsum("ij,ij->i", tile, tile)
            squares = block @ tile.T
            squares *= -2.0
            squares += sizes[:, None]
            squares += lengths
            if others is None and i == j:
                np.fill_diagonal(squares, np.inf)
            error = (rows.shape[1] + 8) * 2.0**-52 * float(sizes.max() + lengths.max())
            yield slice(i, i + len(block)), slice(j, j + len(tile)), squares, error


def nearest(rows: Array, others: Array | None = None) -> tuple[Array, Array]:
    """The distance of every row to its nearest of `others`, or of the other rows, and which one that is.

    Every pair that the product of matrices cannot rule out is measured by its differences, so that tiny distances keep
    their digits.

    Parameters
    ----------
    rows, others : (n, C), (m, C)

    Returns
    -------
    (n,) float64, (n,) integers
        Infinite where there is no other row.

    Examples
    --------
    >>> distances, which = nearest(np.array([[0.0], [1.0], [3.0]]))
    >>> distances.tolist(), which.tolist()
    ([1.0, 1.0, 2.0], [1, 0, 1])
    """
    least, which = np.full(len(rows), np.inf), np.zeros(len(rows), np.intp)
    targets = rows if others is None else others
    for block, tile, squares, error in tiles(rows, others):
        # of a row the closest one first: it rules out nearly all others
        first = squares.argmin(axis=1)
        can = np.take_along_axis(squares, first[:, None], axis=1)[:, 0]
        ahead = np.flatnonzero(np.isfinite(can) & (can - error < least[block] ** 2) & (least[block] > 0))
        if not len(ahead):
            continue
        ends = least[block], which[block], rows[block], targets[tile], tile.start
        _measure(*ends, ahead, first[ahead])
        squares[ahead, first[ahead]] = np.inf
        limits = np.where(least[block] > 0, least[block] ** 2 + error, 0.0)[ahead, None]
        a, b = np.nonzero(squares[ahead] < limits)
        _measure(*ends, ahead[a], b)
    return least, which


def _starts(first: int, length: int) -> list[int]:
    """Where tiles start: that of the row itself first, whose neighbours rule out most of the others."""
    starts = list(range(0, length, BLOCK))
    return starts[first // BLOCK :] + starts[: first // BLOCK]


def _measure(least: Array, which: Array, rows: Array, others: Array, offset: int, a: Array, b: Array) -> None:
    """Lower `least` to the distances of the pairs rows[a], others[b], by their differences."""
    at_once = max(1, _MEASURED // rows.shape[1])
    for start in range(0, len(a), at_once):
        first, second = a[start : start + at_once], b[start : start + at_once]
        found = np.linalg.norm(rows[first] - others[second], axis=1)
        order = np.lexsort((found, first))
        rank = order[np.diff(first[order], prepend=-1) > 0]  # the least of every row
        better = rank[found[rank] < least[first[rank]]]
        least[first[better]], which[first[better]] = found[better], second[better] + offset
