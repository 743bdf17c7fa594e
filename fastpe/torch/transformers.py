"""`register_transformers`, which registers attention and masks for Hugging Face models under the name "fastpe".

In general, the mask alone determines which keys a query sees, as in eager attention. Models for which transformers
itself supports sdpa are different. As in sdpa, a causal layer may have no mask, and `is_causal` then determines whether
later keys are hidden. Models without support for sdpa do not set `is_causal` correctly, so it is not read for them.
"""

import inspect
import sys
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any

import torch

from fastpe.base.validation import truth
from fastpe.torch.layer import Part, attend
from fastpe.torch.mods.attention import flex_attention, replace
from fastpe.torch.mods.block_mask import create_block_mask

_HARMLESS = frozenset({  # arguments that models pass to every layer, and that need no action if there is a mask
    "cache_position", "deterministic", "grid_thw", "hidden_states", "labels", "logits_to_keep", "max_length_k",
    "max_length_q", "num_items_in_batch", "output_hidden_states", "output_router_logits", "position_embeddings",
    "position_ids", "return_dict", "seq_idx", "sliding_window", "use_cache",
})  # fmt: skip
# Exceptions among the packages of transformers.models. True: their layers set `is_causal` correctly although
# transformers does not support sdpa for them (its sdpa has no sinks, soft caps or biases). False: their sdpa and eager
# attention differ. tests/support/peers/sweep_transformers.py compares all models.
_LIKE_SDPA = {
    **dict.fromkeys((
        "flint", "gemma2", "gpt_oss", "granite_swa", "granitemoe_swa", "longt5", "mimo_v2_flash",
        "switch_transformers", "t5gemma", "vaultgemma",
    ), True),
    "blt": False, "phi4_multimodal": False,
}  # fmt: skip
_WHOLE = (int, torch.SymInt)
_OF_T5 = ["self", "query_length", "key_length", "device", "past_seen_tokens"]


def register_transformers(flex: bool = False) -> None:
    """Register fastpe's attention with Hugging Face transformers, as ``attn_implementation="fastpe"``.

    Afterwards `from_pretrained`, `from_config` and `set_attn_implementation` accept that name. Results equal those of
    eager attention. Padding, custom masks, packed documents, caches, sliding windows, sinks, soft caps, dropout,
    grouped queries, position biases and the gradients of these are supported.

    Requests that fastpe does not support raise a ValueError that names the class and the argument. Load such a model
    with ``attn_implementation="eager"`` instead. These are not supported:

    - ``output_attentions=True``, because fastpe never computes attention weights. (Pix2Struct's vision model does not
      ask its layers for them, so it returns None instead.)
    - Arguments of an attention function that fastpe does not know, such as ``head_mask`` or sparse ``indices``.
    - Layers that look up their attention in a table of classes instead of using transformers' interface: GPT-Neo, Bark,
      Falcon, SuperGlue, the text model of GIT, and the vision encoders of SAM, SAM-HQ and Data2Vec. They raise the
      error when they are created.
    - Models that make masks through the interface but compute attention themselves, such as BLOOM and MPT.

    For BLOOM, MPT and Falcon, use `patch`. ``bench/results/transformers.md`` in the repository lists every model class
    of transformers, with the result of a comparison with eager attention.

    Parameters
    ----------
    flex : bool
        Whether models with ``attn_implementation="flex_attention"`` use `flex_attention` and `create_block_mask` of
        this package, so that they can be trained on a CPU. Dropout and sinks remain unsupported, because transformers
        raises an error for them with FlexAttention.

    Raises
    ------
    ImportError
        If transformers 5 is not installed.

    Notes
    -----
    The output of a query that sees no key is zero. In models for which transformers does not support sdpa, it is the
    mean of all values, as in eager attention. While a model with T5's position bias uses fastpe, its `compute_bias`
    returns one row, the bias by offset, instead of all N x M entries.

    Examples
    --------
    >>> register_transformers()  # doctest: +SKIP
    >>> model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="fastpe")  # doctest: +SKIP
    """
    try:
        from transformers import PreTrainedModel

        register("fastpe", _whole)
    except ImportError as error:
        raise ImportError("register_transformers needs transformers 5: pip install 'transformers>=5'") from error
    _refuse_tables(PreTrainedModel)
    if truth("flex", flex):
        from transformers import masking_utils
        from transformers.integrations import flex_attention as theirs

        replace(theirs.compile_friendly_flex_attention, _flex)
        theirs.create_block_mask = masking_utils.create_block_mask = create_block_mask


