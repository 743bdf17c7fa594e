"""`register_transformers`: attention and masks of Hugging Face's models, by their interface; its name is "fastpe"."""

import inspect
import sys
from functools import cache
from typing import Any

import torch

from fastpe.torch.call import attention

_HARMLESS = frozenset({  # what models hand on to every layer, and no attention reads beside its mask
    "cache_position", "deterministic", "hidden_states", "labels", "logits_to_keep", "max_length_k", "max_length_q",
    "num_items_in_batch", "output_hidden_states", "output_router_logits", "position_embeddings", "position_ids",
    "return_dict", "seq_idx", "sliding_window", "use_cache",
})  # fmt: skip


def register_transformers() -> None:
    """Let Hugging Face's models attend by fastpe, as ``attn_implementation="fastpe"``.

    It is what `from_pretrained`, `from_config` and `set_attn_implementation` then take. Padding, masks, packed
    documents, caches, sliding windows, sinks, soft caps, dropout, grouped queries, biases of positions and their
    gradients are those of the model. What a model asks for beyond that is refused by its name. Models without that
    interface are `patch`'s.

    Raises
    ------
    ImportError
        Without transformers 5.

    Notes
    -----
    Queries that see no key give zeros, where other implementations give the mean of all values.

    Examples
    --------
    >>> register_transformers()  # doctest: +SKIP
    >>> model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="fastpe")  # doctest: +SKIP
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise ImportError("register_transformers needs transformers 5: pip install 'transformers>=5'") from error
    AttentionInterface.register("fastpe", _attend)
    AttentionMaskInterface.register("fastpe", _mask)


def _attend(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attention_mask: torch.Tensor | None, dropout: float = 0.0, scaling: float | None = None,
    is_causal: bool | None = None, position_bias: torch.Tensor | None = None, softcap: float | None = None,
    s_aux: torch.Tensor | None = None, cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | None = None, **others: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """What the interface asks for: (B, N, H, Dv) outputs, and no weights."""
    for name, asked in others.items():
        if name not in _HARMLESS and asked is not None and asked is not False:
            raise ValueError(f"{type(module).__name__} asks for {name}, which attention of fastpe does not have")
    queries, keys = query.shape[2], key.shape[2]
    causal = getattr(module, "is_causal", True) if is_causal is None else bool(is_causal)
    causal = causal and attention_mask is None and queries > 1
    if causal and queries != keys:
        raise ValueError(
            f"{type(module).__name__} needs an attention_mask where {queries} queries meet {keys} keys: fastpe cannot "
            "know where they stand"
        )
    slots: dict[str, Any] = {} if position_bias is None else _position_bias(module, position_bias, keys)
    if cu_seq_lens_q is not None:
        slots["spans"] = _documents(module, queries, cu_seq_lens_q, cu_seq_lens_k)
    out = attention(
        query, key, value, causal=causal, mask=attention_mask, scale=scaling, softcap=softcap, dropout=dropout,
        sinks=None if s_aux is None else s_aux.reshape(-1).to(query.dtype), **slots,
    )  # fmt: skip
    return out.transpose(1, 2).contiguous(), None


def _position_bias(module: torch.nn.Module, dense: torch.Tensor, keys: int) -> dict[str, torch.Tensor]:
    """A bias (B or 1, H, N, M). That of T5 is one of offsets: (H, 2K+1) numbers hold all of it, and of its gradient."""
    if not hasattr(module, "relative_attention_num_buckets") or dense.shape[0] != 1 or dense.shape[-1] != keys:
        return {"scores": dense.expand(-1, -1, -1, keys)}
    heads, queries = dense.shape[1:3]
    cells = dense.squeeze(0).permute(1, 2, 0).reshape(-1, heads)  # as T5 made them; a gradient of one piece
    places = torch.cat([torch.arange(queries - 1, 0, -1) * keys, torch.arange(keys)])  # offsets from 1 - N to M - 1
    met = cells.index_select(0, places).t()
    reach = max(queries, keys) - 1
    return {"bias": torch.nn.functional.pad(met, (reach + 1 - keys, reach + 1 - queries))}


def _documents(module: torch.nn.Module, queries: int, edges: torch.Tensor, of_keys: Any) -> torch.Tensor:
    """Spans of documents side by side in one row, where a model says where they begin."""
    if of_keys is not None and not torch.equal(edges, of_keys):
        raise ValueError(f"{type(module).__name__} asks for cu_seq_lens_k that differ from cu_seq_lens_q")
    edges = edges.long()
    spans = torch.stack([edges[:-1], edges[1:]], dim=-1).repeat_interleave(edges.diff(), dim=0)
    if len(spans) != queries:
        raise ValueError(f"cu_seq_lens_q must end at the number of queries, {queries}, not at {len(spans)}")
    return spans[None]


def _mask(
    *, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: Any = 0, allow_is_causal_skip: bool = True,
    config: Any = None, **others: Any,
) -> torch.Tensor | None:  # fmt: skip
    """A mask of bool, or None where it hides nothing: it is causal, and as many keys as queries are at hand, or the
    only query is the last of them."""
    from transformers.masking_utils import sdpa_mask

    if config is not None and not _has_interface(type(config)):
        raise ValueError(
            f"models of {type(config).__name__} do not attend by transformers' interface: make them with "
            "attn_implementation='eager', and hand them to fastpe.torch.patch"
        )
    # where a tensor holds it, as of a static cache, keys may be at hand that are not yet filled
    known = not isinstance(q_offset, torch.Tensor) and not isinstance(kv_offset, torch.Tensor)
    square = known and q_length == kv_length and q_offset == 0
    last = known and q_length == 1 and q_offset + 1 == kv_offset + kv_length
    mask: torch.Tensor | None = sdpa_mask(
        q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
        allow_is_causal_skip=allow_is_causal_skip and (square or last), **others,
    )  # fmt: skip
    return mask


@torch.compiler.assume_constant_result
def _has_interface(config: type) -> bool:
    """Whether the models of a kind of settings attend by the interface, as transformers itself finds out."""
    return _source_has_interface(config)


@cache
def _source_has_interface(config: type) -> bool:
    models = sys.modules.get(config.__module__.replace("configuration_", "modeling_"))
    try:
        return models is None or "ALL_ATTENTION_FUNCTIONS" in inspect.getsource(models)
    except OSError:
        return True
