"""Run folders: made, continued, read.

======================  ===============================================================================================
``config.json``         all settings, what the protocol fixes beside them, versions and CPU; carries its own checksum
``checkpoint.safetensors``  the single truth for resuming: parameters, Adam's moments, epoch and step, and, with
                        validation, the parameters after the best epoch
``start.safetensors``   of a run that starts from another one: the parameters before the first update
``metrics.jsonl``       one line per epoch
``model.safetensors``   the parameters after the last epoch, or the best one; what `load` reads
``result.json``         the training loss and the test metrics
``seal.json``           the checksum of ``result.json``: there last, when the run is finished
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
from fastpe.training import config_file, forms, metrics_file, result_file
from fastpe.training.config import TrainConfig
from fastpe.training.config_file import RunError, read_config
from fastpe.training.stopping import Progress

_BEST = "best."  # what the names of the best epoch's parameters begin with
_CHECKPOINT, _MODEL, _START = "checkpoint.safetensors", "model.safetensors", "start.safetensors"
FILES = (config_file.NAME, _CHECKPOINT, _START, metrics_file.NAME, _MODEL, result_file.NAME, result_file.SEAL)


class Run:
    """A run folder that this process works in, and no other process as long as it is open.

    Made by `create`, `create_numbered` or `resume`; a context manager.

    Attributes
    ----------
    path : pathlib.Path
    config : TrainConfig
    notes : list of str
        What the user should know of how the folder was found.
    new_epochs : bool
        Whether `resume` gave the run another number of epochs.
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
        """Let other processes work in the folder."""
        self._lock.close()

    @classmethod
    def create(cls, path: str | Path, config: TrainConfig, options: Mapping[str, Any]) -> Self:
        """Make a new run folder; `options` are the encoding's, defaults included, for the record.

        Raises
        ------
        RunError
            If the folder exists or cannot be made or written; then nothing is left of it.
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
            with contextlib.suppress(PermissionError):  # who may make a folder in another may not be allowed to read it
                files.sync_folder(self.path.parent)
            config_file.write(self.path, self._record)
        except OSError as error:
            if error.errno is None:  # a signal's handler raised it
                raise
            raise config_file.unwritable(self.path, error) from error

    @classmethod
    def create_numbered(cls, config: TrainConfig, options: Mapping[str, Any], root: str | Path = "runs") -> Self:
        """Make ``<root>/<encoding>-<n>`` with the first n that is free, also if others are doing the same.

        Of a pattern over layers, "rope*3,nope", the name is "ropex3-nope": not all that a name may hold can be in that
        of a folder everywhere.
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
        """Continue in a run folder, or start afresh where there is none or only what a killed start left behind.

        A run goes on with its own settings. Only its `epochs`, and the place of its text, may be others (see
        `config_file.continued`).

        Raises
        ------
        RunError
            If the folder belongs to a run with other settings, is in use, or is no run folder.
        DamagedFileError
            If its record or, where there are other epochs, its checkpoint is damaged.
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
                run.notes.append(f"{path} holds no run yet: starting a new run")
            else:
                run.config = config_file.continued(path, stored, config)
                run._record = config_file.read(path)
                if run.config.epochs != stored.epochs:
                    run._set_epochs(stored)
                run._note_environment()
                if run.config.text_places != stored.text_places and config_file.note_text(run._record, run.config):
                    config_file.write(path, run._record)
        except BaseException:
            run.close()
            raise
        return run

    def _note_environment(self) -> None:
        """Say, and record, that an unfinished run continues under other versions or on another CPU."""
        if self.read_result() is not None:
            return
        if changes := config_file.note_environment(self._record):
            config_file.write(self.path, self._record)
            self.notes.append(
                f"{self.path} was begun elsewhere ({changes}): its bits may differ from an uninterrupted run's"
            )

    def _set_epochs(self, stored: TrainConfig) -> None:
        """Give the run its new number of epochs, in an order in which a crash always leaves a run that can be resumed.

        The result and the model of the old number go first: without them the folder holds an unfinished run. Its
        checkpoint stays valid, since the updates up to there do not depend on the number.
        """
        path, now = self.path / _CHECKPOINT, self.config.epochs
        if os.path.lexists(path):
            done = self._checked(TensorFile(path), stored).facts["epoch"]
            if now < done:
                raise RunError(f"epochs must be at least {done}, which run {self.path} has done already, not {now}")
        elif os.path.lexists(self.path / result_file.SEAL):  # it is finished, and there is nothing to train further
            raise RunError(
                f"run {self.path} cannot go on to {now} epochs: it has no {_CHECKPOINT}. To train its weights further, "
                f"start a new run: fastpe train --from {self.path}"
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
        """The checkpoint, which must be that of these settings, or of the same with an earlier number of epochs."""
        digest = _check_owner(file, config, *self._earlier(config))
        file.check_facts(forms.checkpoint(config, digest))
        return file

    def _earlier(self, config: TrainConfig) -> list[TrainConfig]:
        """The settings with the numbers of epochs that the run had before."""
        return [replace(config, epochs=each["epochs"]) for each in self._record["resumed"] if "epochs" in each]

    def _keep_record(self) -> None:
        """Write the record again if it was deleted or changed meanwhile: nobody could read the folder without it."""
        try:
            if config_file.digest(config_file.read(self.path)) == config_file.digest(self._record):
                return
        except (OSError, ValueError):
            pass
        config_file.write(self.path, self._record)
        self._note(f"{self.path / config_file.NAME} was lost or changed during the training: it is written again")

    def save_checkpoint(self, adam: Adam, progress: Progress, best: Mapping[str, np.ndarray] | None = None) -> None:
        """Write all that is needed to go on from here; `best` are the best epoch's parameters, where there is one."""
        self._keep_record()
        _, tensors = adam.copies()
        tensors |= {f"{_BEST}{name}": array for name, array in (best or {}).items()}
        facts = {"schema": config_file.SCHEMA, "config": _digest(self.config), **asdict(progress)}
        files.write_tensors(self.path / _CHECKPOINT, tensors, facts)

    def holds_model(self) -> bool:
        """Whether the trained model's file is there and whole."""
        try:
            load(self.path)
        except (OSError, ValueError):
            return False
        return True

    def restore(self, model: Transformer, adam: Adam, best: dict[str, np.ndarray] | None = None) -> Progress:
        """Bring a model and its optimiser to the last checkpoint; at the start of a run there is none to bring them to.

        `best` gets the best epoch's parameters, where there is one.

        Raises
        ------
        DamagedFileError
            If the checkpoint is not what was written, or is that of another configuration.
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
        for prefix in ("model.", _BEST):  # training writes no others; Adam's may overflow and be harmless
            for name in groups.get(prefix, ()):
                if not np.isfinite(tensors[f"{prefix}{name}"]).all():
                    raise damaged(path, f"{prefix}{name} is not finite")
        for prefix, group in groups.items():
            for name, tensor in group.items():
                tensor[...] = tensors[f"{prefix}{name}"]
        progress = Progress(**{f.name: file.facts[f.name] for f in fields(Progress)})
        adam.steps = progress.step
        return progress

    def save_start(self, model: Transformer) -> None:
        """Write the parameters before the first update, so that the run never needs those that it starts from again."""
        self._write_model(_START, model)

    def restore_start(self, model: Transformer) -> bool:
        """Give a model the parameters that `save_start` wrote; False where there are none."""
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
        """Cut the lines back to the first `epochs` epochs and return them; damaged ones are left out, with a note."""
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
        """The result of a finished run, or None (also, with a note, if it is damaged: it can be made again)."""
        try:
            found = result_file.read(self.path, self.config)
        except DamagedFileError as error:
            self._note(f"{error}; it is made again")
            return None
        return None if found is None else found[0]

    def restore_finished(self, model: Transformer) -> Progress | None:
        """Bring a model to the end of a finished run whose checkpoint is gone; None, noted, where that cannot be."""
        if os.path.lexists(self.path / _CHECKPOINT):
            return None
        result = self.read_result()
        if result is not None and self.holds_model():
            for name, tensor in load(self.path).parameters.items():
                model.parameters[name][...] = tensor
            self._note(f"{self.path} has no checkpoint, but its result and its model are whole")
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
    """The trained model of a run folder, or the model of a file that `Transformer.save` wrote.

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
        If there is no such folder or file, or the folder holds no model yet.
    DamagedFileError
        If a file is truncated or any byte of it differs from what was written (a ValueError).

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
        raise FileNotFoundError(f"{path} holds no run: it has no {config_file.NAME}")
    try:
        file = TensorFile(model_path(path))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} holds no trained model yet: its training was not finished") from error
    _check_owner(file, config)
    file.check_facts(model_file.FACTS)
    model = loading.of(file, config.model)
    model.vocabulary = config.symbols
    return model


