"""Biases of the offset: printed values, the shared attention problem, directions, and what lies past training."""

import mpmath
import numpy as np
import pytest
from fixture_attention import results
from through_attention import assert_same_gradients

import fastpe
from fastpe.encodings.bias.alibi import slopes
from fastpe.encodings.bias.t5 import bucket

ONE = np.ones(1)
T5_TABLE = {"table": (0.05 * np.arange(32) - 0.3)[:, None]}
FIRE = {
    "c": [0.1], "multiplier": [1.0], "w1": [1.0, -1.0], "b1": [0.0, 0.5], "w2": [[-2.0], [1.0]], "b2": [0.1],
}  # fmt: skip
NO_EPS = 1e-300

# encoding, parameters, options, causal, S[1,3], S[3,1], P[2,0], O[2,0], O[3,3]
FIXTURE = [
    ("t5", T5_TABLE, {"scaled": True}, False, 0.259662617, -0.871452966, 0.060089989, 0.545035397, 0.695612872),
    ("t5", T5_TABLE, {}, False, -0.080674766, -1.542905932, 0.014258408, 0.596278805, 0.656690070),
    ("alibi", None, {"slope": 0.5}, False, -1.340337383, -1.671452966, 0.046068438, 0.500919030, 0.674239583),
    ("alibi", None, {"slope": 0.5}, True, -1.340337383, -1.671452966, 0.075367846, 0.409781454, 0.674239583),
    ("kerple_log", {"r1": ONE, "r2": ONE}, {}, True, -1.438949672, -1.770065255, 0.071603301, 0.416776741, 0.662217721),
    (
        "kerple_power", {"a": 0.5 * ONE, "p": 1.5 * ONE}, {}, True,
        -1.754550946, -2.085666528, 0.051114069, 0.417911617, 0.676881748,
    ),
    (
        "sandwich", None, {"dbar": 8, "divisors": (1.0,)}, True,
        2.223380365, 1.892264782, 0.049645850, 0.417265377, 0.677439371,
    ),
    (
        "fire", FIRE, {"hidden": 2, "threshold": 2.0, "eps": NO_EPS}, True,
        0.259662617, -1.961288256, 0.021106782, 0.453309755, 0.645775111,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "params", "options", "causal", "printed"),
    [pytest.param(*case[:4], case[4:], id=f"{case[0]}-{i}") for i, case in enumerate(FIXTURE)],
)
def test_the_shared_attention_problem(name, params, options, causal, printed):
    slots = fastpe.build(name, 4, dim=4, causal=causal, params=params, dtype=np.float64, **options)
    np.testing.assert_allclose(results(slots, causal=causal), printed, rtol=0, atol=5.1e-10)


def row(name: str, length: int, params: dict | None = None, **request) -> np.ndarray:
    """The bias of one head at distances 0, 1, ... into the past."""
    bias = fastpe.build(name, length, dim=8, params=params, dtype=np.float64, **request)["bias"]
    return bias[0, length - 1 :: -1]


# ---------------------------------------------------------------------------------------------------------------------
# T5

CAUSAL = "16:16 19:17 21:18 24:19 27:20 31:21 35:22 40:23 46:24 52:25 59:26 67:27 77:28 87:29 99:30 113:31"
BOTH = "8:8 12:9 16:10 23:11 32:12 46:13 64:14 91:15"


@pytest.mark.parametrize(("causal", "printed"), [(True, CAUSAL), (False, BOTH)])
def test_where_t5s_buckets_begin(causal, printed):
    starts = dict(tuple(map(int, pair.split(":"))) for pair in printed.split())
    distances = np.arange(1, 130)
    found = bucket(-distances.astype(float), causal, 32, 128)
    changes = distances[np.flatnonzero(np.diff(found, prepend=0))]
    exact = 15 if causal else 7
    assert changes.tolist() == [*range(1, exact + 1), *starts]
    assert found[changes - 1].tolist() == [*range(1, exact + 1), *starts.values()]


def test_t5s_future_has_buckets_of_its_own_where_no_mask_hides_it():
    future = np.array([0.0, 1, 8, 128, 1e6])
    np.testing.assert_array_equal(bucket(future, False, 32, 128), [0, 17, 24, 31, 31])
    np.testing.assert_array_equal(bucket(future, True, 32, 128), 0)
    assert 16 not in bucket(np.arange(-1000.0, 1001), False, 32, 128)


