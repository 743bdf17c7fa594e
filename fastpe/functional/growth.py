"""Rows of the content times the powers of their positions: the slot `growth` of so few queries that they are one block.

Of more, kernels make the powers of every block anew (`kernels.attention.products`).
"""

from typing import Any

import numpy as np

from fastpe.kernels import growth as kernel
from fastpe.kernels.threads import lanes_for, run_apart

Array = np.ndarray[Any, Any]

_OF_A_POWER = 16  # multiplications that one takes


def grown(x: Array, powers: Array, origin: Array, sign: float, pairs: str, y: Array) -> Array:
    """y, which may be x, from x (B, H, N, D), both in one piece.

    powers: (N, R), float64, in one piece, the logarithms of growth; origin: (R,), of the row that stays as it is.
    sign: 1 of queries, -1 of keys.
    """
    tasks, count = -(-x.shape[2] // kernel.ROWS_OF_A_TASK), powers.shape[-1]
    lanes = lanes_for(x.size + _OF_A_POWER * powers.size, tasks)
    factors = np.empty((lanes, kernel.scratch_size(count)), x.dtype)
    rest = x.reshape(-1), powers.reshape(-1), origin, sign, factors, y.reshape(-1), x.shape, count, pairs == "half"
    run_apart(lanes, kernel.grow, *rest)
    return y
