"""The bar and its two listeners, by a made-up clock."""

import contextlib
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import fastpe
from fastpe.experiments.jobs import JobsStarted, RunEnded, RunStepped
from fastpe.training import loop, progress
from fastpe.training.events import EpochDone, LengthTested, Noted, Started, Stepped, TestStarted
from fastpe_cli.progress import JobReporter
from fastpe_cli.train import train

CONFIG = fastpe.TrainConfig(encoding="nope", samples=100, epochs=2, batch=50)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Seconds, to be set."""
    found = SimpleNamespace(now=100.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


@pytest.fixture(params=[io.StringIO, Terminal])
def stream(request, monkeypatch):
    """What stands in for standard error."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    return request.param()


def test_the_pace_is_that_of_what_was_done_since_the_first_report(clock):
    work = progress.Bar()
    work.open(1000, 100, "")
    assert (work.pace(), work.left()) == (0.0, "?")
    clock.now += 60  # compiling
    work.advance(10)
    assert (work.pace(), work.left()) == (0.0, "?")
    clock.now += 2
    work.skip(690)
    work.advance(20)
    assert (work.pace(), work.left()) == (10.0, "18 s")
    work.open(100_000, 0, "")
    assert work.left() == "?"
    work.advance(1)
    clock.now += 1
    work.advance(10)
    assert work.left() == "2.8 h"


def test_a_training_is_told_in_lines_and_on_a_terminal_with_a_bar(clock, stream):
    with contextlib.redirect_stderr(stream), progress.TrainingBar() as listener:
        listener(Started(CONFIG, Path("run"), 0))
        listener(Stepped(1, 1, 0.5, 50))
        clock.now += 0.5
        listener(Stepped(1, 2, 0.25, 50))
        listener(EpochDone(1, 2, 0.375, 1.0))
        listener(Noted("something to know"))
        assert listener.run == Path("run")
    shown = stream.getvalue()
    for line in (
        "training: nope, 100 sequences of 50 in run\n",
        "epoch 1/2  loss 0.375       100 sequences/s\n",
        "something to know\n",
    ):
        assert line in shown.replace("\r", "")
    if stream.isatty():
        assert "loss 0.25  100 sequences/s elapsed 0 s, remaining 1 s" in shown
    else:
        assert len(shown.splitlines()) == 3


def test_a_test_names_the_length_that_is_tested_on_a_terminal_alone(clock, stream):
    with contextlib.redirect_stderr(stream), progress.TrainingBar() as listener:
        listener(TestStarted((50, "51-100")))
        first = stream.getvalue()
        listener(LengthTested(50, {}))
        clock.now += 2
        second = stream.getvalue()[len(first) :]
        listener(LengthTested("51-100", {}))
        assert listener._progress is None
    if stream.isatty():
        assert "testing at length 50 " in first
        assert "testing at length 51-100 " in second
    else:
        assert stream.getvalue() == ""


def test_names_are_shown_without_control_characters(clock, stream):
    with contextlib.redirect_stderr(stream), progress.Bar() as bar:
        bar.line("a\x1b[2J\u202eb")
        bar.open(3, 0, "")
        bar.head("c\x1b[2J")
    assert stream.getvalue().startswith(r"a\x1b[2J\u202eb" + "\n")
    assert (r"c\x1b[2J" in stream.getvalue()) == stream.isatty()
    assert "\x1b[2J" not in stream.getvalue()


def test_training_by_a_clock_that_does_not_move_is_told(folder, capsys, monkeypatch):
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: 5.0))
    train.main(["--encoding", "nope", "--samples", "2", "--epochs", "1", "--train-length", "4", "--width", "8",
                "--hidden", "8", "--test-lengths", "4", "--out", "run"], standalone_mode=False)  # fmt: skip
    assert "trained in 0.0 s, - sequences/s\n" in capsys.readouterr().out


def test_a_run_that_is_finished_has_no_bar(stream):
    with contextlib.redirect_stderr(stream), progress.TrainingBar() as listener:
        listener(Started(CONFIG, Path("run"), CONFIG.steps, finished=True))
    assert stream.getvalue() == "run is finished: nothing to train\n"


def test_a_sweep_counts_what_its_runs_did_in_this_command(clock, stream):
    resumed, fresh = (
        SimpleNamespace(name=name, path=Path(name), config=SimpleNamespace(steps=100)) for name in ("one", "two")
    )
    with contextlib.redirect_stderr(stream), JobReporter() as listener:
        listener(JobsStarted(runs=3, reused=1, steps=300, reused_steps=100))
        listener(RunStepped(resumed, 50))  # done before this command
        clock.now += 5
        listener(RunStepped(resumed, 60))
        listener(RunStepped(fresh, 1))
        clock.now += 5
        listener(RunEnded(resumed, {"test": {"50": {"mse": 0.25}}}))
        listener(Noted("something to know"))
        listener(RunEnded(fresh, {"failed": "no memory"}))
    shown = stream.getvalue()
    for line in (
        "3 runs, 300 updates, 1 of them already finished\n",
        "[2/3] one: 0.25 at 50; 20 s left\n",  # 50 updates in 10 s, 99 to come
        "something to know\n",
        "[3/3] two: no memory; 0 s left\n",
    ):
        assert line in shown.replace("\r", "")
    assert ("1/3 runs" in shown) == ("2/3 runs" in shown) == stream.isatty()


def test_without_a_standard_error_nothing_is_said(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with progress.TrainingBar() as listener:
        listener(Started(CONFIG, None, 0))
        listener(Stepped(1, 1, 0.5, 50))


def test_a_notebook_gets_a_bar(monkeypatch):
    console = pytest.importorskip("rich.console")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    assert not progress.can_be_drawn()
    monkeypatch.setattr(console, "_is_jupyter", lambda: True)
    assert progress.can_be_drawn()
