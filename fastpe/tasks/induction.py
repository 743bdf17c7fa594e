"""What followed the last time that this symbol was there?

**Sequence**: begin, symbols, independent and uniform. Beside each that was there before stands the symbol that followed
its last occurrence; beside the others, nothing. Of inputs without any such symbol there are none.
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
    inputs = _inputs(draws, length, count, symbols)
    answers = np.full(inputs.shape, _NONE)
    followed = np.full((count, symbols), _NONE)  # what came after the last of each symbol
    rows = np.arange(count)
    for place in range(length):
        if place:
            followed[rows, inputs[:, place - 1]] = inputs[:, place]
        answers[:, place] = followed[rows, inputs[:, place]]
    return inputs, answers


def _inputs(draws: Draws, length: int, count: int, symbols: int) -> Array:
    """Uniform among those with a repetition: where the first one stands is drawn before what stands there."""
    most = min(length - 1, symbols)  # different symbols that can come before it
    places = np.arange(1, most + 1)
    differ = np.cumprod(1 - np.arange(most) / symbols)  # the chance that the first 1, 2, ... symbols do
    level = np.cumsum(differ * places / symbols)
    place = places[np.searchsorted(level[:-1], draws.uniform((count,)) * level[-1], side="right")]
    inputs, before = draws.integers(symbols, (count, length)), draws.subsets(symbols, most, count)
    inputs[:, :most] = np.where(np.arange(most) < place[:, None], before, inputs[:, :most])
    rows = np.arange(count)
    inputs[rows, place] = before[rows, draws.integers(place, (count,))]
    return inputs


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
