"""Training: what is computed, and what it leaves and tells."""

import json
from dataclasses import replace

import numpy as np
import pytest
from running_sums import sample
from small_run import CONFIG, STEPS, same_model, same_result

from fastpe.base.files import TensorFile
from fastpe.base.random import Stream
from fastpe.model.adam import Adam
from fastpe.model.transformer import Transformer
from fastpe.training.events import EpochDone, LengthTested, Noted, Started, Stepped, TestStarted
from fastpe.training.loop import train
from fastpe.training.run_folder import load


def test_training_is_adam_over_the_reshuffled_data(whole):
    model = Transformer(CONFIG.model)
    adam = Adam(model, lr=CONFIG.lr)
    x, y = sample(CONFIG.seed, "train", CONFIG.samples, CONFIG.train_length)
    losses = []
    for epoch in (1, 2, 3):
        order = Stream(CONFIG.seed, "order", epoch).permutation(CONFIG.samples)
        parts = [order[:8], order[8:16], order[16:]]
        losses.append(sum(adam.step(x[part], y[part]) * len(part) for part in parts) / CONFIG.samples)
    result = whole[1]
    for name, tensor in model.parameters.items():
        np.testing.assert_array_equal(result.model.parameters[name], tensor)
    np.testing.assert_allclose([line["loss"] for line in result.history], losses, rtol=1e-12)
    assert losses[2] < losses[0]


def test_a_run_folder_holds_what_train_returns(whole):
    path, result = whole
    assert sorted(entry.name for entry in path.iterdir()) == [
        "checkpoint.safetensors", "config.json", "metrics.jsonl", "model.safetensors", "result.json", "seal.json",
    ]  # fmt: skip
    assert json.loads((path / "result.json").read_text()) == result.result
    assert [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()] == result.history
    assert [line["step"] for line in result.history] == [3, 6, 9]
    facts = TensorFile(path / "checkpoint.safetensors").facts
    assert (facts["epoch"], facts["step"], facts["loss"]) == (3, 9, result.result["train"]["loss"])
    for name, tensor in load(path).parameters.items():
        np.testing.assert_array_equal(tensor, result.model.parameters[name])


def test_the_result_has_the_promised_form(whole):
    result = whole[1].result
    assert list(result) == ["schema", "task", "encoding", "seed", "train", "test"]
    assert list(result["train"]) == ["steps", "loss", "seconds"]
    assert list(result["test"]) == ["6", "9"]
    assert list(result["test"]["6"]) == ["mse", "nmse", "mse_last", "mse_beyond", "sequences"]
    assert result["test"]["6"]["mse_beyond"] is None
    assert (result["schema"], result["encoding"], result["seed"], result["train"]["steps"]) == (2, "learned", 0, 9)


def test_without_a_folder_nothing_is_written(whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = train(CONFIG)
    assert result.run is None
    assert not list(tmp_path.iterdir())
    assert same_result(result.result, whole[1].result)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_change_no_bit(whole, tmp_path, threads):
    train(CONFIG, out=tmp_path / "run", threads=threads)
    assert same_model(tmp_path / "run", whole)


def test_the_seed_changes_the_model(whole, tmp_path):
    train(replace(CONFIG, seed=1), out=tmp_path / "run")
    assert not same_model(tmp_path / "run", whole)


def test_events_tell_the_whole_story():
    told = []
    train(CONFIG, progress=told.append)
    kinds = [type(event) for event in told if not isinstance(event, Noted)]
    assert kinds == [Started] + 3 * ([Stepped] * STEPS + [EpochDone]) + [TestStarted] + [LengthTested] * 2
    steps = [event for event in told if isinstance(event, Stepped)]
    assert [(event.epoch, event.step) for event in steps] == [(1 + k // 3, k + 1) for k in range(9)]
    assert [event.sequences for event in steps[:3]] == [8, 8, 4]
    assert any("learned" in event.message for event in told if isinstance(event, Noted))


@pytest.mark.parametrize("threads", [0, -1])
def test_a_number_of_threads_is_positive(threads):
    with pytest.raises(ValueError, match=f"threads must be at least 1, not {threads}"):
        train(CONFIG, threads=threads)
