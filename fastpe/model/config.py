"""The settings of a model: a frozen dataclass, checked on construction.

Importing this module imports neither NumPy nor Numba, so the command line can check and explain settings quickly. Only
options of an encoding need that encoding to be imported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NoReturn, Self

from fastpe.base import validation
from fastpe.base.patterns import expanded
from fastpe.base.validation import (
    at_least_zero,
    choice,
    named_arguments,
    nearest,
    positive,
    real,
    shown,
    soft_cap,
    truth,
    whole,
)
from fastpe.encodings import registry
from fastpe.encodings.encoding import Part
from fastpe.encodings.slots import Spec, make_spec
from fastpe.model import sight
from fastpe.model.positions import Rule, canonical, check_tokens, rule_of

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "swiglu", "relu2", "geglu")  # in the order of `kernels.rows.activation`
GATED = ("swiglu", "geglu")
"""Activations with two input matrices, whose results are multiplied."""
NORMS = ("none", "layernorm", "rmsnorm")
PLACEMENTS = ("before", "after", "both")
QK_NORMS = ("head", "all")  # in the order of `kernels.model.qk_norm`
DTYPES = ("float32", "float64")
PRECISIONS = ("float32", "bfloat16")
INITS = ("uniform", "xavier_uniform", "xavier_normal", "fan_in_normal", "small_normal")
TABLE_SCALES = ("defined", "rms", "unit")
IF_SET = {"stored": "if set"}
"""Metadata of a setting that is stored only if it differs from its default. Models that do not use the setting are
stored as they were before it existed."""
PART = {**IF_SET, "part": True}
"""Metadata of an optional part of a model; see `ModelConfig.optional_parts`."""
MOST_LAYERS = 10_000  # every layer has separately named parameters
MOST_TOKENS = 2**24  # kernels get tokens as float32 or float64, which represent all integers up to here


class Options(dict[str, Any]):
    """Options of an encoding: an immutable dict, because models, runs and files are identified by their options.

    >>> Options(slope=0.5)["slope"]
    0.5
    """

    def _refuse(self, *_: Any, **named: Any) -> NoReturn:
        raise TypeError(
            "options of a configuration cannot be changed: make a new configuration with dataclasses.replace"
        )

    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = clear = setdefault = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return Options, (dict(self),)


@named_arguments
@dataclass(frozen=True)
class ModelConfig:
    """Everything that determines a model and its initial weights.

    Parameters
    ----------
    encoding : str
        Name of a position encoding, a sum of names such as ``"wavelet+alibi"``, or a pattern over layers. For example,
        the pattern ``"rope*3,nope"`` stands for three layers with rope and one with nope, and is repeated over all
        layers. Encodings that act at the input must be in all layers of a pattern. If an encoding occurs several times
        with different options or parameters, labels distinguish them, as in ``"rope@near*5,rope@far"``.
    options : dict
        The encoding's options by name. In a sum or pattern, a name has the form ``"encoding.option"``, such as
        ``"rope@far.base"``.
    Model width C, number of attention heads H (a divisor of C), number of layers (at most 10,000), and hidden width of
    the feed-forward network.
    causal : bool
        Whether a position attends only to itself and to earlier positions.
    sight : str
        Which keys a query attends to. ``"all"``; ``"window:W"``: keys at a distance below W; ``"chunks:C"``: keys in
        the query's chunk of C positions; or a pattern over layers, such as ``"window:512*5,all"`` (see
        `fastpe.model.sight`). In a causal model, a query never attends to later keys.
    activation : {"relu", "gelu", "gelu_tanh", "swiglu", "relu2", "geglu"}
        Activation of the feed-forward network. `gelu` is the exact form, and `gelu_tanh` is GPT-2's approximation.
        `relu2` is the square of `relu` (So et al. 2021, arXiv:2109.08668). `swiglu` and `geglu` (Shazeer 2020,
        arXiv:2002.05202) have two input matrices W and V in place of one: the hidden activations are
        ``f(z @ W) * (z @ V)``, where f is silu or `gelu_tanh`.
    norm : {"none", "layernorm", "rmsnorm"}
        Normalisation of the inputs of attention and feed-forward (rmsnorm: Zhang and Sennrich 2019, arXiv:1910.07467);
        `norm_placement` has other places. The constant under the root is `norm_eps`.
    final_norm : bool
        Whether there is another normalisation before the head.
    bias : bool
        Whether linear layers and layer norms have biases.
    tied : bool
        Whether the head is the transposed token embedding; needs a vocabulary.
    dropout : float
        Dropout probability, in [0, 1), in `Adam.step` and `Transformer.loss_and_grads`. Dropout applies to the input
        (after the table is added), to the outputs of attention and feed-forward, and to the attention weights. Which
        elements are dropped depends on the seed and the step.
    residual : bool
        Whether attention and feed-forward are added to their input.
    vocabulary : int or None
        Number V of different tokens, in [2, 2**24]. The model takes tokens from 0 to V - 1 and returns V logits for
        each. None: the model takes and returns real numbers.
    train_length : int
        Number of positions that the encoding is built for.
    dtype : {"float32", "float64"}
        Dtype of parameters, activations and gradients.
    precision : {"float32", "bfloat16"}
        ``"bfloat16"``: the operands of all matrix products, forward and backward, are rounded to bfloat16 (to nearest,
        ties to even). Attention with reflections or with a network over scores is an exception. All other values stay
        float32: sums, the residual stream, norms, softmax, losses, parameters, their gradients, and Adam's moments. So
        dtype must be float32. ``"float32"``: the operands are not rounded.
    seed : int
        Seed of all random streams, in [0, 2**64).
    init : {"uniform", "xavier_uniform", "xavier_normal", "fan_in_normal", "small_normal"}
        Distribution of the initial weights; see `fastpe.base.initial_values`.
    init_by_depth : bool
        Whether the initial weights of matrices whose results are added to the residual stream are divided by
        sqrt(2 layers), as in GPT-2.
    table_scale : {"defined", "rms", "unit"}
        Scale of the position table. ``"defined"``: the table is used as its encoding defines it. In the other cases, it
        is multiplied by a constant, which sets the root mean square norm of its rows at the training positions.
        ``"rms"`` sets it to sqrt(width / 2), the value of the sinusoidal table; ``"unit"`` sets it to 1.
    start : float
        Position of the first element of a sequence.
    positions : str
        The positions of a sequence of N elements. They may be fixed or random:

        - ``"usual"``: 0, 1, 2, ...
        - ``"random:L"`` (randomised positions, Ruoss et al. 2023, arXiv:2305.16843): N different integers from 0 to
          L - 1, in ascending order. All sequences of a call have the same positions. They are drawn in training and in
          testing, from the random stream ``positions`` of the seed.
        - ``"float:L"``: the same as ``"random:L"``, but with real numbers in [0, L - 1).
        - ``"pose:L"`` (PoSE, Zhu et al. 2023, arXiv:2309.10400): in training, 0, 1, 2, ... with one gap, where the last
          position is at most L - 1. All sequences of a step have the same gap. In testing, positions are 0, 1, 2, ...
        - ``"offset:L"``: a table of L rows, for encodings that fill only ``table``. In training, a sequence uses N
          consecutive rows, and the first one is drawn from 0 .. L - N (random stream ``offsets``). In testing, it uses
          the first N rows.

        L is at least `train_length`. If positions are random, the encoding is built for L positions in place of
        `train_length`.

        Positions may also follow from the tokens, by one of these rules:

        - ``"digits:K"`` (Abacus): the position of a digit within its number, and 0 for all other tokens. A training
          step adds one random number from 0 to K to the positions of all digits.
        - ``"coupled:L"`` (position coupling): the significance of a digit plus a start. The start is drawn for every
          training sequence, such that no position exceeds L.
        - ``"documents:SEP"``: the position within the document. Attention stays within a document. The tokens SEP, such
          as ``10`` or ``3,5-7``, end a document; with ``"documents:SEP:first"`` they begin one.
        - ``"segments:SEP"`` (BiPE): for the table, the position within the segment. For rotations, and for ALiBi in a
          causal model, the number of earlier segments.

        The rules ``digits`` and ``coupled`` select rows of the slot ``table`` only. Other slots keep the usual
        positions: in ``"abacus+rope"``, abacus follows the rule and rope does not. ``documents`` applies to ``table``
        and to rotations.

        By default, ``"digits:K"`` and ``"coupled:L"`` assume that numbers begin with their least significant digit; a
        task can state another order. Both need to know which tokens are digits, as in ``"digits:20:0-9"``. For a task
        or a text, ``"digits:20"`` is enough, because they state their digits. See `fastpe.model.positions`.
    encoding_length : int, optional
        Number of positions that the encoding is built for, if it is not `train_length`. It determines the constants of
        the encoding and the number of rows of its tables. If a model is trained further at another length, this setting
        keeps its encoding unchanged (see `TrainConfig.starting_from`).
    key_heads : int, optional
        Number of heads of keys and values, a divisor of `heads`; by default `heads`. Each of them serves
        ``heads // key_heads`` successive query heads (grouped queries, Ainslie et al. 2023, arXiv:2305.13245).
    head_dim : int, optional
        Width D of one head; by default ``width / heads``.
    norm_eps : float
        Constant under the root of all norms.
    norm_placement : {"before", "after", "both"}
        Where the norms of a layer are: at the input of attention and feed-forward, ``x + f(norm(x))``; at their output,
        ``x + norm(f(x))``, as in OLMo 2; or at both, as in Gemma 2.
    parallel : bool
        Whether attention and feed-forward read the same input, ``x + attention(norm1(x)) + feedforward(norm2(x))``, as
        in GPT-NeoX, and not one after the other.
    qkv_bias : bool, optional
        Whether the projections of queries, keys and values have biases, if this differs from `bias`.
    qk_norm : {"head", "all"}, optional
        Normalises queries and keys with an rmsnorm before they are rotated: each head by itself, with one weight of D
        numbers for all heads, as in Qwen 3; or all heads together, as in OLMo 2.
    score_scale : float, optional
        Factor of the scores, if not ``1 / sqrt(D)``.
    score_softcap : float, optional
        Soft cap c of the scores: a score s becomes ``c tanh(s / c)``, as in Gemma 2.
    logit_softcap : float, optional
        Soft cap of the logits; needs a vocabulary.
    embedding_scale : float
        Factor of the token embeddings at the input; needs a vocabulary.
    sinks : bool
        Whether each head has a learned score that takes weight from all keys (``layers.{l}.attention.sinks``), as in
        gpt-oss.

    Raises
    ------
    ValueError, TypeError
        If a setting is out of range or of the wrong type; the message names it.

    Examples
    --------
    >>> ModelConfig(encoding="wavelet", heads=4).head_width
    16
    >>> ModelConfig(encoding="wavelett")
    Traceback (most recent call last):
        ...
    ValueError: encoding 'wavelett' is unknown; did you mean 'wavelet'?
    """

    encoding: str
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    width: int = 64
    heads: int = 1
    layers: int = 2
    hidden: int = 128
    causal: bool = False
    sight: str = "all"
    activation: str = "relu"
    norm: str = "none"
    final_norm: bool = False
    bias: bool = True
    tied: bool = False
    dropout: float = 0.0
    residual: bool = True
    vocabulary: int | None = None
    train_length: int = 50
    dtype: str = "float32"
    precision: str = "float32"
    seed: int = 0
    init: str = "uniform"
    init_by_depth: bool = False
    table_scale: str = "defined"
    start: float = 0.0
    positions: str = "usual"
    encoding_length: int | None = field(default=None, metadata=IF_SET)
    key_heads: int | None = field(default=None, metadata=PART)
    head_dim: int | None = field(default=None, metadata=PART)
    norm_eps: float = field(default=1e-5, metadata=PART)
    norm_placement: str = field(default="before", metadata=PART)
    parallel: bool = field(default=False, metadata=PART)
    qkv_bias: bool | None = field(default=None, metadata=PART)
    qk_norm: str | None = field(default=None, metadata=PART)
    score_scale: float | None = field(default=None, metadata=PART)
    score_softcap: float | None = field(default=None, metadata=PART)
    logit_softcap: float | None = field(default=None, metadata=PART)
    embedding_scale: float = field(default=1.0, metadata=PART)
    sinks: bool = field(default=False, metadata=PART)

    def __post_init__(self) -> None:
        self._set("encoding", registry.canonical(registry.resolve(self.encoding)))
        self._set("options", Options(_checked_options(self.encoding, self.options)))
        for name in ("width", "heads", "hidden", "train_length"):
            self._set(name, whole(name, getattr(self, name), 1))
        self._set("layers", whole("layers", self.layers, 1, MOST_LAYERS))
        self._check_layers("encoding", self.encoding, len(registry.layers(self.encoding)))
        self._check_heads()
        for name in ("causal", "residual", "final_norm", "bias", "tied", "init_by_depth", "parallel", "sinks"):
            self._set(name, truth(name, getattr(self, name)))
        self._set("sight", sight.canonical(self.sight))
        self._check_layers("sight", self.sight, len(expanded("sight", self.sight)))
        self._set("activation", choice("activation", self.activation, ACTIVATIONS))
        self._set("norm", choice("norm", self.norm, NORMS))
        if self.final_norm and self.norm == "none":
            raise ValueError("final_norm needs a norm: choose norm 'layernorm' or 'rmsnorm', not 'none'")
        self._set("dropout", at_least_zero("dropout", self.dropout, 1.0))
        if self.vocabulary is not None:
            self._set("vocabulary", whole("vocabulary", self.vocabulary, 2, MOST_TOKENS))
        # the name of np.float32 is its __name__, and the name of np.dtype("float32") is its str
        dtype = str(self.dtype) if hasattr(self.dtype, "newbyteorder") else self.dtype
        self._set("dtype", choice("dtype", getattr(self.dtype, "__name__", dtype), DTYPES))
        self._set("precision", choice("precision", self.precision, PRECISIONS))
        if self.precision == "bfloat16" and self.dtype != "float32":
            raise ValueError(f"precision 'bfloat16' needs dtype 'float32', not {self.dtype!r}")
        self._set("seed", validation.seed("seed", self.seed))
        self._set("init", choice("init", self.init, INITS))
        self._set("table_scale", choice("table_scale", self.table_scale, TABLE_SCALES))
        self._set("start", real("start", self.start))
        self._set("positions", canonical(self.positions, self.train_length))
        if self.encoding_length is not None:
            self._set("encoding_length", whole("encoding_length", self.encoding_length, 1))
        self._check_parts()
        self._check_tokens()

    def _check_heads(self) -> None:
        for name in ("head_dim", "key_heads"):
            if getattr(self, name) is not None:
                self._set(name, whole(name, getattr(self, name), 1))
        if self.width % self.heads and self.head_dim is None:
            raise ValueError(
                f"width must be divisible by heads, but {self.width} is not divisible by {self.heads}; head_dim sets "
                "the width of a head"
            )
        if self.heads * self.head_width == self.width:
            self._set("head_dim", None)  # equal models have equal settings
        if self.key_heads == self.heads:
            self._set("key_heads", None)
        if self.heads % self.key_value_heads:
            raise ValueError(
                f"heads must be divisible by key_heads, but {self.heads} is not divisible by {self.key_value_heads}"
            )

    def _check_parts(self) -> None:
        for name in ("norm_eps", "embedding_scale"):
            self._set(name, positive(name, getattr(self, name), self.dtype))
        self._set("norm_placement", choice("norm_placement", self.norm_placement, PLACEMENTS))
        if self.norm == "none" and self.norm_placement != "before":
            raise ValueError(
                f"norm_placement {self.norm_placement!r} needs a norm: choose norm 'layernorm' or 'rmsnorm'"
            )
        if self.parallel and not self.residual:
            raise ValueError("parallel needs residual=True: it adds attention and feed-forward to their input")
        if self.parallel and self.norm_placement != "before":
            raise ValueError(f"parallel needs norm_placement 'before', not {self.norm_placement!r}")
        if self.qkv_bias is not None:
            self._set("qkv_bias", truth("qkv_bias", self.qkv_bias))
        if self.qkv_bias == self.bias:
            self._set("qkv_bias", None)  # equal models have equal settings
        if self.qk_norm is not None:
            self._set("qk_norm", choice("qk_norm", self.qk_norm, QK_NORMS))
        for name, check in (("score_scale", positive), ("score_softcap", soft_cap), ("logit_softcap", soft_cap)):
            if getattr(self, name) is not None:
                self._set(name, check(name, getattr(self, name), self.dtype))

    def _check_layers(self, name: str, pattern: str, count: int) -> None:
        if count > self.layers:
            raise ValueError(f"layers must be at least {count} for {name} {pattern!r}, not {self.layers}")

    def _check_tokens(self) -> None:
        if self.rule is not None:
            check_tokens(self.rule, self.vocabulary, self.positions)
        if self.tied and self.vocabulary is None:
            raise ValueError("tied needs a vocabulary: a model of numbers has no token embedding")
        for name in self.optional_parts:
            if self.vocabulary is None and name in ("logit_softcap", "embedding_scale"):
                raise ValueError(f"{name} needs a vocabulary: a model of numbers has no tokens")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def head_width(self) -> int:
        """Width D of one head: `head_dim`, or ``width / heads``.

        >>> ModelConfig("rope", width=64, heads=4, head_dim=32).head_width
        32
        """
        return self.head_dim or self.width // self.heads

    @property
    def key_value_heads(self) -> int:
        """Number of heads of keys and values: `key_heads`, or `heads`.

        >>> ModelConfig("rope", heads=4, key_heads=2).key_value_heads, ModelConfig("rope", heads=4).key_value_heads
        (2, 4)
        """
        return self.key_heads or self.heads

    @property
    def has_qkv_bias(self) -> bool:
        """Whether the projections of queries, keys and values have biases: `qkv_bias`, or `bias`."""
        return self.bias if self.qkv_bias is None else self.qkv_bias

    @property
    def optional_parts(self) -> tuple[str, ...]:
        """Names of the optional parts, the settings with the metadata `PART`, that differ from their defaults.

        >>> ModelConfig("rope", heads=4, key_heads=2, parallel=True).optional_parts
        ('key_heads', 'parallel')
        """
        return tuple(f.name for f in fields(self) if "part" in f.metadata and getattr(self, f.name) != f.default)

    @property
    def position_range(self) -> int | None:
        """L if positions are drawn from 0 .. L - 1, or if sequences begin at random rows of a table of L; else None."""
        drawn = self.positions != "usual" and self.rule is None
        return int(self.positions.partition(":")[2]) if drawn else None

    @property
    def shifted(self) -> bool:
        """Whether training sequences begin at a random row of the table."""
        return self.positions.startswith("offset:")

    @property
    def rule(self) -> Rule | None:
        """The rule by which positions follow from tokens, or None."""
        return rule_of(self.positions)

    @property
    def made_for(self) -> int:
        """Length in positions that the encoding is built for.

        >>> ModelConfig("rope", train_length=200, encoding_length=50).made_for
        50
        """
        return self.position_range or self.encoding_length or self.train_length

    def spec(self, length: int, positions: Any = None) -> Spec:
        """Return the sizes for which the encoding is built at `length` positions.

        If the model draws positions at random, pass the drawn ones as `positions`.
        """
        return make_spec(
            length,
            dim=self.heads * self.head_width,
            heads=self.heads,
            train_length=self.made_for,
            causal=self.causal,
            positions=positions,
            start=self.start,
            dtype=self.dtype,
        )

    def spec_of(self, part: Part, length: int) -> Spec:
        """Return the sizes for which one term of a sum of encodings is built.

        If a rule computes the positions from the tokens, as with ``positions="digits:20"``, a table is built with one
        row for each position that the rule can give, and `length` has no effect on it.
        """
        rows = self.rule.rows if self.rule is not None and "table" in part.encoding.slots else 0
        if not rows:
            return self.spec(length)
        return replace(self, positions="usual", train_length=rows, encoding_length=None).spec(rows)

    def to_dict(self) -> dict[str, Any]:
        """Return all settings as plain JSON values. `from_dict` is the inverse."""
        stored = ((f, getattr(self, f.name)) for f in fields(self) if f.compare)
        return {f.name: _plain(value) for f, value in stored if not f.metadata or value != f.default}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any], **unstored: Any) -> Self:
        """Build a configuration from the return value of `to_dict`. No setting may be missing or unknown.

        `unstored` are settings that `to_dict` leaves out, such as `tokenizer_content` of a `TrainConfig`.

        Settings may come from an untrusted file. So the encoding, and the task of a `TrainConfig`, must be a key: a
        path raises an error.

        Raises
        ------
        ValueError, TypeError
            If a setting is missing, unknown or invalid.

        Examples
        --------
        >>> config = ModelConfig(encoding="alibi", options={"slope": 0.5})
        >>> ModelConfig.from_dict(config.to_dict()) == config
        True
        """
        if not isinstance(settings, Mapping):
            raise TypeError(f"a configuration must be a mapping of names to values, not {shown(settings)}")
        stored = [f for f in fields(cls) if f.compare]
        known = [f.name for f in stored]
        for name in settings:
            if name not in known:
                raise ValueError(
                    f"setting {name!r} is unknown; {nearest(str(name), known, f'help({cls.__name__}) lists them')}"
                )
        if missing := [f.name for f in stored if f.name not in settings and not f.metadata]:
            raise ValueError(f"a configuration lacks {', '.join(missing)}")
        return cls(**{**settings, **cls._known_names(settings), **unstored})

    @classmethod
    def _known_names(cls, settings: Mapping[str, Any]) -> dict[str, str]:
        """Return the encoding in stored settings. It must be a key: the constructor would load the file at a path."""
        return {"encoding": registry.canonical(settings["encoding"])}


def _checked_options(encoding: str, options: object) -> dict[str, Any]:
    """Return the given options, converted to their types."""
    if not isinstance(options, Mapping):
        raise TypeError(f"options must be a mapping of names to values, not {shown(options)}")
    if not options:
        return {}
    for name in options:
        if not isinstance(name, str):
            raise TypeError(f"the name of an option must be a string, not {shown(name)}")
    parts = registry.parse_all(encoding, options)
    typed = {f"{part.scheme}.{key}": value for part in parts for key, value in part.options.items()}
    return {name: typed[name if "." in name else f"{encoding}.{name}"] for name in options}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, dict) else value
