"""The value of a counter after steps that set it to 0, increment it or do nothing.

**Sequence**: begin, steps, the name of a variable, separator, its value, end. A step is `.` (pass), `a=` (set `a` to 0)
or `a+` (increment `a`), for any of the variables. Variables begin at 0, and a variable at 10 stays at 10 when it is
incremented. Steps are independent: a pass with probability `passes`, otherwise an increment with probability 7/8 and a
set with 1/8, of a uniform variable.
**Metric**: share of exactly correct answers, including the end token.
**Chance**: the probability of the likeliest value.
**Shortcut**: the number of all increments of the variable, as if it had never been set.
**Without positions**: the last set of the variable must be found before the increments after it are counted. A position
that depends on the content, such as CoPE, can count the increments itself.

**Options**
- `variables`: the number of variables.
- `passes`: the probability of a pass; 50/58 in the source.

Source: Golovneva et al. 2024, "Contextual position encoding: learning to count what's important" (there with 1, 3 and 5
variables, programs as text with up to 512 steps, and increments only of variables that were set).
"""

from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.option import Option
from fastpe.tasks.task import Chance, Lengths, Task

Array = np.ndarray[Any, Any]

_MOST = 10
_PASS = _MOST + 1  # then for each variable: set, increment, name
_NAMES = "abcdefghijklmnopqrstuvwxyz"


def sample(draws: Draws, length: int, count: int, *, variables: int, passes: float) -> tuple[Array, Array]:
    shape = count, length - 1
    variable, level = draws.integers(variables, shape), draws.uniform(shape)
    sets = level < passes + (1 - passes) / 8
    steps = np.where(level < passes, _PASS, _PASS + 1 + 3 * variable + np.where(sets, 0, 1))
    asked = draws.integers(variables, (count, 1))
    own = _PASS + 1 + 3 * asked
    last = np.maximum.accumulate(np.where(steps == own, np.arange(length - 1), -1), axis=1)[:, -1:]
    increments = ((steps == own + 1) & (np.arange(length - 1) > last)).sum(axis=1, keepdims=True)
    return np.append(steps, own + 2, axis=1), np.minimum(increments, _MOST)


def symbols(*, variables: int, passes: float) -> int:
    return _PASS + 1 + 3 * variables


def answer_length(length: int, *, variables: int, passes: float) -> int:
    return 1


def word(symbol: int, *, variables: int, passes: float) -> str:
    if symbol < _PASS:
        return str(symbol)
    if symbol == _PASS:
        return "."
    variable, what = divmod(symbol - _PASS - 1, 3)
    return (_NAMES[variable] if variables <= len(_NAMES) else f"x{variable}") + ("=", "+", "")[what]


def _values(length: int, variables: int, passes: float) -> Array:
    """The probability of each value and each number of increments, both at most 10, of a variable; (11, 11)."""
    found = np.zeros((_MOST + 1, _MOST + 1))
    found[0, 0] = 1.0
    active = (1 - passes) / variables
    more = np.eye(_MOST + 1, k=1)
    more[-1, -1] = 1.0
    for _ in range(length - 1):
        was_set = np.zeros_like(found)
        was_set[0] = found.sum(axis=0)
        found = (1 - active) * found + active * (was_set / 8 + more.T @ found @ more * 7 / 8)
    return found


def chance(length: int, *, variables: int, passes: float) -> Chance:
    likeliest = min(float(_values(length, variables, passes).sum(axis=1).max()), 1.0)
    return Chance(likeliest, likeliest)


def shortcuts(length: int, *, variables: int, passes: float) -> dict[str, Chance]:
    right = min(float(np.trace(_values(length, variables, passes))), 1.0)
    return {"the number of all increments": Chance(right, right)}


TASK = Task(
    kind="answer",
    summary="the value of a counter after steps on it",
    symbols=symbols,
    lengths=Lengths(least=2),
    options={
        "variables": Option(1, "number of variables", int, minimum=1, maximum=2**10, samples=(3, 5)),
        "passes": Option(
            0.5, "probability of a step that does nothing", float, minimum=0.0, maximum=1.0, samples=(0.3,)
        ),
    },
    source="Golovneva et al. 2024, Contextual position encoding: learning to count what's important",
    tests={"dense": {"passes": 0.3}, "sparse": {"passes": 0.98}},
)
