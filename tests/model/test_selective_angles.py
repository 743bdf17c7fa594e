"""Selective RoPE in the model's layers, compared with the reference: angles that a layer makes of its input."""

from dataclasses import replace

import numpy as np
import pytest
from layer_checks import assert_gradients_are_the_references, lengths_of

import fastpe
from fastpe import Banded, ModelConfig, Transformer
from fastpe.model.encoding import ModelEncoding

BASE = ModelConfig(
    "selective_rope", width=24, heads=3, layers=3, hidden=20, causal=True, train_length=20, dtype="float64"
)  # fmt: skip
DOCUMENTS = {"vocabulary": 7, "positions": "documents:3"}
CASES = [
    {}, {"norm": "layernorm", "activation": "gelu", "final_norm": True},
    {"options": {"pairs": "interleaved", "rank": 3}}, {"encoding": "selective_rope*2,nope"},
    {"encoding": "rope+selective_rope", "options": {"rope.pairs": "half"}},
    {"encoding": "fox+selective_rope", "norm": "rmsnorm"}, {"encoding": "grape_a,selective_rope+cable,t5"},
    {"encoding": "selective_rope@low,selective_rope@high", "options": {"selective_rope@low.rank": 2}},
    {"encoding": "rope,selective_rope", "options": {"rope.pairs": "half"}}, {"encoding": "shaw+selective_rope"},
    {"encoding": "ssmax+selective_rope"}, {"encoding": "selective_rope+cope"}, {"encoding": "da+selective_rope"},
    {"encoding": "string+selective_rope", "options": {"string.pairs": "half"}}, {"residual": False, "bias": False},
    {"encoding": "xpos+selective_rope", "options": {"xpos.pairs": "half"}}, {"heads": 1, "width": 10},
    {"encoding": "sinusoidal+selective_rope"}, {"sight": "window:5,all"}, {"vocabulary": 7, "tied": True},
    {"encoding": "learned+selective_rope", "positions": "digits:3:2-4", "vocabulary": 7},
    {"encoding": "rope+fox+selective_rope", "options": {"rope.pairs": "half"}, **DOCUMENTS},
]  # fmt: skip


@lengths_of(CASES, long=6)
def test_loss_and_gradients_are_the_references(own, length):
    assert_gradients_are_the_references(replace(BASE, train_length=length, **own), length)


def test_what_turns_evenly_is_rope():
    """A network that says 1 of every token: they differ in signs alone, but for the channel that it looks at."""
    config = replace(BASE, layers=1, heads=1, vocabulary=3)
    model, rng = Transformer(config), np.random.default_rng(0)
    plain = Transformer(replace(config, encoding="rope", options={"pairs": "half", "base": 500000.0}))
    tokens = 3 * rng.normal(size=24) * np.sign(rng.normal(size=(3, 24)))
    tokens[:, 0] = np.abs(tokens[:, 0])
    model.parameters["embed.weight"][...] = tokens
    for name in plain.parameters:
        plain.parameters[name][...] = model.parameters[name]
    down, up, taps = (model.parameters[f"layers.0.encoding.selective_rope.{role}"] for role in ("down", "up", "taps"))
    down[...], up[...], taps[...] = 0.0, np.eye(16)[:, :1], np.eye(4)[:, 3:]
    down[0, 0] = np.sqrt(np.sum(tokens[0] ** 2) + 1e-6) / tokens[0, 0]
    text = rng.integers(0, 3, (2, 20))
    np.testing.assert_allclose(model(text), plain(text), rtol=1e-10)
    taps *= 1.1
    assert np.abs(model(text) - plain(text)).max() > 1e-2


def test_a_long_text_goes_on_from_sums_in_full():
    """Float32: the sum of 400 large steps, written token by token, is that of the whole text."""
    config = replace(BASE, layers=1, vocabulary=5, dtype="float32", train_length=400)
    model = Transformer(config)
    for role in ("down", "up"):
        model.parameters[f"layers.0.encoding.selective_rope.{role}"][...] *= 30.0
    text = np.random.default_rng(0).integers(0, 5, 400)
    writer = model._writer(400, 1)
    for place, token in enumerate(text):
        rows, _ = model._place(writer, np.array([token]), place, None)
        logits = model._extend(writer, np.array([token]), rows, place).copy()
    np.testing.assert_allclose(logits, model(text)[-1], atol=2e-5)


def test_initial_values():
    sizes = {"dim": 512, "heads": 8, "train_length": 20, "causal": True, "dtype": "float64"}
    values = fastpe.init("selective_rope", **sizes)
    bounds = {"down": 512**-0.5, "up": 0.25, "taps": 0.5}
    assert {name: each.shape for name, each in values.items()} == {
        "down": (512, 16), "up": (16, 256), "taps": (4, 256)
    }  # fmt: skip
    for name, bound in bounds.items():
        assert 0.99 * bound < np.abs(values[name]).max() <= bound
        assert abs(np.std(values[name]) - bound / np.sqrt(3)) < 0.03 * bound
    gate = ModelEncoding(replace(BASE, width=64, heads=8)).gates[0]
    np.testing.assert_allclose(gate.frequencies, 500000.0 ** (-np.arange(0, 8, 2) / 8), rtol=1e-15)


MISTAKES = {
    "'selective_rope' needs causal=True": {"causal": False},
    "'selective_rope@a[+]selective_rope@b' has two gates in one layer": {
        "encoding": "selective_rope@a+selective_rope@b"
    },
    "dim / heads must be even": {"width": 27},
    "'rope[+]selective_rope' rotates 2 pairs of channels by position: it must rotate all 4": {
        "encoding": "rope+selective_rope", "options": {"rope.pairs": "half", "rope.rotated": 4}
    },
    "'rope[+]selective_rope' sets 'pairs' to both 'interleaved' and 'half'": {"encoding": "rope+selective_rope"},
    "'pope[+]selective_rope' fills 'polar'": {"encoding": "pope+selective_rope"},
    "the layers of 'selective_rope@a,selective_rope@b' compute angles with different frequencies": {
        "encoding": "selective_rope@a,selective_rope@b", "options": {"selective_rope@a.base": 10.0}
    },
}  # fmt: skip


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes(text):
    with pytest.raises(ValueError, match=f"^{text}"):
        Transformer(replace(BASE, **MISTAKES[text]))


def test_bands_choose_among_angles_of_positions():
    model = Transformer(replace(BASE, encoding="rope,selective_rope", options={"rope.pairs": "half"}))
    x = np.random.default_rng(0).normal(size=(2, 6))
    np.testing.assert_allclose(Banded(model, "self_extend:group=2,window=6")(x), model(x), rtol=1e-9)
    both = Transformer(replace(BASE, encoding="rope+selective_rope", options={"rope.pairs": "half"}))
    with pytest.raises(
        ValueError, match=r"^bands need layers that rotate by position only, not 'rope\+selective_rope'"
    ):
        Banded(both, "self_extend:group=2,window=6")
