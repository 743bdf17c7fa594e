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
    sloped = any(gate.slopes is not None for gate in gates)
    transforms = NETWORK[0] in shapes or any(gate.reflects for gate in gates)

    def refuse(name: str, why: str) -> None:
        raise ValueError(f"{name}={getattr(config, name)!r} cannot be combined with {config.encoding!r}, which {why}")

    if config.heads * config.head_width != config.width:
        for slot in shapes.keys() & _AT_WIDTH:
            refuse("head_dim", f"fills {slot!r}: this slot has one column for each channel of the model")
        if gates:
            refuse("head_dim", "computes gates from the input of a layer, and must have heads * head_dim = width")
    if config.key_value_heads < config.heads:
        for slot in sorted(shapes.keys() & _BY_KEY_HEAD):
            if shapes[slot][0] > 1:
                refuse("key_heads", f"fills {slot!r} for each head, but several heads share their keys")
        if transforms or any(gate.kind != "adds" or gate.slopes is not None for gate in gates):
            refuse("key_heads", "needs keys for each head: there is no kernel for both")
    for name in {"qk_norm"} & {*config.optional_parts} if sloped else ():
        refuse(name, "computes slopes from queries and keys: there is no kernel for both")
    for name in sorted({"score_softcap", "sinks"} & {*config.optional_parts}) if transforms else ():
        refuse(name, "transforms scores: there is no kernel for both")
