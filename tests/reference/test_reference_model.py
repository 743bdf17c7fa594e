"""The references of single kernels and of the model's whole training step."""

import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats
from content_checks import differences

from fastpe import ModelConfig, reference
from fastpe.model.parameters import parameter_shapes
from fastpe.reference import model_gradient_sizes


def off_kinks(x):
    """Numbers at least 0.1 away from 0, where ReLU has no derivative."""
    return x + 0.1 * np.sign(x)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("linear", [(2, 3, 4), (4, 5), (5,)]),
        ("relu", [(3, 4)]),
        ("gelu", [(3, 4)]),
        ("layer_norm", [(2, 3, 5), (5,), (5,)]),
        ("softmax", [(3, 4)]),
        ("mean_squared_error", [(3, 4), (3, 4)]),
    ],
)
def test_pullbacks_are_the_central_differences(name, shapes):
    rng = np.random.default_rng(len(name))
    arguments = [off_kinks(rng.standard_normal(shape)) for shape in shapes]
    operation, vjp = getattr(reference, name), getattr(reference, f"{name}_vjp")
    value, pullback = vjp(*arguments)
    np.testing.assert_allclose(value, operation(*arguments), rtol=1e-15)
    dvalue = rng.standard_normal(np.shape(value))
    gradients = pullback(dvalue)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    for place, gradient in enumerate(gradients):

        def weighed(x, place=place):
            return np.sum(dvalue * operation(*arguments[:place], x, *arguments[place + 1 :]))

        numeric = differences(weighed, arguments[place], 1e-5)
        np.testing.assert_allclose(gradient, numeric, rtol=0, atol=2e-9)


def test_single_operations_agree_with_scipy():
    x = np.random.default_rng(0).standard_normal((4, 7))
    np.testing.assert_allclose(reference.gelu(x), x * scipy.stats.norm.cdf(x), rtol=1e-13)
    np.testing.assert_allclose(reference.softmax(x), scipy.special.softmax(x, -1), rtol=1e-14)
    normal = scipy.stats.zscore(x, axis=-1)
    got = reference.layer_norm(x, np.full(7, 2.0), np.arange(7.0), eps=0.0)
    np.testing.assert_allclose(got, 2 * normal + np.arange(7), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(reference.layer_norm(x, 1.0, 0.0), normal / np.sqrt(1 + 1e-5 / x.var(-1))[:, None])
    np.testing.assert_array_equal(reference.linear(x, np.eye(7)[:, :3], np.ones(3)), x[:, :3] + 1)


def test_cross_entropy_agrees_with_scipy_and_its_pullback_is_the_central_differences():
    rng = np.random.default_rng(1)
    logits, tokens = 5 * rng.standard_normal((3, 4, 6)), rng.integers(0, 6, (3, 4))
    loss, pullback = reference.cross_entropy_vjp(logits, tokens)
    chosen = np.take_along_axis(scipy.special.log_softmax(logits, -1), tokens[..., None], -1)
    assert loss == reference.cross_entropy(logits, tokens) == pytest.approx(-chosen.mean(), rel=1e-14)
    numeric = differences(lambda x: 0.7 * reference.cross_entropy(x, tokens), logits, 1e-5)
    np.testing.assert_allclose(pullback(0.7), numeric, rtol=0, atol=2e-9)
    huge = np.array([[1e300, -1e300, 0.0]])
    assert float(reference.cross_entropy(huge, np.array([0]))) == 0
    np.testing.assert_array_equal(reference.cross_entropy_vjp(huge, np.array([2]))[1](1.0), [[1.0, 0.0, -1.0]])


def test_embedding_takes_rows_and_its_pullback_adds_them_up():
    weight, tokens = np.arange(8.0).reshape(4, 2), np.array([[3, 0], [3, 3]])
    rows, pullback = reference.embedding_vjp(tokens, weight)
    one_hot = np.eye(4)[tokens]
    np.testing.assert_array_equal(rows, one_hot @ weight)
    dy = np.random.default_rng(0).standard_normal(rows.shape)
    np.testing.assert_allclose(pullback(dy), np.einsum("bnv,bnc->vc", one_hot, dy), rtol=1e-14, atol=1e-16)


def test_gelu_keeps_its_precision_far_below_zero():
    x = np.array([-30.0, -8.0, -1e-8, 0.0, 8.0])
    exact = [float(value * mpmath.ncdf(value)) for value in x.tolist()]
    np.testing.assert_allclose(reference.gelu(x), exact, rtol=1e-13)


def test_relu_has_no_slope_at_zero():
    np.testing.assert_array_equal(reference.relu_vjp(np.array([-1.0, 0.0, 1.0]))[1](np.ones(3)), [0, 0, 1])


# ---------------------------------------------------------------------------------------------------------------------
# The model


def make_model(seed=0, dtype=np.float64, **settings):
    own = {"width": 6, "heads": 2, "layers": 2, "hidden": 5, "activation": "gelu"} | settings
    config, rng = ModelConfig("nope", **own), np.random.default_rng(seed)
    parameters = {
        name: (rng.standard_normal(shape) / 2).astype(dtype) for name, shape in parameter_shapes(config).items()
    }
    return config, parameters, rng


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize(
    "settings",
    [
        {"norm": "layernorm", "causal": True},
        {"activation": "relu", "heads": 1},
        {"residual": False, "norm": "layernorm", "layers": 1, "heads": 3},
        {"vocabulary": 7, "causal": True, "norm": "layernorm"},
        {"vocabulary": 2, "layers": 1},
    ],
    ids=str,
)
def test_gradients_of_the_model_are_the_central_differences(settings):
    config, parameters, rng = make_model(**settings)
    slots = {"table": rng.standard_normal((4, 6)), "bias": rng.standard_normal((config.heads, 7)), "scores": None}
    tokens = settings.get("vocabulary")
    x, y = rng.integers(0, tokens, (2, 3, 4)) if tokens else rng.standard_normal((2, 3, 4))
    loss, gradients, slot_gradients = reference.model_loss_and_grads(config, parameters, slots, x, y)
    outputs = reference.model_forward(config, parameters, slots, x)
    chosen = scipy.special.log_softmax(outputs, -1)[np.arange(3)[:, None], np.arange(4), y] if tokens else None
    np.testing.assert_allclose(loss, -np.mean(chosen) if tokens else np.mean((outputs - y) ** 2))
    assert set(gradients) == set(parameters)
    assert set(slot_gradients) == {"table", "bias"}
    given = parameters | slots

    def loss_of(name, value):
        moved = {**given, name: value}
        own = ({key: moved[key] for key in part} for part in (parameters, slots))
        return reference.model_loss_and_grads(config, *own, x, y)[0]

    for name, gradient in (gradients | slot_gradients).items():
        numeric = differences(lambda value, name=name: loss_of(name, value), given[name])
        np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-7 * max(1, loss), err_msg=name)


