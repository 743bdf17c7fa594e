"""Compare fastpe's attention with eager attention for every model class of the installed transformers.

``python tests/support/peers/sweep_transformers.py`` prints a Markdown table with one row for each class; with
``--out FILE`` it keeps its results in FILE, one line of JSON for each class, and goes on from there when it is started
again. Models are made from the default config of their class with small sizes and random weights, so nothing is
downloaded.
"""

import argparse
import copy
import importlib
import inspect
import json
import os
import pkgutil
import re
import signal
import sys
import warnings
from collections import Counter
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")

import torch
import transformers
from transformers import AttentionInterface, PreTrainedModel

from fastpe.torch import patch, register_transformers

WORDS, VOCABULARY, SAMPLES, SECONDS = 11, 120, 2, 60
MOST_PARAMETERS = 40_000_000
TOLERANCE = 1e-4  # relative to the largest output; float32, and eager attention often rounds the softmax to it
PATCHED = ("bloom", "mpt", "falcon")  # packages whose models go through fastpe.torch.patch


# ---- which classes there are


def packages():
    """Names of the packages of models in transformers."""
    return sorted(each.name for each in pkgutil.iter_modules(transformers.models.__path__) if each.ispkg)


def classes(package):
    """Model classes of one package: for each config the base model, encoder and decoder, else the first with a head."""
    root = f"transformers.models.{package}"
    found, failed = {}, []
    for each in pkgutil.iter_modules(importlib.import_module(root).__path__):
        if not each.name.startswith("modeling_"):
            continue
        try:
            module = importlib.import_module(f"{root}.{each.name}")
        except ImportError as error:  # a package that the model needs is not installed
            failed.append((each.name, f"cannot be imported: {error}"))
            continue
        for _, kind in sorted(vars(module).items()):
            if not (inspect.isclass(kind) and issubclass(kind, PreTrainedModel) and kind.__module__ == module.__name__):
                continue
            if kind.config_class is None or kind.forward in (torch.nn.Module.forward, PreTrainedModel.forward):
                continue
            found.setdefault(kind.config_class, []).append(kind)
    chosen = []
    for kinds in found.values():
        bases = [kind for kind in kinds if re.search(r"(Model|Encoder|Decoder)$", kind.__name__)]
        heads = [kind for kind in kinds if re.search(r"For(CausalLM|ConditionalGeneration)$", kind.__name__)]
        chosen += bases + heads[:1] or kinds[:1]
    return chosen, failed


# ---- small configs

_LAYERS = re.compile(
    r"^(num_|n_)?(hidden_|encoder_|decoder_|text_|vision_|memory_attention_|memory_fuser_|resampler_|qformer_)*"
    r"(num_)?(hidden_)?(layers|layer|depth|blocks)$"
)
_HEADS = re.compile(r"(^|_)(num_heads|n_heads?|attention_heads|num_attention_heads|heads)$")
_WIDTH = re.compile(
    r"^(text_|vision_|encoder_|decoder_|audio_|out_|output_|projector_|text_embed_|patch_embed_)*"
    r"(hidden_size|d_model|n_embd|embed_dim|embedding_size|embedding_dim|hidden_dim|projection_dim|proj_dim|word_embed_proj_dim|projection_size|model_dim|"
    r"pooler_output_size|dim|emb_dim|output_dim|text_hidden_size)$"
)
_INNER = re.compile(
    r"(intermediate_size|ffn_dim|d_ff|mlp_dim|ffn_hidden_size|n_inner|intermediate_dim|mlp_hidden_size)$"
)
_EXACT = {
    "head_dim": 8, "d_kv": 8, "kv_channels": 8, "attention_head_dim": 8, "dim_head": 8, "global_head_dim": 8,
    "swa_head_dim": 8, "swa_v_head_dim": 8, "linear_head_dim": 8, "resampler_head_dim": 8, "index_head_dim": 8,
    "v_head_dim": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "qk_head_dim": 8, "q_lora_rank": 12,
    "kv_lora_rank": 10, "index_n_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "o_lora_rank": 8,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "moe_intermediate_size": 16,
    "hidden_size_per_layer_input": 8,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2,
    "moe_topk": 2, "moe_k": 2, "n_group": 1, "topk_group": 1, "top_k": 2, "num_experts_per_token": 2,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1, "sliding_window": 5, "sliding_window_size": 5, "attention_chunk_size": 5,
    "local_attention": 6, "attention_window": 4, "local_radius": 3, "global_block_size": 4, "num_queries": 7,
    "num_global_tokens": 4, "block_size": 16,
    "query_pre_attn_scalar": 8, "num_nextn_predict_layers": 0, "max_source_positions": 64,
    "max_target_positions": 64, "rotary_dim": 4, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2,
    "adapter_attn_dim": 8, "query_length": 4, "num_latents": 4, "d_latents": 32, "spatial_merge_size": 2,
    "max_position_embeddings": 128, "n_positions": 128, "max_seq_len": 128, "num_kv_shared_layers": 0,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 10, "hc_mult": 2,
    "vocab_size_per_layer_input": VOCABULARY, "conv_channels": 32, "decoder_layers": 2, "expert_capacity": 64,
    "num_codebooks": 2, "index_topk": 4,
    "mamba_d_state": 8, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "classifier_proj_size": 16,
    "context_length": 24, "prediction_length": 6, "num_frames": 4, "max_2d_position_embeddings": 128,
}  # fmt: skip
_SPECIAL = re.compile(r"(_token_id|_token_index|_token_ids|_idx)$")


