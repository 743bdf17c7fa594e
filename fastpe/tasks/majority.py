"""The letter that there is most of, of 26.

**Sequence**: begin, letters, separator, letter, end. Letters are independent and uniform; where two are most frequent,
the input is drawn anew.
**Metric**: share of exact answers, end included.
**Chance**: 1/26.
**Without positions**: solvable by a causal model; counts are enough.
Without a mask too the symbol can be right, and never its end: all blanks of an answer look alike.

**Options**
- `letters`: how many there are.

Source: Huang et al. 2024, "A formal framework for understanding length generalization in transformers".
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int, *, letters: int) -> tuple[Array, Array]:
    inputs = draws.until(
        lambda own: own.integers(letters, (count, length)),
        lambda rows: (_counts(rows, letters) == _counts(rows, letters).max(axis=1, keepdims=True)).sum(axis=1) == 1,
    )
    return inputs, _counts(inputs, letters).argmax(axis=1)[:, None]


def _counts(rows: Array, letters: int) -> Array:
    """How often each letter is in each row, (rows, letters)."""
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
    summary="the letter that there is most of",
    options={"letters": Option(26, "how many there are", int, minimum=3, maximum=26)},
    source="Huang et al. 2024, A formal framework for understanding length generalization in transformers",
)
