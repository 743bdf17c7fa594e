"""Norms, distances, noise and coherence of tables, beside the specification, SciPy and brute force."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paper_tables import drawn, near, paper_table, shapes
from scipy.spatial.distance import cdist, pdist
from scipy.stats import norm

from fastpe.theory import tables
from fastpe.theory.kernel import toeplitz_share
from fastpe.theory.pairs import nearest, tiles

WINDOWS = ((0, 50), (50, 100), (100, 200))


@pytest.mark.parametrize("name", ["wavelet", "legendre", "chebyshev"])
def test_norms_and_nearest_rows_of_each_window(name):
    for start, stop in WINDOWS:
        rows = paper_table(name)[start:stop]
        found, sizes = tables.norms(paper_table(name), (start, stop)), np.linalg.norm(rows, axis=1)
        assert (found["least"].value, found["most"].value) == near((sizes.min(), sizes.max()), 1e-12)
        assert found["rms"].value == near(math.sqrt(np.mean(sizes**2)), 1e-12)
        found = tables.separation(paper_table(name), (start, stop))
        assert found.value == near(pdist(rows).min(), 1e-9)
        first, second = found.inputs["pair"]
        assert start <= first < second < stop
        apart = np.linalg.norm(paper_table(name)[first] - paper_table(name)[second])
        assert apart == pytest.approx(found.value, rel=1e-12)


@given(shapes)
def test_distances_against_scipy(shape):
    rows = drawn(shape)
    assert tables.separation(rows).value == pytest.approx(pdist(rows).min(), rel=1e-12, abs=0.0)
    distances, which = nearest(rows[::2], rows[1::2])
    assert distances == pytest.approx(cdist(rows[::2], rows[1::2]).min(axis=1), rel=1e-12, abs=0.0)
    assert np.linalg.norm(rows[::2] - rows[1::2][which], axis=1) == pytest.approx(distances, rel=1e-12, abs=0.0)


@given(st.integers(500, 1100), st.integers(0, 2**32 - 1))
def test_distances_over_several_tiles(n, seed):
    rows = np.random.default_rng(seed).standard_normal((n, 3))
    rows[-1] = rows[seed % (n - 1)] + 1e-9
    exactly = cdist(rows, rows)
    np.fill_diagonal(exactly, np.inf)
    distances, which = nearest(rows)
    assert distances == pytest.approx(exactly.min(axis=1), rel=1e-12, abs=0.0)
    assert exactly[np.arange(n), which] == pytest.approx(distances, rel=1e-12, abs=0.0)
    for block, tile, squares, error in tiles(rows):
        off = np.isfinite(squares)
        assert np.abs(squares[off] - exactly[block, tile][off] ** 2).max() <= error


def test_a_table_of_equal_distances_by_lag():
    rows = paper_table("sinusoidal")
    share = toeplitz_share(rows).value
    assert tables.separation(rows, share=share).inputs["pair"] == [0, 1]
    assert tables.separation(rows, (3, 4), share=share) is None
    windowed = tables.separation(rows, (3, 60), share=share)
    assert (windowed.value, windowed.inputs["pair"]) == (near(1.471848048122478, 1e-14), [3, 4])
    wavelet = paper_table("wavelet")  # not Toeplitz: its share is not believed to be small
    assert tables.separation(wavelet, (0, 50), share=toeplitz_share(wavelet).value).value == near(0.425790, 1e-6)


@given(shapes, st.floats(1e-4, 0.4))
def test_noise_meets_its_bound(shape, confusion):
    n, channels, seed = shape
    rows = np.random.default_rng(seed).standard_normal((n, channels))
    sigma = tables.tolerated_noise(rows, confusion=confusion).value
    distances = cdist(rows, rows)
    np.fill_diagonal(distances, np.inf)
    assert norm.cdf(-distances / (2 * sigma)).sum(axis=1).mean() == pytest.approx(confusion, rel=1e-9)


def test_noise_of_long_tables_lies_between_its_bounds():
    rng = np.random.default_rng(1)
    for rows in (rng.standard_normal((1500, 2)), 50.0 + np.sort(rng.standard_normal((1300, 1)), axis=0)):
        found = tables.tolerated_noise(rows)
        sigmas = np.array([[found.low], [found.high]])
        union = 2.0 / len(rows) * norm.cdf(-pdist(rows) / (2.0 * sigmas)).sum(axis=1)
        assert union[0] <= 0.01 <= union[1]
        assert found.high - found.low < 2e-4 * found.high
    assert tables.tolerated_noise(np.zeros((1100, 2))).value == 0.0


def test_equal_rows_tolerate_no_noise_unless_they_are_few():
    rows = np.arange(300.0)[:, None]
    rows[1] = 0.0  # a confusion in 300: less than the 1 % that is allowed
    few = tables.tolerated_noise(rows).value
    assert 0.0 < few < tables.tolerated_noise(np.arange(300.0)[:, None]).value
    rows[2:5] = 0.0
    assert tables.tolerated_noise(rows).value == 0.0


def test_distance_to_a_line():
    rows, direction = paper_table("legendre")[:50], np.random.default_rng(0).standard_normal(64)
    unit = direction / np.linalg.norm(direction)
    gaps = rows[:, None] - rows[None]
    exactly = np.linalg.norm(gaps - (gaps @ unit)[..., None] * unit, axis=2)[np.triu_indices(50, 1)].min()
    assert tables.line_separation(rows, direction).value == pytest.approx(exactly, rel=1e-12)
    assert tables.line_separation(rows, rows[3] - rows[17]).value < 1e-14  # the two can collide
    assert tables.line_separation([[1.0], [2.0]], [4.0]).value == 0.0


def test_a_collision_makes_two_inputs_equal():
    rows = paper_table("wavelet")
    i, j = tables.separation(rows, (0, 50)).inputs["pair"]
    content = (rows[j] - rows[i]) / 2
    assert np.linalg.norm(content) == pytest.approx(tables.collision_radius(rows, (0, 50)).value, rel=1e-12)
    assert rows[i] + content == pytest.approx(rows[j] - content, abs=1e-15)


def test_coherence_over_several_blocks():
    rows = np.random.default_rng(0).standard_normal((700, 2))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert tables.coherence(rows).value == pytest.approx(np.abs(np.triu(unit @ unit.T, 1)).max(), rel=1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# What has no meaning, and what is refused


def test_a_single_position():
    row = [[3.0, 4.0]]
    nothing = (tables.separation, tables.collision_radius, tables.tolerated_noise, tables.coherence)
    assert [found(row) for found in nothing] == [None] * 4
    assert tables.line_separation(row, [1.0, 0.0]) is None
    assert tables.norms(row)["rms"].value == 5.0
    assert tables.windows(1, 1) == [(0, 1)]


def test_a_table_of_zeros():
    zeros = np.zeros((6, 3))
    assert tables.coherence(zeros) is None
    assert (tables.separation(zeros).value, tables.tolerated_noise(zeros).value) == (0.0, 0.0)


def test_a_zero_row_has_no_direction():
    assert tables.coherence([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]).inputs["pair"] == [1, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tables.norms([[1.0, math.nan]]), "table must be finite in float64, but 1 of its 2 values are not"),
        (lambda: tables.norms([1.0, 2.0]), r"table must have shape \(positions, channels\), .* not \(2,\)"),
        (lambda: tables.norms(np.empty((0, 4))), r"at least \(1, 1\), not \(0, 4\)"),
        (lambda: tables.norms([[1e200]]), r"table must hold values of at most 1e\+150 in size"),
        (lambda: tables.norms([[1.0]], (0, 2)), "window must end within the 1 rows of table, not at 2"),
        (lambda: tables.norms([[1.0]], (1, 1)), r"window must hold at least one row, not \(1, 1\)"),
        (lambda: tables.norms([[1.0]], 1), r"window must be two integers \(start, stop\), not 1"),
        (lambda: tables.tolerated_noise([[1.0]], confusion=0.5), "confusion must lie between 0 and 0.5, not 0.5"),
        (lambda: tables.line_separation([[1.0]], [0.0]), "direction must hold 1 values that are not all 0"),
    ],
)
def test_wrong_tables_and_windows_are_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
