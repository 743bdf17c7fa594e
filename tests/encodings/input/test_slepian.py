"""Slepian sequences against SciPy, the sinc kernel in mpmath, and what the page says of energy beyond."""

import mpmath
import numpy as np
import pytest
from scipy.signal.windows import dpss

import fastpe
from fastpe.encodings.input import slepian
from fastpe.encodings.parts.tridiagonal import largest_eigenvectors


def table(length: int, **keywords: object) -> np.ndarray:
    return fastpe.build("slepian", length, **{"dtype": np.float64, **keywords})["table"]


@pytest.mark.parametrize(
    ("length", "product"), [(50, 12.5), (50, 3.0), (7, 1.75), (64, 20.2), (512, 32.0), (129, 64.0), (1024, 2.5)]
)
def test_against_scipy(length: int, product: float) -> None:
    count = int(2 * product)
    rows = table(length, dim=count + 3, time_bandwidth=product)
    right = np.sqrt(length) * dpss(length, product, count).T
    np.testing.assert_allclose(rows[:, :count], right, rtol=0, atol=2e-14 * length)
    assert not rows[:, count:].any()
    np.testing.assert_allclose(rows.T @ rows / length, np.diag([1.0] * count + [0.0] * 3), atol=1e-14 * length)


@pytest.mark.full("takes seconds")
def test_of_very_many_positions() -> None:
    """All eigenvalues would take hours; what is lost is the rounding of N^2 entries over gaps of about one."""
    rows = table(2**18, dim=2, time_bandwidth=1.0)
    np.testing.assert_allclose(rows, 2**9 * dpss(2**18, 1.0, 2).T, rtol=0, atol=3e-6)


def test_against_eigenvectors_of_the_kernel_in_mpmath() -> None:
    """The definition, without the tridiagonal matrix: the kernel and its continuation in 50 digits."""
    length, product = 12, 2.5
    rows = table(3 * length, dim=5, train_length=length, time_bandwidth=product, start=-length)
    with mpmath.workdps(50):
        width = mpmath.mpf(product / length)
        wave = lambda t: mpmath.sin(2 * mpmath.pi * width * t) / (mpmath.pi * t) if t else 2 * width  # noqa: E731
        kernel = mpmath.matrix(length, length)
        for p in range(length):
            for m in range(length):
                kernel[p, m] = wave(mpmath.mpf(p - m))
        values, vectors = mpmath.eigsy(kernel)
        for k in range(5):
            own = vectors[:, length - 1 - k]
            largest = int(np.argmax(np.abs(rows[length : 2 * length, k])))
            if own[largest] * rows[length + largest, k] < 0:
                own = -own
            for p in range(-length, 2 * length):
                right = sum(wave(mpmath.mpf(p - m)) * own[m] for m in range(length)) / values[length - 1 - k]
                assert abs(rows[p + length, k] - mpmath.sqrt(length) * right) < 1e-13


def test_no_sequence_in_use_has_more_energy_beyond_than_within() -> None:
    for length in (1, 2, 3, 5, 8, 13, 40, 64, 150):
        for product in {*np.arange(1, length + 1) / 2, *np.linspace(0.5, max(0.5, length / 2), 19)}:
            concentration = slepian._sequences(length, float(product), int(2 * product))[1]
            assert 0.5 < concentration.min() <= concentration.max() < 1 + 1e-12


def test_positions_next_to_whole_ones_have_nearly_their_rows() -> None:
    near = table(3, dim=3, train_length=32, time_bandwidth=4.0, positions=[5, 5 + 1e-9, 5 - 1e-9])
    np.testing.assert_allclose(near, near[:1] * np.ones((3, 1)), atol=1e-7)


def test_without_limits_of_frequency_nothing_is_beyond() -> None:
    rows = table(150, dim=64, train_length=50, time_bandwidth=25.0, start=-50)
    np.testing.assert_allclose(rows[50:100, :50] @ rows[50:100, :50].T, 50 * np.eye(50), atol=1e-11)
    assert not rows[:50].any()
    assert not rows[100:].any()


def test_defaults() -> None:
    """As many sequences as there is room for at four positions to the fastest wave."""
    for length, dim, count in ((50, 64, 25), (512, 64, 64), (200, 7, 7), (1, 8, 1), (2, 8, 1), (3, 1, 1)):
        columns = table(length, dim=dim).any(axis=0)
        assert columns.tolist() == [True] * count + [False] * (dim - count)
    np.testing.assert_allclose(np.linalg.norm(table(50), axis=1), 5, rtol=1e-12)  # at W = 1/4 all rows, sqrt(N/2)
    beyond = np.linalg.norm(table(200, train_length=50), axis=1)[[50, 60, 99, 199]]
    np.testing.assert_allclose(beyond, [2.4606411, 0.46240127, 0.14814801, 0.06143273], rtol=0, atol=5.1e-8)


def test_positions_far_away_keep_their_phase() -> None:
    length, product, place = 16, 3.3, 2.0**26 + 0.25
    row = table(1, dim=6, train_length=length, time_bandwidth=product, positions=[place])[0]
    known = table(length, dim=6, time_bandwidth=product)
    with mpmath.workdps(40):
        width = mpmath.mpf(product / length)
        kernel = [mpmath.sin(2 * mpmath.pi * width * (place - m)) / (mpmath.pi * (place - m)) for m in range(length)]
        inside = [[2 * width if p == m else mpmath.sin(2 * mpmath.pi * width * (p - m)) / (mpmath.pi * (p - m))
                   for m in range(length)] for p in range(length)]  # fmt: skip
        for k in range(6):
            own = [mpmath.mpf(value) for value in known[:, k]]
            concentration = sum(own[p] * inside[p][m] * own[m] for p in range(length) for m in range(length)) / length
            right = sum(a * b for a, b in zip(kernel, own, strict=True)) / concentration
            assert abs(row[k] - right) < 1e-13 * np.abs(row).max()


@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_eigenvectors_of_any_tridiagonal_matrix_with_gaps(length: int) -> None:
    rng = np.random.default_rng(length)
    diagonal, beside = np.arange(length) * 3.0 + rng.uniform(size=length), rng.uniform(size=length - 1)
    matrix = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    vectors = largest_eigenvectors(diagonal, beside, length)
    values = np.diag(vectors.T @ matrix @ vectors)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix)[::-1], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=2e-13)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(length), atol=1e-13)


def test_a_pivot_that_is_zero_is_no_end() -> None:
    vectors = largest_eigenvectors(np.array([0.0, 0.0, 0.0]), np.array([1.0, 1.0]), 3)
    np.testing.assert_allclose(np.abs(vectors[:, 1]), [0.5**0.5, 0, 0.5**0.5], atol=1e-15)
