"""Trained models with a change of their positions or heads, to measure what a model needs in a test."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.base.validation import shown
from fastpe.encodings import registry
from fastpe.model.by_layer import ByLayer, Layers
from fastpe.model.encoding_by_rule import encoding_of
from fastpe.model.transformer import Transformer

Array = np.ndarray[Any, Any]
Watch = Callable[[int, Array, Array, Array, Mapping[str, Any]], None]

FORMS = (
    "drop", "swap:ENCODING", "head:LAYER.HEAD", "head:LAYER.HEAD=zero", "pair:P", "pair:P=still", "pair:P=FACTOR",
    "slower:WAVELENGTH", "faster:WAVELENGTH", "near:DISTANCE", "shift:POSITIONS",
)  # fmt: skip
"""The forms of a change. Several heads or pairs are separated by commas; slower and faster end as pair does."""
_OF_PAIRS = ("pair", "slower", "faster")
_KEPT = ("scale", "softcap", "rectify", "spans")
"""What a layer keeps without its encoding."""
_FEW = 8
"""Below this number of sequences, the mean output of a head is a mean over positions as well."""
_LINEAR = 1e-6


@dataclass(frozen=True)
class Change:
    """A change of a model: its kind, what it changes, and how.

    >>> Change.parse("head:0.1,1.3"), Change.parse("slower:64=still").how
    (Change(kind='head', what=((0, 1), (1, 3)), how=''), 'still')
    """

    kind: str
    what: Any = None
    how: str = ""

    @classmethod
    def parse(cls, text: str) -> "Change":
        """Read a change. Raises ValueError if it has none of the `FORMS`."""
        if not isinstance(text, str):
            raise TypeError(f"changes must be texts such as 'drop' or 'head:0.1', not {shown(text)}")
        kind, _, rest = text.partition(":")
        what, equals, how = (rest, "", "") if kind == "swap" else rest.partition("=")
        try:
            found = cls(kind, _READ[kind](what), how)
        except (KeyError, ValueError):
            found = cls("")
        allowed = not equals or (kind == "head" and how == "zero") or (kind in _OF_PAIRS and _is_how(how))
        if not found.kind or not allowed:
            raise ValueError(f"changes must have one of the forms {', '.join(FORMS)}, not {shown(text)}")
        return found


def _is_how(how: str) -> bool:
    try:
        return how == "still" or math.isfinite(float(how))
    except ValueError:
        return False


def _none(text: str) -> None:
    if text:
        raise ValueError


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError
    return int(text)


def _head(text: str) -> tuple[int, int]:
    layer, _, head = text.partition(".")
    return _whole(layer), _whole(head)


def _positive(text: str) -> float:
    if not 0 < (value := float(text)) < math.inf:
        raise ValueError
    return value


def _key(text: str) -> str:
    if not text:
        raise ValueError
    return text


_READ: dict[str, Callable[[str], Any]] = {
    "drop": _none, "swap": _key, "head": lambda text: tuple(map(_head, text.split(","))),
    "pair": lambda text: tuple(map(_whole, text.split(","))), "slower": _positive, "faster": _positive, "near": _whole,
    "shift": _whole,
}  # fmt: skip


@dataclass
class Means:
    """Sums of the outputs of heads by input length and layer, (H, N, D), and numbers of sequences (N,) by length."""

    sums: dict[int, dict[int, Array]] = field(default_factory=dict)
    counts: dict[int, Array] = field(default_factory=dict)

    def add(self, layer: int, mixed: Array, lengths: Array) -> None:
        """Add the outputs of a layer (B, H, N, D) for sequences of these lengths."""
        length = mixed.shape[2]
        inside = np.arange(length) < lengths[:, None]
        own = np.where(inside[:, None, :, None], mixed, 0).sum(axis=0, dtype=np.float64)
        sums = self.sums.setdefault(length, {})
        sums[layer] = sums.get(layer, 0) + own
        if layer == 0:
            self.counts[length] = self.counts.get(length, 0) + inside.sum(axis=0)

    def of(self, layer: int, head: int, length: int) -> Array:
        """Return the mean output of a head by place (N, D); over all places if there are few sequences."""
        sums, counts = self.sums[length][layer][head], self.counts[length]
        if counts.max() < _FEW:
            return np.broadcast_to(sums.sum(axis=0) / counts.sum(), sums.shape)
        return np.asarray(sums / np.maximum(counts, 1)[:, None])


class Changed(ByLayer):
    """A copy of a trained model with a change.

    Parameters
    ----------
    model : Transformer
        A causal model with ``positions="usual"``.
    change : str
        One of the forms of `fastpe.model.changed.FORMS`; "" changes nothing. `fastpe.inspect` explains them.
    means : Means, optional
        The mean outputs of heads of the model, with which "head" replaces the outputs. They must have been recorded on
        inputs of the same length.
    record : Means, optional
        Gets the outputs of all heads.
    """

    changed = "a change"

    def __init__(
        self, model: Transformer, change: str = "", *, means: Means | None = None, record: Means | None = None
    ) -> None:  # fmt: skip
        if isinstance(model, ByLayer):
            raise ValueError(f"model must be the one that a model with {model.changed} was made from")
        super().__init__(model)
        self._model = model
        self.change, self._means, self._record = change, means, record
        self._watch: Watch | None = None
        self._own = own = Change.parse(change) if change else Change("")
        config = self.config
        if config.positions != "usual" or not config.causal:
            raise ValueError(
                f"model must be causal and have the usual positions, not causal={config.causal} and "
                f"positions={config.positions!r}"
            )
        if own.kind == "head":
            for layer, head in own.what:
                if layer >= config.layers or head >= config.heads:
                    has = f"{config.layers} layers of {config.heads} heads"
                    raise ValueError(f"changes must name a head of the model, which has {has}, not {change!r}")
        self._other = self._swapped() if own.kind == "swap" else None
        if own.kind == "shift":
            self._other = encoding_of(replace(config, start=config.start + own.what))
        if own.kind in _OF_PAIRS:
            self._check_pairs()

    def watched(self, x: Array, watch: Watch, threads: int | None = None) -> None:
        """Read sequences x (B, N) of equal length, and call `watch` with (layer, q, k, v, options) in each layer."""
        with self._lock:
            self._watch = watch
            try:
                rows, lengths = self._inputs.inputs(x, None)
                self._outputs(np.atleast_2d(rows), lengths, threads, 0)
            finally:
                self._watch = None

    @property
    def unrecorded(self) -> "Changed":
        """The same model, but it records no means of outputs."""
        return Changed(self._model, self.change, means=self._means) if self._record is not None else self

    def slots_of_layers(self, length: int) -> Layers:
        """Return the arguments of attention of every layer."""
        with self._lock:
            return self._layers(length)

    def marked(self) -> Array:
        """Return which pairs a change of pairs is about, in the first head of the first layer that rotates, (R/2,)."""
        layers = super()._layers(min(self.config.train_length, 16))
        return self._marked(next(own["angles"] for own in layers if _rotates(own)))[0]

    def _swapped(self) -> Any:
        """Return the other encoding, which must fill the same slots."""
        config, name = self.config, registry.canonical(self._own.what)
        if name == config.encoding:
            return self._encoding
        other = encoding_of(replace(config, encoding=name, options={}))
        length = min(config.train_length, 16)
        filled = (each.slots(length, {**each.initial, **self._layout.views}) for each in (other, self._encoding))
        has, needs = (sorted(slot for slot, x in own.items() if isinstance(x, np.ndarray)) for own in filled)
        if has != needs or any(gate is not None for gate in (*other.gates, *self._encoding.gates)):
            raise ValueError(
                f"changes cannot swap {config.encoding!r}, which fills {', '.join(needs) or 'nothing'}, for {name!r}, "
                f"which fills {', '.join(has) or 'nothing'}: they must be the same, and none may follow from content"
            )
        return other

    def _check_pairs(self) -> None:
        layers, found = super()._layers(min(self.config.train_length, 16)), False
        for own in layers:
            if own.get("gate") is not None and own["gate"].frequencies:
                raise ValueError(f"changes of pairs need rotations by position only, not {self.config.encoding!r}")
            if _rotates(own):
                self._marked(own["angles"])
                found = True
        if not found:
            raise ValueError(
                f"changes of pairs need an encoding that rotates queries and keys, not {self.config.encoding!r}"
            )

    def _marked(self, angles: Array) -> Array:
        """Return which pairs the change is about, (H or 1, R/2)."""
        kind, what, count = self._own.kind, self._own.what, angles.shape[-1]
        if kind == "pair":
            if max(what) >= count:
                raise ValueError(f"changes must name a pair below {count}, not {self.change!r}")
            return np.isin(np.arange(count), what)[None]
        waves = wavelengths(angles)
        return waves > what if kind == "slower" else waves < what

    def _layers(self, length: int) -> Layers:
        kind = self._own.kind
        if self._other is not None:
            found = self._layers_of(self._other, length, {**self._other.initial, **self._layout.views})
            for own, as_trained in zip(found, super()._layers(length) if kind == "swap" else (), strict=kind == "swap"):
                own.pop("pairs", None)  # the channels that training paired
                own |= {"pairs": as_trained["pairs"]} if "pairs" in as_trained else {}
            return found
        layers = super()._layers(length)
        if kind == "drop":
            return [self._without(own) for own in layers]
        if kind in _OF_PAIRS:
            for own in layers:
                if _rotates(own):
                    own["pairs_marked"] = self._marked(own["angles"])
                    if self._own.how:
                        own["angles"] = self._turned(own["angles"], own.pop("pairs_marked"))
        return layers

    def _without(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the slots of a layer without its encoding: tables become their mean row, phases become 0."""
        found = {name: own[name] for name in _KEPT if name in own}
        for name in {"table", "qk_table"} & own.keys():
            rows = own[name]
            mean = rows[: self.config.train_length].mean(axis=0, dtype=np.float64).astype(rows.dtype)
            found[name] = np.broadcast_to(mean, rows.shape).copy()
        if "polar" in own:
            found |= {name: np.zeros_like(own[name]) for name in ("polar", "angles") if name in own}
        return found

    def _turned(self, angles: Array, marked: Array) -> Array:
        """Return the angles of marked pairs times the factor, and those of other pairs as they are."""
        factor = 0.0 if self._own.how == "still" else float(self._own.how)
        if factor == 1.0:
            return angles
        steps = frequencies(angles)[:, None]
        places = np.arange(angles.shape[1])[:, None] + self.config.start
        scaled = np.remainder(factor * steps * places + math.pi, math.tau) - math.pi
        return np.where(marked[:, None], scaled, angles)

    def _attend(self, layer: int, q: Array, k: Array, v: Array, options: dict[str, Any]) -> Array:
        if (marked := options.pop("pairs_marked", None)) is not None:
            q = np.where(_channels(marked, q.shape[-1], options.get("pairs", "interleaved"))[:, None], 0, q)
            q = np.ascontiguousarray(q, k.dtype)
        if self._own.kind == "near":
            options["window"] = self._own.what + 1
        if self._watch is not None:
            self._watch(layer, q, k, v, options)
        mixed = super()._attend(layer, q, k, v, options)
        if self._record is not None:
            self._record.add(layer, mixed, options["lengths"])
        if self._own.kind == "head":
            for of_layer, head in self._own.what:
                if of_layer == layer:
                    zero = self._own.how == "zero" or self._means is None
                    mixed[:, head] = 0 if zero else self._means.of(layer, head, mixed.shape[2])  # type: ignore[union-attr] # zero without means
        return mixed


