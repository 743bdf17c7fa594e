"""`CsvLog` and `TensorBoardLog`: what they write, also after a resume, and several listeners of one training."""

import sys
from types import SimpleNamespace

import pytest

import fastpe
from fastpe.training import logging, metrics_file
from fastpe.training.events import EpochDone, LengthTested, Started, Stepped

CONFIG = fastpe.TrainConfig("nope", samples=64, batch=32, epochs=3)
LINES = [{"epoch": epoch, "step": 2 * epoch, "loss": 0.5 / epoch, "seconds": 1.0} for epoch in (1, 2, 3)]


def train_epochs(log, folder, first, last):
    """Report epochs as `fastpe.train` does: the run folder has the metrics before the listener is called."""
    log(Started(CONFIG, folder, 2 * (first - 1)))
    for epoch in range(first, last + 1):
        metrics_file.write(folder, LINES[:epoch])
        log(EpochDone(**LINES[epoch - 1]))


def test_a_resumed_run_has_each_epoch_once_in_its_csv(tmp_path):
    train_epochs(fastpe.CsvLog(), tmp_path, 1, 2)
    train_epochs(fastpe.CsvLog(), tmp_path, 2, 3)  # the checkpoint of epoch 2 was not written
    expected = ["epoch,step,loss,seconds", *(f"{n},{2 * n},{0.5 / n},1.0" for n in (1, 2, 3))]
    assert (tmp_path / "metrics.csv").read_text().splitlines() == expected


def test_the_csv_has_a_column_for_each_validation_metric(tmp_path):
    log = fastpe.CsvLog()
    log(Started(CONFIG, tmp_path, 0))
    log(EpochDone(1, 2, 0.5, 1.0, {"loss": 0.25, "exact": None}))
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert lines == ["epoch,step,loss,seconds,validation_loss,validation_exact", "1,2,0.5,1.0,0.25,"]


def test_a_log_needs_a_run_folder():
    with pytest.raises(ValueError, match="CsvLog writes into the run folder: give train the argument out"):
        fastpe.CsvLog()(Started(CONFIG, None, 0))


class Writer:
    """Stands in for the SummaryWriter of tensorboardX."""

    made: list = []  # noqa: RUF012 - the writers of one test

    def __init__(self, folder, purge_step):
        self.folder, self.purge_step, self.scalars = folder, purge_step, []
        Writer.made.append(self)

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))

    def flush(self):
        pass


def test_tensorboard_gets_losses_by_step_and_tests_by_length(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=Writer))
    monkeypatch.setattr(Writer, "made", [])
    for step in (0, 4):
        log = fastpe.TensorBoardLog()
        log(Started(CONFIG, tmp_path, step))
        log(Stepped(1, step + 1, 0.75, 32))
        log(EpochDone(1, step + 2, 0.5, 1.0, {"loss": 0.25, "exact": None}))
        log(LengthTested("51-100", {"exact": 0.125, "reason": "text"}))
    first, second = Writer.made
    assert (first.folder, first.purge_step, second.purge_step) == (str(tmp_path / "tensorboard"), None, 5)
    assert second.scalars == [
        ("train/loss", 0.75, 5), ("train/epoch loss", 0.5, 6), ("validation/loss", 0.25, 6),
        ("test/exact by length", 0.125, 100),
    ]  # fmt: skip


def test_without_a_writer_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(logging, "_WRITERS", ("no_such_package",))
    with pytest.raises(ModuleNotFoundError, match="pip install tensorboardX"):
        fastpe.TensorBoardLog()


def test_progress_takes_several_listeners():
    heard = []
    logging.joined([heard.append, heard.append])("event")
    assert heard == ["event"] * 2
    with pytest.raises(TypeError, match="progress must hold functions of one event, not 3"):
        logging.joined([heard.append, 3])
