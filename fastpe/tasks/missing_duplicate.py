"""The bit that is missing from a word that is written twice.

**Sequence**: begin, a word of bits twice, with one of all these bits replaced by 2, separator, the replaced bit, end.
Bits and the replaced position are independent and uniform; lengths are even.
**Metric**: share of exact answers, including the end.
**Chance**: 1/2.
**Without positions**: a word written twice has an even number of ones. So the missing bit is 1 if the number of
remaining ones is odd, and a model that counts finds the bit. Without a mask the blanks of an answer are
indistinguishable, so the end cannot be predicted and no answer is exact (`fastpe.theory.tasks.limit`).

Source: Deletang et al. 2022, "Neural networks and the Chomsky hierarchy" (there odd lengths are padded, and the answer
is read at an empty token).
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.tasks.task import Chance, Lengths, Task

Array = np.ndarray[Any, Any]

_MISSING = 2


def sample(draws: Draws, length: int, count: int) -> tuple[Array, Array]:
    inputs = np.tile(draws.integers(2, (count, length // 2)), 2)
    place = draws.integers(length, (count, 1))
    answers = np.take_along_axis(inputs, place, axis=1)
    np.put_along_axis(inputs, place, _MISSING, axis=1)
    return inputs, answers


def answer_length(length: int) -> int:
    return 1


def chance(length: int) -> Chance:
    return Chance(0.5, 0.5)


TASK = Task(
    kind="answer",
    summary="the bit missing from a word that is written twice",
    symbols=3,
    lengths=Lengths(least=2, step=2),
    source="Deletang et al. 2022, Neural networks and the Chomsky hierarchy",
)
