"""Position encodings, windows and lengths of a model, as settings of `ModelConfig` and as keys of config.json.

Each class describes one way in which architectures encode positions, in both directions: `misfits` lists what a model
has and the architecture lacks, `write` returns keys of config.json, and `read` returns settings of `ModelConfig`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fastpe.base import patterns, stored
from fastpe.base.stored import damaged
from fastpe.encodings import registry
from fastpe.encodings.encoding import Part
from fastpe.huggingface.values import FACTOR, SIZE, Values
from fastpe.model import sight
from fastpe.model.config import ModelConfig

FULL, WINDOWED = "full_attention", "sliding_attention"


class Misfit(NamedTuple):
    """A setting of a model that an architecture cannot express, and what the architecture has in its place."""

    setting: str
    value: Any
    needed: str
    cost: int = 1  # the larger, the less alike are the two

    def __str__(self) -> str:
        return f"{self.setting} {self.needed}, not {stored.cut(repr(self.value), 80)}"


def layers_of(config: ModelConfig) -> list[tuple[Part, ...]]:
    """The encodings of each layer."""
    found = registry.parse_layers(config.encoding, config.options)
    return [found[layer % len(found)] for layer in range(config.layers)]


def longest(config: ModelConfig) -> int:
    """The number of positions of a model, which is the number of rows of its table if it has one."""
    return config.position_range or max(config.train_length, config.made_for)


class Positions(Protocol):
    """What the classes of this module have in common."""

    def misfits(self, config: ModelConfig) -> list[Misfit]:
        """What a model has and the architecture lacks."""

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """The keys of config.json for a model without misfits."""

    def read(self, values: Values, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of `ModelConfig` for a config.json. `sizes` has its layers and the width of a head."""


def _another_encoding(config: ModelConfig, slot: str, needed: str) -> Misfit:
    """The misfit of an encoding; it costs less if the encoding also fills the slot that the architecture fills."""
    fills = any(slot in part.encoding.slots for own in layers_of(config) for part in own)
    return Misfit("encoding", config.encoding, needed, 2 if fills else 3)


def _sees_all(config: ModelConfig) -> list[Misfit]:
    return [] if config.sight == "all" else [Misfit("sight", config.sight, "'all'")]


def _usual(config: ModelConfig) -> list[Misfit]:
    return [] if config.positions == "usual" else [Misfit("positions", config.positions, "'usual'")]


@dataclass(frozen=True)
class _Length:
    """Positions for which config.json states only the number.

    Parameters
    ----------
    length : str
        Its key.
    """

    length: str

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """The number of positions."""
        return {self.length: longest(config)}


