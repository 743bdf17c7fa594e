"""Interruptions change no bit of a training, and nothing is ever half-written."""

import errno
import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from small_run import CONFIG, STEPS, assert_same_run, interrupted, same_model, same_result

from fastpe.base.files import TensorFile
from fastpe.model.adam import Adam
from fastpe.model.scratch import fused_ends
from fastpe.model.transformer import Transformer
from fastpe.training import loop
from fastpe.training.config import TrainConfig
from fastpe.training.events import EpochDone, Noted, Started, Stepped
from fastpe.training.loop import TrainingDiverged, train


@pytest.mark.parametrize("moment", [1, 3, 4, 8, 9])
def test_ctrl_c_at_any_step_leaves_a_run_that_resumes_to_the_same_bits(whole, tmp_path, moment):
    path, started = tmp_path / "run", []
    interrupted(CONFIG, path, Stepped, step=moment)
    result = train(CONFIG, out=path, resume=True, progress=started.append)
    assert next(event.step for event in started if isinstance(event, Started)) == (moment - 1) // STEPS * STEPS
    assert same_model(path, whole)
    assert same_result(result.result, whole[1].result)
    assert [line["epoch"] for line in result.history] == [1, 2, 3]


OF_TOKENS = TrainConfig(
    "rope", task="reverse", task_options={"symbols": 3}, causal=True, width=16, hidden=16, train_length=5, samples=50,
    batch=8, epochs=3, test_lengths=("1-5", "6-9", 7), test_sequences=40,
)  # fmt: skip
OTHERS = {
    # the paper's model, on fewer samples: both its ends are fused in a step, which a resume computes again
    "fused ends": TrainConfig("learned", samples=80, epochs=3, lr=0.01, test_lengths=(50,), test_sequences=10),
    "random positions": replace(CONFIG, encoding="alibi", options={"learned": True}, positions="random:40"),
    "bfloat16": replace(CONFIG, encoding="alibi", options={}, precision="bfloat16"),
    "fresh tokens": OF_TOKENS,
    "fixed tokens": replace(OF_TOKENS, data="fixed"),
    "the best epoch": replace(
        OF_TOKENS, lr=0.01, warmup=5, decay="cosine", min_lr=1e-4, weight_decay=0.1, clip=1.0, dropout=0.1,
        validation=30, keep="best", norm="layernorm", final_norm=True, tied=True,
    ),
}  # fmt: skip


def test_the_ends_are_fused_where_a_case_says_so():
    config = OTHERS["fused ends"]
    ends = fused_ends(config.model, config.train_length, Transformer(config.model).slots(config.train_length))
    assert ends == {"fused_input": 1, "fused_output": 1}


@pytest.mark.parametrize("moment", [2, 5])
@pytest.mark.parametrize("name", OTHERS)
def test_other_runs_resume_to_the_same_bits(tmp_path, name, moment):
    config, path, whole = OTHERS[name], tmp_path / "run", tmp_path / "whole"
    train(config, out=whole, progress=False)
    interrupted(config, path, Stepped, step=moment * config.steps_per_epoch // 2)
    found = train(config, out=path, resume=True, threads=1)
    assert_same_run(path, whole)
    finished = train(config, out=path, resume=True, progress=False).model
    for key, array in found.model.parameters.items():
        np.testing.assert_array_equal(finished.parameters[key], array)


WRITTEN = 3 * ["metrics.jsonl", "checkpoint.safetensors"] + ["model.safetensors", "result.json", "seal.json"]


@pytest.mark.parametrize("write", range(10))
def test_a_disk_that_fills_up_leaves_whole_files_and_is_told_by_name(whole, tmp_path, monkeypatch, write):
    """Each file is synced, and so is its folder."""
    sync, calls = os.fsync, []

    def fill_up(descriptor):
        calls.append(descriptor)
        if len(calls) >= 4 + 2 * write:  # the run folder is 1, its record 2 and 3
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fill_up)
        if write < len(WRITTEN):
            with pytest.raises(OSError, match="No space left") as caught:
                train(CONFIG, out=path)
            assert caught.value.filename == str(path / WRITTEN[write])
        else:
            train(CONFIG, out=path)
    assert not [entry for entry in path.iterdir() if entry.suffix == ".tmp"]
    for name in ("checkpoint.safetensors", "model.safetensors"):
        if (path / name).exists():
            TensorFile(path / name).read()
    train(CONFIG, out=path, resume=True)
    assert same_model(path, whole)


