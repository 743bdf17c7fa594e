"""Learned waves of the time, and under bells: printed values, gradients that others computed, and slopes."""

import mpmath
import numpy as np
import pytest

import fastpe

TIMES = np.array([0.0, 0.25, 1.5])
OWN = {"frequency": np.array([0.7, 1, -2, 0.5]), "phase": np.array([-0.1, 0.1, 0.2, 0.3])}


def slope(name: str, params: dict, key: str, place: int, dtable: np.ndarray, **request: object) -> float:
    """The slope of sum(dtable table) by one parameter, by central differences of the reference."""
    ends = []
    for step in (1e-6, -1e-6):
        moved = {each: value.copy() for each, value in params.items()}
        moved[key][place] += step
        table = fastpe.build(name, len(dtable), params=moved, reference=True, dtype=np.float64, **request)["table"]
        ends.append(float((table * dtable).sum()))
    return (ends[0] - ends[1]) / 2e-6


# ---------------------------------------------------------------------------------------------------------------------
# Time2Vec


def test_printed_time2vec() -> None:
    for reference in (False, True):
        table = fastpe.build(
            "time2vec", 3, dim=4, positions=TIMES, params=OWN, dtype=np.float64, reference=reference
        )["table"]  # fmt: skip
        np.testing.assert_allclose(table[1], [0.075, 0.342897807, -0.295520207, 0.412320782], rtol=0, atol=5.1e-10)


def test_printed_gradients_of_time2vec() -> None:
    dtable = np.cos(4 * np.arange(3.0)[:, None] + np.arange(4.0))
    request = {"dim": 4, "positions": TIMES}
    found = fastpe.pull("time2vec", 3, {"table": dtable}, params=OWN, dtype=np.float64, **request)
    printed = [0.106522982, 1.415209338, 0.175011687]
    np.testing.assert_allclose(found["frequency"][1:], printed, rtol=0, atol=5.1e-10)
    dtable[:, 0] = [1.0, 2.0, 3.0]
    found = fastpe.pull("time2vec", 3, {"table": dtable}, params=OWN, dtype=np.float64, **request)
    np.testing.assert_allclose([found["frequency"][0], found["phase"][0]], [5.0, 6.0], rtol=1e-15)


def test_time2vec_far_from_zero_against_mpmath() -> None:
    positions = np.array([[1e8 + 0.25, -(2.0**26), 1e-9], [3.0, 1e5, 123456.789]])
    params = fastpe.init("time2vec", dim=6, dtype=np.float64, train_length=9)
    assert np.abs(params["frequency"]).max() < 1
    table = fastpe.build("time2vec", 3, dim=6, positions=positions, params=params, dtype=np.float64)["table"]
    with mpmath.workdps(40):
        for b, n, c in np.ndindex(table.shape):
            value = mpmath.mpf(params["frequency"][c]) * mpmath.mpf(positions[b, n]) + mpmath.mpf(params["phase"][c])
            exact = value if c == 0 else mpmath.sin(value)
            assert abs(exact - mpmath.mpf(table[b, n, c])) <= 9 * 2.0**-52 * max(1, abs(exact))


# ---------------------------------------------------------------------------------------------------------------------
# Morlet waves


@pytest.mark.parametrize("reference", [False, True])
def test_printed_waves_under_bells(reference: bool) -> None:
    params = fastpe.init("mope", dim=8, dtype=np.float64, train_length=9)
    table = fastpe.build("mope", 16, dim=8, params=params, dtype=np.float64, reference=reference)["table"]
    printed = [-0.826911242, 0.117873339, -0.222951940, -0.643949996, 0.439056322, 0.048016684, -0.174536083,
               0.016498517]  # fmt: skip
    np.testing.assert_allclose(table[3], printed, rtol=0, atol=5.1e-10)
    np.testing.assert_allclose(table[15, :2], [-0.008439370, 0.007224045], rtol=0, atol=5.1e-10)


def test_gradients_of_free_capped_and_held_waves() -> None:
    params = {
        "log_frequency": np.log([1.0, 4.0, 0.2, 0.3, 2.0]),  # free, capped, held by its width, free, at the least width
        "log_width": np.log([20.0, 7.0, 3.0, 30.0, 1e-4]),
    }
    rng = np.random.default_rng(4)
    dtable = rng.normal(size=(30, 10))
    found = fastpe.pull("mope", 30, {"table": dtable}, dim=10, params=params, dtype=np.float64)
    for key, value in params.items():
        for t in range(len(value)):
            expected = slope("mope", params, key, t, dtable, dim=10)
            np.testing.assert_allclose(found[key][t], expected, rtol=0, atol=1e-7)
    assert (found["log_frequency"] == 0).tolist() == [False, True, True, False, True]
    assert (found["log_width"] == 0).tolist() == [False, False, False, False, True]


def test_bells_far_down_keep_their_digits() -> None:
    params = {"log_frequency": np.log([1.0]), "log_width": np.log([5.5])}
    positions = [180.25, -200.0, 0.1, 4000.0]
    table = fastpe.build("mope", 4, dim=2, positions=positions, params=params, dtype=np.float64)["table"]
    width, frequency = (np.exp(params[key][0]) for key in ("log_width", "log_frequency"))
    with mpmath.workdps(40):
        divisor = mpmath.mpf(float(2 * width * width + 1e-8))
        for row, p in zip(table, map(mpmath.mpf, positions), strict=True):
            bell = mpmath.exp(-p * p / divisor)
            cosine, sine = (f(p * mpmath.mpf(float(frequency))) for f in (mpmath.cos, mpmath.sin))
            for got, exact in zip(row, (cosine * bell, sine * bell), strict=True):
                assert abs(mpmath.mpf(float(got)) - exact) <= 8 * 2.0**-52 * bell + 1e-320
    wide = {"log_frequency": np.log([0.5]), "log_width": np.array([900.0])}
    table = fastpe.build("mope", 9, dim=2, params=wide, dtype=np.float64)["table"]
    np.testing.assert_allclose(table[:, 0], np.cos(0.5 * np.arange(9)), rtol=0, atol=1e-15)