def test_t5_is_published_without_a_scale_and_clips_past_the_last_bucket():
    slots = fastpe.build("t5", 600, heads=2, train_length=50)
    assert slots["scale"] == 1.0
    assert "scale" not in fastpe.build("t5", 9, scaled=True)
    np.testing.assert_array_equal(slots["bias"][:, : 599 - 90], slots["bias"][:, :1] + np.zeros(599 - 90))


# ---------------------------------------------------------------------------------------------------------------------
# ALiBi without a mask, and beyond its training length


def test_one_sided_heads_are_causal_ones_of_the_past_and_of_the_future():
    rng = np.random.default_rng(3)
    q, k, v = rng.normal(size=(3, 1, 4, 9, 4)).astype(np.float32)
    got = fastpe.attention(q, k, v, **fastpe.build("alibi", 9, heads=4, form="one_sided"))
    past = fastpe.build("alibi", 9, heads=2, causal=True)
    np.testing.assert_allclose(
        got[:, :2], fastpe.attention(q[:, :2], k[:, :2], v[:, :2], causal=True, **past), atol=1e-6
    )
    turned = (x[:, 2:, ::-1] for x in (q, k, v))
    np.testing.assert_allclose(got[:, 2:, ::-1], fastpe.attention(*turned, causal=True, **past), atol=1e-6)


def test_nonsymmetric_alibi_has_a_slope_for_each_side():
    params = {"slope": [1.0, 2.0], "slope_future": [0.5, -3.0]}
    bias = fastpe.build("alibi", 3, heads=2, form="nonsymmetric", learned=True, params=params)["bias"]
    np.testing.assert_array_equal(bias, [[-2, -1, 0, -0.5, -1], [-4, -2, 0, 3, 6]])
    start = fastpe.init("alibi", heads=2, train_length=9, form="nonsymmetric", learned=True)
    np.testing.assert_array_equal([start["slope"], start["slope_future"]], [slopes(2)] * 2)


@pytest.mark.parametrize(
    ("schedule", "factor"), [("constant", 1.0), ("linear", 0.25), ("log", np.log(51) / np.log(201))]
)
def test_schedules_shrink_slopes_past_the_training_length_only(schedule, factor):
    within = row("alibi", 50, train_length=50, slope=0.5, schedule=schedule)
    np.testing.assert_array_equal(within, -0.5 * np.arange(50))
    beyond = row("alibi", 200, train_length=50, slope=0.5, schedule=schedule)
    np.testing.assert_allclose(beyond, -0.5 * factor * np.arange(200), rtol=1e-15)


# ---------------------------------------------------------------------------------------------------------------------
# KERPLE, Sandwich


def test_printed_values_of_kerple():
    log = row("kerple_log", 101, {"r1": ONE, "r2": ONE})
    np.testing.assert_allclose(
        log[[0, 1, 2, 10, 100]], [0, -0.693147181, -1.098612289, -2.397895273, -4.615120517], atol=5.1e-10
    )
    assert row("kerple_log", 11, {"r1": 0.5 * ONE, "r2": 2 * ONE})[10] == pytest.approx(-0.5 * np.log(21), rel=1e-15)
    assert row("kerple_power", 5, {"a": 0.5 * ONE, "p": 1.5 * ONE})[4] == pytest.approx(-4, abs=1e-14)
    alibi = row("alibi", 60, slope=0.25, train_length=20)
    np.testing.assert_allclose(row("kerple_power", 60, {"a": 0.25 * ONE, "p": ONE}, train_length=20), alibi, rtol=1e-15)


@pytest.mark.parametrize(
    ("name", "outside", "held"),
    [
        ("kerple_log", {"r1": [-1.0], "r2": [0.5]}, {"r1": [0.01], "r2": [0.5]}),
        ("kerple_log", {"r1": [0.5], "r2": [0.001]}, {"r1": [0.5], "r2": [0.01]}),
        ("kerple_power", {"a": [0.5], "p": [2.5]}, {"a": [0.5], "p": [2.0]}),
        ("kerple_power", {"a": [-9.0], "p": [0.0]}, {"a": [0.01], "p": [0.01]}),
    ],
)
def test_kerples_clamps(name, outside, held):
    np.testing.assert_array_equal(row(name, 7, outside), row(name, 7, held))
    dbias = {"bias": np.ones((1, 13))}
    for_outside, for_held = (fastpe.pull(name, 7, dbias, params=p, dim=8, dtype=np.float64) for p in (outside, held))
    for key, value in outside.items():
        assert for_held[key] != 0
        assert for_outside[key] == (for_held[key] if value == held[key] else 0)


