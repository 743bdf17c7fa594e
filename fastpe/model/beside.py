"""What can be side by side in the layers of one model, as far as kernels say so and not the encodings themselves."""

from collections.abc import Collection, Sequence

from fastpe.encodings.encoding import Part
from fastpe.functional.slots import NETWORK, REFERENCE_ONLY, REFUSED, check_polar
from fastpe.model.config import ModelConfig


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
    check_polar(config.encoding, layers)
    filled: set[str] = set().union(*layers)
    reflects = any(part.encoding.gate.reflects for part in parts if part.encoding.gate is not None)
    for there, what, unheld in (
        (reflects, "reflections", {**REFUSED["reflectors"], **REFERENCE_ONLY["reflectors"]}),
        (NETWORK[0] in filled, "a network over scores", REFERENCE_ONLY["mlp_in"]),
    ):
        for slot in sorted(filled & unheld.keys()) if there else ():
            raise ValueError(f"{config.encoding!r} fills {slot!r} beside {what}, which cannot be: {unheld[slot]}")
