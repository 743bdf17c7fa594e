"""Whether a position lies within the first quarter: x_i independent N(0, 1), y_i = 1 if i - 1 < N / 4, else 0.

The answer depends only on the position and the length, so "a purely relative encoding may struggle" (Li 2025).

**Kind**: numbers, with one answer for each.
**Metric**: mean squared error, and its ratio to the error of always answering 0.
**Controls**: let q be the share of positions in the first quarter. On a constant input, a model (causal or not) whose
position signal acts only on scores has an error of at least q (1 - q), because its outputs are equal at all positions.
A model that cannot tell a sequence from its reverse has an error of at least q / 2. A causal model does not see the end
of the sequence, so it does not know the length.

Source: Li 2025, section 3.4.
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.tasks.task import Recipe, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int) -> tuple[Array, Array]:
    return draws.normal((count, length)), np.tile(squares(length), (count, 1))


def squares(length: int) -> Array:
    return (4 * np.arange(length) < length).astype(np.float64)


def reversal_bound(length: int, factors: Array) -> float:
    wanted = factors * squares(length)
    return float(np.mean((wanted - wanted[::-1]) ** 2) / 4.0)


def permutation_bound(length: int, factors: Array) -> float:
    return float(np.var(factors * squares(length)))


TASK = Task(
    kind="numbers",
    summary="1 within the first quarter, else 0",
    source="Li 2025, section 3.4",
    recipe=Recipe({"epochs": 12}, "sinusoidal", solved=10, seconds=5.2),
)
