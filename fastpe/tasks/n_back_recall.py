"""The value that a key had N assignments ago.

The source calls this multi-query repeated associative recall with N-back (MQRAR-N).

**Sequence**: begin, pairs of a key and its new value. Keys and values are independent and uniform. The label of a key
is the value of its N-th last assignment before this one; other tokens have no label.
**Metric**: share of sequences whose labels are all correct; share of correct labels.
**Chance**: 1/V for a label, where V is the number of values.
**Shortcut**: any earlier value of the same key.
**Without positions**: N = 1 asks for the most recent value of the key, which a decay by distance finds. For larger N, a
model must count the assignments of a key.

**Options**
- `back`: N.
- `keys`: the number of different keys.
- `values`: V, the number of different values.

Source: Yang et al. 2025, "PaTH attention: position encoding via accumulating Householder transformations" (there with
32 keys, 768 tokens, and N from 1 to 4).
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Task

Array = np.ndarray[Any, Any]

_NONE = -1


def sample(draws: Draws, length: int, count: int, *, back: int, keys: int, values: int) -> tuple[Array, Array]:
    pairs, rows = length // 2, np.arange(count)
    key, value = draws.integers(keys, (count, pairs)), draws.integers(values, (count, pairs)) + keys
    inputs, answers = np.empty((count, length), np.int64), np.full((count, length), _NONE)
    inputs[:, ::2], inputs[:, 1::2] = key, value
    last = np.full((count, keys, back), _NONE)  # the last values of each key, the oldest first
    for place in range(pairs):
        own = last[rows, key[:, place]]
        answers[:, 2 * place] = own[:, 0]
        last[rows, key[:, place]] = np.concatenate([own[:, 1:], value[:, place, None]], axis=1)
    return inputs, answers


def symbols(*, back: int, keys: int, values: int) -> int:
    return keys + values


def lengths(*, back: int, keys: int, values: int) -> Lengths:
    return Lengths(least=2 * (keys * back + 1), step=2)  # then one of the keys has a label


def word(symbol: int, *, back: int, keys: int, values: int) -> str:
    if symbol >= keys:
        return str(symbol - keys)
    return "abcdefghijklmnopqrstuvwxyz"[symbol] if keys <= 26 else f"k{symbol}"


def chance(length: int, *, back: int, keys: int, values: int) -> Chance:
    return Chance(1 / values, None)


def shortcuts(length: int, *, back: int, keys: int, values: int) -> dict[str, Chance]:
    # the number of earlier assignments of a key is binomial; a label exists from N on
    share, asked, right = np.ones(1), 0.0, 0.0
    for _ in range(length // 2):
        before = np.arange(back, len(share))
        asked += share[back:].sum()
        right += (share[back:] * (1 / before + (1 - 1 / before) / values)).sum()
        share = np.append(share * (1 - 1 / keys), 0.0) + np.append(0.0, share / keys)
    return {"any earlier value of the key": Chance(float(right / asked), None)}


TASK = Task(
    kind="labels",
    summary="the value that a key had N assignments ago",
    symbols=symbols,
    options={
        "back": Option(2, "how many assignments ago, N", int, minimum=1, maximum=64),
        "keys": Option(4, "number of keys", int, minimum=1, maximum=2**16),
        "values": Option(8, "number of values", int, minimum=2, maximum=2**16),
    },
    source="Yang et al. 2025, PaTH attention: position encoding via accumulating Householder transformations",
)
