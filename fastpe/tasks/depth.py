"""Whether a symbol is in the last of k alternating blocks.

The source calls this the language L_k. It needs k - 2 layers.

**Sequence**: begin, then k blocks of equal symbols: 0 .. 0 1 .. 1 0 .. 0 ... All ways to divide the length into k
blocks are equally likely. The label of a symbol is 1 in the k-th block, else 0.
**Metric**: share of sequences whose labels are all correct; share of correct labels.
**Chance**: the accuracy of always guessing the likelier label of each position (0 at early positions, 1 at the last).
**Without positions**: a causal model with d layers can solve the task up to k = d + 2, but not for k = d + 3.

**Options**
- `blocks`: the number of blocks, k.

Source: Yang et al. 2025, "Knee-deep in C-RASP: a transformer depth hierarchy" (trained at lengths 201 to 250, tested to
400).
"""

import math
from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Recipe, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int, *, blocks: int) -> tuple[Array, Array]:
    begins = np.zeros((count, length), np.int64)
    np.put_along_axis(begins, 1 + draws.subsets(length - 1, blocks - 1, count), 1, axis=1)
    number = np.cumsum(begins, axis=1)
    return number % 2, (number == blocks - 1).astype(np.int64)


def lengths(*, blocks: int) -> Lengths:
    return Lengths(least=blocks)


def chance(length: int, *, blocks: int) -> Chance:
    # a position is in the last block if the ends of all k - 1 other blocks are before it
    inside = [math.comb(place, blocks - 1) / math.comb(length - 1, blocks - 1) for place in range(length)]
    # the likeliest labels are those of a last block with one symbol
    return Chance(sum(max(p, 1 - p) for p in inside) / length, (blocks - 1) / (length - 1))


TASK = Task(
    kind="labels",
    summary="whether a symbol is in the last of k blocks",
    symbols=2,
    options={"blocks": Option(3, "number of blocks, k", int, minimum=2, maximum=1024)},
    source="Yang et al. 2025, Knee-deep in C-RASP: a transformer depth hierarchy",
    recipe=Recipe({"train_length": 24, "epochs": 12}, "rope", solved=10, seconds=0.94),
)
