"""PaTH in the model's layers, compared with the reference: reflections that a layer makes of its input."""

from dataclasses import replace

import numpy as np
import pytest
from layer_checks import assert_gradients_are_the_references, lengths_of, moved

import fastpe
from fastpe import ModelConfig, Transformer

BASE = ModelConfig("path", width=24, heads=4, layers=2, hidden=20, causal=True, train_length=20, dtype="float64")
DOCUMENTS = {"vocabulary": 11, "positions": "documents:3"}
CASES = [
    {}, {"sight": "window:9,chunks:70"}, {"dropout": 0.3},
    {"norm": "layernorm", "activation": "gelu", "final_norm": True},
    {"heads": 1, "norm": "rmsnorm"},
    {"encoding": "path*2,nope", "layers": 3}, {"encoding": "sinusoidal+path"}, {"options": {"rank": 3}},
    {"residual": False, "bias": False}, {"vocabulary": 7, "tied": True}, {"encoding": "learned+path", "width": 20},
    {"encoding": "path@a,path@b", "options": {"path@a.rank": 5}}, {"width": 36, "heads": 2},
    {"encoding": "learned+path", "positions": "digits:3:2-4", "vocabulary": 7}, {"sight": "chunks:7,all"},
    {"encoding": "fox+path"}, {"encoding": "path+cable,path,fox", "layers": 3, "sight": "all,window:6,all"},
    {"encoding": "path*2,nope", "layers": 3, "dropout": 0.1},
    DOCUMENTS | {"encoding": "learned+path"}, DOCUMENTS | {"positions": "documents:3:first", "sight": "window:4,all"},
    DOCUMENTS | {"encoding": "fox+path"}, DOCUMENTS | {"dropout": 0.3},
    {"encoding": "alibi+path"}, {"encoding": "rope+shaw+path"}, {"encoding": "grape_a+selective_rope+path"},
    {"encoding": "path+transformer_xl,nope,rope+fire", "layers": 3, "sight": "all,window:6,all"},
    {"encoding": "liere+ssmax+path"}, {"encoding": "huang4+learned+path", "width": 20},
    DOCUMENTS | {"encoding": "rope+shaw+path"},
]  # fmt: skip


@lengths_of(CASES, long=7)
def test_loss_and_gradients_are_the_references(own, length):
    assert_gradients_are_the_references(replace(BASE, train_length=length, **own), length)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 33])
def test_short_sequences(length, dropout):
    assert_gradients_are_the_references(replace(BASE, train_length=length, dropout=dropout), length)


def test_what_reflects_nothing_is_a_model_without():
    """A bias far below zero, where beta is 0."""
    config = replace(BASE, encoding="nope")
    model, plain = moved(BASE), Transformer(config)
    for name, parameter in plain.parameters.items():
        parameter[...] = model.parameters[name]
    for layer in range(2):
        model.parameters[f"layers.{layer}.encoding.path.bias"][...] = -100.0
    x = np.random.default_rng(0).normal(size=(2, 20))
    np.testing.assert_allclose(model(x), plain(x), rtol=1e-11)
    assert np.abs(moved(BASE)(x) - plain(x)).max() > 1e-3


@pytest.mark.parametrize("own", [{}, DOCUMENTS], ids=["usual", "documents"])
@pytest.mark.parametrize("parts", [[1] * 40, [7, 1, 1, 1, 30], [3, 2, 35]])
def test_logits_of_a_text_in_parts(parts, own):
    """What each part leaves behind is all that the next one needs."""
    model = moved(replace(BASE, **{"vocabulary": 5, **own}))
    text, done, state = np.random.default_rng(0).integers(0, 5, sum(parts)), 0, None
    writer, whole = model._writer(len(text), max(parts)), model(text)
    for count in parts:
        new = text[done : done + count]
        rows, state = model._place(writer, new, done, state)
        logits = model._extend(writer, new, rows, done)
        done += count
        np.testing.assert_allclose(logits, whole[done - 1], rtol=1e-9, atol=1e-12)


def test_initial_values():
    sizes = {"dim": 512, "heads": 8, "train_length": 20, "causal": True, "dtype": "float64"}
    values = fastpe.init("path", **sizes)
    bounds = {"down": 512**-0.5, "up": 32**-0.5, "taps": 3**-0.5, "weight": 512**-0.5, "bias": 512**-0.5}
    assert {name: each.shape for name, each in values.items()} == {
        "down": (512, 32), "up": (32, 512), "taps": (3, 512), "weight": (8, 512), "bias": (8,)
    }  # fmt: skip
    for name, bound in bounds.items():
        assert 0.7 * bound < np.abs(values[name]).max() <= bound


MISTAKES = {
    "'path' needs causal=True": {"causal": False},
    "'path@a[+]path@b' has two gates in one layer": {"encoding": "path@a+path@b"},
    "'xpos,path' fills 'growth', which cannot be combined with reflections: reflections mix": {"encoding": "xpos,path"},
    "'spe[+]path' fills 'rel_gain', which cannot be combined with reflections": {"encoding": "spe+path"},
    "'path[+]cope' fills 'counts', which cannot be combined with reflections": {"encoding": "path+cope"},
    "'dape[+]path' fills 'mlp_bias', which cannot be combined with reflections": {"encoding": "dape+path"},
}  # fmt: skip


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes(text):
    with pytest.raises(ValueError, match=f"^{text}"):
        Transformer(replace(BASE, **MISTAKES[text]))
