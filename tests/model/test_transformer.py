"""The compiled model against the NumPy reference of the whole step, its symmetries, and its promise of equal bits."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from guards import guarded_allocations
from hypothesis import example, given
from hypothesis import strategies as st
from layer_checks import assert_gradients_are_the_references
from model_cases import (
    DEEP,
    PAPER,
    SMALL,
    assert_agrees_with_the_reference,
    batch_of,
    in_float64,
    pair_of,
    reference_slots,
    tokens_of,
)
from scipy import special

from fastpe import ModelConfig, Transformer, reference
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
    vocabulary=st.none() | st.sampled_from([2, 3, 15, 16, 17, 65, 100, 256]),
    train_length=st.integers(1, 40),
    seed=st.integers(0, 5),
)


@pytest.mark.parametrize("dtype", DTYPES)
@given(config=configs, sequences=st.integers(1, 11), weighted=st.booleans())
def test_outputs_loss_and_gradients_agree_with_the_reference(dtype, config, sequences, weighted):
    assert_agrees_with_the_reference(replace(config, dtype=dtype), sequences, weighted=weighted, plain=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", [2, 17, 65, 256, 1000])
@pytest.mark.parametrize(("width", "heads"), [(24, 1), (24, 2), (24, 3), (24, 4), (24, 24), (13, 13), (7, 1), (1, 1)])
def test_every_head_count_odd_widths_and_vocabularies(width, heads, vocabulary, dtype):
    config = replace(SMALL, width=width, heads=heads, vocabulary=vocabulary, norm="none", train_length=11, dtype=dtype)
    assert_agrees_with_the_reference(config, 3, plain=True)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [95, 96, 97, 128, 129, 225])
def test_gradients_at_the_edges_of_attentions_tiles(n, causal):
    config = ModelConfig("rope+alibi", width=8, hidden=8, heads=2, causal=causal, train_length=n, dtype="float64")
    assert_gradients_are_the_references(config, n)
    model, (x, y) = Transformer(config), batch_of(config, 2)
    exact = reference.model_forward(config, in_float64(model), reference_slots(config, n), x)
    np.testing.assert_allclose(model(x), exact, rtol=1e-11, atol=1e-12)
    assert model.loss(x, y) == pytest.approx(np.square(exact - y).mean(), rel=1e-12)


ALL_PARTS = {"norm": "rmsnorm", "final_norm": True, "activation": "swiglu", "bias": False, "tied": True, "dropout": 0.2}
TRAINED = {
    "paper": (PAPER, {}),
    "deep": (DEEP, {}),
    "learned": (ModelConfig("learned", train_length=21), {}),
    "tokens": (SMALL, {}),
    "tokens, learned": (replace(SMALL, encoding="learned", vocabulary=65), {}),
    "all parts": (replace(SMALL, **ALL_PARTS), {"weight_decay": 0.1, "clip": 0.5}),
}


@pytest.mark.parametrize("given", ["", "weights", "lengths"])
@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("sequences", [1, 5, 16, 64])
def test_the_bits_do_not_depend_on_the_number_of_threads(name, sequences, given):
    config, settings = TRAINED[name]
    x, y = pair_of(config, sequences)
    rng, results = np.random.default_rng(8), []
    own = {"weights": rng.integers(1, 4, y.shape), "lengths": rng.integers(1, config.train_length + 1, sequences)}
    own = {given: own[given]} if given else {}
    for threads in (1, 2, 3, 4, 8):
        model = Transformer(config)
        adam = Adam(model, **settings)
        losses = [adam.step(x, y, threads=threads, **own) for _ in range(3)]
        outputs = model(x, threads=threads).tobytes(), model.loss(x, y, threads=threads, **own)
        results.append((losses, model._layout.flat.tobytes(), *outputs))
    assert all(result == results[0] for result in results)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_length_writes_outside_the_arrays(monkeypatch, dtype):
    """Every N from 1 to 300, guard words around everything that a model allocates; heads, widths and norms rotate."""
    check = guarded_allocations(monkeypatch)
    for length in range(1, 301):
        heads = 1 + length % 12
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


@given(
    length=st.integers(1, 90), width=st.integers(1, 40), heads=st.integers(1, 3), hidden=st.integers(1, 40),
    norm=st.sampled_from(["none", "layernorm"]), activation=st.sampled_from(["relu", "gelu"]),
    encoding=st.sampled_from(["nope", "learned", "learned+alibi"]), vocabulary=st.none() | st.integers(2, 70),
)  # fmt: skip
@example(length=300, width=9, heads=1, hidden=9, norm="none", activation="relu", encoding="learned", vocabulary=257)
def test_no_pointer_leaves_its_array(length, width, heads, hidden, norm, activation, encoding, vocabulary):
    """Everything that a step writes to is fenced with marks; they stay."""
    options = {"alibi.learned": True} if encoding == "learned+alibi" else {}
    config = ModelConfig(
        encoding, options, width=width * heads, heads=heads, hidden=hidden, train_length=length, norm=norm,
        activation=activation, vocabulary=vocabulary,
    )  # fmt: skip
    model = Transformer(config)
    x, y = pair_of(config, 3)
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


# ----------------------------------------------------------------------------------------------------------- symmetries


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


def test_every_array_of_the_model_starts_on_a_cache_line():
    model = Transformer(PAPER)
    for array in (model._layout.flat, model._transposes.flat, simd.aligned_zeros((3, 7), np.float32)):
        assert array.ctypes.data % 64 == 0
