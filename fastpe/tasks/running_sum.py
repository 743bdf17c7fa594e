"""The sum of the numbers so far: x_i independent N(0, 1), y_i = x_1 + ... + x_i.

A model without a mask must tell left from right; a causal model must count, because softmax gives means, not sums.

**Kind**: numbers, with one answer for each.
**Metric**: mean squared error, and its ratio to (N + 1) / 2, the error of always answering 0.
**Controls**: a model that cannot tell a sequence from its reverse has an error of at least (N - 1) / 4. The same bound
holds for a model that does not know the order at all.

Source: Li 2025, section 7.1.
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.tasks.task import Recipe, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int) -> tuple[Array, Array]:
    x = draws.normal((count, length))
    return x, np.cumsum(x, axis=1)


def squares(length: int) -> Array:
    return np.arange(1.0, length + 1.0)


def reversal_bound(length: int, factors: Array) -> float:
    # The answer at i must serve as the prefix sum P_i and, mirrored, as the suffix sum S_i; their mean is best. Their
    # difference, times the factors f_i and f_{N+1-i}, has variance f_i^2 i + f_{N+1-i}^2 (N+1-i) - 2 f_i f_{N+1-i},
    # because they share only x_i.
    places, mirrored = squares(length), factors[::-1]
    variances = factors**2 * places + mirrored**2 * places[::-1] - 2.0 * factors * mirrored
    return float(np.mean(variances) / 4.0)


def permutation_bound(length: int, factors: Array) -> float:
    # The target of a token at an unknown position p has f_p times the token's own number, and with probability
    # (p-1) / (N-1) also f_p times any other number. The best answer uses the means of these factors over p.
    places = squares(length)
    before = float(np.mean(factors * (places - 1.0)))
    return float(np.mean(factors**2 * places) - np.mean(factors) ** 2 - before**2 / max(length - 1, 1))


TASK = Task(
    kind="numbers",
    summary="the sum of the numbers so far",
    source="Li 2025, section 7.1",
    recipe=Recipe({"epochs": 12}, "sinusoidal", solved=10, seconds=4.9),
)
