"""Gates of a layer: offsets of keys that its input makes, as the forget gate of Lin et al. (2025) does, or slopes."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastpe.columns import gated_slopes_vjp

Array = np.ndarray[Any, Any]


def gate(x: Any, sign: float, bias: Any, weight: Any = None, rate: Any = None) -> Array:
    """What positions have lost to every later one, by head.

        z = x W^T + b,    K_h,j = e^rate_h sum over t <= j of softplus(sign z_h,t)

    As `key_offset` of a causal attention it takes the sum of softplus over j < t <= i from the score of i and j.

    Parameters
    ----------
    x : (..., N, C)
    sign : float
        -1: softplus(-z) = -log sigmoid(z), the forget gate. 1: softplus(z).
    bias : (H,)
    weight : (H, C), optional
        By default z is the bias alone.
    rate : (H,), optional
        By default 0.

    Returns
    -------
    (..., H, N)

    Examples
    --------
    >>> gate(np.zeros((3, 1)), -1.0, np.zeros(1)).round(6).tolist()
    [[0.693147, 1.386294, 2.079442]]
    """
    return gate_vjp(x, sign, bias, weight, rate)[0]


def gate_vjp(
    x: Any, sign: float, bias: Any, weight: Any = None, rate: Any = None
) -> tuple[Array, Callable[[Array], dict[str, Array]]]:
    """As `gate`, and its pullback: the gradients of ``x``, ``bias``, and of ``weight`` and ``rate`` where given."""
    # nothing of a gate is rounded, whatever type its arrays have
    x, bias = np.asarray(x).view(np.ndarray), np.asarray(bias).view(np.ndarray)
    z = np.broadcast_to(bias, (*x.shape[:-1], len(bias)))
    if weight is not None:
        weight = np.asarray(weight).view(np.ndarray)
        z = np.einsum("...nc,hc->...nh", x, weight) + bias
    factor = np.exp(np.asarray(0.0 if rate is None else rate).view(np.ndarray))
    lost = factor * np.cumsum(np.logaddexp(0, sign * z), axis=-2)

    def pullback(dlost: Array) -> dict[str, Array]:
        d = np.swapaxes(np.asarray(dlost), -1, -2)
        later = np.flip(np.cumsum(np.flip(d, -2), axis=-2), -2)
        dz = later * factor * sign / (1 + np.exp(-sign * z))
        before = tuple(range(dz.ndim - 1))
        found = {"x": np.zeros_like(x), "bias": dz.sum(axis=before)}
        if weight is not None:
            found["x"] = np.einsum("...nh,hc->...nc", dz, weight)
            found["weight"] = np.tensordot(dz, x, (before, before))
        if rate is not None:
            found["rate"] = (d * lost).sum(axis=before)
        return found

    return np.swapaxes(lost, -1, -2), pullback


def columns_vjp(
    gated: Any, parameters: Mapping[str, Array], x: Array, q: Array, k: Array
) -> tuple[dict[str, Array], Callable[[dict[str, Array], dict[str, Array]], dict[str, Array]]]:
    """The columns that a layer's gate makes of its input, and of queries and keys (B, H, N, D); {} without one.

    The pullback takes its own gradients out of those of all slots, files those of parameters, and returns those of
    ``x``, ``q`` and ``k`` that it knows.
    """
    if gated is None:
        return {}, lambda found, gradients: {}
    own = {role: parameters[name] for role, name in gated.names.items()}
    columns, pulls = {}, dict[str, tuple[str, Callable[[Array], dict[str, Array]]]]()
    if gated.slopes:
        for role, name, rows in (("key", "k", k), ("query", "q", q)):
            if role in own:
                direction, weight = (np.asarray(own[each]).view(np.ndarray) for each in (role, "weight"))
                columns[f"{role}_slope"], pull = gated_slopes_vjp(
                    np.asarray(rows).view(np.ndarray), direction, slopes=gated.slopes, weight=weight
                )
                pulls[f"{role}_slope"] = (name, _renamed(pull, {"x": name, "direction": role}))
    else:
        columns["key_offset"], pull = gate_vjp(x, gated.sign, **own)
        pulls["key_offset"] = ("x", pull)

    def pullback(found: dict[str, Array], gradients: dict[str, Array]) -> dict[str, Array]:
        of_rows = {}
        for slot, (name, pull) in pulls.items():
            back = pull(np.asarray(found.pop(slot)).view(np.ndarray))
            of_rows[name] = back.pop(name)
            for role, gradient in back.items():
                gradients[gated.names[role]] = gradients.get(gated.names[role], 0) + gradient
        return of_rows

    return columns, pullback


def _renamed(
    pull: Callable[[Array], dict[str, Array]], names: Mapping[str, str]
) -> Callable[[Array], dict[str, Array]]:
    return lambda d: {names.get(name, name): gradient for name, gradient in pull(d).items()}
