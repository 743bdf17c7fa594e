"""Values of expressions over samples, heads, queries and keys: only over those that they depend on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from fastpe.torch.mods.expression import Expr, evaluate
from fastpe.torch.mods.tracing import Traced

Outside = list[tuple[str, torch.Tensor]]
"""Where mods read past the end of a tensor: the name of the mod, and bools, (B or 1, H or 1, rows or 1, M or 1)."""

MOST_CELLS = 2**22
"""The number of cells (sample, head, query, key) of which values are computed at once."""


class Sizes(NamedTuple):
    """Numbers of samples, query heads, queries and keys."""

    b: int
    h: int
    n: int
    m: int

    def parts(self) -> list[slice]:
        """Return slices of the queries, of about `MOST_CELLS` cells each."""
        return self.split(MOST_CELLS // max(1, self.b * self.h * self.m))

    def split(self, rows: int) -> list[slice]:
        """Return slices of at most so many queries, in multiples of the tiles of a BlockMask where possible."""
        step = max(16, rows // 128 * 128 or rows)
        return [slice(at, min(at + step, self.n)) for at in range(0, self.n, step)]


@dataclass(frozen=True)
class Grid:
    """Numbers or bools, (B or 1, H or 1, ...). The last axis is that of `kind`: "offset" from 1 - N to M - 1, "row",
    "key" or "" for none."""

    kind: str
    x: torch.Tensor
    sizes: Sizes

    def of(self, function: Callable[[torch.Tensor], torch.Tensor]) -> "Grid":
        """Return the grid of a function of the values."""
        return replace(self, x=function(self.x))

    def cells(self, rows: slice, outside: Outside) -> torch.Tensor:
        """Return the values for some queries and all keys, (B or 1, H or 1, rows or 1, M or 1)."""
        if self.kind == "offset":
            n, m = self.sizes[2:]
            return self.x[..., torch.arange(m) - torch.arange(n)[rows, None] + n - 1]
        if self.kind == "row":
            return self.x[..., rows, None]
        return self.x[..., None, :] if self.kind == "key" else self.x[..., None, None]


def values(
    traced: Traced, x: Expr, sizes: Sizes, kind: str, rows: slice = slice(None)
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the values of an expression, (B or 1, H or 1, ...), and where an index is out of range, or None.

    The next axes are those of `kind`; "cells" has two, for some queries and all keys. A vector has one more axis.
    """
    over = {name: torch.arange(size) for name, size in (("b", sizes.b), ("h", sizes.h)) if name in x.reads}
    if kind == "offset":  # a pair of query and key for each
        offsets = torch.arange(1 - sizes.n, sizes.m)
        over["o"] = torch.stack([(-offsets).clamp(min=0), offsets.clamp(min=0)], -1)
    if kind in ("row", "cells"):
        over["q"] = torch.arange(sizes.n)[rows]
    if kind in ("key", "cells"):
        over["k"] = torch.arange(sizes.m)
    found, outside = mapped(traced, x, sizes, [{name: 0} for name in over], over)
    shape = (
        *(1 if name not in over else len(over[name]) for name in "bh"),
        *(len(over[x]) for x in over if x not in "bh"),
    )
    return found.reshape(*shape, *found.shape[len(over) :]), None if outside is None else outside.reshape(shape)


def mapped(
    traced: Traced, x: Expr, sizes: Sizes, axes: Sequence[dict[str, int]], over: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Evaluate an expression under `torch.vmap`, once for each dict of letters in `axes`, the first one outermost."""
    names, zero = list(over), torch.zeros((), dtype=torch.int64)

    def scalar(*given: torch.Tensor) -> Any:
        env = dict.fromkeys("bhqk", zero)
        outside: list[torch.Tensor] = []
        for name, own in zip(names, given, strict=True):
            env |= {"q": own[0], "k": own[1]} if name == "o" else {name: own}
        found = evaluate(x, env, traced.tensors, sizes, outside)
        found = found if isinstance(found, torch.Tensor) else torch.tensor(found)
        if not outside:
            return (found,)
        anywhere = outside[0]
        for each in outside[1:]:
            anywhere = anywhere | each
        return found, anywhere

    run: Callable[..., Any] = scalar
    for own in reversed(axes):
        run = torch.vmap(run, in_dims=tuple(own.get(name) for name in names))
    found = run(*over.values())
    return found[0], found[1] if len(found) > 1 else None


def check(outside: Outside, seen: torch.Tensor) -> None:
    """Raise IndexError if a mod reads past the end of a tensor for a key that a query sees."""
    for name, past in outside:
        if bool((past & seen).any()):
            raise past_the_end(name)


def past_the_end(name: str) -> IndexError:
    """Return the error of a mod that reads past the end of a tensor."""
    return IndexError(f"{name} reads past the end of a tensor, for a key that a query sees")


def not_finite(name: str) -> ValueError:
    """Return the error of a mod whose numbers are NaN or infinity."""
    return ValueError(f"{name} must give finite numbers or -inf to keys that a query sees, not NaN or infinity")
