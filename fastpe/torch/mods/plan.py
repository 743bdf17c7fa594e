"""Which arguments of `fastpe.torch.attention` have the effect of a score_mod."""

from dataclasses import dataclass, field

import torch

from fastpe.torch.mods import grids
from fastpe.torch.mods.expression import INDEX, Expr, evaluate, products
from fastpe.torch.mods.form import NoForm, read
from fastpe.torch.mods.grids import Grid, Sizes
from fastpe.torch.mods.sight import Asked, Mask, Sight, Whole, axes_of, captured_view
from fastpe.torch.mods.tracing import Traced

_MOST_INDICES = 2**26  # entries of the slot `index`


@dataclass
class Plan:
    """What a call computes.

    Attributes
    ----------
    sight : Sight
        Which keys each query sees.
    slots : dict of str to tensor
        Slots of attention: scale, gain, row_scale, bias, key_offset, index, values.
    softcap : float or None
    rectify : bool
    key_factor : tensor or None
        Multiplies the keys, (B or 1, Hk or 1, M).
    products : list of (tensor, tensor)
        Vectors of queries and keys, (B or 1, H or 1, N, C) and (B or 1, H or 1, M, C), whose products are added to the
        scores.
    added : list of Mask
        Numbers added last, (B or 1, H or 1, N or 1, M or 1).
    scores : list of Mask
        Numbers added before the soft cap.
    lse : list of Grid
        What the softmax does not feel, but the logarithm of its denominator does.
    reasons : list of str
        Why something needs more than O(N) memory.
    """

    sizes: Sizes
    sight: Sight
    slots: dict[str, torch.Tensor] = field(default_factory=dict)
    softcap: float | None = None
    rectify: bool = False
    key_factor: torch.Tensor | None = None
    products: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    added: list[Mask] = field(default_factory=list)
    scores: list[Mask] = field(default_factory=list)
    lse: list[Grid] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def plan(traced: Traced, sight: Sight, dtype: torch.dtype, key_heads: int, scale: float) -> Plan:
    """Return the plan for a score_mod whose score has this dtype, and add its conditions to `sight`.

    Raises
    ------
    NoForm
        If it has no form for which there are slots.
    """
    form = read(traced, dtype)
    if form.rectified and not scale > 0:
        raise NoForm("relu of scores whose scale is not positive")
    found = Plan(sight.sizes, sight, softcap=form.softcap, rectify=form.rectified)
    slots = _Slots(found, traced, dtype, key_heads)
    number = scale
    for each in form.factors:
        if isinstance(each, float):
            number *= each
        else:
            slots.factor(each)
    found.slots["scale"] = found.slots.get("scale", torch.ones((), dtype=dtype)) * number
    for each in form.terms:
        slots.term(each)
    for each in form.late:
        slots.late(each)
    for condition, value in form.conditions:
        sight.require(traced, condition, value)
    return found


