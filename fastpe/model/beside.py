"""What can be side by side in the layers of one model, as far as kernels say so and not the encodings themselves."""

from collections.abc import Collection, Sequence

from fastpe.encodings.encoding import Part
from fastpe.functional.polar import check_radii
from fastpe.functional.together import NETWORK, NOT_HELD, NOT_REFLECTED
from fastpe.model.config import ModelConfig

_AT_INPUT = ("table", "qk_table", "taps")
_PLAIN = ("scale", "pairs")
_BESIDE_NETWORK = ("angles", "bias", "scores", "sinks")


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
    beside = (*_BESIDE_NETWORK, *_AT_INPUT, *_PLAIN)
    unfit = sorted(set().union(*layers) - {*beside, *NETWORK})
    gated = sorted(part.scheme for part in parts if part.encoding.gate is not None)
    if unfit or gated:
        what = repr(unfit[0]) if unfit else f"gates of {gated[0]!r}"
        raise ValueError(f"{name!r} has {what} beside a network over scores: with it go {', '.join(beside)}")


def _check_reflections(config: ModelConfig, parts: Sequence[Part], layers: Sequence[Collection[str]]) -> None:
    """Of a model whose layers make reflections: what attention does not take beside them."""
    if not any(part.encoding.gate.reflects for part in parts if part.encoding.gate is not None):
        return
    for slot in sorted(set().union(*layers) & (NOT_REFLECTED.keys() | NOT_HELD.keys())):
        why = (NOT_REFLECTED | NOT_HELD)[slot]
        raise ValueError(f"{config.encoding!r} fills {slot!r} beside reflections, which cannot be: {why}")
