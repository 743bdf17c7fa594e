"""What may be given to one call of attention beside what."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.functional import polar

Array = np.ndarray[Any, Any]

REFLECTIONS = ("reflectors", "reflect")
_BESIDE_REFLECTIONS = {*REFLECTIONS, "sinks", "scale", "pairs", "dropout_seed"}  # of pairs and seeds nothing is read
_MOST_VALUES = 2**31 - 1  # that a kernel's index, int32, can choose from


def check_reflections(given: Mapping[str, Any], causal: bool, window: Any) -> None:
    """Refuse what does not go with reflections between keys and queries; given: all slots and options that are not
    None."""
    if not given.keys() & set(REFLECTIONS):
        return
    if not given.keys() >= set(REFLECTIONS):
        raise ValueError("reflectors and reflect must be given together")
    if not causal:
        raise ValueError("reflectors needs causal=True: nothing is reflected between a query and keys after it")
    asked = {"window": window is not None} | {name: name not in _BESIDE_REFLECTIONS for name in given}
    asked |= {name: bool(given[name]) for name in ("dropout", "rectify") if name in given}
    for name, wanted in asked.items():
        if wanted:
            raise ValueError(f"{name} cannot be given with reflectors: sinks, lengths and scale alone go with them")


def check_together(slots: Mapping[str, Array], causal: bool) -> None:
    """Refuse slots that do not fit one another."""
    polar.check_polar(slots)
    if ("index" in slots) != ("values" in slots):
        raise ValueError("index and values must be given together")
    if "index" in slots:
        count, index = slots["values"].shape[-1], slots["index"]
        if count > _MOST_VALUES:
            raise ValueError(f"values must have at most {_MOST_VALUES} entries for index to choose from, not {count}")
        if index.size and (index.min() < 0 or index.max() >= count):
            raise ValueError(f"index must lie in [0, {count}), but reaches from {index.min()} to {index.max()}")
    for name, fault in (("growth", "it grows without bound for"), ("counts", "nobody counts")):
        if name in slots and not causal:
            raise ValueError(f"{name} needs causal=True: {fault} keys after the query")
    counts = [slots[name].shape[-1] for name in ("angles", "growth") if name in slots]
    if len(set(counts)) > 1:
        raise ValueError(f"growth must have as many pairs as angles, {counts[0]}, not {counts[1]}")
