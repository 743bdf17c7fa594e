"""Helpers of schemes with content-dependent scores: arguments in float64, and causal attention with given scores."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.reference._operations import softmax_vjp

Array = np.ndarray[Any, Any]
Pullback = Callable[[Array], dict[str, Array]]


def doubles(given: Mapping[str, Any]) -> list[Array]:
    """Return the arguments as float64 arrays, in their order: q, k and v must come first.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers; the message names it.
    ValueError
        If the shapes of q, k and v do not match.
    """
    found = [validation.array(name, value).astype(np.float64) for name, value in given.items()]
    q, k, v = found[:3]
    if q.ndim < 2 or k.shape != q.shape or v.shape[:-1] != q.shape[:-1]:
        raise ValueError(f"q, k and v must have one shape (..., N, D), not {q.shape}, {k.shape} and {v.shape}")
    return found


def scale_of(q: Array, scale: float | None) -> float:
    """Return the scale s, by default 1/sqrt(D)."""
    return float(q.shape[-1] ** -0.5 if scale is None else scale)


def log_sigmoid(logits: Array) -> Array:
    """Return log sigmoid(logits), the logarithms of gates."""
    return np.asarray(-np.logaddexp(0, -logits))


def attended_vjp(scores: Array, v: Array) -> tuple[Array, Callable[[Array], tuple[Array, Array]]]:
    """Return causal attention with these scores (..., N, N), and its pullback, dout -> (dscores, dv)."""
    visible = np.tri(scores.shape[-1], dtype=bool)
    weights, of_weights = softmax_vjp(np.where(visible, scores, -np.inf))
    return weights @ v, lambda dout: (of_weights(dout @ t(v)), t(weights) @ dout)


def t(matrices: Array) -> Array:
    """Transpose matrices (..., N, M)."""
    return np.swapaxes(matrices, -1, -2)
