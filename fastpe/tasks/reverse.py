"""The input from its end to its beginning.

**Sequence**: begin, symbols, separator, the same symbols backwards, end. Symbols are independent and uniform.
**Metric**: share of answers that are entirely correct, including the end token; share of correct tokens.
**Chance**: 1/S for a token, S^-N for an entire answer. The input has N symbols.
**Without positions**: a model without a mask and without a position signal cannot solve the task.

**Options**
- `symbols`: S, the number of different symbols.

Source: Deletang et al. 2022, "Neural networks and the Chomsky hierarchy" (there the model outputs the answer at
placeholder tokens after the input).
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Recipe, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int, *, symbols: int) -> tuple[Array, Array]:
    inputs = draws.integers(symbols, (count, length))
    return inputs, inputs[:, ::-1]


def chance(length: int, *, symbols: int) -> Chance:
    return Chance(1 / symbols, symbols**-length)


TASK = Task(
    kind="answer",
    summary="the input from end to beginning",
    symbols=lambda symbols: symbols,
    options={"symbols": Option(2, "number of symbols", int, minimum=2, maximum=2**20)},
    source="Deletang et al. 2022, Neural networks and the Chomsky hierarchy",
    recipe=Recipe({"epochs": 12}, "sinusoidal", solved=9, seconds=4.7),
)
