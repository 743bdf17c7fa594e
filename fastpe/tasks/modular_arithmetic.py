"""The value of an expression of digits with +, - and *, modulo five.

**Sequence**: begin, digit, sign, digit, ..., digit, separator, value, end. Digits 0 .. 4 and signs are independent and
uniform. Multiplication precedes addition and subtraction. Lengths are odd.
**Metric**: share of exactly correct answers, including the end token.
**Chance**: the probability of the value 0, which is the most likely one: 1/5 at length 1, 0.253 at length 3, and closer
to 1/5 at larger lengths.
**Without positions**: a model without a mask and without a position signal cannot tell which two digits a sign
connects.

Source: Deletang et al. 2022, "Neural networks and the Chomsky hierarchy" (there an even length is reduced by one, and
the model outputs the answer at a placeholder token after the input).
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.tasks.task import Lengths, Recipe, Task

Array = np.ndarray[Any, Any]

_MODULUS = 5
_WORDS = "01234+-*"
_PLUS, _MINUS, _TIMES = (_WORDS.index(sign) for sign in "+-*")


def sample(draws: Draws, length: int, count: int) -> tuple[Array, Array]:
    inputs = np.empty((count, length), np.int64)
    inputs[:, ::2] = draws.integers(_MODULUS, (count, length // 2 + 1))
    inputs[:, 1::2] = _PLUS + draws.integers(3, (count, length // 2))
    return inputs, _values(inputs)[:, None]


def _values(expressions: Array) -> Array:
    total, term = np.zeros(len(expressions), np.int64), expressions[:, 0]
    for sign, digit in zip(expressions[:, 1::2].T, expressions[:, 2::2].T, strict=True):
        product = sign == _TIMES
        total = np.where(product, total, total + term)
        term = np.where(product, term * digit, np.where(sign == _MINUS, -digit, digit)) % _MODULUS
    return (total + term) % _MODULUS


def word(symbol: int) -> str:
    return _WORDS[symbol]


def answer_length(length: int) -> int:
    return 1


TASK = Task(
    kind="answer",
    summary="an expression of +, - and *, modulo five",
    symbols=len(_WORDS),
    lengths=Lengths(least=1, step=2),
    source="Deletang et al. 2022, Neural networks and the Chomsky hierarchy",
    recipe=Recipe(
        {"train_length": 5, "width": 64, "lr": 0.001, "batch": 64, "samples": 6400}, "rope", solved=10, seconds=44
    ),
)
