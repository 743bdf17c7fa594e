"""Listeners that log a training: to a CSV file in the run folder, or to TensorBoard.

A listener is a function of one event of `fastpe.training.events`. `fastpe.train(..., progress=[...])` calls each
listener of a list. The docstring of `CsvLog` shows how to write one.
"""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastpe.base import files, validation
from fastpe.base.tables import csv_text
from fastpe.training import metrics_file
from fastpe.training.events import EpochDone, Event, LengthTested, Listener, Started, Stepped

CSV, TENSORBOARD = "metrics.csv", "tensorboard"
"""The file and the folder in a run folder."""
_WRITERS = ("tensorboardX", "torch.utils.tensorboard")
MISSING = "the writer of TensorBoard is not installed: pip install tensorboardX"


class CsvLog:
    """Write the losses of each epoch into ``metrics.csv`` in the run folder.

    The columns are ``epoch``, ``step``, ``loss`` and ``seconds`` and, if there is validation, one for each of its
    metrics, such as ``validation_loss``. The file is written again after each epoch from the epochs that the run folder
    records, so a resumed run has each epoch once.

    Notes
    -----
    A listener of your own is a function of one event. This one prints the loss of each epoch::

        from fastpe.training.events import EpochDone

        def show_loss(event):
            match event:
                case EpochDone(epoch=epoch, loss=loss):
                    print(epoch, loss)

        fastpe.train(config, out="runs/rope", progress=[show_loss, fastpe.CsvLog()])

    The documentation has listeners for Weights & Biases and MLflow ("Training and resuming").

    Examples
    --------
    >>> import tempfile
    >>> from fastpe.training.config import TrainConfig
    >>> from fastpe.training.loop import train
    >>> config = TrainConfig("nope", width=8, hidden=8, train_length=5, samples=64, epochs=2, test_lengths=(5,),
    ...                      test_sequences=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train(config, out=f"{folder}/run", progress=[CsvLog()]).run
    ...     lines = (run / "metrics.csv").read_text().splitlines()
    >>> lines[0], len(lines)
    ('epoch,step,loss,seconds', 3)
    """

    def __init__(self) -> None:
        self._run: Path | None = None
        self._history: list[dict[str, Any]] = []

    def __call__(self, event: Event) -> None:
        """Write what the event reports."""
        match event:
            case Started(config, run, step):
                self._run = _folder(run, "CsvLog")
                self._history, _ = metrics_file.cut(self._run, config, step // config.steps_per_epoch)
                self._write()
            case EpochDone(epoch, step, loss, seconds, validation):
                own = {"epoch": epoch, "step": step, "loss": loss, "seconds": seconds}
                self._history.append(own if validation is None else {**own, "validation": validation})
                self._write()

    def _write(self) -> None:
        if self._run is None or not self._history:
            return
        rows = [_flat(line) for line in self._history]
        head = list(dict.fromkeys(name for row in rows for name in row))
        content = csv_text(head, [[row.get(name) for name in head] for row in rows])
        files.write_file(self._run / CSV, content.encode())


class TensorBoardLog:
    """Write losses for TensorBoard into the folder ``tensorboard`` of the run folder.

    It needs tensorboardX, or PyTorch with tensorboard. ``train/loss`` is the loss of each update; ``train/epoch loss``
    and ``validation/...`` are the losses of each epoch. ``test/...`` are the test metrics; the test length takes the
    place of the step. A resumed run continues the curves after its last checkpoint.

    Raises
    ------
    ModuleNotFoundError
        If no writer is installed.

    Examples
    --------
    >>> fastpe.train(config, out="runs/rope", progress=[TensorBoardLog()])  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._make = _writer()
        self._to: Any = None

    def __call__(self, event: Event) -> None:
        """Write what the event reports."""
        match event:
            case Started(_, run, step, finished):
                folder = _folder(run, "TensorBoardLog") / TENSORBOARD
                if not finished:
                    self._to = self._make(str(folder), purge_step=step + 1 if step else None)
            case Stepped(_, step, loss):
                self._add("train/loss", loss, step)
            case EpochDone(_, step, loss, _, validation):
                self._add("train/epoch loss", loss, step)
                for name, value in (validation or {}).items():
                    self._add(f"validation/{name}", value, step)
                if self._to is not None:
                    self._to.flush()
            case LengthTested(length, metrics):
                for name, value in metrics.items():
                    self._add(f"test/{name} by length", value, int(str(length).rpartition("-")[2]))
                if self._to is not None:
                    self._to.flush()

    def _add(self, name: str, value: Any, step: int) -> None:
        if self._to is not None and isinstance(value, int | float):
            self._to.add_scalar(name, value, step)


LOGS: dict[str, Callable[[], Listener]] = {"csv": CsvLog, "tensorboard": TensorBoardLog}
"""The listeners of ``fastpe train --log``, by name."""


def joined(progress: object) -> Listener | None:
    """Return one listener for the argument `progress` of `fastpe.train`: a listener, several, or None.

    Raises
    ------
    TypeError
        If an element is not a function.
    """
    if progress is None or callable(progress):
        return progress
    if progress is False:
        return lambda event: None
    if isinstance(progress, str | bytes) or not isinstance(progress, Sequence):
        raise TypeError(f"progress must be a function of one event, False or None, not {validation.shown(progress)}")
    several = tuple(progress)
    for each in several:
        if not callable(each):
            raise TypeError(f"progress must hold functions of one event, not {validation.shown(each)}")

    def call_all(event: Event) -> None:
        for each in several:
            each(event)

    return call_all


def _folder(run: Path | None, name: str) -> Path:
    if run is None:
        raise ValueError(f"{name} writes into the run folder: give train the argument out")
    return run


def _flat(line: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in line.items() if name != "validation"}
    return found | {f"validation_{name}": value for name, value in line.get("validation", {}).items()}


def _writer() -> Any:
    for name in _WRITERS:
        try:
            return importlib.import_module(name).SummaryWriter
        except ImportError:
            continue
    raise ModuleNotFoundError(MISSING)
