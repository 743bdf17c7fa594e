"""What each layer's queries see: windows and chunks in patterns over layers, compared with the dense reference."""

from dataclasses import replace

import numpy as np
import pytest
from layer_checks import assert_gradients_are_the_references

from fastpe import ModelConfig, Transformer, reference
from fastpe.model import sight
from fastpe.model.cost import step_flop

BASE = ModelConfig("alibi", width=24, heads=3, layers=4, hidden=20, causal=True, train_length=20, dtype="float64")
PATTERNS = ["window:3", "chunks:4", "window:5*2,all", "chunks:7*3,all", "window:1,chunks:200", "window:90,all"]


@pytest.mark.parametrize("length", [20, 131])  # weights are kept of short sequences alone
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_loss_and_gradients_are_the_references(pattern, causal, length):
    encoding = "rope*3,t5" if length < 50 else "alibi"
    config = replace(BASE, encoding=encoding, sight=pattern, causal=causal, train_length=length)
    assert_gradients_are_the_references(config, length)


def test_the_reference_gets_what_the_definition_says():
    """A mask that is written out here gives the reference's attention of every layer."""
    i, j = np.mgrid[:20, :20]
    masks = {
        ("window:3", True): (j <= i) & (i - j < 3), ("window:3", False): abs(i - j) < 3,
        ("chunks:8", True): (j <= i) & (i // 8 == j // 8), ("chunks:8", False): i // 8 == j // 8,
    }  # fmt: skip
    q, k, v = np.random.default_rng(0).normal(size=(3, 1, 1, 20, 4))
    for (pattern, causal), mask in masks.items():
        (spans,) = sight.spans(pattern, 1, 20, causal=causal)
        ours = reference.attention(q, k, v, causal=causal, spans=spans[None])
        np.testing.assert_array_equal(ours, reference.attention(q, k, v, mask=mask))
        assert sight.visible_pairs(pattern, 20, causal=causal) == mask.sum()


@pytest.mark.parametrize("causal", [True, False])
def test_a_sight_that_hides_nothing_gives_the_bits_of_all(causal):
    x = np.random.default_rng(0).normal(size=(3, 20))
    one, *others = (
        Transformer(replace(BASE, causal=causal, sight=each)).loss_and_grads(x, x)
        for each in ("all", "window:20", "chunks:20,all")
    )
    for other in others:
        assert other[0] == one[0]
        for name, gradient in one[1].items():
            np.testing.assert_array_equal(other[1][name], gradient, err_msg=name)


def test_only_what_is_seen_is_counted():
    config = ModelConfig("nope", causal=True, train_length=64)
    whole, windowed = (step_flop(replace(config, sight=each), 1, unmasked=True) for each in ("all", "window:1"))
    assert whole - windowed == 3 * 2 * 4 * 64 * (64 * 65 // 2 - 64)
    assert step_flop(replace(config, sight="window:1"), 1) == step_flop(config, 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("window", "not 'window'"), ("window:0", "not 'window:0'"), ("window:-1", "not 'window:-1'"),
        ("chunks:8,", "must have a name before and after every comma"), ("all*0", "a number of layers from 1"),
        ("window:134217729", "from 1 to 2"), ("every", "not 'every'"), (5, "sight must be a str, not 5"),
        ("all,window:3*4", "layers must be at least 5 for sight 'all,window:3"),
    ],
)  # fmt: skip
def test_mistakes(given, said):
    with pytest.raises((ValueError, TypeError), match=said.replace("*", r"\*")):
        replace(BASE, sight=given)
