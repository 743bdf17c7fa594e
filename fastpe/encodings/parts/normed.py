"""Layer normalisation of rows, without its learned factors, and the way back.

y = (x - mean) / sqrt(var + 1e-5)
"""

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

EPS = 1e-5
"""PyTorch's, which both encodings that normalise leave as it is."""


class Normed(NamedTuple):
    """Normalised rows, and the factor of each."""

    values: Array  # y, (M, K)
    rate: Array  # (M, 1)


def normed(x: Array) -> Normed:
    """Rows (M, K) float64 normalised.

    >>> normed(np.array([[1.0, 3.0]])).values.round(4).tolist()
    [[-1.0, 1.0]]
    """
    centred = x - x.mean(axis=-1, keepdims=True)
    rate = 1.0 / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + EPS)
    return Normed(centred * rate, rate)


def back(of: Normed, dy: Array) -> Array:
    """The gradient of x."""
    along = (dy * of.values).mean(axis=-1, keepdims=True)
    found: Array = of.rate * (dy - dy.mean(axis=-1, keepdims=True) - of.values * along)
    return found
