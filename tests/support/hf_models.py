"""Small models, at least one for each architecture that `fastpe.to_hf` writes."""

import numpy as np

from fastpe import ModelConfig, Transformer

_ALL = {
    "causal": True, "vocabulary": 65, "final_norm": True, "width": 32, "heads": 4, "layers": 2, "hidden": 128,
    "train_length": 48, "init": "small_normal", "tied": True,
}  # fmt: skip
_LAYER = {"norm": "layernorm", "activation": "gelu"}
_RMS = {"norm": "rmsnorm", "activation": "swiglu", "bias": False, "hidden": 88}
_FOUR = {"layers": 4}
_GEMMA = {**_RMS, "activation": "geglu", "norm_placement": "both", "embedding_scale": 32**0.5}

CASES = {
    "gpt2": ("learned", {**_LAYER}),
    "gpt2, untied, no biases": ("learned", {**_LAYER, "bias": False, "tied": False}),
    "gpt2, sinusoidal, relu": ("sinusoidal", {**_LAYER, "activation": "relu"}),
    "gpt2, nope, gelu_tanh": ("nope", {**_LAYER, "activation": "gelu_tanh"}),
    "gpt2, shifted": ("learned", {**_LAYER, "positions": "offset:60"}),
    "gpt_neox": ("rope", {**_LAYER}),
    "gpt_neox, partial": ("rope", {**_LAYER, "options": {"rotated": 4, "base": 500.0}}),
    "gpt_neox, halves, untied": (
        "rope", {**_LAYER, "activation": "relu", "options": {"pairs": "half"}, "tied": False, "bias": False}
    ),
    "gpt_neox, parallel, eps": ("rope", {**_LAYER, "parallel": True, "norm_eps": 1e-3, "options": {"rotated": 2}}),
    "llama": ("rope", {**_RMS}),
    "llama, halves, untied": ("rope", {**_RMS, "tied": False, "options": {"pairs": "half", "base": 1e5}}),
    "llama, biases": ("rope", {**_RMS, "bias": True}),
    "llama, shared heads, wide": ("rope", {**_RMS, "key_heads": 2, "head_dim": 12, "norm_eps": 1e-6}),
    "llama, linear": ("rope_linear", {**_RMS, "options": {"factor": 2.0}}),
    "llama, llama3": ("rope_llama3", {**_RMS, "options": {"factor": 4.0}, "encoding_length": 12}),
    "llama, yarn": ("rope_yarn", {**_RMS, "options": {"factor": 4.0}, "encoding_length": 12}),
    "mistral": ("rope", {**_RMS, "sight": "window:9"}),
    "qwen2": ("rope", {**_RMS, **_FOUR, "sight": "window:9,all"}),
    "qwen2, biases": ("rope", {**_RMS, "qkv_bias": True, "key_heads": 1, "norm_eps": 1e-6, "sight": "all,window:9"}),
    "qwen3": ("rope", {**_RMS, "qk_norm": "head", "head_dim": 16, "key_heads": 2}),
    "qwen3, biases, windows": ("rope", {**_RMS, **_FOUR, "qk_norm": "head", "qkv_bias": True, "sight": "all,window:5"}),
    "olmo2": ("rope", {**_RMS, "qk_norm": "all", "norm_placement": "after", "key_heads": 2}),
    "gemma2": ("rope", {**_GEMMA, "score_softcap": 5.0, "logit_softcap": 3.0, "sight": "window:9,all"}),
    "gemma2, no caps": ("rope", {**_GEMMA, "head_dim": 6, "key_heads": 2, "score_scale": 9**-0.5}),
    "smollm3": ("rope*3,nope", {**_RMS, **_FOUR}),
    "smollm3, windows": ("rope*3,nope", {**_RMS, **_FOUR, "sight": "window:9*3,all"}),
    "smollm3, nope": ("nope", {**_RMS}),
    "phi3": ("rope", {**_RMS, "options": {"rotated": 4}}),
    "stablelm": ("rope", {**_RMS, "norm": "layernorm", "options": {"rotated": 6}}),
    "mpt": ("alibi", {**_LAYER, "bias": False}),
    "mpt, 6 heads": ("alibi", {**_LAYER, "bias": False, "width": 48, "heads": 6, "hidden": 192}),
    "bloom": ("alibi", {**_LAYER, "activation": "gelu_tanh"}),
    "bloom, 6 heads, no biases": (
        "alibi", {**_LAYER, "activation": "gelu_tanh", "width": 48, "heads": 6, "hidden": 192, "bias": False}
    ),
}  # fmt: skip
"""Encoding and settings by "architecture, what is special"."""


def config(name: str, **changed) -> ModelConfig:
    """The configuration of a case."""
    encoding, own = CASES[name]
    return ModelConfig(**{"encoding": encoding, **_ALL, **own, **changed})


def made(name: str, **changed) -> Transformer:
    """A model in which no parameter has its initial value: no bias is 0, and no weight of a norm is 1."""
    model, rng = Transformer(config(name, **changed)), np.random.default_rng(0)
    for value in model.parameters.values():
        value += rng.normal(0, 0.15, value.shape).astype(np.float32)
    return model


def architecture(name: str) -> str:
    """The model_type of a case."""
    return name.partition(",")[0]
