"""Best results on a task that a symmetry allows, for any model size and training: least errors, largest accuracies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from fastpe.base.validation import choice, whole
from fastpe.tasks.registry import TASKS, choose, list_tasks
from fastpe.tasks.sizes import check_length
from fastpe.tasks.task import Chosen
from fastpe.theory.orbits import CAN, NUMBERS, least_error, multipliers
from fastpe.theory.symmetry import Symmetry
from fastpe.theory.value import Value, exact

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Limit:
    """The limit that a symmetry sets on a task, see `limit`.

    Attributes
    ----------
    task, metric : str
    value : Value or None
        The least error or the largest share of right answers. None if no limit is proved.
    why : str
        The reason for the limit, or the reason why there is none.
    """

    task: str
    metric: str
    value: Value | None
    why: str


def limit(
    task: str, symmetry: Symmetry, length: int, *, metric: str | None = None,
    factors: Sequence[float] | Array | None = None, task_options: Mapping[str, Any] | None = None,
) -> Limit:  # fmt: skip
    """Return the best result of any model with these symmetries on a task of the library, or on one of `NUMBERS`.

    Parameters
    ----------
    task : str
    symmetry : Symmetry
        The symmetry of an encoding, with or without a mask, as `fastpe.theory.symmetry.symmetry` returns it. It must be
        computed for at least 16 positions, or for at least `length` positions if this number is smaller.
    length : int
        Length of the input.
    metric : str, optional
        For tasks of numbers: "mse" (the default), the least mean squared error over the inputs of the task, or
        "mse_constant", the least error on constant inputs. For tasks of tokens: "exact" (the default), the largest
        share of completely right answers, or "token", the largest share of right tokens.
    factors : (length,) numbers, optional
        The same as for `fastpe.theory.orbits.least_error`.
    task_options : dict, optional

    Returns
    -------
    Limit

    Raises
    ------
    ValueError, TypeError
        If the task is unknown, cannot have the length or the options, or does not have the metric, or if the symmetry
        was computed for too few positions.

    Examples
    --------
    >>> from fastpe.theory.symmetry import symmetry
    >>> limit("running_sum", symmetry("alibi"), 100).value.value, limit("reverse", symmetry("nope"), 9).value.value
    (24.75, 0.0)
    >>> limit("running_sum", symmetry("rope"), 100).why
    'the model can notice a reversal and a change of order; see metric mse_constant'
    """
    length, found_at = whole("length", length, 1), symmetry.inputs["length"]
    if found_at < min(length, _ENOUGH):
        raise ValueError(f"symmetry must be computed for at least {min(length, _ENOUGH)} positions, not {found_at}")
    if task in NUMBERS and task not in list_tasks():
        return _of_numbers(task, None, symmetry, length, metric, factors)
    chosen = choose(TASKS.resolve(task), task_options)
    if chosen.task.kind == "text":
        return Limit(task, metric or "loss", None, "the distribution of a text is not known")
    check_length(chosen, length)
    if chosen.task.kind == "numbers":
        return _of_numbers(task, chosen, symmetry, length, metric, factors)
    metric = choice("metric", metric or "exact", ("exact", "token"))
    if not symmetry.perm.holds:
        return Limit(task, metric, None, _FRAMED)
    if not symmetry.perm.proved:
        return Limit(task, metric, None, f"the symmetry was measured, not proved: {symmetry.perm.why}")
    found, why = _labels(chosen, metric) if chosen.task.kind == "labels" else _answer(chosen, length, metric)
    return Limit(task, metric, None if found is None else exact(float(found), why, group="perm", length=length), why)


def _of_numbers(
    task: str, chosen: Chosen | None, symmetry: Symmetry, length: int, metric: str | None, factors: Any
) -> Limit:
    metric = choice("metric", metric or "mse", ("mse", "mse_constant"))
    wanted = ("const",) if metric == "mse_constant" else ("perm", "rev")
    held = next((group for group in wanted if getattr(symmetry, group).holds), None)
    if held is None:
        return Limit(task, metric, None, _NONE_HELD[metric])
    if not getattr(symmetry, held).proved:
        return Limit(task, metric, None, f"the symmetry was measured, not proved: {getattr(symmetry, held).why}")
    if chosen is not None and (chosen.task.file or task not in NUMBERS):
        return _by_its_file(chosen, held, length, metric, factors)
    value = least_error(task, held, length, factors=factors)
    return Limit(task, metric, value, value.why)


def _by_its_file(chosen: Chosen, group: str, length: int, metric: str, factors: Any) -> Limit:
    """Return the limit that the file of a registered task states."""
    bound = {"rev": chosen.task.reversal_bound, "perm": chosen.task.permutation_bound}.get(group)
    if bound is None:
        return Limit(chosen.name, metric, None, f"{chosen.whose} states no limit for a model that cannot {CAN[group]}")
    why = f"the limit that {chosen.whose} states for a model that cannot {CAN[group]}"
    found = float(bound(length, np.array(multipliers(factors, length), np.float64), **chosen.options))
    return Limit(chosen.name, metric, exact(found, why, group=group, length=length), why)


_ENOUGH = 16  # a symmetry that holds for this number of positions is assumed to hold at all lengths
_FRAMED = (
    "sequences begin with a special token, so no sequence is constant or the reverse of another; only a model that "
    "ignores all order has a limit"
)
_NONE_HELD = {
    "mse": "the model can notice a reversal and a change of order; see metric mse_constant",
    "mse_constant": "identical tokens can have different outputs",
}


# ------------------------------------------------------------------------- tasks of tokens, for models without order

_BLANKS = "all blanks after the separator have the same output (P3)"
_COUNTED = ("bin_majority", "cycle_navigation", "majority", "parity")
_COPIED = ("duplicate", "odds_first", "repeat_copy", "reverse")
_DISTINCT = ("sort", "unique_copy")


def _answer(chosen: Chosen, length: int, metric: str) -> tuple[Fraction | None, str]:
    """Return the largest share of right answers of a model without order, and why, for a task of kind "answer".

    The model gives the same answer at all blanks, and this answer depends only on the counts of the symbols.
    """
    if metric == "exact":
        return Fraction(0), f"{_BLANKS}, but the first answer is a symbol and the last one is the end token"
    name = "" if chosen.task.file else chosen.name
    if name in _COUNTED:
        return Fraction(1), "the counts of the symbols in the input determine the answer"
    if name == "missing_duplicate":
        return Fraction(1), "whether the number of remaining ones is odd determines the missing bit"
    if name in _DISTINCT:
        return Fraction(1, length), f"{_BLANKS}, and no two answers are the same symbol"
    if name in _COPIED and chosen.symbols == 2:
        # the larger count of the two symbols, divided by N, in the mean over all inputs
        most = Fraction(1, 2) + Fraction(math.comb(length - 1, (length - 1) // 2), 2**length)
        return most, f"{_BLANKS}; the more frequent symbol is right most often"
    if name == "even_pairs":
        return _ends_differ(length), "if k random bits of N are 1, the ends differ with probability 2k(N-k) / (N(N-1))"
    return None, f"the largest accuracy of a function of symbol counts on {chosen.whose} is not known"


def _ends_differ(n: int) -> Fraction:
    if n == 1:
        return Fraction(1)
    right, ways, pairs = 0, 1, n * (n - 1)
    for ones in range(n + 1):
        differ = 2 * ones * (n - ones)
        right += ways * max(differ, pairs - differ)
        ways = ways * (n - ones) // (ones + 1)
    return Fraction(right, pairs * 2**n)


def _labels(chosen: Chosen, metric: str) -> tuple[Fraction | None, str]:
    """Return the largest share of right labels of a model without order, and why, for a task of kind "labels".

    The model gives equal tokens equal labels.
    """
    name = "" if chosen.task.file else chosen.name
    if name == "depth":
        blocks = chosen.options["blocks"]
        if blocks == 2:
            return Fraction(1), "no other block has the symbol of the last of two blocks"
        why = "the last block and the third from the end have the same symbol, which has only one output (P3)"
        return (
            (Fraction(0), why)
            if metric == "exact"
            else (1 - Fraction(1, blocks), f"{why}; all blocks have the same distribution")
        )
    if name == "mqar" and not chosen.options["updates"]:
        pairs = chosen.options["pairs"]
        found = Fraction(1, math.factorial(pairs) if metric == "exact" else pairs)
        return found, "without order all ways to pair keys with values are equally likely (P3)"
    if chosen.task.causal:
        return None, "the task is made for models with a causal mask, which depend on the order"
    return None, f"the largest accuracy with equal outputs for equal tokens on {chosen.whose} is not known"
