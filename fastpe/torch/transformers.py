"""`register_transformers`: attention and masks of Hugging Face's models, by their interface; its name is "fastpe"."""

import inspect
import sys
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any

import torch

from fastpe.functional.again import MOST_QUERIES
from fastpe.torch import straight
from fastpe.torch.call import attention

_HARMLESS = frozenset({  # what models hand on to every layer, and no attention reads beside its mask
    "cache_position", "deterministic", "hidden_states", "labels", "logits_to_keep", "max_length_k", "max_length_q",
    "num_items_in_batch", "output_hidden_states", "output_router_logits", "position_embeddings", "position_ids",
    "return_dict", "seq_idx", "sliding_window", "use_cache",
})  # fmt: skip
_WHOLE = (int, torch.SymInt)
_OF_T5 = ["self", "query_length", "key_length", "device", "past_seen_tokens"]


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
    Queries that see no key give zeros, where other implementations give the mean of all values. While a model
    of T5's kin attends by fastpe, its `compute_bias` gives one row, the bias by offset, in the place of all N x M.

    Examples
    --------
    >>> register_transformers()  # doctest: +SKIP
    >>> model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="fastpe")  # doctest: +SKIP
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError as error:
        raise ImportError("register_transformers needs transformers 5: pip install 'transformers>=5'") from error
    AttentionInterface.register("fastpe", _attend)
    AttentionMaskInterface.register("fastpe", partial(_mask, sdpa_mask))


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
    sinks = None if s_aux is None else s_aux.reshape(-1).to(query.dtype)
    if (
        queries <= MOST_QUERIES
        and position_bias is cu_seq_lens_q is None
        and not (dropout or torch.compiler.is_compiling())
    ):  # where a token is written Python is what takes long
        own = {"mask": attention_mask, "sinks": sinks, "scale": scaling}
        seen = {name: x for name, x in own.items() if x is not None}
        found = straight.attend(query, key, value, causal, None, softcap, seen)
        if found is not None:
            return found.transpose(1, 2).contiguous(), None
    slots: dict[str, Any] = {} if position_bias is None else _position_bias(position_bias, queries, keys)
    if cu_seq_lens_q is not None:
        slots["spans"] = _documents(module, queries, cu_seq_lens_q, cu_seq_lens_k)
    out = attention(
        query, key, value, causal=causal, mask=attention_mask, scale=scaling, softcap=softcap, dropout=dropout,
        sinks=sinks, **slots,
    )  # fmt: skip
    return out.transpose(1, 2).contiguous(), None


def _position_bias(bias: torch.Tensor, queries: int, keys: int) -> dict[str, torch.Tensor]:
    """A bias (B or 1, H, N, M), or (1, H, 1, N + M - 1) by offset, from 1 - N to M - 1."""
    if queries == 1 or bias.shape[0] != 1 or bias.shape[2:] != (1, queries + keys - 1):
        return {"scores": bias.expand(-1, -1, -1, keys)}
    reach = max(queries, keys) - 1
    return {"bias": torch.nn.functional.pad(bias[0, :, 0], (reach + 1 - keys, reach + 1 - queries))}


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
    dense: Callable[..., torch.Tensor | None], *, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: Any = 0,
    allow_is_causal_skip: bool = True, config: Any = None, **others: Any,
) -> torch.Tensor | None:  # fmt: skip
    """A mask of bool, as transformers' own `dense` makes it, or None where it hides nothing: it is causal, and as many
    keys as queries are at hand, or the only query is the last of them."""
    if config is not None and not _prepared(type(config)):
        raise ValueError(
            f"models of {type(config).__name__} do not attend by transformers' interface: make them with "
            "attn_implementation='eager', and hand them to fastpe.torch.patch"
        )
    # where a tensor holds it, as of a static cache, keys may be at hand that are not yet filled
    known = isinstance(q_offset, _WHOLE) and isinstance(kv_offset, _WHOLE)
    square = known and q_length == kv_length and q_offset == 0
    last = known and q_length == 1 and q_offset + 1 == kv_offset + kv_length
    return dense(
        q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
        allow_is_causal_skip=allow_is_causal_skip and (square or last), **others,
    )  # fmt: skip


@torch.compiler.assume_constant_result
def _prepared(config: type) -> bool:
    """Whether the models of a kind of settings attend by the interface, as transformers itself finds out."""
    return _prepared_once(config)


@cache
def _prepared_once(config: type) -> bool:
    models = sys.modules.get(config.__module__.replace("configuration_", "modeling_"))
    if models is None:
        return True
    for kind in vars(models).values():
        if _biased_by_offset(kind, models.__name__):
            kind.compute_bias = _by_offset(kind.compute_bias)
    return _takes_interface(models)


def _biased_by_offset(kind: Any, module: str) -> bool:
    """Whether it is a class of the module that attends by the interface, with a bias as T5 makes it."""
    makes = vars(kind).get("compute_bias") if isinstance(kind, type) and kind.__module__ == module else None
    return makes is not None and [*inspect.signature(makes).parameters] == _OF_T5 and _takes_interface(kind)


def _by_offset(dense: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """T5's bias as what its last query would see if no two offsets shared a key: (1, H, 1, N + M - 1) of the model's
    own numbers hold the dense N x M, and all of its gradient."""

    @wraps(dense)
    def compute_bias(
        self: Any, query_length: Any, key_length: Any, device: Any = None, past_seen_tokens: Any = 0
    ) -> torch.Tensor:
        if self.config._attn_implementation == "fastpe":
            past_seen_tokens = past_seen_tokens + query_length - 1
            query_length, key_length = 1, query_length + key_length - 1
        return dense(self, query_length, key_length, device=device, past_seen_tokens=past_seen_tokens)

    return compute_bias


def _takes_interface(source: Any) -> bool:
    try:
        return "ALL_ATTENTION_FUNCTIONS" in inspect.getsource(source)
    except OSError:
        return True
