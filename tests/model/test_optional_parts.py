"""The optional parts of a model, such as grouped key heads, soft caps and norms at other places: their settings,
parameters and initial values, compared with the reference, and in generation."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from layer_checks import (
    assert_documents_are_those_alone,
    assert_packed_sequences_are_those_alone,
    assert_padding_does_not_matter,
    assert_threads_do_not_matter,
    assert_writes_stay_inside,
    assert_written_as_a_whole,
    batch,
)

import fastpe
from fastpe import Adam, ModelConfig, Transformer, reference
from fastpe.model.cost import sequence_flop
from fastpe.model.encoding import ModelEncoding
from fastpe.model.parameters import parameter_shapes
from fastpe.model.scratch import fused_ends
from fastpe.theory.hidden_states import HiddenStates
from fastpe.theory.model_lipschitz import layers_of

N = 20
LONG = 131  # keys form two blocks
BASE = ModelConfig(
    "rope", width=24, heads=4, layers=2, hidden=20, causal=True, train_length=N, norm="rmsnorm", final_norm=True,
    activation="swiglu", bias=False, vocabulary=11,
)  # fmt: skip
BIASED = {"bias": True, "norm": "layernorm", "activation": "gelu"}
PARTS = {
    "grouped keys": {"key_heads": 2},
    "one key head": {"key_heads": 1, **BIASED},
    "grouped keys of numbers": {"key_heads": 2, "vocabulary": None, "norm": "none", "final_norm": False},
    "wide heads": {"head_dim": 10, "key_heads": 2},
    "narrow heads": {"head_dim": 4, "heads": 5, **BIASED},
    "eps": {"norm_eps": 0.1},
    "biases of q, k, v": {"qkv_bias": True},
    "no biases of q, k, v": {**BIASED, "qkv_bias": False},
    "norm by head": {"qk_norm": "head", "norm_eps": 1e-6},
    "norm of all heads": {"qk_norm": "all", "key_heads": 2},
    "parallel": {"parallel": True, **BIASED},
    "parallel without norms": {"parallel": True, "norm": "none", "final_norm": False},
    "norms after": {"norm_placement": "after", "qk_norm": "all"},
    "norms at both": {"norm_placement": "both", **BIASED},
    "scale": {"score_scale": 0.7},
    "cap of logits": {"logit_softcap": 0.5},
    "scaled embeddings": {"embedding_scale": 3.0, "tied": True},
    "scaled embeddings and a table": {"embedding_scale": 3.0, "encoding": "sinusoidal", "key_heads": 2},
    "relu2": {"activation": "relu2"},
    "geglu": {"activation": "geglu"},
    "sinks": {"sinks": True},
    "sinks, grouped keys, windows": {"sinks": True, "key_heads": 2, "sight": "window:5,all", "encoding": "alibi"},
    "two-sided": {"causal": False, "key_heads": 2, "sinks": True, "qk_norm": "head"},
}
MANY = {
    "key_heads": 2, "head_dim": 10, "qk_norm": "head", "norm_placement": "both", "sinks": True, "qkv_bias": True,
    "norm_eps": 1e-6, "score_scale": 0.3, "activation": "geglu",
}  # fmt: skip
PARALLEL = {"key_heads": 2, "parallel": True, "qk_norm": "all", "sinks": True}
WITH_TERMS = {
    "cap of scores": {"score_softcap": 0.5},
    "gemma": {
        **MANY, "score_softcap": 0.5, "logit_softcap": 0.7, "embedding_scale": 4.9, "tied": True, "sinks": False,
    },
    "fox": {"encoding": "rope+fox", "key_heads": 2, "qk_norm": "head"},
    "t5": {"encoding": "t5", "key_heads": 2, "score_softcap": 1.0},
    "shaw": {"encoding": "shaw", "key_heads": 2, "qk_norm": "all"},
    "xpos": {"encoding": "xpos", "key_heads": 2, "head_dim": 8},
    "kerple": {"encoding": "kerple_log", "key_heads": 2, "score_softcap": 0.3, "sinks": True},
    "transformer_xl": {"encoding": "transformer_xl+rope", "key_heads": 2, "sinks": True},
    "cope": {"encoding": "rope+cope", "key_heads": 2},
    "selective_rope": {"encoding": "selective_rope", "qk_norm": "head", "sinks": True},
    "detr": {"encoding": "sincos_2d_detr", "options": {"grid": (4, 5)}, "key_heads": 2, "causal": False},
}  # fmt: skip
"""Models whose kernels have terms of the score, which take minutes to compile."""


def config_of(own, **more):
    return replace(BASE, **{**own, **more})


def shaken(model):
    """Norms, biases, sinks and parameters of encodings begin as ones and zeros, which would hide mistakes."""
    rng = np.random.default_rng(5)
    for name, parameter in model.parameters.items():
        if any(part in name for part in ("norm", "bias", "sinks", "encoding")):
            parameter += rng.normal(0, 0.3, parameter.shape)
    return model


def assert_is_the_references(config):
    """Outputs, loss and gradients; some targets count twice, some not at all."""
    model, rng = shaken(Transformer(config)), np.random.default_rng(3)
    x, y = batch(config, config.train_length, rng, 5)
    weights = rng.integers(0, 3, y.shape)
    encoding = ModelEncoding(replace(config, dtype="float64"))
    parameters = {name: np.array(value, np.float64) for name, value in model.parameters.items()}
    factors = model.dropout_factors(*x.shape) if config.dropout else None
    expected, gradients = encoding.reference_loss_and_grads(parameters, x, y, weights, factors)
    loss, ours = model.loss_and_grads(x, y, weights=weights)
    tolerance = 1e-11 if config.dtype == "float64" else 3e-5
    assert loss == pytest.approx(expected, rel=tolerance)
    assert ours.keys() == gradients.keys() == model.parameters.keys()
    for name, exact in gradients.items():
        np.testing.assert_allclose(
            ours[name], exact, rtol=0, atol=tolerance * (np.abs(exact).max() + 0.1), err_msg=name
        )
    outputs = reference.model_forward(config, parameters, encoding.reference_slots(x.shape[1], parameters), x)
    np.testing.assert_allclose(model(x), outputs, rtol=0, atol=tolerance * (1 + np.abs(outputs).max()))


# ----------------------------------------------------------------------------------------------------------- settings


def test_models_without_optional_parts_are_stored_as_before_and_others_with_these_parts():
    assert BASE.optional_parts == ()
    assert not {"key_heads", "norm_eps", "sinks"} & BASE.to_dict().keys()
    config = replace(BASE, key_heads=2, head_dim=8, norm_eps=1e-6, qkv_bias=True, sinks=True)
    assert config.optional_parts == ("key_heads", "head_dim", "norm_eps", "qkv_bias", "sinks")
    assert (config.head_width, config.key_value_heads, config.has_qkv_bias) == (8, 2, True)
    assert ModelConfig.from_dict(config.to_dict()) == config
    assert replace(BASE, key_heads=4, head_dim=6, norm_eps=1e-5, qkv_bias=False) == BASE
    biased = replace(BASE, bias=True)
    assert replace(biased, qkv_bias=True) == biased != replace(biased, qkv_bias=False)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"key_heads": 3}, "heads must be divisible by key_heads, but 4 is not divisible by 3"),
        ({"key_heads": 0}, "key_heads must be at least 1, not 0"),
        ({"heads": 5}, "width must be divisible by heads, but 24 is not divisible by 5; head_dim sets"),
        ({"head_dim": 0}, "head_dim must be at least 1"),
        ({"norm_eps": 0.0}, "norm_eps must be above 0"),
        ({"norm_placement": "around"}, "norm_placement must be before or after or both"),
        ({"norm_placement": "both", "norm": "none", "final_norm": False}, "norm_placement 'both' needs a norm"),
        ({"norm_placement": "after", "parallel": True}, "parallel needs norm_placement 'before'"),
        ({"parallel": True, "residual": False}, "parallel needs residual=True"),
        ({"parallel": 1.5}, "parallel must be True or False"),
        ({"qk_norm": "heads"}, "qk_norm must be head or all"),
        ({"qkv_bias": 2}, "qkv_bias must be True or False"),
        ({"score_scale": 0.0}, "score_scale must be above 0"),
        ({"score_softcap": -1.0}, "score_softcap must be above 0"),
        ({"logit_softcap": float("inf")}, "logit_softcap must be finite"),
        ({"logit_softcap": 3.0, "vocabulary": None}, "logit_softcap needs a vocabulary"),
        ({"embedding_scale": 3.0, "vocabulary": None}, "embedding_scale needs a vocabulary"),
        *(
            ({name: 1e300}, rf"{name} must be finite in float32, not 1e\+300")
            for name in ("norm_eps", "score_scale", "score_softcap", "logit_softcap", "embedding_scale")
        ),
        *(
            ({name: 1e-50}, f"{name} must be above 0 in float32, not 1e-50")
            for name in ("norm_eps", "score_scale", "score_softcap", "logit_softcap", "embedding_scale")
        ),
        *(
            ({name: 1e-40}, f"{name} must be at least 2.94e-39, for its reciprocal in float32, not 1e-40")
            for name in ("score_softcap", "logit_softcap")
        ),
        ({"logit_softcap": 5e-324, "dtype": "float64"}, "logit_softcap must be at least .*, for its reciprocal in"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_named(settings, says):
    with pytest.raises((ValueError, TypeError), match=rf"^{says}"):
        replace(BASE, **settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"encoding": "learned", "head_dim": 8}, "head_dim=8 cannot be combined with 'learned', which fills 'table'"),
        (
            {"encoding": "rope+fox", "head_dim": 8},
            "head_dim=8 cannot be combined with 'rope.fox', which computes gates",
        ),
        ({"encoding": "rope_mixed", "key_heads": 2}, "key_heads=2 cannot be combined with 'rope_mixed', which fills"),
        (
            {"encoding": "pope", "key_heads": 2},
            "key_heads=2 cannot be combined with 'pope', which fills 'polar' for each",
        ),
        ({"encoding": "path", "key_heads": 2}, "key_heads=2 cannot be combined with 'path', which needs keys for each"),
        ({"encoding": "selective_rope", "key_heads": 2}, "key_heads=2 cannot be combined with 'selective_rope'"),
        ({"encoding": "alibi+dape", "key_heads": 2}, "key_heads=2 cannot be combined with 'alibi.dape'"),
        ({"encoding": "alibi+dape", "sinks": True}, "sinks=True cannot be combined with 'alibi.dape'"),
        ({"encoding": "fox", "sinks": True}, "sinks=True cannot be combined with 'fox', which computes scores"),
        ({"encoding": "fox", "score_softcap": 5.0}, "score_softcap=5.0 cannot be combined with 'fox'"),
        (
            {"encoding": "alibi", "positions": "segments:3", "sinks": True},
            "sinks cannot be combined with positions='segments:3' and 'alibi'",
        ),
        ({"encoding": "path", "score_softcap": 5.0}, "score_softcap=5.0 cannot be combined with 'path'"),
        ({"encoding": "grape_a", "options": {"gate": "both"}, "qk_norm": "head"}, "qk_norm='head' cannot be combined"),
        ({"encoding": "t5", "score_scale": 0.5}, "score_scale cannot be combined with 't5', which sets the scale"),
    ],
    ids=str,
)
def test_combinations_that_need_a_kernel_of_their_own_are_refused_by_name(settings, says):
    with pytest.raises(ValueError, match=rf"^{says}"):
        Transformer(replace(BASE, **settings))


def test_settings_that_float32_does_not_hold_are_settings_of_models_in_float64():
    config = replace(BASE, dtype="float64", embedding_scale=1e300, logit_softcap=1e-50)
    assert (config.embedding_scale, config.logit_softcap) == (1e300, 1e-50)


# --------------------------------------------------------------------------------------------------------- parameters


def test_names_and_shapes_of_parameters():
    shapes = parameter_shapes(config_of({**MANY, "layers": 1, "norm": "layernorm", "bias": True, "qkv_bias": False}))
    assert {name.removeprefix("layers.0."): shape for name, shape in shapes.items() if name.startswith("layers")} == {
        "attention.query.weight": (24, 40), "attention.key.weight": (24, 20), "attention.value.weight": (24, 20),
        "attention.out.weight": (40, 24), "attention.out.bias": (24,), "attention.query_norm.weight": (10,),
        "attention.key_norm.weight": (10,), "attention.sinks": (4,), "feedforward.gate.weight": (24, 20),
        "feedforward.gate.bias": (20,), "feedforward.in.weight": (24, 20), "feedforward.in.bias": (20,),
        "feedforward.out.weight": (20, 24), "feedforward.out.bias": (24,),
        **{f"{norm}.{kind}": (24,) for norm in ("norm1", "norm2", "post_norm1", "post_norm2")
           for kind in ("weight", "bias")},
    }  # fmt: skip
    together = parameter_shapes(config_of({"qk_norm": "all", "key_heads": 2, "norm_placement": "after"}))
    assert together["layers.1.attention.query_norm.weight"] == (24,)
    assert together["layers.1.attention.key_norm.weight"] == (12,)
    assert "layers.1.norm1.weight" not in together
    assert "layers.1.post_norm1.weight" in together


def test_initial_values():
    model = Transformer(config_of(MANY))
    for name, value in model.parameters.items():
        if "norm" in name:
            assert (value == 1).all(), name
        if name.endswith("sinks"):
            assert not value.any()
    key = model.parameters["layers.0.attention.key.weight"]
    assert np.abs(key).max() <= 1 / np.sqrt(24)
    assert key.std() == pytest.approx(1 / np.sqrt(3 * 24), rel=0.1)


def test_a_model_is_saved_shown_and_copied_with_its_parts(tmp_path):
    model = shaken(Transformer(config_of(MANY)))
    model.save(tmp_path / "model.safetensors")
    loaded = fastpe.load(tmp_path / "model.safetensors")
    assert loaded.config == model.config
    for name, value in model.parameters.items():
        np.testing.assert_array_equal(loaded.parameters[name], value, err_msg=name)
    assert "key_heads 2" in repr(model)
    assert copy.deepcopy(model).config == model.config


def test_hidden_states_are_those_of_the_model_and_bounds_are_refused_by_name():
    for own in (MANY, PARALLEL, {"embedding_scale": 2.0, "logit_softcap": 3.0}):
        model = shaken(Transformer(config_of(own)))
        states = HiddenStates(model, 9)(batch(model.config, 9, np.random.default_rng(0))[0])
        assert [each.shape for each in states] == [(3, 9, 24)] * 3  # an error if the head gives other outputs
    with pytest.raises(ValueError, match=r"^model must not have key_heads, parallel, qk_norm, sinks, for which no"):
        layers_of(Transformer(config_of(PARALLEL)), 9)


def test_keys_that_are_shared_are_keys_that_are_repeated():
    grouped = shaken(Transformer(config_of({"key_heads": 2, **BIASED})))
    whole = Transformer(config_of(BIASED))
    for name, value in grouped.parameters.items():
        if ".key." in name or ".value." in name:
            value = np.repeat(value.reshape(*value.shape[:-1], 2, 6), 2, axis=-2).reshape(*value.shape[:-1], 24)
        whole.parameters[name] = value
    x = batch(BASE, N, np.random.default_rng(0))[0]
    np.testing.assert_allclose(grouped(x), whole(x), rtol=0, atol=2e-6)


def test_a_parallel_layer_differs_from_one_in_sequence_unless_one_of_its_parts_is_silent():
    model = shaken(Transformer(config_of({"parallel": True, "layers": 1})))
    x = batch(BASE, N, np.random.default_rng(0))[0]
    whole = model(x)
    parts = []
    for silenced in ("attention", "feedforward"):
        alone = Transformer(model.config)
        alone.parameters.update(model.parameters)
        alone.parameters[f"layers.0.{silenced}.out.weight"] = np.zeros_like(
            alone.parameters[f"layers.0.{silenced}.out.weight"]
        )
        parts.append(alone)
    assert not np.allclose(parts[0](x), whole)
    one_after_the_other = Transformer(replace(model.config, parallel=False))
    one_after_the_other.parameters.update(model.parameters)
    assert np.abs(one_after_the_other(x) - whole).max() > 1e-3
    for part in parts:  # with one of them silent, the order does not matter
        twin = Transformer(replace(model.config, parallel=False))
        twin.parameters.update(part.parameters)
        np.testing.assert_allclose(twin(x), part(x), rtol=0, atol=2e-6)


def test_no_end_is_fused_with_optional_parts_and_the_cost_counts_them():
    numbers = ModelConfig("sinusoidal", heads=4)
    assert set(fused_ends(numbers, 50, ["table"]).values()) == {1}
    assert set(fused_ends(replace(numbers, key_heads=2), 50, ["table"]).values()) == {0}
    whole, grouped = (sequence_flop(config_of(own), N) for own in ({}, {"key_heads": 2}))
    assert whole - grouped == 3 * 2 * N * 2 * (2 * 24 * 12)  # two layers, half of the columns of keys and of values
    assert sequence_flop(config_of({"activation": "geglu"}), N) == whole


# ----------------------------------------------------------------------------------------- compared with the reference


@pytest.mark.parametrize("length", [N, LONG])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("part", PARTS)
def test_outputs_loss_and_gradients_are_the_references(part, dtype, length):
    assert_is_the_references(config_of(PARTS[part], dtype=dtype, train_length=length))


@pytest.mark.parametrize("length", [N, LONG])
@pytest.mark.parametrize("part", WITH_TERMS)
def test_with_terms_of_the_score_outputs_loss_and_gradients_are_the_references(part, length):
    own = WITH_TERMS[part]
    if own.get("options", {}).get("grid") and length == LONG:
        own = {**own, "options": {"grid": (1, LONG)}}
    assert_is_the_references(config_of(own, dtype="float64", train_length=length))


@pytest.mark.full("other kinds of kernels")
@pytest.mark.parametrize("own", [MANY, PARALLEL, WITH_TERMS["gemma"]], ids=["many", "parallel", "gemma"])
def test_with_dropout_gradients_are_the_references(own):
    assert_is_the_references(config_of(own, dtype="float64", dropout=0.3))


@pytest.mark.full("other kinds of kernels")
@pytest.mark.parametrize("own", [MANY, PARALLEL, WITH_TERMS["gemma"]], ids=["many", "parallel", "gemma"])
def test_gradients_are_differences_of_the_loss(own):
    """Central differences of the compiled loss along random directions."""
    model = shaken(Transformer(config_of(own, dtype="float64")))
    x, y = batch(model.config, 9, np.random.default_rng(2))
    gradients = model.loss_and_grads(x, y)[1]
    for name, gradient in gradients.items():
        direction, kept = np.random.default_rng(1).standard_normal(gradient.shape), model.parameters[name].copy()
        losses = []
        for step in (1e-6, -1e-6):
            model.parameters[name] = kept + step * direction
            losses.append(model.loss(x, y))
        model.parameters[name] = kept
        slope = (gradient * direction).sum()
        assert (losses[0] - losses[1]) / 2e-6 == pytest.approx(slope, rel=1e-6, abs=1e-8), name


@pytest.mark.full("other kinds of kernels")
@pytest.mark.parametrize("own", [MANY, PARALLEL], ids=["many", "parallel"])
def test_with_bfloat16_products_the_loss_is_close_and_gradients_point_alike(own):
    """Operands of products are rounded, and nothing else is."""
    config = config_of(own, init="xavier_normal")
    x, y = batch(config, N, np.random.default_rng(2))
    rounded = shaken(Transformer(replace(config, precision="bfloat16"))).loss_and_grads(x, y)
    exact = shaken(Transformer(config)).loss_and_grads(x, y)
    assert rounded[0] == pytest.approx(exact[0], rel=2e-2)
    for name, gradient in exact[1].items():
        found = rounded[1][name]
        assert np.vdot(found, gradient) > 0.98 * np.linalg.norm(found) * np.linalg.norm(gradient), name


# --------------------------------------------------------------------------------------- generation, threads, lengths


@pytest.mark.parametrize("part", PARTS)
def test_generation_with_a_cache_writes_what_generation_without_one_does(part):
    config = config_of(PARTS[part])
    if config.vocabulary and config.causal:
        model = shaken(Transformer(config))
        whole = model.generate([1, 2, 3], 30, temperature=0.0, cache=False)
        np.testing.assert_array_equal(model.generate([1, 2, 3], 30, temperature=0.0), whole)


@pytest.mark.full("other kinds of kernels")
@pytest.mark.parametrize("prompt", [1, 3, 500])
@pytest.mark.parametrize("own", [MANY, PARALLEL, WITH_TERMS["gemma"]], ids=["many", "parallel", "gemma"])
def test_logits_with_a_cache_are_those_without_one(own, prompt):
    assert_written_as_a_whole(shaken(Transformer(config_of(own, dtype="float64"))), prompt, atol=1e-12)


@pytest.mark.parametrize("own", [MANY, PARALLEL], ids=["many", "parallel"])
def test_gradients_do_not_depend_on_threads(own):
    assert_threads_do_not_matter(2, config_of(own))


@pytest.mark.full("compiles kernels for float64")
@pytest.mark.parametrize("own", [MANY, PARALLEL], ids=["many", "parallel"])
def test_sequences_of_several_lengths_are_each_as_if_alone(own):
    numbers = config_of(own, vocabulary=None, dtype="float64")
    assert_padding_does_not_matter(numbers)
    assert_packed_sequences_are_those_alone(numbers)
    assert_documents_are_those_alone(config_of(own, dtype="float64", train_length=60))


@pytest.mark.parametrize("own", [MANY, PARALLEL], ids=["many", "parallel"])
def test_a_step_writes_inside_its_arrays(monkeypatch, own):
    assert_writes_stay_inside(monkeypatch, config_of(own, vocabulary=None))


@pytest.mark.parametrize("own", [{**MANY, "logit_softcap": 5.0}, PARALLEL], ids=["many", "parallel"])
def test_the_loss_falls_and_every_parameter_moves(own):
    model = Transformer(config_of(own))
    optimiser, x = Adam(model, lr=3e-3), batch(model.config, N, np.random.default_rng(0), 8)[0]
    before = {name: value.copy() for name, value in model.parameters.items()}
    losses = [optimiser.step(x, x) for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]
    for name, value in model.parameters.items():
        assert not np.array_equal(value, before[name]), name
