"""Many runs over worker processes: results that are kept, workers that are killed."""

import errno
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest
from own_encodings import write

from fastpe.base.stored import DamagedFileError
from fastpe.encodings import registry
from fastpe.experiments import jobs as jobs_module
from fastpe.experiments import local, worker
from fastpe.experiments.jobs import RunStepped
from fastpe.training.config import TrainConfig
from fastpe.training.events import Noted
from fastpe.training.loop import train

SMALL = TrainConfig("sinusoidal", width=8, hidden=8, train_length=5, samples=64, epochs=3, test_lengths=(5, 10))


# Results that are kept -----------------------------------------------------------------------------------------------


def do(root, configs, workers=1, events=None):
    jobs = [jobs_module.make_job(root, f"run{k}", config) for k, config in enumerate(configs)]
    found = local.run(jobs, workers, (events if events is not None else []).append)
    return jobs, [found[one.path.name]["test"] for one in jobs]


def notes(events):
    return " / ".join(event.message for event in events if isinstance(event, Noted))


def test_a_study_shows_notes_on_settings_and_not_on_the_training_of_one_run(tmp_path):
    said = []
    notify = worker._Notify(tmp_path, SMALL, said.append)
    for event in (Noted("a setting"), Noted("the loss has not fallen", of_training=True)):
        notify(event)
    assert said == [{"note": "a setting"}]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two runs, done by two workers; the compile cache is warm afterwards."""
    root = tmp_path_factory.mktemp("finished")
    jobs, found = do(root, [SMALL, replace(SMALL, seed=1)], workers=2)
    return root, jobs, found


@pytest.mark.full("starts processes")
def test_workers_get_what_one_process_gets(finished):
    _, jobs, found = finished
    assert found == [train(job.config, threads=1).result["test"] for job in jobs]


@pytest.mark.full("starts processes")
def test_a_result_is_reused_only_for_the_same_run(finished, monkeypatch):
    root, jobs, found = finished

    def refuse(*_):
        raise AssertionError("a worker was hired")

    with monkeypatch.context() as patch:
        patch.setattr(local, "_Worker", refuse)
        assert do(root, [SMALL, replace(SMALL, seed=1)])[1] == found
    before = jobs[0].identity
    assert jobs_module.identity(replace(SMALL, batch=31)) != before
    monkeypatch.setattr(jobs_module, "_sources", lambda: "other sources")
    assert jobs_module.identity(SMALL) != before


@pytest.mark.full("starts processes")
@pytest.mark.parametrize("damage", ["result", "seal", "missing"])
def test_a_damaged_result_is_made_again_and_said(tmp_path, finished, damage):
    root, jobs, found = finished
    folder = jobs[0].path
    file = folder / ("seal.json" if damage == "seal" else "result.json")
    if damage == "missing":
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    with pytest.raises(DamagedFileError):
        jobs_module.read_result(folder, jobs[0].config, jobs[0].identity)
    events = []
    assert do(root, [SMALL], events=events)[1] == found[:1]
    assert "this run starts again" in notes(events)
    assert jobs_module.read_result(folder, jobs[0].config, jobs[0].identity) is not None


@pytest.mark.parametrize("damage", ["a cut checkpoint", "no record"])
def test_a_damaged_folder_starts_the_run_again(tmp_path, damage):
    key, run, said = jobs_module.identity(SMALL), tmp_path / "run", []
    first = worker.do_run(run, SMALL, key, said.append)
    if damage == "no record":
        (run / "config.json").unlink()
        why = f"{run} is not a run folder: it contains files but no config.json; this run starts again"
    else:
        (run / "checkpoint.safetensors").write_bytes((run / "checkpoint.safetensors").read_bytes()[:-3])
        why = "starts again"
    assert worker.do_run(run, SMALL, key, said.append)["test"] == first["test"]
    assert why in " ".join(message.get("note", "") for message in said)
    assert jobs_module.read_result(run, SMALL, key)["test"] == first["test"]


# Death ---------------------------------------------------------------------------------------------------------------


@pytest.mark.full("starts processes")
def test_the_run_of_a_killed_worker_goes_on(tmp_path, monkeypatch):
    long = replace(SMALL, samples=2000, epochs=8)
    hired, events = [], []
    make = local._Worker

    def hire(inbox):
        hired.append(make(inbox))
        return hired[-1]

    def listen(event):
        events.append(event)
        if isinstance(event, RunStepped) and event.step > 100 and len(hired) == 1:
            hired[0].process.send_signal(signal.SIGKILL)

    monkeypatch.setattr(local, "_Worker", hire)
    job = jobs_module.make_job(tmp_path, "run", long)
    found = local.run([job], 1, listen)[job.path.name]
    assert len(hired) == 2
    assert "was killed by signal 9; the run continues from its last checkpoint" in notes(events)
    assert found["test"] == train(long, threads=1).result["test"]
    assert all(one.process.poll() is not None for one in hired)


@pytest.mark.full("starts processes")
def test_a_worker_that_dies_while_it_compiles_is_replaced(tmp_path, monkeypatch):
    hired, events = [], []
    make = local._Worker

    def hire(inbox):
        hired.append(make(inbox))
        if len(hired) == 1:
            hired[0].process.kill()
        return hired[-1]

    monkeypatch.setattr(local, "_Worker", hire)
    assert do(tmp_path, [SMALL], events=events)[1] == [train(SMALL, threads=1).result["test"]]
    assert "the worker process for compilation was killed by signal 9; another one replaces it" in notes(events)


@pytest.mark.full("takes seconds")
def test_a_worker_that_dies_again_and_again_is_given_up(tmp_path, monkeypatch):
    def listen(event):
        if isinstance(event, RunStepped):
            for one in list(pool):
                one.process.kill()

    pool = []
    make = local._Worker
    monkeypatch.setattr(local, "_Worker", lambda inbox: pool.append(make(inbox)) or pool[-1])
    with pytest.raises(
        ChildProcessError, match=r"run: the worker was killed by signal 9, 3 times without progress; .* memory"
    ):
        local.run([jobs_module.make_job(tmp_path, "run", replace(SMALL, samples=100_000))], 1, listen)


@pytest.mark.full("starts processes")
def test_a_length_that_no_machine_has_memory_for_is_one_line(tmp_path):
    huge = replace(SMALL, encoding="fire", options={}, causal=True, test_lengths=(3_000_000,), test_sequences=1)
    with pytest.raises(ValueError, match=r"^run0: slot 'scores' .* length=3000000.* needs .* GB, and this machine has"):
        do(tmp_path, [huge])


def said_last(folder, monkeypatch, error):
    """What a worker says at last of a run whose files cannot be written."""

    def fail(*_):
        raise error

    job = {"config": SMALL.to_dict(), "path": str(folder / "run"), "identity": "x", "encodings": {}, "tasks": {}}
    said = []
    monkeypatch.setattr(os, "replace", fail)
    worker.answer(job, said.append)
    return said[-1]


def test_too_little_memory_in_a_worker_is_one_line(tmp_path, monkeypatch):
    said = said_last(tmp_path, monkeypatch, MemoryError("Unable to allocate 9 GiB"))
    mine = SimpleNamespace(job=SimpleNamespace(name="run"))
    with pytest.raises(MemoryError, match=r"the worker of run ran out of memory \(Unable.*\); use fewer workers"):
        local._Pool._fail(None, mine, said)


def test_a_full_disk_in_a_worker_is_one_line(tmp_path, monkeypatch):
    said = said_last(tmp_path, monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    assert said["error"] in ("system", "refused")
    assert "No space left on device" in said["message"]


@pytest.mark.full("starts processes")
def test_what_compiles_first_keeps_to_what_the_settings_can_be(tmp_path):
    """A warm-up of more updates than it makes, lengths that the task does not have, an end that needs validation."""
    config = TrainConfig(
        "nope", task="modular_arithmetic", train_length=4, width=8, hidden=8, samples=64, epochs=2, warmup=3,
        decay="linear", validation=8, patience=1, stop_solved=True, keep="best", test_sequences=10, dropout=0.1,
    )  # fmt: skip
    (found,) = local.run([jobs_module.make_job(tmp_path, "one", config)], 1).values()
    assert found["test"] == train(config, threads=1).result["test"]


@pytest.mark.full("starts processes")
def test_a_sweep_outlives_a_warm_up_that_diverges(tmp_path):
    """The first worker compiles on two sequences, and already their first update leaves float32."""
    wild, said = replace(SMALL, lr=1e38), []
    worker.answer({"warm": [wild.to_dict()], "encodings": {}, "tasks": {}}, said.append)
    assert [list(message) for message in said] == [["failed"]]
    jobs = [jobs_module.make_job(tmp_path, "wild", wild), jobs_module.make_job(tmp_path, "tame", SMALL)]
    found = local.run(jobs, 2)
    assert "became infinite or NaN in epoch 1" in found[jobs[0].path.name]["failed"]
    assert found[jobs[1].path.name]["test"] == train(SMALL, threads=1).result["test"]


# Encodings of one's own ----------------------------------------------------------------------------------------------


@pytest.mark.full("starts processes")
def test_workers_find_an_encoding_of_ones_own(tmp_path, monkeypatch):
    config = replace(SMALL, encoding=str(write(tmp_path)), samples=16, epochs=1)
    (done,), (found,) = do(tmp_path / "sweep", [config])
    assert found == train(config, threads=1).result["test"]
    write(tmp_path, ("0.5", "0.25"))
    monkeypatch.setattr(registry.ENCODINGS, "_registered", {})
    registry.register(tmp_path / "mine.py")
    assert jobs_module.identity(config) != done.identity
