"""DAPE in the model's layers, beside the reference: a network over the scores of all heads."""

from dataclasses import replace

import numpy as np
import pytest
from layer_checks import (
    assert_documents_are_those_alone,
    assert_gradients_are_the_references,
    assert_learns,
    assert_padding_does_not_matter,
    assert_threads_do_not_matter,
    assert_writes_stay_inside,
    lengths_of,
    moved,
)

import fastpe
from fastpe import ModelConfig, Transformer

BASE = ModelConfig(
    "alibi+dape", options={"dape.units": 5, "dape.reach": 1}, width=24, heads=3, layers=3, hidden=20, causal=True,
    train_length=20, dtype="float64",
)  # fmt: skip
CASES = [
    {}, {"options": {"dape.reach": 3, "dape.units": 2}, "causal": False}, {"dropout": 0.3},
    {"encoding": "dape", "options": {}}, {"encoding": "dape", "options": {}, "dropout": 0.5, "bias": False},
    {"encoding": "dape", "options": {"units": 9}, "heads": 1, "norm": "rmsnorm"},
    {"encoding": "alibi+dape*2,alibi"}, {"encoding": "kerple_log+dape", "activation": "gelu", "norm": "layernorm"},
    {"encoding": "rope+fire+dape"}, {"encoding": "t5+dape", "vocabulary": 7, "tied": True}, {"residual": False},
    {"encoding": "learned+dape", "positions": "digits:3:2-4", "vocabulary": 7}, {"sight": "window:5,all"},
    {"encoding": "dape@near,dape@far", "options": {"dape@near.units": 4, "dape@far.units": 4}}, {"bias": False},
    {"positions": "documents:3", "vocabulary": 7}, {"positions": "documents:3", "vocabulary": 7, "causal": False},
    {"positions": "documents:3", "vocabulary": 7, "dropout": 0.2}, {"encoding": "rope+t5+dape", "dropout": 0.2},
    {"encoding": "beit_bias+dape"}, {"encoding": "fox+dape"}, {"encoding": "cable+dape", "dropout": 0.3},
    {"encoding": "tupe+grape_a+selective_rope+dape", "width": 36},
    {"encoding": "dape+transformer_xl,dape,rope+fire+dape", "sight": "all,window:6,all"},
    {"encoding": "liere+ssmax+dape", "width": 24, "heads": 2}, {"encoding": "pope+dape", "causal": True},
    {"encoding": "huang4+learned+dape"}, {"encoding": "shaw+dape", "causal": False},
    {"encoding": "huang1+t5+dape", "causal": False, "dropout": 0.2}, {"encoding": "irpe+dape", "causal": False},
    {"encoding": "fox+dape,shaw+dape*2", "positions": "documents:3", "vocabulary": 7},
    {"encoding": "learned+shaw+fox+dape", "positions": "digits:3:2-4", "vocabulary": 7, "width": 24},
]  # fmt: skip


@lengths_of(CASES, long=3)
def test_loss_and_gradients_are_the_references(own, length):
    own = {"options": BASE.options if own.get("encoding", "alibi+dape").startswith("alibi+dape") else {}} | own
    assert_gradients_are_the_references(replace(BASE, train_length=length, **own), length)


@pytest.mark.parametrize("encoding", ["alibi", "fox+shaw", "selective_rope+rwse"])
def test_a_network_that_says_nothing_is_what_is_beside_it(encoding):
    """Which adds its terms elsewhere."""
    config = replace(BASE, encoding=f"{encoding}+dape", width=24, heads=2)
    model, plain = Transformer(config), Transformer(replace(config, encoding=encoding, options={}))
    for name, parameter in model.parameters.items():
        if name in plain.parameters:
            plain.parameters[name][...] = parameter
        elif name.endswith("mlp_out"):
            parameter[...] = 0
    x = np.random.default_rng(0).normal(size=(2, 20))
    np.testing.assert_allclose(model(x), plain(x), rtol=1e-12, atol=1e-15)


def test_initial_values_and_their_number():
    found = fastpe.init("dape", dim=64, heads=4, train_length=50, reach=1)
    assert {key: x.shape for key, x in found.items()} == {
        "mlp_in": (32, 8, 3), "mlp_bias": (32,), "mlp_out": (4, 32, 3)
    }  # fmt: skip
    for name, fan_in in (("mlp_in", 24), ("mlp_bias", 24), ("mlp_out", 96)):
        assert 0.8 * fan_in**-0.5 < np.abs(found[name]).max() <= fan_in**-0.5


@pytest.mark.parametrize("own", [
    {}, {"dropout": 0.3, "dtype": "float64"}, {"encoding": "shaw+cable+dape", "options": {}, "dtype": "float64"},
], ids=["whole", "dropped", "beside"])  # fmt: skip
@pytest.mark.parametrize("threads", [2, 3])
def test_the_bits_do_not_depend_on_threads(threads, own):
    assert_threads_do_not_matter(threads, BASE, **own)


def test_lengths_of_their_own():
    assert_padding_does_not_matter(BASE)


@pytest.mark.parametrize("own", [
    {}, {"causal": False}, {"sight": "window:4,all"}, {"encoding": "rope+t5+dape", "options": {"dape.reach": 2}},
    {"encoding": "fox+shaw+dape", "options": {"dape.reach": 1}},
], ids=str)  # fmt: skip
def test_documents_are_those_alone(own):
    assert_documents_are_those_alone(replace(BASE, **{"train_length": 60, **own}))


@pytest.mark.parametrize("encoding", ["dape", "rope+t5+dape", "rope+shaw+cable+dape", "pope+fox+dape"])
def test_tokens_written_one_by_one_are_those_of_whole_sequences(encoding):
    options = {"reach": 1} if encoding == "dape" else {"dape.reach": 1}
    model = moved(replace(BASE, encoding=encoding, options=options, vocabulary=11, dropout=0.3), seed=3)
    written = model.generate([1, 2, 3], 30, temperature=0.0)
    np.testing.assert_array_equal(written, model.generate([1, 2, 3], 30, temperature=0.0, cache=False))


@pytest.mark.parametrize("own", [{}, {"dropout": 0.3}, {"encoding": "rope+shaw+cable+dape", "width": 36}], ids=str)
def test_writes_stay_inside(monkeypatch, own):
    assert_writes_stay_inside(monkeypatch, BASE, **own)


def test_it_learns():
    assert_learns(BASE)


MISTAKES = {
    "'spe[+]dape' fills 'rel_gain', which cannot be combined with a network over scores": {"encoding": "spe+dape"},
    "'cope[+]dape' fills 'counts', which cannot be combined with a network": {"encoding": "cope+dape"},
    "'path[+]dape' fills 'mlp_bias', which cannot be combined with reflections": {"encoding": "path+dape"},
    "two encodings of 'dape@a[+]dape@b' both fill slot 'mlp_in'": {"encoding": "dape@a+dape@b"},
    "slot 'mlp_in' has different shapes in layers of 'dape,dape@b'": {
        "encoding": "dape,dape@b", "options": {"dape@b.units": 7}
    },
}  # fmt: skip


@pytest.mark.parametrize(("message", "wrong"), MISTAKES.items(), ids=range(len(MISTAKES)))
def test_mistakes(message, wrong):
    options = {} if "encoding" in wrong else BASE.options
    with pytest.raises(ValueError, match=message):
        Transformer(replace(BASE, **{"options": options, **wrong}))
