"""Adam with weight decay and clipping, in the same call as the gradients, agrees with the reference."""

import copy
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from model_cases import batch_of, tokens_of

from fastpe import Adam, ModelConfig, Transformer, reference

CONFIG = ModelConfig(
    "t5", width=20, heads=2, layers=2, hidden=36, causal=True, vocabulary=13, train_length=15, norm="layernorm",
    dtype="float64",
)  # fmt: skip


@pytest.mark.parametrize("encoding", ["t5", "alibi", "learned"])
@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.3}, {"clip": 0.05}, {"weight_decay": 0.3, "clip": 0.05}])
def test_updates_are_the_references(encoding, settings):
    model = Transformer(replace(CONFIG, encoding=encoding))
    mirror = Transformer(model.config)
    adam = Adam(model, lr=0.02, **settings)
    first, second = ({name: np.zeros_like(p) for name, p in mirror.parameters.items()} for _ in range(2))
    x, y = tokens_of(model.config)
    weights = np.random.default_rng(8).integers(0, 3, y.shape)
    for step in range(1, 8):
        adam.lr = 0.02 / step  # as a schedule does
        given = {"weights": np.roll(weights, step, axis=1)} if step > 4 else {}
        loss, gradients = mirror.loss_and_grads(x, y, **given)
        assert adam.step(x, y, **given) == pytest.approx(loss, rel=1e-10)
        parameters = dict(mirror.parameters)
        reference.adam_step(parameters, gradients, first, second, step, 0.02 / step, **settings)
        for name, expected in parameters.items():
            np.testing.assert_allclose(model.parameters[name], expected, rtol=1e-9, atol=1e-12, err_msg=name)


def test_a_large_limit_changes_no_bit():
    x, y = tokens_of(CONFIG)
    found = []
    for clip in (math.inf, 1e9):
        model = Transformer(CONFIG)
        adam = Adam(model, clip=clip)
        for _ in range(3):
            adam.step(x, y)
        found.append({name: value.tobytes() for name, value in model.parameters.items()})
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("setting", "error", "says"),
    [
        ({"lr": "fast"}, TypeError, "lr must be a number, not 'fast'"),
        ({"lr": True}, TypeError, "lr must be a number, not True"),
        ({"lr": 0}, ValueError, "lr must be above 0, not 0.0"),
        ({"lr": float("nan")}, ValueError, "lr must be finite, not nan"),
        ({"lr": 10**400}, ValueError, "lr must be finite, but it is larger than any float64"),
        ({"beta1": 1}, ValueError, r"beta1 must lie in \[0, 1\), not 1.0"),
        ({"beta2": -0.1}, ValueError, r"beta2 must lie in \[0, 1\), not -0.1"),
        ({"beta2": None}, TypeError, "beta2 must be a number, not None"),
        ({"eps": 0.0}, ValueError, "eps must be above 0, not 0.0"),
        ({"weight_decay": -1.0}, ValueError, "weight_decay must be at least 0, not -1.0"),
        ({"clip": 0.0}, ValueError, "clip must be above 0, not 0.0"),
        ({"clip": math.nan}, ValueError, "clip must be finite, not nan"),
    ],
)
def test_adam_refuses_bad_numbers_by_name(setting, error, says):
    model = Transformer(ModelConfig("nope", width=8, hidden=8, train_length=4))
    with pytest.raises(error, match=f"^{says}$"):
        Adam(model, **setting)
    adam, ((name, value),) = Adam(model), setting.items()
    before = getattr(adam, name)
    with pytest.raises(error, match=f"^{says}$"):
        setattr(adam, name, value)
    assert getattr(adam, name) == before


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda adam: pickle.loads(pickle.dumps(adam))])
def test_a_copy_of_adam_goes_on_alike_and_its_moments_are_views(duplicate):
    settings = {"lr": 0.01, "beta1": 0.8, "weight_decay": 0.25, "clip": 2.0}
    adam = Adam(Transformer(ModelConfig("learned", width=16, hidden=16, train_length=9)), **settings)
    x, y = batch_of(adam.model.config, 4)
    adam.step(x, y)
    other, together = duplicate((adam, adam.model))
    assert other.model is together
    for mine, theirs in ((adam.first, other.first), (adam.second, other.second)):
        for name, moment in mine.items():
            np.testing.assert_array_equal(theirs[name], moment)
            assert np.shares_memory(theirs[name], other._moments)
            assert not np.shares_memory(theirs[name], moment)
    assert [adam.step(x, y) for _ in range(3)] == [other.step(x, y) for _ in range(3)]
    assert other.steps == 4
    assert {name: getattr(other, name) for name in settings} == settings
    np.testing.assert_array_equal(other.model(x), adam.model(x))
