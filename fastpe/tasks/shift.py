"""The previous number: x_i independent N(0, 1), y_1 = 0 and y_i = x_{i-1}.

The simplest task that needs relative positions: attend one position to the left.

**Kind**: numbers, with one answer for each.
**Metric**: mean squared error, and its ratio to the error of always answering 0.
**Controls**: a model that cannot tell a sequence from its reverse has an error of at least (N - 1) / (2 N). A model
that does not know the order at all has an error of at least ((N - 1) / N)^2.

Source: own construction; the bounds are derived as for the running sum.
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.tasks.task import Recipe, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int) -> tuple[Array, Array]:
    x = draws.normal((count, length))
    return x, np.concatenate([np.zeros((count, 1)), x[:, :-1]], axis=1)


def squares(length: int) -> Array:
    return (np.arange(length) > 0).astype(np.float64)


def reversal_bound(length: int, factors: Array) -> float:
    # the answer at i must serve as the left neighbour and, mirrored, as the right one: two independent numbers
    variances = factors**2 * squares(length)
    return float(np.mean(variances + variances[::-1]) / 4.0)


def permutation_bound(length: int, factors: Array) -> float:
    # every other number is the answer with equal probability; its optimal weight is the mean of the factors over N
    wanted = factors * squares(length)
    return float(np.mean(wanted**2) - wanted.sum() ** 2 / (length**2 * max(length - 1, 1)))


TASK = Task(
    kind="numbers",
    summary="the number before each one",
    source="an own construction",
    recipe=Recipe({"epochs": 12}, "sinusoidal", solved=10, seconds=5),
)
