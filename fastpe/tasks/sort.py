"""The input in ascending order; its symbols are all different.

**Sequence**: begin, symbols, separator, the same symbols in ascending order, end. Symbols are drawn without
replacement.
**Metric**: share of answers that are entirely correct, including the end token; share of correct tokens.
**Chance**: for the entire answer, 1 divided by the number of ways to choose N of S symbols; for a token, the accuracy
of always guessing the likeliest symbol at its position. N is the length.
**Without positions**: a causal model can solve the task: the next symbol of the answer is the smallest symbol of the
input that is larger than the last symbol of the answer so far.

**Options**
- `symbols`: S, the number of symbols to choose from, which is also the largest length.

Source: Huang et al. 2024, "A formal framework for understanding length generalization in transformers".
"""

from math import comb
from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Recipe, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int, *, symbols: int) -> tuple[Array, Array]:
    inputs = draws.subsets(symbols, length, count)
    return inputs, np.sort(inputs, axis=1)


def lengths(*, symbols: int) -> Lengths:
    return Lengths(most=symbols)


def chance(length: int, *, symbols: int) -> Chance:
    sets = comb(symbols, length)
    likeliest = [
        max(comb(value, place) * comb(symbols - 1 - value, length - 1 - place) for value in range(symbols)) / sets
        for place in range(length)
    ]
    return Chance(sum(likeliest) / length, 1 / sets)


TASK = Task(
    kind="answer",
    summary="the input in ascending order",
    symbols=lambda symbols: symbols,
    options={"symbols": Option(150, "number of symbols to choose from", int, minimum=2, maximum=2**20)},
    source="Huang et al. 2024, A formal framework for understanding length generalization in transformers",
    recipe=Recipe({"task_options": {"symbols": 40}, "epochs": 12}, "rope", solved=10, seconds=7.4),
)
