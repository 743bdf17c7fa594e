"""Tables that are added to the input: norms and distances of their rows, and the noise that they tolerate."""

from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.spatial.distance import pdist
from scipy.special import ndtr, ndtri

from fastpe.base.validation import array, finite, real, whole
from fastpe.theory.pairs import BLOCK, Array, Window, bounds, checked, nearest, tiles
from fastpe.theory.value import Value, certified, exact

TOEPLITZ = 1e-12  # below this non-Toeplitz share of the kernel, distances count as functions of the lag
_ALL_PAIRS = 1024  # up to this number of rows the distances of all pairs are kept
_FRACTION = 38  # number of low bits of a float64 that bins of distances ignore; bins have the relative width 2^-14


def windows(length: int, train_length: int) -> list[Window]:
    """Return the windows [0, N), [N, 2N) and [2N, 4N), cut at `length` and without empty ones.

    Parameters
    ----------
    length : int
        The largest length.
    train_length : int
        The training length N.

    Examples
    --------
    >>> windows(200, 50), windows(70, 50), windows(1, 1)
    ([(0, 50), (50, 100), (100, 200)], [(0, 50), (50, 70)], [(0, 1)])
    """
    length, n = whole("length", length, 1), whole("train_length", train_length, 1)
    ends = ((0, n), (n, 2 * n), (2 * n, 4 * n))
    return [(start, min(stop, length)) for start, stop in ends if start < length]


def norms(table: Any, window: Window | None = None) -> dict[str, Value]:
    """Return the least, largest and root mean square norm of the rows (Q1). `--table-scale` uses the last of the three.

    Parameters
    ----------
    table : (positions, channels)
    window : (start, stop), optional
        The rows to use. The default is all rows.

    Returns
    -------
    dict
        "least", "most", "rms".

    Raises
    ------
    ValueError, TypeError
        If the table is not two-dimensional or not finite, or the window is not inside the table.

    Examples
    --------
    >>> [norms([[3.0, 4.0], [0.0, 1.0]])[name].value for name in ("least", "most")]
    [1.0, 5.0]
    """
    rows = checked(table, window)
    sizes = np.linalg.norm(rows, axis=1)
    about = {"rows": len(rows), "channels": rows.shape[1]}
    return {
        "least": exact(float(sizes.min()), "the smallest norm of a row", **about),
        "most": exact(float(sizes.max()), "the largest norm of a row", **about),
        "rms": exact(float(np.sqrt(np.mean(sizes * sizes))), "the root mean square norm of a row", **about),
    }


def separation(table: Any, window: Window | None = None, *, share: float | None = None) -> Value | None:
    """Return the least distance between two rows (Q2). If it is above 0, all positions can be distinguished.

    Parameters
    ----------
    table, window
        The same as for `norms`.
    share : float, optional
        The non-Toeplitz share of the table's kernel (`fastpe.theory.kernel.toeplitz_share`). If it is below 1e-12,
        distances depend only on the lag, and a scan over lags covers all pairs (P1). Otherwise all pairs are tried.

    Returns
    -------
    Value, or None for a single row
        Its inputs name the two rows, counted from the table's first.

    Examples
    --------
    >>> found = separation([[0.0], [3.0], [5.0]])
    >>> found.value, found.inputs["pair"]
    (2.0, [1, 2])
    """
    rows = checked(table, window)
    start = 0 if window is None else bounds(window)[0]
    if len(rows) < 2:
        return None
    if share is not None and real("share", share) < TOEPLITZ:
        gaps = _lag_distances(rows)
        lag = 1 + int(gaps.argmin())
        least, pair, why = float(gaps[lag - 1]), [start, start + lag], "over all lags (P1)"
    else:
        distances, which = nearest(rows)
        least = float(distances.min())
        first = int(np.flatnonzero(distances <= least * (1.0 + 1e-12))[0])  # ties differ by rounding
        pair, why = sorted((start + first, start + int(which[first]))), "over all pairs"
    return exact(least, f"the least distance between two rows, {why}", rows=len(rows), pair=pair)


