"""Run folders: creating, continuing and reading them.

======================  ===============================================================================================
``config.json``         all settings, the fixed parts of the protocol, versions and CPU, and a checksum
``checkpoint.safetensors``  the state for resuming: parameters, moments of Adam, epoch and step, and, with
                        validation, the parameters after the best epoch
``start.safetensors``   if the run starts from another one: the parameters before the first update
``tokenizer.json``      if tokens are subwords: the tokenizer
``metrics.jsonl``       one line per epoch
``model.safetensors``   the parameters after the last or the best epoch, which `load` reads
``result.json``         the training loss and the test metrics
``seal.json``           the checksum of ``result.json``, written last, when the run is finished
======================  ===============================================================================================
"""

import contextlib
import itertools
import os
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from fastpe.base import files, validation
from fastpe.base.files import TensorFile
from fastpe.base.stored import DamagedFileError, damaged
from fastpe.model import loading, model_file
from fastpe.model.adam import GROUPS, Adam
from fastpe.model.transformer import Transformer
from fastpe.text import subwords
from fastpe.training import config_file, forms, metrics_file, result_file
from fastpe.training.config import TrainConfig
from fastpe.training.config_file import RunError, read_config
from fastpe.training.stopping import Progress

_BEST = "best."  # prefix of the names of the best epoch's parameters
_CHECKPOINT, _MODEL, _START = "checkpoint.safetensors", "model.safetensors", "start.safetensors"
FILES = (
    config_file.NAME, _CHECKPOINT, _START, subwords.NAME, metrics_file.NAME, _MODEL, result_file.NAME, result_file.SEAL,
)  # fmt: skip


