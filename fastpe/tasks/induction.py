"""For each symbol, the symbol that followed the previous occurrence of the same symbol.

**Sequence**: begin, symbols. Symbols are independent and uniform. If a symbol occurred before, its label is the symbol
that followed its previous occurrence; other symbols have no label. Every input has at least one label.
**Metric**: share of sequences whose labels are all correct; share of correct labels.
**Chance**: 1/S for a label, where S is the number of symbols.
**Without positions**: a causal model can count positions; a model without a mask and without a position signal cannot
tell which symbol followed another. Two layers with one head each can solve the task. One layer needs a width that grows
with the number of symbols.

**Options**
- `symbols`: S, the number of different symbols.

Source: Sanford, Hsu and Telgarsky 2024, "One-layer transformers fail to solve the induction heads task"; Olsson et al.
2022, "In-context learning and induction heads".
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Recipe, Task

Array = np.ndarray[Any, Any]

_NONE = -1


def sample(draws: Draws, length: int, count: int, *, symbols: int) -> tuple[Array, Array]:
    inputs = _inputs(draws, length, count, symbols)
    answers = np.full(inputs.shape, _NONE)
    followed = np.full((count, symbols), _NONE)  # what followed the last occurrence of each symbol
    rows = np.arange(count)
    for place in range(length):
        if place:
            followed[rows, inputs[:, place - 1]] = inputs[:, place]
        answers[:, place] = followed[rows, inputs[:, place]]
    return inputs, answers


def _inputs(draws: Draws, length: int, count: int, symbols: int) -> Array:
    """Draw inputs uniformly from all inputs with a repetition.

    The position of the first repetition is drawn first, then the symbols.
    """
    most = min(length - 1, symbols)  # the largest number of symbols before the first repetition
    places = np.arange(1, most + 1)
    differ = np.cumprod(1 - np.arange(most) / symbols)  # the probability that the first 1, 2, ... symbols differ
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
    summary="what followed this symbol at its last occurrence",
    symbols=lambda symbols: symbols,
    lengths=Lengths(least=2),
    options={"symbols": Option(16, "number of symbols", int, minimum=2, maximum=2**16)},
    source="Sanford, Hsu and Telgarsky 2024, One-layer transformers fail to solve the induction heads task",
    recipe=Recipe(
        {"train_length": 16, "task_options": {"symbols": 8}, "epochs": 12}, "sinusoidal", solved=10, seconds=4.3
    ),
)
