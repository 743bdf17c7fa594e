"""Published protocols as settings. A run prints and records all settings of the preset that it uses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastpe.base.validation import choice, whole
from fastpe.encodings import combined, registry
from fastpe.tasks.registry import TASKS
from fastpe.training.config import TrainConfig
from fastpe.training.lengths import positions_of, usual_lengths

_GPT = {
    "causal": True, "activation": "gelu", "norm": "layernorm", "final_norm": True, "tied": True,
    "init": "small_normal", "init_by_depth": True,
}  # fmt: skip


@dataclass(frozen=True)
class Preset:
    """A protocol: its summary, its source, its settings, and further settings for single tasks."""

    summary: str
    source: str
    settings: Mapping[str, Any]
    of_task: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    shifted: bool = False  # whether sequences start at any row of a table, so that all rows are trained


PRESETS: Mapping[str, Preset] = {
    "lacoco": Preset(
        "length generalization of small GPT-2s on algorithmic tasks: training at 1-50, tests at 1-50, 51-100, 101-150",
        "Huang et al. 2025, arXiv:2410.02140; lacoco-lab/length_generalization at b39b743, algorithmic/",
        {
            **_GPT, "activation": "gelu_tanh", "layers": 2, "heads": 1, "width": 64, "train_length": 50, "batch": 64,
            "samples": 192_000, "epochs": 10, "data": "fresh", "lengths": "uniform", "lr": 1e-3, "weight_decay": 0.01,
            "decay": "linear", "clip": 1.0, "validation": 2000, "stop_solved": True, "test_sequences": 2000,
        },
        {"bin_majority": {"layers": 1, "width": 16}},
        shifted=True,
    ),
    "nanogpt-cpu": Preset(
        "the small GPT that nanoGPT's page trains on a CPU: 2,000 updates of 12 sequences of 64 tokens",
        "karpathy/nanoGPT at 3adf61e, README.md, config/train_shakespeare_char.py, train.py",
        {
            **_GPT, "bias": False, "layers": 4, "heads": 4, "width": 128, "train_length": 64, "batch": 12,
            "samples": 3000, "epochs": 8, "lr": 1e-3, "min_lr": 1e-4, "warmup": 100, "decay": "cosine",
            "beta2": 0.99, "weight_decay": 0.1, "clip": 1.0,
        },
        {"text": {"validation": 240, "task_options": {"tokens": "characters"}}},
    ),
}  # fmt: skip
"""Presets by name. The hidden width is 4 times the width. An epoch ends where the source's code validates."""


def preset(
    name: str, encoding: str, options: Mapping[str, Any] | None = None, *, task: str, **settings: Any
) -> TrainConfig:
    """Return the settings of a protocol for an encoding and a task of tokens; given settings have priority.

    Parameters
    ----------
    name : str
        A key of `PRESETS`.
    encoding, options, task, **settings
        As for `TrainConfig`.

    Returns
    -------
    TrainConfig

    Raises
    ------
    ValueError, TypeError
        If there is no such protocol, if the task has numbers, or if `TrainConfig` raises.

    Examples
    --------
    >>> config = preset("lacoco", "learned", task="unique_copy")
    >>> config.steps, config.hidden, config.positions, config.test_lengths
    (30000, 256, 'offset:302', ('1-50', '51-100', '101-150'))
    >>> preset("lacoco", "nope", task="bin_majority").width
    16
    """
    found, task = PRESETS[choice("preset", name, tuple(PRESETS))], TASKS.resolve(task)
    if TASKS.get(task).kind == "numbers":
        raise ValueError(f"preset {name!r} is for tasks of tokens, and {task!r} has numbers")
    of_task = found.of_task.get(task, {})
    own = {**found.settings, **of_task, **settings}
    if "task_options" in of_task:
        own["task_options"] = {**of_task["task_options"], **settings.get("task_options", {})}
    own.setdefault("hidden", 4 * whole("width", own["width"], 1))
    config = TrainConfig(encoding, dict(options or {}), task=task, **own)
    if found.shifted and "positions" not in settings and config.positions == "usual" and _fills_a_table(config):
        tested = {*usual_lengths(config.chosen, config.train_length), *config.test_lengths}
        longest = max(positions_of(config.chosen, length, config.causal) for length in tested)
        config = TrainConfig(encoding, dict(options or {}), task=task, **own, positions=f"offset:{longest}")
    return config


def _fills_a_table(config: TrainConfig) -> bool:
    spec = config.model.spec(config.model.train_length)
    slots = [set(combined.shapes_of(part, spec)) for part in registry.parse_all(config.encoding, config.options)]
    return set().union(*slots) == {"table"}
