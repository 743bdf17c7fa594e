"""Gates of the model's layers, beside the reference and beside numbers of the authors' code."""

from dataclasses import replace

import numpy as np
import pytest
from guards import guarded_results

import fastpe
from fastpe import Adam, ModelConfig, Transformer, reference
from fastpe.model import passes, scratch
from fastpe.model.encoding import ModelEncoding

BASE = ModelConfig("fox", width=24, heads=3, layers=3, hidden=20, causal=True, train_length=20, dtype="float64")
CASES = [
    {"encoding": "fox"}, {"encoding": "fox", "norm": "layernorm", "activation": "gelu", "final_norm": True},
    {"encoding": "fox", "options": {"gate": "bias_only", "initial": 1.0}}, {"encoding": "cable"},
    {"encoding": "ssd_decay", "norm": "rmsnorm"}, {"encoding": "rope+fox"}, {"encoding": "fox*2,nope"},
    {"encoding": "rope,fox,t5+cable", "options": {"cable.scaled": True}}, {"encoding": "sinusoidal+fox"},
    {"encoding": "fox", "residual": False}, {"encoding": "fox", "sight": "window:5,all"},
    {"encoding": "shaw+ssd_decay", "options": {"shaw.reach": 3}}, {"encoding": "fox", "vocabulary": 7, "tied": True},
]  # fmt: skip


def batch(config, length, rng, count=3):
    if config.vocabulary:
        return rng.integers(0, config.vocabulary, (2, count, length))
    return rng.normal(size=(2, count, length))


@pytest.mark.parametrize(
    ("own", "length"),
    [*((own, 20) for own in CASES), *((own, 131) for own in CASES[:2])],  # weights are kept of short sequences alone
    ids=lambda each: " ".join(map(str, each.values())) if isinstance(each, dict) else str(each),
)
def test_loss_and_gradients_are_the_references(own, length):
    config = replace(BASE, train_length=length, **own)
    model, rng = Transformer(config), np.random.default_rng(1)
    for name, parameter in model.parameters.items():
        if "encoding" in name:
            parameter += rng.normal(0, 0.3, parameter.shape)
    x, y = batch(config, length, rng)
    exact, gradients = ModelEncoding(config).reference_loss_and_grads(model.parameters, x, y)
    loss, ours = model.loss_and_grads(x, y)
    assert loss == pytest.approx(exact, rel=1e-12)
    assert ours.keys() == gradients.keys() | {name for name in ours if name not in gradients and not ours[name].any()}
    for name, gradient in gradients.items():
        scale = np.abs(gradient).max() + 1e-4
        np.testing.assert_allclose(ours[name], gradient, rtol=0, atol=1e-11 * scale, err_msg=name)


def test_the_reference_is_the_formula_of_the_authors():
    """N 4, one head: log f, and the gradient of the logits, as the authors' code gives them."""
    i = np.arange(4)
    logits = 1 + 0.5 * np.sin(i)
    lost, pullback = reference.gate_vjp(logits[:, None], -1, np.zeros(1), np.ones((1, 1)))
    log_f = [-0.313261688, -0.216349567, -0.209841363, -0.294769263]
    np.testing.assert_allclose(-np.diff(lost[0], prepend=0), log_f, atol=1e-9)
    q = np.sin(i[:, None] + 1 + 0.5 * i)[None, None]
    k = np.cos(0.7 * i[:, None] + 0.3 * i)[None, None]
    v = np.sin(0.2 * i[:, None] * (i + 1) + 0.1)[None, None]
    out, attention_pullback = reference.attention_vjp(q, k, v, causal=True, scale=0.5, key_offset=lost[None])
    np.testing.assert_allclose([out[0, 0, 2, 0], out[0, 0, 3, 3]], [0.386237961, 0.682754316], atol=1e-9)
    found = attention_pullback(np.cos(0.5 * i[:, None] - i)[None, None])
    of_offsets = found["key_offset"][0]
    np.testing.assert_allclose(-of_offsets[0], [0.117206519, 0.099867610, -0.145901047, -0.071173083], atol=1e-9)
    of_logits = pullback(of_offsets)["x"][:, 0]
    np.testing.assert_allclose(of_logits, [0, -0.022802096, -0.041089344, -0.018170246], atol=1e-9)


