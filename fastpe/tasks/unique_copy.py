"""A copy of the input, whose symbols are all different.

**Sequence**: begin, symbols, separator, the same symbols, end. Symbols are drawn without replacement.
**Metric**: share of answers that are entirely correct, including the end; share of correct tokens.
**Chance**: 1/S for a token of S symbols, (S - N)! / S! for all.
**Without positions**: a causal model with two layers solves the task; the second layer looks up what followed the last
symbol. A model without a mask and without a position signal cannot, because the blanks are indistinguishable.

**Options**
- `symbols`: S, the number of symbols to choose from; an input cannot be longer.

Source: Huang et al. 2024, "A formal framework for understanding length generalization in transformers".
"""

import math
from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int, *, symbols: int) -> tuple[Array, Array]:
    inputs = draws.subsets(symbols, length, count)
    return inputs, inputs


def lengths(*, symbols: int) -> Lengths:
    return Lengths(most=symbols)


def chance(length: int, *, symbols: int) -> Chance:
    return Chance(1 / symbols, 1 / math.perm(symbols, length))


TASK = Task(
    kind="answer",
    summary="a copy of an input whose symbols are all different",
    symbols=lambda symbols: symbols,
    options={"symbols": Option(150, "number of symbols to choose from", int, minimum=2, maximum=2**20)},
    source="Huang et al. 2024, A formal framework for understanding length generalization in transformers",
)
