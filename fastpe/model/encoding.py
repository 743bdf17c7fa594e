"""The position encoding of one model: its slots at any length, and the gradients of its parameters.

This module connects models and encodings. The model sees arrays by slot; the encoding sees its parameters.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from fastpe import reference
from fastpe.base import validation
from fastpe.base.draws import Draws
from fastpe.base.random import Stream
from fastpe.encodings import build, combined, registry
from fastpe.encodings.encoding import BeyondTrainingLength, Part
from fastpe.encodings.slots import Spec, neutral
from fastpe.model import gates, sight
from fastpe.model.combinations import check_combinations
from fastpe.model.config import ModelConfig
from fastpe.model.drawn_positions import drawn
from fastpe.model.score_terms import LAYERED
from fastpe.model.token_positions import Placed

Array = np.ndarray[Any, Any]

_KEPT_LENGTHS = 8  # limits the memory for slots if a user tries many lengths
_DRAWS = 4  # number of draws of random signs; with one draw, errors could cancel by chance


class ModelEncoding:
    """The encoding that a `ModelConfig` names, built for its sizes.

    Attributes
    ----------
    initial : dict of str to array
        Initial values of the encoding's parameters, by name in the model: ``encoding.{scheme}.{parameter}``, or
        ``layers.{l}.encoding.{scheme}.{parameter}`` if every layer has separate parameters.
    layered : frozenset of str
        The slots that differ between layers. Their first axis is the layer.
    learned : frozenset of str
        The slots that depend on parameters.
    gates : tuple of gates.LayerGate or None
        The gates of each layer.
    table_factor : float
        Factor applied to the table that the encoding defines, see `ModelConfig.table_scale`.

    Raises
    ------
    ValueError
        If the encoding does not support these sizes.
    """

    def __init__(self, config: ModelConfig) -> None:
        if config.rule is not None:
            raise ValueError(
                f"positions={config.positions!r} follow from tokens: slots cannot be filled without tokens"
            )
        self.config = config
        self._parts = registry.parse_all(config.encoding, config.options)
        pattern = registry.parse_layers(config.encoding, config.options)
        self._of_layers = [pattern[layer % len(pattern)] for layer in range(config.layers)]
        self._patterned = len(pattern) > 1
        self._made_for = config.spec(config.made_for)
        self._specs: dict[int, Spec] = {}
        self._draws: dict[int, int | str] = {}
        self._arrays: dict[int, dict[str, Any]] = {}
        self._filled: dict[int, Spec] = {}
        if config.position_range is not None and (axes := combined.axes(self._parts, given=True)) > 1:
            needs = f"{config.encoding!r} needs {axes} coordinates"
            raise ValueError(f"positions cannot be {config.positions!r}: {needs}")
        spec = self._spec(config.train_length)
        if config.shifted and (others := set(combined.slot_shapes(self._parts, spec)) - {"table"}):
            fills = f"{config.encoding!r} fills {min(others)!r}, not only a table"
            raise ValueError(f"positions cannot be {config.positions!r}: {fills}")
        for own in self._different():
            combined.outlines(own, spec)  # raises an error if the slots do not fit into memory
        combined.check_gradients(self._parts, spec)
        filled = {part.scheme: set(combined.shapes_of(part, spec)) for part in self._parts}
        learns = {part.scheme: set(part.encoding.parameters(spec, **part.options)) for part in self._parts}
        self._own_layers = {part.scheme: learns[part.scheme] & set(part.encoding.per_layer) for part in self._parts}
        self.layered = frozenset().union(*(filled[scheme] for scheme, names in self._own_layers.items() if names))
        if config.score_scale is not None and any("scale" in combined.plain(own, spec) for own in self._different()):
            raise ValueError(f"score_scale cannot be combined with {config.encoding!r}, which sets the scale of scores")
        check_combinations(
            config, self._parts, shapes := [combined.slot_shapes(own, spec) for own in self._different()]
        )
        if self._patterned:
            self._check_pattern(spec, filled)
            self.layered = frozenset().union(*filled.values()) & LAYERED
        self.learned = frozenset().union(*(filled[scheme] for scheme in learns if learns[scheme]))
        if unfit := self.layered - LAYERED:
            raise ValueError(f"{config.encoding!r} fills {min(unfit)!r} in every layer, but this slot acts only once")
        self.initial = self._initial_values()
        self.gates = gates.of_layers(self._of_layers, config, self._own_layers, self._name, shapes)
        self.table_factor = self._find_table_factor()

    def _check_pattern(self, spec: Spec, filled: Mapping[str, set[str]]) -> None:
        """Raise ValueError if encodings cannot be in some layers only, or cannot be combined in one model."""
        name = self.config.encoding
        for part in self._parts:
            once = {slot for slot in filled[part.scheme] if slot not in LAYERED}
            if once and not all(_has(own, part) for own in self._different()):
                fills = f"{part.scheme!r} fills {min(once)!r}, which acts at the input"
                raise ValueError(f"{fills}: it must be in all layers of {name!r}")
        shapes: dict[str, tuple[int, ...]] = {}
        for own in self._different():
            for slot, shape in combined.slot_shapes(own, spec).items():
                if shapes.setdefault(slot, shape) != shape:
                    both = f"{shapes[slot]}, {shape}"
                    raise ValueError(f"slot {slot!r} has different shapes in layers of {name!r}: {both}")
        plain = [combined.plain(own, spec) for own in self._different()]
        for key in {key for own in plain for key in own} - {"scale"}:
            values = [own[key] for own in plain if key in own]
            if values.count(values[0]) < len(values) or (key == "rectify" and len(values) < len(plain)):
                raise ValueError(f"{key!r} must be the same in all layers of {name!r}")

    def _spec(self, length: int, draw: int | str | None = None) -> Spec:
        """Return the sizes to build the encoding with. draw: selects random positions; None: those of the last draw."""
        most = self.config.position_range
        if most is not None and length > most:
            has = f"the {most} that positions={self.config.positions!r} has"
            raise BeyondTrainingLength(f"length {length} needs more positions than {has}")
        if self.config.shifted:
            assert most is not None
            return self._specs.setdefault(most, self.config.spec(most))
        if length in self._specs and (most is None or draw in (None, self._draws[length])):
            return self._specs[length]
        draw = "test.0" if draw is None else draw
        if length not in self._specs and len(self._specs) >= _KEPT_LENGTHS:
            self._specs.clear()
            self._arrays.clear()
        positions = None
        if most is not None:
            way, stream = self.config.positions.partition(":")[0], Stream(self.config.seed, "positions", draw)
            positions = drawn(way, most, length, stream, training=isinstance(draw, int))
        self._specs[length], self._draws[length] = self.config.spec(length, positions), draw
        return self._specs[length]

    # ------------------------------------------------------------------------------------------------------ parameters

    def _initial_values(self) -> dict[str, Array]:
        c, spec, values = self.config, self._made_for, dict[str, Array]()
        sizes = {name: getattr(spec, name) for name in ("dim", "heads", "train_length", "causal", "dtype")}
        for part in self._parts:
            own = self._own_layers.get(part.scheme, set())
            shared = build.init(part.scheme, **sizes, seed=c.seed, **part.options)
            values |= {self._name(part.scheme, name): value for name, value in shared.items() if name not in own}
            for layer in [number for number, parts in enumerate(self._of_layers) if own and _has(parts, part)]:
                stream = Stream(c.seed, "init", f"layers.{layer}.encoding.{part.scheme}")
                values_drawn = part.encoding.init(spec, stream, **part.options)
                values |= {
                    self._name(part.scheme, name, layer): values_drawn[name].astype(c.dtype) for name in sorted(own)
                }
        return values

    def _name(self, scheme: str, parameter: str, layer: int | None = None) -> str:
        """Return the name of a parameter in the model."""
        name = f"encoding.{scheme}.{parameter}"
        return name if layer is None else f"layers.{layer}.{name}"

    def _own(self, arrays: Mapping[str, Array], layer: int) -> dict[str, Array]:
        """Return the parameters of the encoding in one layer, by the encoding's names; `arrays` has the
        model's names.
        """
        return {key: arrays[name] for key, name in self._names[layer].items()}

    @cached_property
    def _names(self) -> list[dict[str, str]]:
        return [
            {combined.key(parts, part, name):
             self._name(part.scheme, name, layer if name in self._own_layers[part.scheme] else None)
             for part in parts for name in part.encoding.parameters(self._made_for, **part.options)}
            for layer, parts in enumerate(self._of_layers)
        ]  # fmt: skip

    def _find_table_factor(self) -> float:
        """Return the factor of the table, one constant for all rows."""
        c, spec, parts = self.config, self._made_for, self._of_layers[0]
        wanted = {"defined": None, "rms": math.sqrt(c.width / 2), "unit": 1.0}[c.table_scale]
        if wanted is None or "table" not in combined.slot_shapes(parts, spec):
            return 1.0
        arrays = combined.allocate(parts, spec)
        combined.fill(parts, spec, self._own(self.initial, 0), arrays)
        norm = math.sqrt(np.square(arrays["table"], dtype=np.float64).sum() / spec.length)
        return wanted / norm if norm else 1.0

    # ----------------------------------------------------------------------------------------------------------- slots

    def slots(
        self, length: int, parameters: Mapping[str, Array], draw: int = 0, *, training: bool = False
    ) -> dict[str, Any]:
        """Return the filled slots at this length.

        The next call with the same length reuses the arrays. If that call fills the arrays again, it returns a new
        dict, by which callers notice the change.

        draw: selects random positions. It is the number of a training step, or any number in testing.

        Raises
        ------
        fastpe.BeyondTrainingLength
            If the encoding is undefined at this length.
        """
        draw = validation.seed("draw", draw)
        spec = self._spec(length, draw if training else f"test.{draw}")
        length = spec.length  # if sequences begin at random rows, the length of the whole table
        slots = self._arrays.get(length)
        if slots is not None and not self.initial and spec is self._filled[length]:
            return slots
        slots, first = (self._allocated(spec), True) if slots is None else (dict(slots), False)
        # only the first fill checks that values are finite: later fills happen in training, which detects divergence
        self._fill(spec, parameters, slots, finite=first)
        self._arrays[length], self._filled[length] = slots, spec
        return slots

    def fill(self, length: int, parameters: Mapping[str, Array], slots: dict[str, Any], *, finite: bool = True) -> None:
        """Fill the arrays from `slots` once more. If `finite`, values that overflow their dtype are an error."""
        self._fill(self._spec(length), parameters, slots, finite=finite)

    def _fill(self, spec: Spec, parameters: Mapping[str, Array], slots: dict[str, Any], *, finite: bool) -> None:
        checked = self._filled.get(spec.length) is spec
        arrays = {slot: x for slot, x in slots.items() if isinstance(x, np.ndarray)}
        for layer, parts in enumerate(self._of_layers[: None if self.layered else 1]):
            mine = {slot: x[layer] if slot in self.layered else x for slot, x in self._filled_by(parts, spec, arrays)}
            combined.fill(parts, spec, self._own(parameters, layer), mine, finite=finite, checked=checked)
        if self.table_factor != 1.0:
            slots["table"] *= self.table_factor

    def _different(self) -> Collection[tuple[Part, ...]]:
        """Return the different sets of encodings that layers have."""
        return {tuple(part.scheme for part in own): own for own in self._of_layers}.values()

    def _filled_by(self, parts: Sequence[Part], spec: Spec, arrays: Mapping[str, Array]) -> list[tuple[str, Array]]:
        """Return the slots among `arrays` that these encodings fill. If all layers have the same encodings, these are
        all slots.
        """
        own = combined.slot_shapes(parts, spec) if self._patterned else arrays
        return [(slot, array) for slot, array in arrays.items() if slot in own]

    def _allocated(self, spec: Spec) -> dict[str, Any]:
        """Return arrays for all slots. A slot has neutral entries in the layers that do not have this slot."""
        filled = (combined.allocate(parts, spec) for parts in self._different())
        arrays: dict[str, Any] = {slot: array for own in filled for slot, array in own.items()}
        for slot in self.layered:
            arrays[slot] = neutral(slot, (self.config.layers, *arrays[slot].shape), arrays[slot].dtype)
        return arrays | self._plain(spec)

    def _plain(self, spec: Spec) -> dict[str, Any]:
        found = {slot: value for own in self._different() for slot, value in combined.plain(own, spec).items()}
        if self._patterned and "scale" in found:
            of_layers, usual = [combined.plain(own, spec) for own in self._of_layers], self.config.head_width**-0.5
            rows = [np.broadcast_to(own.get("scale", usual), self.config.heads) for own in of_layers]
            found["scale"] = np.array(rows)
        return found | self._of_scores

    @cached_property
    def _of_scores(self) -> dict[str, float]:
        """Return the settings of the model that act on scores as slots do."""
        both = {"scale": self.config.score_scale, "softcap": self.config.score_softcap}
        return {slot: value for slot, value in both.items() if value is not None}

    def pull(
        self, length: int, parameters: Mapping[str, Array], dslots: Mapping[str, Array], gradients: Mapping[str, Array]
    ) -> None:
        """Compute the gradients of the encoding's parameters from those of its slots, and add them to `gradients`.

        dslots: gradients of the slots, as they were last filled for this length.
        """
        if self.table_factor != 1.0:
            dslots = {**dslots, "table": dslots["table"] * np.asarray(self.table_factor, dslots["table"].dtype)}
        spec = self._spec(length)
        for layer, parts in enumerate(self._of_layers[: None if self.layered else 1]):
            # a slot that all layers share is processed once
            mine = {
                slot: x[layer] if slot in self.layered else x if layer == 0 else np.zeros_like(x)
                for slot, x in self._filled_by(parts, spec, dslots)
            }
            combined.add_gradients(parts, spec, self._own(parameters, layer), mine, self._own(gradients, layer))

    def shifts(self, lengths: Array, batch: int, step: int) -> Array:
        """Return the first row of the table of each sequence of a training step, (B,); (1,) if all begin at row 0.

        lengths: the length of each sequence, or one length for all.
        """
        most = self.config.position_range
        if not self.config.shifted or most is None:
            return np.zeros(1, np.int64)
        spare = most - np.broadcast_to(lengths, batch) + 1
        return Draws(Stream(self.config.seed, "offsets", step)).integers(spare, (batch,))

    def placed(self, x: Array, lengths: Array, *, step: int | None = None, **_: Any) -> Placed:
        """Return the first row of the table for each sequence; its other rows follow. step: number of a
        training step.
        """
        first = np.zeros(1, np.int64) if step is None else self.shifts(lengths, len(x), step)
        return Placed(first[None, :, None], None, None)

    # ------------------------------------------------------------------------------------------------------- reference

    def reference_slots(self, length: int, parameters: Mapping[str, Array]) -> list[dict[str, Any]]:
        """Return the slots of every layer, computed with the NumPy formulas in float64."""
        spec, layers = replace(self._spec(length), dtype=np.dtype(np.float64)), list[dict[str, Any]]()
        for layer, parts in enumerate(self._of_layers):
            if layer and not self.layered:
                layers.append(
                    {s: x for s, x in layers[0].items() if s != "scale"} | combined.plain(parts, spec) | self._of_scores
                )
                continue
            slots: dict[str, Any] = combined.allocate(parts, spec)
            combined.fill(parts, spec, self._own(parameters, layer), slots, reference=True)
            if self.table_factor != 1.0:
                slots["table"] *= self.table_factor
            layers.append(slots | combined.plain(parts, spec) | self._of_scores)
        spans = sight.spans(self.config.sight, self.config.layers, length, causal=self.config.causal)
        for layer, gated in enumerate(self.gates):
            seen = {} if spans is None else {"spans": spans[layer][None]}
            layers[layer] = layers[layer] | seen | ({} if gated is None else {"gate": gated})
        return layers

    def reference_loss_and_grads(
        self, parameters: Mapping[str, Array], x: Array, y: Array, weights: Array | None = None, factors: Any = None
    ) -> tuple[float, dict[str, Array]]:
        """Return the model's loss and gradients, including those of the encoding, computed by `fastpe.reference`.

        Only the functions that turn gradients of slots into gradients of the encoding's parameters are compiled.
        `parameters` and the model of this encoding must be float64. `factors` are dropout factors, as
        `Transformer.dropout_factors` returns them.
        """
        length = x.shape[1]
        given = self.config, parameters, self.reference_slots(length, parameters), x, y, weights, factors
        of_layers: Any  # one for each layer, like the slots
        loss, gradients, of_layers = reference.model_loss_and_grads(*given)
        if self.initial:
            # gradients of gates are already included
            own = {name: gradients.get(name, np.zeros_like(parameters[name])) for name in self.initial}
            self.pull(length, parameters, self.joined(of_layers), own)
            gradients |= own
        return float(loss), gradients

    def reference_gradient_sizes(
        self, parameters: Mapping[str, Array], x: Array, y: Array, weights: Array | None = None
    ) -> dict[str, Array]:
        """Return, for each entry of the gradients, the sum of the absolute values of its terms: a scale for its error.

        For the encoding's parameters, `pull` is applied to the sums for the slots, multiplied by random signs, because
        the errors of slots have random signs too. The scale is the largest absolute result of several draws of signs.
        """
        length = x.shape[1]
        slots = self.reference_slots(length, parameters)
        found, of_layers = reference.model_gradient_sizes(self.config, parameters, slots, x, y, weights)
        terms = self.joined(of_layers)
        for draw in range(_DRAWS if self.initial else 0):
            own = {name: np.zeros_like(parameters[name]) for name in self.initial}
            signs = {
                slot: np.sign(Stream(draw, "signs", slot).uniform(array.shape) - 0.5) for slot, array in terms.items()
            }
            self.pull(length, parameters, {slot: signs[slot] * np.abs(array) for slot, array in terms.items()}, own)
            found |= {name: np.maximum(np.abs(array), found.get(name, 0.0)) for name, array in own.items()}
        return {name: np.abs(np.asarray(array)) for name, array in found.items()}

    def joined(self, of_layers: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Join the slots' gradients of all layers into one array for each learned slot, the form that `pull` takes."""
        found = {}
        for slot in self.learned:
            each = [np.asarray(own[slot]) for own in of_layers if slot in own]
            if each and slot in self.layered:
                nothing = np.zeros_like(each[0])
                each = [np.asarray(own.get(slot, nothing)) for own in of_layers]
            if each:
                found[slot] = np.ascontiguousarray(np.stack(each) if slot in self.layered else sum(each))
        return found


def _has(parts: Sequence[Part], part: Part) -> bool:
    return any(own.scheme == part.scheme for own in parts)
