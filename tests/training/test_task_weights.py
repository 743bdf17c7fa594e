"""A task may say what each of its targets counts: in training, and where a model is tested."""

from dataclasses import replace

import numpy as np
import pytest
from running_sums import sample

from fastpe import TrainConfig, train
from fastpe.base.random import Stream
from fastpe.tasks import running_sum
from fastpe.tasks.registry import TASKS

CONFIG = TrainConfig(
    "alibi", width=8, hidden=8, train_length=6, samples=10, batch=4, epochs=2, test_lengths=(4, 8), test_sequences=5,
    causal=True,
)  # fmt: skip


def every_other(x, y):
    """Every second target is left out: what stands there is none."""
    weights = np.zeros(y.shape)
    weights[:, ::2] = np.arange(1, len(y) + 1)[:, None]
    return x, np.where(weights == 0, 1e6, y), weights


@pytest.fixture
def task(monkeypatch):
    """Running sums, as `change` gives them, in place of the task."""

    def install(change):
        changed = replace(running_sum.TASK, squares=running_sum.squares, sample=lambda *arguments: change(
            *running_sum.sample(*arguments)
        ))  # fmt: skip
        monkeypatch.setattr(TASKS, "get", lambda name: changed)

    return install


def test_a_training_learns_from_what_counts_and_its_loss_is_the_mean_of_that(task):
    task(every_other)
    losses = []
    result = train(CONFIG, progress=lambda event: losses.append(event))
    steps = [event for event in losses if type(event).__name__ == "Stepped" and event.epoch == 2]
    order = Stream(CONFIG.seed, "order", 2).permutation(CONFIG.samples) + 1
    counts = [order[start : start + CONFIG.batch].sum() for start in range(0, CONFIG.samples, CONFIG.batch)]
    assert len(steps) == len(counts) == 3
    expected = np.average([event.loss for event in steps], weights=counts)
    assert result.history[-1]["loss"] == pytest.approx(expected, rel=1e-12)
    assert expected != pytest.approx(np.mean([event.loss for event in steps]), rel=1e-6)


def test_a_test_counts_as_the_task_does(task):
    task(every_other)
    result = train(CONFIG, progress=False)
    x, y, weights = every_other(*sample(CONFIG.seed, "test", 5, 8, np.float32, step=8))
    errors = np.where(weights > 0, (result.model(x) - y) ** 2, 0)
    found = result.result["test"]["8"]
    assert found["mse"] == pytest.approx(np.average(errors, weights=weights), rel=1e-6)
    assert found["mse_beyond"] == pytest.approx(np.average(errors[:, 6:], weights=weights[:, 6:]), rel=1e-6)
    assert found["mse_last"] is None  # the last of eight has no weight
    assert found["sequences"] == 5
    assert result.result["test"]["4"]["mse_beyond"] is None


def test_weights_that_are_all_the_same_change_nothing(task):
    plain = train(CONFIG, progress=False)
    task(lambda x, y: (x, y, np.full(y.shape, 2.0)))
    weighted = train(CONFIG, progress=False)
    assert weighted.result["test"] == plain.result["test"]
    for name, tensor in plain.model.parameters.items():
        np.testing.assert_array_equal(weighted.model.parameters[name], tensor)
    assert [each["loss"] for each in weighted.history] == pytest.approx([each["loss"] for each in plain.history])


def test_a_test_of_which_nothing_counts_says_so(task):
    task(lambda x, y: (x, y, np.zeros(y.shape) + (len(y) == CONFIG.samples)))
    found = train(CONFIG, progress=False).result["test"]["8"]
    assert found["reason"] == "no target counts"
    assert found["mse"] is found["nmse"] is found["mse_last"] is found["mse_beyond"] is None