class Table(_Length):
    """One vector for each position, added to the embeddings: any encoding that fills the slot `table` only.

    The vectors must not depend on the length of the sequence, which only a model can tell (see `export.misfits`).
    """

    def misfits(self, config: ModelConfig) -> list[Misfit]:
        """Encodings that act in attention, positions that are drawn or depend on tokens, and windows."""
        own = [part for layer in layers_of(config) for part in layer]
        found = _sees_all(config)
        if any(set(part.encoding.slots) - {"table"} or part.encoding.gate for part in own):
            found.append(_another_encoding(config, "table", "with only a table"))
        if config.positions != "usual" and not config.shifted:
            found.append(Misfit("positions", config.positions, "'usual' or 'offset:L'"))
        return found

    def read(self, values: Values, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """A learned table."""
        return {"encoding": "learned", "train_length": values.required(self.length, SIZE)}


class Alibi(_Length):
    """ALiBi with the slopes of its authors."""

    def misfits(self, config: ModelConfig) -> list[Misfit]:
        """Other encodings, options of ALiBi, and windows."""
        parts = [part for layer in layers_of(config) for part in layer]
        found = _sees_all(config) + _usual(config)
        if any(part.scheme != "alibi" for part in parts) or config.encoding != "alibi":
            return [*found, _another_encoding(config, "bias", "'alibi'")]
        usual = {name: option.default for name, option in parts[0].encoding.options.items()}
        for name, value in parts[0].options.items():
            if value != usual[name]:
                found.append(Misfit(f"option '{name}' of alibi", value, repr(usual[name])))
        return found

    def read(self, values: Values, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """ALiBi as it is by default. Nothing but `train_length` depends on the length, so it may be missing."""
        return {"encoding": "alibi", "train_length": values.get(self.length, SIZE, 2048)}


@dataclass(frozen=True)
class _Rotation:
    """A kind of rotary frequencies: the encoding, and its options by their keys in `rope_parameters`."""

    encoding: str
    options: Mapping[str, Any]
    original: bool = False  # whether frequencies depend on the training length


_ROTATIONS = {
    "default": _Rotation("rope", {}),
    "linear": _Rotation("rope_linear", {"factor": None}),
    "llama3": _Rotation(
        "rope_llama3", {"factor": None, "low_freq_factor": None, "high_freq_factor": None}, original=True
    ),
    "yarn": _Rotation("rope_yarn", {"factor": None, "beta_fast": 32.0, "beta_slow": 1.0}, original=True),
}
"""Kinds of frequencies by `rope_type`, with the defaults of their options; None: there is none."""
_OF_ENCODING = {each.encoding: kind for kind, each in _ROTATIONS.items()}
_ORIGINAL = "original_max_position_embeddings"


@dataclass(frozen=True)
class Rotary:
    """Rotations of queries and keys, in all layers or in some, with windows.

    Parameters
    ----------
    base : float
        The base if config.json has none.
    share : float or None
        Share of the channels of a head that are rotated if config.json has none. None: all channels are rotated.
    windows : {"none", "all", "layers"}
        Whether there are windows: in no layer; of one width in all layers, or in none; or of one width in some layers.
    window : int or None
        Width of the windows if config.json has none.
    alternate : bool
        If config.json does not list the layers with windows: whether these are every other layer.
    bare : bool
        Whether layers may have no encoding.
    scaled : bool
        Whether frequencies may be scaled; otherwise only rope itself is supported.
    base_key, share_key : str
        The keys of base and share in files of transformers before 5, which have no `rope_parameters`.
    """

    base: float = 10000.0
    share: float | None = None
    windows: str = "none"
    window: int | None = None
    alternate: bool = False
    bare: bool = False
    scaled: bool = True
    base_key: str = "rope_theta"
    share_key: str = "partial_rotary_factor"

    @property
    def _kinds(self) -> tuple[str, ...]:
        return tuple(_ROTATIONS) if self.scaled else ("default",)

    def misfits(self, config: ModelConfig) -> list[Misfit]:
        """Other encodings, rotations that differ between layers, and windows that the architecture lacks."""
        found, layers = _usual(config), layers_of(config)
        rotary = [own[0] for own in layers if len(own) == 1 and _OF_ENCODING.get(_key(own[0])) in self._kinds]
        bare = [own for own in layers if len(own) == 1 and _key(own[0]) == "nope"]
        kinds = {_key(part) for part in rotary}
        if len(rotary) + len(bare) < len(layers) or len(kinds) > 1 or (bare and not self.bare):
            return [*found, _another_encoding(config, "angles", "'rope' or 'nope' by layer" if self.bare else "'rope'")]
        if len({tuple(sorted(_without_order(part).items())) for part in rotary}) > 1:
            found.append(Misfit("options", dict(config.options), "equal in all layers"))
        if rotary:
            found += self._misfits_of_rotation(config, rotary[0])
        return found + self._misfits_of_windows(config)

    def _misfits_of_rotation(self, config: ModelConfig, part: Part) -> list[Misfit]:
        found, width = [], config.head_width
        rotated = part.options.get("rotated") or width
        if rotated != width and self.share is None:
            found.append(Misfit("option 'rotated' of rope", rotated, f"{width}, all channels of a head"))
        elif int(width * (rotated / width)) != rotated:
            found.append(Misfit("option 'rotated' of rope", rotated, "a share of the head that float64 holds"))
        own = _ROTATIONS[_OF_ENCODING[_key(part)]]
        for name, option in part.encoding.options.items():
            value = part.options[name]
            if name in own.options and value is None:
                found.append(Misfit(f"option '{name}' of {_key(part)}", value, "a number"))
            if name not in {*own.options, "base", "pairs", "rotated"} and value != option.default:
                found.append(Misfit(f"option '{name}' of {_key(part)}", value, repr(option.default)))
        return found

    def _misfits_of_windows(self, config: ModelConfig) -> list[Misfit]:
        sights = set(sight.of_layers(config.sight, config.layers))
        wide = {each for each in sights if each != "all"}
        if not wide:
            return []
        if self.windows == "none":
            return [Misfit("sight", config.sight, "'all'")]
        if any(not each.startswith("window:") for each in wide) or len(wide) > 1:
            return [Misfit("sight", config.sight, "windows of one width")]
        if self.windows == "all" and len(sights) > 1:
            return [Misfit("sight", config.sight, "the same in all layers")]
        return []

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Rotation, length, windows, and layers without an encoding."""
        layers = layers_of(config)
        part = next((own[0] for own in layers if _key(own[0]) in _OF_ENCODING), None)
        kind = "default" if part is None else _OF_ENCODING[_key(part)]
        options = {} if part is None else part.options
        rope = {"rope_type": kind, "rope_theta": float(options.get("base", self.base))}
        if self.share is not None:
            rope["partial_rotary_factor"] = (options.get("rotated") or config.head_width) / config.head_width
        rope |= {name: float(options[name]) for name in _ROTATIONS[kind].options}
        if _ROTATIONS[kind].original:
            rope[_ORIGINAL] = config.made_for
        found = {"max_position_embeddings": longest(config), "rope_parameters": rope}
        sights = sight.of_layers(config.sight, config.layers)
        width = next((int(each.partition(":")[2]) for each in sights if each != "all"), None)
        if self.windows != "none":
            found["sliding_window"] = self.window if width is None and self.alternate else width
        if self.windows == "layers":
            found["layer_types"] = [FULL if each == "all" else WINDOWED for each in sights]
        if self.windows == "layers" and not self.alternate:
            found |= {"use_sliding_window": width is not None, "max_window_layers": 0}
        if self.bare:
            found["no_rope_layers"] = [int(_key(own[0]) != "nope") for own in layers]
        return found

    def read(self, values: Values, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """Encoding, options, sight and lengths."""
        layers, length = sizes["layers"], values.required("max_position_embeddings", SIZE)
        encoding, options, made_for = self._rotation(values, length, sizes["head_dim"])
        found = {"train_length": length, "encoding_length": None if made_for == length else made_for}
        turned = self._turned(values, layers)
        names = [encoding if each else "nope" for each in turned]
        found["encoding"] = patterns.shortest(_period(names))
        found["options"] = {f"{encoding}.{name}": value for name, value in options.items()} if any(turned) else {}
        return found | {"sight": patterns.shortest(_period(self._sights(values, layers, turned)))}

    def _rotation(self, values: Values, length: int, width: int) -> tuple[str, dict[str, Any], int]:
        """The encoding, its options, and the length that it is built for."""
        place = "rope_scaling" if values.get("rope_scaling", stored.by_key(stored.anything)) else "rope_parameters"
        old = values.get(f"{place}.type", stored.text, "default")
        kind = values.one_of(f"{place}.rope_type", self._kinds, old)
        base = values.get(f"{place}.rope_theta", FACTOR, values.get(self.base_key, FACTOR, self.base))
        options: dict[str, Any] = {"base": float(base), "pairs": "half"}
        share = values.get(f"{place}.partial_rotary_factor", FACTOR, values.get(self.share_key, FACTOR, self.share))
        if share not in (None, 1.0) and self.share is None:
            values.refuse(f"partial_rotary_factor {share} is not supported, only 1")
        rotated = int(width * (share or 1.0))
        if rotated % 2 or not 0 < rotated <= width:
            raise damaged(values.path, f"{self.share_key} {share} rotates {rotated} of {width} channels")
        options["rotated"] = None if rotated == width else rotated
        for name, default in _ROTATIONS[kind].options.items():
            key = f"{place}.{name}"
            options[name] = values.required(key, FACTOR) if default is None else values.get(key, FACTOR, default)
        for key in ("attention_factor", "mscale", "mscale_all_dim", "truncate"):
            if values.get(f"{place}.{key}", stored.anything) is not None:
                values.refuse(f"{place}.{key} is not supported")
        if not _ROTATIONS[kind].original:
            return _ROTATIONS[kind].encoding, options, length
        return _ROTATIONS[kind].encoding, options, values.get(f"{place}.{_ORIGINAL}", SIZE, length)

    def _turned(self, values: Values, layers: int) -> list[int]:
        """For each layer, whether it rotates queries and keys."""
        if not self.bare:
            return [1] * layers
        every = values.get("no_rope_layer_interval", SIZE, 4)
        usual = [int((layer + 1) % every != 0) for layer in range(layers)]
        found: list[int] = values.get("no_rope_layers", stored.each(stored.whole(0, 1), layers, layers), usual)
        return found

    def _sights(self, values: Values, layers: int, turned: Sequence[int]) -> list[str]:
        """For each layer, the keys that a query sees."""
        if self.windows == "none":
            return ["all"] * layers
        given = "sliding_window" in values.found  # null means that there is none
        width = values.get("sliding_window", SIZE, None if given else self.window)
        if self.windows == "layers" and not self.alternate:
            width = width if values.get("use_sliding_window", stored.truth, False) else None
        windowed = [True] * layers
        if self.windows == "layers":
            first = values.get("max_window_layers", stored.whole(0, 2**27), 28)
            windowed = [
                not turned[i] if self.bare else i % 2 == 0 if self.alternate else i >= first for i in range(layers)
            ]
            types = stored.each(stored.one_of(FULL, WINDOWED), layers, layers)
            usual = [WINDOWED if each else FULL for each in windowed]
            windowed = [each == WINDOWED for each in values.get("layer_types", types, usual)]
        return [f"window:{width}" if each and width is not None else "all" for each in windowed]


def _key(part: Part) -> str:
    """The key of a term without its label."""
    return part.scheme.partition("@")[0]


def _without_order(part: Part) -> dict[str, Any]:
    """The options of a rotation but for `pairs`: weights are written in one order of channels."""
    return {name: repr(value) for name, value in part.options.items() if name != "pairs"}


def _period(items: Sequence[str]) -> Sequence[str]:
    """The shortest beginning of a list that gives the list if it is repeated.

    >>> _period(["a", "b", "a", "b", "a"])
    ['a', 'b']
    """
    return next(items[:n] for n in range(1, len(items) + 1) if all(items[i] == items[i % n] for i in range(len(items))))