def test_divergence_names_the_step_and_keeps_the_checkpoint(whole, tmp_path, monkeypatch):
    path, step = tmp_path / "run", Adam.step
    with monkeypatch.context() as patch:
        patch.setattr(Adam, "step", lambda adam, *x, **k: step(adam, *x, **k) if adam.steps < 4 else float("nan"))
        with pytest.raises(TrainingDiverged, match="epoch 2, step 4") as caught:
            train(CONFIG, out=path)
    assert (caught.value.epoch, caught.value.step) == (2, 4)
    assert TensorFile(path / "checkpoint.safetensors").facts["epoch"] == 1
    train(CONFIG, out=path, resume=True)
    assert same_model(path, whole)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_parameter_that_diverges_in_the_last_step_of_an_epoch_is_found(whole, tmp_path, monkeypatch, wrong):
    """The loss of that step, before its update, is fine: a checkpoint of it would be the end of the run."""
    path, step = tmp_path / "run", Adam.step

    def diverge(adam, *x, **k):
        loss = step(adam, *x, **k)
        if adam.steps == 2 * STEPS:
            adam.model.parameters["head.weight"][-1] = wrong
        return loss

    with monkeypatch.context() as patch:
        patch.setattr(Adam, "step", diverge)
        with pytest.raises(TrainingDiverged, match="a parameter became infinite or NaN in epoch 2, step 6"):
            train(CONFIG, out=path)
    assert TensorFile(path / "checkpoint.safetensors").facts["epoch"] == 1
    train(CONFIG, out=path, resume=True)
    assert same_model(path, whole)


def test_no_seconds_are_lost_at_a_resume(tmp_path, monkeypatch):
    """A clock that goes on by a second whenever it is read: an epoch takes one, before and after an interruption."""
    clock = itertools.count(100)
    monkeypatch.setattr(loop.time, "perf_counter", lambda: float(next(clock)))

    path = tmp_path / "run"
    interrupted(CONFIG, path, EpochDone, epoch=2)
    assert TensorFile(path / "checkpoint.safetensors").facts["seconds"] == 2.0
    result = train(CONFIG, out=path, resume=True)
    assert result.result["train"]["seconds"] == 3.0
    assert [line["seconds"] for line in result.history] == [1.0, 1.0, 1.0]
    (path / "result.json").unlink()  # and what is made again from the checkpoint has them all
    assert train(CONFIG, out=path, resume=True).result["train"]["seconds"] == 3.0


def test_a_learning_rate_that_is_too_large_diverges(tmp_path):
    with pytest.raises(TrainingDiverged, match="infinite or NaN"):
        train(replace(CONFIG, lr=1e30), out=tmp_path / "run")
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_finished_run_is_only_read(whole, monkeypatch):
    path, result = whole
    before = {entry.name: entry.stat().st_mtime_ns for entry in path.iterdir()}

    def refuse(*_, **__):
        raise AssertionError("a step was made")

    monkeypatch.setattr(Adam, "step", refuse)
    monkeypatch.setattr(loop, "evaluate", refuse)
    again = train(CONFIG, out=path, resume=True)
    assert again.result == result.result
    assert again.history == result.history
    assert {entry.name: entry.stat().st_mtime_ns for entry in path.iterdir()} == before


def test_a_finished_run_gets_its_lost_model_back(tmp_path):
    path = tmp_path / "run"
    train(CONFIG, out=path)
    content = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").unlink()
    train(CONFIG, out=path, resume=True)
    assert (path / "model.safetensors").read_bytes() == content


def changed(text, place):
    return text[:place] + ("1" if text[place] != "1" else "2") + text[place + 1 :]


