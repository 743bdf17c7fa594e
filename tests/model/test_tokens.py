"""Models with a vocabulary: tokens in, logits out, cross entropy, against the NumPy reference of the whole step."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from model_cases import (
    SMALL,
    assert_same_gradients,
    gradient_sizes,
    in_float64,
    plain_gradients,
    reference_slots,
    tokens_of,
)
from scipy import special

from fastpe import ModelConfig, Transformer, reference
from fastpe.base.files import TensorFile, write_tensors
from fastpe.base.stored import DamagedFileError
from fastpe.doctor.allowed_error import step_tolerance
from fastpe.model.adam import Adam
from fastpe.model.model_file import check_sizes
from fastpe.model.parameters import parameter_shapes

DTYPES = ["float32", "float64"]


def assert_agrees_with_the_reference(config, sequences):
    model = Transformer(config)
    x, y = tokens_of(config, sequences)
    slots, parameters = reference_slots(config, config.train_length), in_float64(model)
    exact, tolerance = reference.model_forward(config, parameters, slots, x), step_tolerance(config.dtype)
    logits = model(x)
    assert logits.dtype == config.dtype
    np.testing.assert_allclose(logits, exact, rtol=0, atol=tolerance * max(1, np.abs(exact).max()))
    loss, gradients = model.loss_and_grads(x, y)
    expected, expected_gradients, _ = reference.model_loss_and_grads(config, parameters, slots, x, y)
    assert loss == pytest.approx(expected, rel=tolerance)
    sizes, plain = gradient_sizes(model, x, y), plain_gradients(model, slots, x, y)
    assert_same_gradients(gradients, expected_gradients, sizes, config.dtype, plain)


configs = st.builds(
    ModelConfig,
    encoding=st.sampled_from(["nope", "sinusoidal", "alibi", "sinusoidal+alibi"]),
    heads=st.sampled_from([1, 2, 3]),
    width=st.integers(1, 9).map(lambda k: 6 * k),
    hidden=st.integers(1, 70),
    layers=st.integers(1, 3),
    causal=st.booleans(),
    activation=st.just("gelu"),
    norm=st.sampled_from(["none", "layernorm"]),
    residual=st.booleans(),
    vocabulary=st.sampled_from([2, 3, 15, 16, 17, 65, 100, 256]),
    train_length=st.integers(1, 40),
    seed=st.integers(0, 5),
)


@pytest.mark.parametrize("dtype", DTYPES)
@given(config=configs, sequences=st.integers(1, 9))
def test_logits_loss_and_gradients_agree_with_the_reference(dtype, config, sequences):
    assert_agrees_with_the_reference(replace(config, dtype=dtype), sequences)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", [2, 17, 65, 256, 1000])
@pytest.mark.parametrize(("width", "heads"), [(24, 1), (24, 2), (24, 3), (24, 4), (24, 24), (13, 13), (7, 1), (1, 1)])
def test_every_head_count_odd_widths_and_vocabularies(width, heads, vocabulary, dtype):
    config = replace(SMALL, width=width, heads=heads, vocabulary=vocabulary, norm="none", train_length=11, dtype=dtype)
    assert_agrees_with_the_reference(config, 3)


def test_a_token_that_occurs_often_gets_the_sum_of_all_its_gradients():
    config = replace(SMALL, dtype="float64")
    model = Transformer(config)
    x, y = tokens_of(config)
    x[...] = 5
    gradient = model.loss_and_grads(x, y)[1]["embed.weight"]
    assert np.abs(gradient[5]).min() > 0
    np.testing.assert_array_equal(np.delete(gradient, 5, 0), 0)


@pytest.mark.parametrize("encoding", ["learned", "learned+alibi"])
def test_gradients_of_an_encodings_own_parameters_are_those_of_the_loss(encoding):
    """Central differences of the compiled loss in float64, along random directions; the token table beside them."""
    options = {"alibi.learned": True} if encoding == "learned+alibi" else {}
    config = ModelConfig(
        encoding, options, width=12, heads=3, hidden=7, train_length=9, activation="gelu", vocabulary=5, dtype="float64"
    )
    model = Transformer(config)
    x, y = tokens_of(config, 3)
    _, gradients = model.loss_and_grads(x, y)
    for name in [name for name in gradients if name.startswith(("encoding.", "embed.", "head."))]:
        direction = np.random.default_rng(1).standard_normal(gradients[name].shape)
        losses, kept = [], model.parameters[name].copy()
        for step in (1e-5, -1e-5):
            model.parameters[name][...] = kept + step * direction
            losses.append(model.loss_and_grads(x, y)[0])
        model.parameters[name][...] = kept
        assert (losses[0] - losses[1]) / 2e-5 == pytest.approx((gradients[name] * direction).sum(), rel=1e-6)


def test_ten_losses_of_a_training_run_agree_with_the_reference():
    config = replace(SMALL, dtype="float64")
    model = Transformer(config)
    adam, parameters = Adam(model), in_float64(model)
    first, second = ({name: np.zeros_like(value) for name, value in parameters.items()} for _ in range(2))
    slots = reference_slots(config, config.train_length)
    for step in range(1, 11):
        x, y = tokens_of(config, 8, seed=step)
        loss, gradients, _ = reference.model_loss_and_grads(config, parameters, slots, x, y)
        assert adam.step(x, y) == pytest.approx(loss, rel=1e-9)
        reference.adam_step(parameters, gradients, first, second, step, adam.lr)
    for name in ("embed.weight", "head.weight", "head.bias"):
        np.testing.assert_allclose(model.parameters[name], parameters[name], atol=1e-8)


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, encoding="learned", vocabulary=65)], ids=["small", "learned"])
@pytest.mark.parametrize("sequences", [1, 5, 16, 64])
def test_the_bits_do_not_depend_on_the_number_of_threads(config, sequences):
    results = []
    for threads in (1, 2, 3, 4, 8):
        model = Transformer(config)
        adam = Adam(model)
        x, y = tokens_of(config, sequences)
        losses = [adam.step(x, y, threads=threads) for _ in range(3)]
        results.append((losses, model._layout.flat.tobytes(), model(x, threads=threads).tobytes()))
    assert all(result == results[0] for result in results)


@given(
    length=st.integers(1, 90), width=st.integers(1, 40), heads=st.integers(1, 3), vocabulary=st.integers(2, 70),
    norm=st.sampled_from(["none", "layernorm"]), encoding=st.sampled_from(["nope", "learned", "learned+alibi"]),
)  # fmt: skip
@example(length=300, width=9, heads=1, vocabulary=257, norm="none", encoding="learned")
def test_no_pointer_leaves_its_array(length, width, heads, vocabulary, norm, encoding):
    """Everything that a step writes to is fenced with marks; they stay."""
    options = {"alibi.learned": True} if encoding == "learned+alibi" else {}
    config = ModelConfig(
        encoding, options, width=width * heads, heads=heads, hidden=9, train_length=length, norm=norm,
        vocabulary=vocabulary,
    )  # fmt: skip
    model = Transformer(config)
    x, y = tokens_of(config, 3)
    model(x, threads=2)
    model.loss_and_grads(x, y, threads=2)
    fences = []
    for work in model._kept.values():
        work.workspaces[:, work.workspace.size :] = 77.0
        fences.append(work.workspaces[:, work.workspace.size :])
        work.workspaces[:, : work.workspace.size] = np.nan  # nothing may be read before it is written
        work.gradients[len(x) :] = 77.0
        fences.append(work.gradients[len(x) :])
    model._transposes.flat[...] = np.nan
    logits = model(x, threads=2)
    loss, gradients = model.loss_and_grads(x, y, threads=2)
    assert all((fence == 77.0).all() for fence in fences)
    assert np.isfinite(logits).all()
    assert np.isfinite(loss)
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())
    padding = model._layout.flat.copy()
    for view in model._layout.views_of(padding).values():
        view[...] = 0
    assert not padding.any()  # what lies between the tensors is never written


@pytest.mark.parametrize("dtype", DTYPES)
def test_huge_logits_give_no_nan_and_the_right_loss(dtype):
    config = replace(SMALL, dtype=dtype)
    model = Transformer(config)
    for value in model.parameters.values():
        value *= 1e3
    x, y = tokens_of(config)
    logits = model(x)
    assert np.abs(logits).max() > 1e6
    loss, gradients = model.loss_and_grads(x, y)
    chosen = np.take_along_axis(special.log_softmax(logits.astype(float), -1), y[..., None], -1)
    assert loss == pytest.approx(-chosen.mean(), rel=1e-6)
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())
    onehot = np.eye(config.vocabulary)
    np.testing.assert_allclose(
        gradients["head.bias"],
        (special.softmax(logits.astype(float), -1) - onehot[y]).mean((0, 1)),
        rtol=0,
        atol=1e-6,
    )


# ------------------------------------------------------------------------------------------------------------ symmetry


@pytest.mark.parametrize("encoding", ["nope", "alibi", "sinusoidal"])
def test_a_causal_model_is_blind_to_its_future(encoding):
    model = Transformer(replace(SMALL, encoding=encoding))
    x, _ = tokens_of(model.config)
    changed = x.copy()
    changed[:, 10:] = (x[:, 10:] + 1) % model.config.vocabulary
    np.testing.assert_array_equal(model(changed)[:, :10], model(x)[:, :10])
    assert np.abs(model(changed)[:, 10:] - model(x)[:, 10:]).max(2).min() > 0


def test_the_tokens_names_do_not_matter():
    model = Transformer(replace(SMALL, dtype="float64"))
    x, y = tokens_of(model.config)
    names = np.random.default_rng(3).permutation(model.config.vocabulary)
    renamed = copy.deepcopy(model)
    renamed.parameters["embed.weight"][names] = model.parameters["embed.weight"]
    renamed.parameters["head.weight"][:, names] = model.parameters["head.weight"]
    renamed.parameters["head.bias"][names] = model.parameters["head.bias"]
    np.testing.assert_allclose(renamed(names[x])[..., names], model(x), rtol=0, atol=1e-12)
    assert renamed.loss_and_grads(names[x], names[y])[0] == pytest.approx(model.loss_and_grads(x, y)[0], rel=1e-12)


# ----------------------------------------------------------------------------------------------- parameters and errors


def test_initial_token_table_is_small_and_normal_and_the_rest_as_in_any_model():
    config = replace(SMALL, vocabulary=500)
    parameters = Transformer(config).parameters
    assert {name: value.shape for name, value in parameters.items()} == parameter_shapes(config)
    assert parameter_shapes(config)["embed.weight"] == (500, 32)
    assert "embed.bias" not in parameters
    table = parameters["embed.weight"]
    assert table.mean() == pytest.approx(0, abs=4 * 0.02 / np.sqrt(table.size))
    assert table.std() == pytest.approx(0.02, rel=0.03)
    assert 0.07 < np.abs(table).max() < 0.11  # 3.5 to 5.5 deviations: no uniform distribution
    for name in ("head.weight", "head.bias"):
        assert 0.99 * 32**-0.5 < np.abs(parameters[name]).max() <= 32**-0.5
    scalar = Transformer(replace(config, vocabulary=None)).parameters
    for name in scalar.keys() - {"embed.weight", "embed.bias", "head.weight", "head.bias"}:
        np.testing.assert_array_equal(parameters[name], scalar[name])
    normal = Transformer(replace(config, init="xavier_normal")).parameters["embed.weight"]
    np.testing.assert_array_equal(normal, table)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_model_is_a_model(duplicate):
    model = Transformer(SMALL)
    model.parameters["head.bias"][...] = 3
    other = duplicate(model)
    np.testing.assert_array_equal(other([1, 2]), model([1, 2]))
    other.parameters["head.bias"][...] += 100
    assert np.abs(other([1, 2]) - model([1, 2])).min() > 99


def test_parameters_survive_a_file_whose_sizes_are_checked(tmp_path):
    model, path = Transformer(SMALL), tmp_path / "model.safetensors"
    write_tensors(path, model.parameters, {})
    file = TensorFile(path)
    check_sizes(file, SMALL)
    other = Transformer(replace(SMALL, seed=1))
    for name, tensor in file.read().items():
        other.parameters[name][...] = tensor
    np.testing.assert_array_equal(other([3, 16, 0]), model([3, 16, 0]))
    for wrong in (replace(SMALL, vocabulary=18), replace(SMALL, vocabulary=None)):
        with pytest.raises(DamagedFileError, match="does not match its configuration: embed"):
            check_sizes(file, wrong)


@pytest.mark.parametrize(
    ("x", "error", "says"),
    [
        ([[0, 17]], ValueError, r"x must hold tokens, which are integers in \[0, 17\), but x\[0, 1\] is 17"),
        ([3, 4, -1], ValueError, r"x must hold tokens, which are integers in \[0, 17\), but x\[2\] is -1"),
        (np.array([2**64 - 1], np.uint64), ValueError, r"but x\[0\] is 18446744073709551615"),
        ([[1.0, 2.0]], TypeError, r"x must hold tokens, which are integers in \[0, 17\), not float64"),
        ([True, False], TypeError, r"x must hold tokens, which are integers in \[0, 17\), not bool"),
        (["a"], TypeError, r"x must hold tokens, which are integers in \[0, 17\), not <U1"),
        ([2**70], ValueError, r"x must lie in \[0, 16\], not 1180591620717411303424 at index 0"),
        ([[1], [2, 3]], TypeError, r"x must be an array or a sequence of tokens, which are integers in \[0, 17\): "),
        ([], ValueError, r"x must have the shape .* not \(0,\)"),
        (3, ValueError, r"x must have the shape .* not \(\)"),
        (np.ones((2, 3, 4), int), ValueError, r"x must have the shape .* not \(2, 3, 4\)"),
    ],
)
def test_bad_tokens_get_one_clear_error(x, error, says):
    model = Transformer(SMALL)
    with pytest.raises(error, match=says):
        model(x)
    right = np.zeros(np.shape(x), int) if "is " in says else [0]
    with pytest.raises(error, match=says.replace("x must", "y must").replace(r"x\[", r"y\[")):
        model.loss_and_grads(right, x)


def test_targets_must_have_the_inputs_shape():
    with pytest.raises(ValueError, match=r"y must have the shape of x, \(2, 5\), not \(2, 4\)"):
        Adam(Transformer(SMALL)).step(np.ones((2, 5), int), np.ones((2, 4), int))


def test_any_kind_of_integers_and_views_are_taken():
    model = Transformer(SMALL)
    x, _ = tokens_of(model.config)
    expected = model(x)
    assert expected.shape == (4, 24, 17)
    np.testing.assert_array_equal(model(x[0]), expected[0])
    np.testing.assert_array_equal(model(x.tolist()), expected)
    for kind in (np.int8, np.uint8, np.uint64):
        np.testing.assert_array_equal(model(x.astype(kind)), expected)
    np.testing.assert_array_equal(model(np.repeat(x, 2, 1)[:, ::2]), expected)
    np.testing.assert_array_equal(model(np.asfortranarray(x)), expected)
