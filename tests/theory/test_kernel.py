"""Kernels, drift, rounding and lags of tables, beside the specification, mpmath and brute force."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from paper_tables import drawn, near, paper_table, shapes
from scipy import linalg
from scipy.spatial.distance import cdist

import fastpe
from fastpe.theory.drift import covering, drift, untrained_share
from fastpe.theory.kernel import kernel, kernel_by_lag, ranks, spectrum, toeplitz_share
from fastpe.theory.lags import _distances, lag_distance, scan_lags
from fastpe.theory.precision import horizon, rounded

WINDOWS = ((50, 100), (100, 200))

# ---------------------------------------------------------------------------------------------------------------------
# The values of the specification, section 3

RANKS = {
    "sinusoidal": (24, 18, 16, 4.229038, 1.513625),
    "wavelet": (49, 49, 49, 44.055091, 24.475968),
    "legendre": (37, 27, 22, 6.280830, 1.863967),
    "fourier": (48, 40, 36, None, None),
    "clamp": (50, 50, 48, None, None),
}


@pytest.mark.parametrize("name", RANKS)
def test_ranks(name):
    found = ranks(paper_table(name), (0, 50))
    for key, value in zip(("float64", "float32", "bfloat16", "effective", "stable"), RANKS[name], strict=True):
        assert value is None or found[key].value == near(value)
    assert found["float64"].value == np.linalg.matrix_rank(paper_table(name)[:50])


DRIFTS = {
    "sinusoidal": ((5.140201, 5.632475), (0.908668, 0.995690), (0.3131108, 0.682984)),
    "wavelet": ((1.414554, 1.414261), (1.414554, 1.414261), (0.927089, 0.994882)),
    "legendre": ((2.578122, 5.542860), (1.638371, 3.522434), (0.671056, 0.948314)),
    "chebyshev": ((7.888891, 8.093590), None, None),
    "learned": ((0.0, 0.0), (0.0, 0.0), None),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_drift(name):
    rows, (radii, relative, shares) = paper_table(name), DRIFTS[name]
    curve = drift(rows, 50)
    assert curve == pytest.approx(cdist(rows[50:], rows[:50]).min(axis=1), rel=1e-12, abs=0.0)
    for place, window in enumerate(WINDOWS):
        found = covering(rows, 50, window)
        assert found["radius"].value == near(radii[place])
        assert curve[found["radius"].inputs["position"] - 50] == near(found["radius"].value, 1e-12)
        assert relative is None or found["relative"].value == near(relative[place], 2e-6)
        assert shares is None or untrained_share(rows, 50, window).value == near(shares[place], 2e-6)


def test_precision_horizon():
    expected = {
        ("sinusoidal", "float32"): (None, 4096), ("sinusoidal", "bfloat16"): (None, 4096),
        ("legendre", "float32"): (616, 640), ("legendre", "bfloat16"): (340, 363),
        ("wavelet", "float32"): (224, 227), ("wavelet", "bfloat16"): (224, 227),
    }  # fmt: skip
    for (name, precision), (first, distinct) in expected.items():
        rows = fastpe.build(name, 4096, dim=64, train_length=50, dtype="float64")["table"]
        found = horizon(rows, precision)
        assert (found["first"] and found["first"].value, found["distinct"].value) == (first, distinct)


def test_a_negative_zero_is_a_zero():
    found = horizon([[0.0], [1.0], [-0.0], [0.0]], "float32")
    assert (found["first"].value, found["distinct"].value) == (2.0, 2.0)


def test_distinct_rows_of_a_long_narrow_table():
    rows = fastpe.build("sinusoidal", 131072, dim=4, dtype="float64")["table"]
    assert horizon(rows, "bfloat16")["distinct"].value == 120768


def test_distances_of_lags_are_certified():
    square = lag_distance(64, 1, squared=True)
    assert square.kind == "certified"
    with mpmath.workdps(40):
        exactly = sum(4 * mpmath.sin(mpmath.mpf(10000) ** (-mpmath.mpf(2 * i) / 64) / 2) ** 2 for i in range(32))
        assert mpmath.mpf(square.low) < exactly < mpmath.mpf(square.high)
        root = lag_distance(64, 1)
        assert mpmath.mpf(root.low) < mpmath.sqrt(exactly) < mpmath.mpf(root.high)
    assert np.nextafter(root.low, 9.0) == root.high == 1.471848048122478
    assert min(lag_distance(64, lag, squared=True).low for lag in range(2, 200)) == near(7.39227599, 1e-9)


def test_lag_scans():
    found = scan_lags(16, 620_000)["nearest"]
    assert (found.value, found.inputs["lag"]) == (near(0.881206604), 615746)
    assert 0.0 < found.high - found.low <= 2.0**-51 * found.high
    for dim, value in ((16, 1.014725339), (32, 1.171623498), (64, 1.471848048), (128, 1.952596320)):
        assert scan_lags(dim, 2000)["nearest"].value == near(value, 1e-9)
        assert scan_lags(dim, 2000)["nearest"].inputs["lag"] == 1
    farthest = scan_lags(64, 310_000)["farthest"]
    assert (farthest.value, farthest.inputs["lag"]) == (near(9.824901, 1e-7), 305083)
    assert farthest.high < 2 * math.sqrt(32)


def test_the_error_of_a_scan_is_bounded():
    rng, beyond_rounding = np.random.default_rng(0), 0
    for where, distances, error in itertools.islice(_distances(6, 2_000_000, 10000.0), 20, 31, 5):
        for place in rng.integers(len(where), size=40):
            exactly = lag_distance(6, int(where[place]))
            gap = max(distances[place] - exactly.low, exactly.high - distances[place])
            assert gap <= error[place]
            beyond_rounding += gap > 50 * 2.0**-52 * distances[place]
    assert beyond_rounding > 20  # so that the part of the bound that grows with the lag is needed


def test_lags_that_float64_cannot_tell_apart():
    """Hundreds are within its error of the largest 2 |sin(k / 2)|: interval arithmetic decides."""
    farthest = scan_lags(2, 2_000_000)["farthest"]
    own = lag_distance(2, farthest.inputs["lag"])
    assert (farthest.low, farthest.high) == (own.low, own.high)
    turns = np.arange(1, 2_000_001) / math.pi
    closest = np.argsort(np.abs(turns - 2 * np.floor(turns / 2) - 1))[:20] + 1
    assert farthest.high == max(lag_distance(2, int(lag)).high for lag in closest)


# ---------------------------------------------------------------------------------------------------------------------
# Beside brute force


@given(shapes)
def test_kernel_against_its_definition(shape):
    rows = drawn(shape)
    n, products = len(rows), rows @ rows.T
    toeplitz = sum(np.diagonal(products, k).mean() * np.eye(n, k=k) for k in range(1 - n, n))
    exactly = np.linalg.norm(products - toeplitz) / np.linalg.norm(products)
    assert toeplitz_share(rows).value == pytest.approx(exactly, rel=1e-9, abs=1e-15)
    assert kernel(rows) == pytest.approx(products)
    assert kernel_by_lag(rows) == pytest.approx(toeplitz[0], rel=1e-12, abs=1e-12 * np.abs(products).max())
    assert (spectrum(rows) ** 2).sum() == pytest.approx(np.trace(products))


def test_kernel_over_several_blocks():
    rows = np.random.default_rng(0).standard_normal((700, 2))
    products = rows @ rows.T
    toeplitz = linalg.toeplitz([np.diagonal(products, k).mean() for k in range(700)])
    exactly = np.linalg.norm(products - toeplitz) / np.linalg.norm(products)
    assert toeplitz_share(rows).value == pytest.approx(exactly, rel=1e-12)


def test_bfloat16_is_the_nearest_of_all_its_numbers():
    every = (np.arange(0x7F80, dtype=np.uint32) << 16).view(np.float32).astype(np.float64)
    rng = np.random.default_rng(0)
    values = np.concatenate([np.exp2(rng.uniform(-136, 127, 4000)), (every[:-1] + every[1:])[::97] / 2, every[::101]])
    after = np.searchsorted(every, values).clip(1, len(every) - 1)
    low, high = every[after - 1], every[after]
    even = np.where((after - 1) % 2 == 0, low, high)
    exactly = np.where(values - low < high - values, low, np.where(high - values < values - low, high, even))
    for sign in (1.0, -1.0):
        assert (rounded(sign * values, "bfloat16") == sign * exactly).all()


# ---------------------------------------------------------------------------------------------------------------------
# What has no meaning, and what is refused


def test_very_large_and_very_small_tables():
    rows = np.random.default_rng(0).standard_normal((9, 3))
    for scale in (1e-140, 1e140):
        assert toeplitz_share(scale * rows).value == near(toeplitz_share(rows).value, 1e-12)


def test_a_single_position():
    row = [[3.0, 4.0]]
    assert (toeplitz_share(row).value, ranks(row)["stable"].value) == (0.0, 1.0)
    assert drift(row, 1).tolist() == []
    assert horizon(row, "float32")["first"] is None


def test_a_table_of_zeros():
    zeros = np.zeros((6, 3))
    assert toeplitz_share(zeros) is None
    assert untrained_share(zeros, 2, (2, 6)) is None
    found = ranks(zeros)
    assert (found["float64"].value, found["effective"], found["stable"], found["condition"]) == (0.0, None, None, None)
    assert covering(zeros, 2, (2, 6))["relative"] is None
    assert horizon(zeros, "bfloat16")["distinct"].value == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: drift([[1.0]], 2), "train_length must be at most the 1 rows of table, not 2"),
        (lambda: horizon([[1.0]], "float16"), "precision must be float64 or float32 or bfloat16, not 'float16'"),
        (lambda: lag_distance(3, 1), "dim must be even"),
        (lambda: scan_lags(4, 0), "lags must be at least 1, not 0"),
        (lambda: scan_lags(4, 10, base=0.5), "base must be at least 1, not 0.5"),
        (lambda: kernel(np.zeros((5000, 1))), "window must hold at most 4096 rows"),
    ],
)
def test_refusals(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
