"""Checks of every field of the `ENCODING` of a registered encoding, before the encoding is used."""

from __future__ import annotations

import keyword
import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from fastpe.base.option import Option
from fastpe.base.validation import nearest
from fastpe.encodings import encoding
from fastpe.encodings.encoding import Encoding, Needs, Reported
from fastpe.encodings.slots import SLOTS

_WORDS = {"beyond": encoding.BEYOND, "direction": encoding.DIRECTIONS}
_KINDS = (bool, int, float, str, tuple)
_LONGEST = 100  # the largest number of characters of a summary
TAKEN = frozenset(
    {
        "name", "length", "dim", "heads", "train_length", "causal", "positions", "start", "dtype", "params", "seed",
        "reference", "out", "options", "spec", "rng", "dslots", "dparams",
    }
)  # fmt: skip
"""Names that options may not have: the parameters of `fastpe.build` and of the functions of an encoding."""
ALONE = "'index' selects entries of 'values', so an encoding must fill both or neither"


def fault(own: Encoding, module: ModuleType) -> str:
    """Return an error message that says what is wrong with an encoding or missing, or "" if it is complete."""
    return _slots(own) or _words(own) or _options(own) or _functions(own, module) or _needs(own) or _missing(own)


def _slots(own: Encoding) -> str:
    if not isinstance(own.slots, tuple) or not own.slots:
        return f"slots must be a tuple of names, as in slots=('bias',), not {own.slots!r}"
    for slot in own.slots:
        if not isinstance(slot, str) or slot not in SLOTS:
            return f"slot {slot!r} is unknown; {nearest(str(slot), SLOTS)}"
    if len(set(own.slots)) < len(own.slots):
        return f"slots must name every slot only once, not {own.slots!r}"
    if ("index" in own.slots) != ("values" in own.slots):
        return f"slots must not be {own.slots!r}: {ALONE}"
    return ""


def _words(own: Encoding) -> str:
    for name, known in _WORDS.items():
        if getattr(own, name) not in known:
            return f"{name} must be one of {', '.join(known)}, not {getattr(own, name)!r}"
    if own.use not in ("", *encoding.USES):
        return f"use must be one of {', '.join(encoding.USES)}, or be left out, not {own.use!r}"
    for name in ("summary", "source", "formula", "use_when"):
        if not isinstance(getattr(own, name), str):
            return f"{name} must be a str, not {getattr(own, name)!r}"
    if len(own.summary) > _LONGEST or len(own.summary.splitlines()) > 1:
        return f"summary must be one line of at most {_LONGEST} characters, not {own.summary!r}"
    if len(own.use_when) > encoding.USE_WHEN or len(own.use_when.splitlines()) > 1:
        return f"use_when must be one line of at most {encoding.USE_WHEN} characters, not {own.use_when!r}"
    if not isinstance(own.also_called, tuple) or not all(isinstance(name, str) for name in own.also_called):
        return f"also_called must be a tuple of names, as in also_called=('RoFormer',), not {own.also_called!r}"
    confused = own.not_to_be_confused
    if not isinstance(confused, Mapping) or not all(isinstance(text, str) for text in (*confused, *confused.values())):
        return f"not_to_be_confused must be a dict of names to the difference, not {confused!r}"
    if own.reported is not None:
        if not isinstance(own.reported, Reported) or not all(isinstance(text, str) for text in own.reported):
            return f"reported must be None or a fastpe.Reported of three texts, not {own.reported!r}"
        if own.reported.outcome not in encoding.OUTCOMES:
            return f"reported.outcome must be one of {', '.join(encoding.OUTCOMES)}, not {own.reported.outcome!r}"
    if not callable(own.ulp) and not _positive(own.ulp):
        return f"ulp must be a finite number > 0, or a function (spec, **options) that returns one, not {own.ulp!r}"
    if not isinstance(own.per_layer, tuple) or not all(isinstance(name, str) for name in own.per_layer):
        return f"per_layer must be a tuple of names, as in per_layer=('slope',), not {own.per_layer!r}"
    return ""


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _options(own: Encoding) -> str:
    given = own.options
    if not isinstance(given, Mapping) or not all(isinstance(option, Option) for option in given.values()):
        return f"options must be a dict of names to fastpe.Option, not {given!r}"
    for name, option in given.items():
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            return f"options: {name!r} is not a valid Python name"
        if name in TAKEN:
            return f"options: {name!r} is an argument of fastpe.build or of a function of the file: rename the option"
        if wrong := _option(option):
            return f"option {name!r}: {wrong}"
        try:
            option.validate(name, option.default)
        except (TypeError, ValueError) as error:
            return f"the default of {error}"
    for field in ("paper", "tested"):
        values = getattr(own, field)
        if not isinstance(values, Mapping):
            return f"{field} must be a dict of options to values, not {values!r}"
        for name, value in values.items():
            if name not in given:
                return f"{field} names {name!r}, which is not an option; {nearest(str(name), given)}"
            try:
                given[name].validate(name, value)
            except (TypeError, ValueError) as error:
                return f"{field}: {error}"
    return ""


