"""`Task`, the record that the file of a task defines. Functions of the file complete the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from numbers import Real
from types import ModuleType
from typing import Any, NamedTuple

from fastpe.base import own
from fastpe.base.option import Option
from fastpe.base.validation import whole

KINDS = ("answer", "labels", "numbers")
"""The kinds of tasks. A built-in task has another kind, "text": it draws nothing and reads files."""
SUMMARY = 52  # the largest number of characters of a summary, so that it fits in a list
_MOST_SYMBOLS = 2**24 - 4  # plus the four of the frame, this is the largest vocabulary of a model
_DIGITS_AMONG = 2**16  # largest number of symbols among which digits are searched
_WORDS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Lengths(NamedTuple):
    """The lengths that an input may have: every `step`-th from `least` to `most`.

    >>> Lengths(least=1, step=2).within(2, 7).tolist()
    [3, 5, 7]
    """

    least: int = 1
    step: int = 1
    most: int = 2**27

    def within(self, first: int, last: int) -> Any:
        """The lengths from first to last, as an array."""
        import numpy as np

        return np.arange(self.next(first), min(last, self.most) + 1, self.step)

    def next(self, first: int) -> int:
        """The smallest length that is at least first, if `most` allows it."""
        return self.least + -(-max(first - self.least, 0) // self.step) * self.step


class Chance(NamedTuple):
    """The accuracy of the best answer that depends only on the length of the input.

    Parameters
    ----------
    token : float
        Share of correct tokens of the answer.
    exact : float, optional
        Share of answers that are entirely correct; None if it is not known.
    """

    token: float
    exact: float | None


@dataclass(frozen=True)
class Recipe:
    """Settings of small models that solve a task at its training lengths, and the runs that show it.

    A run solves a task if at least 99 % of its test answers at the training lengths are right; for numbers, if its
    squared error there is at most 1 % of the error of a model that always outputs 0.

    Parameters
    ----------
    settings : dict
        Settings by their names in `fastpe.TrainConfig`. They replace settings of `fastpe.training.presets.SMALL`.
    encoding : str
        The encoding of the measured runs.
    solved : int
        How many of 10 runs, with seeds 0 to 9, solve the task.
    seconds : float
        Mean training time of these runs on one core of an AMD EPYC (AVX2), in seconds.
    remark : str
        What else was tried, if fewer than 9 runs solve the task.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    encoding: str = "rope"
    solved: int = 0
    seconds: float = 0.0
    remark: str = ""


