"""A copy of the input, whose symbols are all different.

**Sequence**: begin, symbols, separator, the same symbols, end. Symbols are drawn without replacement.
**Metric**: share of answers that are entirely correct, including the end token; share of correct tokens.
**Chance**: 1/S for a token, (S - N)! / S! for an entire answer. N is the length.
**Without positions**: a causal model with two layers can solve the task. The second layer looks up the symbol that
follows the last copied symbol in the input. A model without a mask cannot solve it: it reads the same placeholder token
at all positions of the answer, so its outputs there are equal.

**Options**
- `symbols`: S, the number of symbols to choose from, which is also the largest length.

Source: Huang et al. 2024, "A formal framework for understanding length generalization in transformers".
"""

import math
from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Recipe, Task

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
    recipe=Recipe({"task_options": {"symbols": 40}}, "rope", solved=10, seconds=19),
)
