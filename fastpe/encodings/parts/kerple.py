"""Code shared by KERPLE's two kernels, which are functions of the distance. Each head learns the numbers in them, which
are clamped to at least 0.01."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fastpe.encodings.parts.offset_biases import blocks
from fastpe.encodings.slots import Spec

Array = np.ndarray[Any, Any]

LEAST = 0.01  # the clamp of the authors' code


def clamped(params: Mapping[str, Array], most: Mapping[str, float]) -> dict[str, Array]:
    """The parameters in float64, each clamped between `LEAST` and its largest value."""
    return {name: np.clip(params[name].astype(np.float64), LEAST, most.get(name, np.inf)) for name in params}


def fill(spec: Spec, values: Mapping[str, Array], scores: Array, bias: Callable[..., Array]) -> None:
    """With given positions, write bias(distance, *one head's parameters) to the slot of every head."""
    for offsets, slot in blocks(spec, {"scores": scores}):
        distance = np.abs(offsets)
        for h, own in enumerate(zip(*values.values(), strict=True)):
            slot[h] = bias(distance, *own)


def totals(
    spec: Spec, values: Mapping[str, Array], dscores: Array, derivatives: Callable[..., Sequence[Array]]
) -> Array:
    """With given positions, sum the slot's gradient times derivatives(distance, *one head's parameters); return one row
    per derivative, (derivatives, H)."""
    found = np.zeros((len(values), spec.heads))
    for offsets, dslot in blocks(spec, {"scores": dscores}):
        distance = np.abs(offsets)
        for h, own in enumerate(zip(*values.values(), strict=True)):
            for k, slope in enumerate(derivatives(distance, *own)):
                found[k, h] += (dslot[h] * slope).sum()
    return found


def add(params: Mapping[str, Array], values: Mapping[str, Array], found: Array, dparams: Mapping[str, Array]) -> None:
    """Add the gradients `found` to `dparams`; clamped parameters get 0."""
    for name, total in zip(values, found, strict=True):
        dparams[name] += np.where(values[name] == params[name], total, 0.0)
