"""The sum of the numbers so far: x_i independent N(0, 1), y_i = x_1 + ... + x_i.

A model without a mask must tell left from right; a causal one must count, as softmax gives means and not sums.

**Kind**: numbers, one answer beside each.
**Metric**: mean squared error, and that divided by the error of always answering 0, (N + 1) / 2.
**Controls**: no model that cannot tell a sequence from its reverse gets below (N - 1) / 4, and none that knows no order
at all below (N - 1) / 4 either.

Source: Li 2025, section 7.1.
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.tasks.task import Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int) -> tuple[Array, Array]:
    x = draws.normal((count, length))
    return x, np.cumsum(x, axis=1)


def squares(length: int) -> Array:
    return np.arange(1.0, length + 1.0)


def reversal_bound(length: int, factors: Array) -> float:
    # The answer at i must serve the prefix sum P_i and, mirrored, the suffix sum S_i, and their mean is the best it can
    # do. Their difference, times the factors f_i and f_{N+1-i}, has variance f_i^2 i + f_{N+1-i}^2 (N+1-i) -
    # 2 f_i f_{N+1-i}: they share x_i alone.
    places, mirrored = squares(length), factors[::-1]
    variances = factors**2 * places + mirrored**2 * places[::-1] - 2.0 * factors * mirrored
    return float(np.mean(variances) / 4.0)


def permutation_bound(length: int, factors: Array) -> float:
    # Of a token at an unknown place p, its own number counts f_p, and each other one f_p with the chance (p-1) / (N-1):
    # the best that can be said is the mean of these times the numbers.
    places = squares(length)
    before = float(np.mean(factors * (places - 1.0)))
    return float(np.mean(factors**2 * places) - np.mean(factors) ** 2 - before**2 / max(length - 1, 1))


TASK = Task(kind="numbers", summary="the sum of the numbers so far", source="Li 2025, section 7.1")
