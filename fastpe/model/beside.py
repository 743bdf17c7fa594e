"""What can be side by side in the layers of one model, as far as kernels say so and not the encodings themselves."""

from collections.abc import Collection, Sequence

from fastpe.encodings.encoding import Part
from fastpe.functional.polar import check_radii
from fastpe.functional.together import BESIDE_NETWORK, NETWORK
from fastpe.model.config import ModelConfig

_AT_INPUT = ("table", "qk_table", "taps")
_PLAIN = ("scale", "pairs")


def check_beside(config: ModelConfig, parts: Sequence[Part], layers: Sequence[Collection[str]]) -> None:
    """Refuse what no kernel has.

    Parameters
    ----------
    config : ModelConfig
        Its settings.
    parts : sequence of Part
        Its encodings.
    layers : sequence of collections of str
        The slots of every layer, or of every kind of layer.

    Raises
    ------
    ValueError
        Which names what cannot be beside what.

    Examples
    --------
    >>> check_beside(ModelConfig("alibi"), (), [{"bias", "mlp_in", "mlp_bias", "mlp_out"}])
    """
    name = config.encoding
    check_radii(name, layers)
    _check_reflections(config, parts, layers)
    if not any(NETWORK[0] in own for own in layers):
        return
    beside = (*BESIDE_NETWORK, *_AT_INPUT, *_PLAIN)
    unfit = sorted(set().union(*layers) - {*beside, *NETWORK})
    gated = sorted(part.scheme for part in parts if part.encoding.gate is not None)
    if unfit or gated:
        what = repr(unfit[0]) if unfit else f"gates of {gated[0]!r}"
        raise ValueError(f"{name!r} has {what} beside a network over scores: with it go {', '.join(beside)}")


def _check_reflections(config: ModelConfig, parts: Sequence[Part], layers: Sequence[Collection[str]]) -> None:
    """Of a model whose layers make reflections: but for offsets of keys that they make, nothing else may act in its
    attention."""
    name = config.encoding
    gates = {part.scheme: part.encoding.gate for part in parts if part.encoding.gate is not None}
    if not any(gate.reflects for gate in gates.values()):
        return
    unfit = sorted(set().union(*layers) - set(_AT_INPUT))
    gated = sorted(scheme for scheme, gate in gates.items() if gate.turns or gate.slopes is not None)
    if unfit or gated:
        what = f"fills {unfit[0]!r}" if unfit else f"has gates of {gated[0]!r}"
        beside = ", ".join(sorted(_AT_INPUT))
        raise ValueError(f"{name!r} {what} beside reflections: with them go {beside} and gates of offsets")