@dataclass(frozen=True)
class Task:
    """A task, as defined by its file.

    The file's docstring is the page of the task. The functions below are taken from the file by these names; they need
    not be passed here.

    Parameters
    ----------
    kind : {"answer", "labels", "numbers"}
        "answer": tokens, followed by an answer (begin, input, separator, answer, end). "labels": tokens, with a label
        for each or some of them (begin, input). "numbers": real numbers, with an answer for each.
    summary : str
        A description for lists: at most 52 characters, no full stop.
    symbols : int or callable
        The number of symbols of inputs and answers, 0 .. symbols - 1: a number, or a function ``(**options)`` that
        returns one. Labels may be symbols that no input has. 0 for numbers.
    options : dict of str to Option
        The options of the task.
    causal : bool
        Whether the task is for causal models only, because a later token reveals an earlier label.
    source : str
        The publication that defined the task.
    sample : callable
        ``(draws, length, count, **options)`` -> (inputs, answers). `draws` (`fastpe.base.draws.Draws`) is the only
        source of randomness. inputs (count, length); answers of the same shape, or (count, any) for kind "answer".
        Tokens are integers; -1 in answers means no token: a label without weight, or the rest of a shorter answer.
        Numbers are float64. If labels or numbers have different weights, a third array gives the weight of each, 0 for
        none.
    lengths : Lengths or callable
        The lengths that an input may have, or a function ``(**options)`` that returns them.
    answer_length : callable
        ``(length, **options)`` -> number of tokens of the longest answer, for "answer". Default: the length of the
        input.
    word : callable
        ``(symbol, **options)`` -> the printed form of a symbol. Default: a digit or letter, or its number.
    chance : callable, optional
        ``(length, **options)`` -> Chance.
    shortcuts : callable, optional
        ``(length, **options)`` -> dict of names to Chance: the accuracy of known incomplete solutions, such as
        answering with any value of the input. A model at this level has not learned the task in part.
    judge : callable, optional
        ``(inputs, given, **options)`` -> bool (count,): whether each given answer is right, for an "answer" that is not
        the only right one. `given` is like the answers of `sample`. Tests then generate an answer wherever the model
        does not predict the drawn one.
    places : callable, optional
        ``(inputs, answers, **options)`` -> places in the input, integers from 0 of the shape of the answers: what each
        token of the answer is about, such as the place of the pair with its value. Tests count right tokens by it
        (``fastpe evaluate --by-place``). Default: the token's place in the answer, or that of the label.
    tests : dict of str to dict
        Named options under which a trained model is also tested: ``fastpe evaluate RUN --test NAME``.
    squares : callable, optional
        ``(length, **options)`` -> mean squares of the answers (length,), for "numbers".
    reversal_bound, permutation_bound : callable, optional
        ``(length, factors, **options)`` -> the smallest mean squared error that is possible for a model that cannot
        tell a sequence from its reverse, or from any permutation. Answers are multiplied by factors (length,). For
        "numbers".
    digit_order : callable, optional
        ``(**options)`` -> the order of the digits in `a` + `b` = `c`, used by the positions "coupled:L". "ordinary":
        most significant digit first, and `c` is one digit longer than `a` and `b`. "reversed": least significant digit
        first. "answer_reversed": least significant digit first in `c` only. "": the order does not determine the
        positions of the digits of `c`.
    recipe : Recipe, optional
        Settings with which small models solve the task; the default of ``fastpe train --task`` and of `fastpe.compare`.
        A task without a recipe uses `fastpe.training.presets.SMALL`.
    file : str
        For a task of your own, the name of the file that defines it; set by `fastpe.tasks.register`.

    Examples
    --------
    >>> Task(kind="answer", summary="the input again", symbols=2).causal
    False
    """

    kind: str
    summary: str = ""
    symbols: int | Callable[..., int] = 0
    options: Mapping[str, Option] = field(default_factory=dict)
    causal: bool = False
    source: str = ""
    sample: Callable[..., tuple[Any, Any]] = None  # type: ignore[assignment] # taken from the module, see `of_module`
    lengths: Lengths | Callable[..., Lengths] = Lengths()  # noqa: RUF009 - it cannot be changed
    answer_length: Callable[..., int] = lambda length, **options: length
    word: Callable[..., str] | None = None
    chance: Callable[..., Chance] | None = None
    shortcuts: Callable[..., Mapping[str, Chance]] | None = None
    judge: Callable[..., Any] | None = None
    places: Callable[..., Any] | None = None
    tests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    squares: Callable[..., Any] | None = None
    reversal_bound: Callable[..., float] | None = None
    permutation_bound: Callable[..., float] | None = None
    digit_order: Callable[..., str] | None = None
    recipe: Recipe | None = None
    file: str = ""


FUNCTIONS = (
    "sample", "symbols", "lengths", "answer_length", "word", "chance", "shortcuts", "judge", "places", "squares",
    "reversal_bound", "permutation_bound", "digit_order",
)  # fmt: skip
"""The fields of `Task` that are taken from functions of the same names in the module."""


@cache
def of_module(module: ModuleType) -> Task:
    """A module's `TASK`, completed by functions of the module for fields that `TASK` does not set."""
    task: Task = own.of_module(module, "TASK", FUNCTIONS)
    return task


