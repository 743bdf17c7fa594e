"""The value that a key has in this sequence, among pairs that repeat.

**Sequence**: begin, pairs of a key and its value, and one more key. Keys are independent and uniform in 0 .. V/2 - 1;
for each sequence, every key has a uniform value in V/2 .. V - 1. The last key is that of an earlier pair. The label of
a key that occurred before is its value; other tokens have no label. With `noise`, a pair is replaced by two noise
symbols with this probability, unless all pairs would be.
**Metric**: share of sequences whose labels are all correct; share of correct labels.
**Chance**: 2/V for a label.
**Shortcut**: the value of any earlier pair.
**Made for causal models**: the token after a key reveals the label.
**Without positions**: two layers can solve the task, as in `induction`. A causal model needs no encoding for it.

**Options**
- `vocabulary`: V, the number of keys and values.
- `noise`: the probability of a pair of noise; 0.2 in the source's noisy recall.
- `noise_symbols`: the number of different noise symbols.

Source: Poli et al. 2024, "Mechanistic design and scaling of hybrid architectures" (MAD; there with 128 tokens, V = 16,
and training on all next tokens).
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Task

Array = np.ndarray[Any, Any]

_NONE = -1


def sample(
    draws: Draws, length: int, count: int, *, vocabulary: int, noise: float, noise_symbols: int
) -> tuple[Array, Array]:
    half, pairs, rows = vocabulary // 2, length // 2, np.arange(count)
    keys, mapped = draws.integers(half, (count, pairs)), draws.integers(vocabulary - half, (count, half)) + half
    noisy = draws.uniform((count, pairs)) < noise
    noisy[:, 0] &= ~noisy.all(axis=1)
    last = np.argmax(np.where(noisy, 0.0, draws.uniform((count, pairs))), axis=1)
    keys = np.append(keys, keys[rows, last][:, None], axis=1)
    values = np.take_along_axis(mapped, keys, axis=1)
    real = np.append(~noisy, np.ones((count, 1), bool), axis=1)
    inputs, answers = np.empty((count, length + 1), np.int64), np.full((count, length + 1), _NONE)
    others = vocabulary + draws.integers(noise_symbols, (count, pairs + 1, 2))
    inputs[:, ::2], inputs[:, 1::2] = np.where(real, keys, others[:, :, 0]), np.where(real, values, others[:, :, 1])
    seen = np.zeros((count, half), bool)
    for place in range(pairs + 1):
        key = keys[:, place]
        answers[:, 2 * place] = np.where(seen[rows, key] & real[:, place], values[:, place], _NONE)
        seen[rows, key] |= real[:, place]
    return inputs[:, :length], answers[:, :length]


def symbols(*, vocabulary: int, noise: float, noise_symbols: int) -> int:
    return vocabulary + (noise_symbols if noise else 0)


def chance(length: int, *, vocabulary: int, noise: float, noise_symbols: int) -> Chance:
    return Chance(1 / (vocabulary - vocabulary // 2), None)


def shortcuts(length: int, *, vocabulary: int, noise: float, noise_symbols: int) -> dict[str, Chance]:
    half, pairs = vocabulary // 2, length // 2
    before = np.arange(pairs)
    # of r earlier pairs, a share 1/half has the key; it has a label if one of them has it
    own = (1 - noise) * (1 - noise**before) / half
    asked = (1 - noise) * (1 - (1 - (1 - noise) / half) ** before)
    # the last key is that of one of the earlier pairs, and another pair has it with the probability 1/half
    share = np.ones(1)
    for _ in range(pairs):
        share = np.append(share * noise, 0.0) + np.append(0.0, share * (1 - noise))
    share[1] += share[0]
    same = float((share[1:] / np.arange(1, pairs + 1)).sum())
    same += (1 - same) / half
    guess = 1 / (vocabulary - half)
    right = own.sum() + same + (asked.sum() + 1 - own.sum() - same) * guess
    return {"the value of any earlier pair": Chance(float(right / (asked.sum() + 1)), None)}


TASK = Task(
    kind="labels",
    summary="the value of a key, among pairs that repeat",
    symbols=symbols,
    causal=True,
    lengths=Lengths(least=3, step=2),
    options={
        "vocabulary": Option(16, "number of keys and values, V", int, minimum=4, maximum=2**20),
        "noise": Option(0.0, "probability of a pair of noise", float, minimum=0.0, maximum=0.9, samples=(0.2, 0.9)),
        "noise_symbols": Option(16, "number of noise symbols", int, minimum=1, maximum=2**16),
    },
    source="Poli et al. 2024, Mechanistic design and scaling of hybrid architectures",
)
