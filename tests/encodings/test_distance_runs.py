"""Biases by runs of distances, where they are long: beside mpmath, plain sums, and the way of given positions."""

import mpmath
import numpy as np
import pytest

import fastpe
from fastpe.encodings.bias.t5 import bucket
from fastpe.encodings.parts.distance_runs import Runs, fill_runs, geometric, most_terms

LENGTH = 2**20 + 5  # two heads of float32 are more than what is written past the caches
FAR = np.unique(np.concatenate([np.arange(70), np.geomspace(70, LENGTH - 1, 300).astype(int)]))
PARAMS = {
    "kerple_log": {"r1": [1.7, 0.3], "r2": [0.011, 1.9]},
    "kerple_power": {"a": [0.03, 0.9], "p": [0.013, 1.71]},
}


def exact(name, first, second, r):
    if name == "kerple_log":
        return -first * mpmath.log(1 + second * r)
    return -first * mpmath.mpf(r) ** second if r else mpmath.mpf(0)


@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 0.52), (np.float64, 4.0)])
@pytest.mark.parametrize("name", PARAMS)
def test_kerple_keeps_its_last_place_at_every_distance(name, dtype, most):
    params = {key: np.array(value, dtype) for key, value in PARAMS[name].items()}
    bias = fastpe.build(name, LENGTH, heads=2, params=params, dtype=dtype)["bias"]
    np.testing.assert_array_equal(bias, bias[:, ::-1])
    with mpmath.workdps(40):
        for h in range(2):
            own = [mpmath.mpf(float(value[h])) for value in params.values()]
            right = [exact(name, *own, int(r)) for r in FAR]
            got = bias[h, LENGTH - 1 + FAR]
            units = [
                float(abs(mpmath.mpf(float(x)) - y) / mpmath.mpf(float(np.spacing(abs(dtype(float(y)))))))
                for x, y in zip(got, right, strict=True)
            ]
            assert max(units) <= most, FAR[np.argmax(units)]


@pytest.mark.parametrize("name", PARAMS)
def test_kerples_gradients_are_sums_over_all_distances(name):
    length = 5001
    first, second = (np.array(value) for value in PARAMS[name].values())
    dbias = np.random.default_rng(5).normal(size=(2, 2 * length - 1))
    params = dict(zip(PARAMS[name], (first, second), strict=True))
    got = fastpe.pull(name, length, {"bias": dbias}, heads=2, params=params, dtype=np.float64)
    r = np.abs(np.arange(1.0 - length, length))
    for h in range(2):
        if name == "kerple_log":
            slopes = -np.log1p(second[h] * r), -first[h] * r / (1 + second[h] * r)
        else:
            power = r ** second[h]
            slopes = -power, -first[h] * power * np.log(np.maximum(r, 1))
        for values, slope in zip(got.values(), slopes, strict=True):
            np.testing.assert_allclose(values[h], (dbias[h] * slope).sum(), rtol=0, atol=1e-14 * np.abs(slope).sum())