def _lag_distances(rows: Array) -> Array:
    """Return the distances of the rows 1, 2, ... from row 0."""
    parts = [rows[i : i + BLOCK] - rows[0] for i in range(1, len(rows), BLOCK)]
    return np.concatenate([np.linalg.norm(part, axis=1) for part in parts])


def collision_radius(table: Any, window: Window | None = None) -> Value | None:
    """Return half the least distance of two rows (Q20), the smallest norm of embeddings with a collision (P4).

    Let T[i] and T[j] be the two rows. The embeddings x_i = (T[j] - T[i]) / 2 and x_j = -x_i have this norm. With them
    the inputs at i and j are the same vector, so that no model without a mask can distinguish them. If all embeddings
    have a smaller norm, no two inputs are equal.

    Parameters
    ----------
    table, window
        The same as for `norms`.

    Returns
    -------
    Value, or None for a single row

    Examples
    --------
    >>> collision_radius([[0.0], [3.0], [5.0]]).value
    1.0
    """
    found = separation(table, window)
    return found and exact(found.value / 2.0, "half the least distance between two rows (P4)", **found.inputs)


def line_separation(table: Any, direction: Any, window: Window | None = None) -> Value | None:
    """Return the least distance of a difference of two rows from the line along a direction (P4).

    A model of numbers embeds its inputs along one direction w. So two tokens can become equal only if the difference of
    their rows lies on the line along w, that is, if this distance is 0.

    Parameters
    ----------
    table, window
        The same as for `norms`.
    direction : (channels,)
        The direction w, not all 0.

    Returns
    -------
    Value, or None for a single row

    Examples
    --------
    >>> line_separation([[0.0, 0.0], [3.0, 1.0], [5.0, 9.0]], [2.0, 0.0]).value
    1.0
    """
    rows = checked(table, window)
    along = finite("direction", array("direction", direction), np.float64)
    if along.shape != rows.shape[1:] or not along.any():
        raise ValueError(f"direction must hold {rows.shape[1]} values that are not all 0, not {along.tolist()}")
    unit = along / np.abs(along).max()
    unit /= np.linalg.norm(unit)
    flat = rows - (rows @ unit)[:, None] * unit
    flat -= (flat @ unit)[:, None] * unit  # a second time, to remove the rounding error along the line
    found = separation(flat)
    return found and exact(found.value, "the smallest distance over all pairs of rows (P4)", rows=len(rows))


def tolerated_noise(table: Any, window: Window | None = None, *, confusion: float = 0.01) -> Value | None:
    """Return the largest noise at which a union bound on the probability of confusing rows is at most `confusion` (Q3).

    Noise with the standard deviation sigma is added to every channel of a row, and the position of the nearest row is
    the guess. The result is the largest sigma with
    (1/n) sum_p sum_{q != p} Phi(-|T[p] - T[q]| / (2 sigma)) <= `confusion`. It is 0 if the table has so many equal rows
    that the sum exceeds `confusion` for every sigma.

    Parameters
    ----------
    table, window
        The same as for `norms`. Up to 1024 rows all distances are kept. For more rows the relevant distances are
        counted in bins of the relative width 2^-14, and the result is a pair of bounds.
    confusion : float
        Largest probability of confusion, in (0, 0.5).

    Returns
    -------
    Value, or None for a single row

    Examples
    --------
    >>> round(tolerated_noise([[0.0], [2.0]]).value, 6)  # 1 / 2.326348, the 99 % quantile
    0.429858
    """
    rows = checked(table, window)
    if not 0.0 < real("confusion", confusion) < 0.5:
        raise ValueError(f"confusion must lie between 0 and 0.5, not {confusion}")
    why = f"the noise at which the union bound on confusions is {100 * confusion:g} %"
    about = {"rows": len(rows), "confusion": confusion}
    if len(rows) < 2:
        return None
    if len(rows) <= _ALL_PAIRS:
        distances = pdist(rows)
        return exact(_loudest(distances, np.full(len(distances), 2.0 / len(rows)), confusion), why, **about)
    distances = nearest(rows)[0]
    if not (highest := _loudest(distances, np.full(len(rows), 1.0 / len(rows)), confusion)):
        return exact(0.0, why, **about)
    # pairs farther apart than `reach` add less than 1e-9 `confusion` to the sum at any sigma up to `highest`
    reach = -2.0 * highest * float(ndtri(1e-9 * confusion / len(rows)))
    below, above, weights = _binned(rows, reach)
    low = _loudest(below, weights[0], (1.0 - 1e-9) * confusion)
    return certified(why, low=low, high=_loudest(above, weights[1], confusion), **about)