def test_a_gate_that_stays_is_alibi():
    """f of slope s: softplus(-b) = s."""
    slopes = np.array([0.5, 0.25, 0.125])
    config = replace(BASE, encoding="fox", options={"gate": "bias_only"})
    model, plain = Transformer(config), Transformer(replace(config, encoding="alibi", options={"slope": 0.5}))
    for layer in range(3):
        model.parameters[f"layers.{layer}.encoding.fox.bias"][...] = -np.log(np.expm1(np.full(3, 0.5)))
    for name in plain.parameters:
        plain.parameters[name][...] = model.parameters[name]
    x = np.random.default_rng(0).normal(size=(2, 20))
    assert slopes.size == 3
    np.testing.assert_allclose(model(x), plain(x), rtol=1e-10)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_bits_do_not_depend_on_threads(threads):
    config = replace(BASE, dtype="float32", encoding="rope+fox")
    x, y = batch(config, 20, np.random.default_rng(0), 19)
    ours = Transformer(config).loss_and_grads(x, y, threads=threads)
    expected = Transformer(config).loss_and_grads(x, y, threads=1)
    assert ours[0] == expected[0]
    for name, gradient in expected[1].items():
        np.testing.assert_array_equal(ours[1][name], gradient, err_msg=name)


def test_lengths_of_their_own():
    x, lengths = np.random.default_rng(0).normal(size=(3, 20)), np.array([20, 7, 13])
    model = Transformer(BASE)
    together = model(x, lengths=lengths)
    for row, length, found in zip(x, lengths, together, strict=True):
        np.testing.assert_allclose(found[:length], model(row[:length]), rtol=1e-12)


def test_tokens_written_one_by_one_are_those_of_whole_sequences():
    model = Transformer(replace(BASE, encoding="rope+fox", vocabulary=11, dtype="float32"))
    written = model.generate([1, 2, 3], 30, temperature=0.0)
    for count in (7, 15, 29):
        assert model(np.array(written[:count]))[-1].argmax() == written[count]


def test_writes_stay_inside(monkeypatch):
    check = guarded_results(monkeypatch, scratch, passes)
    x = np.random.default_rng(0).normal(size=(3, 20))
    Transformer(BASE).loss_and_grads(x, x)
    check()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_it_learns(precision):
    model = Transformer(replace(BASE, dtype="float32", precision=precision, norm="layernorm"))
    optimiser, x = Adam(model, lr=3e-3), np.random.default_rng(0).normal(size=(16, 20))
    before = {name: value.copy() for name, value in model.parameters.items()}
    losses = [optimiser.step(x, np.cumsum(x, axis=1)) for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]
    for name, value in model.parameters.items():
        assert not np.array_equal(value, before[name]), name


def test_initial_values():
    values = fastpe.init("ssd_decay", dim=64, heads=8, train_length=20, causal=True)
    times = np.logaddexp(0, values["bias"])
    assert ((times > 0.00099) & (times < 0.101)).all()
    shares = [np.log(times / 0.001) / np.log(100), (np.exp(values["rate"]) - 1) / 15]
    assert np.abs(shares[0] - shares[1]).max() > 0.1  # drawn apart
    assert ((values["rate"] >= 0) & (values["rate"] <= np.log(16) + 1e-6)).all()
    assert abs(fastpe.init("fox", dim=64, heads=8, train_length=20, causal=True)["weight"]).max() <= 0.125


def test_mistakes():
    for name in ("fox", "cable", "ssd_decay"):
        with pytest.raises(ValueError, match=f"^'{name}' needs causal=True"):
            Transformer(replace(BASE, encoding=name, causal=False))
    with pytest.raises(ValueError, match=r"^'fox\+cable' has two gates in one layer, 'fox' and 'cable': choose one"):
        Transformer(replace(BASE, encoding="fox+cable"))
    with pytest.raises(ValueError, match=r"^slowest and fastest must be in this order, not 3.0 and 2.0"):
        Transformer(replace(BASE, encoding="ssd_decay", options={"slowest": 3, "fastest": 2}))
