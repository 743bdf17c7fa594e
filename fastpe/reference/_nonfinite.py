"""Products that ignore rows whose factor is 0, even if they hold NaN or infinity.

The weight of a hidden key is 0, and so is the gradient of its score, so the values of the key must not matter.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def times(cells: Array, rows: Array) -> Array:
    """Return cells @ rows, ignoring rows whose cell is 0.

    >>> times(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[3.0], [np.nan]])).ravel().tolist()
    [3.0, nan]
    """
    bad = ~np.isfinite(np.asarray(rows)).all(axis=-1)
    found: Array = cells @ (np.where(bad[..., None], 0, rows) if bad.any() else rows)  # of the type of `cells`
    for j in np.flatnonzero(bad.any(axis=tuple(range(bad.ndim - 1)))):
        cell, row = cells[..., j, None], np.where(bad[..., j, None], rows[..., j, :], 0)[..., None, :]
        found = found + np.where(cell == 0, 0, cell * row)
    return found


def summed(cells: Array, x: Array) -> Array:
    """Return the sum over j of cells[..., i, j] x[..., j], ignoring entries of x whose cell is 0."""
    if np.isfinite(np.asarray(x)).all():
        return np.asarray(np.sum(cells * x[..., None, :], axis=-1))
    return times(cells, x[..., None])[..., 0]


def where_nonzero(weights: Array, cells: Array) -> Array:
    """Return the cells, with 0 in place of NaN and infinity where the weight is 0."""
    return cells if np.isfinite(np.asarray(cells)).all() else np.where(weights == 0, 0, cells)
