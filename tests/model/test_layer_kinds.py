"""What a model must hold whatever its layers' scores are made of: threads, lengths, generation, documents, memory."""

from dataclasses import replace

import numpy as np
import pytest
from layer_checks import (
    assert_documents_are_those_alone,
    assert_learns,
    assert_packed_sequences_are_those_alone,
    assert_padding_does_not_matter,
    assert_threads_do_not_matter,
    assert_writes_stay_inside,
    assert_written_as_a_whole,
    batch,
    moved,
)

from fastpe import ModelConfig

BASE = ModelConfig("nope", width=24, heads=3, layers=3, hidden=20, causal=True, train_length=20, dtype="float64")
KINDS = {
    "cope": {},
    "rope+cope": {},
    "grape_a": {"options": {"gate": "both"}},
    "rope+grape_a": {"options": {"grape_a.gate": "both"}},
    "fox": {},
    "rope+fox": {},
    "alibi+dape": {"options": {"dape.units": 5, "dape.reach": 1}},
    "rope+shaw+cable+dape": {"options": {"dape.reach": 1}, "width": 36},
    "path": {"heads": 4, "layers": 2},
    "rope+shaw+cable+path": {"heads": 4, "layers": 2},
    "ssmax": {},
    "rope+ssmax": {},
    "selective_rope": {},
    "fox+selective_rope": {},
    "alibi": {"sight": "window:3,chunks:5"},
}
IN_HALVES = ("rope+cope", "rope+grape_a", "rope+ssmax", "fox+selective_rope")
IN_FLOAT32 = [kind for kind in KINDS if kind not in ("rope+shaw+cable+dape", "rope+shaw+cable+path")]
"""Kinds that are also tested in float32: the others would only compile the same code again, which takes minutes."""
HALF_PAIRS = {"options": {"rope.pairs": "half"}}
DOCUMENTS = {"positions": "documents:3"}

kinds = pytest.mark.parametrize("kind", KINDS)


def config_of(encoding, **own):
    return replace(BASE, encoding=encoding, **{**KINDS.get(encoding, {}), **own})


LEARNED = {"alibi": {"learned": True}, "legendre": {"learned": True}, "learned+alibi": {"alibi.learned": True}}


SMOOTH = [kind for kind in KINDS if kind not in ("alibi", "alibi+dape", "rope+shaw+cable+dape")]
"""Kinds with parameters of their own, without DAPE, whose network has kinks: differences across them are no slopes."""


@pytest.mark.parametrize("vocabulary", [None, 5])
@pytest.mark.parametrize("encoding", ["learned", *LEARNED, *SMOOTH])
def test_gradients_of_an_encodings_own_parameters_are_differences_of_the_weighted_loss(encoding, vocabulary):
    """Central differences of the compiled loss in float64, along random directions: no reference helps."""
    own = {"options": LEARNED[encoding]} if encoding in LEARNED else {}
    config = config_of(encoding, activation="gelu", vocabulary=vocabulary, **own)
    model, (x, y) = moved(config), batch(config, 9, np.random.default_rng(2))
    weights = np.random.default_rng(8).integers(0, 3, y.shape)
    gradients = model.loss_and_grads(x, y, weights=weights)[1]
    names = [name for name in gradients if "encoding." in name]
    assert names
    for name in names:
        direction = np.random.default_rng(1).standard_normal(gradients[name].shape)
        losses, kept = [], model.parameters[name].copy()
        for step in (1e-5, -1e-5):
            model.parameters[name] = kept + step * direction
            losses.append(model.loss(x, y, weights=weights))
        model.parameters[name] = kept
        slope = (gradients[name] * direction).sum()
        assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(slope, rel=1e-6, abs=1e-9), name


@pytest.mark.parametrize(
    ("kind", "precision"), [*((kind, "float32") for kind in IN_FLOAT32), *((kind, "bfloat16") for kind in IN_HALVES)]
)
def test_gradients_do_not_depend_on_threads(kind, precision):
    for threads in (2, 3):
        assert_threads_do_not_matter(threads, config_of(kind), precision=precision)


