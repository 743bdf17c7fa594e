"""The next token of a sequence whose rule refers to tokens by their position.

**Sequence**: begin, then tokens in 0 .. m - 1. The first `near` + `far` tokens are random. Each later token is the sum,
modulo m, of the `near` tokens before it and of `far` other tokens. The label of a token is the next token, if the rule
determines the next token.
**Metric**: share of sequences whose labels are all correct; share of correct labels.
**Chance**: 1/m for a label.
**Made for causal models**: the next token is the label.

**Options**
- `rule`: which tokens the `far` ones are. "recursive": those before the near ones; "cot": the first of the sequence,
  like a question that all steps refer to; "semi_recursive": consecutive tokens from a position that moves by one at
  every second step.
- `near`, `far`: how many tokens of a sum are those just before, and how many are other tokens.
- `modulus`: m.

Source: Wang et al. 2024, "Resonance RoPE: improving context length generalization of large language models" (PosGen;
trained at 64 tokens, tested at 256). There the first tokens are ascending, and tests begin with sequences of the
training set.
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Task

Array = np.ndarray[Any, Any]

_NONE = -1


def sample(
    draws: Draws, length: int, count: int, *, rule: str, near: int, far: int, modulus: int
) -> tuple[Array, Array]:
    given = near + far
    tokens = np.empty((count, length + 1), np.int64)
    tokens[:, :given] = draws.integers(modulus, (count, given))
    for place in range(given, length + 1):
        start = {"recursive": place - given, "cot": 0, "semi_recursive": (place - given) // 2}[rule]
        terms = tokens[:, start : start + far].sum(axis=1) + tokens[:, place - near : place].sum(axis=1)
        tokens[:, place] = terms % modulus
    answers = tokens[:, 1:].copy()
    answers[:, : given - 1] = _NONE
    return tokens[:, :-1], answers


def symbols(*, rule: str, near: int, far: int, modulus: int) -> int:
    return modulus


def lengths(*, rule: str, near: int, far: int, modulus: int) -> Lengths:
    return Lengths(least=near + far)


def chance(length: int, *, rule: str, near: int, far: int, modulus: int) -> Chance:
    return Chance(1 / modulus, None)


TASK = Task(
    kind="labels",
    summary="sums of near and far tokens, chosen by position",
    causal=True,
    options={
        "rule": Option("recursive", "which tokens are far", str, choices=("recursive", "cot", "semi_recursive")),
        "near": Option(3, "number of tokens just before", int, minimum=1, maximum=1024),
        "far": Option(1, "number of other tokens", int, minimum=1, maximum=1024),
        "modulus": Option(17, "modulus of the sums", int, minimum=2, maximum=2**16),
    },
    source="Wang et al. 2024, Resonance RoPE: improving context length generalization of large language models",
)
