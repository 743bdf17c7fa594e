"""The form of a score_mod: ``hide(softcap tanh((factors score + terms) / softcap) + late terms)``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fastpe.torch.mods import expression as of
from fastpe.torch.mods.expression import Expr, apply, aten, evaluate
from fastpe.torch.mods.tracing import Traced

_NO_SIZES = (1, 1, 1, 1)


class NoForm(Exception):
    """Raised for a score_mod that does not have this form; the message says why."""


@dataclass(frozen=True)
class Form:
    """The parts of a score_mod.

    Attributes
    ----------
    factors : tuple of Expr or float
        Factors of the score.
    terms, late : tuple of Expr
        Added to the score before and after the soft cap. All terms are late if there is no soft cap.
    conditions : tuple of (Expr, bool)
        A key is hidden unless each expression has this value.
    softcap : float or None
        The soft cap.
    rectified : bool
        Whether negative products of query and key become 0.
    """

    factors: tuple[Expr | float, ...] = ()
    terms: tuple[Expr, ...] = ()
    late: tuple[Expr, ...] = ()
    conditions: tuple[tuple[Expr, bool], ...] = ()
    softcap: float | None = None
    rectified: bool = False


def read(traced: Traced, dtype: torch.dtype) -> Form:
    """Return the form of a score_mod. `dtype` is that of the score.

    Raises
    ------
    NoForm
        If it has none.
    """
    found: Form | str | None = None if traced.memo is None else traced.memo.get("form")
    if found is None:
        reader = _Reader(traced.tensors, dtype)
        try:
            found = reader.form(traced.result)
        except NoForm as error:
            found = str(error)  # not the error, whose traceback keeps the arguments of the call
        if traced.memo is not None and not reader.reads_content:
            traced.memo["form"] = found
    if isinstance(found, str):
        raise NoForm(found)
    return found


class _Reader:
    def __init__(self, tensors: Sequence[torch.Tensor], dtype: torch.dtype) -> None:
        self.tensors, self.dtype = tensors, dtype
        self.reads_content = False

    def form(self, x: Expr) -> Form:
        """Return the form, with sums of terms and products of factors split, where this makes them simpler."""
        own, conditions = self._of(x), []
        for each in own.conditions:
            conditions += conjunction(*each)
        terms = [part for each in own.terms for part in self._summands(each, conditions, not own.softcap)]
        late = [part for each in own.late for part in self._summands(each, conditions, True)]
        if own.softcap is None:
            terms, late = [], terms
        factors = tuple(part for each in own.factors for part in _product(each))
        return replace(own, factors=factors, terms=tuple(terms), late=tuple(late), conditions=tuple(conditions))

    def _of(self, x: Any) -> Form:
        if not isinstance(x, Expr) or "s" not in x.reads:
            raise NoForm("the score is not used")
        args, target = x.args, x.target
        if target == "s":
            return Form()
        if target in of.SAME or (target is of.TO and x.dtype == self.dtype):
            return self._of(args[0])
        if target in of.WHERE and _is_free(args[0]):
            return self._selected(x)
        if target in of.FILL and _is_free(args[1]) and self._is_minus_infinity(args[2]):
            own = self._of(args[0])
            return replace(own, conditions=(*own.conditions, (args[1], False)))
        if target in of.ADD | of.SUB and not x.kwargs and _is_free(args[0]) != _is_free(args[1]):
            first = _is_free(args[1])
            own, other = (args[0], args[1]) if first else (args[1], args[0])
            form = self._of(own)
            if target in of.SUB and first:
                other = self._times(other, -1.0)
            elif target in of.SUB:
                form = self._scaled(form, -1.0)
            return self._plus(form, other)
        if target in of.MUL and _is_free(args[0]) != _is_free(args[1]):
            own, factor = args if _is_free(args[1]) else args[::-1]
            return self._scaled(self._of(own), self._number(factor))
        if target in of.DIV and _is_free(args[1]) and not x.kwargs:
            return self._scaled(self._of(args[0]), self._inverse(self._number(args[1])))
        if target is of.NEG:
            return self._scaled(self._of(args[0]), -1.0)
        if target is aten.tanh.default:
            own = self._of(args[0])
            if own.conditions or own.softcap is not None:
                raise NoForm("tanh of a score that is hidden or has a soft cap")
            return replace(own, softcap=1.0)
        if target is aten.relu.default:
            own = self._of(args[0])
            if own != Form(own.factors) or not all(isinstance(each, float) and each > 0 for each in own.factors):
                raise NoForm("relu of a score that is not the product of query and key")
            return replace(own, rectified=True)
        raise NoForm(f"the score goes through {target}")

    def _selected(self, x: Expr) -> Form:
        """Return the form of ``where(condition, one, other)``."""
        condition, one, other = x.args
        for chosen, rest, value in ((one, other, True), (other, one, False)):
            if not _is_free(chosen) and self._is_minus_infinity(rest):
                own = self._of(chosen)
                return replace(own, conditions=(*own.conditions, (condition, value)))
        if not _is_free(one) and not _is_free(other):
            a, b = self._of(one), self._of(other)
            plain = not (a.conditions or b.conditions or a.rectified or b.rectified) and a.softcap is b.softcap is None
            if plain and a.factors == b.factors:
                return Form(a.factors, (self._at_zero(x, {}),))
            raise NoForm("where() chooses between scores with different factors, soft caps or hidden keys")
        raise NoForm("where() replaces a score by what is not minus infinity")

    def _scaled(self, own: Form, factor: Expr | float) -> Form:
        if own.conditions and not (isinstance(factor, float) and factor > 0):
            raise NoForm("a hidden score is multiplied by what may be negative or 0")
        if isinstance(factor, float) and not math.isfinite(factor):
            raise NoForm(f"the score is multiplied by {factor}")
        if own.softcap is None:
            terms = tuple(self._times(each, factor) for each in own.terms)
            return replace(own, factors=(*own.factors, factor), terms=terms)
        if not isinstance(factor, float) or own.softcap * factor <= 0:
            raise NoForm("tanh is multiplied by what may be negative or 0")
        # a tanh(x) = a tanh((a x) / a)
        inside = self._scaled(replace(own, softcap=None, conditions=()), factor)
        late = tuple(self._times(each, factor) for each in own.late)
        return replace(own, factors=inside.factors, terms=inside.terms, late=late, softcap=own.softcap * factor)

    def _plus(self, own: Form, term: Any) -> Form:
        term = self._expression(term)
        if own.softcap is None:
            return replace(own, terms=(*own.terms, term))
        return replace(own, late=(*own.late, term))

    def _expression(self, x: Any) -> Expr:
        """Return a term, which may be a plain number, as an expression."""
        if isinstance(x, Expr):
            return x
        return apply(aten.scalar_tensor.default, float(x), result=self.dtype, dtype=self.dtype)

    def _times(self, x: Any, factor: Expr | float) -> Any:
        if not isinstance(x, Expr):
            x = float(x)
            return x * factor if isinstance(factor, float) else self._times(factor, x)
        return apply(aten.mul.Tensor, self._converted(x), factor, result=self.dtype)

    def _inverse(self, x: Expr | float) -> Expr | float:
        if isinstance(x, float):
            return 1.0 / x if x else math.inf
        return apply(aten.reciprocal.default, self._converted(x), result=self.dtype)

    def _converted(self, x: Expr) -> Expr:
        """Return a value in the dtype of the score: PyTorch converts it when it meets the score."""
        return x if x.dtype == self.dtype else apply(of.TO, x, result=self.dtype, dtype=self.dtype)

    def _at_zero(self, x: Any, known: dict[int, Expr]) -> Any:
        """Return the expression for the score 0."""
        if isinstance(x, tuple | list):
            return type(x)(self._at_zero(each, known) for each in x)
        if not isinstance(x, Expr) or "s" not in x.reads:
            return x
        if id(x) not in known:
            if x.target == "s":
                known[id(x)] = self._expression(0.0)
            else:
                args = self._at_zero(x.args, known)
                known[id(x)] = apply(x.target, *args, result=x.dtype, **(x.kwargs or {}))
        return known[id(x)]

    def _summands(self, x: Expr, conditions: list[tuple[Expr, bool]], hides: bool) -> list[Expr]:
        """Split a sum of what depends on the query and on the key, and move minus infinity to the conditions."""
        if (
            x.kind == "cells"
            and x.target in of.ADD | of.SUB
            and not x.kwargs
            and all(isinstance(a, Expr) for a in x.args)
        ):
            one, other = map(self._converted, x.args)
            other = apply(of.NEG, other, result=self.dtype) if x.target in of.SUB else other
            return self._summands(one, conditions, hides) + self._summands(other, conditions, hides)
        if x.kind == "cells" and x.target is of.NEG:
            parts = self._summands(self._converted(x.args[0]), conditions, False)
            return [apply(of.NEG, each, result=self.dtype) for each in parts]
        inner = x.args[0] if x.target is of.TO else x
        if hides and inner.target in of.WHERE:
            condition, one, other = inner.args
            for chosen, rest, value in ((one, other, True), (other, one, False)):
                if self._is_minus_infinity(rest) and isinstance(condition, Expr):
                    conditions += conjunction(condition, value)
                    return [self._expression(chosen)]
        return [x]

    def _is_minus_infinity(self, x: Any) -> bool:
        if isinstance(x, Expr):
            x = self._content(x)
        if isinstance(x, torch.Tensor):
            x = x.item() if x.numel() == 1 else None
        return isinstance(x, int | float) and x == -math.inf

    def _number(self, x: Any) -> Expr | float:
        """Return a factor as a float if it is a number without a gradient."""
        if not isinstance(x, Expr):
            return float(x)
        own = self._content(x)
        return x if own is None or own.requires_grad or own.numel() != 1 else float(own)

    def _content(self, x: Expr) -> torch.Tensor | None:
        """Return the value of an expression that does not depend on indices."""
        if x.reads:
            return None
        self.reads_content |= _captures(x, set())
        found = evaluate(x, {}, self.tensors, _NO_SIZES, [])
        return found if isinstance(found, torch.Tensor) else torch.tensor(found)


def _captures(x: Expr, met: set[int]) -> bool:
    """Whether an expression reads a captured tensor. `met`: ids of its parts that are known not to."""
    if isinstance(x.target, int):
        return True
    if id(x) in met:
        return False
    met.add(id(x))
    return any(_captures(each, met) for each in x.inputs())


def _is_free(x: Any) -> bool:
    return not isinstance(x, Expr) or "s" not in x.reads


def _product(x: Expr | float) -> list[Expr | float]:
    """Split a factor that depends on query and key into its factors."""
    if isinstance(x, Expr) and x.kind == "cells" and x.target in of.MUL:
        return [part for each in x.args for part in _product(each if isinstance(each, Expr) else float(each))]
    return [x]


def conjunction(condition: Any, value: bool) -> list[tuple[Expr, bool]]:
    """Split a condition into conditions that must all hold."""
    if isinstance(condition, Expr) and condition.target in (of.AND if value else of.OR):
        return [part for each in condition.args for part in conjunction(each, value)]
    if isinstance(condition, Expr) and condition.target in of.NOT:
        return conjunction(condition.args[0], not value)
    return [(condition, value)]