def test_every_distance_may_be_a_run_of_its_own():
    levels = np.random.default_rng(7).normal(size=(2, 3, 5000))
    runs = Runs(np.arange(5001), np.zeros(5000), np.zeros(5000, np.int64))
    slot, none = np.empty((3, 9999)), np.zeros((1, 1, 1))
    fill_runs(slot, runs, levels, none, none, none[0])
    np.testing.assert_array_equal(slot, np.concatenate([levels[0, :, ::-1], levels[1, :, 1:]], axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_series_go_on_until_nothing_that_counts_is_left_out(dtype):
    """1 + 2 (u + u^2 + ...), the largest coefficients that runs are made for: one term less would be seen."""
    length = 2**18
    runs, eps = geometric(length, np.dtype(dtype)), np.finfo(dtype).eps
    assert runs.begin[64] == 64
    slot, one = np.empty((1, 2 * length - 1), dtype), np.ones((1, 1, 1))
    rate = 1 / np.maximum(runs.middle, 1)[None, None]
    fill_runs(slot, runs, one, one, rate, np.full((1, most_terms(runs)), 2.0))
    u = np.repeat(rate[0, 0], np.diff(runs.begin)) * (np.arange(length) - np.repeat(runs.middle, np.diff(runs.begin)))
    assert 0.058 < abs(u).max() < 1 / 16
    u = u.astype(np.longdouble)
    left_out = 2 * (2.0**-54 if dtype == np.float64 else 2.0**-28) / (1 - abs(u))
    error = abs(slot[0, length - 1 :] - (1 + 2 * u / (1 - u)))
    # the last rounding, those of u and of the sum, and what is left out
    np.testing.assert_array_less(error, eps / 2 + 2.0**-52 / 4 + left_out)
    np.testing.assert_array_equal(slot, slot[:, ::-1])


@pytest.mark.parametrize("causal", [False, True])
def test_t5s_runs_are_its_buckets(causal):
    length, options = 5003, {"buckets": 64, "max_distance": 4800, "causal": causal}
    table = np.arange(128.0).reshape(64, 2)
    bias = fastpe.build("t5", length, heads=2, params={"table": table}, dtype=np.float64, **options)["bias"]
    found = bucket(np.arange(1.0 - length, length), causal, 64, 4800)
    np.testing.assert_array_equal(bias, table[found].T)
    dbias = np.random.default_rng(6).integers(-9, 9, bias.shape).astype(np.float64)
    got = fastpe.pull("t5", length, {"bias": dbias}, heads=2, params={"table": table}, dtype=np.float64, **options)
    expected = np.zeros_like(table)
    np.add.at(expected, found, dbias.T)
    np.testing.assert_array_equal(got["table"], expected)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("kerple_log", {"r1": [1.7, 0.3], "r2": [0.011, 1.9]}),
        ("t5", {"table": np.arange(64.0).reshape(32, 2)}),
        ("alibi", None),
        ("sandwich", None),
        ("da", {"w": [0.004, -0.2], "v": [1.0, -3.0]}),
    ],
)
def test_long_rows_are_those_of_any_strides_and_of_shorter_ones(name, params):
    """What is written past the caches, line by line, is what is written in any other way."""
    request = {"heads": 2, "params": params, "train_length": 4100}
    (slot, bias), *_ = fastpe.build(name, LENGTH, **request).items()
    apart = np.full((2, 2 * LENGTH, 2), np.nan, np.float32)
    out = {slot: apart[:, : 2 * LENGTH - 1, 1]}
    fastpe.build(name, LENGTH, out=out, **request)
    np.testing.assert_array_equal(out[slot], bias)
    assert np.isnan(apart[:, :, 0]).all()
    assert np.isnan(apart[:, -1]).all()
    short = fastpe.build(name, 4100, **request)[slot]
    np.testing.assert_array_max_ulp(short, bias[:, LENGTH - 4100 : LENGTH + 4099], 1)


@pytest.mark.parametrize("length", [255, 256, 257, 300, 2111, 2112, 2113, 4096])  # pieces and what may lie past them
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("kerple_power", {}),
        ("t5", {"buckets": 1000, "max_distance": 600}),
        ("alibi", {"learned": True, "form": "nonsymmetric"}),
    ],
)
def test_rows_that_are_filled_in_place_end_where_they_end(name, options, length):
    request = {"heads": 2, "train_length": 300, **options}
    params = {
        key: value + 0.1 * np.cos(np.arange(value.size, dtype=value.dtype)).reshape(value.shape)
        for key, value in fastpe.init(name, **request).items()
    }
    apart, guarded = np.empty((2, 2 * length - 1, 2), np.float32), np.full(2 * (2 * length - 1) + 128, 7, np.float32)
    in_place = guarded[64:-64].reshape(2, -1)
    for out in (apart[..., 0], in_place):
        fastpe.build(name, length, params=params, out={"bias": out}, **request)
    np.testing.assert_array_equal(in_place, apart[..., 0])
    np.testing.assert_array_equal(guarded[:64], 7)
    np.testing.assert_array_equal(guarded[-64:], 7)


def test_sandwich_is_the_printed_sum_at_any_distance():
    bias = fastpe.build("sandwich", LENGTH, divisors=(1.0,), dtype=np.float64)["bias"][0, LENGTH - 1 :]
    with mpmath.workdps(40):
        omega = [mpmath.mpf(10000) ** (-mpmath.mpf(t) / 64) for t in range(64)]
        for r in (0, 1, 1000, 65537, LENGTH - 1):
            assert abs(mpmath.mpf(float(bias[r])) - sum(mpmath.cos(r * w) for w in omega)) < 32 * 2**-52 * 64
