"""What followed the last time that this symbol was there?

**Sequence**: begin, symbols, independent and uniform. Beside each that was there before stands the symbol that followed
its last occurrence; beside the others, nothing. Inputs without any such symbol are drawn anew.
**Metric**: share of sequences whose labels are all right; share of right labels.
**Chance**: 1/S for a label.
**Without positions**: a causal model can count; without a mask and without a position signal it cannot tell what
followed. Two layers solve it, with one head each; one layer needs a width that grows with the number of symbols.

**Options**
- `symbols`: how many there are.

Source: Sanford, Hsu and Telgarsky 2024, "One-layer transformers fail to solve the induction heads task"; Olsson et al.
2022, "In-context learning and induction heads".
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Task

Array = np.ndarray[Any, Any]

_NONE = -1


def sample(draws: Draws, length: int, count: int, *, symbols: int) -> tuple[Array, Array]:
    inputs = draws.until(
        lambda own: own.integers(symbols, (count, length)),
        lambda rows: (np.diff(np.sort(rows, axis=1), axis=1) == 0).any(axis=1),
    )
    answers = np.full(inputs.shape, _NONE)
    followed = np.full((count, symbols), _NONE)  # what came after the last of each symbol
    rows = np.arange(count)
    for place in range(length):
        if place:
            followed[rows, inputs[:, place - 1]] = inputs[:, place]
        answers[:, place] = followed[rows, inputs[:, place]]
    return inputs, answers


def chance(length: int, *, symbols: int) -> Chance:
    return Chance(1 / symbols, None)


TASK = Task(
    kind="labels",
    summary="what followed this symbol the last time",
    symbols=lambda symbols: symbols,
    lengths=Lengths(least=2),
    options={"symbols": Option(16, "how many there are", int, minimum=2, maximum=2**16)},
    source="Sanford, Hsu and Telgarsky 2024, One-layer transformers fail to solve the induction heads task",
)
