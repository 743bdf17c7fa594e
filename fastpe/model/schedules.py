"""Schedules: the encoding and the sight of each layer of released models.

A schedule provides `encoding`, `options` and `sight` of `ModelConfig`. Windows and chunks have the size of the released
model, or any other size for a small model. In every pattern, layers with a window or chunk come first. The summary of a
schedule says which parts of the released model the schedule leaves out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastpe.base.validation import choice, shown, whole

_CONFIGURATIONS = "huggingface/transformers 5.23.0, models/{}/configuration_{}.py"


@dataclass(frozen=True)
class Schedule:
    """The layers of a released model.

    Attributes
    ----------
    summary : str
        Describes the layers, and the handling of positions in the released model that these settings leave out.
    source : str
        Where the settings come from.
    encoding : str
        Pattern of encodings over layers.
    sight : str
        Pattern of sights over layers, with ``{}`` for the number of positions; or ``"all"``.
    near : int or None
        The number of positions that replaces ``{}`` by default, as in the released model.
    options : dict
        Options of the encodings.
    scaled : tuple of str
        Options that are also numbers of positions: a new value of `near` replaces them too.
    """

    summary: str
    source: str
    encoding: str
    sight: str = "all"
    near: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    scaled: tuple[str, ...] = ()


def _configured(model: str) -> str:
    return _CONFIGURATIONS.format(model, model)


SCHEDULES: Mapping[str, Schedule] = {
    "command_a": Schedule(
        "three layers of RoPE with a window, one without an encoding that sees all positions",
        _configured("cohere2"), "rope*3,nope", "window:{}*3,all", 4096,
        {"rope.base": 1e4, "rope.pairs": "interleaved"},
    ),
    "exaone4": Schedule(
        "three layers of RoPE with a window, one without an encoding that sees all positions",
        _configured("exaone4"), "rope*3,nope", "window:{}*3,all", 4096, {"rope.base": 1e4, "rope.pairs": "half"},
    ),
    "gemma2": Schedule(
        "RoPE, with a window in every other layer; leaves out the soft cap of scores",
        _configured("gemma2"), "rope", "window:{},all", 4096, {"rope.base": 1e4, "rope.pairs": "half"},
    ),
    "gemma3": Schedule(
        "five layers of RoPE with a window, one of slower RoPE that sees all positions (models of 270M and 1B)",
        "google-deepmind/gemma at 7691fd4, gemma/gm/nn/_gemma.py", "rope@near*5,rope@far", "window:{}*5,all", 512,
        {"rope@near.base": 1e4, "rope@far.base": 1e6, "rope@near.pairs": "half", "rope@far.pairs": "half"},
    ),
    "gemma4": Schedule(
        "five layers of RoPE with a window, one of p-RoPE that sees all positions; leaves out its wider heads",
        "google-deepmind/gemma at 7691fd4, gemma/gm/nn/gemma4/_gemma4.py", "rope*5,rope_proportional",
        "window:{}*5,all", 1024,
        {
            "rope.base": 1e4, "rope.pairs": "half", "rope_proportional.base": 1e6,
            "rope_proportional.proportion": 0.25,
        },
    ),
    "gpt_oss": Schedule(
        "RoPE with YaRN, with a window in every other layer; leaves out the learned sinks",
        _configured("gpt_oss"), "rope_yarn", "window:{},all", 128,
        {"rope_yarn.base": 1.5e5, "rope_yarn.factor": 32.0, "rope_yarn.pairs": "half"},
    ),
    "llama4": Schedule(
        "iRoPE: three layers of RoPE in chunks, one that sees all positions and has only a temperature; leaves out "
        "the norms of Scout",
        _configured("llama4"), "rope*3,temperature", "chunks:{}*3,all", 8192,
        {
            "rope.base": 5e5, "rope.pairs": "interleaved", "temperature.rule": "llama4", "temperature.strength": 0.1,
            "temperature.every": 8192,
        },
        scaled=("temperature.every",),
    ),
    "olmo3": Schedule(
        "RoPE, with a window in three of four layers",
        _configured("olmo3"), "rope", "window:{}*3,all", 4096, {"rope.base": 5e5, "rope.pairs": "half"},
    ),
    "smollm3": Schedule(
        "three layers of RoPE, one without an encoding; all see all positions",
        _configured("smollm3"), "rope*3,nope", options={"rope.base": 2e6, "rope.pairs": "half"},
    ),
}  # fmt: skip
"""Schedules by name of the model."""


def schedule(name: str, near: int | None = None) -> dict[str, Any]:
    """Return settings that give each layer the encoding and the window of a released model.

    Parameters
    ----------
    name : str
        A key of `SCHEDULES`.
    near : int, optional
        Size of the windows or chunks, in positions. For "llama4", the option `every` of the encoding `temperature` gets
        the same value; it is the number of positions after which attention becomes sharper by a step. The default
        values are those of the released model.

    Returns
    -------
    dict
        ``encoding``, ``options`` and ``sight``, as `fastpe.ModelConfig` and `fastpe.TrainConfig` take them.

    Raises
    ------
    ValueError, TypeError
        If there is no such schedule, or if `near` is given although no layer has windows or chunks.

    Examples
    --------
    >>> schedule("llama4", 64)["sight"], schedule("gemma3")["encoding"]
    ('chunks:64*3,all', 'rope@near*5,rope@far')
    """
    found = SCHEDULES[choice("schedule", name, tuple(SCHEDULES))]
    if near is not None and found.near is None:
        raise ValueError(
            f"near must be None for schedule {name!r}, whose layers have no windows or chunks, not {shown(near)}"
        )
    size = found.near if near is None else whole("near", near, 1)
    options = {**found.options, **dict.fromkeys(found.scaled, size)}
    return {"encoding": found.encoding, "options": options, "sight": found.sight.format(size)}


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of a schedule in a command line, such as "gemma3" or "gemma3:64".

    >>> parse("gemma2:8")[1]["sight"]
    'window:8,all'
    """
    name, colon, size = text.partition(":")
    if colon and not (size.isascii() and size.isdigit()):
        raise ValueError(f"schedule must be a name, or a name and positions such as 'gemma3:64', not {text!r}")
    return name, schedule(name, int(size) if colon else None)
