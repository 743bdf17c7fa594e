"""Gradient ascent on the lower bound of the information about position."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpe
from fastpe.theory.information import position_information
from fastpe.theory.maximal import lower_bound_and_gradient, maximal_table


@given(st.integers(1, 7), st.integers(1, 4), st.floats(0.3, 3.0), st.integers(0, 99))
def test_gradient_by_central_differences(n, dim, sigma, seed):
    table = np.random.default_rng(seed).normal(size=(n, dim))
    value, gradient = lower_bound_and_gradient(table, sigma)
    assert value == pytest.approx(position_information(table, sigma=sigma, draws=2).lower.value, abs=1e-12)
    for place in np.ndindex(table.shape):
        moved = np.zeros_like(table)
        moved[place] = 1e-5
        ends = [lower_bound_and_gradient(table + sign * moved, sigma)[0] for sign in (1, -1)]
        assert gradient[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-8)


def test_gradient_in_blocks():
    table = np.random.default_rng(0).normal(size=(1100, 3))
    value, gradient = lower_bound_and_gradient(table, 0.5)
    squares = ((table[:, None] - table) ** 2).sum(axis=-1)
    near = np.exp(-squares / 2.0)
    assert value == pytest.approx(-np.mean(np.log(near.mean(axis=1))), rel=1e-12)
    weights = near / near.sum(axis=1, keepdims=True)
    weights += weights.T
    expected = (weights.sum(axis=1)[:, None] * table - weights @ table) / 1100
    np.testing.assert_allclose(gradient, expected, atol=1e-15)


@pytest.mark.parametrize("equal_rows", [False, True])
def test_gradient_ascent_increases_the_bound_at_a_constant_norm(equal_rows):
    found = maximal_table(20, 3, 0.8, power=2.0, equal_rows=equal_rows, steps=60, seed=4)
    again = maximal_table(20, 3, 0.8, power=2.0, equal_rows=equal_rows, steps=60, seed=4)
    np.testing.assert_array_equal(found.table, again.table)
    assert not np.array_equal(found.table, maximal_table(20, 3, 0.8, power=2.0, steps=60, seed=5).table)
    assert (np.diff(found.history) > 0).all()
    assert 1 < len(found.history) <= 61
    squares = np.sum(found.table**2, axis=1)
    np.testing.assert_allclose(squares if equal_rows else squares.mean(), 2.0, rtol=1e-12)
    own = position_information(found.table, sigma=0.8, draws=2).lower.value
    assert found.history[-1] == found.information.value == pytest.approx(own, rel=1e-12)
    assert found.information.value < found.ceiling.high


@pytest.mark.parametrize("equal_rows", [False, True])
def test_with_enough_channels_the_maximal_table_is_a_simplex(equal_rows):
    found = maximal_table(5, 4, 1.0, power=3.0, equal_rows=equal_rows)
    squares = ((found.table[:, None] - found.table) ** 2).sum(axis=-1)
    np.testing.assert_allclose(squares[~np.eye(5, dtype=bool)], 2 * 5 * 3.0 / 4, rtol=1e-4)
    assert found.information.value == pytest.approx(found.ceiling.high, abs=1e-9)
    assert found.information.value <= found.ceiling.high + 1e-14


def test_no_table_is_above_the_ceiling():
    rng = np.random.default_rng(7)
    for _ in range(2000):
        n, dim, sigma = rng.integers(2, 9), rng.integers(1, 9), rng.uniform(0.2, 4.0)
        table = rng.normal(size=(n, dim)) * rng.exponential(size=(n, 1))
        found = maximal_table(int(n), int(dim), float(sigma), steps=0, initial=table)
        assert found.information.value <= found.ceiling.high


def test_it_is_more_informative_than_the_sinusoidal_table_of_the_same_power():
    sinusoidal = fastpe.build("sinusoidal", 50, dtype="float64")["table"]
    found = maximal_table(50, 64, initial=sinusoidal, steps=60)
    assert found.history[0] == pytest.approx(2.101725414914, abs=1e-9)
    assert found.history[-1] > 3.88 > position_information(sinusoidal, sigma=1.0, draws=2).upper.value
    np.testing.assert_allclose(np.sum(found.table**2), 50 * 32.0, rtol=1e-12)


def test_one_position_and_one_channel():
    assert maximal_table(1, 3).information.value == 0.0
    assert maximal_table(1, 3).ceiling.high == 0.0
    pair = maximal_table(2, 1, power=1.0)
    assert np.sort(pair.table[:, 0]) == pytest.approx([-1.0, 1.0], abs=1e-6)
    assert pair.information.value == pytest.approx(0.219070, abs=6e-7)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"length": 0, "dim": 1}, "length must be at least 1, not 0"),
        ({"length": 2, "dim": 1, "power": 0.0}, "power must be above 0"),
        ({"length": 2, "dim": 1, "sigma": math.nan}, "sigma must be finite"),
        ({"length": 2, "dim": 1, "initial": [[1.0]]}, r"initial must have the shape \(2, 1\), not \(1, 1\)"),
        ({"length": 1, "dim": 1, "initial": [[0.0]]}, "power must be above 0"),
        ({"length": 2, "dim": 1, "initial": [[0.0], [1.0]], "equal_rows": True}, "initial must not be 0"),
    ],
)
def test_bad_arguments(arguments, error):
    with pytest.raises(ValueError, match=error):
        maximal_table(**arguments)


@pytest.mark.full("starts processes")
def test_the_maximal_table_as_an_encoding_of_ones_own():
    """bench/maximal.py: a simplex, whose last row goes on, and the tables that it is compared with at equal power."""
    file = Path(__file__).parents[2] / "bench" / "maximal.py"
    name = fastpe.register(file)
    table = fastpe.build(name, 80, train_length=50, dtype="float64")["table"]
    np.testing.assert_array_equal(table[50:], np.broadcast_to(table[49], (30, 64)))
    products = table[:50] @ table[:50].T
    np.testing.assert_allclose(np.diag(products), 32.0)
    np.testing.assert_allclose(products[~np.eye(50, dtype=bool)], -32 / 49, atol=1e-3)  # of a simplex
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
    cells = [[cell.strip() for cell in line.split("|")[1:4]] for line in done.stdout.splitlines()[2:]]
    found = {own: (float(low), float(high)) for own, low, high in cells}
    assert found["sinusoidal"] == (2.1017, 3.3729)
    assert max(found, key=lambda each: found[each][0]) == "maximal"
    ceiling = math.log(50) - math.log1p(49 * math.exp(-2 * 50 * 32 / 49 / 8))
    assert found["maximal"] == pytest.approx((ceiling, math.log(50)), abs=6e-5)
    written = (file.parent / "results" / "maximal_table.md").read_text()
    assert all(line in written for line in done.stdout.splitlines())
