"""The last place of a walk on a circle of five places. The walk begins at place 0.

**Sequence**: begin, moves, separator, place, end. A move is 0 (back), 1 (stay) or 2 (on), independent and uniform.
**Metric**: share of exactly correct answers, including the end token.
**Chance**: the probability of the likeliest place: 1/3 at length 1, close to 1/5 at larger lengths.
**Without positions**: the counts of the three moves are enough, but the model must compute them modulo five. This is
hard, as in the task `parity`.

Source: Deletang et al. 2022, "Neural networks and the Chomsky hierarchy" (there the model outputs the answer at a
placeholder token after the input).
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.tasks.task import Chance, Recipe, Task

Array = np.ndarray[Any, Any]

_PLACES = 5


def sample(draws: Draws, length: int, count: int) -> tuple[Array, Array]:
    moves = draws.integers(3, (count, length))
    return moves, (moves - 1).sum(axis=1, keepdims=True) % _PLACES


def answer_length(length: int) -> int:
    return 1


def chance(length: int) -> Chance:
    # a random move multiplies the k-th Fourier coefficient of the places' probabilities by (1 + 2 cos(2 pi k / 5)) / 3
    angles = 2 * np.pi * np.arange(_PLACES) / _PLACES
    waves = ((1 + 2 * np.cos(angles)) / 3) ** length
    likeliest = float(max(np.mean(waves * np.cos(place * angles)) for place in range(_PLACES)))
    return Chance(likeliest, likeliest)


TASK = Task(
    kind="answer",
    summary="where a walk on a circle of five places ends",
    symbols=_PLACES,
    source="Deletang et al. 2022, Neural networks and the Chomsky hierarchy",
    recipe=Recipe({"epochs": 24}, "rope", solved=10, seconds=8.5),
)
