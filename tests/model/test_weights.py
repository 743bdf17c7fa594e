"""Targets that count more, less or not at all: the weighted mean, against the reference and PyTorch."""

from dataclasses import replace

import numpy as np
import pytest
from model_cases import PAPER, SMALL, assert_agrees_with_the_reference, pair_of

from fastpe import Transformer, reference
from fastpe.doctor.allowed_error import step_tolerance
from fastpe.kernels import arrays
from fastpe.model.adam import Adam

NUMBERS = replace(PAPER, activation="gelu", train_length=20)
CONFIGS = [replace(config, dtype=dtype) for config in (NUMBERS, SMALL) for dtype in ("float32", "float64")]
NAMES = [f"{'tokens' if config.vocabulary else 'numbers'} {config.dtype}" for config in CONFIGS]
models = pytest.mark.parametrize("config", CONFIGS, ids=NAMES)


def case(config, sequences=5):
    """x, y and weights, a third of which are 0: among them those of a whole sequence."""
    x, y = pair_of(config, sequences)
    weights = np.random.default_rng(8).exponential(size=y.shape)
    weights[np.random.default_rng(9).random(y.shape) < 0.3] = 0
    weights[1] = 0
    return x, y, weights


@models
def test_loss_and_gradients_are_those_of_the_reference(config):
    assert_agrees_with_the_reference(config, weighted=True)
    model, (x, y, weights) = Transformer(config), case(config)
    loss = model.loss(x, y, weights=weights)
    assert loss == pytest.approx(model.loss_and_grads(x, y, weights=weights)[0], rel=1e-6)
    assert abs(loss / model.loss(x, y) - 1) > 1e-4


def test_the_references_weighted_means_are_numpys_and_leave_out_what_has_no_weight():
    rng = np.random.default_rng(0)
    y, target, logits = rng.standard_normal((4, 6)), rng.standard_normal((4, 6)), rng.standard_normal((4, 6, 3))
    tokens, weights = rng.integers(0, 3, (4, 6)), rng.random((4, 6)) * (rng.random((4, 6)) < 0.5)
    expected = np.average((y - target) ** 2, weights=weights)
    nothing = np.where(weights == 0, np.nan, 0)
    assert reference.mean_squared_error(y + nothing, target + nothing, weights) == pytest.approx(expected, rel=1e-14)
    _, pullback = reference.mean_squared_error_vjp(y, target, weights)
    assert (pullback(1.0)[weights == 0] == 0).all()
    each = -np.log(np.take_along_axis(reference.softmax(logits), tokens[..., None], -1)[..., 0])
    hidden = np.where(weights == 0, -100, tokens)
    found = reference.cross_entropy(logits + nothing[..., None], hidden, weights)
    assert found == pytest.approx(np.average(each, weights=weights), rel=1e-14)
    assert (reference.cross_entropy_vjp(logits, hidden, weights)[1](1.0)[weights == 0] == 0).all()


