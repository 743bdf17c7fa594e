"""The input again, of few symbols that repeat.

**Sequence**: begin, symbols, separator, the same symbols, end. They are independent and uniform.
**Metric**: share of answers that are right from first to last, end included; share of right tokens.
**Chance**: 1/S for a token of S symbols, S^-N for all.
**Without positions**: a model without a mask and without a position signal cannot. A causal one has to count: looking
for what followed the last symbol, which is enough where none repeats, finds too many places.

**Options**
- `symbols`: how many there are.

Source: Huang et al. 2024, "A formal framework for understanding length generalization in transformers".
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Task

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
    summary="the input again, of symbols that repeat",
    symbols=lambda symbols: symbols,
    options={"symbols": Option(2, "how many there are", int, minimum=2, maximum=26)},
    source="Huang et al. 2024, A formal framework for understanding length generalization in transformers",
)
