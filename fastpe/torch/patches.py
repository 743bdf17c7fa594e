"""`patch`, for BLOOM, MPT and Falcon. These models do not use transformers' attention interface. Their ALiBi is an
array with one number for each key."""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from fastpe.functional import visibility
from fastpe.torch.call import attention
from fastpe.torch.operators import array


def patch(model: torch.nn.Module) -> torch.nn.Module:
    """Make a BLOOM, MPT or Falcon model compute its attention with fastpe.

    Parameters
    ----------
    model : torch.nn.Module
        A model of transformers 5, or a part of one. It is changed in place; its parameters are unchanged.

    Returns
    -------
    torch.nn.Module
        The model.

    Raises
    ------
    ValueError
        If the model has no attention layer of these kinds, or if such a layer takes an argument that fastpe does not
        know, which may happen in versions of transformers after 5.24. The patched model raises ValueError if it is
        asked for ``output_attentions``, which fastpe never computes, or for `slow_but_exact`.
    TypeError
        The patched model raises TypeError if a layer is called with an argument that fastpe does not know.

    Notes
    -----
    Falcon's eager attention adds ALiBi twice. fastpe adds it once, as Falcon's other implementation does.

    Examples
    --------
    >>> model = patch(AutoModelForCausalLM.from_pretrained("bigscience/bloom-560m"))  # doctest: +SKIP
    """
    found = [module for module in model.modules() if type(module).__name__ in _FORWARDS and _is_theirs(module)]
    if not found:
        raise ValueError(f"{type(model).__name__} has no attention of BLOOM, MPT or Falcon: see register_transformers")
    for kind in {type(module) for module in found}:
        _check_arguments(kind)
    for module in found:
        kind = type(module)
        own = {"forward": _FORWARDS[kind.__name__], "__module__": kind.__module__, "__doc__": kind.__doc__}
        module.__class__ = type(kind.__name__, (kind,), own | {"attends_by_fastpe": True})
    for module in model.modules():
        if hasattr(module, "get_correct_attn_implementation"):  # a PreTrainedModel
            module.register_forward_pre_hook(_refuse_weights, with_kwargs=True)
    return model


def _is_theirs(module: torch.nn.Module) -> bool:
    return type(module).__module__.startswith("transformers.") and not hasattr(module, "attends_by_fastpe")


def _check_arguments(kind: type[torch.nn.Module]) -> None:
    """Raise ValueError if the original forward of a layer takes an argument that its replacement does not have."""
    theirs = inspect.signature(kind.forward).parameters
    ours = inspect.signature(_FORWARDS[kind.__name__]).parameters
    for name, parameter in theirs.items():
        if name not in {"output_attentions", *ours} and parameter.kind is not parameter.VAR_KEYWORD:
            raise ValueError(
                f"{kind.__name__} of the installed transformers takes an argument {name!r} that fastpe does not know; "
                "fastpe.torch.patch knows transformers 5.0 to 5.24"
            )


def _refuse_others(module: torch.nn.Module, others: dict[str, Any]) -> None:
    """Raise an error for arguments that a layer does not have, and for requested attention weights. Arguments that are
    None are ignored."""
    if others.pop("output_attentions", False):
        raise ValueError(f"{type(module).__name__} asks for output_attentions, which fastpe does not compute")
    for name, value in others.items():
        if value is not None:
            raise TypeError(f"{type(module).__name__} got an argument {name!r} that fastpe does not know")


def _refuse_weights(model: Any, args: Any, given: dict[str, Any]) -> None:
    """Raise ValueError if a forward pass of the model should return attention weights. Checking layers alone is not
    enough, because not all models ask their layers for the weights."""
    asked = given.get("output_attentions")
    if getattr(model.config, "output_attentions", False) if asked is None else asked:
        raise ValueError(
            f"{type(model).__name__} asks for output_attentions, which fastpe does not compute: use the model without "
            "fastpe.torch.patch"
        )


def _attend(
    module: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor | None,
    of_keys: torch.Tensor | None, scale: float, dropout: float,
) -> torch.Tensor:  # fmt: skip
    """Return attention as (B, N, C). `of_keys` (B or 1, H, 1, M) are numbers that are added to the scores."""
    if of_keys is not None and q.dtype == torch.float64:
        of_keys = of_keys.double()  # MPT's numbers stay float32 in a float64 model
    given: dict[str, Any] = {"mask": of_keys}
    spans = None
    if seen is None:
        given["causal"] = q.shape[2] > 1
    elif of_keys is None:
        given["mask"] = seen
    else:
        spans = _spans(seen)
        given |= {"mask": torch.where(seen, of_keys, -torch.inf)} if spans is None else {"spans": spans}
    if of_keys is not None and (seen is None or spans is not None) and q.shape[2] > 1:
        given |= _by_offset(of_keys, spans)
    out = attention(q, k, v, scale=scale, dropout=dropout if module.training else 0.0, **given)
    return out.transpose(1, 2).flatten(2)


def _spans(seen: torch.Tensor) -> torch.Tensor | None:
    """Return the interval of keys that each query sees, (B, N, 2), or None if a query's keys are not an interval."""
    if torch.compiler.is_compiling():
        return None
    spans = visibility.as_spans(array(seen), seen.shape[-1])
    return None if spans is None else torch.from_numpy(spans)