_DROPPED = ("transformers_version", "architectures", "dtype", "torch_dtype", "id2label", "label2id", "stage_names",
            "out_features", "out_indices", "per_layer_config")  # fmt: skip
_NONE = {"num_experts_per_tok": 2, "n_routed_experts": 4, "vocab_size": VOCABULARY, "prediction_length": 6}


def small(settings, level, of_tokens=None):
    """Settings with small sizes. Level 0 and 1 shrink widths, 1 without grouped heads; 2 keeps widths and heads."""
    of_tokens = {} if of_tokens is None else of_tokens
    made = {}
    for key, value in settings.items():
        if key in _DROPPED or (key == "model_type" and not of_tokens.get("within")):
            continue
        if isinstance(value, dict):
            made[key] = small(value, level, of_tokens | {"within": True})
        elif isinstance(value, bool) or value is None:
            made[key] = _NONE.get(key) if value is None else value
        elif isinstance(value, int):
            made[key] = _small(key, value, level, of_tokens, settings)
        elif isinstance(value, (list, tuple)) and key in ("layer_types", "layers_block_type", "mlp_layer_types"):
            continue  # made again from the number of layers, or set below
        elif isinstance(value, (list, tuple)) and value and all(type(x) is int for x in value):
            made[key] = _small_list(key, list(value), level)
        else:
            made[key] = value
    if {"qk_rope_head_dim", "qk_nope_head_dim", "head_dim"} <= made.keys() and level < 2:
        made["head_dim"] = made["qk_rope_head_dim"]
    if isinstance(made.get("rope_parameters"), dict) and "rope_type" in made["rope_parameters"] and level < 2:
        made["rope_parameters"].setdefault("mrope_section", [1, 1, 2])
    if "prediction_length" in made:
        made["num_time_features"] = made.get("num_time_features") or 1
        for key in ("feature_size", "num_patches"):  # made again from the others
            made.pop(key, None)
    if "attention_types" in made:  # GPT-Neo's
        made["attention_types"] = [[["global", "local"], 1]]
        made.pop("attention_layers", None)
    _keep_kinds_of_layers(settings, made)
    return made


def _keep_kinds_of_layers(settings, made):
    """As many layers as there are kinds of them."""
    kinds = settings.get("layer_types")
    count = next((key for key in ("num_hidden_layers", "n_layer", "num_layers") if key in made), None)
    if not isinstance(kinds, list) or count is None:
        return
    order = list(dict.fromkeys(kinds))[:4]
    made["layer_types"] = order if len(order) > 1 else order * 2
    made[count] = len(made["layer_types"])
    if isinstance(settings.get("mlp_layer_types"), list):
        made["mlp_layer_types"] = (settings["mlp_layer_types"] * 4)[-made[count] :]