@dataclass(frozen=True)
class Chosen:
    """A task with all its options.

    Parameters
    ----------
    name : str
    task : Task
    options : dict
        All options by name, validated.
    """

    name: str
    task: Task
    options: Mapping[str, Any]

    @property
    def whose(self) -> str:
        """The name of the task in errors: its file, if it is a task of your own, or its key."""
        return self.task.file or f"task {self.name!r}"

    @property
    def symbols(self) -> int:
        """The number of symbols of inputs and answers."""
        found = self.task.symbols
        count = found(**self.options) if callable(found) else found
        if self.task.kind == "numbers":
            return count
        return self._whole("symbols", count, _MOST_SYMBOLS)

    @property
    def lengths(self) -> Lengths:
        """The lengths that an input may have."""
        found = self.task.lengths
        lengths = found(**self.options) if callable(found) else found
        if not (isinstance(lengths, Lengths) and all(type(each) is int and each >= 1 for each in lengths)):
            raise ValueError(f"{self.whose}: lengths must be fastpe.tasks.Lengths of integers from 1, not {lengths!r}")
        return lengths

    def answer_length(self, length: int) -> int:
        """The number of tokens of the longest answer to an input of this length."""
        return self._whole(f"answer_length(length={length})", self.task.answer_length(length, **self.options), 2**30)

    def word(self, symbol: int) -> str:
        """The printed form of a symbol."""
        if self.task.word is None:
            return _WORDS[symbol] if self.symbols <= len(_WORDS) else str(symbol)
        if not isinstance(word := self.task.word(symbol, **self.options), str):
            raise ValueError(f"{self.whose}: word({symbol}) must be a str, not {word!r}")
        return word

    @property
    def digits(self) -> tuple[int, ...]:
        """The symbols that are printed as a single digit."""
        few = range(self.symbols if self.symbols <= _DIGITS_AMONG else 0)
        return tuple(symbol for symbol in few if (own := self.word(symbol)) and own in "0123456789")

    @property
    def digit_order(self) -> str:
        """The order of the digits of numbers, or "" if the task does not give one."""
        return "" if self.task.digit_order is None else self.task.digit_order(**self.options)

    def chance(self, length: int) -> Chance | None:
        """The accuracy of the best answer that ignores the input; None if the task does not give it."""
        if self.task.chance is None:
            return None
        return self._chance(f"chance(length={length})", self.task.chance(length, **self.options))

    def shortcuts(self, length: int) -> dict[str, Chance]:
        """The accuracy of each known incomplete solution, by its name."""
        if self.task.shortcuts is None:
            return {}
        found, name = self.task.shortcuts(length, **self.options), f"shortcuts(length={length})"
        if not isinstance(found, Mapping):
            raise ValueError(f"{self.whose}: {name} must be a dict of names to fastpe.tasks.Chance, not {found!r}")
        return {str(each): self._chance(f"{name}[{each!r}]", value) for each, value in found.items()}

    def judge(self, inputs: Any, given: Any) -> Any:
        """Whether each given answer is right, bool (count,)."""
        import numpy as np

        assert self.task.judge is not None
        found = np.asarray(self.task.judge(inputs, given, **self.options))
        if found.shape != (len(inputs),) or found.dtype != np.bool_:
            raise ValueError(
                f"{self.whose}: judge must return bool {(len(inputs),)}, not {found.dtype} of shape {found.shape}"
            )
        return found

    def places(self, inputs: Any, answers: Any) -> Any:
        """The place that each token of the answers is about, int64 of the shape of the answers."""
        import numpy as np

        if self.task.places is None:
            return np.broadcast_to(np.arange(answers.shape[1]), answers.shape)
        found = np.asarray(self.task.places(inputs, answers, **self.options))
        if found.shape != answers.shape or found.dtype.kind not in "iu" or (found[answers >= 0] < 0).any():
            raise ValueError(
                f"{self.whose}: places must be integers from 0 of the shape {answers.shape}, not {found.dtype} of "
                f"{found.shape}"
            )
        return found.astype(np.int64)

    def squares(self, length: int) -> Any:
        """Mean squares of the answers of numbers, float64 (length,)."""
        import numpy as np

        assert self.task.squares is not None
        found = np.asarray(self.task.squares(length, **self.options), np.float64)
        if found.shape != (length,) or not (np.isfinite(found) & (found >= 0)).all():
            raise ValueError(
                f"{self.whose}: squares(length={length}) must be {length} finite numbers >= 0, not {found!r}"
            )
        return found

    def _chance(self, name: str, found: object) -> Chance:
        right = isinstance(found, Chance) and _is_share(found.token)
        if not isinstance(found, Chance) or not right or not (found.exact is None or _is_share(found.exact)):
            raise ValueError(f"{self.whose}: {name} must be fastpe.tasks.Chance of numbers in [0, 1], not {found!r}")
        return found

    def _whole(self, name: str, value: object, most: int) -> int:
        try:
            return whole(f"{self.whose}: {name}", value, 1, most)
        except TypeError as error:  # a mistake in the user's file, reported like others
            raise ValueError(str(error)) from None


def _is_share(value: object) -> bool:
    return isinstance(value, Real) and 0 <= float(value) <= 1
