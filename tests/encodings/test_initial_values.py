"""What is learned begins with the distribution that its authors gave it."""

import math

import numpy as np
import pytest

import fastpe

SIZES = {"dim": 64, "heads": 8, "train_length": 400, "dtype": np.float64}


def drawn(name: str, parameter: str, options: dict) -> np.ndarray:
    """At least ten thousand numbers, of several seeds if need be."""
    found: list[np.ndarray] = []
    while sum(array.size for array in found) < 10_000:
        found.append(fastpe.init(name, seed=len(found), **{**SIZES, **options})[parameter].ravel())
    return np.concatenate(found)


NORMAL = [
    ("abacus", "table", {}, 1.0),
    ("axial", "axis0", {}, 1.0),
    ("axial", "axis1", {}, 1.0),
    ("comrope", "generators", {"std": 2.0}, 2.0),
    ("conv", "taps", {"kernel": 16}, 0.5 / 4),
    ("crossformer_bias", "w", {"dim": 1024}, 0.02),
    ("crossformer_bias", "w_in", {"dim": 4096}, 0.02),
    ("crossformer_bias", "w_out", {"dim": 4096}, 0.02),
    ("da", "w", {"heads": 64}, 0.1),
    ("deberta", "key", {}, 0.02),
    ("deberta", "query", {}, 0.02),
    ("deberta", "table", {}, 0.02),
    ("factorised_st", "space", {"grid": (4, 10, 10)}, 0.02),
    ("fourier", "frequencies", {"learned": True, "sigma": 3.0, "coordinates": 2}, 3.0),
    ("huang4", "weight", {}, 0.02),
    ("learned", "table", {}, 0.02),
    ("learned_2d", "table", {"grid": (20, 20)}, 0.02),
    ("li_eq5", "table", {}, 0.02),
    ("li_eq5", "vector", {"heads": 1}, 1 / 8),
    ("swin_bias", "table", {"window": (20, 20)}, 0.02),
    ("swinv2_cpb", "w1", {"window": (20, 20)}, 0.02),
    ("swinv2_cpb", "w2", {"window": (20, 20)}, 0.02),
    ("t5", "table", {"buckets": 512}, 1 / 8),
    ("tener", "v", {}, math.sqrt(2 / (8 + 8))),
    ("transformer_xl", "u", {}, 0.02),
    ("transformer_xl", "v", {}, 0.02),
    ("transformer_xl", "weight", {}, 0.02),
    ("tupe", "key", {}, 0.02),
    ("tupe", "position", {}, 0.02),
    ("tupe", "query", {}, 0.02),
    ("tupe", "table", {"buckets": 512}, 0.02),
]


@pytest.mark.parametrize(("name", "parameter", "options", "deviation"), NORMAL)
def test_normal_with_this_deviation(name, parameter, options, deviation):
    values = drawn(name, parameter, options) / deviation
    np.testing.assert_allclose([values.mean(), values.std()], [0, 1], atol=0.04)
    np.testing.assert_allclose(np.mean(values**4), 3, atol=0.3)


UNIFORM = [
    ("clex", "up", {"learned": True, "hidden": 2, "heads": 1}, -(128**-0.5), 128**-0.5),
    ("dynamic_bias", "w_in", {"hidden": 256}, -1.0, 1.0),
    ("dynamic_bias", "w", {}, -0.25, 0.25),
    ("kerple_log", "r1", {}, 0.0, 2.0),
    ("kerple_log", "r2", {}, 0.0, 1.0),
    ("kerple_power", "a", {}, 0.0, 1.0),
    ("kerple_power", "p", {}, 0.0, 2.0),
    ("learned_2d_detr", "column", {}, 0.0, 1.0),
    ("learned_2d_detr", "row", {}, 0.0, 1.0),
    ("liere", "generators", {"coordinates": 3}, 0.0, 2 * math.pi),
    ("rbf_distance", "hidden_weight", {}, -(128**-0.5), 128**-0.5),
    ("rbf_distance", "mu", {}, 0.0, 3.0),
    ("rbf_distance", "out_weight", {}, -(128**-0.5), 128**-0.5),
    ("rbf_distance", "sigma", {}, 0.0, 3.0),
    ("rrwp", "pair_weight", {}, -math.sqrt(6 / (21 + 8)), math.sqrt(6 / (21 + 8))),
    ("rrwp", "weight", {}, -math.sqrt(6 / (21 + 64)), math.sqrt(6 / (21 + 64))),
    ("shaw", "key", {}, -math.sqrt(6 / (33 + 8)), math.sqrt(6 / (33 + 8))),
    ("shaw", "value", {}, -math.sqrt(6 / (33 + 8)), math.sqrt(6 / (33 + 8))),
    ("signnet", "phi_w_in", {}, -1.0, 1.0),
    ("signnet", "phi_w_out", {}, -1 / 8, 1 / 8),
    ("signnet", "rho_w_in", {}, -1 / 8, 1 / 8),
]


@pytest.mark.parametrize(("name", "parameter", "options", "low", "high"), UNIFORM)
def test_uniform_within_these_limits(name, parameter, options, low, high):
    values = (drawn(name, parameter, options) - low) / (high - low)
    assert 0 <= values.min() <= values.max() <= 1
    np.testing.assert_allclose(np.histogram(values, 8, (0, 1))[0] / len(values), 1 / 8, atol=0.02)


@pytest.mark.parametrize(
    ("name", "parameters", "options", "value"),
    [
        ("clex", ("down",), {"learned": True}, 0),
        ("crossformer_bias", ("b_in", "b", "b_out", "norm_bias"), {}, 0),
        ("crossformer_bias", ("norm_weight",), {}, 1),
        ("factorised_st", ("time",), {}, 0),
        ("pope", ("phases",), {}, 0),
        ("rbf_distance", ("bias",), {}, 0),
        ("rbf_distance", ("mul",), {}, 1),
        ("tupe", ("query_bias", "key_bias", "norm_bias"), {}, 0),
        ("tupe", ("norm_weight",), {}, 1),
    ],
)
def test_the_same_number_everywhere(name, parameters, options, value):
    first = fastpe.init(name, **SIZES, **options)
    for parameter in parameters:
        np.testing.assert_array_equal(first[parameter], value)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("axial", "axis0", "axis1"),
        ("deberta", "key", "query"),
        ("graphormer", "zin", "zout"),
        ("li_eq5", "table", "vector"),
        ("rbf_distance", "mu", "sigma"),
        ("rrwp", "weight", "pair_weight"),
        ("shaw", "key", "value"),
        ("tener", "u", "v"),
        ("transformer_xl", "u", "v"),
    ],
)
def test_parameters_and_seeds_have_random_numbers_of_their_own(name, one, other):
    first, second = (fastpe.init(name, seed=seed, **SIZES) for seed in (0, 1))
    ratios = [values.ravel()[-4:-1] / values.ravel()[-1] for values in (first[one], first[other], second[one])]
    assert np.abs(ratios[0] - ratios[1:]).min() > 1e-6
