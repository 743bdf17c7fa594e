"""The encoding of a model whose positions follow from tokens by a rule. These are the contents of its slots:

table     all rows that the rule may select; each token uses the row that the rule selects
angles    the angles of the usual positions; if the rule applies to rotations, each token uses the row that the rule
          selects
column    for ALiBi over segments in a causal model, in place of the bias: slope times number of the segment
others    the values for the usual positions
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastpe import reference
from fastpe.base.patterns import expanded, shortest
from fastpe.base.random import Stream
from fastpe.encodings import combined, registry
from fastpe.encodings.encoding import Part
from fastpe.encodings.slots import Spec
from fastpe.kernels.model.gates import STEPS
from fastpe.model import sight, token_positions
from fastpe.model.config import ModelConfig
from fastpe.model.encoding import ModelEncoding
from fastpe.model.gates import LayerGate
from fastpe.model.positions import Documents, Segments
from fastpe.model.token_positions import Placed

Array = np.ndarray[Any, Any]

# slots that depend on the position or mix neighbouring tokens: they cannot restart in each document
_PLACED = frozenset({"taps", "qk_table", "index", "values", "scores", "row_scale"})
_OF_SEGMENTS = frozenset({"table", "polar", "angles", "growth", "pairs"})


class EncodingByRule:
    """The counterpart of `ModelEncoding` for a model with a rule. Slots and parameters have the same names in both.

    Raises
    ------
    ValueError
        If the encoding has nothing that the rule can select, or a slot that the rule does not support.
    """

    def __init__(self, config: ModelConfig) -> None:
        assert config.rule is not None
        self.config, self._rule = config, config.rule
        spec, parts = config.spec(config.train_length), registry.parse_all(config.encoding, config.options)
        filled = {part.scheme: set(combined.shapes_of(part, spec)) for part in parts}
        steps = self._steps(parts, spec)
        self._check({scheme: slots for scheme, slots in filled.items() if scheme not in steps}, bool(steps))
        tables = {scheme for scheme, slots in filled.items() if "table" in slots}
        rows = self._rule.rows or config.made_for
        self._table = ModelEncoding(_only(config, tables, rows, None)) if tables else None
        rest = filled.keys() - tables - steps.keys()
        self._rest = ModelEncoding(_only(config, rest, config.train_length, config.encoding_length))
        both = [each for each in (self._table, self._rest) if each is not None]
        self.initial = {name: value for each in both for name, value in each.initial.items()}
        self.gates = self._gates(steps)
        self.layered = frozenset().union(*(each.layered for each in both))
        self.learned = frozenset().union(*(each.learned for each in both))
        self.table_factor = 1.0 if self._table is None else self._table.table_factor
        self._last: tuple[Any, Any, dict[str, Any]] = (None, None, {})

    def _check(self, filled: Mapping[str, set[str]], stepped: bool) -> None:
        config, all_slots = self.config, frozenset().union(*filled.values())
        cannot = f"positions cannot be {config.positions!r}"
        if combined.axes(registry.parse_all(config.encoding, config.options), given=True) > 1:
            raise ValueError(f"{cannot}: {config.encoding!r} needs several coordinates")
        for scheme, slots in filled.items():
            if "table" in slots and (others := slots - {"table"}):
                raise ValueError(f"{cannot}: {scheme!r} fills {min(others)!r} in addition to its table")
        if isinstance(self._rule, Documents) and (unfit := all_slots & _PLACED):
            raise ValueError(
                f"{cannot}: {config.encoding!r} fills {min(unfit)!r}, which cannot restart in each document"
            )
        if isinstance(self._rule, Segments) and (unfit := all_slots - _OF_SEGMENTS):
            raise ValueError(f"{cannot}: {config.encoding!r} fills {min(unfit)!r}, not a table or rotations")
        chosen = {"table", "angles"} if self._rule.turns else {"table"}
        if not isinstance(self._rule, Documents) and not stepped and not all_slots & chosen:
            raise ValueError(f"{cannot}: the rule chooses rows of a table, and {config.encoding!r} has none")

    def _steps(self, parts: Sequence[Part], spec: Spec) -> dict[str, tuple[float, ...]]:
        """Return the slopes of each term of the encoding whose bias a causal model computes from the numbers of
        segments.
        """
        if not (isinstance(self._rule, Segments) and self.config.causal):
            return {}
        found = {part.scheme: part.encoding.column(spec, **part.options) for part in parts}
        return {scheme: slopes for scheme, slopes in found.items() if slopes is not None}

    def _gates(self, steps: Mapping[str, tuple[float, ...]]) -> tuple[LayerGate | None, ...]:
        """Return the gates of the layers. If `steps` has slopes, these are gates that apply the slopes.

        Raises
        ------
        ValueError
            If the encoding has a gate in addition to these slopes, or two terms with slopes.
        """
        config = self.config
        if not steps:
            return self._rest.gates
        (scheme, slopes), *others = steps.items()
        for name in ("score_softcap", "sinks"):
            if name in config.optional_parts:
                raise ValueError(f"{name} cannot be combined with positions={config.positions!r} and {scheme!r}")
        if others or any(self._rest.gates):
            more = repr(others[0][0]) if others else "a gate"
            raise ValueError(
                f"positions cannot be {config.positions!r}: {config.encoding!r} combines {scheme!r} with {more}"
            )
        pattern = registry.parse_layers(config.encoding, config.options)
        gate = LayerGate(int(STEPS), slopes, {})
        has = [any(part.scheme == scheme for part in own) for own in pattern]
        return tuple(gate if has[layer % len(has)] else None for layer in range(config.layers))

    def _rows(self, length: int) -> int:
        return self._rule.rows or length

    # ----------------------------------------------------------------------------------------------------------- slots

    def slots(
        self, length: int, parameters: Mapping[str, Array], draw: int = 0, *, training: bool = False
    ) -> dict[str, Any]:
        """Like `ModelEncoding.slots`, but `table` has all rows that the rule may select."""
        rest = self._rest.slots(length, parameters)
        table = {} if self._table is None else self._table.slots(self._rows(length), parameters)
        if not (self._last[0] is table and self._last[1] is rest and table):
            self._last = (table, rest, {**rest, **table})
        return self._last[2] if table else rest

    def pull(
        self, length: int, parameters: Mapping[str, Array], dslots: Mapping[str, Array], gradients: Mapping[str, Array]
    ) -> None:
        """Like `ModelEncoding.pull`."""
        if self._table is not None and "table" in dslots:
            self._table.pull(self._rows(length), parameters, {"table": dslots["table"]}, gradients)
        self._rest.pull(length, parameters, {slot: x for slot, x in dslots.items() if slot != "table"}, gradients)

    def placed(
        self, x: Array, lengths: Array, *, step: int | None = None, state: Array | None = None, before: int = 0,
        length: int | None = None,
    ) -> Placed:  # fmt: skip
        """Return the rows of the table and of the rotations that each token uses.

        Parameters
        ----------
        x : (B, N) array
            Tokens.
        lengths : (B or 1,) integers
        step : int, optional
            Number of a training step, whose positions are random for some rules.
        state : optional
            State of the rule after the `before` tokens that precede x.
        length : int, optional
            Number of positions of the whole sequence; by default N.

        Raises
        ------
        ValueError
            If a row is beyond the table (`fastpe.BeyondTrainingLength`), or depends on tokens that do not exist yet.
        """
        tokens, length = x.astype(np.int64), x.shape[1] if length is None else length
        within = np.arange(x.shape[1]) < lengths[:, None]
        found = token_positions.follow(self._rule, tokens, state)
        if step is None:
            places = token_positions.begun(self._rule, found)
        else:
            stream = Stream(self.config.seed, "places", step)
            places = token_positions.drawn(self._rule, found, within, stream)
        rows = token_positions.checked(self._rule, places, within, self._rows(length))
        return Placed(rows, self._spans(rows[1], lengths, length, before), found.state)

    def _spans(self, places: Array, lengths: Array, length: int, before: int) -> Array | None:
        if not self._rule.keeps_apart:
            return None
        config = self.config
        seen = sight.spans(config.sight, config.layers, length, causal=config.causal)
        return token_positions.spans(places, lengths, length, seen, causal=config.causal, before=before)

    # ------------------------------------------------------------------------------------------------------- reference

    def reference_loss_and_grads(
        self, parameters: Mapping[str, Array], x: Array, y: Array, weights: Array | None = None, factors: Any = None,
        step: int = 0,
    ) -> tuple[float, dict[str, Array]]:  # fmt: skip
        """Like `ModelEncoding.reference_loss_and_grads`, with the positions of a training step."""
        length = x.shape[1]
        rows, spans, _ = self.placed(x, np.full(1, length), step=step)
        layers = [dict(own) for own in self._rest.reference_slots(length, parameters)]
        table = {} if self._table is None else self._table.reference_slots(self._rows(length), parameters)[0]
        for layer, own in enumerate(layers):
            if "table" in table:
                own["table"] = table["table"][rows[0]]
            if "angles" in own and self._rule.turns:
                own["angles"] = np.moveaxis(own["angles"][:, rows[1]], 1, 0)
            if (gate := self.gates[layer]) is not None and gate.sign == STEPS:
                own["key_offset"] = np.array(gate.slopes)[:, None] * rows[1][:, None, :]
            if spans is not None:
                own |= {"spans": spans[min(layer, len(spans) - 1)], "places": rows[1]}
        of_layers: Any
        given = self.config, parameters, layers, x, y, weights, factors
        loss, gradients, of_layers = reference.model_loss_and_grads(*given)
        own_gradients = {name: gradients.get(name, np.zeros_like(parameters[name])) for name in self.initial}
        self._pull_reference(length, parameters, of_layers, rows, own_gradients)
        return float(loss), gradients | own_gradients

    def _pull_reference(
        self, length: int, parameters: Mapping[str, Array], of_layers: Sequence[dict[str, Array]], rows: Array,
        gradients: Mapping[str, Array],
    ) -> None:  # fmt: skip
        if self._table is not None and "table" in self._table.learned:
            dtable = np.zeros((self._rows(length), self.config.width))
            np.add.at(dtable, rows[0], of_layers[0]["table"])
            self._table.pull(self._rows(length), parameters, {"table": dtable}, gradients)
        if self._rule.turns:
            for own in of_layers:
                if "angles" in own:
                    given = np.moveaxis(np.asarray(own["angles"]), 1, 0)
                    own["angles"] = np.zeros((len(given), length, given.shape[-1]))
                    for head, gradient in zip(own["angles"], given, strict=True):
                        np.add.at(head, rows[1], gradient)
        self._rest.pull(length, parameters, self._rest.joined(of_layers), gradients)


def encoding_of(config: ModelConfig) -> ModelEncoding | EncodingByRule:
    """Return the encoding of a model with these settings."""
    return ModelEncoding(config) if config.rule is None else EncodingByRule(config)


def _only(config: ModelConfig, kept: Collection[str], train_length: int, encoding_length: int | None) -> ModelConfig:
    """Return the settings with only the terms `kept` of the encoding, and with the usual positions."""
    items = [
        "+".join(term for term in (each.strip() for each in item.split("+")) if term in kept) or "nope"
        for item in expanded("encoding", config.encoding)
    ]
    options = {
        name: value for name, value in config.options.items() if "." not in name or name.partition(".")[0] in kept
    }
    options = options if kept else {}
    kept_alone = replace(config, encoding=shortest(items), options=options, positions="usual")
    return replace(kept_alone, train_length=train_length, encoding_length=encoding_length)
