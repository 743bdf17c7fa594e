"""The input in ascending order, of symbols that are all different.

**Sequence**: begin, symbols, separator, the same symbols in order, end. They are drawn without replacement.
**Metric**: share of answers that are right from first to last, end included; share of right tokens.
**Chance**: one in as many as there are sets of N among S symbols for all; a token the likeliest of its place.
**Without positions**: solvable; the next is the least of those that are larger than the last.

**Options**
- `symbols`: how many there are to choose from; an input is no longer than that.

Source: Huang et al. 2024, "A formal framework for understanding length generalization in transformers".
"""

from math import comb
from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Task

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
    options={"symbols": Option(150, "how many there are to choose from", int, minimum=2, maximum=2**20)},
    source="Huang et al. 2024, A formal framework for understanding length generalization in transformers",
)
