"""Which keys each query sees: the conditions of a score_mod and a BlockMask, as spans where that is possible."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from fastpe.torch.mods import grids
from fastpe.torch.mods.expression import INDEX, TO, Expr, evaluate
from fastpe.torch.mods.grids import Grid, Outside, Sizes
from fastpe.torch.mods.tracing import Traced

_NAMES = {"": "", "row": "q", "key": "k", "offset": "o"}  # the index along the last axis of a grid of a kind
_MOST_KEPT = 2**24  # cells of a mask that is kept whole; attention makes it floats


class Mask(Protocol):
    """Which keys some queries see."""

    def cells(self, rows: slice, outside: Outside) -> torch.Tensor:
        """Return bools, (B or 1, H or 1, rows or 1, M or 1). Add the places where a mod reads past the end of a tensor
        to `outside`."""


@dataclass(frozen=True)
class Whole:
    """An array (B or 1, H or 1, N or 1, M or 1) that exists already."""

    x: torch.Tensor

    def cells(self, rows: slice, outside: Outside) -> torch.Tensor:
        """Return the values for some queries and all keys."""
        return self.x if self.x.shape[-2] == 1 else self.x[..., rows, :]


@dataclass(frozen=True)
class Asked:
    """An expression that is evaluated for some queries at a time; whether it has a value, if `value` is given."""

    traced: Traced
    x: Expr
    sizes: Sizes
    value: bool | None = None

    def cells(self, rows: slice, outside: Outside) -> torch.Tensor:
        """Return the values for some queries and all keys."""
        found, past = grids.values(self.traced, self.x, self.sizes, "cells", rows)
        if past is not None:
            outside.append((self.traced.name, past))
        return found if self.value is None else found.bool() == self.value


class Sight:
    """The keys that each query sees: those in its span (B or 1, N, 2), for which all masks are True."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.spans: torch.Tensor | None = None
        self.masks: list[Mask] = []
        self._unseen: list[tuple[Mask, Exception]] = []

    def require(self, traced: Traced, condition: Expr, value: bool) -> None:
        """Hide keys for which a condition does not have the value."""
        view = captured_view(traced, condition, self.sizes)
        if view is not None and value and view.dtype == torch.bool:
            self.masks.append(Whole(view))
        elif condition.kind == "cells":
            self.masks.append(Asked(traced, condition, self.sizes, value))
        else:
            self.show(self.grid(traced, condition).of(lambda x: x.bool() == value))

    def grid(self, traced: Traced, x: Expr) -> Grid:
        """Return the values of an expression. Where they are made of what lies past the end of a tensor, `check`
        ensures that no query sees the key."""
        view = captured_view(traced, x, self.sizes, _NAMES[x.kind])
        if view is not None:
            return Grid(x.kind, view, self.sizes)
        found, past = grids.values(traced, x, self.sizes, x.kind)
        if past is not None and bool(past.any()):
            self.refuse(Grid(x.kind, past, self.sizes), grids.past_the_end(traced.name))
        return Grid(x.kind, found, self.sizes)

    def show(self, grid: Grid) -> None:
        """Hide keys where a grid of bools is False."""
        spans = _spans_of_offsets(grid)
        if spans is None:
            self.masks.append(grid)
        else:
            self._meet(spans)

    def refuse(self, wrong: Mask, error: Exception) -> None:
        """Raise an error in `check` if `wrong` is True for a key that a query sees."""
        self._unseen.append((wrong, error))

    def joined(self, other: "Sight") -> "Sight":
        """Return the keys that are seen in both."""
        found = Sight(self.sizes)
        for each in (self, other):
            if each.spans is not None:
                found._meet(each.spans)
        found.masks, found._unseen = self.masks + other.masks, self._unseen + other._unseen
        return found

    def check(self) -> None:
        """Raise the errors of `refuse`."""
        for wrong, error in self._unseen:
            for rows in self.sizes.parts():
                if bool((wrong.cells(rows, []) & self.seen(rows)).any()):
                    raise type(error)(*error.args)  # one of its own: `error` is shared by all calls

    @property
    def is_known(self) -> bool:
        """Whether no mask must be computed by chunks of queries."""
        return all(isinstance(each, Whole) for each in self.masks)

    def mask(self, rows: slice, outside: Outside | None = None) -> torch.Tensor | None:
        """Return the masks for some queries, (B or 1, H or 1, rows or 1, M), without the spans.

        Raises
        ------
        IndexError
            If a mod, or one of `outside`, reads past the end of a tensor for a key that is seen.
        """
        outside = [] if outside is None else outside
        seen = None
        for each in self.masks:
            own = each.cells(rows, outside)
            seen = own if seen is None else seen & own
        if outside:
            grids.check(outside, self._in_span(rows, seen))
        return seen if seen is None else seen.expand(*seen.shape[:3], self.sizes.m)

    def seen(self, rows: slice, outside: Outside | None = None) -> torch.Tensor:
        """Return which keys some queries see, (B or 1, H or 1, rows, M), with the errors of `mask`."""
        n, m = self.sizes[2:]
        return self._in_span(rows, self.mask(rows, outside)).expand(-1, -1, len(range(n)[rows]), m)

    def _in_span(self, rows: slice, seen: torch.Tensor | None) -> torch.Tensor:
        seen = torch.ones(1, 1, 1, 1, dtype=torch.bool) if seen is None else seen
        if self.spans is not None:
            own, k = self.spans[:, None, rows, None], torch.arange(self.sizes.m)
            seen = seen & (own[..., 0] <= k) & (k < own[..., 1])
        return seen

    def simplify(self) -> None:
        """Turn masks into spans if each query sees an interval of keys, alike for all heads; keep small ones whole."""
        if not self.masks:
            return
        n, m = self.sizes[2:]
        parts = self.sizes.parts()
        if all(isinstance(each, Grid) and each.kind in ("", "key") for each in self.masks):
            parts = [slice(0, 1)]
        found: list[torch.Tensor] = []
        spans: list[torch.Tensor | None] = []
        kept = True
        for rows in parts:
            seen = self.mask(rows)
            assert seen is not None
            spans.append(_intervals(seen, m) if not spans or spans[-1] is not None else None)
            kept = kept and len(parts) * seen.numel() <= _MOST_KEPT
            if kept:
                found.append(seen)
            elif spans[-1] is None:
                return
        if all(each is not None for each in spans):
            self._meet(torch.cat([each for each in spans if each is not None], 1).expand(-1, n, -1))
            self.masks = []
        elif kept:
            self.masks = [Whole(torch.cat(found, 2) if len(found) > 1 else found[0])]

    def _meet(self, spans: torch.Tensor) -> None:
        if self.spans is not None:
            first, last = (torch.broadcast_tensors(self.spans[..., at], spans[..., at]) for at in (0, 1))
            spans = torch.stack([torch.maximum(*first), torch.minimum(*last)], -1)
        self.spans = spans