def _by_offset(of_keys: torch.Tensor, spans: torch.Tensor | None) -> dict[str, Any]:
    """Return arguments of attention that replace `of_keys` by a bias by offset, (H, 2M - 1), or no arguments.

    This is possible if, in each head, the numbers increase by the same slope from each visible key to the next. The
    softmax stays the same, and far tiles can be skipped before their scores are computed.
    """
    if torch.compiler.is_compiling():
        return {}
    samples, keys = len(of_keys) if spans is None else max(len(of_keys), len(spans)), of_keys.shape[-1]
    numbers, places = of_keys[:, :, 0].double().expand(samples, -1, -1), torch.arange(keys)
    first, end = torch.zeros(samples, dtype=torch.long), torch.full((samples,), keys)
    if spans is not None:
        blind = spans[..., 0] >= spans[..., 1]
        first = spans[..., 0].masked_fill(blind, keys - 1).amin(-1).expand(samples)
        end = spans[..., 1].masked_fill(blind, 0).amax(-1).expand(samples)
    longest = int((end - first).argmax())
    most = int(end[longest] - first[longest]) - 1
    if most < 1:
        return {}
    ends = numbers[longest][:, [int(first[longest]), int(end[longest]) - 1]]
    slopes = ends.diff()[:, 0] / most
    first, end = first[:, None, None], end[:, None, None]
    risen = numbers - numbers.gather(-1, first.expand(-1, len(slopes), 1))
    off = (risen - slopes[:, None] * (places - first)).masked_fill((places < first) | (places >= end), 0.0)
    if off.abs().max() > 2 * torch.finfo(torch.float32).eps * numbers.abs().max():
        return {}  # a visible range has gaps, or the numbers are rounded to half precision
    return {"mask": None, "bias": (slopes[:, None] * torch.arange(1 - keys, keys)).to(of_keys.dtype)}


def _shown(mask: torch.Tensor | None) -> torch.Tensor | None:
    """Return a mask, bool or added to scores, as a bool mask that is True for visible keys."""
    return mask if mask is None or mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def _bloom(
    self: Any, hidden_states: torch.Tensor, residual: torch.Tensor, alibi: torch.Tensor,
    attention_mask: torch.Tensor | None, layer_past: Any = None, use_cache: bool = False,
    cache_position: Any = None, **others: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    _refuse_others(self, others)
    if self.pretraining_tp > 1 and self.slow_but_exact:
        raise ValueError("BloomAttention asks for slow_but_exact, which fastpe does not support")
    q, k, v = self._reshape(self.query_key_value(hidden_states))
    if layer_past is not None:
        k, v = layer_past.update(k, v, self.layer_idx)
    of_keys = alibi.view(len(q), self.num_heads, 1, -1)
    out = _attend(
        self, q, k, v, _shown(attention_mask), of_keys, self.inv_norm_factor, self.attention_dropout.p
    )  # fmt: skip
    dropped = torch.nn.functional.dropout(self.dense(out), p=self.hidden_dropout, training=self.training)
    return residual + dropped, None


def _mpt(
    self: Any, hidden_states: torch.Tensor, position_bias: torch.Tensor | None, cache: Any = None,
    attention_mask: torch.Tensor | None = None, cache_position: Any = None, past_key_values: Any = None, **others: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """The key/value cache is the argument `cache`, which is named `past_key_values` in transformers up to 5.16."""
    _refuse_others(self, others)
    if cache is None:
        cache = past_key_values
    mixed = self.Wqkv(hidden_states)
    if self.clip_qkv:
        mixed = mixed.clamp(min=-self.clip_qkv, max=self.clip_qkv)
    q, k, v = (x.unflatten(2, (self.n_heads, self.head_dim)).transpose(1, 2) for x in mixed.chunk(3, dim=2))
    if cache is not None:
        k, v = cache.update(k, v, self.layer_idx)
    keys = k.shape[2]
    if position_bias is not None:
        position_bias = position_bias[None, :, -1:, -keys:]
    seen = None if attention_mask is None else ~attention_mask  # the model's mask marks hidden keys
    out = _attend(self, q, k, v, seen, position_bias, self.softmax_scale, self.attn_dropout_p)
    return self.out_proj(out), None


def _falcon(
    self: Any, hidden_states: torch.Tensor, alibi: torch.Tensor | None, attention_mask: torch.Tensor | None,
    position_ids: Any = None, layer_past: Any = None, use_cache: bool = False,
    position_embeddings: Any = None, cache_position: Any = None, **others: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb

    _refuse_others(self, others)
    q, k, v = (x.transpose(1, 2) for x in self._split_heads(self.query_key_value(hidden_states)))
    if alibi is None:
        q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
    if layer_past is not None:
        k, v = layer_past.update(k, v, self.layer_idx)
    of_keys = None if alibi is None else alibi.view(len(q), self.num_heads, 1, -1) * self.inv_norm_factor
    dropout = 0.0 if alibi is None else self.attention_dropout.p  # with rotary embeddings, the model has no dropout
    seen = _shown(attention_mask)
    out = _attend(self, q, k, v, seen, of_keys, self.inv_norm_factor, dropout)
    return self.dense(out), None


_FORWARDS: dict[str, Callable[..., Any]] = {"BloomAttention": _bloom, "MptAttention": _mpt, "FalconAttention": _falcon}
