"""The bit that was written last.

**Sequence**: begin, then pairs of an instruction and a bit. Instructions are `w` (write), `i` (ignore) and `r` (read).
The first instruction is `w`, and the last is `r`. Each of the others is `i` with probability `ignore`; otherwise it is
`w` or `r` with equal probability. The bit after `w` or `i` is random. The bit after `r` is the bit after the last `w`.
The label of `r` is the bit after it; other tokens have no label.
**Metric**: share of sequences whose labels are all correct; share of correct labels.
**Chance**: 1/2 for a label.
**Made for causal models**: the bit after `r` reveals the label.
**Without positions**: a causal model can solve the task, but it must learn to find the last `w`.

**Options**
- `ignore`: the probability of `i`. The source uses 0.8 in training, and 0.98 and 0.1 in tests: `fastpe evaluate RUN
  --test sparse` and `--test dense`.

Source: Liu et al. 2023, "Exposing attention glitches with flip-flop language modeling" (there with 512 tokens).
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Recipe, Task

Array = np.ndarray[Any, Any]

_NONE = -1
_WORDS = "01wri"
_WRITE, _READ, _IGNORE = (_WORDS.index(letter) for letter in "wri")


def sample(draws: Draws, length: int, count: int, *, ignore: float) -> tuple[Array, Array]:
    pairs = length // 2
    level = draws.uniform((count, pairs))
    instructions = np.where(level < ignore, _IGNORE, np.where(level < (1 + ignore) / 2, _WRITE, _READ))
    instructions[:, 0], instructions[:, -1] = _WRITE, _READ
    bits = draws.integers(2, (count, pairs))
    written = np.maximum.accumulate(np.where(instructions == _WRITE, np.arange(pairs), 0), axis=1)
    reads = instructions == _READ
    bits = np.where(reads, np.take_along_axis(bits, written, axis=1), bits)
    inputs, answers = np.empty((count, length), np.int64), np.full((count, length), _NONE)
    inputs[:, ::2], inputs[:, 1::2] = instructions, bits
    answers[:, ::2] = np.where(reads, bits, _NONE)
    return inputs, answers


def word(symbol: int, *, ignore: float) -> str:
    return _WORDS[symbol]


def chance(length: int, *, ignore: float) -> Chance:
    return Chance(0.5, None)


TASK = Task(
    kind="labels",
    summary="the bit that was written last",
    symbols=len(_WORDS),
    causal=True,
    lengths=Lengths(least=4, step=2),
    options={"ignore": Option(0.8, "probability of an instruction to ignore", float, minimum=0.0, maximum=1.0)},
    source="Liu et al. 2023, Exposing attention glitches with flip-flop language modeling",
    tests={"sparse": {"ignore": 0.98}, "dense": {"ignore": 0.1}},
    recipe=Recipe({"train_length": 32, "epochs": 12}, "rope", solved=10, seconds=3.5),
)
