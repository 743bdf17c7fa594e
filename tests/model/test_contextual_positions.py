"""CoPE in the model's layers, compared with the reference: queries that count their keys."""

from dataclasses import replace

import numpy as np
import pytest
from layer_checks import assert_gradients_are_the_references, lengths_of

import fastpe
from fastpe import ModelConfig, Transformer

BASE = ModelConfig("cope", width=24, heads=3, layers=3, hidden=20, causal=True, train_length=20, dtype="float64")
CASES = [
    {}, {"options": {"divided": False, "most": 3}}, {"options": {"most": 1}}, {"encoding": "cope*2,nope"},
    {"encoding": "rope+cope", "norm": "layernorm", "activation": "gelu"}, {"encoding": "alibi+cope", "vocabulary": 7},
    {"encoding": "fox,cope,t5", "options": {"cope.most": 6}}, {"encoding": "shaw+cope", "residual": False},
    {"encoding": "ssmax+cope"}, {"encoding": "grape_a+cope"}, {"sight": "window:5,all"},
    {"vocabulary": 7, "tied": True, "positions": "documents:3"}, {"encoding": "da+cope"}, {"encoding": "learned+cope"},
]  # fmt: skip


@lengths_of(CASES, long=6)
def test_loss_and_gradients_are_the_references(own, length):
    assert_gradients_are_the_references(replace(BASE, train_length=length, **own), length)


def test_a_model_without_vectors_is_one_without_positions():
    """As it begins: and its vectors have gradients."""
    model, plain = Transformer(BASE), Transformer(replace(BASE, encoding="nope"))
    for name in plain.parameters:
        plain.parameters[name][...] = model.parameters[name]
    x = np.random.default_rng(0).normal(size=(2, 20))
    np.testing.assert_allclose(model(x), plain(x), rtol=1e-12)
    gradients = model.loss_and_grads(x, x)[1]
    assert all(gradients[f"layers.{layer}.encoding.cope.vectors"].any() for layer in range(3))


@pytest.mark.parametrize("divided", [True, False])
def test_the_slot_has_the_vectors_in_one_of_the_authors_scalings(divided):
    """Numbers of their code for both: tests/functional/test_attention_counts.py."""
    vectors = 0.1 * np.arange(3)[:, None] * np.arange(1, 5) - 0.05 * np.arange(4)
    sizes = {"dim": 4, "causal": True, "most": 2, "dtype": "f8"}
    slot = fastpe.build("cope", 4, **sizes, divided=divided, params={"vectors": vectors})["counts"]
    np.testing.assert_allclose(slot[0], vectors / 2 if divided else vectors, rtol=1e-15)


def test_initial_values_and_their_number():
    sizes = {"dim": 64, "heads": 4, "train_length": 50, "causal": True}
    assert {key: (x.shape, x.any()) for key, x in fastpe.init("cope", **sizes).items()} == {
        "vectors": ((51, 16), False)
    }
    assert fastpe.init("cope", **sizes, most=15)["vectors"].shape == (16, 16)
    assert fastpe.build("cope", 200, **sizes)["counts"].shape == (1, 51, 16)


def test_mistakes():
    with pytest.raises(ValueError, match=r"^'cope' needs causal=True"):
        Transformer(replace(BASE, causal=False))
    with pytest.raises(ValueError, match="counts"):
        Transformer(replace(BASE, encoding="cope@near+cope@far"))
