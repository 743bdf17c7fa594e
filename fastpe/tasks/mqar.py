"""Associative recall of several pairs: the value that belongs to a key.

**Sequence**: begin, pairs of a key and its value, then zeros. Each key occurs once more, in place of one of the zeros.
The label of a repeated key is its value; other tokens have no label. Keys are in 1 .. V/2 - 1 and values in V/2 .. V -
1; all are different. With `updates`, some of the keys have a second pair, after those of all keys, with another value;
their label is this value (forgetting). A key with the gap g = 1, 2, ... occurs again 2 g positions after the key of the
last pair. Gaps are drawn without replacement. The probability of a gap g is proportional to g^(power - 1), so short
gaps are frequent.
**Metric**: share of sequences whose labels are all correct; share of correct labels.
**Chance**: 2/V for a label, where V is the number of tokens.
**Shortcuts**: any value of the input; with `updates`, the first value of the key.
**Without positions**: a model without a mask and without a position signal cannot tell which value follows a key. Two
layers of attention solve the task: the first looks one position back, and the second looks for equal keys. One layer
cannot solve it.

**Options**
- `pairs`: the number of pairs of a key and a value.
- `vocabulary`: V, the number of different tokens.
- `power`: the exponent of the distribution of gaps.
- `updates`: the number of keys that get another value.

Source: Arora et al. 2023, "Zoology: measuring and improving recall in efficient language models" (there with 4 pairs at
length 64, 8 at 128, 16 at 256, and 64 at 512; the updates are those of its task `forgetting_mqar`).
"""

import math
from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Recipe, Task

Array = np.ndarray[Any, Any]

_NONE = -1


def sample(
    draws: Draws, length: int, count: int, *, pairs: int, vocabulary: int, power: float, updates: int
) -> tuple[Array, Array]:
    half = vocabulary // 2
    keys = 1 + draws.subsets(half - 1, pairs, count)
    values = half + draws.subsets(vocabulary - half, pairs + updates, count)
    room = length // 2 - pairs - updates
    gaps = draws.subsets(room, pairs, count, weights=np.arange(1.0, room + 1.0) ** (power - 1.0))
    inputs, answers = np.zeros((count, length), np.int64), np.full((count, length), _NONE)
    inputs[:, : 2 * pairs : 2], inputs[:, 1 : 2 * pairs : 2] = keys, values[:, :pairs]
    if updates:
        again, new = draws.subsets(pairs, updates, count), values[:, pairs:]
        inputs[:, 2 * pairs : 2 * (pairs + updates) : 2] = np.take_along_axis(keys, again, axis=1)
        inputs[:, 2 * pairs + 1 : 2 * (pairs + updates) : 2] = new
        np.put_along_axis(values, again, new, axis=1)
        values = values[:, :pairs]
    places = 2 * (pairs + updates + gaps)
    np.put_along_axis(inputs, places, keys, axis=1)
    np.put_along_axis(answers, places, values, axis=1)
    return inputs, answers


def symbols(*, pairs: int, vocabulary: int, power: float, updates: int) -> int:
    if updates > pairs:
        raise ValueError(f"option 'updates' must be at most 'pairs', {pairs}, not {updates}")
    if vocabulary < 2 * pairs + 2:
        raise ValueError(f"option 'vocabulary' must be at least 2 * pairs + 2, {2 * pairs + 2}, not {vocabulary}")
    if vocabulary - vocabulary // 2 < pairs + updates:
        least = 2 * (pairs + updates)
        raise ValueError(f"option 'vocabulary' must be at least 2 * (pairs + updates), {least}, not {vocabulary}")
    return vocabulary


def lengths(*, pairs: int, vocabulary: int, power: float, updates: int) -> Lengths:
    return Lengths(least=4 * pairs + 2 * updates, step=2)


def chance(length: int, *, pairs: int, vocabulary: int, power: float, updates: int) -> Chance:
    values = vocabulary - vocabulary // 2
    return Chance(1 / values, 1 / math.perm(values, pairs))


def shortcuts(length: int, *, pairs: int, vocabulary: int, power: float, updates: int) -> dict[str, Chance]:
    written = pairs + updates
    found = {"any value of the input": Chance(1 / written, 1 / math.perm(written, pairs))}
    if updates:
        found["the first value of the key"] = Chance(1 - updates / pairs, 0.0)
    return found


TASK = Task(
    kind="labels",
    summary="recall of the values of several keys",
    options={
        "pairs": Option(4, "number of pairs of a key and a value", int, minimum=1, maximum=2**16),
        "vocabulary": Option(8192, "number of tokens, V", int, minimum=4, maximum=2**20, samples=(19, 64)),
        "power": Option(0.01, "exponent of the distribution of gaps: 1 is uniform", float, above=0.0, maximum=1.0),
        "updates": Option(0, "number of keys that get another value", int, minimum=0, maximum=2**16),
    },
    source="Arora et al. 2023, Zoology: measuring and improving recall in efficient language models",
    recipe=Recipe(
        {"train_length": 16, "task_options": {"pairs": 2, "vocabulary": 32}, "width": 64, "lr": 0.001},
        "rope",
        solved=10,
        seconds=26,
    ),
)
