"""Hermite functions against mpmath, NumPy's polynomials and quadrature, where psi_0 is zero in float64 too."""

import math

import mpmath
import numpy as np
import pytest

import fastpe


def table(length: int, **keywords: object) -> np.ndarray:
    return fastpe.build("hermite", length, **{"dtype": np.float64, "train_length": 50, **keywords})["table"]


def psi(degree: int, x: float) -> mpmath.mpf:
    """H_l(x) e^(-x^2/2) / sqrt(2^l l! sqrt(pi))."""
    x = mpmath.mpf(float(x))
    size = mpmath.sqrt(mpmath.mpf(2) ** degree * mpmath.factorial(degree) * mpmath.sqrt(mpmath.pi))
    return mpmath.hermite(degree, x) * mpmath.exp(-x * x / 2) / size


@pytest.mark.parametrize("dim", [1, 2, 64, 513])
def test_against_numpy_and_mpmath(dim: int) -> None:
    rows, places = table(51, dim=dim), math.sqrt(2 * dim - 1) * (2 * np.arange(51) / 50 - 1)
    few = min(dim, 20)
    sizes = np.sqrt([2.0**n * math.factorial(n) * math.sqrt(math.pi) for n in range(few)])
    right = np.polynomial.hermite.hermvander(places, few - 1) * np.exp(-(places**2)[:, None] / 2) / sizes
    np.testing.assert_allclose(rows[:, :few], right, rtol=1e-11, atol=1e-14)
    with mpmath.workdps(60):
        for i in (0, 3, 24, 25, 50):
            for degree in {0, 1, dim // 2, dim - 1} - {dim}:
                assert abs(psi(degree, places[i]) - rows[i, degree]) < (4 * dim + 16) * 2.0**-52


def test_width_4096_where_the_first_function_is_no_float64() -> None:
    """psi_0(90) is 1e-1759; the recurrence must not start from zero."""
    rows = table(3, dim=4096, train_length=2, span=90.0, start=0)  # x = -90, 0, 90
    assert np.isfinite(rows).all()
    assert rows[2, 0] == 0
    with mpmath.workdps(80):
        for degree in (3000, 3500, 4000, 4095):
            right = psi(degree, 90.0)
            assert abs(rows[2, degree] / right - 1) < 1e-11
            assert rows[0, degree] == rows[2, degree] * (-1) ** degree
        assert abs(psi(4094, 0.0) - rows[1, 4094]) < 4e-14


def test_small_values_have_a_small_relative_error() -> None:
    places = np.array([20.0, 30.0, 37.0])
    rows = table(3, dim=6, positions=(places + 1) / 2, train_length=1, span=1.0)
    with mpmath.workdps(60):
        for row, x in zip(rows, places, strict=True):
            for degree in range(6):
                assert abs(row[degree] / psi(degree, x) - 1) < 1e-14


def test_values_that_grow_out_of_an_underflow_are_right() -> None:
    """psi_0(39.5) is 1e-339; psi_40 is a number again."""
    row = table(1, dim=64, positions=[20.25], train_length=1, span=1.0)[0]
    assert row[0] == 0
    with mpmath.workdps(60):
        for degree in (40, 50, 63):
            assert abs(row[degree] / psi(degree, 39.5) - 1) < 1e-13


def test_beyond_the_training_length_rows_fade() -> None:
    norms = np.linalg.norm(table(200), axis=1)
    assert norms[60] < 1e-14 < norms[55] < 1e-5
    assert norms[100:].max() < 1e-100
    third = np.linalg.norm(table(200, span=math.sqrt(127) / 3), axis=1)
    assert third[:100].min() > 0.48 > 1e-8 > third[120]
    np.testing.assert_allclose(
        norms[10:41], (128 - 127 * (np.arange(10, 41) / 25 - 1) ** 2) ** 0.25 / np.pi**0.5, rtol=0.02
    )
    assert np.isfinite(table(4, start=2.0**26, span=1e300)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_span_is_learned(dtype: type) -> None:
    assert fastpe.init("hermite", train_length=50, dim=25, learned=True)["span"].tolist() == [7.0]
    dtable = np.random.default_rng(2).normal(size=(9, 12)).astype(dtype)
    request = {"train_length": 5, "dim": 12, "dtype": dtype, "learned": True, "scale": 2.0}
    got = fastpe.pull("hermite", 9, {"table": dtable}, params={"span": np.array([2.5], dtype)}, **request)["span"][0]
    with mpmath.workdps(40):
        right = mpmath.diff(
            lambda span: sum(
                2 * float(dtable[p, n]) * mpmath.hermite(n, span * (2 * mpmath.mpf(p) / 5 - 1))
                * mpmath.exp(-((span * (2 * mpmath.mpf(p) / 5 - 1)) ** 2) / 2)
                / mpmath.sqrt(mpmath.mpf(2) ** n * mpmath.factorial(n) * mpmath.sqrt(mpmath.pi))
                for p in range(9)
                for n in range(12)
            ),
            mpmath.mpf(2.5),
        )  # fmt: skip
        assert abs(got / right - 1) < 4 * np.finfo(dtype).eps * 12