def test_kerple_log_at_distances_below_the_rounding_of_one():
    """As real positions have them."""
    positions = [0.0, 2e-69, 2.5e-16, 1e-8, 0.125]
    params = {"r1": np.array([1.5]), "r2": np.array([0.25])}
    distances = np.abs(np.subtract.outer(positions, positions))
    with mpmath.workdps(50):
        exact = [[float(-1.5 * mpmath.log1p(mpmath.mpf(d) / 4)) for d in row] for row in distances.tolist()]
    for reference in (False, True):
        request = {"positions": positions, "params": params, "dtype": np.float64, "reference": reference}
        np.testing.assert_allclose(fastpe.build("kerple_log", 5, **request)["scores"][0], exact, rtol=1e-15)


def test_printed_values_of_sandwich():
    got = row("sandwich", 1001, divisors=(1.0,))[[0, 1, 2, 10, 100, 1000]]
    printed = [64, 62.0936838, 57.3818606, 42.8200229, 30.5434547, 10.1777281]
    np.testing.assert_allclose(got, printed, rtol=0, atol=5.1e-8)
    # a sum over t = 1 .. dbar/2, which others have, would lack the first cosine and have one more at the end
    assert got[1] - np.cos(1) + np.cos(1e-4) == pytest.approx(62.5533815, abs=5.1e-8)
    bias = fastpe.build("sandwich", 9, heads=4, dtype=np.float64)["bias"]
    one = fastpe.build("sandwich", 9, divisors=(1.0,), dtype=np.float64)["bias"]
    np.testing.assert_allclose(bias * [[2], [4], [6], [8]], np.tile(one, (4, 1)), rtol=1e-15)


# ---------------------------------------------------------------------------------------------------------------------
# FIRE


def fire_places(length: int, **options) -> np.ndarray:
    """t itself: a network of one unit that passes it on."""
    params = {"c": [0.1], "multiplier": [1.0], "w1": [1.0], "b1": [0.0], "w2": [[1.0]], "b2": [0.0]}
    slots = fastpe.build("fire", length, causal=True, hidden=1, params=params, dtype=np.float64, **options)
    return slots["scores"][0]


def test_printed_places_of_fire():
    t = fire_places(1001, eps=NO_EPS)
    got = [t[10, 0], t[10, 5], t[511, 0], t[1000, 0], t[1000, 500]]
    np.testing.assert_allclose(got, [0.1752547972, 0.1025174844, 0.9995151691, 1, 0.8519443032], rtol=0, atol=5.1e-11)
    assert 0 <= t.min() < t.max() <= 1  # at any length: past training it interpolates
    np.testing.assert_array_less(fire_places(30)[5, :5], t[5, :5])


def test_symmetric_fire_gives_two_tokens_one_score():
    scores = fastpe.build("fire", 6, heads=2, symmetric=True, dtype=np.float64)["scores"]
    np.testing.assert_array_equal(scores, scores.swapaxes(1, 2))  # below L all queries share a divisor


@pytest.mark.parametrize(
    "request_",
    [
        {"causal": True, "positions": [5.0, 0, 7, 2, 9, 1], "threshold": 3.0, "eps": 0.5},
        {"symmetric": True, "threshold": 2.0},
    ],
)
def test_gradients_of_fire_past_its_threshold(request_):
    assert_same_gradients("fire", 6, hidden=3, unseen=("b2",), **request_)


def test_gradients_that_attention_returns_can_be_pulled_as_they_are() -> None:
    """The one of the scale among them, which T5 sets and does not learn."""
    sizes = {"dim": 8, "heads": 2, "dtype": np.float64}
    params, q = fastpe.init("t5", train_length=5, **sizes), np.random.default_rng(0).normal(size=(2, 5, 4))
    slots = fastpe.build("t5", 5, params=params, **sizes)
    found = fastpe.attention_vjp(q, q, q, **slots)[1](q)
    assert "scale" in found
    given = {slot: found[slot] for slot in slots}
    pulled = fastpe.pull("t5", 5, given, params=params, **sizes)["table"]
    np.testing.assert_array_equal(
        pulled, fastpe.pull("t5", 5, {"bias": found["bias"]}, params=params, **sizes)["table"]
    )
