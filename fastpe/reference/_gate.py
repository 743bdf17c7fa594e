"""Slots that the gates of a layer compute from its input: key offsets, as in the forget gate of Lin et al. (2025),
slopes, angles and reflections."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from fastpe.angles import selective_vjp
from fastpe.base.pulled import summed_to
from fastpe.columns import gated_slopes_vjp
from fastpe.reference._reflections import reflections_vjp

Array = np.ndarray[Any, Any]

_OF_OFFSETS, _OF_ANGLES = ("weight", "bias", "rate"), ("down", "up", "taps")
_REFLECTIONS = ("reflectors", "reflect")


def gate(x: Any, sign: float, bias: Any, weight: Any = None, rate: Any = None) -> Array:
    """Return the key offsets of a forget gate, which are running sums for each head::

        z = x W^T + b,    K_h,j = e^rate_h sum over t <= j of softplus(sign z_h,t)

    Pass K as the slot ``key_offset`` of causal attention, which adds K_h,j to the score of query i and key j. The
    softmax does not change if K_h,i is subtracted from all scores of query i. So in effect, the terms of the sum for
    j < t <= i are subtracted from the score.

    Parameters
    ----------
    x : (..., N, C)
        A layer's input.
    sign : float
        -1 for softplus(-z) = -log sigmoid(z), the forget gate; 1 for softplus(z).
    bias : (H,)
        b.
    weight : (H, C), optional
        W. By default z is the bias alone.
    rate : (H,), optional
        The logarithm of the factor of each head, by default 0.

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
    """Return `gate`, and its pullback to the gradients of ``x``, ``bias``, and of ``weight`` and ``rate`` if given."""
    # gates are never rounded, whatever type their arrays have
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


def made_vjp(
    gated: Any, parameters: Mapping[str, Array], x: Array, q: Array, k: Array, angles: Any = None, places: Any = None
) -> tuple[dict[str, Array], Callable[[dict[str, Array], dict[str, Array]], dict[str, Array]]]:
    """Return the slots that a layer's gates compute from its input, queries and keys (B, H, N, D); {} without gates.

    `angles` are the angles of positions, to which the angles of the layer are added. `places` is as for `reflections`.

    The pullback takes two dicts. The first holds the gradients of all slots; the pullback removes the gradients of the
    computed slots. To the second dict, it adds the gradients of parameters. It returns the gradients of ``x``, ``q``
    and ``k``, as far as gates read them.
    """
    if gated is None:
        return {}, lambda found, gradients: {}
    # gates are never rounded, whatever type their arrays have
    own, of_reflections = (
        {role: np.asarray(parameters[name]).view(np.ndarray) for role, name in (names or {}).items()}
        for names in (gated.names, gated.reflected)
    )
    x, q, k = (np.asarray(each).view(np.ndarray) for each in (x, q, k))
    made, pulls = {}, dict[str, tuple[str, Callable[[Array], dict[str, Array]]]]()
    for role, name, rows in (("key", "k", k), ("query", "q", q)) if gated.slopes else ():
        if role in own:
            made[f"{role}_slope"], pull = gated_slopes_vjp(rows, own[role], slopes=gated.slopes, weight=own["weight"])
            pulls[f"{role}_slope"] = (name, _renamed(pull, {"x": name, "direction": role}))
    if gated.sign:
        made["key_offset"], pull = gate_vjp(x, gated.sign, **{role: own[role] for role in own if role in _OF_OFFSETS})
        pulls["key_offset"] = ("x", pull)
    if gated.frequencies:
        turns, pull = _selective_vjp(x, places, gated.frequencies, *(own[role] for role in _OF_ANGLES))
        made["angles"], pulls["angles"] = turns + (0.0 if angles is None else angles), ("x", pull)
    reflected: Any = None
    if gated.reflected:
        both, reflected = reflections_vjp(x, **of_reflections, places=places)
        made |= dict(zip(_REFLECTIONS, both, strict=True))

    def pullback(found: dict[str, Array], gradients: dict[str, Array]) -> dict[str, Array]:
        of_rows = dict[str, Array]()
        if reflected is not None:
            back = reflected(*(np.asarray(found.pop(slot)).view(np.ndarray) for slot in _REFLECTIONS))
            of_rows["x"] = back.pop("x")
            gradients.update({gated.reflected[role]: gradient for role, gradient in back.items()})
        for slot, (name, pull) in pulls.items():
            given = found.pop(slot)
            if slot == "angles" and angles is not None:
                found[slot] = summed_to(given, np.shape(angles))
            back = pull(np.asarray(given).view(np.ndarray))
            of_rows[name] = of_rows.get(name, 0) + back.pop(name)
            for role, gradient in back.items():
                gradients[gated.names[role]] = gradients.get(gated.names[role], 0) + gradient
        return of_rows

    return made, pullback


def _selective_vjp(
    x: Array, places: Array | None, frequencies: Any, *maps: Array
) -> tuple[Array, Callable[[Array], dict[str, Array]]]:
    """Apply `selective_vjp`. If `places`, the positions within documents, are given, apply it to each document
    separately."""
    count, n = x.shape[:2]
    first = np.broadcast_to(np.arange(n) if places is None else places, (count, n)) == 0
    parts = [(b, slice(*ends)) for b in range(count) for ends in pairwise([*np.flatnonzero(first[b]), n])]
    done = [selective_vjp(x[b, own], *maps, frequencies=frequencies) for b, own in parts]
    found = np.empty((count, len(done[0][0]), n, len(frequencies)))
    for (b, own), (angles, _) in zip(parts, done, strict=True):
        found[b, :, own] = angles

    def pullback(dangles: Array) -> dict[str, Array]:
        gradients: dict[str, Array] = {"x": np.zeros(x.shape)}
        for (b, own), (_, pull) in zip(parts, done, strict=True):
            back = pull(dangles[b, :, own])
            gradients["x"][b, own] = back.pop("x")
            gradients |= {role: gradients.get(role, 0) + gradient for role, gradient in back.items()}
        return gradients

    return found, pullback


def _renamed(
    pull: Callable[[Array], dict[str, Array]], names: Mapping[str, str]
) -> Callable[[Array], dict[str, Array]]:
    return lambda d: {names.get(name, name): gradient for name, gradient in pull(d).items()}
