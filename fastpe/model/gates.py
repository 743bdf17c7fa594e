"""Gates of a model's layers: which encoding has one, and where its parameters are."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from fastpe.encodings.encoding import Part


class LayerGate(NamedTuple):
    """The gate of one layer, and the model's names of its parameters by their roles."""

    sign: int
    names: Mapping[str, str]


def of_layer(
    parts: Sequence[Part], learned: Mapping[str, Collection[str]], encoding: str, named: Callable[[str, str], str]
) -> LayerGate | None:
    """The gate of a layer with these parts.

    learned: of each part the parameters that a layer has for itself. named: the model's name of one.

    Raises
    ------
    ValueError
        If two of the parts have one.
    """
    gated = [part for part in parts if part.encoding.gate is not None]
    if len(gated) > 1:
        names = " and ".join(repr(part.scheme) for part in gated)
        raise ValueError(f"{encoding!r} has two gates in one layer, {names}: choose one")
    for part in gated:
        assert part.encoding.gate is not None
        return LayerGate(
            part.encoding.gate.sign, {role: named(part.scheme, role) for role in sorted(learned[part.scheme])}
        )
    return None
