"""Encodings that not all layers share: patterns such as "rope*3,nope"."""

from dataclasses import replace

import numpy as np
import pytest
from layer_checks import assert_gradients_are_the_references

import fastpe
from fastpe import ModelConfig, Transformer

BASE = ModelConfig("nope", width=24, heads=3, layers=4, hidden=20, causal=True, train_length=20, dtype="float64")
PATTERNS = [
    "rope*3,nope", "alibi,nope", "rope,rope,alibi,t5", "t5*2,nope", "shaw,nope", "rope,xpos", "tener,nope",
    "sinusoidal+rope,sinusoidal", "learned+alibi,learned", "fire,rope+alibi,kerple_log", "rbf_distance,nope",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_loss_and_gradients_are_the_references(pattern):
    options = {"shaw.reach": 3} if "shaw" in pattern else {}
    assert_gradients_are_the_references(replace(BASE, encoding=pattern, options=options), 20)


def test_each_layer_has_its_own_and_the_pattern_begins_again():
    model = Transformer(replace(BASE, encoding="alibi,nope", layers=5))
    bias = model.slots(20)["bias"]
    alone = fastpe.build("alibi", 20, heads=3, causal=True, dtype="float64", train_length=20)["bias"]
    for layer, own in enumerate(bias):
        np.testing.assert_array_equal(own, alone if layer % 2 == 0 else 0 * alone)


def test_parameters_are_of_the_layers_that_use_them():
    names = Transformer(replace(BASE, encoding="shaw,nope", options={"shaw.reach": 3})).parameters
    assert {name.split(".")[1] for name in names if "encoding" in name} == {"0", "2"}


def test_a_name_is_as_short_as_can_be():
    names = {"rope, rope,nope": "rope*2,nope", "rope*3": "rope", "alibi+rope,rope+alibi": "alibi+rope,rope+alibi"}
    for given, kept in names.items():
        assert replace(BASE, encoding=given).encoding == kept
    config = replace(BASE, encoding="rope*3,nope", options={"rope.base": 100})
    assert ModelConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("rope*0,nope", r"encoding 'rope\*0,nope' must have a number of layers"),
        ("rope*,nope", r"encoding 'rope\*,nope' must have a number of layers"),
        ("rope*100000", r"encoding 'rope\*100000' must have a number of layers"),
        ("sinusoidal,rope", "'sinusoidal' fills 'table', which acts at the input: it must be in all layers"),
        ("nope*5,rope", r"layers must be at least 6 for encoding 'nope\*5,rope', not 4"),
        ("da,nope", "'rectify' must be the same in all layers"),
        ("rope,ropee", "encoding 'ropee' is unknown"),
    ],
)
def test_patterns_that_cannot_be_are_named(pattern, says):
    with pytest.raises(ValueError, match=f"^{says}"):
        Transformer(replace(BASE, encoding=pattern))


def test_a_pattern_is_of_a_model_alone():
    with pytest.raises(ValueError, match=r"^'rope,nope' is a pattern over the layers"):
        fastpe.build("rope,nope", 5)


def test_labels_give_one_encoding_several_options():
    """Gemma 3's: layers that look near turn faster than those that look far."""
    config = replace(BASE, encoding="rope@near*3,rope@far", options={"rope@near.base": 100, "rope@far.base": 1e6})
    angles = Transformer(config).slots(20)["angles"]
    for layer, base in enumerate([100, 100, 100, 1e6]):
        own = fastpe.build("rope", 20, dim=24, heads=3, base=base, dtype="float64", train_length=20)["angles"]
        np.testing.assert_array_equal(angles[layer], own)
    assert ModelConfig.from_dict(config.to_dict()) == config


def test_labels_give_one_encoding_several_sets_of_parameters():
    names = Transformer(replace(BASE, encoding="t5@a*2,t5@b")).parameters
    assert [name for name in names if "encoding" in name] == ["encoding.t5@a.table", "encoding.t5@b.table"]


@pytest.mark.parametrize("name", ["alibi@", "alibi@2", "alibi@a b", "@a", "alibi@a@b"])
def test_labels_that_are_none(name):
    with pytest.raises(ValueError, match="is unknown"):
        replace(BASE, encoding=name)
