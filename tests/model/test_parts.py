"""Parts of a model, compared with the reference: norms, activations, biases, tied embeddings, dropout."""

from dataclasses import replace

import numpy as np
import pytest
from layer_checks import assert_gradients_are_the_references
from model_cases import assert_same_gradients, in_float64, pair_of, tokens_of

from fastpe import Adam, ModelConfig, Transformer, reference
from fastpe.model.encoding import ModelEncoding

N = 21
BASE = ModelConfig("alibi", width=24, heads=3, layers=2, hidden=20, causal=True, train_length=N)
PARTS = {
    "layernorm": {"norm": "layernorm", "final_norm": True, "activation": "gelu_tanh"},
    "rmsnorm": {"norm": "rmsnorm", "final_norm": True, "activation": "swiglu"},
    "no bias": {"norm": "layernorm", "bias": False},
    "bare": {"bias": False, "residual": False, "activation": "swiglu"},
    "today": {"norm": "rmsnorm", "final_norm": True, "activation": "swiglu", "bias": False, "tied": True},
    "gpt": {"norm": "layernorm", "final_norm": True, "activation": "gelu_tanh", "tied": True, "init_by_depth": True},
    "dropout": {"dropout": 0.3},
    "all": {"norm": "rmsnorm", "final_norm": True, "activation": "swiglu", "bias": False, "tied": True, "dropout": 0.2},
}


def with_parts(name, **more):
    settings = {**PARTS[name], **more}
    if settings.get("tied"):
        settings["vocabulary"] = settings.get("vocabulary") or 17
    return replace(BASE, **settings)


def shaken(model):
    """Norms and biases begin as ones and zeros, which would hide what they are multiplied by."""
    rng = np.random.default_rng(5)
    for name, parameter in model.parameters.items():
        if "norm" in name or name.endswith("bias"):
            parameter += rng.normal(0, 0.3, parameter.shape)
    return model


def of_reference(model, x, y, factors):
    encoding = ModelEncoding(replace(model.config, dtype="float64"))
    parameters, slots = in_float64(model), encoding.reference_slots(x.shape[1], in_float64(model))
    arguments = model.config, parameters, slots, x, y, None, factors
    loss, gradients, _ = reference.model_loss_and_grads(*arguments)
    return loss, gradients, reference.model_gradient_sizes(*arguments)[0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("vocabulary", [None, 17])
@pytest.mark.parametrize("name", PARTS)
def test_loss_and_gradients_are_the_references(name, vocabulary, dtype):
    if vocabulary is None and PARTS[name].get("tied"):
        pytest.skip("tied embeddings are of tokens")
    config = with_parts(name, vocabulary=vocabulary, dtype=dtype)
    model = shaken(Transformer(config))
    x, y = pair_of(config)
    factors = model.dropout_factors(len(x), N, draw=3) if config.dropout else None
    exact, gradients, sizes = of_reference(model, x, y, factors)
    loss, ours = model.loss_and_grads(x, y, draw=3)
    assert loss == pytest.approx(exact, rel=2e-5 if dtype == "float32" else 1e-12)
    assert_same_gradients(ours, gradients, sizes, dtype)
    outputs = reference.model_forward(config, in_float64(model), model.slots(N), x)
    np.testing.assert_allclose(model(x), outputs, rtol=0, atol=1e-5 if dtype == "float32" else 1e-13)


def test_of_a_tied_model_one_table_is_both_ends():
    model = Transformer(with_parts("today"))
    assert "head.weight" not in model.parameters
    assert "head.bias" not in model.parameters
    x = tokens_of(model.config)[0]
    before = model(x)
    model.parameters["embed.weight"][3] = 0
    assert not model(x)[..., 3].any()
    assert before[..., 3].any()


def test_without_biases_there_are_none():
    names = Transformer(with_parts("no bias")).parameters
    assert not [name for name in names if name.endswith(".bias")]


def test_initial_values_by_depth():
    plain, scaled = (Transformer(replace(BASE, layers=8, init_by_depth=on)).parameters for on in (False, True))
    for name, value in plain.items():
        factor = 4 if name.startswith("layers") and name.endswith(".out.weight") else 1
        np.testing.assert_array_equal(scaled[name], value / np.float32(factor), err_msg=name)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tied": True}, "tied needs a vocabulary"),
        ({"final_norm": True}, "final_norm needs a norm"),
        ({"norm": "rms"}, "norm must be none or layernorm or rmsnorm"),
        ({"activation": "gelu_new"}, "activation must be relu or gelu or gelu_tanh or swiglu"),
        ({"dropout": 1.0}, "dropout must lie in"),
        ({"dropout": float("nan")}, "dropout must be finite"),
    ],
)
def test_parts_that_cannot_be_are_named(settings, says):
    with pytest.raises(ValueError, match=rf"^{says}"):
        replace(BASE, **settings)


# ---------------------------------------------------------------------------------------------------------- dropout


def test_as_many_are_dropped_as_the_rate_says():
    model = Transformer(with_parts("dropout", dropout=0.3))
    factors = model.dropout_factors(40, 70)
    assert {name: array.shape for name, array in factors.items()} == {
        "embed": (40, 70, 24),
        **{f"layers.{i}.{part}": (40, 70, 24) for i in range(2) for part in ("attention", "feedforward")},
        **{f"layers.{i}.attention.weights": (40, 3, 70, 70) for i in range(2)},
    }
    for name, array in factors.items():
        assert np.unique(array).tolist() == [0, 1 / 0.7], name
        kept = (array > 0).mean()
        assert abs(kept - 0.7) < 5 * np.sqrt(0.21 / array.size), name


def test_no_two_places_steps_or_seeds_drop_the_same():
    found = set()
    for seed in (0, 1):
        model = Transformer(with_parts("dropout", dropout=0.5, seed=seed))
        for step in (0, 1, 2**40):
            for array in model.dropout_factors(3, N, step).values():
                found |= {own[..., :N, :16].tobytes() for own in array.reshape(-1, *array.shape[-2:])}
    assert len(found) == 2 * 3 * 3 * (1 + 2 * (2 + 3))


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("encoding", ["alibi", "alibi+dape"])
def test_a_test_drops_nothing(encoding):
    config = with_parts("dropout", encoding=encoding, dtype="float64", vocabulary=11)
    model, plain = Transformer(config), Transformer(replace(config, dropout=0.0))
    x, y = pair_of(config)
    np.testing.assert_array_equal(model(x), plain(x))
    assert model.loss(x, y) == plain.loss(x, y) != model.loss_and_grads(x, y)[0]


def test_every_step_drops_anew_and_as_the_gradients_of_that_step():
    config = with_parts("dropout")
    x, y = pair_of(config)
    losses = []
    for step in range(4):
        adam = Adam(Transformer(config))
        adam.steps = step
        losses.append(adam.step(x, y))
    assert len(set(losses)) == 4
    assert losses == [Transformer(config).loss_and_grads(x, y, draw=step)[0] for step in range(4)]


@pytest.mark.parametrize("encoding", ["shaw", "rope+t5", "transformer_xl", "deberta", "da", "alibi+dape"])
def test_weights_are_dropped_whatever_the_score_is_made_of(encoding):
    """Of several tiles, so that they are made again in the backward pass."""
    config = replace(BASE, encoding=encoding, train_length=130, dropout=0.4, dtype="float64", layers=1)
    assert_gradients_are_the_references(config, 130)