def _binned(rows: Array, reach: float) -> tuple[Array, Array, Array]:
    """Return bins of distances up to `reach`: their lower ends, their upper ends, and their counts, (2, bins).

    The counts are numbers of ordered pairs divided by the number of rows. The first row of counts is for lower bounds
    of the true distances, the second row for upper bounds.
    """
    top = int(_bin(np.array([2.0 * reach]))[0])
    bottom = max(0, top - (40 << (52 - _FRACTION)))  # distances 40 octaves below count as 0
    counts = np.zeros((2, top - bottom + 1), np.int64)
    for _, _, squares, error in tiles(rows):
        near = squares[squares <= reach * reach + error]
        for count, sign in zip(counts, (-1.0, 1.0), strict=True):
            places = _bin(np.sqrt(np.maximum(near + sign * error, 0.0))) - bottom
            count += np.bincount(np.clip(places, 0, len(count) - 1), minlength=len(count))
    ends = (np.arange(bottom, top + 2) << _FRACTION).view(np.float64)
    return np.concatenate([[0.0], ends[1:-1]]), ends[1:], counts / len(rows)


def _bin(distances: Array) -> Array:
    return distances.view(np.int64) >> _FRACTION


def _loudest(distances: Array, weights: Array, confusion: float) -> float:
    """Return the sigma at which sum_k weights[k] Phi(-distances[k] / (2 sigma)) equals `confusion`."""
    apart = (distances > 0) & (weights > 0)
    left = confusion - 0.5 * float(weights[distances == 0].sum())
    if left <= 0.0 or not apart.any():
        return 0.0
    distances, weights = distances[apart], weights[apart]
    scale = -2.0 * float(ndtri(min(0.499, left / weights.sum())))
    least, most = 0.999 * float(distances.min()) / scale, float(distances.max()) / scale

    def beyond(sigma: float) -> float:
        return float(weights @ ndtr(distances / (-2.0 * sigma))) - left

    while beyond(most) < 0.0:
        most *= 2.0
    return float(brentq(beyond, least, most, xtol=1e-13 * least, rtol=1e-14))


def coherence(table: Any, window: Window | None = None) -> Value | None:
    """Return the largest |cosine| between two rows (Q5). Rows of zeros have no direction and are left out.

    Parameters
    ----------
    table, window
        The same as for `norms`.

    Returns
    -------
    Value, or None if fewer than two rows are nonzero
        Its inputs name the two rows, counted from the table's first.

    Examples
    --------
    >>> found = coherence([[1.0, 0.0], [0.0, 0.0], [-3.0, 4.0]])
    >>> round(found.value, 6), found.inputs["pair"]
    (0.6, [0, 2])
    """
    rows = checked(table, window)
    start = 0 if window is None else bounds(window)[0]
    sizes = np.linalg.norm(rows, axis=1)
    alive = np.flatnonzero(sizes)
    if len(alive) < 2:
        return None
    rows, sizes = (rows, sizes) if len(alive) == len(rows) else (rows[alive], sizes[alive])
    most, pair = -1.0, (0, 0)
    for i in range(0, len(rows), BLOCK):
        cosines = rows[i : i + BLOCK] @ rows[i:].T
        np.abs(cosines, out=cosines)
        cosines /= sizes[i : i + BLOCK, None]
        cosines /= sizes[i:]
        cosines[np.tril_indices(len(cosines), 0, cosines.shape[1])] = -1.0
        place = np.unravel_index(int(cosines.argmax()), cosines.shape)
        if cosines[place] > most:
            most, pair = float(cosines[place]), (i + int(place[0]), i + int(place[1]))
    found = [start + int(alive[each]) for each in pair]
    return exact(min(most, 1.0), "the largest |cosine| over all pairs", rows=len(sizes), pair=found)
