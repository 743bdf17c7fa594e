"""The mean of the numbers so far: x_i independent N(0, 1), y_i = (x_1 + ... + x_i) / i.

A model without a mask must know which tokens precede a position, and how many. A causal model only needs to average the
numbers.

**Kind**: numbers, with one answer for each.
**Metric**: mean squared error, and its ratio to the error of always answering 0.
**Controls**: a model that cannot tell a sequence from its reverse has an error of at least
(1/N) sum_i (1/i + 1/(N+1-i) - 2/(i(N+1-i))) / 4. A model that does not know the order at all has an error of at least
H/N (1 - H/N) - (1 - H/N)^2 / (N - 1), where H is the N-th harmonic number.

Source: the running sums of Li 2025, section 7, here divided by the number of terms.
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.tasks import running_sum
from fastpe.tasks.task import Recipe, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int) -> tuple[Array, Array]:
    x, sums = running_sum.sample(draws, length, count)
    return x, sums / np.arange(1.0, length + 1.0)


def squares(length: int) -> Array:
    return 1.0 / np.arange(1.0, length + 1.0)


def reversal_bound(length: int, factors: Array) -> float:
    return running_sum.reversal_bound(length, factors * squares(length))


def permutation_bound(length: int, factors: Array) -> float:
    return running_sum.permutation_bound(length, factors * squares(length))


TASK = Task(
    kind="numbers",
    summary="the mean of the numbers so far",
    source="Li 2025, section 7, divided by the number of terms",
    recipe=Recipe({"epochs": 12}, "sinusoidal", solved=10, seconds=4.6),
)
