"""Random factors of dropout: Philox4x32-10, in plain NumPy."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)
_COLUMNS, _WORDS = 64, 4  # 64 elements of a row come from 16 blocks of four words


def philox4x32(counter: tuple[Any, ...], key: tuple[int, ...]) -> list[Array]:
    """Return four random words (integers below 2^32) for every counter, by ten rounds of Philox.

    `counter` is a tuple of four arrays, the four words of every counter. `key` has two words. The algorithm is that of
    Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".

    Examples
    --------
    >>> [hex(word) for word in philox4x32((0, 0, 0, 0), (0, 0))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = (np.asarray(word, np.uint64) & _LOW for word in counter)
    for number in range(_ROUNDS):
        k0, k1 = (np.uint64((word + number * step) % 2**32) for word, step in zip(key, _KEY_STEPS, strict=True))
        first, second = c0 * np.uint64(_MULTIPLIERS[0]), c2 * np.uint64(_MULTIPLIERS[1])
        c0, c1, c2, c3 = (second >> _HALF) ^ c1 ^ k0, second & _LOW, (first >> _HALF) ^ c3 ^ k1, first & _LOW
    return [c0, c1, c2, c3]


def dropout_factors(shape: tuple[int, int], rate: float, *, key: tuple[int, ...], counter: tuple[int, ...]) -> Array:
    """Return the factors of dropout for an array: 0 with probability `rate`, else 1 / (1 - rate).

    Each row is divided into cells of 64 columns, and the cells are numbered row by row. `philox4x32` returns four words
    for the counter ``(16 n + b, *counter)``. Word w decides whether element 16 w + b of cell n is kept.

    Examples
    --------
    >>> dropout_factors((1, 8), 0.5, key=(1, 2), counter=(0, 0, 0)).tolist()
    [[0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 0.0, 2.0]]
    """
    rows, columns = shape
    cells_of_row = -(-columns // _COLUMNS)
    cells = rows * cells_of_row
    side = _COLUMNS // _WORDS
    blocks = np.arange(cells * side, dtype=np.uint64)
    words = np.stack(philox4x32((blocks, *counter), key)).reshape(_WORDS, cells, side).transpose(1, 0, 2)
    kept = words.reshape(rows, cells_of_row * _COLUMNS)[:, :columns] >= round(rate * 2**32)
    return kept / (1.0 - rate)
