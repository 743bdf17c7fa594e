"""Libraries in processes of their own: answers, timings, deaths and absences."""

import os
import sys
import time
from dataclasses import asdict

import pytest
from click.testing import CliRunner

from fastpe.benchmarks import jobs, models, turns, worker
from fastpe.benchmarks.attention_cases import Problem
from fastpe.benchmarks.figures import WrongResult
from fastpe_cli.main import main


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
        with pytest.raises(WrongResult, match="fastpe, paper: the loss of step 1"):
            turns.prepare([turns.Candidate("step", process, "step", {**STEP, "library": "fastpe"})])


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


STEP = {"library": "eager", "model": "paper", "threads": 1, "expected": [1.0]}
PRODUCT = {"library": "torch", "form": [*models.Product("", 2, 2, 2)]}
ATTENTION = {"library": "sdpa", "problem": asdict(Problem(5)), "part": "both", "threads": 2}
FRAMEWORK = {"way": "sdpa", "kind": "packed", "length": 70, "part": "forward", "threads": 2}
ABSENT = {"absent": "not installed: pip install -e '.[peers]' from a clone of fastpe"}
NO_COMPILER = {"absent": "needs a C++ compiler"}


@pytest.mark.parametrize(
    ("job", "arguments"), [("product", PRODUCT), ("step", STEP), ("attention", ATTENTION), ("framework", FRAMEWORK)]
)
def test_a_library_that_is_not_installed_is_absent(job, arguments, monkeypatch):
    monkeypatch.setattr(jobs, "find_spec", lambda name: None)
    assert worker.answer({"prepare": "x", "job": job, "arguments": arguments}, {}) == ABSENT


def test_models_of_transformers_are_absent_where_pytorch_alone_is_installed(monkeypatch):
    monkeypatch.setattr(jobs, "find_spec", lambda name: None if name == "transformers" else object())
    arguments = {**FRAMEWORK, "kind": "llama packed"}
    assert worker.answer({"prepare": "x", "job": "framework", "arguments": arguments}, {}) == ABSENT


@pytest.mark.parametrize(
    ("job", "arguments"),
    [
        ("step", {**STEP, "library": "compile"}),
        ("attention", {**ATTENTION, "library": "flex"}),
        ("framework", {**FRAMEWORK, "way": "flex"}),
    ],
)
def test_what_needs_a_compiler_is_absent_without_one(job, arguments, monkeypatch):
    monkeypatch.setattr(jobs, "find_spec", lambda name: object())
    monkeypatch.setattr(jobs.shutil, "which", lambda name: None)
    assert worker.answer({"prepare": "x", "job": job, "arguments": arguments}, {}) == NO_COMPILER


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
    job, asked = ("product", PRODUCT) if library == "product" else ("step", {**STEP, "library": library})
    assert worker.answer({"prepare": "x", "job": job, "arguments": asked}, {}) == {"absent": says}


def test_a_wrong_peer_is_not_an_absent_one(monkeypatch):
    monkeypatch.setattr(jobs, "find_spec", lambda name: True)
    monkeypatch.setattr(jobs.peers, "torch_step", lambda *rest, **kept: lambda: 2.0)
    wrong = "PyTorch, paper: the loss of step 1 is 2, but should be 1"
    assert worker.answer({"prepare": "x", "job": "step", "arguments": STEP}, {}) == {"wrong": wrong}
