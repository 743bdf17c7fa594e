"""Decay of weights and clipping, in the same call as the gradients, beside the reference."""

import copy
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from model_cases import tokens_of

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
    for step in range(1, 8):
        adam.lr = 0.02 / step  # as a schedule does
        loss, gradients = mirror.loss_and_grads(x, y)
        assert adam.step(x, y) == pytest.approx(loss, rel=1e-10)
        parameters = dict(mirror.parameters)
        reference.adam_step(parameters, gradients, first, second, step, 0.02 / step, **settings)
        for name, expected in parameters.items():
            np.testing.assert_allclose(model.parameters[name], expected, rtol=1e-9, atol=1e-12, err_msg=name)


def test_only_what_has_two_axes_decays():
    model = Transformer(CONFIG)
    before = model.copies()
    x, y = tokens_of(CONFIG)
    adam = Adam(model, lr=1e-300, weight_decay=1e299)  # nothing but the decay moves anything: 1 - 0.1
    adam.step(x, y)
    for name, value in before.items():
        expected = value * 0.9 if value.ndim > 1 else value
        np.testing.assert_allclose(model.parameters[name], expected, rtol=1e-15, atol=1e-290, err_msg=name)


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


def test_clipped_gradients_have_the_limit_as_their_norm():
    x, y = tokens_of(CONFIG)
    model = Transformer(CONFIG)
    adam = Adam(model, beta1=0.0, clip=0.01)
    norm = math.sqrt(sum(float(np.sum(g**2)) for g in model.loss_and_grads(x, y)[1].values()))
    adam.step(x, y)
    moments = math.sqrt(sum(float(np.sum(m**2)) for m in adam.first.values()))
    assert norm > 0.1
    assert moments == pytest.approx(0.01 * norm / (norm + 1e-6), rel=1e-12)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda adam: pickle.loads(pickle.dumps(adam))])
def test_copies_keep_their_numbers(way):
    adam = Adam(Transformer(CONFIG), lr=0.5, weight_decay=0.25, clip=2.0)
    other = way(adam)
    assert (other.lr, other.weight_decay, other.clip) == (0.5, 0.25, 2.0)
    assert way(Adam(Transformer(CONFIG))).clip == math.inf


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"weight_decay": -1.0}, "weight_decay must be at least 0, not -1"),
        ({"weight_decay": math.inf}, "weight_decay must be finite"),
        ({"clip": 0.0}, "clip must be above 0"),
        ({"clip": math.nan}, "clip must be finite"),
    ],
)
def test_wrong_numbers_are_named(settings, says):
    with pytest.raises(ValueError, match=f"^{says}"):
        Adam(Transformer(CONFIG), **settings)
