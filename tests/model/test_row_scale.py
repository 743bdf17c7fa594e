"""Factors of queries in the model's layers, beside the reference; generation, bits, memory."""

from dataclasses import replace

import numpy as np
import pytest
from guards import guarded_results

from fastpe import Adam, ModelConfig, Transformer
from fastpe.model import passes, scratch
from fastpe.model.encoding import ModelEncoding

BASE = ModelConfig("ssmax", width=24, heads=3, layers=3, hidden=20, causal=True, train_length=20, dtype="float64")
CASES = [
    {"encoding": "ssmax"}, {"encoding": "rope+ssmax", "norm": "layernorm"}, {"encoding": "shaw+ssmax"},
    {"encoding": "xpos+ssmax+log_n"}, {"encoding": "rope+tener+ssmax"}, {"encoding": "ssmax", "causal": False},
    {"encoding": "rope*2,temperature", "options": {"temperature.every": 2}},
    {"encoding": "t5+ssmax,nope,rope_mixed+ssmax"}, {"encoding": "huang3+ssmax", "options": {"huang3.reach": 3}},
    {"encoding": "fox+ssmax", "norm": "layernorm", "final_norm": True}, {"encoding": "da+ssmax"},
    {"encoding": "learned+ssmax", "vocabulary": 7, "tied": True},
    {"encoding": "rope+log_n", "sight": "window:5,all", "residual": False},
    {"encoding": "fope+ssmax", "options": {"fope.learned": True}}, {"encoding": "string+ssmax"},
    {"encoding": "comrope+shaw+ssmax"},
]  # fmt: skip


def batch(config, length, rng, count=3):
    if config.vocabulary:
        return rng.integers(0, config.vocabulary, (2, count, length))
    return rng.normal(size=(2, count, length))


@pytest.mark.parametrize(
    ("own", "length"),
    [*((own, 20) for own in CASES), *((own, 131) for own in CASES[:5])],  # weights are kept of short sequences alone
    ids=lambda each: " ".join(map(str, each.values())) if isinstance(each, dict) else str(each),
)
def test_loss_and_gradients_are_the_references(own, length):
    config = replace(BASE, train_length=8 if "learned" not in own["encoding"] else length, **own)
    model, rng = Transformer(config), np.random.default_rng(1)
    for name, parameter in model.parameters.items():
        if "encoding" in name:
            parameter += rng.normal(0, 0.3, parameter.shape)
    x, y = batch(config, length, rng)
    exact, gradients = ModelEncoding(config).reference_loss_and_grads(model.parameters, x, y)
    loss, ours = model.loss_and_grads(x, y)
    assert loss == pytest.approx(exact, rel=1e-12)
    for name, gradient in gradients.items():
        scale = np.abs(gradient).max() + 1e-4
        np.testing.assert_allclose(ours[name], gradient, rtol=0, atol=1e-11 * scale, err_msg=name)


def test_every_layer_learns_its_own():
    model = Transformer(replace(BASE, encoding="rope+ssmax"))
    own = [name for name in model.parameters if "encoding" in name]
    assert own == [f"layers.{layer}.encoding.ssmax.scale" for layer in range(3)]
    x = np.random.default_rng(0).normal(size=(2, 20))
    before = model(x)
    model.parameters[own[1]][1] = 3.0
    assert np.abs(model(x) - before).max() > 1e-6


def test_where_nothing_is_scaled_it_is_as_without():
    x = np.random.default_rng(0).normal(size=(2, 20))
    plain, scaled = (Transformer(replace(BASE, encoding=name)) for name in ("rope", "rope+log_n"))
    np.testing.assert_array_equal(plain(x), scaled(x))


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_bits_do_not_depend_on_threads(threads, precision):
    config = replace(BASE, dtype="float32", encoding="rope+ssmax", precision=precision)
    x, y = batch(config, 20, np.random.default_rng(0), 19)
    ours = Transformer(config).loss_and_grads(x, y, threads=threads)
    expected = Transformer(config).loss_and_grads(x, y, threads=1)
    assert ours[0] == expected[0]
    for name, gradient in expected[1].items():
        np.testing.assert_array_equal(ours[1][name], gradient, err_msg=name)


@pytest.mark.parametrize("encoding", ["ssmax", "rope+log_n", "rope,temperature"])
def test_tokens_written_one_by_one_are_those_of_whole_sequences(encoding):
    options = {"temperature.every": 3} if "temperature" in encoding else {}
    model = Transformer(replace(BASE, encoding=encoding, options=options, vocabulary=11, train_length=5))
    written = model.generate([1, 2, 3], 30, temperature=0.0)
    np.testing.assert_array_equal(written, model.generate([1, 2, 3], 30, temperature=0.0, cache=False))
    for count in (7, 15, 29):
        assert model(np.array([1, 2, 3, *written[:count]]))[-1].argmax() == written[count]


def test_sequences_of_their_own_lengths_count_from_their_own_starts():
    x, lengths = np.random.default_rng(0).normal(size=(3, 20)), np.array([20, 7, 13])
    model = Transformer(BASE)
    for row, length, found in zip(x, lengths, model(x, lengths=lengths), strict=True):
        np.testing.assert_allclose(found[:length], model(row[:length]), rtol=1e-12)


@pytest.mark.parametrize("encoding", ["ssmax", "rope+ssmax"])
def test_writes_stay_inside(monkeypatch, encoding):
    check = guarded_results(monkeypatch, scratch, passes)
    x = np.random.default_rng(0).normal(size=(3, 20))
    Transformer(replace(BASE, encoding=encoding)).loss_and_grads(x, x)
    check()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_it_learns(precision):
    model = Transformer(replace(BASE, dtype="float32", precision=precision, norm="layernorm", encoding="alibi+ssmax"))
    optimiser, x = Adam(model, lr=3e-3), np.random.default_rng(0).normal(size=(16, 20))
    before = {name: value.copy() for name, value in model.parameters.items()}
    losses = [optimiser.step(x, np.cumsum(x, axis=1)) for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]
    for name, value in model.parameters.items():
        assert not np.array_equal(value, before[name]), name


def test_documents_begin_anew_and_factors_do_not():
    with pytest.raises(ValueError, match=r"fills 'row_scale', which does not begin anew"):
        Transformer(replace(BASE, encoding="rope+log_n", vocabulary=7, positions="documents:3"))
