"""The bit that is missing from a word that is written twice.

**Sequence**: begin, a word of bits written twice, separator, missing bit, end. One bit of the input is missing: a 2
stands in its place. The bits of the word and the position of the 2 are independent and uniform; lengths are even.
**Metric**: share of exactly correct answers, including the end token.
**Chance**: 1/2.
**Without positions**: a word written twice has an even number of ones. So the missing bit is 1 if the number of
remaining ones is odd, else 0; a causal model can count them. A model without a mask can output the right bit, but not
the end token after it. It reads the same placeholder token at both positions of the answer, so both outputs are equal
(`fastpe.theory.tasks.limit`).

Source: Deletang et al. 2022, "Neural networks and the Chomsky hierarchy" (there odd lengths are padded, and the model
outputs the answer at a placeholder token after the input).
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.tasks.task import Chance, Lengths, Recipe, Task

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
    recipe=Recipe({"width": 64, "lr": 0.001, "batch": 64, "samples": 6400}, "rope", solved=10, seconds=35),
)
