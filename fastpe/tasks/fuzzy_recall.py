"""Recall of values by keys, both of several tokens.

**Sequence**: begin, padding, pairs of a key and its value, and the last pair without the last token of its value. Each
sequence has a list of different keys with their values; pairs are drawn from it uniformly, and the last pair is one of
the earlier pairs. A key has 1 to `size` different symbols of 0 .. V/2 - 1, a value 1 to `size` different symbols of V/2
.. V - 1; all sizes are equally likely. If a key occurred before, its last token has the first token of its value as the
label, and each token of its value the next one; other tokens have no label.
**Metric**: share of sequences whose labels are all correct; share of correct labels.
**Chance**: 2/V for a label.
**Shortcut**: the value of any key of the list.
**Made for causal models**: the token after a key reveals the label.
**Without positions**: as in `in_context_recall`, but the first layers must join the tokens of a key.

**Options**
- `vocabulary`: V, the number of symbols of keys and values.
- `size`: the largest number of tokens of a key and of a value.
- `sizes`: "any", or only the "largest".
- `keys`: the number of keys of a sequence.

Source: Poli et al. 2024, "Mechanistic design and scaling of hybrid architectures" (MAD; there keys are drawn from all
possible ones, V = 16, size = 3, and tests have the largest size only: `fastpe evaluate RUN --test largest`).
"""

import math
from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Task

Array = np.ndarray[Any, Any]

_NONE = -1


def sample(
    draws: Draws, length: int, count: int, *, vocabulary: int, size: int, sizes: str, keys: int
) -> tuple[Array, Array]:
    half, rows = vocabulary // 2, np.arange(count)
    listed = draws.until(
        lambda own: _words(own, count, keys, half, size, sizes), lambda words: _all_different(words, half)
    )
    values = _words(draws, count, keys, vocabulary - half, size, sizes)
    listed = np.concatenate([listed, np.where(values == _NONE, _NONE, values + half)], axis=2)
    # pairs from the last to the first, as many as fit beside the longest last pair
    most = length // 2
    pairs = draws.integers(keys, (count, most))
    tokens = np.take_along_axis(listed, pairs[:, :, None], axis=1)
    fit = np.cumsum((tokens != _NONE).sum(axis=2), axis=1) <= length - (2 * size - 1)
    last = pairs[rows, draws.integers(fit.sum(axis=1, keepdims=True), (count, 1))[:, 0]]
    pairs = np.append(pairs[:, ::-1], last[:, None], axis=1)
    tokens = np.append(np.where(fit[:, :, None], tokens, _NONE)[:, ::-1], listed[rows, last][:, None], axis=1)
    labels = _labels(tokens, pairs, size)
    end = (tokens[:, -1] != _NONE).sum(axis=1) - (tokens[:, -1, :size] != _NONE).sum(axis=1)
    tokens[rows, -1, size + end - 1] = _NONE  # the last token of the last value
    # padding first, then the tokens in their order
    tokens, labels = tokens.reshape(count, -1), labels.reshape(count, -1)
    order = np.argsort(tokens != _NONE, axis=1, kind="stable")[:, -length:]
    tokens, labels = (np.take_along_axis(each, order, axis=1) for each in (tokens, labels))
    return np.where(tokens == _NONE, vocabulary, tokens), np.where(tokens == _NONE, _NONE, labels)


def _words(draws: Draws, count: int, keys: int, half: int, size: int, sizes: str) -> Array:
    """Words of different symbols, -1 after their ends, (count, keys, size)."""
    symbols = np.argsort(draws.uniform((count, keys, half)), axis=2, kind="stable")[:, :, :size]
    long = draws.integers(size, (count, keys, 1)) + 1 if sizes == "any" else size
    return np.where(np.arange(size) < long, symbols, _NONE)


def _all_different(words: Array, half: int) -> Array:
    same = (words[:, :, None] == words[:, None, :]).all(axis=3)
    return np.asarray(same.sum(axis=(1, 2)) == words.shape[1])


def _labels(tokens: Array, pairs: Array, size: int) -> Array:
    """The next token of the value, for tokens of pairs that occurred before; (count, pairs, 2 size)."""
    rows, seen = np.arange(len(tokens)), np.zeros((len(tokens), pairs.max() + 1), bool)
    again = np.zeros(pairs.shape, bool)
    for place in range(pairs.shape[1]):
        here, key = tokens[:, place, 0] != _NONE, pairs[:, place]
        again[:, place] = seen[rows, key] & here
        seen[rows, key] |= here
    found = np.full(tokens.shape, _NONE)
    found[:, :, size:-1] = tokens[:, :, size + 1 :]
    at = (tokens[:, :, :size] != _NONE).sum(axis=2) - 1
    np.put_along_axis(found, np.maximum(at, 0)[:, :, None], tokens[:, :, size, None], axis=2)
    return np.where(again[:, :, None], found, _NONE)


def symbols(*, vocabulary: int, size: int, sizes: str, keys: int) -> int:
    half = vocabulary // 2
    if size > half:
        raise ValueError(f"option 'size' must be at most half of 'vocabulary', {half}, not {size}")
    possible = sum(math.perm(half, each) for each in range(1 if sizes == "any" else size, size + 1))
    if 2 * keys > possible:
        raise ValueError(f"option 'keys' must be at most half of the {possible} possible keys, not {keys}")
    return vocabulary + 1


def lengths(*, vocabulary: int, size: int, sizes: str, keys: int) -> Lengths:
    return Lengths(least=4 * size - 1)


def word(symbol: int, *, vocabulary: int, size: int, sizes: str, keys: int) -> str:
    return "_" if symbol == vocabulary else f"{symbol}"


def chance(length: int, *, vocabulary: int, size: int, sizes: str, keys: int) -> Chance:
    return Chance(1 / (vocabulary - vocabulary // 2), None)


def shortcuts(length: int, *, vocabulary: int, size: int, sizes: str, keys: int) -> dict[str, Chance]:
    return {"the value of any key": Chance(1 / keys + (1 - 1 / keys) / (vocabulary - vocabulary // 2), None)}


TASK = Task(
    kind="labels",
    summary="recall of values by keys, both of several tokens",
    symbols=symbols,
    causal=True,
    options={
        "vocabulary": Option(16, "number of symbols, V", int, minimum=4, maximum=2**12, samples=(11,)),
        "size": Option(3, "largest number of tokens of a key", int, minimum=1, maximum=64, samples=(2,)),
        "sizes": Option("any", "sizes of keys and values", str, choices=("any", "largest")),
        "keys": Option(4, "number of keys of a sequence", int, minimum=1, maximum=2**10),
    },
    source="Poli et al. 2024, Mechanistic design and scaling of hybrid architectures",
    tests={"largest": {"sizes": "largest"}},
)