def _small(key, value, level, of_tokens, settings):
    if key == "vocab_size" or (key.endswith("vocab_size") and value > VOCABULARY):
        return VOCABULARY if value > VOCABULARY else value
    if _SPECIAL.search(key) and value >= 0:
        low = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}.get(key)
        return low if low is not None else of_tokens.setdefault(value, 60 + len(of_tokens) % 50) if value > 2 else value
    if _LAYERS.search(key) and not key.startswith("conv"):
        return min(value, 2)
    if key in ("image_size", "pretrain_image_size"):
        patch_size = settings.get("patch_size", 16)
        return min(value, 4 * patch_size if isinstance(patch_size, int) and patch_size > 8 else 64)
    if level == 2:
        return value
    if key in _EXACT and value > 0:
        return _EXACT[key] if key.startswith(("head", "max", "query_pre")) else min(value, _EXACT[key]) or value
    if re.search(r"(num_key_value_heads|num_kv_heads|key_value_heads)$", key):
        return 2 if level == 0 and value < settings.get("num_attention_heads", value + 1) else 4
    if _HEADS.search(key):
        return min(value, 4)
    if _WIDTH.search(key):
        return min(value, 32)
    if _INNER.search(key):
        return min(value, 48)
    return value


def _small_list(key, value, level):
    if key == "mrope_section" or key.endswith("rope_section"):
        return value if level == 2 else [1, 1, 2][-len(value) :]
    if key in ("depths", "layers", "stage_num_blocks", "blocks_per_stage", "num_blocks"):
        return [min(x, 2) for x in value]
    if key == "intermediate_size":
        return [48] * 2
    if key == "conv_dim" and level < 2:
        return [16] * len(value)
    if _SPECIAL.search(key):
        return [min(x, VOCABULARY - 1) for x in value]
    if re.search(r"(layer|block|indexes|indices)", key) and key not in ("out_indices", "block_sizes"):
        return [x for x in value if x < 2]
    return value


def made_config(kind, level):
    """A small config of a class."""
    config_class = kind.config_class
    settings = config_class().to_dict()
    config = config_class.from_dict(small(settings, level))
    config.use_cache = getattr(config, "use_cache", None)
    for own in [config, *(getattr(config, key, None) for key in config.sub_configs)]:
        for key, value in vars(own).items() if own is not None else ():
            if isinstance(value, float) and re.search(r"drop|layerdrop|jitter", key):
                setattr(own, key, 0.0)
    return config


# ---- models


def made(kind, config, attends):
    """A model with random weights, always the same ones for one config."""
    torch.manual_seed(0)
    config = copy.deepcopy(config)
    if attends == "patch":
        model = patch(kind._from_config(config, attn_implementation="eager"))
    else:
        model = kind._from_config(config, attn_implementation=attends)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.nan_to_num_().clamp_(-10, 10).add_(0.1 * torch.randn(parameter.shape, generator=draw))
    return model.float().eval()


# ---- inputs


def _find(config, names, default):
    """A setting by any of its names, of the config or of the configs within."""
    todo = [config]
    while todo:
        own = todo.pop(0)
        for name in names:
            value = getattr(own, name, None)
            if value is not None:
                return value
        todo += [x for key in getattr(own, "sub_configs", {}) if (x := getattr(own, key, None)) is not None]
    return default


