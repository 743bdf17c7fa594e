"""The symbols that may follow in a string of one of Tomita's seven regular languages.

**Sequence**: begin, a string of zeros and ones. All strings of the language with this length are equally likely. The
label of a symbol is the set of what may follow the string to here: 0, 1, and `e` if the string may end, that is, if it
is in the language.
**Languages**: 1: ones only. 2: `10` repeated. 3: no odd run of ones is followed by an odd run of zeros. 4: no `000`. 5:
the numbers of zeros and of ones are even. 6: the difference of these numbers is divisible by 3. 7: zeros, ones, zeros,
ones, each any number.
**Metric**: share of sequences whose labels are all correct; share of correct labels.
**Chance**: the likeliest label at each place. The languages 1 and 2 have one string of each length, so that a model
needs to learn only its labels.
**Shortcut**: the likeliest label for the symbol and its place.
**Made for causal models**: later symbols reveal the labels.
**Without positions**: the languages 3, 5 and 6 need counts modulo 2 or 3, which limited averages over the sequence
cannot give at all lengths. The languages 1, 4 and 7 can be expressed with counts and a few previous tokens. Language 2
alternates, which its last symbol already shows.

**Options**
- `grammar`: 1 to 7.

Source: Tomita 1982, "Dynamic construction of finite automata from examples using hill-climbing"; Huang et al. 2024, "A
formal framework for understanding length generalization in transformers" (there with lengths to 100).
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Task

Array = np.ndarray[Any, Any]


class _Automaton(NamedTuple):
    """The next states for 0 and 1, (states, 2), and whether a string may end in a state. The first state begins."""

    moves: Array
    ends: Array


_TABLES = {
    1: (((1, 0), (1, 1)), (0,)),
    2: (((2, 1), (0, 2), (2, 2)), (0,)),
    # nothing or even ones; odd ones; odd zeros after odd ones; even zeros after odd ones; dead
    3: (((0, 1), (2, 0), (3, 4), (2, 1), (4, 4)), (0, 1, 3)),
    4: (((1, 0), (2, 0), (3, 0), (3, 3)), (0, 1, 2)),
    5: (((1, 2), (0, 3), (3, 0), (2, 1)), (0,)),
    6: (((1, 2), (2, 0), (0, 1)), (0,)),
    7: (((0, 1), (2, 1), (2, 3), (4, 3), (4, 4)), (0, 1, 2, 3)),
}


@cache
def _automaton(grammar: int) -> _Automaton:
    moves, ends = _TABLES[grammar]
    return _Automaton(np.array(moves), np.isin(np.arange(len(moves)), ends))


@cache
def _labels(grammar: int) -> Array:
    """The label in each state."""
    moves, ends = _automaton(grammar)
    lives = ends.copy()
    for _ in ends:
        lives |= lives[moves].any(axis=1)
    return 1 + lives[moves[:, 0]] + 2 * lives[moves[:, 1]] + 4 * ends


def _shares(grammar: int, length: int) -> Array:
    """The probability of 1 at each place in each state, (length, states), if all strings are equally likely."""
    moves, ends = _automaton(grammar)
    found, ways = np.zeros((length, len(ends))), ends.astype(np.float64)
    for place in range(length)[::-1]:
        both = ways[moves]
        total = both.sum(axis=1)
        found[place] = np.divide(both[:, 1], total, out=np.zeros(len(ends)), where=total > 0)
        ways = total / total.max()  # numbers of ways, up to a factor
    return found


def sample(draws: Draws, length: int, count: int, *, grammar: int) -> tuple[Array, Array]:
    moves, _ = _automaton(grammar)
    shares, level = _shares(grammar, length), draws.uniform((count, length))
    inputs, state = np.empty((count, length), np.int64), np.zeros(count, np.int64)
    answers = np.empty((count, length), np.int64)
    for place in range(length):
        inputs[:, place] = level[:, place] < shares[place, state]
        state = moves[state, inputs[:, place]]
        answers[:, place] = _labels(grammar)[state]
    return inputs, answers


def lengths(*, grammar: int) -> Lengths:
    return Lengths(least=2, step=2) if grammar in (2, 5) else Lengths(least=2 if grammar == 6 else 1)


def word(symbol: int, *, grammar: int) -> str:
    return (
        str(symbol)
        if symbol < 2
        else "{" + "".join(each for bit, each in enumerate("01e") if symbol - 1 >> bit & 1) + "}"
    )


def _chain(grammar: int, length: int) -> Iterator[Array]:
    """The probabilities of the symbol at each place and the state after it, (2, states)."""
    moves, ends = _automaton(grammar)
    state = np.zeros(len(ends))
    state[0] = 1.0
    for share in _shares(grammar, length):
        both = np.stack(
            [np.bincount(moves[:, bit], state * (share if bit else 1 - share), len(ends)) for bit in range(2)]
        )
        yield both
        state = both.sum(axis=0)


def chance(length: int, *, grammar: int) -> Chance:
    labels = _labels(grammar)
    right = sum(float(np.bincount(labels, both.sum(axis=0)).max()) for both in _chain(grammar, length))
    return Chance(min(right / length, 1.0), 1.0 if grammar < 3 else None)


def shortcuts(length: int, *, grammar: int) -> dict[str, Chance]:
    labels = _labels(grammar)
    right = sum(float(np.bincount(labels, each).max()) for both in _chain(grammar, length) for each in both)
    return {"the likeliest label for the symbol and its place": Chance(min(right / length, 1.0), None)}


TASK = Task(
    kind="labels",
    summary="what may follow in a string of Tomita's languages",
    symbols=9,
    causal=True,
    options={"grammar": Option(4, "Tomita's number", int, minimum=1, maximum=7, samples=tuple(range(1, 8)))},
    source="Tomita 1982, Dynamic construction of finite automata from examples using hill-climbing",
)