@pytest.mark.parametrize("kind", ["alibi+dape", "path", "rope+shaw+cable+dape", "rope+shaw+cable+path"])
def test_gradients_with_dropout_do_not_depend_on_threads(kind):
    for threads in (2, 3):
        assert_threads_do_not_matter(threads, config_of(kind, dropout=0.3), dtype="float64")


@kinds
def test_sequences_of_several_lengths_have_the_outputs_of_each_alone(kind):
    assert_padding_does_not_matter(config_of(kind))


@kinds
def test_packed_sequences_have_the_gradients_of_each_alone(kind):
    assert_packed_sequences_are_those_alone(config_of(kind))


WRITTEN = [
    *((kind, {}) for kind in KINDS), ("sinusoidal+path", {}), ("path,nope", {}), ("fox+path", {}), ("path", DOCUMENTS),
    ("path", {"sight": "window:40,chunks:64"}), ("rope+selective_rope", HALF_PAIRS), ("selective_rope,nope,fox", {}),
    ("rope+t5+dape", {"dropout": 0.3}), ("pope+fox+dape", {}), ("rope+log_n", {"train_length": 5}),
    ("rope,temperature", {"options": {"temperature.every": 3}, "train_length": 5}),
    ("rope*2,nope", {"sight": "chunks:6*2,all"}), ("learned+rope", {**DOCUMENTS, "train_length": 520}),
]  # fmt: skip
IN_TWO_PARTS = ("path", "selective_rope", "learned+rope")
"""With them prompts of 500 tokens are tested as well, which go through the model in two parts."""


@pytest.mark.parametrize(
    ("encoding", "own", "prompt"),
    [
        *((encoding, own, prompt) for encoding, own in WRITTEN for prompt in (1, 2, 3)),
        *((encoding, own, 500) for encoding, own in WRITTEN if any(part in encoding for part in IN_TWO_PARTS)),
    ],
    ids=str,
)
def test_generation_with_a_cache_writes_what_generation_without_one_does(encoding, own, prompt):
    assert_written_as_a_whole(moved(config_of(encoding, vocabulary=11, **own)), prompt, atol=1e-12)


@pytest.mark.parametrize(
    ("encoding", "own"),
    [
        ("learned+rope", {}), ("t5", {}), ("alibi+dape", {}), ("alibi+dape", {"causal": False}),
        ("alibi+dape", {"sight": "window:4,all"}), ("rope+t5+dape", {"options": {"dape.reach": 2}}),
        ("fox+shaw+dape", {"options": {"dape.reach": 1}}), ("selective_rope", {}),
        ("rope+fox+selective_rope", HALF_PAIRS), ("path", {}),
    ],
    ids=str,
)  # fmt: skip
def test_documents_in_one_row_are_those_alone(encoding, own):
    assert_documents_are_those_alone(config_of(encoding, train_length=60, **own))


@pytest.mark.parametrize(
    ("kind", "own"), [*((kind, {}) for kind in KINDS), ("alibi+dape", {"dropout": 0.3}), ("path", {"dropout": 0.3})]
)
def test_a_step_writes_inside_its_arrays(monkeypatch, kind, own):
    assert_writes_stay_inside(monkeypatch, config_of(kind, **own))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", IN_HALVES)
def test_the_loss_falls_and_every_parameter_moves(kind, precision):
    assert_learns(config_of(kind), precision=precision)


@pytest.mark.parametrize("kind", IN_FLOAT32)
def test_float32_differs_from_float64_by_roundings(kind):
    config = config_of(kind, norm="layernorm")
    x, y = batch(config, 20, np.random.default_rng(1))
    exact = moved(config).loss_and_grads(x, y)
    found = moved(replace(config, dtype="float32")).loss_and_grads(x, y)
    assert found[0] == pytest.approx(exact[0], rel=1e-5)
    for name, gradient in exact[1].items():
        scale = np.abs(gradient).max() + 1e-3
        np.testing.assert_allclose(found[1][name], gradient, rtol=0, atol=1e-4 * scale, err_msg=name)
