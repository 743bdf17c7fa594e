"""The path from the centre of a star to the end of one of its arms.

**Sequence**: begin, edges in random order, separator, path, end. An edge is its inner node, its outer node and `|`;
after the last edge stand `/`, the centre and the goal, which is the end of one of the arms. All nodes are different.
The length of the input determines that of the arms.
**Metric**: share of exactly correct answers; share of correct tokens. Only the second token is hard: the nodes after it
follow from the edges. `fastpe evaluate --by-place --json` counts each token
separately.
**Chance**: 1/N for a token, where N is the number of different nodes.
**Shortcut**: any of the D arms, 1/D for an entire answer.
**A control that must fail**: with the right tokens before each token as the input (teacher forcing), models of any size
stay at the shortcut. They learn to follow edges, which predicts all tokens except the second. The second token alone
then gives too little signal to learn from. The reversed answer, from the goal to the centre, can be learned.

**Options**
- `arms`: D.
- `nodes`: N, the number of different nodes.
- `reversed`: whether the path is written from the goal to the centre.

Source: Bachmann and Nagarajan 2024, "The pitfalls of next-token prediction" (there with 50 nodes and 200,000 training
sequences).
"""

import math
from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int, *, arms: int, nodes: int, reversed: bool) -> tuple[Array, Array]:
    size, rows = _size(length, arms), np.arange(count)
    found = draws.subsets(nodes, arms * (size - 1) + 1, count)
    centre = np.broadcast_to(found[:, :1, None], (count, arms, 1))
    paths = np.concatenate([centre, found[:, 1:].reshape(count, arms, size - 1)], axis=2)
    edges = np.stack([paths[:, :, :-1], paths[:, :, 1:]], axis=3).reshape(count, -1, 2)
    edges = np.take_along_axis(edges, draws.orders(count, edges.shape[1])[:, :, None], axis=1)
    path = paths[rows, draws.integers(arms, (count,))]
    inputs = np.full((count, length), nodes)
    inputs[:, :-2:3], inputs[:, 1:-2:3] = edges[:, :, 0], edges[:, :, 1]
    inputs[:, -3], inputs[:, -2], inputs[:, -1] = nodes + 1, path[:, 0], path[:, -1]
    return inputs, path[:, ::-1] if reversed else path


def _size(length: int, arms: int) -> int:
    """The number of nodes of a path."""
    return (length - 2) // (3 * arms) + 1


def symbols(*, arms: int, nodes: int, reversed: bool) -> int:
    if nodes < 2 * arms + 1:
        raise ValueError(f"option 'nodes' must be at least 2 * arms + 1, {2 * arms + 1}, not {nodes}")
    return nodes + 2


def lengths(*, arms: int, nodes: int, reversed: bool) -> Lengths:
    return Lengths(least=6 * arms + 2, step=3 * arms, most=3 * arms * ((nodes - 1) // arms) + 2)


def answer_length(length: int, *, arms: int, nodes: int, reversed: bool) -> int:
    return _size(length, arms)


def word(symbol: int, *, arms: int, nodes: int, reversed: bool) -> str:
    return str(symbol) if symbol < nodes else "|/"[symbol - nodes]


def chance(length: int, *, arms: int, nodes: int, reversed: bool) -> Chance:
    return Chance(1 / nodes, 1 / math.perm(nodes, _size(length, arms)))


def shortcuts(length: int, *, arms: int, nodes: int, reversed: bool) -> dict[str, Chance]:
    size = _size(length, arms)
    return {} if reversed else {"any arm": Chance((size - 1 + 1 / arms) / size, 1 / arms)}


TASK = Task(
    kind="answer",
    summary="the path from the centre of a star to one end",
    symbols=symbols,
    options={
        "arms": Option(2, "number of arms, D", int, minimum=2, maximum=2**10, samples=(5,)),
        "nodes": Option(50, "number of different nodes, N", int, minimum=5, maximum=2**16, samples=(30,)),
        "reversed": Option(False, "whether the path begins at the goal", bool),
    },
    source="Bachmann and Nagarajan 2024, The pitfalls of next-token prediction",
)
