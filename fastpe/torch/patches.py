"""`patch`: BLOOM, MPT and Falcon, whose models attend by themselves; their ALiBi is a number for each key."""

from typing import Any

import torch

from fastpe.functional import sight
from fastpe.torch.call import attention
from fastpe.torch.operators import array


def patch(model: torch.nn.Module) -> torch.nn.Module:
    """Let a model of BLOOM, MPT or Falcon attend by fastpe.

    Parameters
    ----------
    model : torch.nn.Module
        One of transformers 5, or a part of it; it is changed in place. Its parameters stay as they are.

    Returns
    -------
    torch.nn.Module
        The model.

    Raises
    ------
    ValueError
        If it holds no attention of these.

    Notes
    -----
    Falcon's own eager attention counts ALiBi twice; here, as in its other implementation, it counts once.

    Examples
    --------
    >>> model = patch(AutoModelForCausalLM.from_pretrained("bigscience/bloom-560m"))  # doctest: +SKIP
    """
    found = [module for module in model.modules() if type(module).__name__ in _FORWARDS and _is_theirs(module)]
    if not found:
        raise ValueError(f"{type(model).__name__} has no attention of BLOOM, MPT or Falcon: see register_transformers")
    for module in found:
        kind = type(module)
        own = {"forward": _FORWARDS[kind.__name__], "__module__": kind.__module__, "__doc__": kind.__doc__}
        module.__class__ = type(kind.__name__, (kind,), own | {"attends_by_fastpe": True})
    return model


def _is_theirs(module: torch.nn.Module) -> bool:
    return type(module).__module__.startswith("transformers.") and not hasattr(module, "attends_by_fastpe")


def _attend(
    module: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor | None,
    of_keys: torch.Tensor | None, scale: float, dropout: float, asked: Any,
) -> torch.Tensor:  # fmt: skip
    """Attention with numbers (B or 1, H, 1, M) that are added to the scores, as (B, N, C)."""
    if asked:
        raise ValueError(f"{type(module).__name__} asks for output_attentions, which attention of fastpe does not have")
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
    """The interval of keys that each query sees, (B, N, 2); None where one sees others."""
    if torch.compiler.is_compiling():
        return None
    spans = sight.as_spans(array(seen), seen.shape[-1])
    return None if spans is None else torch.from_numpy(spans)


def _by_offset(of_keys: torch.Tensor, spans: torch.Tensor | None) -> dict[str, Any]:
    """A bias (H, 2M - 1) of offsets in the place of numbers that grow by one slope from key to key, wherever a key is
    seen: the softmax knows no difference, and far tiles can be told before their scores are made."""
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
        return {}  # a word is missing among the others, or the numbers are rounded to half precision
    return {"mask": None, "bias": (slopes[:, None] * torch.arange(1 - keys, keys)).to(of_keys.dtype)}


def _shown(mask: torch.Tensor | None) -> torch.Tensor | None:
    """Whether keys are seen, of a mask that is added."""
    return mask if mask is None or mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def _bloom(
    self: Any, hidden_states: torch.Tensor, residual: torch.Tensor, alibi: torch.Tensor,
    attention_mask: torch.Tensor | None, layer_past: Any = None, use_cache: bool = False,
    output_attentions: bool = False, **_: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    if self.pretraining_tp > 1 and self.slow_but_exact:
        raise ValueError("BloomAttention asks for slow_but_exact, which attention of fastpe does not have")
    q, k, v = self._reshape(self.query_key_value(hidden_states))
    if layer_past is not None:
        k, v = layer_past.update(k, v, self.layer_idx)
    of_keys = alibi.view(len(q), self.num_heads, 1, -1)
    out = _attend(
        self, q, k, v, _shown(attention_mask), of_keys, self.inv_norm_factor, self.attention_dropout.p,
        output_attentions,
    )  # fmt: skip
    dropped = torch.nn.functional.dropout(self.dense(out), p=self.hidden_dropout, training=self.training)
    return residual + dropped, None


def _mpt(
    self: Any, hidden_states: torch.Tensor, position_bias: torch.Tensor | None, past_key_values: Any = None,
    attention_mask: torch.Tensor | None = None, output_attentions: bool = False, **_: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    mixed = self.Wqkv(hidden_states)
    if self.clip_qkv:
        mixed = mixed.clamp(min=-self.clip_qkv, max=self.clip_qkv)
    q, k, v = (x.unflatten(2, (self.n_heads, self.head_dim)).transpose(1, 2) for x in mixed.chunk(3, dim=2))
    if past_key_values is not None:
        k, v = past_key_values.update(k, v, self.layer_idx)
    keys = k.shape[2]
    if position_bias is not None:
        position_bias = position_bias[None, :, -1:, -keys:]
    seen = None if attention_mask is None else ~attention_mask  # theirs is of what is hidden
    out = _attend(self, q, k, v, seen, position_bias, self.softmax_scale, self.attn_dropout_p, output_attentions)
    return self.out_proj(out), None


def _falcon(
    self: Any, hidden_states: torch.Tensor, alibi: torch.Tensor | None, attention_mask: torch.Tensor | None,
    position_ids: Any = None, layer_past: Any = None, use_cache: bool = False, output_attentions: bool = False,
    position_embeddings: Any = None, **_: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb

    q, k, v = (x.transpose(1, 2) for x in self._split_heads(self.query_key_value(hidden_states)))
    if alibi is None:
        q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
    if layer_past is not None:
        k, v = layer_past.update(k, v, self.layer_idx)
    of_keys = None if alibi is None else alibi.view(len(q), self.num_heads, 1, -1) * self.inv_norm_factor
    dropout = 0.0 if alibi is None else self.attention_dropout.p  # with rotary embeddings it has none
    seen = _shown(attention_mask)
    out = _attend(self, q, k, v, seen, of_keys, self.inv_norm_factor, dropout, output_attentions)
    return self.dense(out), None


_FORWARDS = {"BloomAttention": _bloom, "MptAttention": _mpt, "FalconAttention": _falcon}
