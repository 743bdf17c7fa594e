"""Running sums: x_i independent N(0, 1), y_i = x_1 + ... + x_i (Li 2025, section 7.1).

A result must be compared with two reference points: what the zero predictor reaches, and the bound below which no model
can go that cannot tell left from right.
"""

import operator

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastpe.random import Stream


def sample(
    seed: int, stream: str, count: int, length: int, dtype: DTypeLike = np.float32, step: int | str = 0
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Draw sequences; the first ten of twenty are those of a draw of ten.

    Parameters
    ----------
    seed, stream, step
        As for `fastpe.random.Stream`. Training uses the stream ``"train"``, tests ``"test"`` with their length as step.
    count, length : int
        Number of sequences and positions of each, at least 1.
    dtype : float32 or float64

    Returns
    -------
    x, y : (count, length) dtype
        x is drawn in float64 and cast; y is the float64 sum of the cast x, then cast.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong type or out of range.

    Examples
    --------
    >>> x, y = sample(0, "train", count=2, length=3, dtype=np.float64)
    >>> bool((y[:, 2] == x[:, 0] + x[:, 1] + x[:, 2]).all())
    True
    """
    count, length = _positive("count", count), _positive("length", length)
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise TypeError(f"dtype must be float32 or float64, got {dtype}")
    x = Stream(seed, stream, step).normal((count, length)).astype(dtype)
    y = np.cumsum(x, axis=1, dtype=np.float64).astype(dtype)
    return x, y


def zero_predictor(length: int) -> float:
    """Return the expected mean squared error of always answering 0: (N + 1) / 2, the mean variance of y.

    Examples
    --------
    >>> [zero_predictor(length) for length in (50, 100, 200)]
    [25.5, 50.5, 100.5]
    """
    return (_positive("length", length) + 1) / 2


def reversal_bound(length: int) -> float:
    """Return the least mean squared error of a model that commutes with reversing the sequence: (N - 1) / 4.

    Such a model (bidirectional, its position signal an even function of the offset) must give one answer for the prefix
    sum and the suffix sum, and their mean is the best it can do.

    Examples
    --------
    >>> [reversal_bound(length) for length in (50, 100, 200)]
    [12.25, 24.75, 49.75]
    """
    return (_positive("length", length) - 1) / 4


def _positive(name: str, value: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if operator.index(value) < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return operator.index(value)