class Run:
    """An open run folder, locked so that no other process can work in it.

    `create`, `create_numbered` and `resume` return an open run, which is a context manager.

    Attributes
    ----------
    path : pathlib.Path
    config : TrainConfig
    notes : list of str
        Messages for the user about the state of the folder.
    new_epochs : bool
        Whether `resume` changed the number of epochs.
    """

    def __init__(self, path: Path, config: TrainConfig) -> None:
        self.path, self.config = path, config
        self.notes: list[str] = []
        self.new_epochs = False
        self._record: dict[str, Any] = {}
        lock = files.lock_folder(path)
        if lock is None:
            raise RunError(f"another process is working in {path}")
        self._lock = lock
        files.remove_leftovers(path)

    def __repr__(self) -> str:
        return f"<Run in {self.path}: {self.config.encoding}, task {self.config.task}, seed {self.config.seed}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unlock the folder for other processes."""
        self._lock.close()

    @classmethod
    def create(cls, path: str | Path, config: TrainConfig, options: Mapping[str, Any]) -> Self:
        """Create a run folder; `options` are all options of the encoding, including defaults, for the record.

        Raises
        ------
        RunError
            If the folder exists, or cannot be created or written. A new folder that cannot be written is removed.
        """
        path = Path(path)
        config_file.check_target(path, config, resume=False)
        try:
            files.make_folder(path)
        except FileExistsError as error:
            raise config_file.exists_already(path) from error
        except OSError as error:
            raise config_file.unwritable(path, error) from error
        run = cls(path, config)
        try:
            run._begin(options)
        except RunError:
            run.close()
            with contextlib.suppress(OSError):
                path.rmdir()
            raise
        return run

    def _begin(self, options: Mapping[str, Any]) -> None:
        self._record = config_file.make(self.config, options)
        try:
            with contextlib.suppress(PermissionError):  # the parent may be writable but not readable
                files.sync_folder(self.path.parent)
            config_file.write(self.path, self._record)
            self.keep_tokenizer(self.config.tokenizer_content)
        except OSError as error:
            with contextlib.suppress(OSError):
                (self.path / config_file.NAME).unlink()
            if error.errno is None:  # a signal handler raised it, not the operating system
                raise
            raise config_file.unwritable(self.path, error) from error

    @classmethod
    def create_numbered(cls, config: TrainConfig, options: Mapping[str, Any], root: str | Path = "runs") -> Self:
        """Create ``<root>/<encoding>-<n>`` with the first free n, also if other processes do the same.

        The pattern over layers "rope*3,nope" becomes "ropex3-nope", because some systems do not allow the characters of
        patterns in the name of a folder.
        """
        name = config.encoding.replace("*", "x").replace(",", "-")
        for number in itertools.count():
            path = Path(root) / f"{name}-{number}"
            if not path.exists():
                try:
                    return cls.create(path, config, options)
                except RunError as error:
                    if not isinstance(error.__cause__, FileExistsError):
                        raise
        raise AssertionError("unreachable")

    @classmethod
    def resume(cls, path: str | Path, config: TrainConfig, options: Mapping[str, Any]) -> Self:
        """Continue a run, or start a new one if the folder is missing or contains only leftovers of a killed start.

        The run keeps its settings. Only `epochs` and the path of its text may change (see `config_file.continued`).

        Raises
        ------
        RunError
            If the folder belongs to a run with other settings, is in use, or is not a run folder.
        DamagedFileError
            If the record is damaged, or if `epochs` changes and the checkpoint is damaged.
        """
        path = Path(path)
        if not config_file.is_there(path):
            run = cls.create(path, config, options)
            run.notes.append(f"{path} does not exist: starting a new run")
            return run
        run = cls(path, config)
        try:
            stored = read_config(path)
            if stored is None:
                run._begin(options)
                run.notes.append(f"{path} contains no run yet: starting a new run")
            else:
                run.config = config_file.continued(path, stored, config)
                run._record = config_file.read(path)
                if run.config.epochs != stored.epochs:
                    run._set_epochs(stored)
                run.keep_tokenizer(run.config.tokenizer_content)
                run._note_environment()
                if run.config.text_places != stored.text_places and config_file.note_text(run._record, run.config):
                    config_file.write(path, run._record)
        except BaseException:
            run.close()
            raise
        return run

    def keep_tokenizer(self, content: bytes) -> None:
        """Write the content of the tokenizer, if there is one, unless the folder has it."""
        if content and not os.path.lexists(self.path / subwords.NAME):
            files.write_file(self.path / subwords.NAME, content)

    def _note_environment(self) -> None:
        """Record, with a note, that an unfinished run continues with other versions or on another CPU."""
        if self.read_result() is not None:
            return
        if changes := config_file.note_environment(self._record):
            config_file.write(self.path, self._record)
            self.notes.append(
                f"{self.path} was started in another environment ({changes}): its bits may differ from those of an "
                "uninterrupted run"
            )

    def _set_epochs(self, stored: TrainConfig) -> None:
        """Set the new number of epochs, in an order that leaves a resumable run after a crash at any time.

        The old result and model are deleted first, which leaves an unfinished run. Its checkpoint stays valid, because
        the updates before the checkpoint do not depend on the number of epochs.
        """
        path, now = self.path / _CHECKPOINT, self.config.epochs
        if os.path.lexists(path):
            done = self._checked(TensorFile(path), stored).facts["epoch"]
            if now < done:
                raise RunError(f"epochs must be at least {done}, the finished epochs of run {self.path}, not {now}")
        elif os.path.lexists(self.path / result_file.SEAL):  # a finished run without a checkpoint
            raise RunError(
                f"run {self.path} cannot continue to {now} epochs: it has no {_CHECKPOINT}. To train its weights "
                f"further, start a new run: fastpe train --from {self.path}"
            )
        result_file.discard(self.path)
        with contextlib.suppress(FileNotFoundError):
            (self.path / _MODEL).unlink()
        config_file.note_environment(self._record, epochs=stored.epochs)
        self._record["config"] = self.config.to_dict()
        config_file.write(self.path, self._record)
        self.new_epochs = True
        self.notes.append(f"{self.path}: epochs was {stored.epochs}, now {now}")

    def _checked(self, file: TensorFile, config: TrainConfig) -> TensorFile:
        """Check that a checkpoint belongs to these settings, with the current or an earlier number of epochs."""
        digest = _check_owner(file, config, *self._earlier(config))
        file.check_facts(forms.checkpoint(config, digest))
        return file

    def _earlier(self, config: TrainConfig) -> list[TrainConfig]:
        """Return the settings with the earlier numbers of epochs of the run."""
        return [replace(config, epochs=each["epochs"]) for each in self._record["resumed"] if "epochs" in each]

    def _keep_record(self) -> None:
        """Write the record again if it was deleted or changed, because the folder is unreadable without a record."""
        try:
            if config_file.digest(config_file.read(self.path)) == config_file.digest(self._record):
                return
        except (OSError, ValueError):
            pass
        config_file.write(self.path, self._record)
        self._note(f"{self.path / config_file.NAME} was lost or changed during training: it is written again")

    def save_checkpoint(self, adam: Adam, progress: Progress, best: Mapping[str, np.ndarray] | None = None) -> None:
        """Write the state for resuming; `best` contains the best epoch's parameters, if there is one."""
        self._keep_record()
        _, tensors = adam.copies()
        tensors |= {f"{_BEST}{name}": array for name, array in (best or {}).items()}
        facts = {"schema": config_file.SCHEMA, "config": _digest(self.config), **asdict(progress)}
        files.write_tensors(self.path / _CHECKPOINT, tensors, facts)

    def holds_model(self) -> bool:
        """Return whether the file of the trained model exists and is valid."""
        try:
            load(self.path)
        except (OSError, ValueError):
            return False
        return True

    def restore(self, model: Transformer, adam: Adam, best: dict[str, np.ndarray] | None = None) -> Progress:
        """Load the last checkpoint, if there is one, into a model and its optimizer.

        `best` receives the best epoch's parameters, if there is one.

        Raises
        ------
        DamagedFileError
            If the checkpoint differs from what was written, or belongs to another configuration.
        """
        path = self.path / _CHECKPOINT
        if not os.path.lexists(path):
            return Progress()
        file = self._checked(TensorFile(path), self.config)
        groups = _groups(model, adam)
        if file.facts["best_epoch"]:
            own = {name: np.empty_like(array) for name, array in model.parameters.items()}
            groups[_BEST] = own if best is None else best
            groups[_BEST].update(own)
        model_file.compare(
            file, {f"{p}{n}": (t.shape, t.dtype) for p, group in groups.items() for n, t in group.items()}
        )
        tensors = file.read()
        # parameters are always finite when they are written; moments of Adam may overflow without harm
        for prefix in ("model.", _BEST):
            for name in groups.get(prefix, ()):
                if not np.isfinite(tensors[f"{prefix}{name}"]).all():
                    raise damaged(path, f"{prefix}{name} is not finite")
        for prefix, group in groups.items():
            for name, tensor in group.items():
                tensor[...] = tensors[f"{prefix}{name}"]
        progress = Progress(**{f.name: file.facts[f.name] for f in fields(Progress)})
        adam.steps = progress.step
        return progress

    def save_start(self, model: Transformer, left_out: list[str], initial: list[str]) -> None:
        """Write the parameters before the first update, so that the run does not need the run that it starts from
        again.

        The record names the parameters of that run that are left out, and the parameters that have initial values.
        """
        if left_out or initial:
            self._record["start"] = {"left_out": left_out, "initial": initial}
            config_file.write(self.path, self._record)
        self._write_model(_START, model)

    def restore_start(self, model: Transformer) -> bool:
        """Load the parameters that `save_start` wrote into a model; return False if there are none."""
        path = self.path / _START
        if not os.path.lexists(path):
            return False
        file = TensorFile(path)
        _check_owner(file, self.config, *self._earlier(self.config))
        file.check_facts(model_file.FACTS)
        model_file.compare(file, {name: (t.shape, t.dtype) for name, t in model.parameters.items()})
        model.parameters = file.read()
        return True

    def save_metrics(self, history: list[dict[str, Any]]) -> None:
        """Write one line per epoch."""
        metrics_file.write(self.path, history)

    def cut_metrics(self, epochs: int) -> list[dict[str, Any]]:
        """Keep the lines of the first `epochs` epochs and return them; damaged lines are dropped with a note."""
        history, lacking = metrics_file.cut(self.path, self.config, epochs)
        if lacking:
            self.notes.append(f"{self.path / metrics_file.NAME} lacks {lacking} of {epochs} epochs")
        return history

    def save_model(self, model: Transformer) -> None:
        """Write the trained parameters."""
        self._write_model(_MODEL, model)

    def _write_model(self, name: str, model: Transformer) -> None:
        digest = _digest(self.config)
        model_file.write(self.path / name, model.config, model.copies(), model.vocabulary, config=digest)

    def save_result(self, result: dict[str, Any]) -> None:
        """Write the result and its seal, the last files of a run."""
        self._keep_record()
        result_file.write(self.path, result)

    def read_result(self) -> dict[str, Any] | None:
        """Read the result of a finished run; None if there is no result or, with a note, if the result is damaged."""
        try:
            found = result_file.read(self.path, self.config)
        except DamagedFileError as error:
            self._note(f"{error}; it is computed again")
            return None
        return None if found is None else found[0]

    def restore_finished(self, model: Transformer) -> Progress | None:
        """Load the model of a finished run without a checkpoint, and return the progress; None, with a note, if
        impossible.
        """
        if os.path.lexists(self.path / _CHECKPOINT):
            return None
        result = self.read_result()
        if result is not None and self.holds_model():
            for name, tensor in load(self.path).parameters.items():
                model.parameters[name][...] = tensor
            self._note(f"{self.path} has no checkpoint, but its result and its model are valid")
            done = result["train"]
            epochs = done["steps"] // self.config.steps_per_epoch
            return Progress(epochs, done["steps"], done["loss"], done["seconds"])
        if any((self.path / name).exists() for name in (metrics_file.NAME, _MODEL, result_file.NAME)):
            self._note(f"{self.path} has no checkpoint to continue from: training starts again from its first epoch")
        return None

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def load(path: str | Path) -> Transformer:
    """Load the trained model of a run folder, or of a file that `Transformer.save` wrote.

    Parameters
    ----------
    path : str or pathlib.Path
        A run folder whose training is finished, or a file.

    Returns
    -------
    Transformer

    Raises
    ------
    FileNotFoundError
        If the folder or file does not exist, or the folder contains no model yet.
    DamagedFileError
        If a file is truncated, or if any of its bytes has changed. This is a ValueError.

    Examples
    --------
    >>> load("runs/none")
    Traceback (most recent call last):
        ...
    FileNotFoundError: there is no run folder or model file runs/none
    """
    path = validation.path("path", path)
    if not path.exists():
        raise FileNotFoundError(f"there is no run folder or model file {path}")
    if not path.is_dir():
        return loading.read(path)
    config = read_config(path)
    if config is None:
        raise FileNotFoundError(f"{path} contains no run: it has no {config_file.NAME}")
    try:
        file = TensorFile(model_path(path))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} contains no trained model yet: its training is not finished") from error
    _check_owner(file, config)
    file.check_facts(model_file.FACTS)
    model = loading.of(file, config.model)
    model.vocabulary = config.symbols
    return model


