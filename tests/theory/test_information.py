"""Information about positions in tables: bounds, Monte Carlo, precision, Fano."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paper_tables import paper_table as table
from scipy.spatial.distance import cdist

from fastpe.theory.information import (
    Centred,
    fano,
    information_curve,
    position_information,
    two_point_information,
)
from fastpe.theory.precision_information import precision_information
from fastpe.theory.value import certified, estimate


def by_definition(rows, sigma):
    """Both pairwise bounds and the Gaussian one."""
    squares = cdist(rows, rows) ** 2
    lower, upper = (-np.mean(np.log(np.mean(np.exp(-squares / (k * sigma**2)), axis=1))) for k in (8, 2))
    covariance = np.cov(rows.T, bias=True).reshape(rows.shape[1], -1)
    return lower, upper, 0.5 * np.linalg.slogdet(np.eye(rows.shape[1]) + covariance / sigma**2)[1]


@pytest.mark.parametrize(
    ("name", "window", "lower", "upper"),
    [
        ("sinusoidal", (100, 200), 4.159389, 4.594430),
        ("legendre", (0, 50), 3.533186, 3.905582),
        ("wavelet", (50, 100), 3.147443, 3.596205),
    ],
)
def test_bounds_at_equal_loudness(name, window, lower, upper):
    found = position_information(table(name), window=window, draws=2)
    assert found.lower.value == pytest.approx(lower, abs=6e-7)
    assert found.upper.value == pytest.approx(upper, abs=6e-7)
    assert found.most == math.log(window[1] - window[0])
    assert (found.lower.kind, found.lower.high, found.upper.low) == ("certified", None, None)


@pytest.mark.parametrize(
    ("name", "window", "sigma", "expected", "half"),
    [
        ("sinusoidal", (0, 50), None, 3.7295, 0.0116),
        ("legendre", (50, 100), None, 3.1836, 0.0170),
        ("wavelet", (100, 200), None, 2.1216, 0.0153),
        ("learned", (0, 50), 1.0, 0.0112, 0.0032),
    ],
)
def test_estimates_agree_with_those_of_the_specification(name, window, sigma, expected, half):
    """`half`: that of the specification, or ours where it gives none."""
    found = position_information(table(name), sigma=sigma, window=window)
    own = found.estimate
    assert abs(own.value - expected) < 1.5 * math.hypot(half, own.high - own.value)
    assert found.lower.value - (own.high - own.value) < own.value < found.upper.value + (own.value - own.low)


def test_equal_rows_have_no_information():
    for window in ((50, 100), (100, 200)):
        found = position_information(table("learned"), window=window, draws=4)
        assert (found.lower.value, found.estimate.value, found.upper.value) == (0.0, 0.0, 0.0)
    assert position_information([[0.1, 0.7]], draws=4).upper.value == 0.0


@pytest.mark.parametrize(
    ("a", "value", "lower", "upper"),
    [
        (0.5, 0.111421482185, 0.060548, 0.111572),
        (1.0, 0.336830820347, 0.219070, 0.346574),
        (2.0, 0.632720193737, 0.566219, 0.692812),
    ],
)
def test_two_points(a, value, lower, upper):
    assert two_point_information(2.0 * a).value == pytest.approx(value, abs=1e-12)
    assert two_point_information(6.0 * a, 3.0).value == pytest.approx(value, abs=1e-12)
    found = position_information([[-a], [a]], sigma=1.0, draws=4096)
    assert found.lower.value == pytest.approx(lower, abs=6e-7)
    assert found.upper.value == pytest.approx(upper, abs=6e-7)
    half = found.estimate.high - found.estimate.value
    assert abs(found.estimate.value - value) < 1.6 * half


@pytest.mark.parametrize("a", [1.0, 2.0, 3.0, 4.0])
def test_intervals_hold_the_value_also_where_what_is_lost_is_rare(a):
    """Of 80 intervals of 95 % each at least 70 hold it, but for one chance in a thousand."""
    exact = two_point_information(2.0 * a).value
    found = [position_information([[-a], [a]], sigma=1.0, draws=128, seed=seed).estimate for seed in range(80)]
    assert sum(each.low <= exact <= each.high for each in found) >= 70


@given(st.integers(1, 12), st.integers(1, 9), st.floats(0.05, 20.0), st.integers(0, 1000))
def test_bounds_are_those_of_the_definition(n, dim, sigma, seed):
    rows = np.random.default_rng(seed).normal(size=(n, dim)) + 3.0
    found = position_information(rows, sigma=sigma, draws=2)
    lower, pairwise, gaussian = by_definition(rows, sigma)
    assert found.lower.value == pytest.approx(lower, rel=1e-9, abs=1e-12)
    assert found.upper.value == pytest.approx(min(pairwise, gaussian, math.log(n)), rel=1e-9, abs=1e-12)
    assert 0.0 <= found.lower.value <= found.upper.value


def test_long_tables_are_read_in_blocks():
    rows = np.random.default_rng(3).normal(size=(2600, 5)).astype(np.float32)
    found = position_information(rows, sigma=0.4, draws=64)
    lower, pairwise, gaussian = by_definition(rows.astype(np.float64), 0.4)
    assert found.lower.value == pytest.approx(lower, rel=1e-9)
    assert found.upper.value == pytest.approx(min(pairwise, gaussian), rel=1e-9)
    # each draw sees only some positions
    exact = position_information(rows[:250], sigma=0.4, draws=64)
    assert exact.estimate.value < found.estimate.value
    half = found.estimate.high - found.estimate.value
    assert found.lower.value - half < found.estimate.value < found.upper.value + half


def test_the_seed_decides_the_estimate_and_nothing_else():
    rows = table("wavelet")
    found = [position_information(rows, window=(50, 100), draws=64, seed=seed) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    assert found[0].lower == found[2].lower


def test_curve_over_noise():
    rows, sigmas = table("legendre")[:50], [0.05, 0.3, 1.0, 4.0, 100.0]
    curve = information_curve(rows, sigmas)
    for sigma, lower, upper in zip(sigmas, curve.lower, curve.upper, strict=True):
        found = position_information(rows, sigma=sigma, draws=2)
        assert (lower, upper) == pytest.approx((found.lower.value, found.upper.value), rel=1e-12)
    assert (np.diff(curve.lower) < 0).all()
    assert (np.diff(curve.upper) <= 0).all()
    power = Centred(rows).power
    assert curve.upper[-1] == pytest.approx(power / (2 * 100.0**2), rel=1e-3)  # small signals
    assert curve.lower[-1] == pytest.approx(power / (4 * 100.0**2), rel=1e-3)


@pytest.mark.parametrize(("dtype", "bits"), [("float32", 24), ("bfloat16", 8), ("float16", 11)])
def test_rounding_to_a_dtype_leaves_the_information_of_its_bits(dtype, bits):
    rows = np.random.default_rng(0).uniform(0.5, 2.0, size=(3000, 1)).astype(np.float32)
    rows[:8, 0] = 1.0 + np.arange(8) / 256.0  # ties go to the even one
    mantissa, exponent = np.frexp(rows.astype(np.float64))
    _, counts = np.unique(np.rint(mantissa * 2.0**bits) * 2.0 ** (exponent - bits), return_counts=True)
    left = math.log(3000) - float(counts @ np.log(counts)) / 3000
    assert precision_information(rows, dtype).value == pytest.approx(left, rel=1e-12)


def test_zeros_of_both_signs_are_one_number():
    assert precision_information([[0.0], [-0.0]], "float64").value == 0.0
    assert precision_information([[0.0], [-1e-45]], "bfloat16").value == 0.0


def test_the_best_guesser_errs_more_often_than_fanos_bound():
    for sigma in (0.5, 1.0, 3.0):
        rows = np.random.default_rng(1).normal(size=(64, 2))
        least = fano(position_information(rows, sigma=sigma, draws=2).upper, 64)
        draws = np.random.default_rng(2).normal(size=(200, 64, 2))
        guessed = np.linalg.norm(rows[None, :, None] + sigma * draws[:, :, None] - rows, axis=-1).argmin(axis=-1)
        assert least.value < np.mean(guessed != np.arange(64))
        assert (least.kind, least.high) == ("certified", None)
    assert fano(certified("none", high=math.log(64)), 64).value == 0.0
    assert fano(certified("none", high=0.0), 64).value == pytest.approx(1 - math.log(2) / math.log(64))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"table": [1.0]}, r"table must have shape \(positions, channels\), at least \(1, 1\), not \(1,\)"),
        ({"table": [[math.nan]]}, "table must hold finite numbers below 1e"),
        ({"table": [[1e200]]}, "table must hold finite numbers below 1e"),
        ({"table": np.zeros((3, 2)), "window": (1, 4)}, "window must end within the 3 rows of table, not at 4"),
        ({"table": np.zeros((3, 2)), "window": (2, 2)}, "window must hold at least one row"),
        ({"table": np.zeros((3, 2)), "sigma": 0.0}, "sigma must be above 0, not 0.0"),
        ({"table": np.zeros((3, 2)), "snr": math.nan}, "snr must be finite, not nan"),
        ({"table": np.zeros((3, 2)), "draws": 1}, "draws must be at least 2, not 1"),
    ],
)
def test_bad_arguments_of_position_information(arguments, error):
    with pytest.raises(ValueError, match=error):
        position_information(**arguments)


def test_bad_arguments_of_the_others():
    with pytest.raises(
        ValueError, match=r"sigmas must be a one-dimensional array of finite numbers above 0, not \[0.0\]"
    ):
        information_curve(np.zeros((2, 2)), [0.0])
    with pytest.raises(ValueError, match="dtype must be float64 or float32 or bfloat16 or float16, not 'int8'"):
        precision_information(np.zeros((2, 2)), "int8")
    with pytest.raises(ValueError, match="distance must be at least 0"):
        two_point_information(-1.0)
    with pytest.raises(ValueError, match="information must be certified from above, not estimate"):
        fano(estimate(1.0, 0.5, 1.5, "draws"), 4)
    with pytest.raises(ValueError, match="length must be at least 2, not 1"):
        fano(certified("none", high=0.0), 1)
