"""The settings of presets and recipes that differ from the defaults, and the list of all settings."""

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from typing import Any

from fastpe.training.config import TrainConfig
from fastpe.training.presets import PRESETS
from fastpe.training.settings import SETTINGS, Setting

from .terminal import print_rich, print_settings, table

_NOT_SHOWN = {
    "encoding", "options", "task", "task_options", "seed", "digest", "alphabet", "text_places", "tokenizer",
    "tokenizer_content",
}  # fmt: skip
_USUAL = {"data": ("fixed",), "lengths": ("fixed",), "positions": ("usual",)}  # what None stands for
_FIELDS = {field.name: field for field in fields(TrainConfig)}
_IN_PYTHON = {
    "beta1": "Decay rate of the first moment of Adam.", "beta2": "Decay rate of the second moment of Adam.",
    "eps": "Constant in the denominator of Adam.",
    "target_scale": "Factor of the targets: one, train, root_train, position or length.",
    "start": "Position of the first element of a sequence.",
    "qkv_bias": "Whether the projections of queries, keys and values have biases, if this differs from bias.",
    "score_scale": "Factor of the scores of attention, if not 1 / sqrt(head width).",
    "embedding_scale": "Factor of the token embeddings at the input.",
    "table_scale": "Scale of the position table: defined, rms or unit.",
}  # fmt: skip


def print_preset(name: str, config: TrainConfig, given: Collection[str] = ()) -> None:
    """Print, on standard error, the settings of a preset that differ from the defaults and were not given."""
    of = f"task {config.task}: recipe" if name == "recipe" else f"task {config.task}: preset {name}"
    source = "" if name == "recipe" else f" ({PRESETS[name].source})"
    print_settings(f"{of}{source}", _differences(config, given))


def _differences(config: TrainConfig, given: Collection[str]) -> dict[str, Any]:
    named = _NOT_SHOWN.union(given)
    own = {name: getattr(config, name) for name in _FIELDS if name not in named}
    usual = {name: (field.default, *_USUAL.get(name, ())) for name, field in _FIELDS.items()}
    return {name: value for name, value in own.items() if value not in usual[name]}


def print_all_settings(names: Collection[str]) -> None:
    """Print the settings with these names, their defaults and their meanings."""
    listed: Mapping[str, Setting] = {name: found for group in SETTINGS.values() for name, found in group.items()}
    made = table("setting", "default", "meaning")
    for name in _FIELDS:
        if name in names and (name in listed or name in _IN_PYTHON):
            default = "" if _FIELDS[name].default in (MISSING, None) else str(_FIELDS[name].default)
            made.add_row(name, default, _meaning(listed[name]) if name in listed else _IN_PYTHON[name])
    print_rich(made)


def _meaning(setting: Setting) -> str:
    """Return the help of the option of `fastpe train` as that of a setting."""
    text = setting.help.replace("Use no ", "Use ")
    return f"{text} ({', '.join(setting.values)})" if isinstance(setting.values, tuple) and setting.values else text
