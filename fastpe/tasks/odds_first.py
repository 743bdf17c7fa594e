"""The symbols at positions 2, 4, 6, ..., followed by those at 1, 3, 5, ....

**Sequence**: begin, bits, separator, the same bits in the order above, end. Bits are independent and uniform.
**Metric**: share of answers that are entirely correct, including the end token; share of correct tokens.
**Chance**: 1/2 for a token, 2^-N for an entire answer to N bits.
**Without positions**: a model without a mask and without a position signal cannot solve the task.

Source: Deletang et al. 2022, "Neural networks and the Chomsky hierarchy" (there positions count from 0, and the model
outputs the answer at placeholder tokens after the input).
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.tasks.task import Chance, Recipe, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int) -> tuple[Array, Array]:
    bits = draws.integers(2, (count, length))
    return bits, np.concatenate([bits[:, 1::2], bits[:, ::2]], axis=1)


def chance(length: int) -> Chance:
    return Chance(0.5, 2.0**-length)


TASK = Task(
    kind="answer",
    summary="every second symbol, then the others",
    symbols=2,
    source="Deletang et al. 2022, Neural networks and the Chomsky hierarchy",
    recipe=Recipe({}, "wavelet", solved=10, seconds=7.1),
)
