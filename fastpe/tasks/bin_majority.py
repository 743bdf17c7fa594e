"""The bit that occurs more often.

**Sequence**: begin, bits, separator, bit, end. The number of zeros is uniform over 0 .. N; it is drawn again if both
bits occur equally often.
**Metric**: share of exact answers, including the end.
**Chance**: 1/2.
**Without positions**: solvable by a causal model: averaging attention is enough, and one layer with one head of width
16 suffices. A model without a mask can answer with the right bit, but not with the end after it, because the blanks of
an answer are indistinguishable.

Source: Huang et al. 2024, "A formal framework for understanding length generalization in transformers".
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.tasks.task import Chance, Task

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
)
