"""Probes of hidden states: known information, splits, refusals, and the states themselves."""

import math
from dataclasses import replace

import numpy as np
import pytest

import fastpe
from fastpe import reference
from fastpe.model.encoding import ModelEncoding
from fastpe.theory import hidden_states
from fastpe.theory.hidden_states import HiddenStates
from fastpe.theory.information import two_point_information
from fastpe.theory.position_readout import CLIP, Moments, Readout, plug_in
from fastpe.theory.probes import probe_model, probe_run, probe_states

CONFIG = fastpe.ModelConfig("nope", width=8, heads=2, hidden=12, layers=2, causal=True, train_length=6)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# ---------------------------------------------------------------------------------------------------- known information


@pytest.mark.parametrize("a", [0.5, 1.0, 2.0])
def test_two_points_in_noise(a):
    """The classifier is the right one here, so that its bound is the information."""
    found = probe_states(np.array([[-a], [a]]) + noise(6000, 2, 1))
    exact = two_point_information(2 * a).value
    assert abs(found.classifier.value - exact) < 1.5 * (found.classifier.high - found.classifier.value)
    assert found.classifier.high - found.classifier.low < 0.05
    assert found.linear.value <= found.classifier.value
    assert found.upper.high == math.log(2)


@pytest.mark.parametrize(("n", "group"), [(12, 1), (12, 3), (20, 5)])
def test_groups_of_positions_without_noise(n, group):
    states = np.eye(n // group)[np.arange(n) // group] + 1e-3 * noise(90, n, n // group)
    found = probe_states(states)
    assert found.classifier.value == pytest.approx(math.log(n / group), abs=1e-3)
    mse = (group**2 - 1) / 12  # within a group the position is not known
    expected = math.log(n) - 0.5 * math.log(2 * math.pi * math.e * (mse + 1 / 12))
    assert found.linear.value == pytest.approx(expected, abs=0.02)
    assert found.linear.inputs["mse"] == pytest.approx(mse, rel=0.03, abs=1e-3)


def test_states_that_say_nothing():
    found = probe_states(noise(300, 10, 40))
    assert found.classifier.value < 1e-3
    assert found.linear.value == 0.0
    assert found.linear.inputs["r2"] < 0.01
    constant = probe_states(np.full((30, 10, 4), 0.1))
    assert (constant.classifier.value, constant.linear.value) == (0.0, 0.0)


def test_many_channels_and_few_sequences_say_nothing_either():
    """In sample the position could be read from so many channels; held out it cannot."""
    found = probe_states(noise(30, 10, 300))
    assert found.classifier.value < 0.02
    assert found.linear.value == 0.0


def test_the_linear_bound_is_below_what_a_normal_position_would_have():
    """-(1/2) ln(1 - R^2) is no bound of a uniform position: it is larger by (1/2) ln(2 pi e / 12)."""
    n = 100
    found = probe_states((np.arange(n) + 3.0 * noise(300, n))[..., None])
    naive = -0.5 * math.log(1 - found.linear.inputs["r2"])
    assert naive - found.linear.value == pytest.approx(0.176485208, abs=0.01)
    # the channel's own information: position in noise of deviation 3, about ln n - h(noise)
    assert found.linear.value < math.log(n) - 0.5 * math.log(2 * math.pi * math.e * 9.0) + 0.05


def test_probes_of_one_position():
    found = probe_states(noise(30, 1, 3))
    assert (found.classifier.value, found.linear.value, found.upper.high) == (0.0, 0.0, 0.0)


# ------------------------------------------------------------------------------------------------ what it is made of


def test_read_outs_in_blocks_are_those_of_least_squares():
    states = noise(50, 7, 3) + np.arange(7.0)[:, None] * [0.0, 1.0, -2.0]
    moments = Moments(states[:11])
    for block in np.array_split(states, 4):
        moments.add(block)
    flat = np.column_stack([np.ones(350), states.reshape(-1, 3)])
    fitted, *_ = np.linalg.lstsq(flat, np.tile(np.arange(7.0), 50), rcond=None)
    np.testing.assert_allclose(Readout(moments).positions(states).ravel(), flat @ fitted, atol=1e-6)


def test_classifier_is_that_of_its_definition():
    states = noise(40, 4, 2) @ [[1.0, 0.5], [0.0, 2.0]] + np.arange(4.0)[:, None]
    moments = Moments(states)
    moments.add(states)
    z = (states - states.mean(axis=(0, 1))) / states.std(axis=(0, 1))
    means = z.mean(axis=0)
    within = np.einsum("spc,spd->cd", z - means, z - means) / 160 + 1e-3 * np.eye(2)
    apart = z[:, :, None] - means
    scores = -0.5 * np.einsum("spqc,cd,spqd->spq", apart, np.linalg.inv(within), apart)
    chances = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    expected = -np.log(np.einsum("spp->sp", chances)).mean(axis=1)
    read = Readout(moments)
    np.testing.assert_allclose(read.losses(states, np.ones(1))[0], expected, rtol=1e-4)
    assert read.losses(1e6 * noise(4, 4, 2), np.array([64.0])).max() <= -math.log(CLIP)


def test_plug_in_estimate_and_its_bias():
    codes = np.tile(np.arange(6) // 2, (10, 1))
    each, bias = plug_in(codes, 3)
    np.testing.assert_allclose(each, math.log(3))
    assert bias == pytest.approx(2 * 5 / (2 * 60))
    # of codes that say nothing it is the bias, on average
    drawn = [plug_in(np.random.default_rng(seed).integers(4, size=(50, 8)), 4) for seed in range(200)]
    means = [each.mean() for each, _ in drawn]
    assert np.mean(means) == pytest.approx(drawn[0][1], rel=0.1)


def test_binned_information_of_a_readout_without_noise():
    found = probe_states((np.arange(8.0) + 0.01 * noise(600, 8))[..., None], bins=8)
    assert found.binned.value == pytest.approx(math.log(8) - 7 * 7 / (2 * 200 * 8), abs=0.05)
    assert found.binned.low < math.log(8) - 0.01 <= found.binned.high
    assert probe_states(noise(30, 8, 1)).binned is None


# --------------------------------------------------------------------------------------------------------- refusals


def test_too_few_sequences_are_refused():
    with pytest.raises(
        ValueError, match="a probe needs at least 30 sequences for fitting, calibration and test, not 29"
    ):
        probe_states(noise(29, 4, 2))
    # (K - 1)(n - 1) / 2m <= 0.05: for 50 positions in 50 bins 481 sequences to test
    with pytest.raises(
        ValueError, match=r"bins=50 needs 1443 sequences: with 480 test sequences its bias is up to 0\.05"
    ):
        probe_states(np.zeros((1440, 50, 1)), bins=50)
    assert probe_states(noise(1443, 50, 1), bins=50).binned is not None


@pytest.mark.parametrize(
    ("call", "kind", "error"),
    [
        (lambda: probe_states(noise(40, 4)), ValueError, r"states must have the shape .*, not \(40, 4\)"),
        (lambda: probe_states(np.full((40, 4, 1), np.nan)), ValueError, "states of layer 0 must be finite"),
        (lambda: probe_states(noise(40, 4, 1), bins=1), ValueError, "bins must be at least 2, not 1"),
        (lambda: probe_model(fastpe.Transformer(CONFIG), noise(30, 6), bins=40), ValueError, "bins=40 needs"),
        (lambda: probe_model(None, noise(40, 4)), TypeError, "model must be a Transformer"),
        (lambda: probe_model(fastpe.Transformer(CONFIG), noise(40)), ValueError, r"x must have the shape .*\(40,\)"),
        (lambda: probe_run("nowhere"), FileNotFoundError, "there is no run folder or model file nowhere"),
        (lambda: probe_run("nowhere", sequences=3), ValueError, "sequences must be at least 30, not 3"),
    ],
)
def test_bad_arguments(call, kind, error):
    with pytest.raises(kind, match=error):
        call()


def test_a_nan_anywhere_is_found():
    states = noise(90, 4, 2)
    for place in (0, 30, 60, 89):  # of sequences for fitting, calibration and test
        states[place, 2, 1] = np.nan
        with pytest.raises(ValueError, match="must be finite"):
            probe_states(states)
        states[place, 2, 1] = 0.0


# ------------------------------------------------------------------------------------------------------ hidden states


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        replace(CONFIG, encoding="sinusoidal+alibi", causal=False, norm="layernorm", final_norm=True),
        replace(CONFIG, encoding="rope", norm="rmsnorm", activation="swiglu", vocabulary=11, tied=True, bias=False),
        replace(CONFIG, encoding="rope,nope", residual=False),
        replace(CONFIG, encoding="sinusoidal", positions="random:20"),
        replace(CONFIG, encoding="conv", activation="gelu"),
        replace(CONFIG, encoding="learned", positions="offset:9", table_scale="rms"),
        replace(CONFIG, encoding="t5", layers=1),
    ],
    ids=lambda config: config.encoding,
)
def test_states_lead_to_the_models_outputs(config):
    """They are checked where they are made; and the reference of the whole model says the same."""
    model = fastpe.Transformer(config)
    x = np.random.default_rng(0).integers(11, size=(3, 6)) if config.vocabulary else noise(3, 6).astype(config.dtype)
    found = HiddenStates(model, 6)(x)
    assert [states.shape for states in found] == [(3, 6, 8)] * (config.layers + 1)
    parameters = {name: array.astype(np.float64) for name, array in model.parameters.items()}
    slots = ModelEncoding(config).reference_slots(6, parameters)
    slots = [{name: slot[:6] if name == "table" else slot for name, slot in own.items()} for own in slots]
    outputs = reference.model_forward(config, parameters, slots, x)
    if config.vocabulary is None and not config.final_norm:
        last = found[-1] @ parameters["head.weight"] + parameters.get("head.bias", 0.0)
        np.testing.assert_allclose(last[..., 0], outputs, atol=1e-12)


