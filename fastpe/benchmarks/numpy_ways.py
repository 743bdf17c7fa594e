"""Tables in NumPy's usual way of writing them: what the fills are measured against."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def numpy_tables() -> dict[str, Callable[[int, int], Array]]:
    """Tables (N, C), float32, in NumPy's usual way of writing them, by encoding."""

    def sinusoidal(length: int, dim: int) -> Array:
        angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, dim, 2) / dim)
        table = np.empty((length, dim), np.float32)
        table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
        return table

    def legendre(length: int, dim: int) -> Array:
        return np.polynomial.legendre.legvander(np.tanh(np.arange(length) / length), dim - 1).astype(np.float32)

    return {"sinusoidal": sinusoidal, "legendre": legendre}
