"""A copy of the input, in which symbols may repeat.

**Sequence**: begin, symbols, separator, the same symbols, end. Symbols are independent and uniform.
**Metric**: share of answers that are entirely correct, including the end token; share of correct tokens.
**Chance**: 1/S for a token, S^-N for an entire answer. The input has N symbols.
**Without positions**: a model without a mask and without a position signal cannot solve the task. A causal model has to
count. It cannot just look up the symbol that follows the last copied symbol in the input, because that symbol may occur
several times.

**Options**
- `symbols`: S, the number of different symbols.

Source: Huang et al. 2024, "A formal framework for understanding length generalization in transformers".
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Recipe, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int, *, symbols: int) -> tuple[Array, Array]:
    inputs = draws.integers(symbols, (count, length))
    return inputs, inputs


def word(symbol: int, *, symbols: int) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[symbol]


def chance(length: int, *, symbols: int) -> Chance:
    return Chance(1 / symbols, symbols**-length)


TASK = Task(
    kind="answer",
    summary="a copy of an input whose symbols repeat",
    symbols=lambda symbols: symbols,
    options={"symbols": Option(2, "number of symbols", int, minimum=2, maximum=26)},
    source="Huang et al. 2024, A formal framework for understanding length generalization in transformers",
    recipe=Recipe({"epochs": 12}, "sinusoidal", solved=9, seconds=4.7),
)
