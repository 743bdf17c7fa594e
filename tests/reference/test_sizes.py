"""Sums of the sizes of terms: by hand, above what they are of, and above what rounding does."""

import numpy as np
import pytest
from attention_problems import SLOTS, problem

from fastpe import ModelConfig
from fastpe.model.parameters import parameter_shapes
from fastpe.reference import model_gradient_sizes, model_loss_and_grads
from fastpe.reference._attention import attention_vjp_in
from fastpe.reference._sizes import Sizes


def test_differences_are_sums_and_everything_has_its_size():
    x, y = np.array([[1.0, -2.0], [3.0, 4.0]]), np.array([[-5.0, 1.0], [2.0, -2.0]]).view(Sizes)
    for found, expected in (
        (x - y, [[6, 3], [5, 6]]),
        (y - 1.0, [[6, 2], [3, 3]]),
        (-y, [[5, 1], [2, 2]]),
        (x @ y, [[9, 5], [23, 11]]),
        (y.sum(axis=0), [7, 3]),
        (y.mean(axis=1), [3, 2]),
        (np.where(x > 0, y, 0) + x, [[6, 2], [5, 6]]),
        (y[::-1].T.reshape(4)[1:] * -1.0, [5, 2, 1]),
    ):
        assert isinstance(found, Sizes)
        np.testing.assert_array_equal(np.asarray(found), expected)
    total = np.ones(2)
    total -= y.sum(axis=1)
    np.testing.assert_array_equal(np.asarray(total), [7, 5])
    np.add.at(total, [0, 0], y[1])
    np.testing.assert_array_equal(np.asarray(total), [11, 5])


@pytest.mark.parametrize("settings", [{}, {"rectify": True, "pairs": "half"}])
def test_sizes_of_attentions_gradients_by_every_sign(settings):
    """A gradient is linear in dout and in each of the arrays: no choice of signs of dout makes it larger."""
    rng = np.random.default_rng(3)
    arguments = problem(rng, SLOTS, h=2, hk=1, n=5, m=7, d=6)
    _, pullback = attention_vjp_in(np.float64, **arguments, causal=True, **settings)
    dout = rng.standard_normal(arguments["q"].shape)
    sizes = {name: np.abs(np.asarray(found)) for name, found in pullback(dout.view(Sizes)).items()}
    largest = {name: np.zeros(found.shape) for name, found in sizes.items()}
    for _ in range(30):
        found = pullback(dout * rng.choice([-1.0, 1.0], dout.shape))
        largest = {name: np.maximum(largest[name], np.abs(array)) for name, array in found.items()}
    for name, array in sizes.items():
        assert (largest[name] <= array * (1 + 1e-12)).all(), name
        seen = largest[name] > 0
        assert np.median(array[seen] / largest[name][seen]) < 60, name


def test_a_gradient_that_is_zero_in_theory_has_terms_of_nonzero_size():
    rng = np.random.default_rng(6)
    config = ModelConfig("nope", width=6, heads=2, hidden=5, causal=True, activation="gelu", norm="layernorm")
    parameters = {name: 0.3 * rng.standard_normal(shape) for name, shape in parameter_shapes(config).items()}
    slots = {"table": rng.standard_normal((4, 6)), "bias": rng.standard_normal((2, 7)), "taps": np.ones((2, 6))}
    x, y = rng.standard_normal((2, 3, 4))
    _, gradients, of_slots = model_loss_and_grads(config, parameters, slots, x, y)
    sizes, slot_sizes = model_gradient_sizes(config, parameters, slots, x, y)
    assert set(sizes) == set(gradients)
    assert set(slot_sizes) == set(of_slots) == set(slots)
    for name, array in (gradients | of_slots).items():
        own = np.abs(np.asarray((sizes | slot_sizes)[name]))
        assert (np.abs(array) <= own * (1 + 1e-9)).all(), name
        zero = "key.bias" in name
        assert (np.abs(array).max() < 1e-13 * own.max()) == zero, name
        if "query" not in name and "key" not in name:  # whose scores hardly change the softmax here
            assert own.max() < 300 * np.abs(array).max(), name
