"""Sinks: scores of no key, which take weight from all others."""

from typing import Any

import numpy as np

from fastpe.functional.layouts import contiguous
from fastpe.kernels.attention import sinks as draining

Array = np.ndarray[Any, Any]


def apply_sinks(out: Array, lse: Array, sinks: Array) -> None:
    """What sinks take: all weights shrink alike, and lse is that of one more key."""
    draining.apply_sinks(out, lse, contiguous(sinks, sinks.dtype).reshape(-1))


def sinks_gradient(sinks: Array, lse: Array, deltas: Array) -> Array:
    """A sink has no value: its score's gradient is that of a key with dP = 0."""
    weights = np.exp(sinks[..., None].astype(np.float64) - lse)
    return np.asarray(-(weights * deltas).sum(axis=(0, 2))[None])
