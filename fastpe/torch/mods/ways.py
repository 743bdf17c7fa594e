"""The choice of a way: slots, or PyTorch for what has no form."""

import weakref
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask

from fastpe.torch.mods import rows
from fastpe.torch.mods.block_mask import NO_TILES, Tiles
from fastpe.torch.mods.captured import Changeable, captured
from fastpe.torch.mods.checks import Call, scores_dtype
from fastpe.torch.mods.form import NoForm
from fastpe.torch.mods.grids import Sizes
from fastpe.torch.mods.plan import Plan, plan
from fastpe.torch.mods.sight import Sight
from fastpe.torch.mods.tracing import Traced, called, trace


@dataclass(frozen=True)
class Way:
    """How a call is computed: by a plan, or by PyTorch if there is none."""

    plan: Plan | None
    traced: Traced | None
    sight: Sight
    reasons: tuple[str, ...]


def attended(call: Call, score_mod: Any, block_mask: Any, fallback: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and lse. `fallback` is as for `flex_attention`."""
    q, k, v = call.q, call.k, call.v
    if k.shape[0] != q.shape[0]:
        k, v = (x.expand(q.shape[0], -1, -1, -1) for x in (k, v))
    with torch.autocast("cpu", enabled=False):
        way = way_of(call, score_mod, block_mask)
        if way.plan is not None:
            out, lse = rows.by_slots(way.plan, q, k, v)
        elif fallback == "error":
            raise ValueError(f"{called(score_mod, 'score_mod')} has no form of slots: {way.reasons[0]}")
        else:
            assert way.traced is not None
            out, lse = rows.by_pytorch(way.traced, way.sight, q, k, v, call.scale)
    return out.to(q.dtype), lse


def way_of(call: Call, score_mod: Any, block_mask: Any) -> Way:
    """Return the way of a call."""
    if 0 in call.sizes:
        score_mod = block_mask = None
    sight = _sight(block_mask, call.sizes)
    if score_mod is None:
        scale = torch.tensor(call.scale, dtype=scores_dtype(call.q))
        own = Plan(call.sizes, sight, {"scale": scale}, reasons=_masks_of(sight))
        return Way(own, None, sight, tuple(own.reasons))
    traced = trace(score_mod, scores_dtype(call.q), called(score_mod, "score_mod"))
    try:
        own = _plan(call, traced)
    except NoForm as error:
        return Way(None, traced, sight, (str(error),))
    both = own.sight.joined(sight)
    both.check()
    own = replace(own, sight=both, reasons=own.reasons + _masks_of(both))
    return Way(own, traced, both, tuple(own.reasons))


def _plan(call: Call, traced: Traced) -> Plan:
    """Return the plan of a score_mod alone. The last one of a mod without captured tensors is kept."""
    given = traced, call.sizes, call.k.shape[1], call.scale, scores_dtype(call.q)
    if not traced.is_constant:
        return _new_plan(*given)
    assert traced.memo is not None
    key, found = traced.memo.get("plan", (None, None))
    if key != given[1:]:
        with torch.inference_mode(False), torch.no_grad():
            found = _new_plan(*given)
        traced.memo["plan"] = given[1:], found
    assert found is not None
    return found


def _new_plan(traced: Traced, sizes: Sizes, key_heads: int, scale: float, dtype: torch.dtype) -> Plan:
    found = plan(traced, Sight(sizes), dtype, key_heads, scale)
    found.sight.simplify()
    return found


def _masks_of(sight: Sight) -> list[str]:
    return ["the keys that a query sees are no span, or differ between heads"] * bool(sight.masks)


# The tensors that were read are kept, so that no others have their ids.
_sights: weakref.WeakKeyDictionary[BlockMask, tuple[Any, list[torch.Tensor], Sight]] = weakref.WeakKeyDictionary()


def _sight(block_mask: BlockMask | None, sizes: Sizes) -> Sight:
    """Return which keys a BlockMask shows. It is kept with the mask until one of its tensors changes."""
    found = Sight(sizes)
    if block_mask is None or block_mask.BLOCK_SIZE == (NO_TILES, NO_TILES):
        return found
    name = called(block_mask.mask_mod, "mask_mod")
    try:
        key, tensors = captured(block_mask.mask_mod)
    except Changeable:
        key, tensors = None, []
    lists = (block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
    read = [x for x in (*lists, *tensors) if x is not None]
    if any(x.is_inference() for x in read):  # they have no versions
        key = None
    state = (sizes, key, block_mask.BLOCK_SIZE, [(id(x), x.data_ptr(), x._version) for x in read] if key else None)
    kept = _sights.get(block_mask)
    if key is not None and kept is not None and kept[0] == state:
        return kept[2]
    with torch.inference_mode(False), torch.no_grad():
        traced = trace(block_mask.mask_mod, None, name)
        if any(x.requires_grad for x in traced.tensors):
            raise ValueError(f"{name} must not capture tensors that require gradients")
        found.masks = [Tiles(block_mask, traced, sizes)]
        found.simplify()
    if key is not None and traced.memo is not None:
        _sights[block_mask] = state, read, found
    return found