def _value(name, config, form):
    """An input by its name; `form` counts through the forms that one may have."""
    draw = torch.Generator().manual_seed(2)
    width = _find(config, ["hidden_size", "d_model", "n_embd", "embed_dim", "dim"], 32)
    width = width if isinstance(width, int) else width[0]
    channels = _find(config, ["num_channels", "in_channels", "in_chans"], 3)
    channels = channels if isinstance(channels, int) else 3
    size = _find(config, ["image_size"], 32)
    size = size if isinstance(size, int) else (size[0] if isinstance(size, (list, tuple)) else 32)
    mels = _find(config, ["num_mel_bins", "input_feat_per_channel", "feature_size", "feature_projection_input_dim",
                          "mel_dim", "input_dim"], 80)  # fmt: skip
    patch_size = _find(config, ["patch_size"], 4)
    patch_size = patch_size if isinstance(patch_size, int) else patch_size[0]
    times = _find(config, ["temporal_patch_size", "tubelet_size"], 2)
    times = times if isinstance(times, int) else times[0]
    merged = channels * times * patch_size**2

    past = _find(config, ["context_length"], 24) + max(_find(config, ["lags_sequence"], [0]) or [0])

    def drawn(*shape):
        return torch.randn(shape, generator=draw)

    def words(count):
        return torch.randint(3, 50, (SAMPLES, count), generator=draw)

    boxes = torch.randint(0, 100, (SAMPLES, WORDS, 4), generator=draw).sort(-1).values
    forms = {
        "input_ids": [words(WORDS)],
        "decoder_input_ids": [words(7)],
        "bbox": [boxes, boxes / 100.0],
        "pixel_values": [drawn(SAMPLES, channels, size, size), drawn(SAMPLES, 4, channels, size, size),
                         drawn(16, merged), drawn(16, channels * patch_size**2), drawn(SAMPLES, 3, 64, 64),
                         drawn(SAMPLES, 3, 224, 224), drawn(SAMPLES, 2, channels, size, size)],
        "pixel_values_videos": [drawn(SAMPLES, 4, channels, size, size), drawn(SAMPLES, 8, channels, size, size)],
        "input_features": [drawn(SAMPLES, mels, 64), drawn(SAMPLES, 64, mels), drawn(SAMPLES, mels, 128),
                           drawn(SAMPLES, mels, 3000), drawn(SAMPLES, 64, 1, mels), drawn(SAMPLES, 1, 1001, 64)],
        "input_values": [drawn(SAMPLES, 4000), drawn(SAMPLES, 1, 4000), drawn(SAMPLES, 64, mels), words(WORDS),
                         drawn(SAMPLES, _find(config, ["max_length"], 64), mels)],
        "hidden_states": [drawn(SAMPLES, WORDS, width), drawn(16, merged), drawn(16, width)],
        "inputs_embeds": [drawn(SAMPLES, WORDS, width)],
        "encoder_hidden_states": [drawn(SAMPLES, 6, width)],
        "past_values": [drawn(SAMPLES, past), drawn(SAMPLES, past, _find(config, ["num_input_channels"], 1)),
                        drawn(SAMPLES, 512, 1)],
        "past_time_features": [drawn(SAMPLES, past, _find(config, ["num_time_features"], 0))],
        "past_observed_mask": [torch.ones(SAMPLES, past)],
        "future_values": [drawn(SAMPLES, 6)],
        "future_time_features": [drawn(SAMPLES, 6, _find(config, ["num_time_features"], 0))],
        "grid_thw": [torch.tensor([[1, 4, 4]])],
        "image_grid_thw": [torch.tensor([[1, 4, 4]])],
        "cache": [None], "past_key_values": [None], "attention_mask": [None],
    }  # fmt: skip
    forms["pixel_attention_mask"] = [torch.ones(SAMPLES, size, size, dtype=torch.long)]
    forms["query_embeds"] = [drawn(SAMPLES, 4, width)]
    forms["patches"] = forms["flattened_patches"] = [torch.cat([torch.ones(SAMPLES, 9, 2), drawn(SAMPLES, 9, 768)], -1)]
    of_name = forms.get(name)
    return None if of_name is None or form >= len(of_name) else of_name[form]


def candidates(model):
    """Inputs to try, one after the other."""
    taken = inspect.signature(model.forward).parameters
    needed = [name for name, x in taken.items()
              if x.default is x.empty and x.kind in (x.POSITIONAL_OR_KEYWORD, x.KEYWORD_ONLY)]  # fmt: skip
    main = getattr(model, "main_input_name", "input_ids")
    main = main if isinstance(main, str) else main[0]
    mains = [name for name in dict.fromkeys([
        *(["input_ids"] if "input_ids" in taken else []), main, "pixel_values", "input_features", "input_values",
        "past_values",
        "pixel_values_videos", "inputs_embeds", "hidden_states", "flattened_patches"]) if name in taken]  # fmt: skip
    if getattr(model, "main_input_name", None) == "pixel_values" and {"input_ids", "pixel_values"} <= set(mains):
        mains = [["pixel_values", "input_ids"], *mains, ["input_ids", "pixel_values"]]
    else:
        mains += [["input_ids", x] for x in ("pixel_values", "input_features") if {"input_ids", x} <= set(mains)]
    for names in mains:
        names = [names] if isinstance(names, str) else names
        first = names[-1] if names[0] == "input_ids" else names[0]
        for form in range(7):
            given = {}
            for name in dict.fromkeys([*needed, *names]):
                value = _value(name, model.config, form if name == first or name in ("bbox",) else 0)
                if value is None and name == first:
                    break
                if value is not None or name in ("cache", "past_key_values", "attention_mask"):
                    given[name] = value
            else:
                more = ["decoder_input_ids", "bbox", "past_time_features", "past_observed_mask", "future_values"]
                more += ["future_time_features"] + ["image_grid_thw"] * ("pixel_values" in given)
                for extra in more:
                    if extra in taken and extra not in given:
                        given[extra] = _value(extra, model.config, 0)
                yield given


