"""Gegenbauer's polynomials, and Chebyshev's of the second kind, against SciPy, mpmath, each other and quadrature."""

import math

import mpmath
import numpy as np
import pytest
from scipy.special import eval_chebyu, eval_gegenbauer

import fastpe
from fastpe.encodings.parts.polynomials import follows, slopes

POSITIONS = np.array([-3, 0, 0.25, 20, 50, 50.5, 400])
DEGREES = np.arange(200)


def table(name: str, length: int, **keywords: object) -> np.ndarray:
    return fastpe.build(name, length, **{"dtype": np.float64, "train_length": 50, **keywords})["table"]


def place(name: str) -> np.ndarray:
    inside = np.clip(POSITIONS, 0, 50)
    return {
        "tanh": lambda: np.tanh(2 * POSITIONS / 50),
        "clamp": lambda: 2 * inside / 50 - 1,
        "log": lambda: 2 * np.log1p(inside) / math.log(51) - 1,
    }[name]()


@pytest.mark.parametrize("name", ["tanh", "clamp"])
def test_chebyshev_of_the_second_kind_against_scipy(name: str) -> None:
    rows = table("chebyshev", 7, kind=2, map=name, gamma=2.0, positions=POSITIONS, dim=200)
    np.testing.assert_allclose(rows, eval_chebyu(DEGREES, place(name)[:, None]), rtol=0, atol=2e-9)
    np.testing.assert_allclose(rows[-1], DEGREES + 1.0, rtol=1e-8)  # past the training length: 1, 2, ..., C
    scaled = rows * np.sqrt(np.maximum(1 - place(name)[:, None] ** 2, 0))
    assert np.abs(scaled).max() <= 1 + 1e-12
    assert math.isclose(np.linalg.norm(table("chebyshev", 1, kind=2, start=1000, map="clamp")), 299.0652, abs_tol=1e-4)


@pytest.mark.parametrize("alpha", [-0.4, -0.1, 0.5, 1.0, 2.5, 30.0])
@pytest.mark.parametrize("name", ["tanh", "clamp", "log"])
def test_gegenbauer_against_scipy(name: str, alpha: float) -> None:
    rows = table("gegenbauer", 7, alpha=alpha, map=name, gamma=2.0, positions=POSITIONS, dim=200)
    right = eval_gegenbauer(DEGREES, alpha, place(name)[:, None]) / eval_gegenbauer(DEGREES, alpha, 1.0)
    np.testing.assert_allclose(rows, right, rtol=0, atol=2e-10)
    np.testing.assert_allclose(rows[-1], 1, rtol=0, atol=1e-8)
    assert alpha < 0 or np.abs(rows).max() <= 1 + 1e-13


@pytest.mark.parametrize("alpha", [-0.4, 0.3, 1.0, 7.5])
def test_a_high_degree_against_mpmath(alpha: float) -> None:
    rows = table("gegenbauer", 51, alpha=alpha, dim=513, map="clamp")
    with mpmath.workdps(60):
        for i in (0, 3, 24, 49):
            x = mpmath.mpf(float(rows[i, 1]))
            for degree in (2, 255, 512):
                one = mpmath.rf(2 * mpmath.mpf(alpha), degree) / mpmath.factorial(degree)
                assert abs(mpmath.gegenbauer(degree, mpmath.mpf(alpha), x) / one - rows[i, degree]) < 2e-11


def test_members_of_the_family_have_equal_bits() -> None:
    for name in ("tanh", "clamp"):
        request = {"map": name, "dim": 100, "dtype": np.float32}
        for alpha, member in ((0.5, "legendre"), (0.0, "chebyshev")):
            np.testing.assert_array_equal(table("gegenbauer", 80, alpha=alpha, **request), table(member, 80, **request))
    second = table("chebyshev", 80, kind=2, map="clamp", dim=100)
    np.testing.assert_allclose(table("gegenbauer", 80, map="clamp", dim=100) * np.arange(1, 101), second, atol=1e-12)
    assert table("gegenbauer", 3, dim=1).tolist() == [[1.0]] * 3


def test_slopes_at_one_against_mpmath() -> None:
    assert follows(1.0, 1).tolist() == [0.0]
    with mpmath.workdps(30):
        for alpha in (-0.4, 0.0, 0.5, 3.0):
            for degree in range(2, 6):  # at alpha = 0 the limit
                a = mpmath.mpf(alpha) + mpmath.mpf(10) ** -25 * (alpha == 0)
                at_one = mpmath.gegenbauer(degree, a, 1)
                slope = 2 * a * mpmath.gegenbauer(degree - 1, a + 1, 1) / at_one
                assert abs(slope / slopes(alpha, 6)[degree] - 1) < 1e-14
    np.testing.assert_array_equal(slopes(1e300, 5), np.arange(5.0))  # of x^l


@pytest.mark.parametrize(("name", "options"), [
    ("gegenbauer", {"alpha": -0.4}), ("gegenbauer", {"alpha": 0.0}), ("gegenbauer", {"alpha": 4.0}),
    ("chebyshev", {"kind": 1}), ("chebyshev", {"kind": 2}), ("legendre", {}),
])  # fmt: skip
def test_the_gradient_of_gamma_against_mpmath(name: str, options: dict) -> None:
    dtable = np.random.default_rng(4).normal(size=(9, 24))
    request = {"train_length": 5, "dim": 24, "dtype": np.float64, "learned": True, "scale": 0.5, **options}
    got = fastpe.pull(name, 9, {"table": dtable}, params={"gamma": np.array([0.7])}, **request)["gamma"][0]

    def values(x: object) -> list:
        """By the recurrences as printed (DLMF 18.9.1), each divided by its value at 1 where it is Gegenbauer's."""
        if name == "gegenbauer" and options["alpha"]:
            alpha = mpmath.mpf(options["alpha"])
            found = [mpmath.mpf(1), 2 * alpha * x]
            for n in range(2, 24):
                found.append((2 * (n + alpha - 1) * x * found[-1] - (n + 2 * alpha - 2) * found[-2]) / n)
            return [each * mpmath.factorial(n) / mpmath.rf(2 * alpha, n) for n, each in enumerate(found)]
        if name == "legendre":
            return [mpmath.legendre(n, x) for n in range(24)]
        return [mpmath.chebyu(n, x) if options.get("kind") == 2 else mpmath.chebyt(n, x) for n in range(24)]

    def loss(gamma: object) -> object:
        rows = [values(mpmath.tanh(gamma * p / 5)) for p in range(9)]
        return sum(dtable[p, n] * rows[p][n] for p in range(9) for n in range(24)) / 2

    with mpmath.workdps(40):
        assert abs(mpmath.diff(loss, mpmath.mpf(0.7)) / mpmath.mpf(got) - 1) < 1e-12


def test_the_smallest_and_the_largest_alpha() -> None:
    assert np.isfinite(table("gegenbauer", 60, alpha=float(np.nextafter(-0.5, 0)), map="clamp")).all()
    powers = table("legendre", 60)[:, 1:2] ** np.arange(64)
    np.testing.assert_allclose(table("gegenbauer", 60, alpha=1e300), powers, rtol=1e-13, atol=1e-290)