@pytest.mark.parametrize("weighted", [False, True], ids=["ignore_index", "weighted"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cross_entropy_is_pytorchs(dtype, weighted):
    torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")
    model = Transformer(replace(SMALL, dtype=dtype))
    x, y, weights = case(model.config)
    y = np.where(weights == 0, -100, y)
    weights = weights if weighted else weights > 0
    logits = torch.tensor(model(x), requires_grad=True)
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.tensor(y).flatten(), ignore_index=-100, reduction="none" if weighted else "mean"
    )
    expected = (losses * torch.tensor(weights).flatten()).sum() / weights.sum() if weighted else losses
    expected.backward()
    loss, gradients = model.loss_and_grads(x, y, weights=weights)
    tolerance = step_tolerance(dtype)
    assert loss == pytest.approx(expected.item(), rel=tolerance)
    exact = logits.grad.sum((0, 1)).numpy()  # what the head's bias adds to every row
    np.testing.assert_allclose(gradients["head.bias"], exact, rtol=0, atol=tolerance * np.abs(exact).max())


@models
def test_only_ratios_of_weights_matter(config):
    model, (x, y, weights) = Transformer(config), case(config)
    flat = [None, np.ones(y.shape), np.ones(y.shape, bool), np.full(y.shape, 2, np.int8), np.full(y.shape, 2.0**900)]
    varied = [weights, weights * 8, weights / 2**40, weights.tolist()]
    for group in (flat, varied):
        expected = model.loss_and_grads(x, y, weights=group[0])
        for same in group[1:]:
            loss, gradients = model.loss_and_grads(x, y, weights=same)
            assert loss == pytest.approx(expected[0], rel=1e-12)
            for name, gradient in gradients.items():
                np.testing.assert_array_equal(gradient, expected[1][name], err_msg=name)


@models
def test_a_target_that_does_not_count_may_be_anything(config):
    model, (x, y, weights) = Transformer(config), case(config)
    loss, gradients = model.loss_and_grads(x, y, weights=weights)
    for nothing in (-100, 10**9) if config.vocabulary else (np.nan, np.inf):
        hidden = np.where(weights == 0, nothing, y)
        again, same = model.loss_and_grads(x, hidden, weights=weights)
        assert again == loss
        assert model.loss(x, hidden, weights=weights) == model.loss(x, y, weights=weights)
        for name, gradient in same.items():
            np.testing.assert_array_equal(gradient, gradients[name], err_msg=name)
        with pytest.raises(ValueError, match=r"^y must "):
            model.loss_and_grads(x, hidden)


def test_outputs_whose_targets_do_not_count_may_be_anything():
    weights = np.array([1.0, 0, 2])
    for dtype in (np.float32, np.float64):
        y, target = np.array([[1, np.nan, 3], [3, 3, np.inf]], dtype)
        loss, dy = arrays.mean_squared_error(y, target, np.array([1.0, 0, 0]))
        assert (loss, dy.tolist()) == (4.0, [-4.0, 0.0, 0.0])
        logits = np.array([[0, 0], [np.nan, np.inf], [0, 0]], dtype)
        loss, dlogits = arrays.cross_entropy(logits, np.array([0, 10**6, 1]), weights)
        assert loss == pytest.approx(np.log(2), rel=1e-6)
        np.testing.assert_allclose(dlogits, [[-1 / 6, 1 / 6], [0, 0], [1 / 3, -1 / 3]], rtol=1e-6)


def test_one_target_and_one_sequence():
    model = Transformer(NUMBERS)
    assert model.loss([1.0], [2.0], weights=[3]) == model.loss([1.0], [2.0])
    assert model.loss([1.0, 2.0], [2.0, 3.0], weights=[[1, 0]]) == model.loss([1.0, 2.0], [2.0, 7.0], weights=[1, 0])


@pytest.mark.parametrize(
    ("weights", "error", "says"),
    [
        ([1.0, 2.0], ValueError, r"weights must have the shape of y, \(3,\), not \(2,\)$"),
        (1.0, ValueError, r"weights must have the shape of y, \(3,\), not \(\)$"),
        (np.ones((2, 1, 3)), ValueError, r"weights must have the shape of y, \(3,\), not \(2, 1, 3\)$"),
        ([1, -2, 0], ValueError, r"weights must hold finite numbers of at least 0, or booleans, but .*\[1\] is -2$"),
        ([1, np.nan, 0], ValueError, r"weights must hold finite numbers .* but weights\[1\] is nan$"),
        ([np.inf, 1, 0], ValueError, r"weights must hold finite numbers .* but weights\[0\] is inf$"),
        ([1e308, 1e308, 0], ValueError, r"weights must have a finite sum, by which they are divided$"),
        ([0, 0, 0], ValueError, r"weights must not all be 0: the loss is a mean over the targets that count$"),
        ([False] * 3, ValueError, r"weights must not all be 0"),
        (["a", "b", "c"], TypeError, r"weights must hold finite numbers of at least 0, or booleans, not <U1$"),
        ([1j, 1, 1], TypeError, r"weights must hold finite numbers .* not complex128$"),
    ],
)
def test_bad_weights_get_one_clear_error(weights, error, says):
    model = Transformer(NUMBERS)
    adam, before = Adam(model), model._layout.flat.copy()
    for call in (model.loss, model.loss_and_grads, adam.step):
        with pytest.raises(error, match=f"^{says}"):
            call([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], weights=weights)
    assert adam.steps == 0
    np.testing.assert_array_equal(model._layout.flat, before)


@pytest.mark.parametrize("token", [-100, -1])
def test_the_error_for_a_negative_target_names_the_weights(token):
    model = Transformer(SMALL)
    with pytest.raises(ValueError, match=rf"y\[0, 1\] is {token}; give targets that do not count the weight 0, as in"):
        model.loss_and_grads([[1, 2]], [[1, token]])
    with pytest.raises(ValueError, match=rf"x\[0, 1\] is {token}$"):
        model.loss_and_grads([[1, token]], [[1, 2]])
    with pytest.raises(ValueError, match=r"y\[0, 1\] is 17$"):
        model.loss_and_grads([[1, 2]], [[1, 17]])
    with pytest.raises(ValueError, match=rf"y\[0, 1\] is {token}"):  # it counts
        model.loss_and_grads([[1, 2]], [[1, token]], weights=[[0, 1]])
