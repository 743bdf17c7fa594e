"""Protocols as settings: the recipes of tasks, and published ones. A run records all settings that it uses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from fastpe.base.validation import choice, whole
from fastpe.encodings import combined, registry
from fastpe.tasks.registry import TASKS, choose
from fastpe.tasks.task import Task
from fastpe.training.config import TrainConfig
from fastpe.training.lengths import positions_of, usual_lengths

SMALL: Mapping[str, Any] = {
    "width": 32, "layers": 2, "heads": 2, "norm": "layernorm", "final_norm": True, "activation": "gelu",
    "causal": True, "train_length": 12, "batch": 32, "samples": 3200, "epochs": 60, "data": "fresh", "lr": 3e-3,
    "warmup": 50, "decay": "linear", "weight_decay": 0.01, "clip": 1.0, "test_sequences": 500,
}  # fmt: skip
"""The settings of recipes, except for those that the recipe of a task replaces: small models, at most 6,000 updates."""
_OF_TOKENS = {"validation": 512, "stop_solved": True}
_GPT = {
    "causal": True, "activation": "gelu", "norm": "layernorm", "final_norm": True, "tied": True,
    "init": "small_normal", "init_by_depth": True,
}  # fmt: skip


@dataclass(frozen=True)
class Preset:
    """A protocol: its summary, its source, its settings, and further settings for single tasks."""

    summary: str
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    of_task: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    shifted: str = ""  # the tables in which sequences start at any row, so that all are trained: "all" or "undefined"
    numbers: bool = False  # whether it is also for tasks of numbers


PRESETS: Mapping[str, Preset] = {
    "recipe": Preset(
        "small models that solve the task at its training lengths (`fastpe tasks NAME` has its recipe)",
        "recipe of the task",
        shifted="undefined", numbers=True,
    ),
    "li2025": Preset(
        "the experiment of Li (2025): 20 epochs of 10,000 sequences of length 50; the defaults of fastpe.TrainConfig",
        "Li 2025, section 7.1",
        numbers=True,
    ),
    "lacoco": Preset(
        "length generalization of small GPT-2s on algorithmic tasks: training at 1-50, tests at 1-50, 51-100, 101-150",
        "Huang et al. 2025, arXiv:2410.02140; lacoco-lab/length_generalization at b39b743, algorithmic/",
        {
            **_GPT, "activation": "gelu_tanh", "layers": 2, "heads": 1, "width": 64, "train_length": 50, "batch": 64,
            "samples": 192_000, "epochs": 10, "data": "fresh", "lengths": "uniform", "lr": 1e-3, "weight_decay": 0.01,
            "decay": "linear", "clip": 1.0, "validation": 2000, "stop_solved": True, "test_sequences": 2000,
        },
        {"bin_majority": {"layers": 1, "width": 16}},
        shifted="all",
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
    "nanochat-cpu": Preset(
        "the sizes of nanochat's run on a CPU: 5,000 updates of 32 sequences of 512 tokens; trained with AdamW, not "
        "Muon, and without value embeddings, smear, residual scalars and backout",
        "karpathy/nanochat at 92d63d4, runs/runcpu.sh, scripts/base_train.py, nanochat/gpt.py; rates, weight decay and "
        "initial weights are fastpe's choice",
        {
            "causal": True, "layers": 6, "heads": 6, "width": 384, "train_length": 512, "batch": 32, "samples": 3200,
            "epochs": 50, "norm": "rmsnorm", "norm_eps": 1.2e-7, "final_norm": True, "bias": False, "tied": False,
            "activation": "relu2", "qk_norm": "head", "score_scale": 0.18, "logit_softcap": 15.0,
            "init": "small_normal", "init_by_depth": True, "lr": 1e-3, "min_lr": 5e-5, "warmup": 40, "decay": "linear",
            "beta2": 0.95, "weight_decay": 0.1,
        },
        {"text": {"validation": 1024, "task_options": {"tokens": "bpe:32768"}}},
    ),
}  # fmt: skip
"""Presets by name. An epoch ends where the source's code validates."""


