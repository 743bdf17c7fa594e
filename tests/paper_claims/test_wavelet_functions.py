"""Suprema of wavelets, and products that an end cuts, beside values at many points and quadrature (C77 to C96)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paper_tables import near

from fastpe.encodings.parts.daubechies import evaluate, orthogonal_filter
from fastpe.paper_claims.wavelet_functions import (
    _half_oscillation,
    _next_digit,
    _spread,
    _two_scale,
    edge_product,
    support_length,
    supremum,
)


def test_products_cut_by_an_end():
    for pair in ((3, 4), (3, 3), (4, 4)):
        x = np.arange(7 * 2**14 + 1) / 2**14
        products = evaluate("db4", x + pair[0], psi=True) * evaluate("db4", x + pair[1], psi=True)
        assert edge_product(*pair).value == pytest.approx(np.trapezoid(products, x), abs=2e-7)
    assert edge_product(4, 3).value == pytest.approx(edge_product(3, 4).value, abs=1e-15)


@given(st.sampled_from(["haar", "db2", "db4", "sym5", "coif2"]), st.integers(-3, 12), st.integers(-3, 12))
def test_products_of_whole_wavelets_are_those_of_a_basis(wavelet, m, n):
    end = support_length(wavelet).value
    found = edge_product(m, n, wavelet).value
    if m >= end or n >= end:
        assert found == 0.0
    elif m <= 0 or n <= 0:
        assert found == pytest.approx(float(m == n), abs=1e-10)
    else:
        assert abs(found) < 1.0


def test_suprema():
    """C81, C96: the specification has the largest values at multiples of 2^-10, which are below the suprema."""
    assert supremum("db4", psi=False, level=10).low == near(1.121796)
    assert supremum("db4", level=10).low == near(1.359170)
    for beta, value in ((0.1, 1.948310), (0.5, 8.240162), (1.0, 50.576468), (2.0, 3283.938)):
        assert supremum("db4", beta=beta, level=10).low == near(value)
    assert supremum("haar").high == pytest.approx(1.0, abs=1e-11)
    assert support_length("db4").value == 7.0


@given(
    st.sampled_from(["haar", "db2", "db4", "db8", "sym5", "coif2"]),
    st.booleans(),
    st.sampled_from([0.0, 0.5, 2.0]),
    st.integers(2, 10),
    st.integers(0, 2**32 - 1),
)
def test_no_value_is_beyond_a_supremum(wavelet, psi, beta, level, seed):
    found = supremum(wavelet, psi=psi, beta=beta, level=level)
    end = support_length(wavelet).value
    x = np.concatenate([np.random.default_rng(seed).uniform(0.0, end, 200), np.linspace(0.0, end, 200)])
    assert (np.abs(evaluate(wavelet, x, psi=psi)) * np.exp(beta * x)).max() <= found.high
    finer = supremum(wavelet, psi=psi, beta=beta, level=level + 1)
    assert found.low <= finer.low * (1 + 1e-9)
    assert finer.low <= found.high


def test_the_oscillation_is_attained():
    """|row u| <= osc / 2 |u|_1 for u that sums to 0, and is that for the difference of two unit vectors."""
    rows, u = np.random.default_rng(0).standard_normal((2, 50, 1, 6))
    u -= u.mean(axis=2, keepdims=True)
    bound = _half_oscillation(rows)
    assert (np.abs((rows * u).sum(axis=2)) <= bound * np.abs(u).sum(axis=2)).all()
    assert (rows.max(axis=2) - rows.min(axis=2) == 2.0 * bound).all()


@pytest.mark.parametrize("wavelet", ["haar", "db2", "db4", "coif2"])
def test_the_spread_between_two_points_of_a_grid(wavelet):
    """What `supremum` bounds the values between points by, and is attained to a few percent where levels are many."""
    filters = orthogonal_filter(wavelet)
    products, count = np.eye(len(filters.integers))[None], len(filters.integers)
    for _ in range(10):
        products = _next_digit(products, [_two_scale(filters.low, digit) for digit in (0, 1)])
    y = np.random.default_rng(0).uniform(0.0, 1.0, 500)[:, None] + np.arange(count)
    seen = np.abs(evaluate(wavelet, y) - filters.integers).sum(axis=1).max()
    assert 0.7 * _spread(products, filters.integers) <= seen <= _spread(products, filters.integers)