def frequencies(angles: Array) -> Array:
    """Return the frequencies (H or 1, R/2) of angles (H or 1, N, R/2), which must be positions times frequencies.

    >>> frequencies(np.arange(4.0)[None, :, None] * [1.0, 0.1]).round(12).tolist()
    [[1.0, 0.1]]
    """
    if angles.shape[1] < 2:
        return np.zeros((len(angles), angles.shape[2]))
    steps = _wrapped(angles[:, 1] - angles[:, 0])
    places = np.arange(angles.shape[1])[:, None]
    if np.abs(_wrapped(angles - angles[:, :1] - steps[:, None] * places)).max() > _LINEAR:
        raise ValueError("changes of frequencies need angles that are positions times frequencies")
    return steps


def _rotates(own: Mapping[str, Any]) -> bool:
    """Return whether a layer rotates queries and keys. The other layers of a pattern have angles of 0."""
    return "polar" not in own and bool(np.any(own.get("angles", 0)))


def wavelengths(angles: Array) -> Array:
    """Return how many positions one turn takes, (H or 1, R/2); infinity for pairs that do not turn."""
    steps = np.abs(frequencies(angles))
    return np.divide(math.tau, steps, out=np.full(steps.shape, math.inf), where=steps > 0)


def _wrapped(angles: Array) -> Array:
    return np.asarray(np.remainder(angles + math.pi, math.tau) - math.pi)


def _channels(marked: Array, width: int, pairs: str) -> Array:
    """Return the channels (H or 1, D) of marked pairs (H or 1, R/2)."""
    both = np.repeat(marked, 2, axis=-1) if pairs == "interleaved" else np.tile(marked, 2)
    return np.pad(both, ((0, 0), (0, width - both.shape[-1])))


def checked(changes: Any) -> tuple[str, ...]:
    """Return changes as texts; raise an error if one of them has no known form."""
    if isinstance(changes, str):
        changes = (changes,)
    if validation.count(changes) > 100:
        raise ValueError(f"changes must be at most 100, not {validation.count(changes)}")
    for change in changes:
        Change.parse(change)
    return tuple(changes)