def _option(option: Option) -> str:
    """Return what is wrong with an option, for any default value."""
    if option.kind not in _KINDS:
        return f"kind must be one of {', '.join(kind.__name__ for kind in _KINDS)}, not {option.kind!r}"
    if option.item not in (int, float):
        return f"item must be int or float, not {option.item!r}"
    if not isinstance(option.doc, str):
        return f"doc must be a str, not {option.doc!r}"
    if not isinstance(option.choices, tuple) or not all(isinstance(word, str) for word in option.choices):
        return f"choices must be a tuple of words, not {option.choices!r}"
    for name in ("minimum", "above", "maximum"):
        if not isinstance(getattr(option, name), int | float):
            return f"{name} must be a number, not {getattr(option, name)!r}"
    return ""


def _functions(own: Encoding, module: ModuleType) -> str:
    for name in encoding.FUNCTIONS:
        taken, there = getattr(own, name), vars(module).get(name)
        if taken is not None and not callable(taken):
            return f"{name} must be a function, not {taken!r}"
        if taken is there or taken not in (None, getattr(Encoding, name, None)):  # from the file or set in ENCODING
            continue
        if there is not None and not callable(there):
            return f"{name} must be a function, not {there!r}"
        if there is not None:
            home = getattr(there, "__module__", None) or type(there).__module__
            return f"{name} is imported from {home}: set it in ENCODING, as in fastpe.Encoding(..., {name}={name})"
    return ""


def _needs(own: Encoding) -> str:
    """Return what is wrong with `needs`; the options and functions that it refers to must be checked before."""
    needs = own.needs
    if needs is None:
        return ""
    if not isinstance(needs, Needs) or not all(isinstance(text, str) for text in needs):
        return f"needs must be None or a fastpe.Needs of two texts, not {needs!r}"
    if needs.what not in encoding.NEEDED:
        return f"needs.what must be one of {', '.join(encoding.NEEDED)}, not {needs.what!r}"
    if needs.what == "digits" and not needs.default.startswith("digits:"):
        return f"needs.default must be a value of the setting positions, as in 'digits:99', not {needs.default!r}"
    if needs.what == "graph" and "edges" not in own.options:
        return "needs.what is 'graph': define the option 'edges', which sets the graph"
    if needs.what == "coordinates" and own.axes is Encoding.axes:
        return "needs.what is 'coordinates': define axes(**options) -> number of coordinates"
    return ""


def _missing(own: Encoding) -> str:
    if own.reference is None:
        return "the formula is missing: define reference(spec, params, **options) -> {slot: array}"
    drawn, stated = own.init is not Encoding.init, own.parameters is not Encoding.parameters
    if drawn != stated:
        missing = "init(spec, rng, **options) -> {parameter: array}" if stated else (
            "parameters(spec, **options) -> {parameter: shape}"
        )  # fmt: skip
        return f"learned parameters need shapes and initial values: define {missing} too"
    shapeless = [slot for slot in own.slots if SLOTS[slot].dtype and SLOTS[slot].shape is None]
    if shapeless and own.shapes is None:
        slot = shapeless[0]
        return f"slot {slot!r} {SLOTS[slot].axes} has no usual shape: define shapes(spec, **options) -> {{slot: shape}}"
    if any(not SLOTS[slot].dtype for slot in own.slots) and own.plain is Encoding.plain:
        return "a slot is not an array: define plain(spec, **options) -> {slot: value}, which gives its value"
    return ""
