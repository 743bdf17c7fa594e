"""The compiled model against the NumPy reference of the whole step, its symmetries, and its promise of equal bits."""

import copy
import pickle

import numpy as np
import pytest
from guards import guarded_allocations
from hypothesis import given
from hypothesis import strategies as st
from model_cases import (
    DEEP,
    PAPER,
    assert_same_gradients,
    batch_of,
    gradient_sizes,
    in_float64,
    plain_gradients,
    reference_slots,
)

from fastpe import ModelConfig, Transformer, reference
from fastpe.doctor.allowed_error import step_tolerance
from fastpe.kernels import simd
from fastpe.model.adam import Adam
from fastpe.model.parameters import parameter_shapes

DTYPES = ["float32", "float64"]


configs = st.builds(
    ModelConfig,
    encoding=st.sampled_from(["nope", "sinusoidal", "alibi", "wavelet", "legendre", "sinusoidal+alibi"]),
    heads=st.sampled_from([1, 2, 3]),
    width=st.integers(1, 9).map(lambda k: 6 * k),
    hidden=st.integers(1, 70),
    layers=st.integers(1, 3),
    causal=st.booleans(),
    activation=st.sampled_from(["relu", "gelu"]),
    norm=st.sampled_from(["none", "layernorm"]),
    residual=st.booleans(),
    train_length=st.integers(1, 40),
    seed=st.integers(0, 5),
)


@pytest.mark.parametrize("dtype", DTYPES)
@given(config=configs, sequences=st.integers(1, 11))
def test_outputs_loss_and_gradients_agree_with_the_reference(dtype, config, sequences):
    config = ModelConfig.from_dict({**config.to_dict(), "dtype": dtype})
    model = Transformer(config)
    x, y = batch_of(config, sequences)
    slots, parameters = reference_slots(config, config.train_length), in_float64(model)
    exact = reference.model_forward(config, parameters, slots, x.astype(np.float64))
    tolerance = step_tolerance(dtype)
    np.testing.assert_allclose(model(x), exact, atol=tolerance * max(1, np.abs(exact).max()))
    loss, gradients = model.loss_and_grads(x, y)
    expected, expected_gradients, _ = reference.model_loss_and_grads(config, parameters, slots, x.astype(float), y)
    assert loss == pytest.approx(expected, rel=tolerance)
    # a kink of ReLU may lie within rounding of an input: GELU has none, and float64 does not meet one
    if dtype == "float64" or config.activation == "gelu":
        sizes, plain = gradient_sizes(model, x, y), plain_gradients(model, slots, x, y)
        assert_same_gradients(gradients, expected_gradients, sizes, dtype, plain)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [95, 96, 97, 128, 129, 225])
def test_gradients_at_the_edges_of_attentions_tiles(n, causal):
    config = ModelConfig("rope+alibi", width=8, hidden=8, heads=2, causal=causal, train_length=n, dtype="float64")
    model, (x, y) = Transformer(config), batch_of(config, 2)
    slots, parameters = reference_slots(config, n), in_float64(model)
    np.testing.assert_allclose(model(x), reference.model_forward(config, parameters, slots, x), rtol=1e-11, atol=1e-12)
    loss, gradients = model.loss_and_grads(x, y)
    expected, expected_gradients, _ = reference.model_loss_and_grads(config, parameters, slots, x, y)
    assert loss == pytest.approx(expected, rel=1e-12)
    assert model.loss(x, y) == pytest.approx(expected, rel=1e-12)
    for name, array in expected_gradients.items():
        scale = np.abs(array).max() + 1e-3
        np.testing.assert_allclose(gradients[name], array, rtol=0, atol=1e-11 * scale, err_msg=name)