def test_a_table_per_sample_has_a_gradient_per_sample():
    config, parameters, rng = make_model()
    table = rng.standard_normal((3, 4, 6))
    x, y = rng.standard_normal((2, 3, 4))
    shared = reference.model_loss_and_grads(config, parameters, {"table": table[0]}, x, y)[2]["table"]
    copies = np.broadcast_to(table[0], table.shape)
    each = reference.model_loss_and_grads(config, parameters, {"table": copies}, x, y)[2]["table"]
    np.testing.assert_allclose(each.sum(0), shared, rtol=0, atol=1e-13)
    one = reference.model_forward(config, parameters, {"table": table[1]}, x[1:2])
    np.testing.assert_allclose(reference.model_forward(config, parameters, {"table": table}, x)[1:2], one, atol=1e-13)


def test_the_step_stays_in_the_parameters_dtype():
    config, parameters, rng = make_model(dtype=np.float32, norm="layernorm")
    slots = {"table": rng.standard_normal((4, 6)), "bias": rng.standard_normal((2, 7))}
    x, y = rng.standard_normal((2, 3, 4))
    loss, gradients, slot_gradients = reference.model_loss_and_grads(config, parameters, slots, x, y)
    assert loss.dtype == reference.model_forward(config, parameters, slots, x).dtype == np.float32
    assert {gradient.dtype for gradient in (gradients | slot_gradients).values()} == {np.dtype(np.float32)}
    double = {name: value.astype(np.float64) for name, value in parameters.items()}
    expected = reference.model_loss_and_grads(config, double, slots, x, y)
    sizes = model_gradient_sizes(config, double, slots, x, y)
    for got, exact, own in zip((gradients, slot_gradients), expected[1:], sizes, strict=True):
        for name in exact:
            np.testing.assert_allclose(got[name], exact[name], rtol=0, atol=1e-5 * np.max(own[name]), err_msg=name)


def test_adam_moves_by_its_rate_and_in_place():
    parameters = {"a": np.zeros(3, np.float32), "b": np.ones(2, np.float32)}
    kept = dict(parameters)
    first = {name: np.zeros_like(value) for name, value in parameters.items()}
    second = {name: np.zeros_like(value) for name, value in parameters.items()}
    reference.adam_step(parameters, {"a": np.array([1e-3, -5.0, 0.0], np.float32)}, first, second, step=1, lr=0.5)
    np.testing.assert_allclose(kept["a"], [-0.5, 0.5, 0.0], rtol=1e-4)
    np.testing.assert_array_equal(kept["b"], 1)
    assert kept["a"].dtype == np.float32
    with pytest.raises(ValueError, match="step must be at least 1, not 0"):
        reference.adam_step(parameters, {}, first, second, step=0, lr=0.5)