# ---- comparison


def tensors(value, at="", seen=None):
    """All floating tensors of an output by their place in it, caches left out."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield at, value
    elif hasattr(value, "items") and not hasattr(value, "get_seq_length"):
        for key, each in value.items():
            if key not in ("cache", "past_key_values"):
                yield from tensors(each, f"{at}.{key}")
    elif isinstance(value, (list, tuple)) and not hasattr(value, "get_seq_length"):
        for number, each in enumerate(value):
            yield from tensors(each, f"{at}.{number}")


def run(model, given):
    torch.manual_seed(3)
    with torch.no_grad():
        out = model(**{key: x.clone() if isinstance(x, torch.Tensor) else x for key, x in given.items()})
    return out, dict(tensors(out))


def off(found, right, mask=None):
    """The largest difference relative to the largest value; with a mask, where there is no padding."""
    if found.keys() != right.keys():
        return float("inf")
    worst = 0.0
    for key, x in right.items():
        y = found[key]
        if x.shape != y.shape:
            return float("inf")
        if mask is not None:
            if x.shape[:2] == mask.shape:
                x, y = (z.masked_fill(~mask.bool().view(*mask.shape, *[1] * (z.ndim - 2)), 0.0) for z in (x, y))
            elif x.ndim < 3 or x.shape[0] != len(mask):  # what is pooled may come from a padded row
                continue
        finite = x.isfinite()
        if not finite.equal(y.isfinite()):
            return float("inf")
        if finite.any():
            x, y = x[finite], y[finite]
            worst = max(worst, ((x - y).abs().max() / x.abs().max().clamp(min=1e-3)).item())
    return worst


class Calls:
    """How often fastpe's attention was called."""

    def __init__(self):
        self.count = 0
        register_transformers()
        own = AttentionInterface()["fastpe"]

        def counting(*args, **kwargs):
            self.count += 1
            return own(*args, **kwargs)

        AttentionInterface.register("fastpe", counting)


def short(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:240].replace("|", "/")


def refused(error):
    """Whether an error is one by which fastpe refuses a model, or an input."""
    return isinstance(error, ValueError) and "fastpe" in str(error)


def judged(kind, calls):
    """One row of the table: the verdict, what was compared, and why if it is not right."""
    package = kind.__module__.split(".")[2]
    reasons = []
    for level in (0, 1, 2):
        try:
            config = made_config(kind, level)
            with torch.device("meta"):
                model = kind._from_config(copy.deepcopy(config), attn_implementation="eager")
            size = sum(x.numel() for x in model.parameters())
            if size > MOST_PARAMETERS:
                raise ValueError(f"{size:,} parameters are too many here")
        except Exception as error:
            reasons.append(short(error))
            continue
        try:
            eager = made(kind, config, "eager")
        except Exception as error:
            reasons.append(short(error))
            continue
        tried = []
        for given in candidates(eager):
            try:
                out, right = run(eager, given)
                _, again = run(eager, given)
            except Exception as error:
                tried.append(short(error))
                continue
            if not right or off(again, right) > 1e-6:
                tried.append("eager gives no tensor, or not the same one twice")
                continue
            if not all(x.isfinite().all() for x in right.values()):
                tried.append("eager gives NaN or infinity")
                continue
            return compared(kind, config, eager, given, out, right, calls, package)
        reasons += tried[:1] or ["no inputs are known"]
    return "not judged", "", reasons[0] if reasons else "no config"


