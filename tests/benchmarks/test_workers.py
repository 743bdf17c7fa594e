"""Libraries in processes of their own: answers, timings, deaths and absences."""

import importlib.util
import os
import sys
import time

import pytest
from click.testing import CliRunner

from fastpe.benchmarks import jobs, models, turns, worker
from fastpe.benchmarks.figures import WrongResult
from fastpe_cli.main import main

TORCH = importlib.util.find_spec("torch") is not None
PAPER = models.CASES["paper"]


def silent(text):
    pass


@pytest.mark.full("starts processes")
def test_a_worker_answers_and_times():
    with turns.Worker("fastpe", 1) as process:
        peak = turns.Candidate("peak", process, "peak", {"threads": 1})
        turns.prepare([peak])
        turns.take_turns([peak], turns.Effort(turns=2, seconds=0.0, least=3, most=2))
        assert len(peak.seconds) == 6
        assert 0 < peak.best == min(peak.seconds)
        with pytest.raises(turns.WorkerDied, match="process of fastpe failed: KeyError"):
            process.ask({"time": "unprepared", "seconds": 0, "least": 1})
        arguments = {"library": "fastpe", "model": "paper", "threads": 1, "expected": [1.0]}
        with pytest.raises(WrongResult, match="fastpe, paper: the loss of step 1"):
            turns.prepare([turns.Candidate("step", process, "step", arguments)])


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="where processes run is not told on this system")
def test_on_one_thread_all_libraries_run_on_the_same_core():
    with turns.Worker("fastpe", 1) as ours, turns.Worker("torch", 1) as theirs, turns.Worker("fastpe", 2) as more:
        one, other, all_cores = (os.sched_getaffinity(each._process.pid) for each in (ours, theirs, more))
    assert one == other == {min(all_cores)}
    assert all_cores == os.sched_getaffinity(0)


def test_a_timing_is_of_one_repeat_for_so_long_and_so_often():
    pause = jobs.Job(lambda: time.sleep(0.004), repeats=4)
    found = worker.answer({"time": "pause", "seconds": 0.02, "least": 1}, {"pause": pause})["seconds"]
    assert min(found) >= 0.001  # no sleep is shorter than it is asked to be
    assert sum(found) * 4 > 0.01
    assert len(worker.answer({"time": "pause", "seconds": 0.0, "least": 3}, {"pause": pause})["seconds"]) == 3


def test_a_worker_that_dies_gives_one_clear_error():
    with turns.Worker("fastpe", 1) as process:
        process._process.kill()
        with pytest.raises(turns.WorkerDied, match=r"^the worker process of fastpe ended with status -9$"):
            process.ask({"time": "nothing", "seconds": 0, "least": 1})


def test_a_worker_that_cannot_start_tells_its_last_words(monkeypatch):
    monkeypatch.setattr(turns, "_MODULE", "fastpe.benchmarks.missing")
    with (
        turns.Worker("fastpe", 1) as process,
        pytest.raises(
            turns.WorkerDied, match=r"ended with status 1, after: .*No module named fastpe\.benchmarks\.missing"
        ),
    ):
        process.receive()


def test_the_command_line_says_it_in_one_line(monkeypatch):
    monkeypatch.setattr(turns, "_MODULE", "fastpe.benchmarks.missing")
    done = CliRunner().invoke(main, ["bench", "gemm", "--quick"], standalone_mode=True)
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].startswith("fastpe: error: the worker process of")
    assert "Traceback" not in done.stderr


def test_an_absent_library_is_an_answer():
    request = {
        "prepare": "x",
        "job": "product",
        "arguments": {"library": "torch", "form": [*models.Product("", 1, 1, 1)]},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "find_spec", lambda name: None)
        assert worker.answer(request, {}) == {
            "absent": "not installed: pip install -e '.[peers]' from a clone of fastpe"
        }


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (OSError("libtorch_cpu.so: cannot open\nmore"), "failed: OSError: libtorch_cpu.so: cannot open"),
        (RuntimeError(), "failed: RuntimeError"),
        (AttributeError("a" * 200), f"failed: AttributeError: {'a' * 100}"),
    ],
)
@pytest.mark.parametrize("library", ["eager", "eager, own attention", "compile", "jax", "product"])
def test_a_library_that_breaks_when_it_is_imported_is_absent(library, failure, says, monkeypatch):
    class Broken:
        """Stands first among those that find modules."""

        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("torch", "jax"):
                raise failure

    for name in [name for name in sys.modules if name.partition(".")[0] in ("torch", "jax")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(jobs, "find_spec", lambda name: True)
    monkeypatch.setattr(jobs.shutil, "which", lambda name: "c++")
    monkeypatch.setattr(jobs, "_keep_to", lambda threads: None)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    step_of = {"library": library, "model": "paper", "threads": 1, "expected": [1.0]}
    product = {"library": "torch", "form": [*models.Product("", 2, 2, 2)]}
    job, asked = ("product", product) if library == "product" else ("step", step_of)
    assert worker.answer({"prepare": "x", "job": job, "arguments": asked}, {}) == {"absent": says}


def test_a_wrong_peer_is_not_an_absent_one(monkeypatch):
    monkeypatch.setattr(jobs, "find_spec", lambda name: True)
    monkeypatch.setattr(jobs.peers, "torch_step", lambda *rest, **kept: lambda: 2.0)
    asked = {"library": "eager", "model": "paper", "threads": 1, "expected": [1.0]}
    wrong = "PyTorch, paper: the loss of step 1 is 2, but should be 1"
    assert worker.answer({"prepare": "x", "job": "step", "arguments": asked}, {}) == {"wrong": wrong}


def test_a_compiler_is_an_absence_too(monkeypatch):
    monkeypatch.setattr(jobs, "find_spec", lambda name: True)
    monkeypatch.setattr(jobs.shutil, "which", lambda name: None)
    with pytest.raises(jobs.Absent, match="C\\+\\+ compiler"):
        jobs.step("compile", "paper", 1, [])
