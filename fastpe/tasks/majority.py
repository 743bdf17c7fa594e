"""The most frequent letter.

**Sequence**: begin, letters, separator, letter, end. Letters are independent and uniform. The input is drawn again if
two or more letters share the largest count.
**Metric**: share of exactly correct answers, including the end token.
**Chance**: 1 divided by the number of letters.
**Without positions**: a causal model can solve the task, because the counts of the letters are enough. A model without
a mask can output the right letter, but not the end token after it. It reads the same placeholder token at both
positions of the answer, so both outputs are equal.

**Options**
- `letters`: the number of letters.

Source: Huang et al. 2024, "A formal framework for understanding length generalization in transformers".
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Recipe, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int, *, letters: int) -> tuple[Array, Array]:
    inputs = draws.until(
        lambda own: own.integers(letters, (count, length)),
        lambda rows: (_counts(rows, letters) == _counts(rows, letters).max(axis=1, keepdims=True)).sum(axis=1) == 1,
    )
    return inputs, _counts(inputs, letters).argmax(axis=1)[:, None]


def _counts(rows: Array, letters: int) -> Array:
    """The number of occurrences of each letter in each row, (rows, letters)."""
    flat = (rows + letters * np.arange(len(rows))[:, None]).ravel()
    return np.bincount(flat, minlength=letters * len(rows)).reshape(len(rows), letters)


def symbols(*, letters: int) -> int:
    return letters


def word(symbol: int, *, letters: int) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[symbol]


def answer_length(length: int, *, letters: int) -> int:
    return 1


def chance(length: int, *, letters: int) -> Chance:
    return Chance(1 / letters, 1 / letters)


TASK = Task(
    kind="answer",
    summary="the most frequent letter",
    options={"letters": Option(26, "number of letters", int, minimum=3, maximum=26)},
    source="Huang et al. 2024, A formal framework for understanding length generalization in transformers",
    recipe=Recipe({"task_options": {"letters": 4}, "epochs": 12}, "rope", solved=10, seconds=1.7),
)
