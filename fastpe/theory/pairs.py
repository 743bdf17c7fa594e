"""Distances between rows of a table. Matrix products select the pairs whose distance is then computed exactly."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpe.base.validation import array, finite, whole

Array = np.ndarray[Any, Any]
Window = tuple[int, int]

BLOCK = 512
_MEASURED = 2**21  # number of entries of row differences in memory at once
_MOST = 1e150  # the square of a larger entry overflows


def checked(table: Any, window: Window | None = None) -> Array:
    """Return the rows [start, stop) of a table, or all of them, as finite float64.

    Parameters
    ----------
    table : (positions, channels)
        At least one row and one channel of real, finite numbers below 1e150 in absolute value. Distances below 1e-154
        count as 0.
    window : (start, stop), optional
        The rows to return, at least one.

    Raises
    ------
    ValueError, TypeError
        If an argument is invalid. The message names the argument, its value and what was expected.

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
        raise ValueError(
            f"table must hold values of at most {_MOST:.0e} in size, because they are squared, not {largest:.3g}"
        )
    if window is None:
        return rows
    start, stop = bounds(window)
    if stop > len(rows):
        raise ValueError(f"window must end within the {len(rows)} rows of table, not at {stop}")
    return rows[start:stop]


def bounds(window: Any) -> Window:
    """Return `window` as two integers with 0 <= start < stop.

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
    """Yield squared distances in tiles of 512 x 512, computed by a matrix product, with bounds on their errors.

    Parameters
    ----------
    rows, others : (n, C), (m, C)
        Without `others`, the distances are between each row and the other rows of `rows`. In this case the distance of
        a row to itself is set to infinity.

    Yields
    ------
    slice, slice, (512, 512) or smaller array, float
        The indices in `rows`, the indices in `others`, the squared distances, and a bound on their errors. All rows are
        first centred. The bound is (C + 8) 2^-52 times the sum of two numbers: the largest squared norm of the rows of
        `rows` in the tile, and that of the rows of `others` in the tile. It covers the rounding of the means, the
        squares and the product.
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
    """Return the distance of every row to the nearest row of `others`, and the index of this nearest row.

    The distance of every pair that the matrix product cannot rule out is computed again from the difference of its two
    rows, so that tiny distances keep their digits.

    Parameters
    ----------
    rows, others : (n, C), (m, C)
        Without `others`, the nearest of the other rows of `rows` is searched.

    Returns
    -------
    (n,) float64, (n,) integers
        The distance is infinite if there is no other row.

    Examples
    --------
    >>> distances, which = nearest(np.array([[0.0], [1.0], [3.0]]))
    >>> distances.tolist(), which.tolist()
    ([1.0, 1.0, 2.0], [1, 0, 1])
    """
    least, which = np.full(len(rows), np.inf), np.zeros(len(rows), np.intp)
    targets = rows if others is None else others
    for block, tile, squares, error in tiles(rows, others):
        # measure the closest row of the tile first: its distance rules out nearly all others
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
    """Return the starts of the tiles, first that of the row itself: the near rows in it rule out most other rows."""
    starts = list(range(0, length, BLOCK))
    return starts[first // BLOCK :] + starts[: first // BLOCK]


def _measure(least: Array, which: Array, rows: Array, others: Array, offset: int, a: Array, b: Array) -> None:
    """Compute the distances of the pairs rows[a], others[b] from the differences of the rows, and keep the smallest.

    `least` is lowered where a distance is smaller, and `which` gets the index of the other row, counted from `offset`.
    """
    at_once = max(1, _MEASURED // rows.shape[1])
    for start in range(0, len(a), at_once):
        first, second = a[start : start + at_once], b[start : start + at_once]
        found = np.linalg.norm(rows[first] - others[second], axis=1)
        order = np.lexsort((found, first))
        rank = order[np.diff(first[order], prepend=-1) > 0]  # the pair with the smallest distance for every row
        better = rank[found[rank] < least[first[rank]]]
        least[first[better]], which[first[better]] = found[better], second[better] + offset
