"""The ends of the model as one map each: the same loss and gradients as of two maps, and as the reference's."""

from dataclasses import replace

import numpy as np
import pytest
from model_cases import assert_agrees_with_the_reference, assert_same_gradients, batch_of, in_float64, pair_of

from fastpe import Adam, ModelConfig, Transformer
from fastpe.model import scratch
from fastpe.model.encoding import ModelEncoding

BOTH = ModelConfig("sinusoidal", width=24, heads=2, hidden=40, train_length=21, activation="gelu", seed=4)
TOKENS = replace(BOTH, vocabulary=11)
CASES = {
    "table": BOTH,
    "causal, bias": replace(BOTH, encoding="alibi", causal=True),
    "rotated": replace(BOTH, encoding="rope", layers=3),
    "learned table": replace(BOTH, encoding="learned"),
    "learned table and bias": replace(BOTH, encoding="learned+alibi", options={"alibi.learned": True}),
    "no position": replace(BOTH, encoding="nope"),
    "one layer": replace(BOTH, encoding="learned", layers=1),
    "no biases": replace(BOTH, bias=False),
    "gated": replace(BOTH, activation="swiglu", layers=1),
    "relu": replace(BOTH, activation="relu"),
    "random positions": replace(BOTH, positions="random:64"),
    "one position": replace(BOTH, encoding="learned", train_length=1),
    "odd widths": replace(BOTH, width=9, heads=3, hidden=7),
    "tokens": TOKENS,
    "tokens, learned table, tied": replace(TOKENS, encoding="learned", tied=True),
    "tokens, no biases": replace(TOKENS, bias=False),
    "norms": replace(BOTH, norm="layernorm"),
}
INPUT = {name for name in CASES if name != "norms"}
OUTPUT = {name for name in CASES if not name.startswith("tokens")}
cases = pytest.mark.parametrize("name", CASES)


def composed(config, length=None):
    model = Transformer(config)
    found = scratch.fused_ends(config, length or config.train_length, model.slots(length or config.train_length))
    return bool(found["fused_input"]), bool(found["fused_output"])


@pytest.fixture
def apart(monkeypatch):
    """A function that makes a model whose ends are two maps each."""

    def make(config):
        model = Transformer(config)
        with monkeypatch.context() as patch:
            patch.setattr(scratch, "fused_ends", lambda *_, **__: {})
            model.loss_and_grads(*pair_of(config, 1), lengths=[config.train_length])  # lays its memory out
            for threads in (1, 2, 3):
                model.loss_and_grads(*pair_of(config), threads=threads)
        (sizes,) = {work.sizes for key, work in model._kept.items() if key[2]}
        assert not sizes.fused_input
        assert not sizes.fused_output
        return model

    return make


@cases
def test_which_ends_are_composed(name):
    assert composed(CASES[name]) == (name in INPUT, name in OUTPUT)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dropout": 0.1}, (False, False)),
        ({"residual": False}, (False, False)),
        ({"norm": "rmsnorm", "final_norm": True}, (False, False)),
        ({"norm": "rmsnorm"}, (False, True)),
        ({"encoding": "conv"}, (False, True)),
        ({"encoding": "sincos_2d_detr", "train_length": 25}, (False, True)),
        ({"encoding": "learned", "positions": "offset:64"}, (False, True)),
        ({"vocabulary": 42}, (True, False)),
        ({"vocabulary": 43}, (False, False)),
    ],
)
def test_what_stands_between_two_maps_keeps_them_apart(changes, expected):
    assert composed(replace(BOTH, **changes)) == expected


def test_a_map_of_many_positions_is_not_composed():
    most = 2**18 // (3 * BOTH.width) - 1
    assert composed(BOTH, most) == (True, True)
    assert composed(BOTH, most + 1) == (False, True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@cases
def test_loss_and_gradients_are_those_of_the_reference(name, dtype):
    assert_agrees_with_the_reference(replace(CASES[name], dtype=dtype), 9, weighted=True)


@cases
def test_the_gradients_are_those_of_two_maps(name, apart):
    """Of sequences of all lengths, some of them packed, some of whose targets do not count."""
    config = replace(CASES[name], dtype="float64")
    n = config.train_length
    lengths = np.minimum([n, 3, 1, n, 5, 2, 2, 4, n - 1, 9, 1, n, 7], n).clip(1)
    x, y = pair_of(config, len(lengths))
    weights = np.random.default_rng(3).integers(0, 3, y.shape)
    for given in ({}, {"lengths": lengths}, {"lengths": lengths, "weights": weights}, {"lengths": lengths[-2:]}):
        some = slice(-len(given.get("lengths", x)), None)
        own = {**given, "weights": weights[some]} if "weights" in given else given
        loss, gradients = Transformer(config).loss_and_grads(x[some], y[some], threads=1, **own)
        expected, exact = apart(config).loss_and_grads(x[some], y[some], threads=1, **own)
        assert loss == pytest.approx(expected, rel=1e-13)
        largest = max(np.abs(array).max() for array in exact.values())
        for key, array in exact.items():
            scale = np.abs(array).max() + 0.01 * largest
            np.testing.assert_allclose(gradients[key], array, rtol=0, atol=2e-14 * scale, err_msg=key)


@pytest.mark.parametrize("clip", [np.inf, 0.5])
@pytest.mark.parametrize("name", ["table", "learned table and bias", "tokens", "one layer"])
def test_steps_are_those_of_two_maps(name, clip, apart):
    config = replace(CASES[name], dtype="float64")
    found = []
    for model in (Transformer(config), apart(config)):
        adam = Adam(model, lr=0.01, clip=clip, eps=1e-3)
        losses = [adam.step(*pair_of(config)) for _ in range(4)]
        found.append((losses, {key: array.copy() for key, array in model.parameters.items()}))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-13)
    assert found[0][0][-1] < found[0][0][0]
    for key, array in found[1][1].items():
        np.testing.assert_allclose(found[0][1][key], array, rtol=1e-11, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("x0", [1e-20, 10])
def test_numbers_of_any_size_keep_their_precision(x0):
    """Where it is a table or the numbers alone that make a row."""
    config = replace(BOTH, encoding="learned", dtype="float32")
    x, y = batch_of(config, 5)
    x = x * np.float32(x0)
    exact = replace(config, dtype="float64")
    encoding, model = ModelEncoding(exact), Transformer(config)
    parameters = in_float64(model)
    _, expected = encoding.reference_loss_and_grads(parameters, x.astype(np.float64), y)
    sizes = encoding.reference_gradient_sizes(parameters, x.astype(np.float64), y)
    assert_same_gradients(model.loss_and_grads(x, y)[1], expected, sizes, "float32")
