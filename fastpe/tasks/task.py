"""What one file of a task defines: `Task`, the record of it, which its module completes."""

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
"""Of what a task may be. One that comes with fastpe has another, "text": it draws nothing, and learns from files."""
SUMMARY = 52  # characters that a list has room for
_MOST_SYMBOLS = 2**24 - 4  # with the four of the frame, as many as a model knows
_DIGITS_AMONG = 2**16  # symbols
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
        """Those from first to last, as an array."""
        import numpy as np

        steps = -(-max(first - self.least, 0) // self.step)
        return np.arange(self.least + steps * self.step, min(last, self.most) + 1, self.step)


class Chance(NamedTuple):
    """What the best answer reaches that does not look at the input, only at its length.

    Parameters
    ----------
    token : float
        Share of the tokens of the answer that are right.
    exact : float, optional
        Share of the answers that are right from their first token to their last; None where nobody has worked it out.
    """

    token: float
    exact: float | None


@dataclass(frozen=True)
class Task:
    """A task, as its own file defines it.

    The file's docstring is its page. The functions below are those that the file defines under these names: they need
    not be given here.

    Parameters
    ----------
    kind : {"answer", "labels", "numbers"}
        "answer": tokens, and an answer after them (begin, input, separator, answer, end). "labels": tokens, and a label
        beside each of them (begin, input), or beside some. "numbers": real numbers, and one beside each.
    summary : str
        What it is, for a list: at most 52 characters, no full stop.
    symbols : int or callable
        How many symbols inputs and answers are made of, 0 .. symbols - 1: a number, or a function (**options) that
        returns one. 0 for numbers.
    options : dict of str to Option
        Its options.
    causal : bool
        Whether it is made for causal models alone, because a later token gives an earlier label away.
    source : str
        Where it was defined.
    sample : callable
        (draws, length, count, **options) -> (inputs, answers). `draws` (`fastpe.base.draws.Draws`) is all that is
        random. inputs (count, length); answers of the same shape, or (count, any) where they follow the input. Tokens
        are integers, and -1 in answers is none: a label that does not count, or what lies past the end of a shorter
        answer. Numbers are float64. Where labels or numbers do not count alike, a third array says what each counts,
        0 being nothing.
    lengths : Lengths or callable
        The lengths that an input may have, or a function (**options) that returns them.
    answer_length : callable
        (length, **options) -> tokens of the longest answer, for "answer". By default that of the input.
    word : callable
        (symbol, **options) -> how a symbol is printed. By default a digit or letter, or its number.
    chance : callable, optional
        (length, **options) -> Chance.
    squares : callable, optional
        (length, **options) -> mean squares of the answers (length,), for "numbers".
    reversal_bound, permutation_bound : callable, optional
        (length, factors, **options) -> the least mean squared error, of answers multiplied by factors (length,), of a
        model that cannot tell a sequence from its reverse, or from any other order of it; for "numbers".
    digit_order : callable, optional
        (**options) -> where the digits of a + b = c stand: "ordinary", the most significant first, and c one digit
        longer than a and b; "reversed", the least significant first; "answer_reversed", in c alone; "" where that does
        not say where those of c stand. What positions "coupled:L" go by.
    file : str
        Of a task of one's own, the name of the file that defines it: `fastpe.tasks.register` sets it.

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
    sample: Callable[..., tuple[Any, Any]] = None  # type: ignore[assignment] # the module's, see `of_module`
    lengths: Lengths | Callable[..., Lengths] = Lengths()  # noqa: RUF009 - it cannot be changed
    answer_length: Callable[..., int] = lambda length, **options: length
    word: Callable[..., str] | None = None
    chance: Callable[..., Chance] | None = None
    squares: Callable[..., Any] | None = None
    reversal_bound: Callable[..., float] | None = None
    permutation_bound: Callable[..., float] | None = None
    digit_order: Callable[..., str] | None = None
    file: str = ""


FUNCTIONS = (
    "sample", "symbols", "lengths", "answer_length", "word", "chance", "squares", "reversal_bound", "permutation_bound",
    "digit_order",
)  # fmt: skip
"""The fields of `Task` for which a module's functions of the same names are taken."""


@cache
def of_module(module: ModuleType) -> Task:
    """A module's `TASK`, completed by the functions that the module defines; what `TASK` itself gives stays."""
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
        Every option by its name, validated.
    """

    name: str
    task: Task
    options: Mapping[str, Any]

    @property
    def whose(self) -> str:
        """What an error calls the task: a file of one's own, or its key."""
        return self.task.file or f"task {self.name!r}"

    @property
    def symbols(self) -> int:
        """How many symbols inputs and answers are made of."""
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
        """Tokens of the longest answer to an input of this length."""
        return self._whole(f"answer_length(length={length})", self.task.answer_length(length, **self.options), 2**30)

    def word(self, symbol: int) -> str:
        """How a symbol is printed."""
        if self.task.word is None:
            return _WORDS[symbol] if self.symbols <= len(_WORDS) else str(symbol)
        if not isinstance(word := self.task.word(symbol, **self.options), str):
            raise ValueError(f"{self.whose}: word({symbol}) must be a str, not {word!r}")
        return word

    @property
    def digits(self) -> tuple[int, ...]:
        """The symbols that are printed as one digit."""
        few = range(self.symbols if self.symbols <= _DIGITS_AMONG else 0)
        return tuple(symbol for symbol in few if (own := self.word(symbol)) and own in "0123456789")

    @property
    def digit_order(self) -> str:
        """Where the digits of numbers stand, or "" where the task does not say."""
        return "" if self.task.digit_order is None else self.task.digit_order(**self.options)

    def chance(self, length: int) -> Chance | None:
        """What the best answer reaches that does not look at the input; None where the task does not say."""
        if self.task.chance is None:
            return None
        found = self.task.chance(length, **self.options)
        right = isinstance(found, Chance) and _is_share(found.token)
        if not right or not (found.exact is None or _is_share(found.exact)):
            raise ValueError(
                f"{self.whose}: chance(length={length}) must be fastpe.tasks.Chance of numbers in [0, 1], not {found!r}"
            )
        return found

    def squares(self, length: int) -> Any:
        """Mean squares of the answers of numbers, float64 (length,)."""
        import numpy as np

        assert self.task.squares is not None
        found = np.asarray(self.task.squares(length, **self.options), np.float64)
        if found.shape != (length,) or not (np.isfinite(found) & (found >= 0)).all():
            raise ValueError(
                f"{self.whose}: squares(length={length}) must be {length} finite numbers of at least 0, not {found!r}"
            )
        return found

    def _whole(self, name: str, value: object, most: int) -> int:
        try:
            return whole(f"{self.whose}: {name}", value, 1, most)
        except TypeError as error:  # a mistake in a file of one's own, as others there
            raise ValueError(str(error)) from None


def _is_share(value: object) -> bool:
    return isinstance(value, Real) and 0 <= float(value) <= 1
