"""The sum of two numbers, digit by digit.

**Sequence**: begin, `a`, +, `b`, separator (which is the sign "="), the sum of `a` and `b`, end. The length N is the
number of digits of `a` and `b`, plus 1 for the "+". The number of digits of `a` is uniform in 1 .. N - 2, and `b` has
the remaining digits. Digits are uniform too, but the most significant digit of a number with several digits is not 0.
**Metric**: share of answers that are entirely correct, including the end token; share of correct tokens.
**Chance**: not given, as there is no simple formula.
**Without positions**: a model without a mask and without a position signal cannot tell which digits have the same place
value.

**Options**
- `digits`: the order of digits. "ordinary": most significant digit first. "reversed": least significant digit first, so
  that a carry is known when it is needed. "answer_reversed": reversed in answers only.
- `base`: the base of the numbers.
- `padded`: whether numbers get leading zeros. In an input of length 2 n + 1, both numbers then have n digits, and the
  answer has n + 1 digits. A reversed number ends with its leading zeros. Not counting these zeros, the numbers of
  digits of `a` and `b` are independent, and uniform in 1 .. n.

**Positions**: these are values of the setting `positions` (`--positions`). "digits:K" (Abacus) gives each digit its
place within its number (in training, plus a random number of up to K); it is meant for "reversed" digits. "coupled:L"
gives digits of the same place value the same position, which is at most L. With "ordinary" digits, "coupled:L" needs
`padded`. Without it, the position of the answer's first digit would depend on the number of digits of the sum.

Source: Huang et al. 2024, "A formal framework for understanding length generalization in transformers" (binary,
ordinary; there the "=" counts towards the length); reversed as in Zhou et al. 2024, "Transformers can achieve length
generalization but not robustly"; padded and answer_reversed as in Cho et al. 2024, "Position coupling"
(arXiv:2405.20671).
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Lengths, Recipe, Task

Array = np.ndarray[Any, Any]

_NONE = -1


def sample(draws: Draws, length: int, count: int, *, digits: str, base: int, padded: bool) -> tuple[Array, Array]:
    most = length // 2 if padded else length - 2
    first = 1 + draws.integers(most, (count, 1))
    second = 1 + draws.integers(most, (count, 1)) if padded else length - 1 - first
    a, b = (_number(draws, sizes, most, base) for sizes in (first, second))
    total = _sum(a, b, base)
    ends = _sizes(total)
    if padded:
        first[:], second[:], ends[:] = most, most, most + 1
    operands = "ordinary" if digits == "answer_reversed" else digits
    inputs, answers = np.full((count, length), base), np.full((count, total.shape[1]), _NONE)
    _write(inputs, 0, a, first, operands)
    _write(inputs, first + 1, b, second, operands)
    _write(answers, 0, total, ends, digits)
    return inputs, answers


def _number(draws: Draws, sizes: Array, width: int, base: int) -> Array:
    """Random numbers with `sizes` digits, (count, width): least significant digit first, then zeros up to `width`."""
    found, leading = draws.integers(base, (len(sizes), width)), 1 + draws.integers(base - 1, sizes.shape)
    places = np.arange(width)
    found = np.where((places == sizes - 1) & (sizes > 1), leading, found)
    return np.where(places < sizes, found, 0)


def _sum(a: Array, b: Array, base: int) -> Array:
    count, width = a.shape
    total, carry = np.zeros((count, width + 1), np.int64), np.zeros(count, np.int64)
    for place in range(width):
        here = a[:, place] + b[:, place] + carry
        total[:, place], carry = here % base, here // base
    total[:, width] = carry
    return total


def _sizes(numbers: Array) -> Array:
    """The number of digits up to the last nonzero one, at least one, (count, 1)."""
    used = np.where(numbers > 0, np.arange(1, numbers.shape[1] + 1), 1)
    return used.max(axis=1, keepdims=True)


def _write(out: Array, start: Array | int, numbers: Array, sizes: Array, digits: str) -> None:
    rows, places = np.nonzero(np.arange(numbers.shape[1]) < sizes)
    order = places if digits != "ordinary" else sizes[rows, 0] - 1 - places
    out[rows, np.broadcast_to(start, sizes.shape)[rows, 0] + order] = numbers[rows, places]


def symbols(*, base: int, **options: Any) -> int:
    return base + 1


def lengths(*, padded: bool, **options: Any) -> Lengths:
    return Lengths(least=3, step=1 + padded)


def word(symbol: int, *, base: int, **options: Any) -> str:
    return "+" if symbol == base else "0123456789"[symbol]


def answer_length(length: int, *, padded: bool, **options: Any) -> int:
    return length // 2 + 1 if padded else length - 1


def digit_order(*, digits: str, padded: bool, **options: Any) -> str:
    return "" if digits == "ordinary" and not padded else digits


TASK = Task(
    kind="answer",
    summary="the sum of two numbers, digit by digit",
    options={
        "digits": Option(
            "ordinary",
            "whether the most significant digit comes first",
            str,
            choices=("ordinary", "reversed", "answer_reversed"),
        ),
        "base": Option(2, "base of the numbers", int, minimum=2, maximum=10),
        "padded": Option(False, "whether zeros make the numbers equally long", bool),
    },
    source="Huang et al. 2024, A formal framework for understanding length generalization in transformers",
    recipe=Recipe({"task_options": {"digits": "reversed", "padded": True}}, "rope", solved=10, seconds=17),
)
