"""The slots of a model that attention reads, and how attention reads them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.functional.slots import NETWORK
from fastpe.kernels.attention.inputs import Options
from fastpe.kernels.attention.score import keeps_raw, terms_given
from fastpe.kernels.attention.slots import SLOTS

Array = np.ndarray[Any, Any]

INPUTS = ("table", "qk_table", "taps")
OF_CONTENT = ("angles", "row_scale", "rotors", "polar")  # act on queries and keys before attention
READ_BY_TILES = tuple(name for name, slot in SLOTS.items() if slot.layout)
LAYERED = frozenset(READ_BY_TILES) | {*OF_CONTENT, *NETWORK}
"""Slots that act in every layer, and may differ between layers."""


def with_layers(slots: Mapping[str, Any], layered: frozenset[str]) -> dict[str, Any]:
    """Return the slots. Those that act in every layer get a leading axis of layers if they do not have it yet."""
    return {slot: x[None] if slot in LAYERED and slot not in layered else x for slot, x in slots.items()}


def scored(slots: Mapping[str, Any]) -> dict[str, Array]:
    """Return the arrays that attention reads, with a leading axis of layers."""
    return {slot: slots[slot] for slot in READ_BY_TILES if slot in slots}


def options_of(slots: Mapping[str, Any]) -> Options:
    """Return the options of attention that are not arrays."""
    return Options(rectify=int(slots.get("rectify", False)), softcap=float(slots.get("softcap", 0.0)))


def needs_raw(slots: Mapping[str, Any]) -> bool:
    """Whether the backward pass needs the products of queries and keys before terms are applied to them."""
    return keeps_raw(terms_given(scored(slots), options_of(slots)), wants_scale=False)


def has_terms(slots: Mapping[str, Any]) -> bool:
    """Whether attention needs passes over scores even if it reads no array other than a bias."""
    return needs_raw(slots) or options_of(slots).softcap > 0.0
