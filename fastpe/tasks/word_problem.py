"""Products of all prefixes of a sequence of elements of a finite group: the word problem of the group.

**Sequence**: begin, elements x1 .. xN, independent and uniform. The label of the i-th is the number of x1 x2 .. xi. The
permutations of S3, S5 and A5 are numbered in the lexicographic order of their one-line notation, so 0 is the identity;
(x y)(i) = x(y(i)). Elements of A4xZ5 are numbered by A4 first. Elements of Z60 are numbers, added modulo 60.
**Metric**: share of sequences whose labels are all correct; share of correct labels.
**Chance**: 1/G for a label, where the group has G elements; for transpositions, the likeliest product at each place.
**Shortcut**: the first label is the input.
**Without positions**: S5 and A5 are complete for NC1, and transformers of a fixed depth are in TC0. Unless both are
equal, the number of layers must therefore grow with the length. Z60, S3 and A4xZ5 are solvable: a constant depth is
enough, and for all groups one of order log N (Liu et al. 2022, "Transformers learn shortcuts to automata"). At lengths
to about 20, models with enough layers learn all groups, so the number of layers at which a length is solved is the
result to report.

**Options**
- `group`: S3, Z60, A4xZ5, A5 or S5, of 6, 60, 60, 60 and 120 elements.
- `generators`: "all" elements as inputs, or only "transpositions", for S3 and S5.

Source: Merrill, Petty and Sabharwal 2024, "The illusion of state in state-space models" (there with lengths 2 to 20);
Siems et al. 2025, "DeltaProduct", with transpositions.
"""

from functools import cache
from itertools import permutations
from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Task

Array = np.ndarray[Any, Any]

_GROUPS = ("S3", "Z60", "A4xZ5", "A5", "S5")


def sample(draws: Draws, length: int, count: int, *, group: str, generators: str) -> tuple[Array, Array]:
    table = _table(group)
    known = _generators(group, generators)
    inputs = known[draws.integers(len(known), (count, length))]
    labels = inputs.copy()
    for place in range(1, length):
        labels[:, place] = table[labels[:, place - 1], inputs[:, place]]
    return inputs, labels


@cache
def _table(group: str) -> Array:
    """The numbers of all products, (G, G)."""
    if "x" in group:
        first, second = (_table(part) for part in group.split("x"))
        n = len(second)
        return np.kron(first, np.full(second.shape, n)) + np.tile(second, first.shape)
    n = int(group[1:])
    if group[0] == "Z":
        return np.add.outer(np.arange(n), np.arange(n)) % n
    elements = _permutations(group)
    digits = n ** np.arange(n)[::-1]
    codes = elements @ digits  # in increasing order
    return np.searchsorted(codes, elements[:, elements] @ digits)


def _permutations(group: str) -> Array:
    every = np.array(list(permutations(range(int(group[1:])))))
    return every if group[0] == "S" else every[_inversions(every) % 2 == 0]


def _inversions(elements: Array) -> Array:
    later = np.triu(np.ones((elements.shape[1],) * 2, bool), 1)
    return np.asarray(((elements[:, :, None] > elements[:, None, :]) & later).sum(axis=(1, 2)))


def _generators(group: str, generators: str) -> Array:
    if generators == "all":
        return np.arange(len(_table(group)))
    elements = _permutations(group)
    return np.flatnonzero((elements != np.arange(elements.shape[1])).sum(axis=1) == 2)


def symbols(*, group: str, generators: str) -> int:
    if generators == "transpositions" and group[0] != "S":
        raise ValueError(f"option 'generators' must be all for the group {group}, which has no transpositions")
    return len(_table(group))


def chance(length: int, *, group: str, generators: str) -> Chance:
    found = _likeliest(length, group, generators)
    return Chance(float(found.mean()), float(len(_generators(group, generators))) ** -length)


def shortcuts(length: int, *, group: str, generators: str) -> dict[str, Chance]:
    found = _likeliest(length, group, generators)
    found[0] = 1.0
    exact = float(len(_generators(group, generators))) ** (1 - length)
    return {"the first label is the input": Chance(float(found.mean()), exact)}


def _likeliest(length: int, group: str, generators: str) -> Array:
    """The probability of the likeliest product at each place."""
    table, known = _table(group), _generators(group, generators)
    found, share = np.empty(length), np.eye(1, len(table))[0]
    for place in range(length):
        moved = np.repeat(share, len(known)) / len(known)
        share = np.bincount(table[:, known].ravel(), moved, len(table)).astype(np.float64)
        found[place] = share.max()
    return found


TASK = Task(
    kind="labels",
    summary="products of group elements, for all prefixes",
    symbols=symbols,
    options={
        "group": Option("S3", "the group", str, choices=_GROUPS),
        "generators": Option("all", "which elements are inputs", str, choices=("all", "transpositions")),
    },
    source="Merrill, Petty and Sabharwal 2024, The illusion of state in state-space models",
)
