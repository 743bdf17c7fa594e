"""Models that several tests take, what they are given, and their gradients beside the reference's."""

from dataclasses import replace

import numpy as np
import pytest

import fastpe
from fastpe import ModelConfig, Transformer, reference
from fastpe.doctor.allowed_error import gradient_differences, step_tolerance
from fastpe.model.encoding import ModelEncoding

PAPER = ModelConfig("wavelet")
DEEP = ModelConfig(
    "alibi", heads=4, layers=3, norm="layernorm", activation="gelu", causal=True, train_length=30
)  # fmt: skip
SMALL = ModelConfig(
    "sinusoidal", width=32, heads=4, layers=2, hidden=48, causal=True, activation="gelu", norm="layernorm",
    vocabulary=17, train_length=24,
)  # fmt: skip


def batch_of(config, sequences=8, length=None, seed=0):
    length = length or config.train_length
    x = np.random.default_rng(seed).standard_normal((sequences, length)).astype(config.dtype)
    return x, np.cumsum(x, 1, dtype=np.float64).astype(config.dtype)


def reference_slots(config, length):
    sizes = {"dim": config.width, "heads": config.heads, "train_length": config.train_length, "causal": config.causal}
    return fastpe.build(config.encoding, length, **sizes, reference=True, seed=config.seed, **config.options)


def in_float64(model):
    return {name: np.array(value, np.float64) for name, value in model.parameters.items()}


def gradient_sizes(model, x, y, weights=None):
    """Sums of the sizes of the terms of all gradients, by the reference."""
    encoding = ModelEncoding(replace(model.config, dtype="float64"))
    return encoding.reference_gradient_sizes(in_float64(model), x, y, weights)


def assert_same_gradients(ours, exact, sizes, dtype, plain=None):
    """plain: the reference's in that dtype, where gradients may all but cancel on their way to other blocks."""
    assert set(ours) == set(exact)
    for name, found in gradient_differences(ours, exact, sizes, dtype).items():
        bound = found.bound + (0 if plain is None else 2 * np.abs(plain[name] - exact[name]).max())
        assert found.error <= bound, f"{name}: error {found.error:.3g} exceeds {bound:.3g}"


def pair_of(config, sequences=8):
    """Inputs and targets of a model of numbers or of tokens."""
    return (batch_of if config.vocabulary is None else tokens_of)(config, sequences)


def tokens_of(config, sequences=4, seed=0):
    """Inputs and targets (sequences, N), the first and the last token among them where there is room."""
    x, y = np.random.default_rng(seed).integers(0, config.vocabulary, (2, sequences, config.train_length))
    for tokens in (x, y):
        tokens.flat[:1], tokens.flat[-1:] = 0, config.vocabulary - 1
    return x, y


def assert_agrees_with_the_reference(config, sequences=8, *, weighted=False, plain=False):
    """Assert that outputs, loss and gradients agree with the reference in float64.

    weighted: some targets count twice, some not at all. plain: gradients may all but cancel on their way to other
    blocks, and the reference in the model's dtype says how much that costs.
    """
    model, (x, y) = Transformer(config), pair_of(config, sequences)
    weights = np.random.default_rng(3).integers(0, 3, y.shape) if weighted else None
    if weighted:
        weights.flat[0] = 1
    encoding, parameters = ModelEncoding(replace(config, dtype="float64")), in_float64(model)
    tolerance, outputs = step_tolerance(config.dtype), model(x)
    if config.positions != "usual":
        encoding.slots(config.train_length, parameters, training=True)  # the positions of step 0
    layers = encoding.reference_slots(config.train_length, parameters)
    if config.positions == "usual":
        exact = reference.model_forward(config, parameters, layers, x if config.vocabulary else x.astype(np.float64))
        assert outputs.dtype == config.dtype
        np.testing.assert_allclose(outputs, exact, rtol=0, atol=tolerance * max(1, np.abs(exact).max()))
    expected, gradients = encoding.reference_loss_and_grads(parameters, x, y, weights)
    loss, ours = model.loss_and_grads(x, y, weights=weights)
    assert loss == pytest.approx(expected, rel=tolerance)
    # a kink of ReLU may lie within rounding of an input, which float64 does not meet
    if config.dtype == "float64" or config.activation != "relu":
        sizes = encoding.reference_gradient_sizes(parameters, x, y, weights)
        near = _in_dtype(model, layers, x, y, weights) if plain else None
        assert_same_gradients(ours, gradients, sizes, config.dtype, near)


def _in_dtype(model, layers, x, y, weights):
    """The reference's gradients, computed in the model's dtype."""
    slots = [
        {slot: np.asarray(x, model.dtype) if np.asarray(x).dtype.kind == "f" else x for slot, x in own.items()}
        for own in layers
    ]
    return reference.model_loss_and_grads(model.config, model.parameters, slots, x, y, weights)[1]
