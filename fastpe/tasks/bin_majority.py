"""The bit that occurs more often.

**Sequence**: begin, bits, separator, bit, end. The number of zeros is uniform over 0 .. N, where N is the length. It is
drawn again if both bits occur equally often.
**Metric**: share of exactly correct answers, including the end token.
**Chance**: 1/2.
**Without positions**: a causal model can solve the task with uniform attention; one layer with one head and width 16 is
enough. A model without a mask can output the right bit, but not the end token after it. It reads the same placeholder
token at both positions of the answer, so both outputs are equal.

Source: Huang et al. 2024, "A formal framework for understanding length generalization in transformers".
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.tasks.task import Chance, Recipe, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int) -> tuple[Array, Array]:
    zeros = draws.until(lambda own: own.integers(length + 1, (count,)), lambda zeros: np.asarray(2 * zeros != length))
    bits = (draws.orders(count, length) >= zeros[:, None]).astype(np.int64)
    return bits, (2 * zeros < length).astype(np.int64)[:, None]


def answer_length(length: int) -> int:
    return 1


def chance(length: int) -> Chance:
    return Chance(0.5, 0.5)


TASK = Task(
    kind="answer",
    summary="the bit that occurs more often",
    symbols=2,
    source="Huang et al. 2024, A formal framework for understanding length generalization in transformers",
    recipe=Recipe({"epochs": 12}, "rope", solved=10, seconds=0.73),
)
