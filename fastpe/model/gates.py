"""The gates of a model's layers, which compute offsets, slopes, angles or reflections from the input of the layer.

This module finds the encodings that have a gate, and the places of the gate's parameters.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastpe.encodings.encoding import Part
from fastpe.model.config import ModelConfig

Array = np.ndarray[Any, Any]
Place = tuple[int, tuple[int, ...], tuple[int, ...]]


class LayerGate(NamedTuple):
    """The gates of one layer, and the model's names of their parameters by role; see `Gate` of `fastpe.encodings`.

    A layer has at most one gate of each kind: for scores, for angles and for reflections.
    """

    sign: int  # of the offsets; 0: no gate for scores; `kernels.model.gates.STEPS`: offsets that depend only on tokens
    slopes: tuple[float, ...]  # by head; () for a gate of offsets that depend on the content
    names: Mapping[str, str]
    frequencies: tuple[float, ...] = ()  # by pair of channels; () if the layer computes no angles
    reflected: Mapping[str, str] | None = None  # parameters by role for reflections; None without reflections


def of_layers(
    parts: Sequence[Sequence[Part]], config: ModelConfig, learned: Mapping[str, Collection[str]],
    named: Callable[[str, str, int], str], shapes: Sequence[Mapping[str, tuple[int, ...]]],
) -> tuple[LayerGate | None, ...]:  # fmt: skip
    """Return the gates of each layer, given its parts.

    learned: for each part, the parameters that differ between layers. named: returns the model's name of a parameter.
    shapes: the shapes of the slots, for each set of encodings that layers have.

    Raises
    ------
    ValueError
        If a layer has two gates of one kind, or if slots conflict with the angles of a gate.
    """
    found = tuple(_gate(layer, own, config, learned, named) for layer, own in enumerate(parts))
    _check_angles(config.encoding, found, shapes)
    return found


def _gate(
    layer: int, parts: Sequence[Part], config: ModelConfig, learned: Mapping[str, Collection[str]],
    named: Callable[[str, str, int], str],
) -> LayerGate | None:  # fmt: skip
    gated = [(part, part.encoding.gate) for part in parts if part.encoding.gate is not None]
    found, names = LayerGate(0, (), {}), dict[str, str]()
    for kind in ("adds", "turns", "reflects"):
        alike = [(part, gate) for part, gate in gated if gate.kind == kind]
        if len(alike) > 1:
            both = " and ".join(repr(part.scheme) for part, _ in alike)
            raise ValueError(f"{config.encoding!r} has two gates in one layer, {both}: choose one")
        for part, gate in alike:
            own = {role: named(part.scheme, role, layer) for role in sorted(learned[part.scheme])}
            if gate.reflects:
                found = found._replace(reflected=own)
                continue
            names |= own
            if gate.frequencies is not None:
                made = gate.frequencies(config.head_width, **part.options)
                found = found._replace(frequencies=tuple(map(float, made)))
            else:
                slopes = () if gate.slopes is None else tuple(map(float, gate.slopes(config.heads)))
                found = found._replace(sign=gate.sign, slopes=slopes)
    return found._replace(names=names) if gated else None


def _check_angles(
    name: str, gates: Sequence[LayerGate | None], shapes: Sequence[Mapping[str, tuple[int, ...]]]
) -> None:  # fmt: skip
    """Raise ValueError if layers compute angles with different frequencies, or if a slot conflicts with the angles."""
    made = {gate.frequencies for gate in gates if gate is not None and gate.frequencies}
    if not made:
        return
    if len(made) > 1:
        raise ValueError(f"the layers of {name!r} compute angles with different frequencies: they must be the same")
    (pairs,) = map(len, made)
    for own in shapes:
        if "polar" in own:
            raise ValueError(
                f"{name!r} fills 'polar', which cannot be combined with angles that layers compute from their input"
            )
        if own.get("angles", (pairs,))[-1] != pairs:
            raise ValueError(
                f"{name!r} rotates {own['angles'][-1]} pairs of channels by position: it must rotate "
                f"all {pairs}, because layers compute angles for all pairs from their input"
            )


class Made(NamedTuple):
    """The gates of all layers, as kernels take them."""

    gates: Array | None  # (layers, 7), int64: parameters of gates that add to scores, see `kernels.model.gates`
    slopes: Array  # (H,), float64: fixed factors of the slopes; unused if no layer has any
    selective: Array | None  # (layers, 4), int64: parameters of angles, see `kernels.model.selective_angles`
    frequencies: Array  # (C/2,), float64: frequencies of the pairs of channels; unused if no layer has angles
    reflections: Array | None  # (layers, 6), int64: see `kernels.model.reflections`


def made_by(gates: Sequence[LayerGate | None], places: Mapping[str, Place], heads: int) -> Made:
    """Return the gates of the layers for kernels, given start, shape and strides of every parameter."""
    found = [gate for gate in gates if gate is not None]
    slopes = next((gate.slopes for gate in found if gate.slopes), (0.0,) * heads)
    frequencies = next((gate.frequencies for gate in found if gate.frequencies), ())
    adds = any(gate.sign or gate.slopes for gate in found)
    return Made(
        np.array([_adding(gate, places) for gate in gates], np.int64) if adds else None, np.array(slopes),
        np.array([_turning(gate, places) for gate in gates], np.int64) if frequencies else None,
        np.tile(frequencies or (0.0,), heads),
        np.array([_reflecting(gate, places) for gate in gates], np.int64) if any(g.reflected for g in found) else None,
    )  # fmt: skip


def _adding(gate: LayerGate | None, places: Mapping[str, Place]) -> tuple[int, ...]:
    if gate is None or not (gate.sign or gate.slopes):
        return -1, -1, -1, 0, -1, -1, -1
    starts = {role: places[name][0] for role, name in gate.names.items()}
    if not gate.sign:
        return -1, -1, -1, 0, starts["weight"], starts.get("key", -1), starts.get("query", -1)
    return starts.get("weight", -1), starts.get("bias", -1), starts.get("rate", -1), gate.sign, -1, -1, -1


def _turning(gate: LayerGate | None, places: Mapping[str, Place]) -> tuple[int, ...]:
    if gate is None or not gate.frequencies:
        return -1, -1, -1, 0
    down, up, taps = (places[gate.names[role]] for role in ("down", "up", "taps"))
    return down[0], up[0], taps[0], up[1][0]


def _reflecting(gate: LayerGate | None, places: Mapping[str, Place]) -> tuple[int, ...]:
    if gate is None or gate.reflected is None:
        return -1, -1, -1, -1, -1, 0
    own = gate.reflected
    down, up, taps, weight, bias = (places[own[role]] for role in ("down", "up", "taps", "weight", "bias"))
    return down[0], up[0], taps[0], weight[0], bias[0], up[1][0]
