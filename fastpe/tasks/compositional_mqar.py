"""Associative recall with keys of two parts, neither of which determines the value.

**Sequence**: begin, then for each key of a grid of g x g keys, in random order: its first part, its second part, its
value. The other tokens are zeros, except that every key occurs once more, followed by a zero, at a random place. The
label of the second part of a repeated key is its value; other tokens have no label. First parts, second parts and
values are separate sets of V/3 symbols; the g first parts, the g second parts and the values are all different.
**Metric**: share of sequences whose labels are all correct; share of correct labels.
**Chance**: 3/V for a label, where V is the number of tokens.
**Shortcuts**: any value of the input, and any value of a key with the same first part.
**Without positions**: as in the task `mqar`, but the first layers must join the two tokens of a key.

**Options**
- `grid`: g.
- `vocabulary`: V, the number of different tokens.

Source: Arora et al. 2023, "Zoology: measuring and improving recall in efficient language models", task
`compositional_mqar` of its code (there with V = 8192).
"""

import math
from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Task

Array = np.ndarray[Any, Any]

_NONE = -1


def sample(draws: Draws, length: int, count: int, *, grid: int, vocabulary: int) -> tuple[Array, Array]:
    third, pairs = vocabulary // 3, grid * grid
    first, second = draws.subsets(third - 1, grid, count) + 1, draws.subsets(third, grid, count) + third
    values = draws.subsets(vocabulary - 2 * third, pairs, count) + 2 * third
    order = draws.orders(count, pairs)
    keys = np.stack([np.take_along_axis(first, order // grid, 1), np.take_along_axis(second, order % grid, 1)], axis=2)
    triples = np.zeros((count, length // 3, 3), np.int64)
    triples[:, :pairs, :2], triples[:, :pairs, 2] = keys, values
    places = pairs + draws.subsets(length // 3 - pairs, pairs, count)
    np.put_along_axis(triples[:, :, :2], places[:, :, None], keys, axis=1)
    answers = np.full(triples.shape, _NONE)
    np.put_along_axis(answers[:, :, 1], places, values, axis=1)
    return triples.reshape(count, length), answers.reshape(count, length)


def symbols(*, grid: int, vocabulary: int) -> int:
    least = max(3 * grid * grid, 3 * grid + 3)
    if vocabulary < least:
        raise ValueError(f"option 'vocabulary' must be at least {least} for this grid, not {vocabulary}")
    return vocabulary


def lengths(*, grid: int, vocabulary: int) -> Lengths:
    return Lengths(least=6 * grid * grid, step=3)


def chance(length: int, *, grid: int, vocabulary: int) -> Chance:
    values = vocabulary - 2 * (vocabulary // 3)
    return Chance(1 / values, 1 / math.perm(values, grid * grid))


def shortcuts(length: int, *, grid: int, vocabulary: int) -> dict[str, Chance]:
    pairs = grid * grid
    return {
        "any value of the input": Chance(1 / pairs, 1 / math.factorial(pairs)),
        "any value of a key with the same first part": Chance(1 / grid, math.factorial(grid) ** -float(grid)),
    }


TASK = Task(
    kind="labels",
    summary="recall of the values of keys of two parts",
    symbols=symbols,
    options={
        "grid": Option(2, "number of first parts, and of second parts", int, minimum=1, maximum=64),
        "vocabulary": Option(60, "number of tokens, V", int, minimum=6, maximum=2**20, samples=(31, 64)),
    },
    source="Arora et al. 2023, Zoology: measuring and improving recall in efficient language models",
)
