"""The two new encodings of Li 2025 agree with quadrature, mpmath and the tables.

The numbers of claims C77 to C119 are stored with the claims, and test_claims.py compares them.
"""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paper_tables import near
from scipy.special import eval_legendre

import fastpe
from fastpe.paper_claims import legendre_encoding as legendre
from fastpe.paper_claims import wavelet_encoding as waves
from fastpe.paper_claims.wavelet_functions import supremum


def table(name, length, train_length=50, **options):
    return fastpe.build(name, length, dim=64, train_length=train_length, dtype="float64", **options)["table"]


def values(found):
    return {name: value.value for name, value in found.items()}


# ---------------------------------------------------------------------------------------------------------------------
# Wavelets


@pytest.mark.parametrize(
    "options",
    [
        {"wavelet": "db2"},
        {"wavelet": "haar"},
        {"layout": "fine"},
        {"functions": "phi+psi"},
        {"scales": 2},
        {"shifts": (-3, 2)},
        {"shifts": (-9,)},
    ],
)
def test_rows_are_zero_from_the_stated_position_on(options):
    end = waves.zero_from(20, 16, **options).value
    alive = fastpe.build("wavelet", 600, dim=16, train_length=20, dtype="float64", **options)["table"].any(axis=1)
    assert not alive[int(end) :].any()
    assert end < 600
    assert end == 0 or alive[int(end) - 1]


def test_rows_that_are_not_normalised_shrink_with_the_length():
    """Table 3, P14."""
    for length, largest, norm in ((50, 1.102053, 0.694403), (400, 0.428512, 0.245509)):
        found = waves.end_difference(table("wavelet", 8 * length, length, normalise="none"), length)
        assert (found["sup"].value, found["norm"].value) == (near(largest), near(norm, 3e-6))


def test_the_bound_of_the_norm_of_the_whole_basis():
    """C98."""
    assert waves.scale_counts(50) == [57, 107, 207, 407, 807, 1607]
    alive = sum(count * 2**j for j, count in enumerate(waves.scale_counts(50)) if j)
    squares = 57 * supremum(psi=False).high ** 2 + alive * supremum().high ** 2
    assert waves.norm_bounds(50)["paper"].value == near(math.sqrt(squares), 1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# Legendre polynomials


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


@given(st.floats(1e-3, 20.0), st.floats(0.0, 1.0))
def test_bend_bounds_the_distance_of_the_map_from_a_line(gamma, u):
    assert abs(math.tanh(gamma * u) - u * math.tanh(gamma)) <= legendre.bend(gamma).value + 1e-15


def test_products_of_polynomials():
    assert legendre.near_orthonormality(2, 0.3)["first_pair"].value == near(math.sqrt(3) / 2, 1e-12)
    with mpmath.workdps(30):
        product = mpmath.quad(lambda x: mpmath.legendre(4, x) * mpmath.legendre(7, x), [0, 0.5, 0.99])
        sizes = [mpmath.quad(lambda x, n=n: mpmath.legendre(n, x) ** 2, [0, 0.5, 0.99]) for n in (4, 7)]
    assert legendre.gram(8)[4, 7] == pytest.approx(float(product / mpmath.sqrt(sizes[0] * sizes[1])), rel=1e-12)


@given(st.integers(0, 60), st.floats(-1.0, 1.0))
def test_taylor_remainder_bounds_legendre_polynomials(degree, x):
    """C115."""
    found = values(legendre.taylor(degree, x))
    assert found["actual"] == pytest.approx(eval_legendre(degree, x), abs=1e-10)
    assert abs(found["actual"] - found["linear"]) <= found["remainder"] * (1 + 1e-9) + 1e-10


def test_growth_of_legendre_polynomials_agrees_with_mpmath():
    assert legendre.growth(63, 3.0)["value"].value == near(float(mpmath.legendre(63, 3)), 1e-12)


def test_where_floats_saturate():
    first = int(legendre.saturation(50, precision="float32").value)
    x = np.tanh(np.arange(first + 1) / 50).astype(np.float32)
    assert x[first] == 1.0 > x[first - 1]
    rows = table("legendre", 2000)
    assert [legendre.near_ones(rows, limit).value for limit in (4.0, 0.8, 1e-3)] == [199.0, 245.0, 413.0]
    assert legendre.near_ones(rows[:100], 1e-3) is None


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
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_single_row():
    assert waves.steps([[1.0]]).tolist() == []
    assert legendre.near_ones([[1.0]], 1e-3).value == 0.0
    assert legendre.degree_step(0, 50)["ratio"] is None
    assert waves.scale_counts(1) == [8]
    assert waves.zero_from(1).value > 0
