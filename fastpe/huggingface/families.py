"""The architectures of Hugging Face's transformers that compute what a fastpe model computes: one record for each.

Export and import read the same records. A record states which settings of `ModelConfig` its models have, under which
keys config.json holds them, and which tensors hold which parameters. The keys, their defaults and the names of the
tensors are those of transformers 5.24.0, models/{model_type}/configuration_{model_type}.py and modeling_{...}.py.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from fastpe.base import stored
from fastpe.base.stored import Form
from fastpe.huggingface.positions import Alibi, Misfit, Positions, Rotary, Table
from fastpe.huggingface.values import SIZE, Values
from fastpe.model.config import ModelConfig

Settings = dict[str, Any]

NEUTRAL: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "key_heads": lambda own: own["heads"],
    "head_dim": lambda own: own["width"] // own["heads"],
    "norm_eps": lambda own: 1e-5,
    "qkv_bias": lambda own: own["bias"],
    "parallel": lambda own: False,
    "qk_norm": lambda own: None,
    "score_scale": lambda own: own["head_dim"] ** -0.5,
    "score_softcap": lambda own: None,
    "logit_softcap": lambda own: None,
    "norm_placement": lambda own: "before",
    "embedding_scale": lambda own: 1.0,
    "sinks": lambda own: False,
}
"""Settings that a model may leave out, and what their absence means."""

_ALL_HAVE: Mapping[str, Any] = {"causal": True, "residual": True, "final_norm": True}
"""Settings of the models of all architectures."""


def effective(config: ModelConfig) -> Settings:
    """All settings of a model, with values in place of those that it leaves out."""
    own = {each.name: getattr(config, each.name) for each in fields(config)}
    for name, neutral in NEUTRAL.items():
        if own.get(name) is None:
            own[name] = neutral(own)
    return own


class Field(NamedTuple):
    """A setting of `ModelConfig` under a key of config.json.

    Attributes
    ----------
    setting, key : str
    form : Form
        The form of the key's value.
    default : Any
        The value that transformers takes if the key is missing, or a function of the settings that were read before;
        None: the key must be there.
    words : dict
        The setting by the value of the key, if they differ. The first word for a setting is written.
    single : bool
        Whether the key has a number that other software rounded to float32: the shortest such number is read.
    optional : bool
        Whether null stands for the setting None, and not for the default.
    inverse_square : bool
        Whether the key has the integer n for which the setting is ``1 / sqrt(n)``.
    """

    setting: str
    key: str
    form: Form = SIZE
    default: Any = None
    words: Mapping[str, str] = {}
    single: bool = False
    optional: bool = False
    inverse_square: bool = False

    def misfits(self, own: Mapping[str, Any]) -> list[Misfit]:
        """A value that the key cannot hold."""
        value = own[self.setting]
        if self.words and value not in self.words.values():
            return [Misfit(self.setting, value, " or ".join(map(repr, dict.fromkeys(self.words.values()))))]
        if self.inverse_square and self.write(own) ** -0.5 != value:
            return [Misfit(self.setting, value, "1 / sqrt of an integer")]
        return []

    def write(self, own: Mapping[str, Any]) -> Any:
        """The value of the key for some settings."""
        value = own[self.setting]
        if self.inverse_square:
            return max(1, round(value**-2))
        return next((word for word, meant in self.words.items() if meant == value), value)

    def read(self, values: Values, own: Mapping[str, Any]) -> Any:
        """The setting for a config.json; `own` has the settings that were read before."""
        default = self.default(own) if callable(self.default) else self.default
        if self.words:
            return self.words[values.one_of(self.key, tuple(self.words), default)]
        if self.optional and self.key in values.found:
            return values.get(self.key, self.form)
        found = values.required(self.key, self.form) if default is None else values.get(self.key, self.form, default)
        if self.single:
            return float(str(np.float32(found)))
        return found**-0.5 if self.inverse_square else found


@dataclass(frozen=True)
class Row:
    """A tensor of the architecture, with the parameters of fastpe that it holds.

    Parameters
    ----------
    theirs : str
        Its name without ".weight" and ".bias"; {} stands for the number of the layer.
    ours : tuple of str
        The names of the parameters, without "layers.{}." if `theirs` has a layer.
    kind : {"linear", "conv1d", "norm", "norm_minus_one", "embedding"}
        The layout. linear: (out, in). conv1d: (in, out), as in fastpe. norm: (width,). norm_minus_one: the same, with
        weights to which the architecture adds 1. embedding: (tokens, width).
    bias : str
        When there is a bias: "", never; "always"; or a key of config.json that says so.
    by_head : bool
        Whether the rows of several parameters alternate by head; otherwise they follow each other.
    also : str
        Another name, under which other versions store it.
    """

    theirs: str
    ours: tuple[str, ...]
    kind: str = "linear"
    bias: str = ""
    by_head: bool = False
    also: str = ""


class Tensor(NamedTuple):
    """One tensor of one layer: its name, its row, the names of its parameters, and the layer (-1: none)."""

    name: str
    row: Row
    ours: tuple[str, ...]
    layer: int


@dataclass(frozen=True, eq=False)
class Family:
    """An architecture.

    Parameters
    ----------
    model_type, architecture : str
        As in config.json.
    fields : tuple of Field
        The settings that its models may choose.
    fixed : dict
        The settings that all its models have. What is neither here nor in `fields` has the value of `NEUTRAL`.
    derived : dict
        Settings that follow from others.
    positions : Positions
        The encoding, the windows and the lengths.
    constants : dict
        Keys of config.json with the only value that fastpe computes, and their default.
    rows : tuple of Row
    written : dict
        Keys that are written and not read.
    on_request : bool
        Whether a model is written in this architecture only if the user names it.
    small_embeddings : bool
        Whether there is a norm after the embeddings (BLOOM). Very small embeddings make it a multiplication by a
        constant.
    biases : bool
        Whether there are biases if config.json does not say so.
    """

    model_type: str
    architecture: str
    fields: tuple[Field, ...]
    fixed: Mapping[str, Any]
    positions: Positions
    rows: tuple[Row, ...]
    derived: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    constants: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict)
    on_request: bool = False
    small_embeddings: bool = False
    biases: bool = False

    def misfits(self, config: ModelConfig) -> list[Misfit]:
        """What a model has and this architecture lacks, but for parameters (see `weights.pack`)."""
        own, found = effective(config), []
        wanted = {**_ALL_HAVE, **self.fixed}
        wanted |= {name: derive(own) for name, derive in self.derived.items()}
        chosen = {each.setting for each in self.fields}
        wanted |= {
            name: neutral(own) for name, neutral in NEUTRAL.items() if name not in {*wanted, *chosen, "qkv_bias"}
        }
        for name, value in wanted.items():
            if own[name] != value:
                found.append(Misfit(name, own[name], repr(value)))
        for each in self.fields:
            found += each.misfits(own)
        return found + self.positions.misfits(config)

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """The keys of config.json for a model without misfits."""
        own = effective(config)
        found: dict[str, Any] = {
            "architectures": [self.architecture],
            "model_type": self.model_type,
            "dtype": "float32",
        }
        found |= {each.key: each.write(own) for each in self.fields}
        found |= self.positions.write(config)
        for row in self.rows:
            if row.bias not in ("", "always"):
                found[row.bias] = found.get(row.bias, False) or own["qkv_bias" if set(row.ours) <= set(QKV) else "bias"]
        found |= {key: value for key, (value, _) in self.constants.items() if "." not in key}
        return {**found, **self.written, "use_cache": True}

    def read(self, values: Values) -> Settings:
        """The settings of `ModelConfig` for a config.json, as `effective` returns them."""
        for key, (value, default) in self.constants.items():
            if values.get(key, stored.anything, default) != value:
                values.refuse(f"{key} {values.get(key, stored.anything, default)!r} is not supported, only {value!r}")
        own: Settings = {**_ALL_HAVE, **self.fixed}
        for each in self.fields:
            own[each.setting] = each.read(values, own)
        own |= {name: derive(own) for name, derive in self.derived.items()}
        biased = {name for row in self.rows if self.has_bias(values, row) for name in row.ours}
        own |= {"bias": bool(biased - set(QKV)), "qkv_bias": bool(biased & set(QKV))}
        own = {"tied": False} | own
        for name, neutral in NEUTRAL.items():
            if name not in own:
                own[name] = neutral(own)
        return own | self.positions.read(values, own)

    def has_bias(self, values: Values, row: Row) -> bool:
        """Whether a row of a checkpoint has biases."""
        if row.bias in ("", "always"):
            return row.bias == "always"
        return bool(values.get(row.bias, stored.truth, self.biases))

    def tensors(self, own: Mapping[str, Any], values: Values) -> Iterator[Tensor]:
        """All tensors of a model with these settings and this config.json."""
        for row in self.rows:
            if row.ours == ("head",) and own["tied"] and not self.small_embeddings:
                continue
            for layer in range(own["layers"]) if "{}" in row.theirs else (-1,):
                names = tuple(f"layers.{layer}.{name}" if layer >= 0 else name for name in row.ours)
                for kind in ("weight", "bias") if self.has_bias(values, row) else ("weight",):
                    ours = tuple(f"{name}.{kind}" for name in names)
                    yield Tensor(f"{row.theirs.format(layer)}.{kind}", row, ours, layer)


QKV = ("attention.query", "attention.key", "attention.value")
TABLE = "table"
"""The rows of the slot `table`, which a tensor holds; the encoding computes them."""
_UNGATED = {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu": "gelu", "relu": "relu"}
_SILU = {"silu": "swiglu", "swish": "swiglu"}


def _linear(theirs: str, *ours: str, bias: str = "", by_head: bool = False) -> Row:
    return Row(theirs, ours, "linear", bias, by_head)


def _conv1d(theirs: str, *ours: str) -> Row:
    return Row(theirs, ours, "conv1d", "always")


def _norm(theirs: str, ours: str, bias: str = "") -> Row:
    return Row(theirs, (ours,), "norm", bias)


def _embedding(theirs: str, ours: str = "embed") -> Row:
    return Row(theirs, (ours,), "embedding")


def _neox_layer(layer: str, attention: str, bias: str) -> tuple[Row, ...]:
    """A layer with the names of GPT-NeoX. bias: when attention has biases, as for `Row`."""
    return (
        _linear(f"{layer}.{attention}.query_key_value", *QKV, bias=bias, by_head=True),
        _linear(f"{layer}.{attention}.dense", "attention.out", bias=bias),
        _linear(f"{layer}.mlp.dense_h_to_4h", "feedforward.in", bias="always"),
        _linear(f"{layer}.mlp.dense_4h_to_h", "feedforward.out", bias="always"),
        _norm(f"{layer}.input_layernorm", "norm1", "always"),
        _norm(f"{layer}.post_attention_layernorm", "norm2", "always"),
    )


def _four_times(own: Mapping[str, Any]) -> int:
    return 4 * int(own["width"])


def _sizes(width: str, heads: str, layers: str) -> tuple[Field, ...]:
    return Field("vocabulary", "vocab_size"), Field("width", width), Field("heads", heads), Field("layers", layers)


def _eps(key: str, default: float = 1e-5) -> Field:
    return Field("norm_eps", key, stored.number(1e-30), default, single=True)


def _tied(default: bool) -> Field:
    return Field("tied", "tie_word_embeddings", stored.truth, default)


_BEFORE = {"input_layernorm": "norm1", "post_attention_layernorm": "norm2"}
_AFTER = {"post_attention_layernorm": "post_norm1", "post_feedforward_layernorm": "post_norm2"}
_BOTH = {**_AFTER, "input_layernorm": "norm1", "pre_feedforward_layernorm": "norm2"}


def _llama_kin(
    model_type: str, architecture: str, positions: Rotary, *, eps: float = 1e-6, tied: bool = False,
    attention: str = "", out: str = "", mlp: str = "", key_heads: Any = None, more: tuple[Field, ...] = (),
    activation: Field | None = None, norm: str = "rmsnorm", norms: Mapping[str, str] = _BEFORE, minus_one: bool = False,
    joined: bool = False, written: Mapping[str, Any] | None = None, **changed: Any,
) -> Family:  # fmt: skip
    """An architecture with the names of Llama.

    attention, out, mlp: when there are biases, as for `Row`. norms: the parameters of the norms by their names.
    minus_one: whether the architecture adds 1 to the weights of norms. joined: whether query, key and value are one
    matrix, as are the two maps of the gated activation (Phi-3). changed: more arguments of `Family`.
    """
    layer, norm_bias = "model.layers.{}.", "always" if norm == "layernorm" else ""
    kind = "norm_minus_one" if minus_one else "norm"
    maps = [
        _linear(f"{layer}self_attn.q_proj", "attention.query", bias=attention),
        _linear(f"{layer}self_attn.k_proj", "attention.key", bias=attention),
        _linear(f"{layer}self_attn.v_proj", "attention.value", bias=attention),
        _linear(f"{layer}mlp.gate_proj", "feedforward.gate", bias=mlp),
        _linear(f"{layer}mlp.up_proj", "feedforward.in", bias=mlp),
    ]
    if joined:
        maps = [
            _linear(f"{layer}self_attn.qkv_proj", *QKV),
            _linear(f"{layer}mlp.gate_up_proj", "feedforward.gate", "feedforward.in"),
        ]
    fixed = {"norm": norm, **changed.pop("fixed", {})}
    if "qk_norm" in fixed:
        maps += [
            _norm(f"{layer}self_attn.q_norm", "attention.query_norm"),
            _norm(f"{layer}self_attn.k_norm", "attention.key_norm"),
        ]
    return Family(
        model_type, architecture,
        (
            *_sizes("hidden_size", "num_attention_heads", "num_hidden_layers"), Field("hidden", "intermediate_size"),
            Field("key_heads", "num_key_value_heads", default=key_heads or (lambda own: own["heads"])),
            activation or Field("activation", "hidden_act", default="silu", words=_SILU),
            _eps("rms_norm_eps" if norm == "rmsnorm" else "layer_norm_eps", eps),
            _tied(tied), *more,
        ),
        fixed,
        positions,
        (
            _embedding("model.embed_tokens"),
            *maps,
            _linear(f"{layer}self_attn.o_proj", "attention.out", bias=out),
            _linear(f"{layer}mlp.down_proj", "feedforward.out", bias=mlp),
            *(Row(f"{layer}{theirs}", (ours,), kind, norm_bias) for theirs, ours in norms.items()),
            Row("model.norm", ("final_norm",), kind, norm_bias),
            _linear("lm_head", "head"),
        ),
        written={"attention_dropout": 0.0, **(written or {})},
        **changed,
    )  # fmt: skip


def _head_dim(default: Any = lambda own: own["width"] // own["heads"]) -> Field:
    return Field("head_dim", "head_dim", default=default)


_GEGLU = {"gelu_pytorch_tanh": "geglu", "gelu_new": "geglu"}
_CAP = stored.number(1e-6)
_MPT_ATTENTION = {
    "alibi": True, "alibi_bias_max": 8, "clip_qkv": None, "softmax_scale": None, "qk_ln": False, "prefix_lm": False,
}  # fmt: skip

# In the order of preference: a model is written in the first architecture that computes it.
_ALL = (
    Family(
        "gpt2", "GPT2LMHeadModel",
        (
            *_sizes("n_embd", "n_head", "n_layer"), Field("hidden", "n_inner", default=_four_times),
            Field("activation", "activation_function", default="gelu_new", words=_UNGATED),
            _eps("layer_norm_epsilon"), _tied(True),
        ),
        {"norm": "layernorm"},
        Table("n_positions"),
        (
            _embedding("transformer.wte"),
            _embedding("transformer.wpe", TABLE),
            _conv1d("transformer.h.{}.attn.c_attn", *QKV),
            _conv1d("transformer.h.{}.attn.c_proj", "attention.out"),
            _conv1d("transformer.h.{}.mlp.c_fc", "feedforward.in"),
            _conv1d("transformer.h.{}.mlp.c_proj", "feedforward.out"),
            _norm("transformer.h.{}.ln_1", "norm1", "always"),
            _norm("transformer.h.{}.ln_2", "norm2", "always"),
            _norm("transformer.ln_f", "final_norm", "always"),
            _linear("lm_head", "head"),
        ),
        constants={
            "scale_attn_weights": (True, True), "scale_attn_by_inverse_layer_idx": (False, False),
            "add_cross_attention": (False, False),
        },
        written={"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    ),
    Family(
        "gpt_neox", "GPTNeoXForCausalLM",
        (
            *_sizes("hidden_size", "num_attention_heads", "num_hidden_layers"), Field("hidden", "intermediate_size"),
            Field("activation", "hidden_act", default="gelu", words={"gelu_fast": "gelu_tanh"} | _UNGATED),
            _eps("layer_norm_eps"), _tied(False),
            Field("parallel", "use_parallel_residual", stored.truth, True),
        ),
        {"norm": "layernorm"},
        Rotary(share=0.25, base_key="rotary_emb_base", share_key="rotary_pct"),
        (
            _embedding("gpt_neox.embed_in"),
            *_neox_layer("gpt_neox.layers.{}", "attention", bias="attention_bias"),
            _norm("gpt_neox.final_layer_norm", "final_norm", "always"),
            Row("embed_out", ("head",), also="lm_head"),  # transformers 4 and 5
        ),
        written={"attention_dropout": 0.0, "hidden_dropout": 0.0},
        biases=True,
    ),
    _llama_kin(
        "llama", "LlamaForCausalLM", Rotary(), attention="attention_bias", out="attention_bias", mlp="mlp_bias",
        more=(_head_dim(),),
    ),
    _llama_kin(
        "mistral", "MistralForCausalLM", Rotary(windows="all", window=4096), key_heads=8, more=(_head_dim(),)
    ),
    _llama_kin("qwen2", "Qwen2ForCausalLM", Rotary(windows="layers", window=4096), attention="always", key_heads=32),
    _llama_kin(
        "smollm3", "SmolLM3ForCausalLM", Rotary(base=2e6, windows="layers", bare=True), tied=True, key_heads=4,
        attention="attention_bias", out="attention_bias", mlp="mlp_bias",
    ),
    _llama_kin(
        "qwen3", "Qwen3ForCausalLM", Rotary(windows="layers", window=4096), key_heads=32, more=(_head_dim(128),),
        attention="attention_bias", out="attention_bias", fixed={"qk_norm": "head"},
    ),
    _llama_kin(
        "olmo2", "Olmo2ForCausalLM", Rotary(), eps=1e-5, attention="attention_bias", out="attention_bias",
        norms=_AFTER, fixed={"qk_norm": "all", "norm_placement": "after"},
    ),
    _llama_kin(
        "gemma2", "Gemma2ForCausalLM", Rotary(windows="layers", window=4096, alternate=True), tied=True, key_heads=4,
        activation=Field("activation", "hidden_activation", default="gelu_pytorch_tanh", words=_GEGLU),
        more=(
            _head_dim(256), Field("score_scale", "query_pre_attn_scalar", default=256, inverse_square=True),
            Field("score_softcap", "attn_logit_softcapping", _CAP, 50.0, optional=True),
            Field("logit_softcap", "final_logit_softcapping", _CAP, 30.0, optional=True),
        ),
        attention="attention_bias", out="attention_bias", norms=_BOTH, minus_one=True,
        fixed={"norm_placement": "both"}, derived={"embedding_scale": lambda own: own["width"] ** 0.5},
        constants={"use_bidirectional_attention": (None, None)},
    ),
    _llama_kin(
        "phi3", "Phi3ForCausalLM", Rotary(share=1.0, windows="all", scaled=False), eps=1e-5, joined=True,
        written={"resid_pdrop": 0.0, "embd_pdrop": 0.0},
    ),
    _llama_kin(
        "stablelm", "StableLmForCausalLM", Rotary(share=0.25), norm="layernorm", eps=1e-5, key_heads=32,
        attention="use_qkv_bias", written={"hidden_dropout": 0.0},
        constants={"use_parallel_residual": (False, False), "qk_layernorm": (False, False)},
    ),
    Family(
        "mpt", "MptForCausalLM",
        (*_sizes("d_model", "n_heads", "n_layers"), _eps("layer_norm_epsilon"), _tied(True)),
        {"norm": "layernorm", "activation": "gelu"},
        Alibi("max_seq_len"),
        (
            _embedding("transformer.wte"),
            _linear("transformer.blocks.{}.attn.Wqkv", *QKV),
            _linear("transformer.blocks.{}.attn.out_proj", "attention.out"),
            _linear("transformer.blocks.{}.ffn.up_proj", "feedforward.in"),
            _linear("transformer.blocks.{}.ffn.down_proj", "feedforward.out"),
            _norm("transformer.blocks.{}.norm_1", "norm1"),
            _norm("transformer.blocks.{}.norm_2", "norm2"),
            _norm("transformer.norm_f", "final_norm"),
            _linear("lm_head", "head"),
        ),
        derived={"hidden": _four_times},
        constants={
            "expansion_ratio": (4, 4), "no_bias": (True, True), "logit_scale": (None, None),
            **{f"attn_config.{key}": (value, value) for key, value in _MPT_ATTENTION.items()},
        },
        written={"attn_config": _MPT_ATTENTION},
    ),
    Family(
        "bloom", "BloomForCausalLM",
        (
            *_sizes("hidden_size", "n_head", "n_layer"), _eps("layer_norm_epsilon"),
        ),
        {"norm": "layernorm", "activation": "gelu_tanh"},
        Alibi("seq_length"),
        (
            _embedding("transformer.word_embeddings"),
            *_neox_layer("transformer.h.{}", "self_attention", bias="always"),
            _norm("transformer.ln_f", "final_norm", "always"),
            _linear("lm_head", "head"),
        ),
        derived={"hidden": _four_times},
        constants={
            "tie_word_embeddings": (False, True), "apply_residual_connection_post_layernorm": (False, False),
        },
        written={"hidden_dropout": 0.0, "attention_dropout": 0.0},
        on_request=True, small_embeddings=True,
    ),
)  # fmt: skip
FAMILIES: Mapping[str, Family] = {each.model_type: each for each in _ALL}
"""All architectures by `model_type`, in the order of preference."""
EMBEDDING_NORM = "transformer.word_embeddings_layernorm"
