"""Batches of sequences that differ in length, and targets that do not count: what is left out is not there."""

import numpy as np
import pytest

from fastpe import Adam, ModelConfig, Transformer

SIZES = {"width": 24, "heads": 2, "hidden": 40, "dtype": "float64", "seed": 3}
N = 110  # more than a block of queries
LENGTHS = np.array([N, 1, 33, 100, 30, 7, 64, 97, 2, 3, 5, 60, 9, 1, 1, 20, 25, 17, 40, 28, 11])  # some go together
ENCODINGS = ["nope", "sinusoidal", "wavelet", "learned", "rope", "alibi", "t5", "shaw", "deberta", "transformer_xl",
             "conv", "fire", "xpos", "da", "learned+rope+alibi"]  # fmt: skip


def batch(config, rng, lengths=LENGTHS, n=N):
    shape = (len(lengths), n)
    if config.vocabulary:
        x, y = rng.integers(0, config.vocabulary, (2, *shape))
    else:
        x, y = rng.standard_normal((2, *shape))
    return x, y, np.arange(n) < lengths[:, None]


def spoiled(x, within):
    """The same, with what may be anything past the ends."""
    return np.where(within, x, -100 if x.dtype.kind == "i" else np.nan)


def assert_close(found, expected, close=1e-12):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        scale = np.abs(array).max() + 1e-3
        np.testing.assert_allclose(found[name], array, rtol=0, atol=close * scale, err_msg=name)


@pytest.mark.parametrize("vocabulary", [None, 11])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_of_a_causal_model_what_lies_past_the_end_is_as_if_it_did_not_count(encoding, vocabulary):
    config = ModelConfig(encoding, **SIZES, causal=True, vocabulary=vocabulary, train_length=N)
    model, rng = Transformer(config), np.random.default_rng(1)
    x, y, within = batch(config, rng)
    weights = within * rng.integers(0, 3, y.shape)
    expected, gradients = model.loss_and_grads(x, y, weights=weights)
    found = model.loss_and_grads(spoiled(x, within), spoiled(y, within), weights=weights, lengths=LENGTHS)
    assert found[0] == pytest.approx(expected, rel=1e-13)
    assert_close(found[1], gradients)
    assert model.loss(x, y, weights=weights, lengths=LENGTHS) == pytest.approx(expected, rel=1e-13)
    outputs, own = model(x), model(spoiled(x, within), lengths=LENGTHS)
    np.testing.assert_allclose(own[within], outputs[within], rtol=1e-12, atol=1e-13)
    assert not own[~within].any()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("norm", ["none", "layernorm"])
@pytest.mark.parametrize("encoding", ["nope", "sinusoidal", "rope", "alibi", "t5", "conv", "shaw", "learned"])
def test_each_sequence_is_as_if_it_were_alone(encoding, norm, causal):
    """Of encodings that do not depend on how long a sequence is."""
    config = ModelConfig(
        encoding, **SIZES, causal=causal, vocabulary=9, train_length=N, norm=norm, activation="gelu", layers=1
    )
    model, rng = Transformer(config), np.random.default_rng(2)
    x, y, _ = batch(config, rng)
    loss, gradients = model.loss_and_grads(x, y, lengths=LENGTHS)
    alone = [model.loss_and_grads(x[i : i + 1, :n], y[i : i + 1, :n]) for i, n in enumerate(LENGTHS)]
    shares = LENGTHS / LENGTHS.sum()
    assert loss == pytest.approx(sum(share * each for share, (each, _) in zip(shares, alone, strict=True)), rel=1e-13)
    total = {name: sum(s * own[name] for s, (_, own) in zip(shares, alone, strict=True)) for name in gradients}
    assert_close(gradients, total)
    for i, n in enumerate(LENGTHS):
        np.testing.assert_allclose(model(x, lengths=LENGTHS)[i, :n], model(x[i, :n]), rtol=1e-12, atol=1e-13)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize(
    ("encoding", "dtype"),
    [("wavelet", "float32"), ("rope", "float32"), ("shaw", "float64"), ("alibi+dape", "float64"), ("path", "float64")],
)
def test_what_is_dropped_out_is_the_same_in_sequences_that_go_together(encoding, dtype):
    """Of a sequence whose neighbours have nothing past their ends as of one whose neighbours are padded."""
    config = ModelConfig(
        encoding, **SIZES | {"dtype": dtype}, causal=True, vocabulary=11, train_length=N, norm="layernorm",
        dropout=0.3, layers=2,
    )  # fmt: skip
    model, close = Transformer(config), 1e-13 if dtype == "float64" else 1e-6
    x, y, within = batch(config, np.random.default_rng(5))
    weights = within.astype(float)
    (loss, gradients), (same, others) = (
        model.loss_and_grads(x, y, weights=weights, **given) for given in ({}, {"lengths": LENGTHS})
    )
    assert same == pytest.approx(loss, rel=close)
    assert same != pytest.approx(model.loss(x, y, lengths=LENGTHS), rel=1e-4)
    assert_close(others, gradients, 10 * close)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5])
def test_the_head_is_applied_where_targets_count(share):
    """A model whose tokens are many, with few targets: as if the others had been there, without a share."""
    config = ModelConfig("nope", **SIZES, vocabulary=300, train_length=N, causal=True)
    model, rng = Transformer(config), np.random.default_rng(4)
    x, y, _ = batch(config, rng)
    weights = rng.uniform(size=y.shape) < share
    weights[0, 5] = True
    loss, gradients = model.loss_and_grads(x, y, weights=weights)
    logits = model(x)
    masses = np.log(np.exp(logits).sum(axis=-1)) - np.take_along_axis(logits, y[..., None], -1)[..., 0]
    assert loss == pytest.approx(masses[weights].mean(), rel=1e-13)
    almost = np.where(weights, 1.0, 1e-300)  # which counts, and changes nothing
    expected, others = model.loss_and_grads(x, y, weights=almost)
    assert loss == pytest.approx(expected, rel=1e-13)
    assert_close(gradients, others)


@pytest.mark.parametrize(
    ("lengths", "error", "message"),
    [
        ([5, 6], ValueError, r"lengths must have the shape \(3,\), one for each sequence, not \(2,\)"),
        ([5, 0, 6], ValueError, r"lengths must lie in \[1, 6\], not 0"),
        ([5, 7, 6], ValueError, r"lengths must lie in \[1, 6\], not 7"),
        ([5, 2**62, 6], ValueError, r"lengths must lie in \[1, 6\], not 46116860"),
        ([5.0, 4.0, 6.0], TypeError, "lengths must hold integers"),
        (np.ma.array([5, 4, 6], mask=[0, 1, 0]), (TypeError, ValueError), "lengths"),
        (4, ValueError, r"lengths must have the shape \(3,\)"),
    ],
)
def test_lengths_that_are_none(lengths, error, message):
    model = Transformer(ModelConfig("nope", width=8, hidden=8, vocabulary=4, train_length=6))
    x = np.zeros((3, 6), int)
    for call in (model.loss_and_grads, model.loss, Adam(model).step, lambda x, y, lengths: model(x, lengths=lengths)):
        with pytest.raises(error, match=message):
            call(x, x, lengths=lengths)
