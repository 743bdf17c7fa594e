"""The float32 accuracy of a model whose first token has one huge activation, as trained language models have."""

import numpy as np
import pytest

from fastpe import ModelConfig, Transformer
from fastpe.reference import model_forward

HUGE, CHANNEL, LENGTH = 23_700.0, 5, 24  # as in SmolLM2 from its seventh layer on


def with_a_huge_activation(width, hidden):
    """A model in which one channel of the first token is huge in all layers, until the last layer takes it back."""
    config = ModelConfig(
        "sinusoidal", width=width, heads=2, hidden=hidden, layers=6, causal=True, vocabulary=29, norm="rmsnorm",
        final_norm=True, activation="swiglu", train_length=LENGTH, dtype="float32",
    )  # fmt: skip
    model, rng = Transformer(config), np.random.default_rng(0)
    for name, array in model.parameters.items():
        array[...] = rng.standard_normal(array.shape) / (len(array) ** 0.5 if array.ndim > 1 else 10)
        if "norm" in name:
            array[...] += 1.0
            array[CHANNEL] = 1.0 if name == "layers.5.norm2.weight" else 0.02
        elif name.endswith("out.weight"):
            array[:, CHANNEL] *= 0.1
    model.parameters["embed.weight"][0, CHANNEL] = HUGE
    last = "layers.5.feedforward."
    gate, value, out = (model.parameters[f"{last}{part}.weight"] for part in ("gate", "in", "out"))
    gate[:, -1] = value[:, -1] = 0.0  # the last hidden unit is 40 for the first token, and 0 for all others
    gate[CHANNEL, -1], model.parameters[f"{last}gate.bias"][-1] = 80.0 / width**0.5, -40.0
    model.parameters[f"{last}in.bias"][-1], out[-1, CHANNEL] = 1.0, -HUGE / 40.0
    return model


@pytest.mark.parametrize(("width", "hidden"), [(64, 256), (320, 640)])
def test_the_error_of_float32_is_that_of_numpy(width, hidden):
    model = with_a_huge_activation(width, hidden)
    tokens = np.arange(LENGTH)[None] % 29
    slots = model.slots(LENGTH)
    slots = {name: x[0] if isinstance(x, np.ndarray) and x.ndim == 3 else x for name, x in slots.items()}
    exact, plain = (
        model_forward(
            model.config, {name: np.asarray(x, dtype) for name, x in model.parameters.items()},
            {name: np.asarray(x, dtype) for name, x in slots.items()}, tokens,
        )
        for dtype in (np.float64, np.float32)
    )  # fmt: skip
    ours = model(tokens)
    for rows in (slice(0, 1), slice(1, None)):
        error, usual = (float(np.sqrt(np.mean((y - exact)[:, rows] ** 2))) for y in (ours, plain))
        assert error <= 1.5 * usual, f"{error:.2g}, NumPy's {usual:.2g}"
