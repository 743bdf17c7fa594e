"""What KERPLE's two kernels share: learned numbers of each head, held above 0.01, and biases of the distance."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fastpe.encoding import Spec
from fastpe.encodings._biases import blocks

Array = np.ndarray[Any, Any]

LEAST = 0.01  # the authors' clamp


def clamped(params: Mapping[str, Array], most: Mapping[str, float]) -> dict[str, Array]:
    """The parameters in float64, each held between the clamp and its largest value."""
    return {name: np.clip(params[name].astype(np.float64), LEAST, most.get(name, np.inf)) for name in params}


def fill(spec: Spec, values: Mapping[str, Array], out: Mapping[str, Array], bias: Callable[..., Array]) -> None:
    """Write bias(distance, *one head's parameters) into the slot of every head."""
    for offsets, slot in blocks(spec, out):
        distance = np.abs(offsets)
        for h, own in enumerate(zip(*values.values(), strict=True)):
            slot[h] = bias(distance, *own)


def pull(
    spec: Spec,
    params: Mapping[str, Array],
    values: Mapping[str, Array],
    dslots: Mapping[str, Array],
    dparams: Mapping[str, Array],
    derivatives: Callable[..., Sequence[Array]],
) -> None:
    """Add the sums of the slot's gradient times derivatives(distance, *one head's parameters), 0 at a clamp."""
    totals = np.zeros((len(values), spec.heads))
    for offsets, dslot in blocks(spec, dslots):
        distance = np.abs(offsets)
        for h, own in enumerate(zip(*values.values(), strict=True)):
            for k, slope in enumerate(derivatives(distance, *own)):
                totals[k, h] += (dslot[h] * slope).sum()
    for name, total in zip(values, totals, strict=True):
        dparams[name] += np.where(values[name] == params[name], total, 0.0)
