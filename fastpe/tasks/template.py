"""Every symbol twice: `a b` becomes `a a b b`.

**Sequence**: begin, symbols, separator, every symbol twice, end. Symbols are independent and uniform.
**Chance**: 1/S for a token, S^-N for an entire answer. The input has N symbols.

**Options**
- `symbols`: S, the number of different symbols.

Source: own construction.
"""

import numpy as np

import fastpe
from fastpe.tasks import Chance, Task


def sample(draws, length, count, *, symbols):
    inputs = draws.integers(symbols, (count, length))
    return inputs, np.repeat(inputs, 2, axis=1)


def answer_length(length, *, symbols):
    return 2 * length


def chance(length, *, symbols):
    return Chance(1 / symbols, symbols**-length)


TASK = Task(
    kind="answer",
    summary="every symbol twice",
    symbols=lambda symbols: symbols,
    options={"symbols": fastpe.Option(4, "number of symbols", int, minimum=2, maximum=26)},
    source="an own construction",
)
