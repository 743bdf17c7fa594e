"""Whether the number of ones is even (0) or odd (1).

**Sequence**: begin, bits, separator, bit, end. The number of ones is uniform over 0 .. N, where N is the length.
**Metric**: share of exactly correct answers, including the end token.
**Chance**: (N/2 + 1) / (N + 1) for an even length N, and 1/2 for an odd length.
**Without positions**: hard for every transformer. Training does not find the known constructions, and no trained model
is known to solve the task at lengths beyond those of training.

Source: Huang et al. 2024, "A formal framework for understanding length generalization in transformers"; Hahn 2020,
"Theoretical limitations of self-attention in neural sequence models".
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.tasks.task import Chance, Recipe, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int) -> tuple[Array, Array]:
    ones = draws.integers(length + 1, (count, 1))
    return (draws.orders(count, length) < ones).astype(np.int64), ones % 2


def answer_length(length: int) -> int:
    return 1


def chance(length: int) -> Chance:
    even = (length // 2 + 1) / (length + 1)
    return Chance(max(even, 1 - even), max(even, 1 - even))


TASK = Task(
    kind="answer",
    summary="whether the number of ones is odd",
    symbols=2,
    source="Huang et al. 2024, A formal framework for understanding length generalization in transformers",
    recipe=Recipe({"width": 64, "lr": 0.001, "batch": 64, "samples": 6400}, "alibi", solved=9, seconds=76),
)
