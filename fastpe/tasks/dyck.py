"""The bracket that may close next, in a balanced string of several kinds of brackets (Dyck-k).

**Sequence**: begin, brackets. All balanced strings of this length with at most `depth` open brackets are equally
likely. The label of a bracket is the closing bracket of the innermost bracket that is open after it; if none is open,
it has no label.
**Metric**: share of sequences whose labels are all correct; share of correct labels.
**Chance**: 1/k for a label.
**Shortcut**: the bracket that closes the last opening bracket, whether or not it is closed already.
**Made for causal models**: later brackets reveal the labels.
**Without positions**: two layers with positions i/n can solve the task for a bounded depth (Yao et al.): the first
counts the open brackets, and the second finds the last bracket of this depth.

**Options**
- `kinds`: k, the number of kinds of brackets.
- `depth`: the largest number of open brackets.

Source: Hewitt et al. 2020, "RNNs can generate bounded hierarchical languages with optimal memory"; Yao et al. 2021,
"Self-attention networks can process bounded hierarchical languages".
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Task

Array = np.ndarray[Any, Any]

_NONE = -1
_BRACKETS = "([{<)]}>"


def _shares(length: int, depth: int) -> Array:
    """The probability of an opening bracket at each place for each number of open ones, if all strings are equally
    likely; (length, depth + 1)."""
    ways = np.zeros(depth + 1)
    ways[0] = 1.0
    found = np.zeros((length, depth + 1))
    for place in range(length)[::-1]:
        opened, closed = np.append(ways[1:], 0.0), np.append(0.0, ways[:-1])
        total = opened + closed
        found[place] = np.divide(opened, total, out=np.zeros(depth + 1), where=total > 0)
        ways = total / total.max()  # numbers of ways, up to a factor
    return found


def sample(draws: Draws, length: int, count: int, *, kinds: int, depth: int) -> tuple[Array, Array]:
    shares, level = _shares(length, depth), draws.uniform((count, length))
    kind, rows = draws.integers(kinds, (count, length)), np.arange(count)
    inputs, answers = np.empty((count, length), np.int64), np.full((count, length), _NONE)
    stack, height = np.zeros((count, depth + 1), np.int64), np.zeros(count, np.int64)  # kinds from the height 1 on
    for place in range(length):
        opens = level[:, place] < shares[place, height]
        inner = stack[rows, height]
        inputs[:, place] = np.where(opens, kind[:, place], kinds + inner)
        height += np.where(opens, 1, -1)
        stack[rows, height] = np.where(opens, kind[:, place], stack[rows, height])
        answers[:, place] = np.where(height > 0, kinds + stack[rows, height], _NONE)
    return inputs, answers


def word(symbol: int, *, kinds: int, depth: int) -> str:
    if kinds <= 4:
        return _BRACKETS[symbol if symbol < kinds else 4 + symbol - kinds]
    return f"({symbol}" if symbol < kinds else f"{symbol - kinds})"


def chance(length: int, *, kinds: int, depth: int) -> Chance:
    return Chance(1 / kinds, None)


def shortcuts(length: int, *, kinds: int, depth: int) -> dict[str, Chance]:
    height = np.zeros(depth + 1)
    height[0], right, asked = 1.0, 0.0, 0.0
    for share in _shares(length, depth):
        opened, closed = np.append(0.0, (height * share)[:-1]), np.append((height * (1 - share))[1:], 0.0)
        right += opened.sum() + closed[1:].sum() / kinds
        height = opened + closed
        asked += height[1:].sum()
    return {"the bracket that closes the last opening bracket": Chance(float(right / asked), None)}


TASK = Task(
    kind="labels",
    summary="the bracket that may close next (Dyck-k)",
    symbols=lambda kinds, depth: 2 * kinds,
    causal=True,
    lengths=Lengths(least=2, step=2),
    options={
        "kinds": Option(2, "number of kinds of brackets", int, minimum=2, maximum=2**16),
        "depth": Option(4, "largest number of open brackets", int, minimum=1, maximum=2**12),
    },
    source="Hewitt et al. 2020, RNNs can generate bounded hierarchical languages with optimal memory",
    tests={"depth_8": {"depth": 8}},
)
