"""Gates of the model's layers, forget gates and gated slopes (GRAPE-A), agree with the reference."""

from dataclasses import replace

import numpy as np
import pytest
from layer_checks import assert_gradients_are_the_references, lengths_of

import fastpe
from fastpe import ModelConfig, Transformer, columns, reference
from fastpe.encodings.bias.alibi import slopes
from fastpe.model.encoding import ModelEncoding

BASE = ModelConfig("fox", width=24, heads=3, layers=3, hidden=20, causal=True, train_length=20, dtype="float64")
CASES = [
    {"encoding": "fox"}, {"encoding": "fox", "norm": "layernorm", "activation": "gelu", "final_norm": True},
    *({"encoding": "grape_a", "options": {"gate": gate}} for gate in ("key", "query", "both")),
    {"encoding": "rope+grape_a", "norm": "layernorm", "activation": "gelu", "options": {"grape_a.gate": "both"}},
    {"encoding": "grape_a*2,nope"}, {"encoding": "shaw+grape_a", "options": {"shaw.reach": 3, "grape_a.gate": "both"}},
    {"encoding": "fox,grape_a,t5+ssmax"}, {"encoding": "ssmax+grape_a", "options": {"grape_a.gate": "query"}},
    {"encoding": "grape_a@near,grape_a@far", "options": {"grape_a@near.gate": "query"}},
    {"encoding": "sinusoidal+grape_a", "residual": False, "bias": False}, {"encoding": "da+grape_a"},
    {"encoding": "grape_a", "sight": "window:5,all"}, {"encoding": "grape_a", "vocabulary": 7, "tied": True},
    {"encoding": "fox", "options": {"gate": "bias_only", "initial": 1.0}}, {"encoding": "cable"},
    {"encoding": "ssd_decay", "norm": "rmsnorm"}, {"encoding": "rope+fox"}, {"encoding": "fox*2,nope"},
    {"encoding": "rope,fox,t5+cable", "options": {"cable.scaled": True}}, {"encoding": "sinusoidal+fox"},
    {"encoding": "fox", "residual": False}, {"encoding": "fox", "sight": "window:5,all"},
    {"encoding": "shaw+ssd_decay", "options": {"shaw.reach": 3}}, {"encoding": "fox", "vocabulary": 7, "tied": True},
]  # fmt: skip


@lengths_of(CASES, long=7)
def test_loss_and_gradients_are_the_references(own, length):
    assert_gradients_are_the_references(replace(BASE, train_length=length, **own), length)


def test_the_reference_is_the_column_that_has_the_authors_numbers():
    """Those are in tests/test_columns.py."""
    logits = 1 + 0.5 * np.sin(np.arange(4))
    found, pullback = reference.gate_vjp(logits[:, None], -1, np.zeros(1), np.ones((1, 1)))
    expected, other = columns.forget_gate_vjp(logits[None])
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    gradient = np.array([[0.117206519, 0.099867610, -0.145901047, -0.071173083]])
    np.testing.assert_allclose(pullback(gradient)["x"][:, 0], other(gradient)["logits"][0], rtol=1e-13)


@pytest.mark.parametrize(
    ("encoding", "options", "values", "of_alibi"),
    [
        ("fox", {"gate": "bias_only"}, {"bias": -np.log(np.expm1(0.5))}, {"slope": 0.5}),  # softplus(-b) is the slope
        ("grape_a", {}, {"weight": np.log(np.expm1(1 / np.log(2))), "key": 0.0}, {}),  # keys: softplus(0) = ln 2
    ],
)
def test_a_gate_that_stays_is_alibi(encoding, options, values, of_alibi):
    config = replace(BASE, encoding=encoding, options=options)
    model, plain = Transformer(config), Transformer(replace(config, encoding="alibi", options=of_alibi))
    for layer in range(3):
        for role, value in values.items():
            model.parameters[f"layers.{layer}.encoding.{encoding}.{role}"][...] = value
    for name in plain.parameters:
        plain.parameters[name][...] = model.parameters[name]
    x = np.random.default_rng(0).normal(size=(2, 20))
    np.testing.assert_allclose(model(x), plain(x), rtol=1e-10)


def test_nothing_is_left_out_where_slopes_may_rise():
    """Slopes that reward distance: what is far has all the weight, and no bound of near keys may hide it."""
    n = 600
    q, v = np.ones((1, n, 4)), np.arange(n)[None, :, None] * np.ones(4)
    steep = -columns.gated_slopes(q, np.eye(4)[:1], slopes=[1.0], weight=[0.541324855])
    falling = {"bias": -np.abs(np.arange(1 - n, n))[None] * 0.1, "causal": True}
    out = fastpe.attention(q, q, v, key_slope=steep, **falling)
    exact = reference.attention(q[None], q[None], v[None], key_slope=steep, **falling)[0]
    np.testing.assert_allclose(out, exact, rtol=1e-12)
    assert out[0, -1, 0] < 5  # the mean place of what the last query sees
    near = fastpe.attention(q, q, v, **falling)
    assert near[0, -1, 0] > n - 20


def test_initial_values():
    values = fastpe.init("ssd_decay", dim=64, heads=8, train_length=20, causal=True)
    times = np.logaddexp(0, values["bias"])
    assert ((times > 0.00099) & (times < 0.101)).all()
    shares = [np.log(times / 0.001) / np.log(100), (np.exp(values["rate"]) - 1) / 15]
    assert np.abs(shares[0] - shares[1]).max() > 0.1  # drawn apart
    assert ((values["rate"] >= 0) & (values["rate"] <= np.log(16) + 1e-6)).all()
    assert abs(fastpe.init("fox", dim=64, heads=8, train_length=20, causal=True)["weight"]).max() <= 0.125


def test_initial_values_of_gated_slopes():
    values = fastpe.init("grape_a", dim=512, heads=8, train_length=20, causal=True, gate="both", dtype="float64")
    np.testing.assert_allclose(values["weight"], 0.541324855, atol=1e-9)
    assert values["key"].shape == values["query"].shape == (8, 64)
    assert abs(np.std([values["key"], values["query"]]) - 1 / 8) < 0.01
    assert not np.array_equal(values["key"], values["query"])
    gate = ModelEncoding(replace(BASE, encoding="grape_a", heads=8)).gates[0]
    np.testing.assert_array_equal(gate.slopes, slopes(8))


def test_mistakes():
    for name in ("fox", "cable", "ssd_decay", "grape_a"):
        with pytest.raises(ValueError, match=f"^'{name}' needs causal=True"):
            Transformer(replace(BASE, encoding=name, causal=False))
    for other in ("cable", "grape_a"):
        said = rf"^'fox\+{other}' has two gates in one layer, 'fox' and '{other}': choose one"
        with pytest.raises(ValueError, match=said):
            Transformer(replace(BASE, encoding=f"fox+{other}"))
    with pytest.raises(ValueError, match=r"^options slowest and fastest must be in ascending order, not 3.0 and 2.0"):
        Transformer(replace(BASE, encoding="ssd_decay", options={"slowest": 3, "fastest": 2}))