def compared(kind, config, eager, given, out, right, calls, package):
    calls.count = 0
    try:
        model = made(kind, config, "patch" if package in PATCHED else "fastpe")
        _, found = run(model, given)
    except Exception as error:
        return ("refused" if refused(error) else "wrong"), "", short(error)
    if package == "falcon":  # its eager attention counts ALiBi twice
        eager = made(kind, config, "sdpa")
        out, right = run(eager, given)
    if not calls.count and package not in PATCHED:
        same = off(found, right) == 0.0
        return ("own attention" if same else "wrong"), "", "it does not call the attention interface for these inputs"
    checks, worst, wrong, refusals = ["plain"], off(found, right), [], []
    if not worst <= TOLERANCE:
        wrong.append(f"plain is off by {worst:.1e}")
    more = {"padding left": _left, "padding right": _right, "future": _future, "cache": _cache}
    for name, check in {**more, "output_attentions": _attentions}.items():
        try:
            found = check(model, eager, given, out, right)
        except Exception as error:
            if refused(error):
                refusals.append(name if name == "output_attentions" else f"{name}: {short(error)}")
            else:
                wrong.append(f"{name}: {short(error)}")
            continue
        if found is not None:
            checks.append(name)
            if not found <= TOLERANCE:
                wrong.append(f"{name} is off by {found:.1e}")
    if wrong:
        return "wrong", ", ".join(checks), "; ".join(wrong + refusals)
    return "right", ", ".join(checks), "; ".join(refusals)


def _padded(model, eager, given, columns):
    name = next((x for x in ("input_ids",) if isinstance(given.get(x), torch.Tensor)), None)
    if name is None or "attention_mask" not in inspect.signature(eager.forward).parameters:
        return None
    if getattr(eager.config, "num_codebooks", 1) > 1:  # several rows of words are one sample
        return None
    mask = torch.ones(given[name].shape, dtype=torch.long)
    mask[0, columns] = 0
    own = {**given, name: given[name].masked_fill(mask == 0, 0), "attention_mask": mask}
    try:
        _, right = run(eager, own)
    except Exception:
        return None
    _, found = run(model, own)
    return off(found, right, mask)


def _left(model, eager, given, out, right):
    return _padded(model, eager, given, slice(0, 3))


def _right(model, eager, given, out, right):
    return _padded(model, eager, given, slice(WORDS - 3, WORDS))


def _future(model, eager, given, out, right):
    """Where eager's first rows do not move when the last word changes, ours do not either."""
    name = next((x for x in ("decoder_input_ids", "input_ids") if isinstance(given.get(x), torch.Tensor)), None)
    if name is None:
        return None
    own = {**given, name: given[name].clone()}
    own[name][:, -1] = 5 + (own[name][:, -1] == 5)
    (_, changed), (_, ours), (_, ours_changed) = run(eager, own), run(model, given), run(model, own)
    count, worst = own[name].shape[1], 0.0
    for key, x in right.items():
        if x.ndim == 3 and x.shape[1] == count and changed[key].shape == x.shape:
            moved, ours_moved = (
                (a[key] - b[key])[:, :-1].abs().max() for a, b in ((changed, right), (ours_changed, ours))
            )
            largest = x.abs().max().clamp(min=1e-3)
            if moved / largest < 1e-6:
                worst = max(worst, (ours_moved / largest).item())
    return max(worst, off(ours_changed, changed))


def _cache(model, eager, given, out, right):
    """The last words in two chunks after a prefill; alone, and with padding at the left."""
    field = next((x for x in ("cache", "past_key_values") if getattr(out, x, None) is not None), None)
    if field is None or not hasattr(getattr(out, field), "get_seq_length"):
        return None
    name = "decoder_input_ids" if "decoder_input_ids" in given else "input_ids"
    if name not in given or given[name] is None:
        return None
    mask_name = "decoder_attention_mask" if name.startswith("decoder") else "attention_mask"
    words = given[name]
    worst = None
    for padding in (0, 2):
        try:
            _, right = _in_chunks(eager, given, name, mask_name, words, field, padding)
        except Exception:
            continue
        _, found = _in_chunks(model, given, name, mask_name, words, field, padding)
        worst = max(worst or 0.0, off(found, right))
    return worst


