"""Find all variables that have a given value, directly or through assignments from another variable.

**Sequence**: begin; filler, which repeats `. , ; :`, with statements `name = value` and `name = name` inserted at
random places; the question `?` and a value; separator; the names of the chain that begins with this value; end. A chain
is `a = 5`, `b = a`, `c = b`, ..; its statements are in order, and those of different chains are mixed. Names and values
are all different. An answer may list the names in any order; training uses that of the chain.
**Metric**: share of exactly correct answers; share of correct tokens; `--by-place` shows it
for each place of the statement in the input.
**Chance**: 1/M for a token, where M is the number of different names.
**Shortcuts**: answer with the name that is assigned the value directly, then guess the other names. With one chain, the
names of all statements in their order are the answer, and nothing needs to be followed.
**Without positions**: a chain of h hops needs h lookups one after the other. These take h layers, or a number of layers
of order log h if lookups are joined pairwise. Two layers should fail for 4 hops and more.

**Options**
- `hops`: h, the number of assignments of a name to another in a chain.
- `chains`: the number of chains.
- `names`, `values`: the numbers of different names and values.

Source: Hsieh et al. 2024, "RULER: what's the real context size of your long-context language models?" (there with one
chain of 4 hops in text, and a score for the share of names).
"""

import math
from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks import filler
from fastpe.tasks.task import Chance, Lengths, Task

Array = np.ndarray[Any, Any]

_NONE = -1
_IS, _QUESTION, _FILLER = 0, 1, 2
_NAMES = _FILLER + len(filler.SYMBOLS)  # the first name; values follow the last


def sample(
    draws: Draws, length: int, count: int, *, hops: int, chains: int, names: int, values: int
) -> tuple[Array, Array]:
    size = hops + 1
    name = _NAMES + draws.subsets(names, chains * size, count).reshape(count, chains, size)
    value = _NAMES + names + draws.subsets(values, chains, count)
    right = np.concatenate([value[:, :, None], name[:, :, :-1]], axis=2)
    statements = np.stack([name, np.full(name.shape, _IS), right], axis=3).reshape(count, -1, 3)
    chain = draws.orders(count, chains * size) // size  # the chain of each statement, in a random order
    mixed = np.empty_like(statements)
    np.put_along_axis(mixed, np.argsort(chain, axis=1, kind="stable")[:, :, None], statements, axis=1)
    inputs = np.full((count, length), _QUESTION)
    inputs[:, :-2], _ = filler.scattered(draws, mixed, length - 2, _FILLER)
    asked = draws.integers(chains, (count,))
    inputs[:, -1] = value[np.arange(count), asked]
    return inputs, name[np.arange(count), asked]


def symbols(*, hops: int, chains: int, names: int, values: int) -> int:
    for option, given, least in (("names", names, chains * (hops + 1)), ("values", values, chains)):
        if given < least:
            raise ValueError(f"option {option!r} must be at least {least} for these chains, not {given}")
    return _NAMES + names + values


def lengths(*, hops: int, chains: int, names: int, values: int) -> Lengths:
    return Lengths(least=3 * chains * (hops + 1) + 2)


def answer_length(length: int, *, hops: int, chains: int, names: int, values: int) -> int:
    return hops + 1


def word(symbol: int, *, hops: int, chains: int, names: int, values: int) -> str:
    if symbol < _NAMES:
        return f"=?{filler.SYMBOLS}"[symbol]
    symbol -= _NAMES
    if symbol >= names:
        return str(symbol - names)
    return "abcdefghijklmnopqrstuvwxyz"[symbol] if names <= 26 else f"x{symbol}"


def judge(inputs: Array, given: Array, *, hops: int, chains: int, names: int, values: int) -> Array:
    known = inputs[:, -1:]  # the value, then the names of the chain
    for _ in range(hops + 1):
        says = (inputs[:, 1:-1] == _IS) & (inputs[:, 2:] == known[:, -1:])
        known = np.append(known, np.take_along_axis(inputs, np.argmax(says, axis=1)[:, None], axis=1), axis=1)
    if given.shape[1] <= hops:
        return np.zeros(len(inputs), bool)
    same = np.sort(given[:, : hops + 1], axis=1) == np.sort(known[:, 1:], axis=1)
    return np.asarray(same.all(axis=1) & (given[:, hops + 1 :] == _NONE).all(axis=1))


def places(inputs: Array, answers: Array, *, hops: int, chains: int, names: int, values: int) -> Array:
    assigned = np.append(inputs[:, 1:] == _IS, np.zeros((len(inputs), 1), bool), axis=1)
    return np.argmax((answers[:, :, None] == inputs[:, None, :]) & assigned[:, None, :], axis=2)


def chance(length: int, *, hops: int, chains: int, names: int, values: int) -> Chance:
    return Chance(1 / names, 1 / math.comb(names, hops + 1))


def shortcuts(length: int, *, hops: int, chains: int, names: int, values: int) -> dict[str, Chance]:
    found = {}
    if hops:
        first = Chance((1 + hops / (names - 1)) / (hops + 1), 1 / math.comb(names - 1, hops))
        found["the name that is assigned the value, then guesses"] = first
    if chains == 1:
        found["the names of all statements in order"] = Chance(1.0, 1.0)
    return found


TASK = Task(
    kind="answer",
    summary="all variables that have a value, in order",
    symbols=symbols,
    options={
        "hops": Option(2, "assignments of a name to another in a chain", int, minimum=0, maximum=2**10),
        "chains": Option(2, "number of chains", int, minimum=1, maximum=2**10),
        "names": Option(20, "number of names", int, minimum=1, maximum=2**16, samples=(16, 40)),
        "values": Option(10, "number of values", int, minimum=1, maximum=2**16, samples=(2,)),
    },
    source="Hsieh et al. 2024, RULER: what's the real context size of your long-context language models?",
    tests={"hops_5": {"hops": 5}},
)