class _Slots:
    """Fills the slots of a plan."""

    def __init__(self, plan: Plan, traced: Traced, dtype: torch.dtype, key_heads: int) -> None:
        self.plan, self.traced, self.dtype, self.key_heads = plan, traced, dtype, key_heads
        self.sizes, self.sight = plan.sizes, plan.sight

    def factor(self, x: Expr) -> None:
        """Use a factor of the score."""
        kind, h, n = x.kind, self.sizes.h, self.sizes.n
        if kind == "cells":
            raise NoForm("the score is multiplied by what depends on query and key, not only on their offset")
        if kind == "key" and "h" in x.reads and h != self.key_heads:
            raise NoForm("keys are shared by heads, and multiplied by what depends on the head")
        grid = self._finite(self.sight.grid(self.traced, x), 1.0)
        if kind == "" and "b" not in x.reads:
            self._multiply("scale", grid.x[0].expand(h))
        elif kind == "offset":
            self._multiply("gain", self._offsets(grid.x, 1.0))
        elif kind == "key":
            own, found = self.plan.key_factor, grid.x
            self.plan.key_factor = found if own is None else own * found
        else:
            self._multiply("row_scale", grid.x if kind == "row" else grid.x[..., None].expand(-1, -1, n))

    def term(self, x: Expr) -> None:
        """Use a term before the soft cap."""
        h, widest = self.sizes.h, 2 * max(self.sizes[2:]) - 1
        if x.kind in ("row", "cells"):
            if not self._multiplied(x) and not self._selected(x):
                self._dense(x, self.plan.scores)
            return
        grid = self.sight.grid(self.traced, x).of(bounded)
        grid = self._finite(grid, 0.0)
        if x.kind == "key":
            self._add("key_offset", grid.x)
        else:
            bias = self._offsets(grid.x, 0.0) if x.kind == "offset" else grid.x[..., None].expand(-1, h, widest)
            self._add("bias", bias)

    def late(self, x: Expr) -> None:
        """Use a term after the soft cap, or any term if there is none."""
        if x.kind == "cells" or (x.kind in ("offset", "key") and self.plan.softcap is not None):
            if self.plan.softcap is not None or not (self._multiplied(x) or self._selected(x)):
                self._dense(x, self.plan.added)
            return
        grid = self._finite(self.sight.grid(self.traced, x), 0.0, hides=True)
        if x.kind == "offset":
            self._add("bias", self._offsets(grid.x, 0.0))
        elif x.kind == "key":
            self._add("key_offset", grid.x)
        else:
            self.plan.lse.append(grid)

    def _dense(self, x: Expr, to: list[Mask]) -> None:
        view = captured_view(self.traced, x, self.sizes)
        what = "a captured tensor" if view is not None else str(x.target)
        self.plan.reasons.append(f"{what} of query and key is added")
        if view is not None:
            to.append(Whole(view.to(self.dtype)))
        elif x.kind in ("offset", "key"):
            to.append(self._finite(self.sight.grid(self.traced, x), 0.0, hides=True))
        else:
            to.append(Asked(self.traced, x, self.sizes))

    def _multiplied(self, x: Expr) -> bool:
        """Append vectors to queries and keys for numbers that are sums of their products; say if they are such."""
        pairs = products(x)
        if pairs is None or self.plan.rectify or "gain" in self.plan.slots:
            return False
        found = []
        for pair in pairs:
            own = [self.sight.grid(self.traced, each).x.to(self.dtype) for each in pair]
            one, other = (each if each.ndim > 3 else each[..., None] for each in own)
            if not all(each.ndim == 4 and bool(each.isfinite().all()) for each in (one, other)):
                return False
            width = max(one.shape[-1], other.shape[-1])
            found.append((one.expand(-1, -1, -1, width), other.expand(-1, -1, -1, width)))
        self.plan.products += found
        return True

    def _selected(self, x: Expr) -> bool:
        """Use the slots `index` and `values` for numbers that query and key select from a table; say if it is such."""
        if x.target is not INDEX or "values" in self.plan.slots or x.args[0].reads or None in x.args[1]:
            return False
        (_, h, n, m), at = self.sizes, list(x.args[1])
        chosen = [place for place, each in enumerate(at) if each.kind == "cells" and each.reads <= {"q", "k"}]
        if len(chosen) != 1 or n * m > _MOST_INDICES:
            return False
        index, at[chosen[0]] = at[chosen[0]], "values"
        whole = evaluate(x.args[0], {}, self.traced.tensors, self.sizes, [])
        table = axes_of(self.traced, whole, at, ["values"], self.sizes)
        if table is None:
            return False
        table = table.to(self.dtype).expand(-1, h, -1)
        if not bool(table.isfinite().all()):
            return False
        self.plan.slots |= {"values": table, "index": self._places(index, table.shape[-1])}
        self.plan.reasons.append("query and key select a number from a table")
        return True

    def _places(self, x: Expr, count: int) -> torch.Tensor:
        """Return an index into an axis of `count` numbers for each query and key, (N, M) int32."""
        found, missing = [], []
        for rows in self.sizes.parts():
            own, past = grids.values(self.traced, x, self.sizes, "cells", rows)
            wrong = (own < -count) | (own >= count)
            missing.append(wrong if past is None else wrong | past)
            found.append(torch.where(own < 0, own + count, own).clamp(0, count - 1)[0, 0].to(torch.int32))
        if any(bool(each.any()) for each in missing):
            self.sight.refuse(Whole(torch.cat(missing, 2)), grids.past_the_end(self.traced.name))
        return torch.cat(found)

    def _finite(self, grid: Grid, filler: float, hides: bool = False) -> Grid:
        """Return a grid in the dtype of the score. Numbers that are not finite are replaced: no query may see them.

        If `hides`, minus infinity hides keys.
        """
        grid = grid.of(lambda x: x.to(self.dtype))
        wrong = ~grid.x.detach().isfinite()
        if not bool(wrong.any()):
            return grid
        filled = grid.of(lambda x: x.masked_fill(wrong, filler))
        if hides:
            holes = grid.x.detach() == -torch.inf
            self.sight.show(Grid(grid.kind, ~holes, self.sizes))
            wrong = wrong & ~holes
        if bool(wrong.any()):
            self.sight.refuse(Grid(grid.kind, wrong, self.sizes), grids.not_finite(self.traced.name))
        return filled

    def _offsets(self, x: torch.Tensor, beyond: float) -> torch.Tensor:
        """Return a slot (B or 1, H, 2K+1) of offsets from 1 - N to M - 1."""
        n, m = self.sizes[2:]
        most = max(n, m)
        return torch.nn.functional.pad(x, (most - n, most - m), value=beyond).expand(-1, self.sizes.h, -1)

    def _add(self, name: str, x: torch.Tensor) -> None:
        self.plan.slots[name] = self.plan.slots[name] + x if name in self.plan.slots else x

    def _multiply(self, name: str, x: torch.Tensor) -> None:
        self.plan.slots[name] = self.plan.slots[name] * x if name in self.plan.slots else x


def bounded(x: torch.Tensor) -> torch.Tensor:
    """Return a term inside a soft cap without infinity: tanh is 1 or -1 for both."""
    return x.clamp(-1e30, 1e30)