def register(name: str, split: Callable[..., list[Part]]) -> None:
    """Register an implementation of attention that differs from "fastpe" only in the parts of its layers.

    `split` takes the layer, queries, keys, and the other arguments of `fastpe.torch.attention`. It returns the parts.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask, sdpa_mask

    try:  # a private name, which the first versions of transformers 5 do not have
        from transformers.utils.output_capturing import _active_collector as collector
    except ImportError:
        collector = None
    AttentionInterface.register(name, partial(_attend, split, collector))
    AttentionMaskInterface.register(name, partial(_mask, sdpa_mask, eager_mask))


def _whole(module: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, given: dict[str, Any]) -> list[Part]:
    """Return all heads of a layer as one part."""
    return [Part(None, q, k, given)]


def _flex(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, training: bool = False, **options: Any) -> Any:
    """Replace transformers' `compile_friendly_flex_attention`."""
    return flex_attention(query, key, value, **options)


def _refuse_tables(model: Any) -> None:
    """Make models raise a clear error if they would look up "fastpe" in a table of attention classes."""
    checked = model.get_correct_attn_implementation  # called when a model is created, and by set_attn_implementation
    if hasattr(checked, "refuses_tables"):
        return

    @wraps(checked)
    def get_correct_attn_implementation(self: Any, requested_attention: Any, *args: Any, **options: Any) -> Any:
        if requested_attention == "fastpe":
            for name, table in vars(sys.modules.get(type(self).__module__)).items():
                if _is_table(table):
                    table["fastpe"] = partial(_refuse_table, type(self).__name__, name)
        return checked(self, requested_attention, *args, **options)

    get_correct_attn_implementation.refuses_tables = True  # type: ignore[attr-defined]  # marks the patched method
    model.get_correct_attn_implementation = get_correct_attn_implementation


def _is_table(value: Any) -> bool:
    """Whether a value maps names of implementations, without "fastpe", to attention classes."""
    return isinstance(value, dict) and "fastpe" not in value and isinstance(value.get("eager"), type)


def _refuse_table(model: str, table: str, *_: Any, **__: Any) -> None:
    patched = ", and pass the model to fastpe.torch.patch" if model.startswith("Falcon") else ""
    raise ValueError(
        f"{model} cannot attend through fastpe: it takes attention classes from {table}, not from transformers' "
        f"attention interface; load it with attn_implementation='eager'{patched}"
    )


def _attend(
    split: Callable[..., list[Part]], collector: Any, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor,
    value: torch.Tensor, attention_mask: torch.Tensor | None, dropout: float = 0.0, scaling: float | None = None,
    is_causal: bool | None = None, position_bias: torch.Tensor | None = None, softcap: float | None = None,
    s_aux: torch.Tensor | None = None, cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | None = None, **others: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """Compute attention as the interface defines it. Return outputs (B, N, H, Dv), and no weights."""
    for name, asked in others.items():
        if name not in _HARMLESS and asked is not None and asked is not False:
            _refuse(module, name)
    # not all models that return attention weights ask layers for them: hooks may collect what layers return
    collected = None if collector is None else collector.get()
    if collected and any(name.endswith("attentions") for name in collected):
        _refuse(module, "output_attentions")
    queries, keys = query.shape[2], key.shape[2]
    causal = queries > 1 and attention_mask is None and _is_causal(module, is_causal)
    if causal and queries != keys:
        raise ValueError(
            f"{type(module).__name__} needs an attention_mask for {queries} queries and {keys} keys: without one "
            "fastpe does not know the positions of the queries"
        )
    sinks = None if s_aux is None else s_aux.reshape(-1).to(query.dtype)
    slots: dict[str, Any] = {} if position_bias is None else _position_bias(position_bias, queries, keys)
    if cu_seq_lens_q is not None:
        slots["spans"] = _documents(module, queries, cu_seq_lens_q, cu_seq_lens_k)
    given = {"causal": causal, "mask": attention_mask, "scale": scaling, "softcap": softcap, "dropout": dropout}
    out = attend(module, split(module, query, key, {**given, "sinks": sinks, **slots}), value)
    return out.transpose(1, 2).contiguous(), None


def _refuse(module: torch.nn.Module, name: str) -> None:
    raise ValueError(
        f"{type(module).__name__} asks for {name}, which fastpe does not support: use attn_implementation='eager'"
    )


def _is_causal(module: torch.nn.Module, is_causal: bool | None) -> bool:
    """Whether a layer without a mask hides later keys."""
    config = getattr(module, "config", None)
    if not _goes_like_sdpa(type(module if config is None else config)):
        return False
    return bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)


def _position_bias(bias: torch.Tensor, queries: int, keys: int) -> dict[str, torch.Tensor]:
    """Return the slot for a dense bias (B or 1, H, N, M), or for a bias by offset, (1, H, 1, N + M - 1), whose offsets
    go from 1 - N to M - 1."""
    if queries == 1 or bias.shape[0] != 1 or bias.shape[2:] != (1, queries + keys - 1):
        return {"scores": bias.expand(-1, -1, -1, keys)}
    reach = max(queries, keys) - 1
    return {"bias": torch.nn.functional.pad(bias[0, :, 0], (reach + 1 - keys, reach + 1 - queries))}


