"""Gates of a model's layers, of offsets or of slopes: which encoding has one, and where its parameters are."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from fastpe.encodings.encoding import Part
from fastpe.model.config import ModelConfig


class LayerGate(NamedTuple):
    """The gate of one layer, and the model's names of its parameters by their roles; see `fastpe.encodings`' `Gate`."""

    sign: int  # or `kernels.model_gates.STEPS`
    slopes: tuple[float, ...]  # of heads; () of a gate of offsets that the content makes
    names: Mapping[str, str]


def of_layers(
    parts: Sequence[Sequence[Part]], config: ModelConfig, learned: Mapping[str, Collection[str]],
    named: Callable[[str, str, int], str],
) -> tuple[LayerGate | None, ...]:  # fmt: skip
    """The gate of each layer, given its parts.

    learned: of each part the parameters that a layer has for itself. named: the model's name of one.

    Raises
    ------
    ValueError
        If two parts of a layer have one.
    """
    return tuple(_gate(layer, own, config, learned, named) for layer, own in enumerate(parts))


def _gate(
    layer: int, parts: Sequence[Part], config: ModelConfig, learned: Mapping[str, Collection[str]],
    named: Callable[[str, str, int], str],
) -> LayerGate | None:  # fmt: skip
    gated = [part for part in parts if part.encoding.gate is not None]
    if len(gated) > 1:
        names = " and ".join(repr(part.scheme) for part in gated)
        raise ValueError(f"{config.encoding!r} has two gates in one layer, {names}: choose one")
    for part in gated:
        assert part.encoding.gate is not None
        sign, of_heads = part.encoding.gate
        names_of = {role: named(part.scheme, role, layer) for role in sorted(learned[part.scheme])}
        return LayerGate(sign, () if of_heads is None else tuple(map(float, of_heads(config.heads))), names_of)
    return None