def test_states_before_the_first_layer():
    model = fastpe.Transformer(replace(CONFIG, encoding="sinusoidal"))
    x = noise(2, 6).astype(np.float32)
    own = model.parameters
    expected = x[..., None].astype(float) * own["embed.weight"][0] + own["embed.bias"] + model.slots(6)["table"]
    np.testing.assert_allclose(HiddenStates(model, 6)(x)[0], expected, atol=1e-6)


def test_states_that_do_not_lead_there_are_an_error(monkeypatch):
    model = fastpe.Transformer(CONFIG)
    states = HiddenStates(model, 6)
    states._parameters["layers.1.attention.out.weight"] *= 1.5
    with pytest.raises(ArithmeticError, match="the model's outputs differ by"):
        states(noise(2, 6))
    monkeypatch.setattr(hidden_states, "_TEMPORARY", 1e12)
    with pytest.raises(ValueError, match="attention of 6 positions needs"):
        HiddenStates(model, 6)


# ------------------------------------------------------------------------------------------------------------- models


def test_causal_attention_without_an_encoding_has_information_about_position():
    found = probe_model(fastpe.Transformer(CONFIG), noise(600, 6), alike=True)
    assert [each.layer for each in found] == [0, 1, 2]
    assert all(value.value == 0.0 and value.kind == "exact" for value in (found[0].linear, found[0].classifier))
    assert found[0].upper.value == 0.0
    assert found[2].classifier.low > 0.02
    assert found[2].upper.high == math.log(6)


