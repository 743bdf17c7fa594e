"""The kernel T T^T of a table: its spectrum, its ranks, and the share that depends on more than the distance."""

import math
from typing import Any

import numpy as np

from fastpe.theory.pairs import BLOCK, Array, Window, checked
from fastpe.theory.value import Value, exact

_MOST_ROWS = 4096  # largest number of rows for which a whole kernel is returned


def spectrum(table: Any, window: Window | None = None) -> Array:
    """Return the singular values of the table, largest first.

    Parameters
    ----------
    table : (positions, channels)
        At least one row and one channel of finite numbers.
    window : (start, stop), optional
        The rows to use. The default is all rows.

    Examples
    --------
    >>> spectrum([[3.0, 0.0], [0.0, 4.0]]).tolist()
    [4.0, 3.0]
    """
    found: Array = np.linalg.svd(checked(table, window), compute_uv=False)
    return found


def ranks(table: Any, window: Window | None = None) -> dict[str, Value | None]:
    """Return the rank of the table at each precision, and ranks weighted by the singular values (Q4).

    Parameters
    ----------
    table, window
        The same as for `fastpe.theory.tables.norms`.

    Returns
    -------
    dict
        - "float64", "float32", "bfloat16": the number of singular values above a tolerance. For n rows and C channels,
          the tolerance is the largest singular value times max(n, C) 2^-52, n 2^-23 or 2^-8, respectively.
        - "effective": exp of the entropy of the squared singular values divided by their sum (Roy and Vetterli 2007).
        - "stable": the sum of the squared singular values divided by the largest of them.
        - "condition": the largest singular value divided by the smallest one above the float64 tolerance.

        The last three are None for a table of zeros.

    Examples
    --------
    >>> found = ranks([[2.0, 0.0], [0.0, 1e-5]])
    >>> [found[name].value for name in ("float64", "float32", "bfloat16")]
    [2.0, 2.0, 1.0]
    """
    rows = checked(table, window)
    values = spectrum(rows)
    n, about = len(rows), {"rows": len(rows), "channels": rows.shape[1]}
    limits = {"float64": max(rows.shape) * 2.0**-52, "float32": n * 2.0**-23, "bfloat16": 2.0**-8}
    found: dict[str, Value | None] = {
        name: exact(
            float((values > limit * values[0]).sum()), f"singular values above {limit:.3g} of the largest", **about
        )
        for name, limit in limits.items()
    }
    if not values[0]:
        return found | dict.fromkeys(("effective", "stable", "condition"))
    shares = (values / values[0]) ** 2
    stable = float(shares.sum())
    kept = shares[shares > 0] / stable
    least = float(values[values > limits["float64"] * values[0]].min())
    return found | {
        "effective": exact(
            math.exp(-float(kept @ np.log(kept))), "exp of the entropy of squared singular values", **about
        ),
        "stable": exact(stable, "sum of squared singular values divided by the largest one", **about),
        "condition": exact(
            float(values[0]) / least,
            "largest singular value divided by the smallest one above the float64 tolerance",
            **about,
        ),
    }


def kernel(table: Any, window: Window | None = None) -> Array:
    """Return T T^T, (n, n), for a plot. The table may have up to 4096 rows.

    Parameters
    ----------
    table : (positions, channels)
        At least one row and one channel of finite numbers.
    window : (start, stop), optional
        The rows to use. The default is all rows.

    Examples
    --------
    >>> kernel([[1.0, 2.0], [0.0, 1.0]]).tolist()
    [[5.0, 2.0], [2.0, 1.0]]
    """
    rows = checked(table, window)
    if len(rows) > _MOST_ROWS:
        raise ValueError(f"window must hold at most {_MOST_ROWS} rows for a whole kernel, not {len(rows)}")
    found: Array = rows @ rows.T
    return found


def kernel_by_lag(table: Any, window: Window | None = None) -> Array:
    """Return the mean of <T[p], T[p + k]> over p for each lag k = 0 .. n - 1: the Toeplitz part of the kernel.

    Parameters
    ----------
    table : (positions, channels)
        At least one row and one channel of finite numbers.
    window : (start, stop), optional
        The rows to use. The default is all rows.

    Examples
    --------
    >>> kernel_by_lag([[1.0], [2.0], [4.0]]).tolist()
    [7.0, 5.0, 4.0]
    """
    return _lag_means(checked(table, window))


def toeplitz_share(table: Any, window: Window | None = None) -> Value | None:
    """Return the share of the kernel that depends on more than the distance (Q11).

    The share is |K - M|_F / |K|_F, where K is the kernel and each entry of M is the mean of its diagonal in K. The
    share is 0 if the products of rows depend only on the distance, so that the table carries relative positions. The
    kernel is computed in blocks of 512 rows.

    Parameters
    ----------
    table : (positions, channels)
    window : (start, stop), optional
        The rows to use. The default is all rows.

    Returns
    -------
    Value, or None for a table of zeros

    Raises
    ------
    ValueError, TypeError
        For the same reasons as `fastpe.theory.tables.norms`.

    Examples
    --------
    >>> toeplitz_share([[1.0, 0.0], [0.0, 1.0]]).value, round(toeplitz_share([[1.0], [2.0]]).value, 6)
    (0.0, 0.424264)
    """
    rows = checked(table, window)
    largest = float(np.abs(rows).max())
    if not largest:
        return None
    if not 1e-60 < largest < 1e60:  # fourth powers of the entries, which are computed below, would overflow or vanish
        rows = rows / largest
    means, apart = _lag_means(rows), 0.0
    for i in range(0, len(rows), BLOCK):
        products = rows[i : i + BLOCK] @ rows[i:].T
        for k, line in enumerate(products):
            rest = line[k:]
            rest -= means[: len(rest)]
            # only one triangle is computed, so entries off the diagonal count twice
            apart += 2.0 * float(rest @ rest) - float(rest[0]) ** 2
    # both products have the same Frobenius norm, and the smaller one is computed
    narrow = rows.T @ rows if rows.shape[1] <= len(rows) else rows @ rows.T
    total = float(np.linalg.norm(narrow)) ** 2
    why = "Frobenius norm of T T^T minus the means of its diagonals, divided by the Frobenius norm of T T^T"
    return exact(math.sqrt(max(0.0, apart) / total), why, rows=len(rows), channels=rows.shape[1])


def _lag_means(rows: Array) -> Array:
    sums = np.zeros(len(rows))
    for i in range(0, len(rows), BLOCK):
        products = rows[i : i + BLOCK] @ rows[i:].T
        for k, line in enumerate(products):
            sums[: len(line) - k] += line[k:]
    return sums / np.arange(len(rows), 0, -1)
