"""DAPE in the model's layers, compared with the reference: a network over the scores of all heads."""

from dataclasses import replace

import numpy as np
import pytest
from layer_checks import assert_gradients_are_the_references, lengths_of

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
def test_a_network_that_adds_nothing_is_the_encoding_alone(encoding):
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
