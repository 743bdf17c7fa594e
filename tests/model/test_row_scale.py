"""Factors of queries in the model's layers, compared with the reference; generation, bits, memory."""

from dataclasses import replace

import numpy as np
import pytest
from layer_checks import assert_gradients_are_the_references, lengths_of

from fastpe import ModelConfig, Transformer

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


@lengths_of(CASES, long=5)
def test_loss_and_gradients_are_the_references(own, length):
    assert_gradients_are_the_references(
        replace(BASE, train_length=8 if "learned" not in own["encoding"] else length, **own), length
    )


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


def test_documents_begin_anew_and_factors_do_not():
    with pytest.raises(ValueError, match=r"fills 'row_scale', which cannot restart in each document"):
        Transformer(replace(BASE, encoding="rope+log_n", vocabulary=7, positions="documents:3"))
