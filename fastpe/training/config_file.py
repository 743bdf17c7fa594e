"""``config.json``, the record of a run: its settings, everything else that its bits depend on, and a checksum."""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from llvmlite import binding

from fastpe.base import files, own_files, stored
from fastpe.base.stored import DamagedFileError, damaged
from fastpe.base.version import VERSION
from fastpe.encodings import registry
from fastpe.encodings.registry import ENCODINGS
from fastpe.tasks.registry import TASKS
from fastpe.text import subwords
from fastpe.training import forms, schedule
from fastpe.training.config import TrainConfig
from fastpe.training.forms import SCHEMA

NAME = "config.json"
_PACKAGES = ("numpy", "numba", "llvmlite", "scipy", "PyWavelets")
_VECTOR_FEATURES = ("avx", "avx2", "fma", "avx512f", "avx512vl", "avx512bf16", "amx-bf16", "neon", "sve")


PROTOCOL: Mapping[str, str] = {
    "input map": "linear with bias from the scalar (or a token table, N(0, 0.02^2)) to width; its fan in is 1",
    "order of the data": "reshuffled each epoch; the last batch may be smaller",
    "output head": "linear with bias from width to the output",
    "output map of attention": "yes",
    "logit scale": "1/sqrt(width of one head), unless the encoding states its own",
    "adam": "bias-corrected; decay, where there is one, of arrays of two axes or more, apart from the gradients",
    "loss": "mean squared error over all positions",
    "test metrics": "mean over all positions, the last position, the positions from train_length on",
    "position encoding injection": "tables once at the input; terms of the score and of the values in every layer",
    "other position encodings": "none beside the one named",
    "symmetric or causal form of a bias": "follows the mask",
    "length constants of the encoding at test": "those of train_length",
    "zero rows under unit normalisation": "stay zero",
}
"""What all runs have in common where the source paper states nothing; written into the record of each run."""


class RunError(ValueError):
    """A run folder cannot be used as requested. The message says why, and what to do."""


class NoRunError(RunError):
    """The folder contains files, but no run."""


