"""The symbols among blanks, in their order.

**Sequence**: begin, places, separator, symbols, end. A fixed number of the places, chosen uniformly, have a symbol; the
others are blank. Symbols are independent and uniform.
**Metric**: share of exactly correct answers; share of correct tokens, with `--by-place` by the place of the symbol.
**Chance**: 1/S for a token, S^-m for an entire answer of m symbols.
**Shortcut**: any symbol of the input.
**Without positions**: a causal model can solve the task. The number of symbols before a place must be counted, so
encodings whose positions depend on the content should generalise to longer inputs, and fixed offsets should not.

**Options**
- `tokens`: m, the number of symbols in an input.
- `symbols`: S, the number of different symbols.

Source: Gu and Dao 2023, "Mamba: linear-time sequence modeling with selective state spaces"; Poli et al. 2024,
"Mechanistic design and scaling of hybrid architectures" (MAD; there the last place is never blank).
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Task

Array = np.ndarray[Any, Any]


def sample(draws: Draws, length: int, count: int, *, tokens: int, symbols: int) -> tuple[Array, Array]:
    answers = draws.integers(symbols, (count, tokens))
    inputs = np.full((count, length), symbols)
    np.put_along_axis(inputs, np.sort(draws.subsets(length, tokens, count), axis=1), answers, axis=1)
    return inputs, answers


def lengths(*, tokens: int, symbols: int) -> Lengths:
    return Lengths(least=tokens)


def answer_length(length: int, *, tokens: int, symbols: int) -> int:
    return tokens


def word(symbol: int, *, tokens: int, symbols: int) -> str:
    if symbol == symbols:
        return "."
    return "abcdefghijklmnopqrstuvwxyz"[symbol] if symbols <= 26 else str(symbol)


def places(inputs: Array, answers: Array, *, tokens: int, symbols: int) -> Array:
    found = np.zeros(answers.shape, np.int64)
    found[:, :tokens] = np.nonzero(inputs != symbols)[1].reshape(-1, tokens)
    return found


def chance(length: int, *, tokens: int, symbols: int) -> Chance:
    return Chance(1 / symbols, float(symbols) ** -tokens)


def shortcuts(length: int, *, tokens: int, symbols: int) -> dict[str, Chance]:
    return {"any symbol of the input": Chance(1 / tokens + (1 - 1 / tokens) / symbols, None)}


TASK = Task(
    kind="answer",
    summary="the symbols among blanks, in their order",
    symbols=lambda tokens, symbols: symbols + 1,
    options={
        "tokens": Option(4, "number of symbols in an input", int, minimum=1, maximum=2**16),
        "symbols": Option(8, "number of different symbols", int, minimum=2, maximum=2**16),
    },
    source="Gu and Dao 2023, Mamba: linear-time sequence modeling with selective state spaces",
)
