"""GRAPE-A in the model's layers, beside the reference and beside numbers of the authors' code."""

from dataclasses import replace

import numpy as np
import pytest
from fixture_attention import K, Q, V, results
from layer_checks import (
    assert_gradients_are_the_references,
    assert_learns,
    assert_padding_does_not_matter,
    assert_threads_do_not_matter,
    assert_writes_stay_inside,
    lengths_of,
)

import fastpe
from fastpe import ModelConfig, Transformer, columns, reference
from fastpe.encodings.bias.alibi import slopes
from fastpe.model.encoding import ModelEncoding
from fastpe.reference import _gate

BASE = ModelConfig("grape_a", width=24, heads=3, layers=3, hidden=20, causal=True, train_length=20, dtype="float64")
CASES = [
    *({"encoding": "grape_a", "options": {"gate": gate}} for gate in ("key", "query", "both")),
    {"encoding": "rope+grape_a", "norm": "layernorm", "activation": "gelu", "options": {"grape_a.gate": "both"}},
    {"encoding": "grape_a*2,nope"}, {"encoding": "shaw+grape_a", "options": {"shaw.reach": 3, "grape_a.gate": "both"}},
    {"encoding": "fox,grape_a,t5+ssmax"}, {"encoding": "ssmax+grape_a", "options": {"grape_a.gate": "query"}},
    {"encoding": "grape_a@near,grape_a@far", "options": {"grape_a@near.gate": "query"}},
    {"encoding": "sinusoidal+grape_a", "residual": False, "bias": False}, {"encoding": "da+grape_a"},
    {"encoding": "grape_a", "sight": "window:5,all"}, {"encoding": "grape_a", "vocabulary": 7, "tied": True},
]  # fmt: skip


@lengths_of(CASES, long=5)
def test_loss_and_gradients_are_the_references(own, length):
    assert_gradients_are_the_references(replace(BASE, train_length=length, **own), length)


class Gate:
    """What the model hands to the reference."""

    slopes, frequencies, reflected = (1 / 16,), (), None

    def __init__(self, *roles):
        self.sign, self.names = 0, {role: role for role in ("weight", *roles)}


ROWS, CHANNELS = np.arange(4)[:, None], np.arange(4)
U = {"weight": np.array([np.log(np.e - 1)]), "key": np.eye(4)[:1], "query": np.eye(4)[:1]}

# S[3,1], P[2,0], O[2,0], O[3,3]
AUTHORS = {
    ("key",): [-0.784268984, 0.147396665, 0.371512303, 0.694265964],
    ("query",): [-0.736670368, 0.150825033, 0.370044006, 0.693885604],
    ("key", "query"): [-0.849486386, 0.138068398, 0.376072621, 0.693252199],
}


@pytest.mark.parametrize("roles", AUTHORS, ids="+".join)
def test_the_references_columns_are_the_authors(roles):
    q, k, v = Q[None, None], K[None, None], V[None, None]
    made, pullback = _gate.made_vjp(Gate(*roles), U, q[0], q, k)
    _, *found = results({slot: each[0] for slot, each in made.items()}, causal=True)
    np.testing.assert_allclose(found, AUTHORS[roles], atol=1e-9)
    if roles == ("key",):
        gradients: dict = {}
        back = reference.attention_vjp(q, k, v, causal=True, **made)[1]
        pullback(back(np.cos(0.5 * ROWS - CHANNELS)[None, None]), gradients)
        np.testing.assert_allclose(gradients["weight"], [0.018436669], atol=1e-9)
        np.testing.assert_allclose(gradients["key"], [[0, 0.007901183, 0.006301079, 0.004138119]], atol=1e-9)


def test_a_gate_of_one_is_alibi():
    """Directions that meet nothing: softplus(0) = ln 2, which the weights make up for."""
    model, plain = Transformer(BASE), Transformer(replace(BASE, encoding="alibi"))
    for name in plain.parameters:
        plain.parameters[name][...] = model.parameters[name]
    for layer in range(3):
        model.parameters[f"layers.{layer}.encoding.grape_a.weight"][...] = np.log(np.expm1(1 / np.log(2)))
        model.parameters[f"layers.{layer}.encoding.grape_a.key"][...] = 0.0
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


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_bits_do_not_depend_on_threads(threads, precision):
    own = {"encoding": "rope+grape_a", "options": {"grape_a.gate": "both"}, "precision": precision}
    assert_threads_do_not_matter(threads, BASE, **own)


def test_lengths_of_their_own():
    assert_padding_does_not_matter(replace(BASE, options={"gate": "both"}))


def test_tokens_written_one_by_one_are_those_of_whole_sequences():
    model = Transformer(replace(BASE, options={"gate": "both"}, vocabulary=11))
    written = model.generate([1, 2, 3], 30, temperature=0.0)
    np.testing.assert_array_equal(written, model.generate([1, 2, 3], 30, temperature=0.0, cache=False))


def test_writes_stay_inside(monkeypatch):
    assert_writes_stay_inside(monkeypatch, replace(BASE, options={"gate": "both"}))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_it_learns(precision):
    assert_learns(BASE, precision=precision, options={"gate": "both"})


def test_initial_values():
    values = fastpe.init("grape_a", dim=512, heads=8, train_length=20, causal=True, gate="both", dtype="float64")
    np.testing.assert_allclose(values["weight"], 0.541324855, atol=1e-9)
    assert values["key"].shape == values["query"].shape == (8, 64)
    assert abs(np.std([values["key"], values["query"]]) - 1 / 8) < 0.01
    assert not np.array_equal(values["key"], values["query"])
    gate = ModelEncoding(replace(BASE, heads=8)).gates[0]
    np.testing.assert_array_equal(gate.slopes, slopes(8))


def test_mistakes():
    with pytest.raises(ValueError, match=r"^'grape_a' needs causal=True"):
        Transformer(replace(BASE, causal=False))
    with pytest.raises(
        ValueError, match=r"^'fox\+grape_a' has two gates in one layer, 'fox' and 'grape_a': choose one"
    ):
        Transformer(replace(BASE, encoding="fox+grape_a"))