@pytest.mark.parametrize("config", [PAPER, DEEP], ids=["paper", "deep"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_the_two_named_models(config, dtype):
    config = ModelConfig.from_dict({**config.to_dict(), "dtype": dtype})
    model = Transformer(config)
    x, y = batch_of(config, 32)
    loss, gradients = model.loss_and_grads(x, y)
    slots = reference_slots(config, config.train_length)
    expected, exact, _ = reference.model_loss_and_grads(config, in_float64(model), slots, x.astype(float), y)
    tolerance = step_tolerance(dtype)
    assert loss == pytest.approx(expected, rel=tolerance)
    assert_same_gradients(gradients, exact, gradient_sizes(model, x, y), dtype)


@pytest.mark.parametrize("encoding", ["learned", "alibi", "legendre", "learned+alibi"])
def test_gradients_of_an_encodings_own_parameters_are_those_of_the_loss(encoding):
    """Central differences of the compiled loss in float64, along random directions."""
    options = {name: {"learned": True} for name in ("alibi", "legendre")}.get(encoding, {})
    if encoding == "learned+alibi":
        options = {"alibi.learned": True}
    config = ModelConfig(
        encoding, options, width=12, heads=3, hidden=7, train_length=9, activation="gelu", dtype="float64"
    )
    model = Transformer(config)
    x, y = batch_of(config, 3)
    _, gradients = model.loss_and_grads(x, y)
    own = [name for name in gradients if name.startswith("encoding.")]
    assert own
    for name in own:
        direction = np.random.default_rng(1).standard_normal(gradients[name].shape)
        losses, kept = [], model.parameters[name].copy()
        for step in (1e-5, -1e-5):
            model.parameters[name][...] = kept + step * direction
            losses.append(model.loss_and_grads(x, y)[0])
        model.parameters[name][...] = kept
        assert (losses[0] - losses[1]) / 2e-5 == pytest.approx((gradients[name] * direction).sum(), rel=1e-6)


def test_ten_losses_of_a_training_run_agree_with_the_reference():
    config = ModelConfig("wavelet", dtype="float64")
    model = Transformer(config)
    adam, parameters = Adam(model), in_float64(model)
    first, second = ({name: np.zeros_like(value) for name, value in parameters.items()} for _ in range(2))
    slots = reference_slots(config, 50)
    for step in range(1, 11):
        x, y = batch_of(config, 32, seed=step)
        loss, gradients, _ = reference.model_loss_and_grads(config, parameters, slots, x, y)
        assert adam.step(x, y) == pytest.approx(loss, rel=1e-9)
        reference.adam_step(parameters, gradients, first, second, step, adam.lr)
    for name, value in parameters.items():
        # Adam divides by the second moment's root: where the exact gradient is 0 (key bias) it amplifies rounding
        if "key.bias" not in name:
            np.testing.assert_allclose(model.parameters[name], value, atol=1e-8)


@pytest.mark.parametrize(
    "config", [PAPER, DEEP, ModelConfig("learned", train_length=21)], ids=["paper", "deep", "learned"]
)
@pytest.mark.parametrize("sequences", [1, 5, 16, 64])
def test_the_bits_do_not_depend_on_the_number_of_threads(config, sequences):
    results = []
    for threads in (1, 2, 3, 4, 8):
        model = Transformer(config)
        adam = Adam(model)
        x, y = batch_of(config, sequences)
        losses = [adam.step(x, y, threads=threads) for _ in range(3)]
        results.append((losses, model._layout.flat.tobytes(), model(x, threads=threads).tobytes()))
    assert all(result == results[0] for result in results)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_length_writes_outside_the_arrays(monkeypatch, dtype):
    """Every N from 1 to 300, guard words around everything that a model allocates; heads, widths and norms rotate."""
    check = guarded_allocations(monkeypatch)
    for length in range(1, 301):
        heads = 1 + length % 8
        config = ModelConfig(
            ["learned", "alibi", "nope"][length % 3], width=heads * (1 + length % 11), heads=heads, layers=1,
            hidden=1 + length % 19, causal=bool(length % 2), norm=["none", "layernorm"][length // 2 % 2],
            activation=["relu", "gelu"][length // 4 % 2], train_length=length, dtype=dtype,
        )  # fmt: skip
        model = Transformer(config)
        x, y = batch_of(config, 2)
        Adam(model).step(x, y, threads=2)
        assert np.isfinite(model(x, threads=2)).all()
    check()


@pytest.mark.parametrize("heads", range(1, 13))
def test_every_number_of_heads_stays_inside_the_arrays(monkeypatch, heads):
    check = guarded_allocations(monkeypatch)
    for width in (1, 3, 8, 17):
        model = Transformer(ModelConfig("alibi", width=heads * width, heads=heads, hidden=5, train_length=20))
        x, y = batch_of(model.config, 3)
        Adam(model).step(x, y)
        assert np.isfinite(model(x)).all()
    check()


@given(
    length=st.integers(1, 90), width=st.integers(1, 40), heads=st.integers(1, 3), hidden=st.integers(1, 40),
    norm=st.sampled_from(["none", "layernorm"]), activation=st.sampled_from(["relu", "gelu"]),
    encoding=st.sampled_from(["nope", "learned", "learned+alibi"]),
)  # fmt: skip
def test_no_pointer_leaves_its_array(length, width, heads, hidden, norm, activation, encoding):
    """Everything that a step writes to is fenced with marks; they stay."""
    options = {"alibi.learned": True} if encoding == "learned+alibi" else {}
    config = ModelConfig(
        encoding, options, width=width * heads, heads=heads, hidden=hidden, train_length=length, norm=norm,
        activation=activation,
    )  # fmt: skip
    model = Transformer(config)
    x, y = batch_of(config, 3)
    model(x, threads=2)
    model.loss_and_grads(x, y, threads=2)
    fences = []
    for work in model._kept.values():
        work.workspaces[:, work.workspace.size :] = 77.0
        fences.append(work.workspaces[:, work.workspace.size :])
        work.workspaces[:, : work.workspace.size] = np.nan  # nothing may be read before it is written
        groups = len(x)
        work.gradients[groups:] = 77.0
        fences.append(work.gradients[groups:])
    out = model(x, threads=2)
    loss, gradients = model.loss_and_grads(x, y, threads=2)
    assert all((fence == 77.0).all() for fence in fences)
    assert np.isfinite(out).all()
    assert np.isfinite(loss)
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())
    padding = model._layout.flat.copy()
    for view in model._layout.views_of(padding).values():
        view[...] = 0
    assert not padding.any()  # what lies between the tensors is never written


# ---------------------------------------------------------------------------------------------- symmetries (III.3, 0.5)


def test_nope_without_a_mask_commutes_with_permutations():
    model = Transformer(ModelConfig("nope", dtype="float64", heads=2))
    x, _ = batch_of(model.config)
    order = np.random.default_rng(1).permutation(x.shape[1])
    np.testing.assert_allclose(model(x[:, order]), model(x)[:, order], rtol=1e-12)


def test_symmetric_alibi_commutes_with_reversal_and_sinusoidal_does_not():
    alibi = Transformer(ModelConfig("alibi", dtype="float64", heads=4))
    x, _ = batch_of(alibi.config)
    np.testing.assert_allclose(alibi(x[:, ::-1]), alibi(x)[:, ::-1], rtol=1e-12)
    other = Transformer(ModelConfig("sinusoidal", dtype="float64"))
    assert np.abs(other(x[:, ::-1]) - other(x)[:, ::-1]).max() > 1e-3


@pytest.mark.parametrize("causal", [False, True])
def test_identical_tokens_give_identical_outputs_where_position_enters_through_weights_alone(causal):
    model = Transformer(ModelConfig("alibi", dtype="float64", heads=2, causal=causal))
    y = model(np.full((1, 40), 0.7))
    np.testing.assert_allclose(y, y[:, :1] * np.ones(40), rtol=1e-12)


@pytest.mark.parametrize("encoding", ["nope", "alibi", "wavelet"])
def test_a_causal_model_is_blind_to_its_future(encoding):
    model = Transformer(ModelConfig(encoding, causal=True))
    x, _ = batch_of(model.config)
    changed = x.copy()
    changed[:, 20:] += 5
    np.testing.assert_array_equal(model(changed)[:, :20], model(x)[:, :20])
    assert np.abs(model(changed)[:, 20:] - model(x)[:, 20:]).min(1).max() > 0


# ----------------------------------------------------------------------------------------------- parameters and errors


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_model_is_a_model(duplicate):
    model = Transformer(ModelConfig("learned", width=16, hidden=16, train_length=9))
    model.parameters["head.bias"][...] = 3
    other = duplicate(model)
    x = np.ones(9)
    np.testing.assert_array_equal(other(x), model(x))
    other.parameters["head.bias"][...] += 100
    assert np.abs(other(x) - model(x)).min() > 99


@pytest.mark.parametrize(
    ("setting", "error", "says"),
    [
        ({"lr": "fast"}, TypeError, "lr must be a number, not 'fast'"),
        ({"lr": True}, TypeError, "lr must be a number, not True"),
        ({"lr": 0}, ValueError, "lr must be above 0, not 0.0"),
        ({"lr": float("nan")}, ValueError, "lr must be finite, not nan"),
        ({"lr": 10**400}, ValueError, "lr must be finite, but it is larger than any float64"),
        ({"beta1": 1}, ValueError, r"beta1 must lie in \[0, 1\), not 1.0"),
        ({"beta2": -0.1}, ValueError, r"beta2 must lie in \[0, 1\), not -0.1"),
        ({"beta2": None}, TypeError, "beta2 must be a number, not None"),
        ({"eps": 0.0}, ValueError, "eps must be above 0, not 0.0"),
    ],
)
def test_adam_refuses_bad_numbers_by_name(setting, error, says):
    model = Transformer(ModelConfig("nope", width=8, hidden=8, train_length=4))
    with pytest.raises(error, match=f"^{says}$"):
        Adam(model, **setting)
    adam, ((name, value),) = Adam(model), setting.items()
    before = getattr(adam, name)
    with pytest.raises(error, match=f"^{says}$"):
        setattr(adam, name, value)
    assert getattr(adam, name) == before


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda adam: pickle.loads(pickle.dumps(adam))])
def test_a_copy_of_adam_goes_on_alike_and_its_moments_are_views(duplicate):
    adam = Adam(Transformer(ModelConfig("learned", width=16, hidden=16, train_length=9)), lr=0.01, beta1=0.8)
    x, y = batch_of(adam.model.config, 4)
    adam.step(x, y)
    other, together = duplicate((adam, adam.model))
    assert other.model is together
    for mine, theirs in ((adam.first, other.first), (adam.second, other.second)):
        for name, moment in mine.items():
            np.testing.assert_array_equal(theirs[name], moment)
            assert np.shares_memory(theirs[name], other._moments)
            assert not np.shares_memory(theirs[name], moment)
    assert [adam.step(x, y) for _ in range(3)] == [other.step(x, y) for _ in range(3)]
    assert (other.steps, other.lr, other.beta1) == (4, 0.01, 0.8)
    np.testing.assert_array_equal(other.model(x), adam.model(x))


def test_parameters_are_views_by_the_names_that_are_promised():
    model = Transformer(ModelConfig("learned", norm="layernorm", layers=1))
    assert {name: view.shape for name, view in model.parameters.items()} == {
        **parameter_shapes(model.config),
        "encoding.learned.table": (50, 64),
    }
    before = model(np.ones(50))
    model.parameters["layers.0.attention.value.weight"][...] = 0
    model.parameters["head.bias"][...] += 1
    assert np.abs(model(np.ones(50)) - before).min() > 0


def test_initial_weights_depend_on_seed_and_name_alone():
    one, other = Transformer(ModelConfig("wavelet", layers=1)), Transformer(ModelConfig("learned", layers=2))
    for name, value in one.parameters.items():
        np.testing.assert_array_equal(value, other.parameters[name])
    fan_in = {"layers.0.feedforward.out.weight": 128, "layers.0.feedforward.out.bias": 128, "embed.bias": 1}
    for name, count in fan_in.items():
        assert 0.5 * count**-0.5 < np.abs(one.parameters[name]).max() <= count**-0.5
    assert (
        Transformer(ModelConfig("wavelet", seed=1)).parameters["head.weight"] != one.parameters["head.weight"]
    ).all()


def test_every_array_of_the_model_starts_on_a_cache_line():
    model = Transformer(PAPER)
    for array in (model._layout.flat, model._transposes.flat, simd.aligned_zeros((3, 7), np.float32)):
        assert array.ctypes.data % 64 == 0
