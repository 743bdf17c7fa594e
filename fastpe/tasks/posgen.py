"""The next token of a sequence whose rule refers to tokens by their position.

**Sequence**: begin, then tokens in 0 .. m - 1. The first `near` + `far` tokens are random. Each later token is a sum
modulo m: of the `near` tokens just before it and of `far` other tokens. The label of a token is the next token, if the
next token is such a sum. Other tokens have no label.
**Metric**: share of sequences whose labels are all correct; share of correct labels.
**Chance**: 1/m for a label.
**Made for causal models**: the label of a token is the next token, which a model without a mask sees.

**Options**
- `rule`: which `far` other tokens are added. "recursive": the tokens just before the `near` tokens. "cot": the first
  tokens of the sequence, like a question that all steps refer to. "semi_recursive": a block of `far` consecutive
  tokens. For the first two sums the block starts at the first token; after every two sums it moves on by one position.
- `near`, `far`: the numbers of tokens that are added: `near` tokens just before, and `far` other tokens.
- `modulus`: m, the modulus of the sums.

Source: Wang et al. 2024, "Resonance RoPE: improving context length generalization of large language models" (PosGen;
trained at 64 tokens, tested at 256). In the source, the first tokens are ascending, and each test sequence begins with
a sequence of the training set.
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Recipe, Task

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
    recipe=Recipe(
        {"train_length": 16, "task_options": {"near": 1, "far": 1, "modulus": 5}, "epochs": 12},
        "rope",
        solved=10,
        seconds=1.2,
    ),
)