def _documents(module: torch.nn.Module, queries: int, edges: torch.Tensor, of_keys: Any) -> torch.Tensor:
    """Return the spans of packed documents. `edges` has the first query of each document and the end of the last
    document; `of_keys` has the same for keys, or is None."""
    if of_keys is not None and not torch.equal(edges, of_keys):
        raise ValueError(f"{type(module).__name__} asks for cu_seq_lens_k that differ from cu_seq_lens_q")
    edges = edges.long()
    spans = torch.stack([edges[:-1], edges[1:]], dim=-1).repeat_interleave(edges.diff(), dim=0)
    if len(spans) != queries:
        raise ValueError(f"cu_seq_lens_q must end at the number of queries, {queries}, not at {len(spans)}")
    return spans[None]


def _mask(
    sdpa: Callable[..., torch.Tensor | None], eager: Callable[..., torch.Tensor | None], *, q_length: int,
    kv_length: int, q_offset: Any = 0, kv_offset: Any = 0, allow_is_causal_skip: bool = True, config: Any = None,
    **others: Any,
) -> torch.Tensor | None:  # fmt: skip
    """Return the mask of transformers' sdpa, or of eager attention for models without support for sdpa.

    The mask of sdpa is None if attention is causal with as many keys as queries, or if there is only the last query.
    The mask of eager attention is never None, because models without support for sdpa may compute with their mask.
    """
    if config is not None and not _prepared(type(config)):
        name = type(config).__name__
        patched = ", and pass them to fastpe.torch.patch" if name in ("BloomConfig", "MptConfig") else ""
        raise ValueError(
            f"models of {name} compute attention themselves, not through transformers' attention interface, so they "
            f"cannot attend through fastpe: load them with attn_implementation='eager'{patched}"
        )
    sizes = {"q_length": q_length, "kv_length": kv_length, "q_offset": q_offset, "kv_offset": kv_offset}
    if config is None or not _goes_like_sdpa(type(config)):
        return eager(**sizes, allow_is_causal_skip=False, **others)
    # with this setting, layers that get a causal mask say that they are not causal, as in PaliGemma
    allow_is_causal_skip &= not getattr(config, "use_bidirectional_attention", False)
    # offsets that are tensors belong to a static cache, in which some keys may not be filled yet
    known = isinstance(q_offset, _WHOLE) and isinstance(kv_offset, _WHOLE)
    square = known and q_length == kv_length and q_offset == 0
    last = known and q_length == 1 and q_offset + 1 == kv_offset + kv_length
    return sdpa(**sizes, allow_is_causal_skip=allow_is_causal_skip and (square or last), **others)


@torch.compiler.assume_constant_result
def _goes_like_sdpa(kind: type) -> bool:
    """Whether models rely on `is_causal` as sdpa does. `kind` is the class of their config, or of a layer."""
    return _goes_like_sdpa_once(kind)


@cache
def _goes_like_sdpa_once(kind: type) -> bool:
    models = _modeling(kind)
    if models is None:
        return False
    place = models.__name__.split(".")
    if place[:2] == ["transformers", "models"] and place[2] in _LIKE_SDPA:
        return _LIKE_SDPA[place[2]]
    found = [
        each
        for each in vars(models).values()
        if isinstance(each, type) and each.__module__ == models.__name__ and hasattr(each, "_supports_sdpa")
    ]
    of_config = [each for each in found if getattr(each, "config_class", None) is kind]
    return bool(found) and all(each._supports_sdpa for each in of_config or found)


def _modeling(kind: type) -> Any:
    """Return the Python module that defines the models of a config class, or the given layer class."""
    return sys.modules.get(kind.__module__.replace("configuration_", "modeling_"))


@torch.compiler.assume_constant_result
def _prepared(config: type) -> bool:
    """Whether the models of a config use the attention interface. As in transformers itself, their source is searched
    for this interface. A bias like T5's is changed by `_by_offset`."""
    return _prepared_once(config)


@cache
def _prepared_once(config: type) -> bool:
    models = _modeling(config)
    if models is None:
        return True
    for kind in vars(models).values():
        if _biased_by_offset(kind, models.__name__):
            kind.compute_bias = _by_offset(kind.compute_bias)
    return _takes_interface(models)


def _biased_by_offset(kind: Any, module: str) -> bool:
    """Whether a value is a class of the module that uses the attention interface, with a bias like T5's."""
    makes = vars(kind).get("compute_bias") if isinstance(kind, type) and kind.__module__ == module else None
    return makes is not None and [*inspect.signature(makes).parameters] == _OF_T5 and _takes_interface(kind)


def _by_offset(dense: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Change T5's `compute_bias` so that it computes one row: the bias of the last query, with a key for each offset.

    The (1, H, 1, N + M - 1) entries contain all values of the dense N x M bias, so that no part of the gradient is
    lost.
    """

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
