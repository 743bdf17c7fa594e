"""Checks for combinations of encodings that no kernel supports. Encodings check all other combinations themselves."""

from collections.abc import Collection, Sequence

from fastpe.encodings.encoding import Part
from fastpe.functional.slots import NETWORK, REFERENCE_ONLY, REFUSED, check_polar
from fastpe.model.config import ModelConfig


def check_combinations(config: ModelConfig, parts: Sequence[Part], layers: Sequence[Collection[str]]) -> None:
    """Raise ValueError for combinations that no kernel supports.

    Parameters
    ----------
    config : ModelConfig
        Settings of the model.
    parts : sequence of Part
        Encodings of the model.
    layers : sequence of collections of str
        The names of the slots of each layer, or of each set of encodings that layers have.

    Raises
    ------
    ValueError
        If two encodings cannot be combined; the message names both.

    Examples
    --------
    >>> check_combinations(ModelConfig("alibi"), (), [{"bias", "mlp_in", "mlp_bias", "mlp_out"}])
    """
    check_polar(config.encoding, layers)
    filled: set[str] = set().union(*layers)
    reflects = any(part.encoding.gate.reflects for part in parts if part.encoding.gate is not None)
    for present, what, conflicts in (
        (reflects, "reflections", {**REFUSED["reflectors"], **REFERENCE_ONLY["reflectors"]}),
        (NETWORK[0] in filled, "a network over scores", REFERENCE_ONLY["mlp_in"]),
    ):
        for slot in sorted(filled & conflicts.keys()) if present else ():
            raise ValueError(
                f"{config.encoding!r} fills {slot!r}, which cannot be combined with {what}: {conflicts[slot]}"
            )
