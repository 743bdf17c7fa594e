"""Gates of the model's layers, beside the reference and beside numbers of the authors' code."""

from dataclasses import replace

import numpy as np
import pytest
from layer_checks import (
    assert_gradients_are_the_references,
    assert_learns,
    assert_padding_does_not_matter,
    assert_threads_do_not_matter,
    assert_writes_stay_inside,
    lengths_of,
)

import fastpe
from fastpe import ModelConfig, Transformer, reference

BASE = ModelConfig("fox", width=24, heads=3, layers=3, hidden=20, causal=True, train_length=20, dtype="float64")
CASES = [
    {"encoding": "fox"}, {"encoding": "fox", "norm": "layernorm", "activation": "gelu", "final_norm": True},
    {"encoding": "fox", "options": {"gate": "bias_only", "initial": 1.0}}, {"encoding": "cable"},
    {"encoding": "ssd_decay", "norm": "rmsnorm"}, {"encoding": "rope+fox"}, {"encoding": "fox*2,nope"},
    {"encoding": "rope,fox,t5+cable", "options": {"cable.scaled": True}}, {"encoding": "sinusoidal+fox"},
    {"encoding": "fox", "residual": False}, {"encoding": "fox", "sight": "window:5,all"},
    {"encoding": "shaw+ssd_decay", "options": {"shaw.reach": 3}}, {"encoding": "fox", "vocabulary": 7, "tied": True},
]  # fmt: skip


@lengths_of(CASES, long=2)
def test_loss_and_gradients_are_the_references(own, length):
    assert_gradients_are_the_references(replace(BASE, train_length=length, **own), length)


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
    assert_threads_do_not_matter(threads, BASE, encoding="rope+fox")


def test_lengths_of_their_own():
    assert_padding_does_not_matter(BASE)


def test_tokens_written_one_by_one_are_those_of_whole_sequences():
    model = Transformer(replace(BASE, encoding="rope+fox", vocabulary=11, dtype="float32"))
    written = model.generate([1, 2, 3], 30, temperature=0.0)
    for count in (7, 15, 29):
        assert model(np.array(written[:count]))[-1].argmax() == written[count]


def test_writes_stay_inside(monkeypatch):
    assert_writes_stay_inside(monkeypatch, BASE)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_it_learns(precision):
    assert_learns(BASE, precision=precision)


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
    with pytest.raises(ValueError, match=r"^options slowest and fastest must be in ascending order, not 3.0 and 2.0"):
        Transformer(replace(BASE, encoding="ssd_decay", options={"slowest": 3, "fastest": 2}))
