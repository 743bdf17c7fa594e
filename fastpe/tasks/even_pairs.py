"""Whether the last bit differs from the first: 1 if it does, else 0.

An equivalent answer: 1 if the number of pairs of different adjacent bits is odd, else 0.

**Sequence**: begin, bits, separator, bit, end. Bits are independent and uniform.
**Metric**: share of exactly correct answers, including the end token.
**Chance**: 1/2 at lengths of 2 or more; 1 at length 1.
**Without positions**: a model without a mask and without a position signal cannot solve the task. A model that can find
the first and the last bit can solve it.

Source: Deletang et al. 2022, "Neural networks and the Chomsky hierarchy" (there the model outputs the answer at a
placeholder token after the input).
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.tasks.task import Chance, Recipe, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int) -> tuple[Array, Array]:
    bits = draws.integers(2, (count, length))
    return bits, (bits[:, :1] != bits[:, -1:]).astype(np.int64)


def answer_length(length: int) -> int:
    return 1


def chance(length: int) -> Chance:
    return Chance(0.5, 0.5) if length > 1 else Chance(1.0, 1.0)


TASK = Task(
    kind="answer",
    summary="whether the last bit differs from the first",
    symbols=2,
    source="Deletang et al. 2022, Neural networks and the Chomsky hierarchy",
    recipe=Recipe({"width": 64, "lr": 0.001, "batch": 64, "samples": 6400}, "rope", solved=10, seconds=5.6),
)