def check_sizes(path: Path, config: TrainConfig) -> None:
    """Raise if files of a run folder are too large to be copied; only their sizes and headers are read.

    Raises
    ------
    DamagedFileError
        If a file is larger than its kind allows, or than its header states.
    ValueError
        If a file is larger than the memory of this machine.
    """
    for name in (_CHECKPOINT, _START, _MODEL):
        if os.path.lexists(path / name):
            TensorFile(path / name)
            validation.room(f"{path / name}", (path / name).stat().st_size)
    if os.path.lexists(path / subwords.NAME) and (path / subwords.NAME).stat().st_size > subwords.MOST_BYTES:
        raise damaged(path / subwords.NAME, f"it is larger than {subwords.MOST_BYTES} bytes")
    if os.path.lexists(path / metrics_file.NAME):
        with files.open_file(path / metrics_file.NAME) as metrics:
            if os.fstat(metrics.fileno()).st_size > (most := metrics_file.most_bytes(config)):
                raise damaged(path / metrics_file.NAME, f"it is larger than {most} bytes")


def model_path(path: str | Path) -> Path:
    """Return the path of the model in a run folder, or of a model file."""
    return Path(path) / _MODEL if Path(path).is_dir() else Path(path)


def _groups(model: Transformer, adam: Adam) -> dict[str, dict[str, np.ndarray]]:
    own = model.parameters, adam.first, adam.second
    return {f"{group}.": arrays for group, arrays in zip(GROUPS, own, strict=True)}


def _check_owner(file: TensorFile, *configs: TrainConfig) -> str:
    """Return the digest of the settings that the file belongs to; raise unless they are one of `configs`."""
    digest = str(file.facts.get("config"))
    if file.facts.get("schema") != config_file.SCHEMA or digest not in map(_digest, configs):
        raise DamagedFileError(f"{file.path} does not belong to the {config_file.NAME} in its folder")
    return digest


def _digest(config: TrainConfig) -> str:
    return config_file.digest(config.to_dict())