@pytest.mark.parametrize("damage", ["missing", "cut", "digit", "no seal", "seal", "seal is no seal"])
def test_a_result_that_was_lost_is_made_again(tmp_path, damage):
    path, said = tmp_path / "run", []
    result = train(CONFIG, out=path).result
    text, seal = (path / "result.json").read_text(), (path / "seal.json").read_text()
    match damage:
        case "missing":
            (path / "result.json").unlink()
        case "cut":
            (path / "result.json").write_text(text[:9])
        case "digit":
            (path / "result.json").write_text(changed(text, text.index("mse_last") + 12))
        case "no seal":
            (path / "seal.json").unlink()
        case "seal":
            (path / "seal.json").write_text(changed(seal, len(seal) // 2))
        case "seal is no seal":
            (path / "seal.json").write_text("[]")
    again = train(CONFIG, out=path, resume=True, progress=said.append)
    assert again.result == result
    assert ((path / "result.json").read_text(), (path / "seal.json").read_text()) == (text, seal)
    notes = [event.message for event in said if isinstance(event, Noted)]
    assert sum("it is computed again" in note for note in notes) == (damage != "no seal")


def test_a_finished_run_without_its_checkpoint_is_finished(tmp_path, monkeypatch):
    path, said = tmp_path / "run", []
    result = train(CONFIG, out=path)
    (path / "checkpoint.safetensors").unlink()
    before = {entry.name: entry.read_bytes() for entry in path.iterdir()}
    monkeypatch.setattr(Adam, "step", lambda *_, **__: pytest.fail("a step was made"))
    again = train(CONFIG, out=path, resume=True, progress=said.append)
    assert (again.result, again.history) == (result.result, result.history)
    for name, tensor in result.model.parameters.items():
        np.testing.assert_array_equal(again.model.parameters[name], tensor)
    assert {entry.name: entry.read_bytes() for entry in path.iterdir()} == before
    assert f"{path} has no checkpoint, but its result and its model are valid" in [
        event.message for event in said if isinstance(event, Noted)
    ]
    assert [event.step for event in said if isinstance(event, Started)] == [CONFIG.steps]


@pytest.mark.parametrize("lost", ["model.safetensors", "result.json", "seal.json"])
def test_a_run_that_lost_its_checkpoint_and_more_starts_again_and_says_so(whole, tmp_path, lost):
    path, said = tmp_path / "run", []
    train(CONFIG, out=path)
    for name in ("checkpoint.safetensors", lost):
        (path / name).unlink()
    result = train(CONFIG, out=path, resume=True, progress=said.append)
    notes = [event.message for event in said if isinstance(event, Noted)]
    assert f"{path} has no checkpoint to continue from: training starts again from its first epoch" in notes
    assert same_result(result.result, whole[1].result)
    assert same_model(path, whole)


def test_metrics_are_cut_back_to_the_checkpoint(whole, tmp_path):
    path = tmp_path / "run"
    interrupted(CONFIG, path, EpochDone, epoch=2)
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 3, "step": 9, "loss": 0.0, "seconds": 0.0}\n{"epoch": 4, "st')
    result = train(CONFIG, out=path, resume=True)
    losses = [line["loss"] for line in result.history]
    assert losses == [line["loss"] for line in whole[1].history]
    assert [json.loads(line)["loss"] for line in (path / "metrics.jsonl").read_text().splitlines()] == losses


# Children are forked from a process that has imported everything but started no thread: a kill costs no import.
KILL = """
import json, os, random, shutil, signal, sys, time
from pathlib import Path
from fastpe.training.config import TrainConfig
from fastpe.training.loop import train

def start():
    child = os.fork()
    if not child:
        train(config, out=path, resume=True)
        os._exit(0)
    return child

config, folder = TrainConfig.from_dict(json.loads(sys.argv[1])), Path(sys.argv[2])
for name in "warm", "timed":
    path, begin = folder / name, time.monotonic()
    os.waitpid(start(), 0)
duration = time.monotonic() - begin
draw = random.Random(20250611)
kills = 0
for number in range(10):
    path, killed = folder / str(number), False
    while not killed:  # a run that ended before its kill is none
        shutil.rmtree(path, ignore_errors=True)
        child = start()
        time.sleep(draw.uniform(0, duration))
        os.kill(child, signal.SIGKILL)
        killed = os.waitpid(child, 0)[1] == signal.SIGKILL
        duration *= 1 if killed else 0.8
    kills += 1
    os.waitpid(start(), 0)
print(kills)
"""


@pytest.mark.full("starts processes")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked children")
def test_sigkill_at_random_moments_changes_no_bit(tmp_path):
    config = replace(CONFIG, epochs=20)
    train(config, out=tmp_path / "whole")
    command = [sys.executable, "-c", KILL, json.dumps(config.to_dict()), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) == 10, done.stderr
    for number in range(10):
        assert same_model(tmp_path / str(number), (tmp_path / "whole",))