def _in_chunks(model, given, name, mask_name, words, field, padding):
    count, cache, found = words.shape[1], None, {}
    kept = dict(given)
    mask = torch.ones(words.shape, dtype=torch.long)
    mask[0, :padding] = 0
    for number, (start, stop) in enumerate(((0, count - 3), (count - 3, count - 1), (count - 1, count))):
        own = {**kept, name: words[:, start:stop], field: cache, "use_cache": True}
        if "bbox" in own:
            own["bbox"] = given["bbox"][:, start:stop] if name == "input_ids" else given["bbox"]
        if padding:
            own[mask_name] = mask[:, :stop]
        out, made_tensors = run(model, own)
        cache = getattr(out, field)
        if start:
            found |= {
                f"{number}{key}": x for key, x in made_tensors.items() if x.ndim == 3 and x.shape[1] == stop - start
            }
    return None, found


def _attentions(model, eager, given, out, right):
    """With output_attentions=True: refused, or the weights of eager."""
    try:
        _, theirs = run(eager, {**given, "output_attentions": True})
    except Exception:
        return None
    if not any("attentions" in key for key in theirs):
        return None
    _, ours = run(model, {**given, "output_attentions": True})
    if not any("attentions" in key for key in ours):
        raise ValueError("fastpe gives None")
    return off(ours, theirs)


# ---- the whole


class _TooLong(BaseException):  # which no check takes for an error of a model
    pass


def row(kind, calls):
    """The verdict on a class within `SECONDS`."""

    def stop(*_):
        raise _TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of the CPU, however busy it is
    try:
        return judged(kind, calls)
    except _TooLong:
        return "not judged", "", f"it takes more than {SECONDS} seconds"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def sweep(out=None, only=None):
    """Rows of all classes, written to a file as they are made, so that a run that is stopped can go on."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    calls, rows = Calls(), {}
    if out is not None and out.exists():
        for line in out.read_text().splitlines():
            each = json.loads(line)
            rows[each["class"]] = each
    for package in packages():
        if only is not None and not re.fullmatch(only, package):
            continue
        kinds, failed = classes(package)
        todo = [(f"{package}.{name}", None, why) for name, why in failed]
        todo += [(f"{package}.{kind.__name__}", kind, "") for kind in kinds]
        for name, kind, why in todo:
            if name in rows and rows[name]["verdict"] != "started":
                continue
            if name in rows:  # it ended the process
                verdict, checks, why = "wrong", "", "the process ended"
            elif kind is None:
                verdict, checks = "not judged", ""
            else:
                _write(out, {"class": name, "verdict": "started", "checks": "", "why": ""})
                verdict, checks, why = row(kind, calls)
            rows[name] = {"class": name, "verdict": verdict, "checks": checks, "why": why}
            _write(out, rows[name])
    return list(rows.values())


def _write(out, each):
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps(each) + "\n")


_HEAD = """# Model classes of Hugging Face transformers

- made by: `python tests/support/peers/sweep_transformers.py --out rows.jsonl > bench/results/transformers.md`
- versions: torch {torch}, transformers {transformers}
- {counts}

Every class for which eager attention can run a small random model is compared with eager attention in float32. Errors
are relative to the largest output ({tolerance:.0e} passes). Models are run without padding, with padding at the left
and at the right, with another last word, with a cache in three chunks, and with `output_attentions=True`. BLOOM, MPT
and Falcon use `fastpe.torch.patch`, all others `attn_implementation="fastpe"`.

- right: all compared results are the same. The last column lists what is refused by a ValueError that names it.
- refused: refused by a ValueError that names the class and what fastpe lacks; use `attn_implementation="eager"`.
- own attention: the model does not call transformers' attention interface, so fastpe changes nothing.
- not judged: eager attention runs for no small model or no input that was found, for the reason in the last column.
"""


def table(rows):
    """The rows in Markdown, under what they were made with."""
    counts = Counter(each["verdict"] for each in rows)
    said = ", ".join(f"{verdict}: {number}" for verdict, number in sorted(counts.items()))
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    lines = [_HEAD.format(**versions, counts=said, tolerance=TOLERANCE)]
    lines += ["| class | verdict | compared | refused, or reason |", "| --- | --- | --- | --- |"]
    for each in sorted(rows, key=lambda each: each["class"]):
        lines.append(f"| {each['class']} | {each['verdict']} | {each['checks']} | {each['why']} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="a file of results, to which this run adds what is missing")
    parser.add_argument("--only", help="a regular expression: packages of transformers.models to compare")
    options = parser.parse_args()
    print(table(sweep(options.out, options.only)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