def check_sizes(path: Path, config: TrainConfig) -> None:
    """Refuse a run folder with files that are too large to be copied: only their sizes and headers are read.

    Raises
    ------
    DamagedFileError
        If a file is larger than such a file can be, or than its header states.
    ValueError
        If it is larger than this machine's memory.
    """
    for name in (_CHECKPOINT, _START, _MODEL):
        if os.path.lexists(path / name):
            TensorFile(path / name)
            validation.room(f"{path / name}", (path / name).stat().st_size)
    if os.path.lexists(path / metrics_file.NAME):
        with files.open_file(path / metrics_file.NAME) as metrics:
            if os.fstat(metrics.fileno()).st_size > (most := metrics_file.most_bytes(config)):
                raise damaged(path / metrics_file.NAME, f"it is larger than {most} bytes")


def model_path(path: str | Path) -> Path:
    """The file that holds the model of a run folder, or of a model file."""
    return Path(path) / _MODEL if Path(path).is_dir() else Path(path)


def _groups(model: Transformer, adam: Adam) -> dict[str, dict[str, np.ndarray]]:
    own = model.parameters, adam.first, adam.second
    return {f"{group}.": arrays for group, arrays in zip(GROUPS, own, strict=True)}


def _check_owner(file: TensorFile, *configs: TrainConfig) -> str:
    """The digest of the settings that the file belongs to, which must be one of these."""
    digest = str(file.facts.get("config"))
    if file.facts.get("schema") != config_file.SCHEMA or digest not in map(_digest, configs):
        raise DamagedFileError(f"{file.path} does not belong to the {config_file.NAME} beside it")
    return digest


def _digest(config: TrainConfig) -> str:
    return config_file.digest(config.to_dict())
