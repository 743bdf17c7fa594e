"""Schedules: the encoding and the sight of each layer of released models.

A schedule provides `encoding`, `options` and `sight` of `ModelConfig`. Windows and chunks have the size of the released
model, or any other size for a small model. A few schedules depend on the number of layers: the first or the last layer
sees all positions although the pattern says otherwise, or the pattern is counted from the last layer. The summary of a
schedule says which parts of the released model the schedule leaves out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastpe.base.patterns import expanded, shortest
from fastpe.base.validation import choice, shown, whole

_CONFIGURATIONS = "huggingface/transformers 5.24.0, models/{}/configuration_{}.py"


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
    first : int
        This many layers at the beginning are like the pattern's first layer that sees all positions.
    last : bool
        Whether the last layer is like it too.
    from_end : bool
        Whether the pattern ends at the last layer, in place of beginning at the first.
    depth : int or None
        The default number of layers, if the schedule depends on it.
    """

    summary: str
    source: str
    encoding: str
    sight: str = "all"
    near: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    scaled: tuple[str, ...] = ()
    first: int = 0
    last: bool = False
    from_end: bool = False
    depth: int | None = None


def _configured(model: str) -> str:
    return _CONFIGURATIONS.format(model, model)


SCHEDULES: Mapping[str, Schedule] = {
    "beam": Schedule(
        "five layers of RoPE with a window, one that sees all positions and has only a temperature; so has the last",
        _configured("beam"), "rope*5,temperature", "window:{}*5,all", 512,
        {
            "rope.base": 1e4, "rope.pairs": "half", "temperature.rule": "beam", "temperature.strength": 0.1,
            "temperature.every": 2048,
        },
        last=True, depth=52,
    ),
    "command_a": Schedule(
        "three layers of RoPE with a window, one without an encoding that sees all positions",
        _configured("cohere2"), "rope*3,nope", "window:{}*3,all", 4096,
        {"rope.base": 1e4, "rope.pairs": "interleaved"},
    ),
    "cwm": Schedule(
        "Llama 3's rotation, with a window in three of four layers, not in the first",
        _configured("cwm"), "rope_llama3", "all,window:{}*3", 8192,
        {
            "rope_llama3.base": 1e6, "rope_llama3.factor": 16.0, "rope_llama3.low_freq_factor": 1.0,
            "rope_llama3.high_freq_factor": 4.0, "rope_llama3.pairs": "half",
        },
    ),
    "dory": Schedule(
        "three layers of RoPE with a window, one of slower RoPE that sees all positions; counts attention layers only",
        _configured("dory"), "rope@near*3,rope@far", "window:{}*3,all", 1024,
        {"rope@near.base": 1e4, "rope@far.base": 1e7, "rope@near.pairs": "half", "rope@far.pairs": "half"},
    ),
    "exaone4": Schedule(
        "three layers of RoPE with a window, one without an encoding that sees all positions",
        _configured("exaone4"), "rope*3,nope", "window:{}*3,all", 4096, {"rope.base": 1e4, "rope.pairs": "half"},
    ),
    "flint": Schedule(
        "three layers of RoPE with a window, one without an encoding that sees all positions; so are the first two and "
        "the last; leaves out the learned sinks",
        _configured("flint"), "rope,nope,rope*2", "window:{},all,window:{}*2", 513,
        {"rope.base": 1e4, "rope.pairs": "half"}, first=2, last=True, depth=49,
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
    "gpt_neo": Schedule(
        "a learned table at the input, with a window in every second layer; leaves out that scores are not scaled",
        _configured("gpt_neo"), "learned", "all,window:{}", 256,
    ),
    "gpt_oss": Schedule(
        "RoPE with YaRN, with a window in every other layer; leaves out the learned sinks",
        _configured("gpt_oss"), "rope_yarn", "window:{},all", 128,
        {"rope_yarn.base": 1.5e5, "rope_yarn.factor": 32.0, "rope_yarn.pairs": "half"},
    ),
    "granite_swa": Schedule(
        "RoPE, with a window in three of four layers, not in the first; leaves out the learned sinks",
        _configured("granite_swa"), "rope", "all,window:{}*3", 128, {"rope.base": 1e4, "rope.pairs": "half"},
    ),
    "kolibri1": Schedule(
        "four layers of RoPE with a window, one without an encoding that sees all positions",
        _configured("kolibri1"), "rope*4,nope", "window:{}*4,all", 513, {"rope.base": 1e4, "rope.pairs": "half"},
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
    "mimo_v2_flash": Schedule(
        "five layers of RoPE with a window, one of slower RoPE that sees all positions; so is the first; leaves out "
        "that a third of the channels is rotated, and the learned sinks",
        _configured("mimo_v2_flash"), "rope@near*5,rope@far", "window:{}*5,all", 129,
        {"rope@near.base": 1e4, "rope@far.base": 5e6, "rope@near.pairs": "half", "rope@far.pairs": "half"},
        first=1, depth=48,
    ),
    "modernbert": Schedule(
        "bidirectional; two layers of RoPE with a window, one of slower RoPE that sees all positions and comes first",
        _configured("modernbert"), "rope@far,rope@near*2", "all,window:{}*2", 65,
        {"rope@far.base": 1.6e5, "rope@near.base": 1e4, "rope@far.pairs": "half", "rope@near.pairs": "half"},
    ),
    "modernbert_decoder": Schedule(
        "two layers of RoPE with a window, one of slower RoPE that sees all positions and comes first",
        _configured("modernbert_decoder"), "rope@far,rope@near*2", "all,window:{}*2", 64,
        {"rope@far.base": 1.6e5, "rope@near.base": 1e4, "rope@far.pairs": "half", "rope@near.pairs": "half"},
    ),
    "muse_spark": Schedule(
        "three layers of RoPE with a window, one without an encoding that sees all positions, counted from the last; "
        "leaves out the factor of normed queries",
        _configured("muse_spark"), "rope*3,nope", "window:{}*3,all", 2048, {"rope.base": 5e5, "rope.pairs": "half"},
        from_end=True, depth=62,
    ),
    "olmo3": Schedule(
        "RoPE, with a window in three of four layers",
        _configured("olmo3"), "rope", "window:{}*3,all", 4096, {"rope.base": 5e5, "rope.pairs": "half"},
    ),
    "smollm3": Schedule(
        "three layers of RoPE, one without an encoding; all see all positions",
        _configured("smollm3"), "rope*3,nope", options={"rope.base": 2e6, "rope.pairs": "half"},
    ),
    "ultrabert": Schedule(
        "bidirectional; two layers of RoPE with a window, one of slower RoPE that sees all positions",
        _configured("ultrabert"), "rope@near*2,rope@far", "window:{}*2,all", 129,
        {"rope@near.base": 1e4, "rope@far.base": 2.56e6, "rope@near.pairs": "half", "rope@far.pairs": "half"},
    ),
}  # fmt: skip
"""Schedules by name of the model."""


def schedule(name: str, near: int | None = None, layers: int | None = None) -> dict[str, Any]:
    """Return settings that give each layer the encoding and the window of a released model.

    Parameters
    ----------
    name : str
        A key of `SCHEDULES`.
    near : int, optional
        Size of the windows or chunks, in positions. For "llama4", the option `every` of the encoding `temperature` gets
        the same value; it is the number of positions after which attention becomes sharper by a step. The default
        values are those of the released model.
    layers : int, optional
        Number of layers of the model, by default that of the released model. Only some schedules depend on it.

    Returns
    -------
    dict
        The settings ``encoding``, ``options`` and ``sight`` (which keys each layer sees: its windows or chunks), as
        `fastpe.ModelConfig` and `fastpe.TrainConfig` take them.

    Raises
    ------
    ValueError, TypeError
        If there is no such schedule, or if `near` is given although no layer has windows or chunks.

    Examples
    --------
    >>> schedule("llama4", 64)["sight"], schedule("gemma3")["encoding"]
    ('chunks:64*3,all', 'rope@near*5,rope@far')
    >>> schedule("beam", 64, layers=8)["sight"]
    'window:64*5,all,window:64,all'
    """
    found = SCHEDULES[choice("schedule", name, tuple(SCHEDULES))]
    if near is not None and found.near is None:
        raise ValueError(
            f"near must be None for schedule {name!r}, whose layers have no windows or chunks, not {shown(near)}"
        )
    size = found.near if near is None else whole("near", near, 1)
    options = {**found.options, **dict.fromkeys(found.scaled, size)}
    encoding, sight = found.encoding, found.sight.replace("{}", str(size))
    count = found.depth if layers is None else whole("layers", layers, 1)
    if found.depth is not None and count is not None:
        encoding, sight = (shortest(items) for items in zip(*_items(found, encoding, sight, count), strict=True))
    return {"encoding": encoding, "options": options, "sight": sight}


def _items(found: Schedule, encoding: str, sight: str, layers: int) -> list[tuple[str, str]]:
    """Return the encoding and the sight of each layer."""
    pattern = list(zip(expanded("encoding", encoding), expanded("sight", sight), strict=True))
    whole_view = next(item for item in pattern if item[1] == "all")
    own = [pattern[(layer - layers * found.from_end) % len(pattern)] for layer in range(layers)]
    for layer in {*range(min(found.first, layers)), *([layers - 1] if found.last else ())}:
        own[layer] = whole_view
    return own


def parse(text: str, layers: int | None = None) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of a schedule in a command line, such as "gemma3" or "gemma3:64".

    >>> parse("gemma2:8")[1]["sight"]
    'window:8,all'
    """
    name, colon, size = text.partition(":")
    if colon and not (size.isascii() and size.isdigit()):
        raise ValueError(f"schedule must be a name, or a name and positions such as 'gemma3:64', not {text!r}")
    return name, schedule(name, int(size) if colon else None, layers)
