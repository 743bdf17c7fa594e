"""The largest eigenvalues of a symmetric tridiagonal matrix, and their eigenvectors. Computing a few of them takes
linear time."""

from typing import Any

import numpy as np
from scipy import linalg

from fastpe.kernels.compile.decorators import entry

Array = np.ndarray[Any, Any]


_FEW = 20  # one eigenvalue by bisection takes as long as this many when all eigenvalues are computed together


def largest_eigenvalues(diagonal: Array, beside: Array, count: int) -> Array:
    """The `count` largest eigenvalues in descending order, (count,).

    >>> largest_eigenvalues(np.array([2.0, 2.0, 2.0]), np.array([1.0, 1.0]), 2).round(3).tolist()
    [3.414, 2.0]
    """
    n = len(diagonal)
    if _FEW * count >= n:
        return linalg.eigvalsh_tridiagonal(diagonal, beside)[: -count - 1 : -1].copy()
    ends = (n - count, n - 1)
    return linalg.eigvalsh_tridiagonal(diagonal, beside, "i", ends, lapack_driver="stebz")[::-1].copy()


def largest_eigenvectors(diagonal: Array, beside: Array, count: int) -> Array:
    """Unit eigenvectors of the largest eigenvalues, largest first, (N, count); their signs are arbitrary.

    >>> np.abs(largest_eigenvectors(np.array([2.0, 2.0]), np.array([1.0]), 2)).round(3).tolist()
    [[0.707, 0.707], [0.707, 0.707]]
    """
    values = largest_eigenvalues(diagonal, beside, count)
    vectors = np.empty((count, len(diagonal)))
    _twisted(diagonal, beside, values, vectors)
    return vectors.T


_TWICE = 2  # factorisations for each vector: the first one improves the eigenvalue


@entry(label="eigenvectors of a tridiagonal matrix")
def _twisted(diagonal: Array, beside: Array, values: Array, vectors: Array) -> None:
    # Twisted factorisation (Dhillon and Parlett 2004): elimination from both ends meets at the row r with the smallest
    # remainder. The vector is 1 there; its other entries are computed outwards from r.
    n = len(diagonal)
    down, up = np.empty(n), np.empty(n)
    least = 1e-30 * (np.abs(diagonal).max() + 1.0)  # replaces a pivot that is zero
    for k in range(len(values)):
        vector = vectors[k]
        for _ in range(_TWICE):
            down[0], up[n - 1] = diagonal[0] - values[k], diagonal[n - 1] - values[k]
            for i in range(1, n):
                if abs(down[i - 1]) < least:
                    down[i - 1] = least
                down[i] = (diagonal[i] - values[k]) - beside[i - 1] * (beside[i - 1] / down[i - 1])
            for i in range(n - 2, -1, -1):
                if abs(up[i + 1]) < least:
                    up[i + 1] = least
                up[i] = (diagonal[i] - values[k]) - beside[i] * (beside[i] / up[i + 1])
            left = down + up - (diagonal - values[k])
            r = np.abs(left).argmin()
            vector[r], squares = 1.0, 1.0
            for i in range(r - 1, -1, -1):
                vector[i] = -(beside[i] / down[i]) * vector[i + 1]
                squares += vector[i] ** 2
            for i in range(r + 1, n):
                vector[i] = -(beside[i - 1] / up[i]) * vector[i - 1]
                squares += vector[i] ** 2
            values[k] += left[r] / squares
        vector /= np.sqrt(squares)