def make(config: TrainConfig, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new record; `options` are all options of the encoding, including defaults."""
    record = {
        "schema": SCHEMA,
        "config": config.to_dict(),
        "encoding_options": dict(options),
        "encodings": registry.own_files(config.encoding),
        "tasks": TASKS.own_files([config.task]),
        "protocol": dict(PROTOCOL),
        **environment(),
        "resumed": [],
    }
    note_text(record, config)
    return record


def note_text(record: dict[str, Any], config: TrainConfig) -> bool:
    """Record the absolute path of a run's text, so that the run can be used from any folder.

    Returns whether the record has changed. The path is not one of the settings, so the settings and their digests do
    not depend on the folders of a machine.
    """
    if config.symbols is None:
        return False
    try:
        where = os.path.abspath(config.read_text().name)
    except (OSError, ValueError):  # the error is raised again where the text is needed
        return False
    if where == record.get("text", config.data) or where != stored.printable(where):
        return False
    record["text"] = where
    return True


def write(folder: Path, record: Mapping[str, Any]) -> None:
    """Write a record, with its checksum, into its folder."""
    files.write_file(folder / NAME, files.dump_json({**record, "sha256": digest(record)}))


def read(folder: Path) -> dict[str, Any]:
    """Read and verify the record in a folder.

    Raises
    ------
    DamagedFileError
        If the file differs from what was written.
    FileNotFoundError, NotADirectoryError
        If there is no record, or no folder.
    """
    path = folder / NAME
    record: dict[str, Any] = stored.checked(path, files.read_json(path), stored.by_key(stored.anything))
    if record.pop("sha256", None) != digest(record):
        raise damaged(path, "it does not match its checksum")
    schema = stored.checked(path, record.get("schema"), stored.whole(0, 2**31), "schema")
    if schema != SCHEMA:
        raise RunError(f"{folder} was written by another version of fastpe (schema {schema})")
    stored.checked(path, record, forms.CONFIG)
    return record


def read_config(folder: str | Path) -> TrainConfig | None:
    """Read the configuration of a run folder; None if the folder contains at most leftovers of a killed start.

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        If there is no such folder.
    RunError
        If the folder contains files but no run, or if its encoding or task is a user's file that is not registered or
        differs from the recorded one.
    DamagedFileError
        If the record is damaged.
    """
    folder = Path(folder)
    try:
        record = read(folder)
    except FileNotFoundError:
        # a killed start leaves nothing, or a temporary file
        if [entry.name for entry in folder.iterdir() if not files.is_leftover(entry.name)]:
            raise NoRunError(f"{folder} is not a run folder: it contains files but no {NAME}") from None
        return None
    encodings, tasks = record.get("encodings", {}), record.get("tasks", {})
    try:
        own_files.check_registered(folder, encodings, ENCODINGS)
        own_files.check_registered(folder, tasks, TASKS)
    except ValueError as error:
        raise RunError(str(error)) from error
    try:
        settings, unstored = record["config"], dict[str, Any]()
        if isinstance(known := settings.get("tokenizer"), str):
            unstored["tokenizer_content"] = subwords.kept(folder, known)
        config = TrainConfig.from_dict(settings, **unstored)
        if "text" in record and config.symbols is not None:
            config = replace(config, text_places=(config.data, record["text"]))
    except DamagedFileError:  # the tokenizer
        raise
    except (ValueError, TypeError) as error:
        said = stored.cut(str(error))
        raise RunError(f"{folder / NAME} has no configuration that this version of fastpe can read: {said}") from error
    try:
        own_files.check_same(folder, encodings, ENCODINGS, registry.all_keys(config.encoding))
        own_files.check_same(folder, tasks, TASKS, [config.task])
    except ValueError as error:
        raise RunError(str(error)) from error
    return config


def environment() -> dict[str, dict[str, Any]]:
    """Return the versions and the CPU that the bits of a run depend on."""
    features = binding.get_host_cpu_features()
    return {
        "versions": {
            "fastpe": VERSION,
            "python": platform.python_version(),
            **_versions(),
        },
        "cpu": {
            "name": binding.get_host_cpu_name(),
            "machine": platform.machine(),
            "system": platform.system(),
            "vectors": [name for name in _VECTOR_FEATURES if features.get(name)],
        },
    }


@cache
def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in _PACKAGES}


def note_environment(record: dict[str, Any], **facts: Any) -> str | None:
    """Add the current environment to a record if it differs from the last one, or if there are `facts` to add.

    Returns the differences between the environments, or None.
    """
    now = environment()
    before = record["resumed"][-1] if record["resumed"] else record
    changes = [
        f"{name} {before[part].get(name)} -> {value}"
        for part in now
        for name, value in now[part].items()
        if before[part].get(name) != value
    ]
    if changes or facts:
        record["resumed"].append(now | facts)
    return "; ".join(changes) or None


def continued(folder: Path, stored: TrainConfig, config: TrainConfig) -> TrainConfig:
    """Return the settings of a continued run: the stored ones, with the epochs and the text path of `config`.

    If the run has lost its tokenizer.json, the tokenizer is that of `config`.

    Raises
    ------
    RunError
        If another setting differs, or if the number of epochs differs and the learning rate depends on it.
    fastpe.text.corpus.TextNotFound
        If `config` names a text that differs from the stored one.
    """
    before, now = stored.to_dict(), config.to_dict()
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    places = config.text_places or ((config.data,) if "data" in changed else stored.text_places)
    if stored.digest is not None and stored.digest == config.digest and "data" in changed:
        changed.remove("data")
    how = f"To train its weights further with other settings, start a new run: fastpe train --from {folder}"
    if changed == ["epochs"] and schedule.depends_on_epochs(stored):
        raise RunError(
            f"run {folder} cannot continue to {config.epochs} epochs: its learning rate falls until the end of epoch "
            f"{stored.epochs} (decay {stored.decay!r}), so all updates would have been different. {how}"
        )
    if set(changed) - {"epochs"}:
        told = "; ".join(f"{name} was {before.get(name)!r}, now {now.get(name)!r}" for name in changed)
        raise RunError(f"run {folder} cannot be resumed with other settings: {told}. {how}")
    content = stored.tokenizer_content or config.tokenizer_content
    found = replace(stored, epochs=config.epochs, text_places=places, tokenizer_content=content)
    if found.symbols is not None and (found.text_places != stored.text_places or "epochs" in changed):
        found.read_text()  # raises before anything is written
    return found


def check_target(path: str | Path, config: TrainConfig, resume: bool) -> TrainConfig:
    """Raise, before any work, if a run folder cannot be created or continued; return the settings of the run.

    Raises
    ------
    RunError, DamagedFileError
        As `run_folder.Run.create` and `Run.resume` do.
    """
    path = Path(path)
    if not is_there(path):
        check_folder(path.parent)
        return config
    if not resume:
        raise exists_already(path)
    stored_config = read_config(path)
    check_folder(path)
    return config if stored_config is None else continued(path, stored_config, config)


def exists_already(path: Path) -> RunError:
    """Return the error for a run folder whose path exists already, with FileExistsError as its cause."""
    error = RunError(f"run folder {path} exists already: choose another, or resume it")
    error.__cause__ = FileExistsError()
    return error


def is_there(path: Path) -> bool:
    """Return whether a run folder exists; a file or a broken link in its place is an error."""
    if path.is_symlink() and not path.exists():
        raise RunError(f"run folder {path} cannot be used: it is a broken link")
    if path.is_file():
        raise RunError(f"run folder {path} cannot be used: it is a file, and a folder is expected")
    return path.exists()


def check_folder(folder: str | Path) -> None:
    """Raise if a folder cannot be created or written to.

    Raises
    ------
    RunError
    """
    folder = Path(folder).absolute()
    nearest = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    if not nearest.is_dir():
        raise RunError(f"{folder} cannot be written: {nearest} is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise RunError(f"{folder} cannot be written: no permission for {nearest}")


def unwritable(path: Path, error: OSError) -> RunError:
    """Return the RunError for a run folder that cannot be written because of an OSError."""
    return RunError(f"run folder {path} cannot be written: {error.strerror or error}")


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value, independent of its formatting."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
