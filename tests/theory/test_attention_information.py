"""Information in rows of attention, and in one score."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import entropy

import fastpe
from fastpe.theory.attention_information import (
    attention_information,
    causal_mean_information,
    offset_information,
    zero_content_rows,
)
from fastpe.theory.information import position_information, two_point_information


def alibi(slope, length):
    return -slope * np.abs(np.arange(1 - length, length))


@pytest.mark.parametrize(
    ("length", "slope", "causal", "value"),
    [
        (4, 0.5, False, 0.098750910), (4, 0.002, False, 1.625497e-6), (50, 0.0, True, 0.541976082059),
        (50, 0.5, True, 2.290953950), (200, 0.002, False, 3.564246e-3), (200, 0.002, True, 0.605205),
    ],
)  # fmt: skip
def test_attention_of_a_slope(length, slope, causal, value):
    found = attention_information(zero_content_rows(alibi(slope, length), length, causal))
    assert found.value == pytest.approx(value, rel=1e-6)
    assert found.kind == "exact"


@pytest.mark.parametrize(("length", "value"), [(1, 0.0), (4, 0.353074112), (100, 0.556810), (200, 0.565573)])
def test_closed_form_of_uniform_causal_rows(length, value):
    closed = causal_mean_information(length).value
    assert closed == pytest.approx(value, abs=6e-7)
    assert closed == pytest.approx(attention_information(zero_content_rows([0.0], length, True)).value, abs=1e-13)


def test_closed_form_of_a_long_row():
    n = 700  # more than a block
    rows = np.tril(np.ones((n, n))) / np.arange(1.0, n + 1)[:, None]
    by_definition = np.mean([entropy(row, rows.mean(axis=0)) for row in rows])
    assert causal_mean_information(n).value == pytest.approx(by_definition, rel=1e-12)
    assert attention_information(zero_content_rows([0.0], n, True)).value == pytest.approx(by_definition, rel=1e-12)


@given(st.integers(1, 9), st.integers(1, 7), st.floats(0.1, 5.0), st.integers(0, 999))
def test_information_of_random_rows_is_that_of_the_definition(n, m, size, seed):
    rows = softmax(size * np.random.default_rng(seed).normal(size=(n, m)), axis=1)
    expected = np.mean([entropy(row, rows.mean(axis=0)) for row in rows])
    assert attention_information(rows).value == pytest.approx(expected, abs=1e-12)
    assert attention_information(iter(np.array_split(rows, min(n, 3)))).value == pytest.approx(expected, abs=1e-12)
    assert 0.0 <= attention_information(rows).value <= math.log(min(n, m)) + 1e-12


@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_a_bias_are_those_of_attention(causal):
    bias = np.random.default_rng(0).normal(size=7)  # farther offsets have the last ones
    rows = np.concatenate(list(zero_content_rows(bias, 6, causal)))
    q, v = np.zeros((1, 6, 2)), np.eye(6)[None]
    weights = fastpe.reference.attention(q, q, v[..., :2], bias=bias[None], causal=causal)
    np.testing.assert_allclose(rows[:, :2], weights[0], atol=1e-12)


@pytest.mark.parametrize("slope", [0.002, 2**-8, 0.5])
def test_information_in_one_score_agrees_with_mpmath(slope):
    with mpmath.workdps(25):
        places = [mpmath.mpf(slope) * d for d in range(50)]

        def surprise(y):
            density = sum(mpmath.exp(-((y - b) ** 2) / 2) for b in places) / 50 / mpmath.sqrt(2 * mpmath.pi)
            return -density * mpmath.log(density)

        # the trapezoidal rule, far beyond its convergence
        step = mpmath.mpf(1) / 8
        count = int((49 * slope + 24) / step)
        whole = mpmath.fsum(surprise(-12 + step * k) for k in range(count + 1)) * step
        expected = float(whole - mpmath.log(2 * mpmath.pi * mpmath.e) / 2)
    found = offset_information(-slope * np.arange(50))
    assert found.value == pytest.approx(expected, abs=1e-14, rel=1e-13)
    gaussian = 0.5 * math.log1p(slope**2 * (50**2 - 1) / 12)
    assert found.value <= found.inputs["gaussian"] == pytest.approx(gaussian, rel=1e-12)


@pytest.mark.parametrize("a", [0.01, 0.5, 1.0, 2.0, 8.0, 200.0])
def test_two_distances_are_two_points(a):
    assert offset_information([-a, a]).value == pytest.approx(two_point_information(2 * a).value, abs=1e-13)
    assert offset_information([3 * a, a], a).value == pytest.approx(two_point_information(2.0).value, abs=1e-13)


def test_bounds_for_tables_of_one_channel_hold_the_exact_information():
    """One channel is one score: the integral stands beside the bounds of pairs and of the Gaussian."""
    rng = np.random.default_rng(5)
    for _ in range(150):
        places = rng.exponential(2.0) * rng.normal(size=rng.integers(1, 7))
        exact = offset_information(places).value
        found = position_information(places[:, None], sigma=1.0, draws=2)
        assert found.lower.value - 1e-12 <= exact <= found.upper.value + 1e-12


def test_information_of_one_distance_of_equal_scores_and_of_far_apart_scores():
    assert offset_information([0.3]).value == 0.0
    assert offset_information(np.zeros(20)).value == 0.0
    assert offset_information(1e4 * np.arange(300.0)).value == pytest.approx(math.log(300), rel=1e-12)
    # far apart groups of equal ones
    groups = offset_information(np.repeat([0.0, 1e6, 3e6], [1, 2, 1])).value
    assert groups == pytest.approx(1.5 * math.log(2), rel=1e-12)


def test_information_of_long_rows_is_that_of_a_fine_sum():
    places = np.cumsum(np.random.default_rng(0).uniform(0.1, 1.2, size=300))  # two blocks of points and more
    points = np.arange(places[0] - 10, places[-1] + 10, 0.02)
    density = np.exp(-0.5 * (points[:, None] - places) ** 2).mean(axis=1) / math.sqrt(2 * math.pi)
    expected = -0.02 * density @ np.log(density) - 0.5 * math.log(2 * math.pi * math.e)
    assert offset_information(places).value == pytest.approx(expected, abs=1e-12)


def test_rows_in_float32_are_distributions_too():
    rows = softmax(np.random.default_rng(0).normal(size=(5, 40)), axis=1)
    expected = attention_information(rows).value
    assert attention_information(rows * 1.00005).value == pytest.approx(expected, rel=1e-12)
    assert attention_information(rows.astype(np.float32)).value == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: attention_information([[0.5, 0.6]]), "rows must be distributions"),
        (lambda: attention_information([[1.5, -0.5]]), "rows must be distributions"),
        (lambda: attention_information([0.5, 0.5]), r"rows must have the shape \(queries, keys\), not \(2,\)"),
        (lambda: attention_information(iter([])), "rows must hold at least one distribution"),
        (lambda: attention_information(iter([np.eye(2), np.eye(3)])), "rows must have 2 keys in every block, not 3"),
        (lambda: zero_content_rows([0.0, 1.0], 4, True), r"bias must have the shape \(2K \+ 1,\), not \(2,\)"),
        (lambda: zero_content_rows([math.nan], 4, True), "bias must be finite"),
        (lambda: causal_mean_information(0), "length must be at least 1, not 0"),
        (lambda: offset_information([[1.0]]), r"bias must have the shape \(distances,\), not \(1, 1\)"),
        (lambda: offset_information([1.0], 0.0), "sigma must be above 0"),
        (lambda: offset_information([-math.inf]), "bias must be finite"),
    ],
)
def test_bad_arguments(call, error):
    with pytest.raises(ValueError, match=error):
        call()
