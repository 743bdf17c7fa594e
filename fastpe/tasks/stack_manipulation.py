"""A stack of bits after actions on it, from its top to its bottom.

**Sequence**: begin, bits of a stack from the bottom to the top, actions, separator, bits of the stack after the actions
from the top to the bottom, end. An action is `pop`, which does nothing on an empty stack, `push 0` or `push 1`. The
size of the first stack is uniform from 1 to the length; bits and actions are independent and uniform. Inputs that leave
no bit are not drawn.
**Metric**: share of exactly correct answers; share of correct tokens.
**Chance**: 1/2 for a token; 2^-h for an answer of h bits, times the probability of h, at the likeliest h.
**Without positions**: the task is deterministic context-free. The source's transformers learn it at the training
lengths only.

Source: Deletang et al. 2022, "Neural networks and the Chomsky hierarchy" (there with lengths 1 to 40 in training, and
an end symbol in place of an empty answer).
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.tasks.task import Chance, Task

Array = np.ndarray[Any, Any]

_NONE = -1
_POP, _PUSH = 2, 3
_WORDS = ("0", "1", "pop", "push0", "push1")


def sample(draws: Draws, length: int, count: int) -> tuple[Array, Array]:
    inputs = draws.until(lambda own: _inputs(own, length, count), lambda rows: _stacks(rows)[1] > 0)
    stack, height = _stacks(inputs)
    places = height[:, None] - 1 - np.arange(length)
    return inputs, np.where(places >= 0, np.take_along_axis(stack, np.maximum(places, 0), axis=1), _NONE)


def _inputs(draws: Draws, length: int, count: int) -> Array:
    size = draws.integers(length, (count, 1)) + 1
    actions = _POP + draws.integers(3, (count, length))
    return np.where(np.arange(length) < size, draws.integers(2, (count, length)), actions)


def _stacks(inputs: Array) -> tuple[Array, Array]:
    """The stacks after all actions, and their heights."""
    stack, height, rows = np.zeros_like(inputs), np.zeros(len(inputs), np.int64), np.arange(len(inputs))
    for token in inputs.T:
        pushes = token != _POP
        stack[rows, height] = np.where(pushes, np.where(token < _POP, token, token - _PUSH), stack[rows, height])
        height = np.where(pushes, height + 1, np.maximum(height - 1, 0))
    return stack, height


def word(symbol: int) -> str:
    return _WORDS[symbol]


def chance(length: int) -> Chance:
    # the probabilities of heights after the actions that follow a first stack of 1, 2, .. bits
    share = np.zeros(length + 1)
    for size in range(1, length + 1):
        popped = np.append(share[1:], 0.0)
        popped[0] += share[0]
        share = popped / 3 + np.append(0.0, share[:-1]) * 2 / 3
        share[size] += 1 / length
    share = share[1:] / share[1:].sum()
    return Chance(0.5, float((share * 0.5 ** np.arange(1, length + 1)).max()))


TASK = Task(
    kind="answer",
    summary="a stack of bits after actions on it",
    symbols=len(_WORDS),
    source="Deletang et al. 2022, Neural networks and the Chomsky hierarchy",
)