def test_attention_without_a_mask_and_an_encoding_has_no_information_about_position():
    found = probe_model(fastpe.Transformer(replace(CONFIG, causal=False)), noise(300, 6))
    assert found[0].classifier.kind == "estimate"  # nobody said that all inputs are alike
    assert max(each.classifier.low for each in found) == 0.0


def test_states_of_a_model_with_a_table_determine_the_position():
    model = fastpe.Transformer(replace(CONFIG, encoding="sinusoidal"))
    found = probe_model(model, noise(150, 6), alike=True)
    assert [each.classifier.value for each in found] == pytest.approx([math.log(6)] * 3, abs=0.02)


def test_blocks_of_sequences_change_nothing(monkeypatch):
    model, x = fastpe.Transformer(CONFIG), noise(90, 6)
    whole = probe_model(model, x)
    monkeypatch.setattr("fastpe.theory.probes._BLOCK", 700)
    for one, other in zip(whole, probe_model(model, x), strict=True):
        assert one.classifier.value == pytest.approx(other.classifier.value, abs=1e-9)
        assert one.linear.inputs["mse"] == pytest.approx(other.linear.inputs["mse"], rel=1e-9)


@pytest.mark.parametrize(("task", "positions"), [("running_sum", 6), ("reverse", 14)])
def test_a_run_folder_is_probed(tmp_path, task, positions):
    config = fastpe.TrainConfig(
        "alibi", task=task, causal=True, width=8, hidden=8, layers=1, train_length=6, samples=64, epochs=1,
        test_lengths=(6,), test_sequences=4,
    )  # fmt: skip
    fastpe.train(config, out=tmp_path / "run")
    found = probe_run(tmp_path / "run", sequences=60)
    assert len(found) == 2
    assert found[1].upper.value == math.log(positions)
    # tokens differ in their distribution by position: the frame begins with one of its own
    assert (found[0].classifier.value == 0.0) == (task == "running_sum")
    with pytest.raises(ValueError, match="run must be a run folder, because only a folder names the task"):
        probe_run(tmp_path / "run" / "model.safetensors")
