"""Attention by a plan, or by PyTorch for what has no form; by chunks of queries if an array has entries for each query
and key."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from fastpe.torch.call import attention
from fastpe.torch.mods import grids
from fastpe.torch.mods.checks import scores_dtype
from fastpe.torch.mods.expression import INDICES, evaluate
from fastpe.torch.mods.grids import Outside, Sizes
from fastpe.torch.mods.plan import Plan, bounded
from fastpe.torch.mods.sight import Mask, Sight, Whole
from fastpe.torch.mods.tracing import Traced

# Of an array with an entry for each query of a chunk and each key: for attention, and for PyTorch, which makes many.
_CHUNK_BYTES, _FALLBACK_BYTES = 2**25, 2**23

Result = tuple[torch.Tensor, torch.Tensor]


def by_slots(plan: Plan, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Result:
    """Return output and lse of a plan."""
    slots, dtype = dict(plan.slots), scores_dtype(q)
    if plan.key_factor is not None or plan.products:
        q, k, v = (x.to(dtype) for x in (q, k, v))
    if plan.key_factor is not None:
        k = k * plan.key_factor[..., None]
    if plan.products:
        q = q * slots.pop("scale")[..., None, None] * slots.pop("row_scale", torch.ones(1))[..., None].to(dtype)
        q, k, v = _lengthened(plan, q, k, v)
        slots["scale"] = torch.ones((), dtype=dtype)
    parts = chunks(plan)
    queries = q.split(parts[0].stop, 2)
    scores, added = ([_divided(each, parts) for each in own] for own in (plan.scores, plan.added))

    def part(number: int) -> Result:
        rows = parts[number]
        outside: Outside = []
        own = {name: _of_rows(name, x, rows) for name, x in slots.items()}
        early, late = (_total([each[number] for each in x], rows, outside, dtype) for x in (scores, added))
        seen, spans = plan.sight.mask(rows, outside), plan.sight.spans
        if early is not None:
            early = _finite(bounded(early), plan, rows)
            own["scores"] = early.expand(-1, q.shape[1], queries[number].shape[2], k.shape[2])
        if late is not None:
            late = _finite(late, plan, rows, hides=True)
            seen = late if seen is None else torch.where(seen, late, -torch.inf)
        found: Result = attention(
            queries[number], k, v, mask=seen, spans=spans if spans is None else spans[:, rows], query_start=rows.start,
            softcap=plan.softcap, rectify=plan.rectify, return_lse=True, **own,
        )  # fmt: skip
        return found

    out, lse = _joined(part, len(parts), again=_alone(plan) is None)
    for each in plan.lse:
        lse = lse + (each.x if each.kind == "row" else each.x[..., None])
    return out, lse


def _lengthened(plan: Plan, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return queries and keys with the vectors of a plan appended, and values: the products are added to the scores."""
    heads = k.shape[1]
    if any(y.shape[1] not in (1, heads) for _, y in plan.products):
        heads = q.shape[1]
        k, v = (x.repeat_interleave(heads // k.shape[1], 1) for x in (k, v))
    vectors = zip(*plan.products, strict=True)
    q, k = (
        torch.cat([x, *(each.expand(*x.shape[:3], -1) for each in own)], -1)
        for x, own in zip((q, k), vectors, strict=True)
    )
    return q, k, v


def chunks(plan: Plan) -> list[slice]:
    """Return the queries of each chunk; one slice if no array has an entry for each query and key."""
    sizes, alone = plan.sizes, _alone(plan)
    if alone is None:
        whole = plan.sight.is_known and not (plan.scores or plan.added)
    else:  # attention reads it; its gradient has all samples and heads
        whole = not alone.requires_grad or alone.shape[:2] == sizes[:2]
    return [slice(0, sizes.n)] if whole else _of_bytes(sizes, _CHUNK_BYTES)


def _alone(plan: Plan) -> torch.Tensor | None:
    """Return the numbers that are added for queries and keys, if they are an array that exists already and there is no
    mask: nothing must be computed for a chunk."""
    dense = [*plan.scores, *plan.added]
    return dense[0].x if len(dense) == 1 and isinstance(dense[0], Whole) and not plan.sight.masks else None


def by_pytorch(
    traced: Traced, sight: Sight, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> Result:  # fmt: skip
    """Return output and lse of a score_mod without a form: all scores of a chunk are computed."""
    sizes, dtype = sight.sizes, scores_dtype(q)
    group = sizes.h // k.shape[1]
    k, v = (x.to(dtype).repeat_interleave(group, 1) for x in (k, v))

    def scalar(score: torch.Tensor, *indices: torch.Tensor) -> Any:
        outside: list[torch.Tensor] = []
        env = {"s": score} | dict(zip(INDICES, indices, strict=True))
        found = evaluate(traced.result, env, traced.tensors, sizes, outside)
        return found, *outside

    changed: Callable[..., Any] = scalar
    for axis in range(4):
        changed = torch.vmap(changed, in_dims=(0, *(0 if own == 3 - axis else None for own in range(4))))

    def part(number: int) -> Result:
        rows = parts[number]
        scores = (q[:, :, rows].to(dtype) @ k.transpose(-1, -2)) * scale
        over = [torch.arange(size) for size in sizes]
        over[2] = over[2][rows]
        scores, *past = changed(scores, *over)
        outside: Outside = [(traced.name, each) for each in past]
        seen = sight.seen(rows, outside)
        scores = torch.where(seen, scores.to(dtype), -torch.inf)
        blind = (scores == -torch.inf).all(-1, keepdim=True)
        scores = scores.masked_fill(blind, 0.0)
        out = scores.softmax(-1).masked_fill(blind, 0.0) @ v
        return out, torch.logsumexp(scores, -1).masked_fill(blind[..., 0], -torch.inf)

    parts = fallback_chunks(sizes)
    return _joined(part, len(parts), again=True)


def fallback_chunks(sizes: Sizes) -> list[slice]:
    """Return the queries of each chunk of `by_pytorch`."""
    return _of_bytes(sizes, _FALLBACK_BYTES)


def _of_bytes(sizes: Sizes, most: int) -> list[slice]:
    return sizes.split(most // max(1, sizes.b * sizes.h * sizes.m * 4))


def _joined(part: Callable[[int], Result], count: int, again: bool) -> Result:
    """Return the results of all chunks. `again`: whether the backward pass computes each chunk again."""
    if count == 1:
        return part(0)
    if again and torch.is_grad_enabled():
        found = [checkpoint(part, at, use_reentrant=False, preserve_rng_state=False) for at in range(count)]
    else:
        found = [part(at) for at in range(count)]
    out, lse = (torch.cat(each, 2) for each in zip(*found, strict=True))
    return out, lse


def _divided(own: Mask, parts: Sequence[slice]) -> Sequence[Any]:
    """Return what is added in each chunk. The pieces of an array are views, whose gradients autograd joins once."""
    if isinstance(own, Whole) and own.x.shape[-2] > 1:
        return own.x.split(parts[0].stop, -2)
    return [own] * len(parts)


def _of_rows(name: str, x: torch.Tensor, rows: slice) -> torch.Tensor:
    """Return the part of a slot for some queries."""
    return x[..., rows] if name == "row_scale" else x[..., rows, :] if name == "index" else x


def _finite(x: torch.Tensor, plan: Plan, rows: slice, hides: bool = False) -> torch.Tensor:
    """Return numbers with 0 in place of those that are not finite, which no query may see. If `hides`, minus infinity
    is kept."""
    wrong = ~x.detach().isfinite()
    if hides:
        wrong &= x.detach() != -torch.inf
    if not bool(wrong.any()):
        return x
    if bool((wrong & plan.sight.seen(rows)).any()):
        raise grids.not_finite("score_mod")
    return x.masked_fill(wrong, 0.0)


def _total(numbers: Sequence[Any], rows: slice, outside: Outside, dtype: torch.dtype) -> torch.Tensor | None:
    """Return the sum of what is added in a chunk."""
    found = None
    for each in numbers:
        own = each if isinstance(each, torch.Tensor) else each.cells(rows, outside).to(dtype)
        found = own if found is None else found + own
    return found
