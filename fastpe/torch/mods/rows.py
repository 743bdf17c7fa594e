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
Part = Callable[..., Result]


def by_slots(plan: Plan, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Result:
    """Return output and lse of a plan."""
    if plan.key_factor is not None:
        k = k * plan.key_factor[..., None]
        q, v = q.to(k.dtype), v.to(k.dtype)
    parts = chunks(plan)
    dense = [_divided(each, parts) for each in (*plan.scores, *plan.added)]

    def part(number: int, q: torch.Tensor, *own: Any) -> Result:
        rows = parts[number]
        outside: Outside = []
        slots = {name: _of_rows(name, x, rows) for name, x in plan.slots.items()}
        numbers = [x if isinstance(x, torch.Tensor) else x.cells(rows, outside).to(scores_dtype(q)) for x in own]
        seen = plan.sight.mask(rows, outside)
        scores, added = (_total(each) for each in (numbers[: len(plan.scores)], numbers[len(plan.scores) :]))
        if scores is not None:
            scores = _finite(bounded(scores), plan, rows)
            slots["scores"] = scores.expand(-1, q.shape[1], q.shape[2], k.shape[2])
        if added is not None:
            added = _finite(added, plan, rows, -torch.inf)
            seen = added if seen is None else torch.where(seen, added, -torch.inf)
        spans = plan.sight.spans
        found: Result = attention(
            q, k, v, mask=seen, spans=spans if spans is None else spans[:, rows], query_start=rows.start,
            softcap=plan.softcap, rectify=plan.rectify, return_lse=True, **slots,
        )  # fmt: skip
        return found

    computed = any(not isinstance(each, list) or len(dense) > 1 or plan.sight.masks for each in dense)
    out, lse = _joined(part, parts, q, dense, not plan.sight.is_known or computed)
    for each in plan.lse:
        lse = lse + (each.x if each.kind == "row" else each.x[..., None])
    return out, lse


def chunks(plan: Plan) -> list[slice]:
    """Return the queries of each chunk; one slice if no array has an entry for each query and key."""
    sizes, dense = plan.sizes, [*plan.scores, *plan.added]
    if not dense and plan.sight.is_known:
        return [slice(0, sizes.n)]
    if len(dense) == 1 and not plan.sight.masks and isinstance(dense[0], Whole):
        x = dense[0].x  # attention reads it; its gradient has all samples and heads
        if not x.requires_grad or x.shape[:2] == sizes[:2]:
            return [slice(0, sizes.n)]
    return _of_bytes(sizes, _CHUNK_BYTES)


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

    def part(number: int, q: torch.Tensor) -> Result:
        rows = parts[number]
        scores = (q.to(dtype) @ k.transpose(-1, -2)) * scale
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
    out, lse = _joined(part, parts, q, [], True)
    return out, lse


def fallback_chunks(sizes: Sizes) -> list[slice]:
    """Return the queries of each chunk of `by_pytorch`."""
    return _of_bytes(sizes, _FALLBACK_BYTES)


def _of_bytes(sizes: Sizes, most: int) -> list[slice]:
    return sizes.split(most // max(1, sizes.b * sizes.h * sizes.m * 4))


def _joined(part: Part, parts: Sequence[slice], q: torch.Tensor, dense: Sequence[Any], again: bool) -> Result:
    """Return the results of all chunks. `again`: whether the backward pass computes each chunk again."""
    if len(parts) == 1:
        return part(0, q, *(each[0] if isinstance(each, list) else each for each in dense))
    found = []
    for number, own in enumerate(q.split(parts[0].stop, 2)):
        args = number, own, *(each[number] if isinstance(each, list) else each for each in dense)
        if again and torch.is_grad_enabled():
            found.append(checkpoint(part, *args, use_reentrant=False, preserve_rng_state=False))
        else:
            found.append(part(*args))
    out, lse = (torch.cat(each, 2) for each in zip(*found, strict=True))
    return out, lse


def _divided(own: Mask, parts: Sequence[slice]) -> Any:
    """Return an array in a list of one piece for each chunk: autograd joins their gradients once."""
    if not isinstance(own, Whole):
        return own
    if own.x.shape[-2] == 1 or len(parts) == 1:
        return [own.x] * len(parts)
    return list(own.x.split(parts[0].stop, -2))


def _of_rows(name: str, x: torch.Tensor, rows: slice) -> torch.Tensor:
    """Return the part of a slot for some queries."""
    return x[..., rows] if name == "row_scale" else x[..., rows, :] if name == "index" else x


def _finite(x: torch.Tensor, plan: Plan, rows: slice, *allowed: float) -> torch.Tensor:
    """Return numbers with 0 in place of those that are not finite, which no query may see."""
    wrong = ~x.detach().isfinite()
    for each in allowed:
        wrong &= x.detach() != each
    if not bool(wrong.any()):
        return x
    if bool((wrong & plan.sight.seen(rows)).any()):
        raise grids.not_finite("score_mod")
    return x.masked_fill(wrong, 0.0)


def _total(numbers: Sequence[torch.Tensor]) -> torch.Tensor | None:
    found = None
    for each in numbers:
        found = each if found is None else found + each
    return found