def preset(
    name: str, encoding: str, options: Mapping[str, Any] | None = None, *, task: str, **settings: Any
) -> TrainConfig:
    """Return the settings of a protocol for an encoding and a task; given settings have priority.

    The hidden width is 4 times a given or preset width. For the recipe of a task, the warm-up is at most a tenth of the
    updates, so that it fits shorter runs.

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
        If there is no such protocol, if it is not for tasks of numbers and the task has numbers, or if `TrainConfig`
        raises.

    Examples
    --------
    >>> config = preset("lacoco", "learned", task="unique_copy")
    >>> config.steps, config.hidden, config.positions, config.test_lengths
    (30000, 256, 'offset:302', ('1-50', '51-100', '101-150'))
    >>> preset("lacoco", "nope", task="bin_majority").width
    16
    >>> preset("recipe", "rope", task="reverse").test_lengths
    ('1-12', '13-24', '25-36')
    """
    found, task = PRESETS[choice("preset", name, tuple(PRESETS))], TASKS.resolve(task)
    chosen, causal_given = TASKS.get(task), "causal" in settings
    if chosen.kind == "numbers" and not found.numbers:
        raise ValueError(f"preset {name!r} is for tasks of tokens, and {task!r} has numbers")
    fixed = _recipe(task, chosen, settings) if name == "recipe" else {**found.settings, **found.of_task.get(task, {})}
    if chosen.kind != "numbers":
        fixed.setdefault("causal", True)
    own = {**fixed, **settings}
    if "task_options" in fixed:
        kept = {} if _has_ids(settings) else fixed["task_options"]
        own["task_options"] = {**kept, **settings.get("task_options", {})}
    if "width" in own and "hidden" not in own:
        own["hidden"] = 4 * whole("width", own["width"], 1)
    config = TrainConfig(encoding, dict(options or {}), task=task, **own)
    if not (causal_given or "causal" in fixed):
        config = config.causal_where_needed()
    if "positions" not in settings and config.positions == "usual" and _is_shifted(config, found.shifted):
        tested = {*usual_lengths(config.chosen, config.train_length), *config.test_lengths}
        longest = max(positions_of(config.chosen, length, config.causal) for length in tested)
        config = TrainConfig(encoding, dict(options or {}), task=task, **own, positions=f"offset:{longest}")
    return config


def _has_ids(settings: Mapping[str, Any]) -> bool:
    """Return whether the data are a file of tokens, which a preset does not read as characters."""
    from fastpe.text import token_files

    return isinstance(settings.get("data"), str | PathLike) and token_files.holds(settings["data"])


def _recipe(name: str, task: Task, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a task's recipe, adapted to the given settings."""
    if task.kind == "text":  # a text has no right answers
        return {}
    own = {**SMALL, **({} if task.recipe is None else task.recipe.settings)}
    if task.recipe is None:  # several lengths, also where the smallest is long
        lengths = choose(name, given.get("task_options")).lengths
        own["train_length"] = max(own["train_length"], min(2 * lengths.least, lengths.most))
    if task.kind == "numbers":
        length = given.get("train_length", own["train_length"])
        own["test_lengths"] = (length, 2 * length, 3 * length)
    else:
        own |= _OF_TOKENS
    samples, batch, epochs = (whole(name, given.get(name, own[name]), 1) for name in ("samples", "batch", "epochs"))
    own["warmup"] = min(own["warmup"], epochs * -(-samples // batch) // 10)
    return own


def _is_shifted(config: TrainConfig, shifted: str) -> bool:
    """Return whether the encoding is a table of the kind `shifted`; "undefined" has no rows beyond those it learns."""
    parts = registry.parse_all(config.encoding, config.options)
    if not shifted or (shifted == "undefined" and all(each.encoding.beyond != "undefined" for each in parts)):
        return False
    spec = config.model.spec(config.model.train_length)
    slots = [set(combined.shapes_of(part, spec)) for part in parts]
    return set().union(*slots) == {"table"}
