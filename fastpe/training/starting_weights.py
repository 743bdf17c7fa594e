"""Settings and weights of runs that start with the weights of another run."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastpe.base.files import TensorFile
from fastpe.encodings import registry
from fastpe.encodings.encoding import Part
from fastpe.model.model_file import shapes_of
from fastpe.model.transformer import Transformer
from fastpe.tasks.registry import load_task
from fastpe.training import run_folder
from fastpe.training.config import TrainConfig
from fastpe.training.config_file import RunError, read_config

Array = np.ndarray[Any, Any]

FIXED = (
    "width", "heads", "layers", "hidden", "causal", "activation", "norm", "final_norm", "bias", "tied", "residual",
    "dtype", "table_scale", "start", "init", "init_by_depth", "key_heads", "head_dim", "norm_eps", "norm_placement",
    "parallel", "qkv_bias", "qk_norm", "score_scale", "score_softcap", "logit_softcap", "embedding_scale", "sinks",
)  # fmt: skip
"""Settings of the model that cannot change, because they belong to its weights."""
KEPT = ("sight", "positions", "dropout", "precision")
"""Settings of the model that stay the same unless they are given."""
_OF_TASK = ("lengths", "target_scale")
_OF_TEXT = ("data", "digest", "alphabet", "text_places")
_OF_TOKENIZER = ("tokenizer", "tokenizer_content", "vocabulary")
_ROTARY = ("base", "pairs", "rotated")  # options that rope and its extensions share, with different defaults


@dataclass(frozen=True)
class Origin:
    """A trained model that another run starts from.

    Attributes
    ----------
    path : str
        The run folder or the model file.
    model : Transformer
    digest : str
        SHA-256 of the weights.
    config : TrainConfig or None
        The settings of the run; None for a model file.
    """

    path: str
    model: Transformer
    digest: str
    config: TrainConfig | None

    @property
    def task(self) -> str:
        """The task that the model was trained on."""
        if self.config is not None:
            return self.config.task
        if self.model.vocabulary is not None:
            return "text"
        if self.model.config.vocabulary is not None:
            raise ValueError(f"task must be given: the model file {self.path} does not name the task of its tokens")
        return TrainConfig.task


def read(path: str | Path) -> Origin:
    """Read the model of a run folder or of a model file. The errors are those of `fastpe.load`."""
    model = run_folder.load(path)
    file = TensorFile(run_folder.model_path(path))
    return Origin(str(path), model, file.facts["sha256"], read_config(path) if Path(path).is_dir() else None)


def settings(origin: Origin, encoding: str | None, options: Mapping[str, Any], given: Mapping[str, Any]) -> TrainConfig:
    """Return the settings of a run that starts from a model (see `TrainConfig.starting_from`)."""
    made = origin.model.config
    for name in ("start_from", "start_digest"):
        if name in given:
            raise TypeError(f"{name} cannot be given: starting_from sets it")
    for name in FIXED:
        if name in given and given[name] != getattr(made, name):
            fixed = f"{name} must be {getattr(made, name)!r}, as in {origin.path}, whose weights the run starts with"
            raise ValueError(f"{fixed}, not {given[name]!r}")
    encoding = made.encoding if encoding is None else registry.canonical(registry.resolve(encoding))
    kept = made.options if encoding == made.encoding else _options(origin, encoding)
    own = {name: getattr(made, name) for name in (*FIXED, *KEPT)} | _of_task(origin, given)
    length = made.made_for
    if encoding != made.encoding and made.positions.startswith("offset:"):  # rows of a table that is left out
        own["positions"], length = None, made.encoding_length or made.train_length
    named = {name: value for name, value in given.items() if name != "task_options"}  # `own` contains them
    config = TrainConfig(
        encoding, {**kept, **options}, **{**own, **named}, start_from=origin.path, start_digest=origin.digest
    )
    if (wanted := config.model.vocabulary) != made.vocabulary:
        takes, has = ("numbers" if each is None else f"{each} tokens" for each in (made.vocabulary, wanted))
        raise ValueError(f"task {config.task!r} has {has}, but the model of {origin.path} takes {takes}")
    if config.encoding_length is None and config.position_range is None:
        needed = config.model.train_length
        grown = needed > length and any(map(_grows, _parts(config)))
        config = replace(config, encoding_length=None if grown or length == needed else length)
    _compared(origin, config)
    return config


class Start(NamedTuple):
    """The weights that a run starts with, and what differs from those of the model that it starts from.

    Attributes
    ----------
    weights : dict
        The parameters that are carried over, by name.
    left_out : list of str
        Names of the parameters that are not carried over, because the new encoding does not have them, or has another
        shape.
    initial : list of str
        Names of the parameters that start with their initial values, because they are not carried over.
    """

    weights: dict[str, Array]
    left_out: list[str]
    initial: list[str]

    def told(self, origin: str) -> str:
        """Return a sentence on what could not be carried over; "" if everything was."""
        parts = [
            f"{what} {', '.join(names)}"
            for what, names in (("leaves out", self.left_out), ("has initial values of", self.initial))
            if names
        ]
        return f"the model starts from {origin}, but {' and '.join(parts)}" if parts else ""


def start(config: TrainConfig) -> Start:
    """Read the weights that a run starts with from the path in its settings.

    Raises
    ------
    RunError
        If the weights have changed.
    ValueError, OSError
        As `fastpe.load` does.
    """
    assert config.start_from is not None
    origin = read(config.start_from)
    if origin.digest != config.start_digest:
        raise RunError(
            f"the weights of {origin.path} have changed since the run was configured: their SHA-256 was "
            f"{config.start_digest}, and is {origin.digest}"
        )
    kept, left_out, initial = _compared(origin, config)
    found, shapes = {name: origin.model.parameters[name] for name in kept}, shapes_of(config.model)
    for part in filter(_grows, _parts(config)):
        prefix = f"encoding.{part.scheme}."
        old = {name.removeprefix(prefix): found[name] for name in found if name.startswith(prefix)}
        if any(array.shape != shapes[f"{prefix}{name}"] for name, array in old.items()):
            assert part.encoding.resize is not None
            resized = part.encoding.resize(old, length=config.model.made_for)
            found |= {f"{prefix}{name}": array for name, array in resized.items()}
    return Start(found, left_out, initial)


def _parts(config: TrainConfig) -> tuple[Part, ...]:
    return registry.parse_all(config.encoding, config.options)


def _grows(part: Part) -> bool:
    """Return whether a term can resize its parameters to a longer length, given only the parameters and the length."""
    rule = part.encoding.resize
    return rule is not None and list(inspect.signature(rule).parameters) == ["params", "length"]


def _of_task(origin: Origin, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task with its settings. If the task is the origin's, settings that are not given are the origin's."""
    task = given.get("task", origin.task)
    stored, symbols = origin.config, origin.model.vocabulary
    kind = load_task(task).kind
    own: dict[str, Any] = {"task": task, "task_options": dict(given.get("task_options", {}))}
    if stored is not None:
        own["train_length"] = stored.train_length
        if stored.task == task:
            own |= {name: getattr(stored, name) for name in _OF_TASK}
            own["task_options"] = {**stored.task_options, **own["task_options"]}
    elif kind in ("numbers", "text"):
        own["train_length"] = origin.model.config.train_length
    elif "train_length" not in given:
        raise ValueError(f"train_length must be given: the model file {origin.path} does not name that of its task")
    if kind == "text" and symbols is not None:
        asked = given.get("task_options", {}).get("tokens", symbols.kind)
        if asked not in (symbols.kind, stored.task_options.get("tokens") if stored is not None else None):
            raise ValueError(
                f"option 'tokens' of task 'text' must be {symbols.kind!r}, as in {origin.path}, not {asked!r}"
            )
        own["task_options"]["tokens"] = symbols.kind
        own["alphabet"] = symbols.alphabet
        if symbols.kind not in ("bytes", "characters"):
            own |= dict(zip(_OF_TOKENIZER, (symbols.digest or None, symbols.content, symbols.size), strict=True))
        if stored is not None and stored.task == task and "data" not in given:
            own |= {name: getattr(stored, name) for name in _OF_TEXT}
    return own


