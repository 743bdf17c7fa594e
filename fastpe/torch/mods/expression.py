"""Expressions: what a mod computes, as operations of PyTorch on the score, the four indices and captured tensors."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

aten = torch.ops.aten

INDICES = "bhqk"
"""The indices of sample, query head, query and key. The score is "s"."""

ADD, SUB = {aten.add.Tensor, aten.add.Scalar}, {aten.sub.Tensor, aten.sub.Scalar}
MUL, DIV = {aten.mul.Tensor, aten.mul.Scalar}, {aten.div.Tensor, aten.div.Scalar}
AND = {aten.bitwise_and.Tensor, aten.logical_and.default, aten.__and__.Tensor}
OR = {aten.bitwise_or.Tensor, aten.logical_or.default, aten.__or__.Tensor}
NOT = {aten.bitwise_not.default, aten.logical_not.default}
WHERE = {aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar}
FILL = {aten.masked_fill.Scalar, aten.masked_fill.Tensor}
SAME = {aten.clone.default, aten.alias.default, aten.lift_fresh_copy.default}
DOT, SUM = aten.dot.default, {aten.sum.default, aten.sum.dim_IntList}
TO, NEG, INDEX = aten._to_copy.default, aten.neg.default, aten.index.Tensor
_COMPARE = {
    getattr(getattr(aten, name), kind)
    for name in ("ge", "gt", "le", "lt", "eq", "ne")
    for kind in ("Tensor", "Scalar")
}  # fmt: skip
_HOLDS_INDICES = (torch.int32, torch.int64, torch.float32, torch.float64)  # others round or wrap large indices


class Affine(NamedTuple):
    """q times the query index + k times the key index + a rest that depends on neither.

    `rest` has the factors of sample and head, and a number; None if the rest is no such sum of integers.
    """

    q: int
    k: int
    rest: tuple[int, int, int] | None


_REST = Affine(0, 0, None)


@dataclass(frozen=True, eq=False)
class Expr:
    """A scalar or small tensor.

    Attributes
    ----------
    target : str, int or callable
        The score or an index by its letter; the number of a captured tensor; or an operation of PyTorch.
    args, kwargs
        Arguments of the operation, which may hold expressions.
    dtype : torch.dtype or None
        Data type of the value; None if the operation does not return one tensor.
    reads : frozenset of str
        The letters that it depends on.
    affine : Affine or None
        The value as a function of the indices of query and key, if it is known to be affine.
    by_offset : bool
        Whether it depends on query and key only through the offset, key index - query index.
    """

    target: Any
    args: tuple[Any, ...] = ()
    kwargs: Any = None
    dtype: torch.dtype | None = None
    reads: frozenset[str] = frozenset()
    affine: Affine | None = _REST
    by_offset: bool = True

    @property
    def kind(self) -> str:
        """What the value varies with: "cells" (query and key), "offset", "row" (query), "key", or ""."""
        over = self.reads & {"q", "k"}
        if not over:
            return ""
        if self.by_offset:
            return "offset"
        return "cells" if len(over) == 2 else "row" if "q" in over else "key"

    def inputs(self) -> Iterator["Expr"]:
        """Yield the expressions among the arguments."""
        yield from _exprs((self.args, self.kwargs))


def letter(name: str, dtype: torch.dtype = torch.int64) -> Expr:
    """Return the score or an index."""
    rests = {"b": (1, 0, 0), "h": (0, 1, 0), "q": (0, 0, 0), "k": (0, 0, 0)}
    affine = Affine(int(name == "q"), int(name == "k"), rests[name]) if name in rests else None
    return Expr(name, dtype=dtype, reads=frozenset(name), affine=affine, by_offset=name not in "qk")


def captured(number: int, tensor: torch.Tensor) -> Expr:
    """Return a captured tensor."""
    return Expr(number, dtype=tensor.dtype)


def apply(target: Callable[..., Any], *args: Any, result: torch.dtype | None, **kwargs: Any) -> Expr:
    """Return the value of an operation. `result` is its dtype."""
    inputs = list(_exprs((args, kwargs)))
    reads = frozenset().union(*(each.reads for each in inputs))
    affine = _affine(target, args, kwargs) if result in _HOLDS_INDICES else None
    if affine is None and not reads & {"q", "k"}:
        affine = _REST
    if affine is not None and affine[:2] == (0, 0):
        reads -= {"q", "k"}
    compared = _compared(target, args)
    by_offset = (
        (affine is not None and affine.q == -affine.k)
        or (compared is not None and compared.q == -compared.k)
        or all(each.by_offset for each in inputs)
    )
    return Expr(target, args, kwargs, result, reads, affine, by_offset)


def _exprs(value: Any) -> Iterator[Expr]:
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _exprs(each)
    elif isinstance(value, dict):
        yield from _exprs(list(value.values()))


def _affine_of(value: Any) -> Affine | None:
    if isinstance(value, Expr):
        return value.affine
    return Affine(0, 0, (0, 0, value) if isinstance(value, int) else None)


def _affine(target: Any, args: Sequence[Any], kwargs: Any) -> Affine | None:
    if target in SAME or target in (TO, aten.detach.default):
        return _affine_of(args[0])
    if target is NEG:
        return _times(_affine_of(args[0]), -1)
    if target in ADD | SUB and not kwargs:
        x, y = map(_affine_of, args)
        return _sum(x, _times(y, 1 if target in ADD else -1))
    if target in MUL:
        x, factor = args if isinstance(args[0], Expr) else args[::-1]
        return _times(_affine_of(x), factor) if isinstance(factor, int) else None
    return None


def _sum(x: Affine | None, y: Affine | None) -> Affine | None:
    if x is None or y is None:
        return None
    known = x.rest is not None and y.rest is not None
    rest = tuple(a + b for a, b in zip(x.rest, y.rest, strict=True)) if known else None  # type: ignore[arg-type]
    return Affine(x.q + y.q, x.k + y.k, rest)  # type: ignore[arg-type]


def _times(x: Affine | None, factor: int) -> Affine | None:
    if x is None:
        return None
    rest = None if x.rest is None else tuple(factor * a for a in x.rest)
    return Affine(factor * x.q, factor * x.k, rest)  # type: ignore[arg-type]


def _compared(target: Any, args: Sequence[Any]) -> Affine | None:
    """Return the difference of the sides of a comparison."""
    if target not in _COMPARE:
        return None
    x, y = map(_affine_of, args)
    return _sum(x, _times(y, -1))


def limits(index: Expr, sizes: Sequence[int]) -> tuple[int, int] | None:
    """Return the smallest and the largest value of an index, given the sizes (B, H, N, M), if they are known."""
    if index.affine is None or index.affine.rest is None or index.dtype not in (torch.int32, torch.int64):
        return None
    b, h, number = index.affine.rest
    ends = [factor * (size - 1) for factor, size in zip((b, h, index.affine.q, index.affine.k), sizes, strict=True)]
    return number + sum(min(0, end) for end in ends), number + sum(max(0, end) for end in ends)


def products(x: Expr) -> list[tuple[Expr, Expr]] | None:
    """Return numbers or vectors of the query and of the key whose products sum to the value; None if it is no such sum.

    The vectors of a product have at most one axis; the caller checks that.
    """
    args = x.args
    if x.dtype is None or not (x.dtype.is_floating_point or x.dtype in (torch.int32, torch.int64)):
        return None  # bools and short integers neither add nor multiply as floats do
    if x.target is TO:  # a conversion to integers drops fractions
        return products(args[0]) if x.dtype.is_floating_point or not args[0].dtype.is_floating_point else None
    if x.target in ADD and not x.kwargs and all(isinstance(each, Expr) for each in args):
        one, other = map(products, args)
        return None if one is None or other is None else one + other
    if x.target is NEG:
        args = args[0], -1.0
    elif x.target in SUM and not (x.kwargs or args[2:]) and isinstance(args[0], Expr) and args[0].target in MUL:
        args = args[0].args
    elif x.target not in MUL and x.target is not DOT:
        return None
    kinds = [each.kind if isinstance(each, Expr) else "" for each in args]
    if sorted(kinds) == ["key", "row"]:
        return [args if kinds[0] == "row" else args[::-1]]
    if kinds.count("cells") != 1 or "offset" in kinds or x.target in SUM or x.target is DOT:
        return None
    at = kinds.index("cells")
    factor = args[1 - at]

    def times(own: Expr) -> Expr:
        return apply(aten.mul.Tensor, own, factor, result=own.dtype)

    by_key = kinds[1 - at] == "key"
    found = products(args[at])
    return None if found is None else [(q, times(k)) if by_key else (times(q), k) for q, k in found]


def evaluate(
    root: Any, letters: dict[str, torch.Tensor], tensors: Sequence[torch.Tensor], sizes: Sequence[int],
    outside: list[torch.Tensor],
) -> Any:  # fmt: skip
    """Return the value of an expression for one score and index each, which `torch.vmap` may map.

    Mods are asked also about keys that are hidden, where compiled kernels never look, so an index may be out of range
    there. Such indices are replaced by valid ones, and a bool is added to `outside`: whether an index is out of range.
    """
    if not isinstance(root, Expr):
        return root
    known: dict[int, Any] = {}

    def value(x: Any) -> Any:
        if isinstance(x, Expr):
            return known[id(x)]
        if isinstance(x, tuple | list):
            return type(x)(map(value, x))
        return {name: value(each) for name, each in x.items()} if isinstance(x, dict) else x

    stack = [root]
    while stack:
        own = stack[-1]
        if id(own) in known:
            stack.pop()
        elif isinstance(own.target, str):
            known[id(own)] = letters[own.target]
        elif isinstance(own.target, int):
            known[id(own)] = tensors[own.target]
        elif missing := [each for each in own.inputs() if id(each) not in known]:
            stack += missing
        elif own.target is INDEX:
            table = known[id(own.args[0])]
            at = [_within(*each, sizes, value, outside) for each in zip(own.args[1], table.shape, strict=False)]
            known[id(own)] = INDEX(table, at)
        else:
            known[id(own)] = own.target(*value(own.args), **value(own.kwargs or {}))
    return known[id(root)]


def _within(
    index: Expr | None, size: int, sizes: Sequence[int], value: Callable[[Any], Any], outside: list[torch.Tensor]
) -> Any:
    """Return the value of an index into an axis, clipped to its size unless it is known to be in range."""
    if index is None or index.dtype == torch.bool:
        return None if index is None else value(index)
    ends, found = limits(index, sizes), value(index)
    if ends is not None and -size <= ends[0] and ends[1] < size:
        return found
    clipped = found.clamp(-size, size - 1)
    outside.append(clipped != found)
    return clipped
