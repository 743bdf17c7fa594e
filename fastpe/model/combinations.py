"""Checks for combinations of encodings, and of encodings and parts of the model, that no kernel supports. Encodings
check all other combinations themselves."""

from collections.abc import Mapping, Sequence

from fastpe.encodings.encoding import Part
from fastpe.functional.slots import NETWORK, REFERENCE_ONLY, REFUSED, check_polar
from fastpe.model.config import ModelConfig

Shapes = Mapping[str, tuple[int, ...]]

_AT_WIDTH = ("table", "qk_table", "taps")  # slots with a column for each channel of the model, not of the heads
_BY_KEY_HEAD = ("angles", "rotors", "polar")  # slots that act on keys, and may have an axis of heads


def check_combinations(config: ModelConfig, parts: Sequence[Part], layers: Sequence[Shapes]) -> None:
    """Raise ValueError for combinations that no kernel supports.

    Parameters
    ----------
    config : ModelConfig
        Settings of the model.
    parts : sequence of Part
        Encodings of the model.
    layers : sequence of mappings
        The shapes of the slots of each layer, or of each set of encodings that layers have, by name.

    Raises
    ------
    ValueError
        If two encodings cannot be combined, or an encoding and a setting; the message names both.

    Examples
    --------
    >>> check_combinations(ModelConfig("alibi"), (), [{"bias": (1, 99)}])
    >>> check_combinations(ModelConfig("rope", heads=4, head_dim=8), (), [{"table": (50, 64)}])
    Traceback (most recent call last):
        ...
    ValueError: head_dim=8 cannot be combined with 'rope', which fills 'table': this slot has one column for each ...
    """
    _check_parts(config, parts, layers)
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


def _check_parts(config: ModelConfig, parts: Sequence[Part], layers: Sequence[Shapes]) -> None:
    """Raise ValueError for settings of the model that the kernels of the encoding do not support."""
    shapes = {slot: shape for own in layers for slot, shape in own.items()}
    gates = [part.encoding.gate for part in parts if part.encoding.gate is not None]
    sloped, adds = any(gate.slopes is not None for gate in gates), any(gate.kind == "adds" for gate in gates)
    turns, reflects = any(gate.turns for gate in gates), any(gate.reflects for gate in gates)
    network = NETWORK[0] in shapes

    def refuse(name: str, why: str) -> None:
        raise ValueError(f"{name}={getattr(config, name)!r} cannot be combined with {config.encoding!r}, which {why}")

    if config.heads * config.head_width != config.width:
        for slot in sorted(shapes.keys() & _AT_WIDTH):
            refuse("head_dim", f"fills {slot!r}: this slot has one column for each channel of the model")
        if gates:
            refuse("head_dim", "computes gates from the input of a layer: heads * head_dim must be the width")
    if config.key_value_heads < config.heads:
        for slot in sorted(shapes.keys() & _BY_KEY_HEAD):
            if shapes[slot][0] > 1:
                refuse("key_heads", f"fills {slot!r} for each head, but several heads share their keys")
        if network or reflects or turns or sloped:
            refuse("key_heads", "needs keys for each head")
    if config.qk_norm is not None and sloped:
        refuse("qk_norm", "computes slopes from queries and keys")
    for name in ("score_softcap", "sinks"):
        if name in config.optional_parts and (network or reflects or adds):
            refuse(name, "computes scores from the input of a layer, or from other scores")