def _options(origin: Origin, encoding: str) -> dict[str, Any]:
    """Return the options that the terms of a new encoding take over from the origin's encoding.

    A term that is in both encodings keeps all its options. New rotary terms replace the removed ones in order, and take
    over their options base, pairs and rotated.
    """
    made = origin.model.config
    old, new = registry.parse_all(made.encoding, made.options), registry.parse_all(encoding)
    before, after = ({part.scheme: part for part in parts} for parts in (old, new))
    gone, added = (
        [part for part in parts if part.scheme not in others and not part.options.keys().isdisjoint(_ROTARY)]
        for parts, others in ((old, after), (new, before))
    )
    stays = [(before[each.scheme], each, tuple(each.options)) for each in new if each.scheme in before]
    replaced = [(here, there, _ROTARY) for here, there in zip(gone, added, strict=False)]
    return {
        name if len(new) == 1 else f"{there.scheme}.{name}": here.options[name]
        for here, there, names in (*stays, *replaced)
        for name in names
        if name in here.options and name in there.options and here.options[name] != there.options[name]
    }


def _compared(origin: Origin, config: TrainConfig) -> tuple[list[str], list[str], list[str]]:
    """Return the names of the parameters that are carried over, left out, and new or of another shape.

    Raise ValueError if a parameter that is left out or new does not belong to the encoding. Such a parameter belongs to
    the model, whose settings are fixed.
    """
    new, old = shapes_of(config.model), {name: array.shape for name, array in origin.model.parameters.items()}
    resized = tuple(f"encoding.{part.scheme}." for part in _parts(config) if _grows(part))
    kept = [
        name
        for name, shape in new.items()
        if name in old and (shape == old[name] or (name.startswith(resized or ("\0",)) and shape > old[name]))
    ]
    left_out, initial = sorted(old.keys() - set(kept)), sorted(new.keys() - set(kept))
    if of_model := [name for name in (*left_out, *initial) if "encoding" not in name.split(".")]:
        raise ValueError(
            f"encoding {config.encoding!r} cannot start from {origin.path}, which has "
            f"{origin.model.config.encoding!r}: the parameter {of_model[0]!r} of the model does not fit"
        )
    return kept, left_out, initial
