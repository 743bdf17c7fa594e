"""Table rows beyond the training length: how far they are from the trained rows and from the span of these rows."""

from typing import Any

import numpy as np

from fastpe.base.validation import whole
from fastpe.theory.pairs import BLOCK, Array, Window, bounds, checked, nearest
from fastpe.theory.value import Value, exact

_SPANNED = 1e-6  # directions with a singular value above this share of the largest are in the span of the trained rows


def drift(table: Any, train_length: int) -> Array:
    """Return the distance from each position beyond the training length to its nearest trained row (Q9).

    Parameters
    ----------
    table : (positions, channels)
    train_length : int
        N. The rows [0, N) are the trained rows.

    Returns
    -------
    (positions - N,) float64
        For each p >= N, the minimum of |T[p] - T[q]| over q < N. Empty if the table has only N rows.

    Raises
    ------
    ValueError, TypeError
        If the table is not two-dimensional or not finite, or has fewer than N rows.

    Examples
    --------
    >>> drift([[0.0], [1.0], [3.0], [7.0]], 2).tolist()
    [2.0, 6.0]
    """
    rows, n = _trained(table, train_length)
    return nearest(rows[n:], rows[:n])[0]


def covering(table: Any, train_length: int, window: Window) -> dict[str, Value | None]:
    """Return the largest `drift` of the rows in a window (Q9).

    Parameters
    ----------
    table, train_length
        The same as for `drift`.
    window : (start, stop)
        The rows to use, for example (N, 2 N).

    Returns
    -------
    dict
        - "radius": the largest drift. Its inputs name the first position that has this drift, up to rounding.
        - "relative": the radius divided by the root mean square norm of the trained rows; None if all trained rows
          are 0.

    Examples
    --------
    >>> found = covering([[3.0], [4.0], [9.0]], 2, (2, 3))
    >>> found["radius"].value, round(found["relative"].value, 6)
    (5.0, 1.414214)
    """
    rows, n = _trained(table, train_length)
    distances = nearest(checked(rows, window), rows[:n])[0]
    radius = float(distances.max())
    farthest = int(np.flatnonzero(distances >= radius * (1.0 - 1e-12))[0])  # ties differ by rounding
    about = {"train_length": n, "position": bounds(window)[0] + farthest}
    size = float(np.linalg.norm(rows[:n])) / n**0.5
    relative = (
        exact(radius / size, "the covering radius divided by the rms norm of the trained rows", **about)
        if size
        else None
    )
    return {"radius": exact(radius, "the largest distance to the nearest trained row", **about), "relative": relative}


def untrained_share(table: Any, train_length: int, window: Window) -> Value | None:
    """Return the mean share of the rows in a window that lies outside the span of the trained rows (Q9).

    The part of a row outside the span is multiplied by weights that training never used. The share of a row x is
    |x - projection of x| / |x|. The span consists of the directions whose singular value is above 1e-6 times the
    largest singular value. Rows of zeros are left out of the mean.

    Parameters
    ----------
    table, train_length, window
        The same as for `covering`.

    Returns
    -------
    Value, or None if all rows of the window are 0

    Examples
    --------
    >>> untrained_share([[2.0, 0.0], [3.0, 0.0], [3.0, 4.0]], 2, (2, 3)).value
    0.8
    """
    rows, n = _trained(table, train_length)
    _, values, directions = np.linalg.svd(rows[:n], full_matrices=False)
    directions = directions[values > _SPANNED * values[0]]
    tested = checked(rows, window)
    shares: list[float] = []
    for i in range(0, len(tested), BLOCK):
        block = tested[i : i + BLOCK]
        sizes = np.linalg.norm(block, axis=1)
        outside = np.linalg.norm(block - (block @ directions.T) @ directions, axis=1)
        shares.extend(outside[sizes > 0] / sizes[sizes > 0])
    if not shares:
        return None
    why = "the mean share of a row outside the span of the trained rows (singular values above 1e-6 of the largest)"
    return exact(float(np.mean(shares)), why, train_length=n, directions=len(directions), rows=len(shares))


def _trained(table: Any, train_length: int) -> tuple[Array, int]:
    rows, n = checked(table), whole("train_length", train_length, 1)
    if n > len(rows):
        raise ValueError(f"train_length must be at most the {len(rows)} rows of table, not {n}")
    return rows, n
