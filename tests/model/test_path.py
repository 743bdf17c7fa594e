"""PaTH in the model's layers, beside the reference: reflections that a layer makes of its input."""

from dataclasses import replace

import numpy as np
import pytest
from layer_checks import (
    assert_gradients_are_the_references,
    assert_learns,
    assert_packed_sequences_are_those_alone,
    assert_padding_does_not_matter,
    assert_threads_do_not_matter,
    assert_writes_stay_inside,
    assert_written_as_a_whole,
    batch,
    lengths_of,
    moved,
)

import fastpe
from fastpe import ModelConfig, Transformer
from fastpe.reference import _gate, reflections_vjp

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


def test_a_mistake_is_caught(monkeypatch):
    """One tap too late."""

    def wrong(x, down, up, taps, weight, bias, **places):
        return reflections_vjp(x, down, up, np.roll(taps, 1, axis=0), weight, bias, **places)

    monkeypatch.setattr(_gate, "reflections_vjp", wrong)
    with pytest.raises(AssertionError):
        assert_gradients_are_the_references(BASE, 20)


def test_gradients_by_differences():
    """Of the whole model, where no reference helps."""
    model = moved(BASE)
    x, y = batch(BASE, 9, np.random.default_rng(2))
    gradients = model.loss_and_grads(x, y)[1]
    places = {"down": (3, 7), "up": (1, 5), "taps": (2, 4), "weight": (1, 6), "bias": (2,)}
    for role, place in places.items():
        name = f"layers.0.encoding.path.{role}"
        losses = []
        for step in (1e-5, -1e-5):
            model.parameters[name][place] += step
            losses.append(model.loss(x, y))
            model.parameters[name][place] -= step
        assert gradients[name][place] == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=1e-6, abs=1e-9), name


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


@pytest.mark.parametrize(
    "own", [{}, {"dropout": 0.3, "dtype": "float64"}, {"encoding": "rope+shaw+cable+path", "dtype": "float64"}]
)
@pytest.mark.parametrize("threads", [2, 3])
def test_the_bits_do_not_depend_on_threads(threads, own):
    assert_threads_do_not_matter(threads, BASE, **own)


def test_lengths_of_their_own():
    assert_padding_does_not_matter(BASE)


def test_what_is_dropped_out_does_not_depend_on_lengths():
    """Of sequences that end as of those whose neighbours are padded, over three cells of dropout and by rows."""
    config, lengths = replace(BASE, train_length=131, norm="layernorm", dropout=0.3), np.array([131, 70, 3])
    model, (x, y) = moved(config), batch(config, 131, np.random.default_rng(5))
    weights = (np.arange(131) < lengths[:, None]).astype(float)
    loss, gradients = model.loss_and_grads(x, y, weights=weights)
    found = model.loss_and_grads(x, y, weights=weights, lengths=lengths)
    assert found[0] == pytest.approx(loss, rel=1e-13)
    assert loss != pytest.approx(model.loss(x, y, weights=weights), rel=1e-4)
    for name, gradient in gradients.items():
        scale = np.abs(gradient).max() + 1e-4
        np.testing.assert_allclose(found[1][name], gradient, rtol=0, atol=1e-12 * scale, err_msg=name)


def test_short_sequences_that_go_together_are_those_that_go_alone():
    assert_packed_sequences_are_those_alone(BASE)


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"encoding": "sinusoidal+path"},
        {"encoding": "path,nope"},
        {"sight": "window:40,chunks:64"},
        DOCUMENTS,
        {"encoding": "fox+path"},
        {"encoding": "rope+shaw+cable+path"},
    ],
)
@pytest.mark.parametrize("prompt", [1, 2, 3, 500])
def test_tokens_written_one_by_one_are_those_of_whole_sequences(own, prompt):
    """500 go through the model in two parts."""
    model = moved(replace(BASE, **{"vocabulary": 11, **own}))
    assert_written_as_a_whole(model, prompt, atol=1e-12)


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


@pytest.mark.parametrize("cut", [1, 2, 3, 40, 64, 98])
def test_documents_of_a_row_are_those_alone(cut):
    """Nothing leads from one to another, neither attention nor the convolution: outputs, losses and gradients."""
    config = replace(BASE, **DOCUMENTS)
    model, (x, y) = moved(config), batch(config, 99, np.random.default_rng(4), 1)
    x[x == 3] = 4
    x[0, cut - 1] = 3
    parts = slice(0, cut), slice(cut, 99)
    for part in parts:
        np.testing.assert_allclose(model(x)[:, part], model(x[:, part]), rtol=1e-11, atol=1e-13)
    loss, found = model.loss_and_grads(x, y)
    alone = [(len(range(99)[part]) / 99, *model.loss_and_grads(x[:, part], y[:, part])) for part in parts]
    assert loss == pytest.approx(sum(share * each for share, each, _ in alone), rel=1e-12)
    for name, gradient in found.items():
        expected = sum(share * each[name] for share, _, each in alone)
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-12 * (1 + np.abs(expected).max()), err_msg=name)


@pytest.mark.parametrize("own", [{}, {"dropout": 0.3}, {"encoding": "rope+shaw+cable+path"}])
def test_writes_stay_inside(monkeypatch, own):
    assert_writes_stay_inside(monkeypatch, replace(BASE, **own))


def test_it_learns():
    assert_learns(BASE)


def test_float32_is_as_near_as_its_roundings():
    config = replace(BASE, norm="layernorm")
    x, y = batch(config, 20, np.random.default_rng(1))
    exact = moved(config).loss_and_grads(x, y)
    found = moved(replace(config, dtype="float32")).loss_and_grads(x, y)
    assert found[0] == pytest.approx(exact[0], rel=1e-5)
    for name, gradient in exact[1].items():
        scale = np.abs(gradient).max() + 1e-3
        np.testing.assert_allclose(found[1][name], gradient, rtol=0, atol=1e-4 * scale, err_msg=name)


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
