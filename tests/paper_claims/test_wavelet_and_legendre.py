"""The two new encodings of Li 2025: the numbers of claims C77 to C119, beside quadrature, mpmath and the tables."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import eval_legendre

import fastpe
from fastpe.paper_claims import legendre_encoding as legendre
from fastpe.paper_claims import wavelet_encoding as waves
from fastpe.paper_claims.wavelet_functions import supremum
from fastpe.theory.tables import coherence, norms, separation


def table(name, length, train_length=50, **options):
    return fastpe.build(name, length, dim=64, train_length=train_length, dtype="float64", **options)["table"]


def near(value, digits=1e-6):
    return pytest.approx(value, rel=digits, abs=0.0)


def values(found):
    return {name: value.value for name, value in found.items()}


# ---------------------------------------------------------------------------------------------------------------------
# Wavelets


def test_rows_do_not_stay_close_to_the_last_trained_one():
    """C82, C92, C106, C107: unit rows."""
    rows = table("wavelet", 400)
    differences = waves.end_differences(rows, 50)
    expected = {51: 0.419135, 52: 1.480768, 53: 1.627943, 60: 1.448327, 100: 1.414068, 199: 1.410937}
    for position, value in expected.items():
        assert differences[position - 50] == near(value)
    assert waves.end_difference(rows, 50)["sup"].inputs["position"] == 53
    assert (differences[256 - 50 :] == pytest.approx(1.0, rel=1e-14)) is True
    assert waves.steps(rows)[49:52] == near([1.217954, 0.419135, 1.226980])


def test_raw_rows_shrink_and_unit_rows_do_not():
    """Table 3, P14."""
    raw = {
        50: (1.102053, 6.23),
        100: (0.857024, 6.86),
        200: (0.606007, 6.86),
        400: (0.428512, 6.86),
        800: (0.303929, 6.88),
    }
    lengths = {50: 0.694403, 100: 0.491017, 200: 0.347202, 400: 0.245509, 800: 0.173601}
    unit = {50: 1.627943, 100: 1.632384, 200: 1.651645, 400: 1.651645, 800: 1.651817}
    for n, (sup, scaled) in raw.items():
        found = waves.end_difference(table("wavelet", 8 * n, n, normalise="none"), n)
        assert found["sup"].value == near(sup)
        assert found["scaled"].value == pytest.approx(scaled, abs=0.006)
        assert found["norm"].value == near(lengths[n], 3e-6)
        assert waves.end_difference(table("wavelet", 8 * n, n), n)["sup"].value == near(unit[n])


@pytest.mark.parametrize(("wavelet", "end"), [("db4", 256), ("db2", 128), ("haar", 64)])
def test_zero_rows(wavelet, end):
    """C92, C101, C103."""
    assert waves.zero_from(50, wavelet=wavelet).value == end
    alive = table("wavelet", 400, wavelet=wavelet).any(axis=1)
    assert alive[end - 1]
    assert not alive[end:].any()


@pytest.mark.parametrize(
    "options", [{"layout": "fine"}, {"functions": "phi+psi"}, {"scales": 2}, {"shifts": (-3, 2)}, {"shifts": (-9,)}]
)
def test_zero_rows_under_other_options(options):
    end = waves.zero_from(20, 16, **options).value
    alive = fastpe.build("wavelet", 600, dim=16, train_length=20, dtype="float64", **options)["table"].any(axis=1)
    assert not alive[int(end) :].any()
    assert end < 600
    assert end == 0 or alive[int(end) - 1]


def test_the_encoding_as_printed():
    """C88."""
    assert values(waves.literal_reading(50)) == {"first": 1.0, "last": 15.0, "rank": 14.0}
    assert values(waves.literal_reading(50, "phi+psi")) == {"first": 1.0, "last": 15.0, "rank": 15.0}


def test_the_whole_basis():
    """C94, C99, C100."""
    found = values(waves.fine_basis(50))
    assert found["columns"] == 3249
    assert found["least"] == found["most"] == near(8.068685654, 1e-10)
    assert found["most"] == near(math.sqrt(64 * 1.017245128), 1e-9)
    assert found["off_diagonal"] < 1e-14
    assert waves.scale_counts(50) == [57, 107, 207, 407, 807, 1607]
    bounds = values(waves.norm_bounds(50))
    assert (bounds["sum"], bounds["claimed"]) == (1364.0, 250.0)
    assert bounds["order"] == near(98.89417330444886, 1e-12)
    alive = sum(count * 2**j for j, count in enumerate(waves.scale_counts(50)) if j)
    squares = 57 * supremum(psi=False).high ** 2 + alive * supremum().high ** 2
    assert bounds["paper"] == near(math.sqrt(squares), 1e-12)
    assert found["most"] < bounds["paper"]
    assert values(waves.norm_bounds(500))["sum"] == 87380.0
    assert values(waves.norm_bounds(500))["claimed"] == 4000.0


def test_the_columns_that_are_used():
    """C94, C95, C100."""
    raw = norms(table("wavelet", 50, normalise="none"))
    assert (raw["least"].value, raw["most"].value) == (near(0.6568, 1e-4), near(0.9978, 1e-4))
    assert coherence(table("wavelet", 50)).value == near(0.909351)
    assert separation(table("wavelet", 50)).value == near(0.425790)


# ---------------------------------------------------------------------------------------------------------------------
# Legendre polynomials


def test_step_bounds():
    """P9, C118."""
    expected = {
        (64, 1): (0.404521822, 79.313587, 61.531758), (64, 50): (2.592130244, 3965.679368, 3076.587904),
        (8, 1): (0.054134591, 0.432531226, 0.335559236),
    }  # fmt: skip
    for (dim, step), bounds in expected.items():
        found = values(legendre.step_bounds(dim, 50, step))
        assert (found["actual"], found["paper"], found["sharp"]) == near(bounds, 2e-8)
        assert found["trivial"] == 2 * math.sqrt(dim)
    assert legendre.derivative_sum(64).value == 214660992.0
    assert math.sqrt(legendre.derivative_sum(64).value) == near(14651.313662, 1e-10)


@given(st.integers(1, 60), st.integers(1, 500), st.floats(0.0, 1e4), st.floats(0.01, 8.0))
def test_no_step_is_beyond_its_bounds(dim, train_length, step, gamma):
    found = values(legendre.step_bounds(dim, train_length, step, gamma))
    rounding = 1e-12 * math.sqrt(dim) * dim**2
    assert found["actual"] <= min(found["sharp"], found["trivial"]) + rounding
    assert found["sharp"] <= found["paper"] * (1 + 1e-12)
    assert legendre.derivative_sum(dim).value == sum((n * (n + 1)) ** 2 for n in range(dim))


def test_the_sharp_bound_is_attained_in_the_limit():
    """Two channels, large gamma: P_1 alone moves, and tanh is as steep as at N over a short step."""
    found = values(legendre.step_bounds(2, 50, 1e-6, 0.5))
    assert found["actual"] == pytest.approx(found["sharp"], rel=1e-6)


def test_useful_step():
    """C119."""
    found = values(legendre.useful_step(64, 50))
    assert found["trivial"] == pytest.approx(0.2017, abs=5e-5)
    assert found["claimed"] == pytest.approx(0.0015, abs=5e-5)
    assert found["width"] == pytest.approx(4.78, abs=5e-3)


def test_steps_of_one_degree():
    """C116, C117."""
    for degree, ratio in ((1, 1.3088), (3, 2.7101), (5, 926.6)):
        assert legendre.degree_step(degree, 50)["ratio"].value == near(ratio, 5e-5)
    found = values(legendre.degree_step(63, 50))
    assert (found["paper"], found["actual"]) == (near(21.826874, 3e-8), near(0.0386549))
    assert legendre.degree_step(0, 50)["ratio"] is None
    gap = values(legendre.end_gap())
    assert (gap["actual"], gap["paper"]) == near((0.238405844, 0.270670566), 2e-9)
    assert gap["paper"] / gap["actual"] == near(1.135, 5e-4)


def test_the_map_is_not_linear():
    """C110, C111."""
    found = legendre.bend(1.0)
    assert (found.value, found.inputs["u"]) == (near(0.0817415), near(0.533784))
    assert legendre.bend(math.atanh(0.99)).value == near(0.389226)
    assert math.atanh(0.99) == near(2.646652412, 1e-9)


@given(st.floats(1e-3, 20.0), st.floats(0.0, 1.0))
def test_nowhere_is_the_map_farther_from_linear(gamma, u):
    assert abs(math.tanh(gamma * u) - u * math.tanh(gamma)) <= legendre.bend(gamma).value + 1e-15


def test_not_a_basis():
    """C112."""
    found = values(legendre.near_orthonormality(64))
    assert found["first_pair"] == near(math.sqrt(3) / 2, 1e-12)
    assert found["largest"] == near(2.268151)
    assert found["smallest"] < 1e-14
    assert legendre.near_orthonormality(2, 0.3)["first_pair"].value == near(math.sqrt(3) / 2, 1e-12)
    with mpmath.workdps(30):
        product = mpmath.quad(lambda x: mpmath.legendre(4, x) * mpmath.legendre(7, x), [0, 0.5, 0.99])
        sizes = [mpmath.quad(lambda x, n=n: mpmath.legendre(n, x) ** 2, [0, 0.5, 0.99]) for n in (4, 7)]
    assert legendre.gram(8)[4, 7] == pytest.approx(float(product / mpmath.sqrt(sizes[0] * sizes[1])), rel=1e-12)


@given(st.integers(0, 60), st.floats(-1.0, 1.0))
def test_taylor(degree, x):
    """C115."""
    found = values(legendre.taylor(degree, x))
    assert found["actual"] == pytest.approx(eval_legendre(degree, x), abs=1e-10)
    assert abs(found["actual"] - found["linear"]) <= found["remainder"] * (1 + 1e-9) + 1e-10


def test_growth():
    """C78."""
    found = values(legendre.growth(63, 3.0))
    assert found["value"] == near(float(mpmath.legendre(63, 3)), 1e-12)
    assert found["value"] == near(1.22227902960e47, 1e-11)
    assert (found["power"], found["coefficient"]) == (near(1.14456e30, 2e-6), near(6.54309e17, 2e-6))
    assert found["rate"] == near(5.828427, 1e-7)


def test_where_floats_saturate():
    """C85, C86."""
    assert [legendre.saturation(50, precision=name).value for name in ("float64", "float32")] == [950.0, 451.0]
    for precision in ("float32", "bfloat16"):
        first = int(legendre.saturation(50, precision=precision).value)
        x = np.tanh(np.arange(first + 1) / 50).astype(np.float32) if precision == "float32" else None
        assert x is None or (x[first] == 1.0 > x[first - 1])
    rows = table("legendre", 2000)
    assert [legendre.near_ones(rows, limit).value for limit in (4.0, 0.8, 1e-3)] == [199.0, 245.0, 413.0]
    assert legendre.near_ones(rows[:100], 1e-3) is None


def test_the_jump_of_the_clamped_map():
    """C83."""
    rows = table("legendre", 60, map="clamp")
    assert waves.steps(rows)[49] == near(8.034420)
    assert (rows[50:] == 1.0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: waves.end_differences([[1.0], [2.0]], 2), "train_length must be below the 2 rows of table, not 2"),
        (lambda: waves.steps([[math.nan]]), "table must be finite"),
        (lambda: waves.fine_basis(257), "train_length must be at most 256"),
        (lambda: waves.literal_reading(50, "phi"), "functions must be psi or phi[+]psi, not 'phi'"),
        (lambda: waves.zero_from(50, wavelet="db99"), "'db99' is unknown"),
        (lambda: waves.zero_from(50, colour="red"), "colour"),
        (lambda: supremum("bior1.3"), "biorthogonal"),
        (lambda: supremum(level=15), "level must be at most 14, not 15"),
        (lambda: supremum(beta=-1.0), "beta must be at least 0"),
        (lambda: legendre.step_bounds(64, 50, -1.0), "step must be at least 0, not -1.0"),
        (lambda: legendre.step_bounds(64, 50, 1.0, gamma=math.nan), "gamma must be finite, not nan"),
        (lambda: legendre.gram(4, 1.5), "end must be at most 1"),
        (lambda: legendre.taylor(4, 1.5), r"x must lie in \[-1, 1\], not 1.5"),
        (lambda: legendre.growth(4, 0.5), "x must be at least 1, not 0.5"),
        (lambda: legendre.growth(5000, 3.0), "degree must be lower than 5000 at x = 3"),
        (lambda: legendre.saturation(50, precision="half"), "precision must be"),
        (lambda: legendre.near_ones([[1.0]], 0.0), "limit must be above 0"),
    ],
)
def test_refusals(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_single_row():
    assert waves.steps([[1.0]]).tolist() == []
    assert legendre.near_ones([[1.0]], 1e-3).value == 0.0
    assert waves.scale_counts(1) == [8]
    assert waves.zero_from(1).value > 0
