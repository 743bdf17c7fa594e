"""What a model must hold whatever its layers' scores are made of; of models of numbers (sequences, 20) or of tokens."""

from dataclasses import replace

import numpy as np
import pytest
from guards import guarded_results

from fastpe import Adam, Transformer
from fastpe.model import passes, scratch
from fastpe.model.encoding import ModelEncoding
from fastpe.model.generation import Generation, Sampling

LONG = 131  # beyond what weights are kept of


def lengths_of(cases, long):
    """(settings, length) of every case, 20 and, of the first few, beyond what weights are kept of."""
    return pytest.mark.parametrize(
        ("own", "length"),
        [*((own, 20) for own in cases), *((own, LONG) for own in cases[:long])],
        ids=lambda each: " ".join(map(str, each.values())) if isinstance(each, dict) else str(each),
    )


def batch(config, length, rng, count=3):
    if config.vocabulary:
        return rng.integers(0, config.vocabulary, (2, count, length))
    return rng.normal(size=(2, count, length))


def moved(config, seed=1):
    """A model whose encodings' parameters are not what they begin with."""
    model, rng = Transformer(config), np.random.default_rng(seed)
    for name, parameter in model.parameters.items():
        if "encoding" in name:
            parameter += rng.normal(0, 0.3, parameter.shape)
    return model


def assert_gradients_are_the_references(config, length):
    """Loss and gradients in float64, of a training step where anything is dropped out."""
    model = moved(config)
    x, y = batch(config, length, np.random.default_rng(1))
    encoding = model._encoding if config.rule else ModelEncoding(config)
    factors = model.dropout_factors(*x.shape) if config.dropout else None
    exact, gradients = encoding.reference_loss_and_grads(model.parameters, x, y, factors=factors)
    loss, ours = model.loss_and_grads(x, y)
    assert loss == pytest.approx(exact, rel=1e-12)
    assert ours.keys() == gradients.keys() | {name for name in ours if name not in gradients and not ours[name].any()}
    for name, gradient in gradients.items():
        scale = np.abs(gradient).max() + 1e-4
        np.testing.assert_allclose(ours[name], gradient, rtol=0, atol=1e-11 * scale, err_msg=name)


def assert_threads_do_not_matter(threads, config, **own):
    """Loss and gradients, of float32 unless told otherwise, bit by bit those of one thread."""
    config = replace(config, **{"dtype": "float32", **own})
    x, y = batch(config, 20, np.random.default_rng(0), 19)
    ours = moved(config).loss_and_grads(x, y, threads=threads)
    expected = moved(config).loss_and_grads(x, y, threads=1)
    assert ours[0] == expected[0]
    for name, gradient in expected[1].items():
        np.testing.assert_array_equal(ours[1][name], gradient, err_msg=name)


def assert_padding_does_not_matter(config):
    """Sequences of lengths of their own, together as each by itself."""
    x, lengths = np.random.default_rng(0).normal(size=(3, 20)), np.array([20, 7, 13])
    model = moved(config)
    for row, length, found in zip(x, lengths, model(x, lengths=lengths), strict=True):
        np.testing.assert_allclose(found[:length], model(row[:length]), rtol=1e-12)


def assert_packed_sequences_are_those_alone(config):
    """Of 7, 13 and 5, 15 rows two at a time go through the model: each begins anew."""
    x, y = batch(config, 20, np.random.default_rng(1), 5)
    lengths, model = np.array([20, 7, 13, 5, 15]), moved(replace(config, norm="layernorm"))
    loss, found = model.loss_and_grads(x, y, lengths=lengths)
    alone = [
        (n / 60, *model.loss_and_grads(x[i : i + 1, :n], y[i : i + 1, :n])) for i, n in enumerate(lengths.tolist())
    ]  # fmt: skip
    assert loss == pytest.approx(sum(share * each for share, each, _ in alone), rel=1e-12)
    for name, gradient in found.items():
        expected = sum(share * each[name] for share, _, each in alone)
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-12 * (1 + np.abs(expected).max()), err_msg=name)


def assert_written_as_a_whole(model, prompt, atol=0.0):
    """Tokens written one by one after a prompt of so many, and the logits after it, are those of whole sequences."""
    text = np.random.default_rng(0).integers(0, 11, prompt)
    generation = Generation(model, text, 20, Sampling(temperature=0.0))
    assert generation.cached
    first = next(generation._kept(text.tolist()))
    np.testing.assert_allclose(first, model(text)[-1], rtol=1e-9, atol=atol)
    written = model.generate(text, 20, temperature=0.0)
    np.testing.assert_array_equal(written, model.generate(text, 20, temperature=0.0, cache=False))


def assert_documents_are_those_alone(config):
    """Three side by side, each as the model has it by itself; and, written token by token, as they are."""
    config = replace(config, vocabulary=11, positions="documents:3")
    model, usual = moved(config), moved(replace(config, positions="usual"))
    text = np.array([1, 2, 0, 3, 4, 5, 3, 6, 7, 8, 9, 10, 1, 3, 5] + [4, 8] * 20)
    whole = model(text)
    for document in (slice(0, 4), slice(4, 7), slice(7, 14), slice(14, None)):
        np.testing.assert_allclose(whole[document], usual(text[document]), rtol=1e-11, atol=1e-13)
    if config.causal:
        writer, done, state = model._writer(len(text), 10), 0, None
        for end in (2, 5, 15, *range(16, len(text) + 1)):
            rows, state = model._place(writer, text[done:end], done, state)
            logits = model._extend(writer, text[done:end], rows, done)
            np.testing.assert_allclose(logits, whole[end - 1], rtol=1e-11, atol=1e-13)
            done = end


def assert_writes_stay_inside(monkeypatch, config, **own):
    check = guarded_results(monkeypatch, scratch, passes)
    x = np.random.default_rng(0).normal(size=(3, 20))
    moved(replace(config, **own)).loss_and_grads(x, x)
    check()


def assert_learns(config, **own):
    """Running sums get closer, and every parameter moves."""
    model = Transformer(replace(config, dtype="float32", norm="layernorm", **own))
    optimiser, x = Adam(model, lr=3e-3), np.random.default_rng(0).normal(size=(16, 20))
    before = {name: value.copy() for name, value in model.parameters.items()}
    losses = [optimiser.step(x, np.cumsum(x, axis=1)) for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]
    for name, value in model.parameters.items():
        assert not np.array_equal(value, before[name]), name
