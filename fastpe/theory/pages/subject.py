"""The subject of a page: an encoding with its sizes, or the encoding of a trained model, and its slots by length."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastpe.base.validation import room, truth, whole
from fastpe.encodings import build, combined, registry
from fastpe.encodings.encoding import BeyondTrainingLength, Part
from fastpe.encodings.slots import Spec, make_spec
from fastpe.model.transformer import Transformer
from fastpe.theory.model_lipschitz import opened, slots_of

Array = np.ndarray[Any, Any]
Slots = Mapping[str, Any]

MOST_LENGTH, MOST_DIM, MOST_HEADS = 2**14, 2**12, 2**8
_MOST_NUMBERS = 2**27  # largest number of entries of the slots of one length, 1 GiB in float64
_KEPT_NUMBERS = 2**24  # largest number of entries of the slots of other lengths that stay in memory
_OF_SCORES = {"score_scale": "scale", "score_softcap": "softcap", "sinks": "sinks"}
"""Settings of a model that change scores or their weights, and the slots in which attention gets them."""
_AS_THEY_BEGIN = "parameters of the encoding: initial values of seed 0"


class Subject:
    """An encoding, the lengths of its page, and its slots at these lengths in float64.

    Attributes
    ----------
    name : str
    dim, heads, train_length : int
    causal : bool
    parts : tuple of Part
    columns : tuple of int
        The lengths in ascending order; the training length is one of them.
    model : Transformer or None
    remarks : list of str
        Sentences that are printed below the page. The method `slots` adds sentences.
    """

    def __init__(
        self, name: str, lengths: Iterable[int] | None, train_length: int, dim: int, heads: int, causal: bool,
        options: Mapping[str, Any], model: Transformer | None = None,
    ) -> None:  # fmt: skip
        self.name, self.options, self.model = name, dict(options), model
        self.dim = _within("dim", dim, MOST_DIM)
        self.heads = _within("heads", heads, MOST_HEADS)
        self.train_length = _within("train_length", train_length, MOST_LENGTH)
        self.remarks: list[str] = []
        self.parts: tuple[Part, ...] = registry.parse_layers(name, options)[0]
        self.causal = truth("causal", causal)
        if not self.causal and self._needs_a_mask():
            self.causal = True
            self.remarks.append(f"{name} is made for causal models only, so the page is that of a causal model")
        self.columns = self._columns(lengths)
        self._slots: dict[int, Slots | None] = {}
        if model is None and combined.parameter_shapes(self.parts, self.spec(self.train_length)):
            self.remarks.append(_AS_THEY_BEGIN)

    def spec(self, length: int) -> Spec:
        """Return the spec, that is, the sizes, at one length."""
        return make_spec(length, **self._sizes(), axes=combined.axes(self.parts, given=False))

    def _sizes(self) -> dict[str, Any]:
        return {
            "dim": self.dim, "heads": self.heads, "train_length": self.train_length, "causal": self.causal,
            "dtype": "float64",
        }  # fmt: skip

    def _needs_a_mask(self) -> bool:
        if all(part.encoding.direction != "causal" for part in self.parts):
            return False
        try:
            combined.check(self.parts, self.spec(self.train_length))
        except ValueError:
            return True
        return False

    def _columns(self, lengths: Iterable[int] | None) -> tuple[int, ...]:
        n = self.train_length
        self._check_memory(n)
        if lengths is not None:
            found = sorted({n, *(_within("length", length, MOST_LENGTH) for length in lengths)})
            for length in found:
                self._check_memory(length)
            return tuple(found)
        found = [n]
        for length in (2 * n, 4 * n):
            try:
                self._check_memory(_within("length", length, MOST_LENGTH))
            except BeyondTrainingLength:
                pass  # there are no slots at this length; the method `slots` adds a remark
            except ValueError as error:
                self.remarks.append(f"length {length} is left out: {error}")
                continue
            found.append(length)
        return tuple(found)

    def _check_memory(self, length: int) -> None:
        try:
            shapes = combined.slot_shapes(self.parts, self.spec(length))
        except BeyondTrainingLength:
            return
        if (numbers := sum(map(math.prod, shapes.values()))) > _MOST_NUMBERS:
            raise ValueError(
                f"length must be smaller for {self.name!r}: at {length} positions, width {self.dim} and {self.heads} "
                f"heads its slots have {numbers:,} entries, above {_MOST_NUMBERS:,}"
            )
        room(f"the page of {self.name!r} at {length} positions", 24 * numbers)

    def slots(self, length: int) -> Slots | None:
        """Return the slots at one length (of a model's first layer), or None if the encoding is undefined there."""
        if length not in self._slots:
            self._forget()
            try:
                self._slots[length] = self._filled(length)
            except BeyondTrainingLength as error:
                self._slots[length] = None
                self.remarks.append(f"not defined at {length} positions: {error}")
        return self._slots[length]

    def _filled(self, length: int) -> Slots:
        if self.model is not None:
            others = {"gate", *(_OF_SCORES[name] for name in _score_settings(self.model))}
            return {slot: each for slot, each in slots_of(self.model, length)[0].items() if slot not in others}
        return build.build(self.name, length, **self._sizes(), **self.options)

    def _forget(self) -> None:
        """Free the slots of all lengths except the training length if they are large."""
        others = [each for each in self._slots if each != self.train_length]
        if sum(_numbers(self._slots[each]) for each in others) > _KEPT_NUMBERS:
            for each in others:
                if self._slots[each] is not None:
                    del self._slots[each]

    def trained(self, slot: str) -> Any:
        """Return a slot at the training length, or None if the encoding does not fill it."""
        return (self.slots(self.train_length) or {}).get(slot)

    def filled(self) -> set[str]:
        """Return the names of the slots that are filled at the training length."""
        return set(self.slots(self.train_length) or {})

    def gated(self) -> bool:
        """Whether attention depends on gates or counts that layers compute from their input, queries or keys."""
        has_gates = self.forgets() or self.turns() or self.reflects()
        return has_gates or not {"counts", "mlp_in"}.isdisjoint(self.filled())

    def forgets(self) -> bool:
        """Whether a gate that depends on the content decides how fast scores fall with distance."""
        return self._has_gate("adds")

    def turns(self) -> bool:
        """Whether a gate that depends on the content decides how far queries and keys are rotated."""
        return self._has_gate("turns")

    def reflects(self) -> bool:
        """Whether a gate that depends on the content decides how queries are reflected."""
        return self._has_gate("reflects")

    def _has_gate(self, kind: str) -> bool:
        return any(part.encoding.gate is not None and part.encoding.gate.kind == kind for part in self.parts)

    def window(self, column: int) -> tuple[int, int]:
        """Return (start, stop): the positions from the previous length up to this one."""
        before = [each for each in self.columns if each < column]
        return (before[-1] if before else 0, column)


def of_encoding(
    name: str, lengths: Any, train_length: int, dim: int, heads: int, causal: bool, options: Mapping[str, Any]
) -> Subject:
    """Return the subject for an encoding with these sizes."""
    schemes = registry.split(registry.resolve(name))
    return Subject("+".join(schemes), _lengths(lengths), train_length, dim, heads, causal, options)


def of_run(run: str | Path | Transformer, lengths: Any) -> Subject:
    """Return the subject for a run folder, a model file or a model."""
    model = opened(run)
    config = model.config
    found = Subject(
        config.encoding, _lengths(lengths), config.made_for, config.heads * config.head_width, config.heads,
        config.causal, config.options, model,
    )  # fmt: skip
    if settings := _score_settings(model):
        found.remarks.append(f"the quantities of scores are those without {' and '.join(settings)}")
    layered = any(name.startswith("layers.0.encoding.") for name in model.parameters)
    if layered or len(registry.layers(config.encoding)) > 1:
        found.remarks.append(f"the slots are those of layer 0; each of the layers 0 .. {config.layers - 1} has its own")
    return found


def _score_settings(model: Transformer) -> list[str]:
    """Return the names of a model's settings that change scores and that quantities of encodings leave out."""
    return [name for name in model.config.optional_parts if name in _OF_SCORES]


def _lengths(given: Any) -> list[int] | None:
    if given is None:
        return None
    found = list(given) if isinstance(given, tuple | list | range | np.ndarray) else [given]
    if not found:
        raise ValueError("length must name at least one length, not none")
    return [whole("length", each, 1) for each in found]


def _within(name: str, value: Any, most: int) -> int:
    if (number := whole(name, value, 1)) > most:
        raise ValueError(f"{name} must be at most {most} on a page, not {number}")
    return number


def _numbers(slots: Slots | None) -> int:
    return sum(np.size(each) for each in (slots or {}).values())
