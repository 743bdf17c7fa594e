"""Testing a model: means, lengths that are undefined or clipped, outputs that are not finite."""

import json
from dataclasses import replace

import numpy as np
import pytest
from running_sums import sample
from small_run import CONFIG

import fastpe
from fastpe.model.transformer import Transformer
from fastpe.training import evaluation
from fastpe.training.evaluation import evaluate


@pytest.mark.parametrize("chunk", [1024, 7])
def test_metrics_are_plain_means(whole, monkeypatch, chunk):
    model = whole[1].model
    monkeypatch.setattr(evaluation, "_CHUNK", chunk)
    found = evaluate(model, (6, 9), 30)
    for length in (6, 9):
        x, y = sample(0, "test", 30, length, step=length)
        squares = (model(x).astype(np.float64) - y) ** 2
        metrics = found[str(length)]
        np.testing.assert_allclose(metrics["mse"], np.mean(squares), rtol=1e-12)
        np.testing.assert_allclose(metrics["nmse"], np.mean(squares) / ((length + 1) / 2), rtol=1e-12)
        np.testing.assert_allclose(metrics["mse_last"], np.mean(squares[:, -1]), rtol=1e-12)
        assert metrics["sequences"] == 30
    np.testing.assert_allclose(found["9"]["mse_beyond"], np.mean(squares[:, 6:]), rtol=1e-12)


@pytest.mark.parametrize(
    ("argument", "wrong", "says"),
    [
        ("task", "../x", "../x: the file of a task must end in .py"),
        ("test_lengths", 4, "test_lengths must be a sequence of integers, not 4"),
        ("test_lengths", [2**27 + 1], r"test_lengths must be at most 2\*\*27"),
        ("test_lengths", [3, 3], "test_lengths must be distinct"),
        ("test_sequences", 0, "test_sequences must be at least 1, not 0"),
        ("target_scale", "x", "target_scale must be one or train"),
        ("progress", 3, "progress must be a function of one event, not 3"),
    ],
)
def test_what_evaluate_refuses(argument, wrong, says):
    model = Transformer(CONFIG.model)
    with pytest.raises((TypeError, ValueError), match=says):
        evaluate(model, **{"test_lengths": [3], "test_sequences": 2, argument: wrong})


def test_a_model_of_tokens_has_no_task():
    model = Transformer(replace(CONFIG.model, vocabulary=5))
    with pytest.raises(ValueError, match="model must take numbers for task 'running_sum', not 5 tokens"):
        evaluate(model, [3], 2)


def test_a_model_that_answers_zero_has_nmse_one():
    model = Transformer(CONFIG.model)
    for tensor in model.parameters.values():
        tensor[...] = 0
    # the variance of the mean of y_i^2 over one sequence is below 2 (N + 1)^2 / 4: six sigma of 4000 sequences
    np.testing.assert_allclose(evaluate(model, [6], 4000)["6"]["nmse"], 1, atol=6 * np.sqrt(2 / 4000))


def test_an_undefined_length_has_a_reason_and_no_numbers():
    model = Transformer(replace(CONFIG.model, options={}))
    found = evaluate(model, (6, 9), 5)
    assert found["6"]["mse"] is not None
    assert [found["9"][key] for key in ("mse", "nmse", "mse_last", "mse_beyond")] == [None] * 4
    assert "training length 6" in found["9"]["reason"]
    assert found["9"]["sequences"] == 5


def test_a_clipped_length_says_so(whole):
    test = whole[1].result["test"]
    assert "note" not in test["6"]
    assert "learned" in test["9"]["note"]


def test_a_length_that_an_option_does_not_fit_has_a_reason():
    """The graph's edges name nodes that a shorter sequence lacks: no eigenvectors, so nothing to remark on either."""
    options = {"edges": (0, 1, 1, 2, 2, 3), "count": 2}
    model = Transformer(replace(CONFIG.model, encoding="laplacian", options=options, train_length=4))
    found = evaluate(model, (4, 3), 5)
    assert found["4"]["mse"] > 0
    assert found["3"]["mse"] is None
    assert found["3"]["reason"] == "option 'edges' must name nodes from 0 to 2, but one is (2, 3)"


def test_outputs_that_are_not_finite_have_a_reason():
    model = Transformer(CONFIG.model)
    model.parameters["head.bias"][...] = 3e38
    model.parameters["embed.bias"][...] = 3e38
    found = evaluate(model, [6], 3)["6"]
    assert found["mse"] is None
    assert found["reason"] == "the outputs are not finite"
    json.dumps(found, allow_nan=False)


def test_sequences_that_no_machine_has_room_for_are_refused_before_any_is_drawn():
    model = fastpe.Transformer(fastpe.ModelConfig("nope", width=8, hidden=8, train_length=4))
    says = r"1000000 test sequences of length 1000000 need 48,000\.0 GB, and this machine has"
    with pytest.raises(ValueError, match=says):
        fastpe.evaluate(model, [4, 10**6], 10**6)
