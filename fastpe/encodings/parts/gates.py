"""Shapes and initial values of the parameters of gates of a layer's input (see `fastpe.reference.gate`)."""

from typing import Any

from fastpe.base.random import Stream
from fastpe.encodings.slots import Spec


def needs_causal(scheme: str, spec: Spec) -> None:
    """Raise ValueError unless the model is causal."""
    if not spec.causal:
        raise ValueError(f"{scheme!r} needs causal=True: forget gates would raise the scores of keys after the query")


def gate_parameters(spec: Spec, *, weight: bool) -> dict[str, tuple[int, ...]]:
    """A linear map from the model's width to one number per head; without `weight`, only the bias of this map."""
    return ({"weight": (spec.heads, spec.dim)} if weight else {}) | {"bias": (spec.heads,)}


def gate_values(spec: Spec, rng: Stream, start: float, *, weight: bool) -> dict[str, Any]:
    """Weights uniform in +-1/sqrt(C), and the bias `start`."""
    import numpy as np

    values = {"bias": np.full(spec.heads, float(start))}
    if weight:
        bound = spec.dim**-0.5
        values["weight"] = bound * (2 * rng.uniform((spec.heads, spec.dim)) - 1)
    return values