def captured_view(traced: Traced, x: Expr, sizes: Sizes, names: str = "qk") -> torch.Tensor | None:
    """Return a captured tensor as (B or 1, H or 1, ...), with an axis for each of `names` ("o": offset), if an
    expression reads it at these indices, or at indices that are ahead or behind by a number."""
    if x.target is TO and isinstance(x.args[0], Expr):
        inner = captured_view(traced, x.args[0], sizes, names)
        return None if inner is None else inner.to(x.dtype)
    if x.target is not INDEX or not isinstance(x.args[0].target, int):
        return None
    return axes_of(traced, traced.tensors[x.args[0].target], x.args[1], names, sizes)


def axes_of(
    traced: Traced, table: torch.Tensor, at: Sequence[Expr | str | None], names: Sequence[str], sizes: Sizes
) -> torch.Tensor | None:
    """Return a table as (B or 1, H or 1, ...) with an axis for each of `names`.

    `at` has an index for each axis of the table: a name, or an expression, which must run over an index or the offset,
    or not depend on them. Return None if it is something else, or if the table is too small.
    """
    needed = {**dict(zip("bhqk", sizes, strict=True)), "o": sizes.n + sizes.m - 1}
    axes: dict[str, int] = {}
    if len(at) != table.ndim:
        return None
    for each in at:
        axis = len(axes)
        size = table.shape[axis]
        if isinstance(each, Expr) and not each.reads:
            place = int(evaluate(each, {}, traced.tensors, sizes, []))
            if not -size <= place < size:
                return None
            table = table.select(axis, place)
            continue
        run = (each, 0, 1) if isinstance(each, str) else _run(each, sizes)
        if run is None or run[0] in axes:
            return None
        name, start, step = run
        if step < 0:
            table, start = table.flip(axis), size - 1 - start
        length = needed.get(name, size)
        if not 0 <= start <= size - length:
            return None
        table, axes[name] = table.narrow(axis, start, length), axis
    if axes.keys() - {"b", "h"} != {*names}:
        return None
    table = table.permute([axes[name] for name in ("b", "h", *names) if name in axes])
    table = table if "h" in axes else table.unsqueeze(-1 - len(names))
    return table if "b" in axes else table.unsqueeze(0)


def _run(x: Expr | None, sizes: Sizes) -> tuple[str, int, int] | None:
    """Return the index or the offset ("o") over which an expression runs, its first value, and the step, 1 or -1."""
    if x is None or x.affine is None or x.affine.rest is None or x.dtype not in (torch.int32, torch.int64):
        return None
    *factors, number = x.affine.rest
    match (*factors, x.affine.q, x.affine.k):
        case (0, 0, -1, 1):
            return "o", number + 1 - sizes.n, 1
        case (0, 0, 1, -1):
            return "o", number + sizes.n - 1, -1
        case found if sorted(found) == [0, 0, 0, 1]:
            return "bhqk"[found.index(1)], number, 1
    return None


def _spans_of_offsets(grid: Grid) -> torch.Tensor | None:
    """Return the spans (1, N, 2) if a grid shows an interval of offsets, alike for all samples and heads."""
    if grid.kind != "offset" or grid.x.shape[:2] != (1, 1):
        return None
    n = grid.sizes.n
    at = grid.x[0, 0].nonzero()[:, 0]
    if not len(at):
        return torch.zeros(1, n, 2, dtype=torch.int64)
    first, last = int(at[0]), int(at[-1])
    if last - first + 1 != len(at):
        return None
    rows = torch.arange(n)
    spans = torch.stack([rows + first + 1 - n, rows + last + 2 - n], -1)
    return spans.clamp(0, grid.sizes.m)[None]


def _intervals(seen: torch.Tensor, m: int) -> torch.Tensor | None:
    """Return the span of each query, (B or 1, rows, 2); None if keys have gaps or heads differ."""
    if seen.shape[1] > 1 and not bool((seen == seen[:, :1]).all()):
        return None
    rows = seen[:, 0]
    count, first = rows.sum(-1), rows.to(torch.uint8).argmax(-1)
    last = m - rows.flip(-1).to(torch.uint8).argmax(-1)
    if not bool(((count == 0) | (last - first == count)).all()):
        return None
    return torch.stack([first, torch.where(count == 0, first, last)], -1)
