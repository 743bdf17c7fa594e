"""Least errors under groups of orders, against brute force over all orders."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpe.tasks import targets
from fastpe.tasks.registry import choose
from fastpe.theory import orbits
from fastpe.theory.orbits import GROUPS, LINEAR, NUMBERS, least_error, least_error_of_matrix


def matrix_of(name, n):
    """A and b of y = A x + b, as the task's page has them."""
    ones, zeros = np.ones((n, n)), np.zeros((n, n))
    matrix = {
        "running_sum": np.tril(ones), "running_mean": np.tril(ones) / np.arange(1, n + 1)[:, None],
        "shift": np.eye(n, k=-1), "total_sum": ones, "reverse_numbers": np.eye(n)[::-1],
    }.get(name, zeros)  # fmt: skip
    offsets = {"first_quarter": np.arange(n) < n / 4, "position_index": np.arange(1, n + 1)}.get(name, np.zeros(n))
    return matrix, offsets.astype(float)


def orders_of(group, n):
    usual = tuple(range(n))
    return [usual, usual[::-1]] if group == "rev" else list(itertools.permutations(usual))


def by_brute_force(matrix, offsets, group):
    n = len(offsets)
    if group == "const":
        return np.var(matrix.sum(axis=1) + offsets)
    orders = [list(order) for order in orders_of(group, n)]
    mean = np.mean([matrix[np.ix_(order, order)] for order in orders], axis=0)
    added = np.mean([offsets[order] for order in orders], axis=0)
    return (np.sum((matrix - mean) ** 2) + np.sum((offsets - added) ** 2)) / n


@pytest.mark.parametrize(
    ("name", "rev", "perm"),
    [
        ("running_mean", 0.043227659, 0.064986377), ("reverse_numbers", 0.0, 0.979591837),
        ("first_quarter", 0.13, 0.1924), ("running_parity", 0.5, 0.999182946),
    ],
)  # fmt: skip
def test_values_of_the_specification(name, rev, perm):
    for group, value in (("rev", rev), ("perm", perm)):
        found = least_error(name, group, 50)
        assert found.kind == "exact"
        assert found.value == pytest.approx(value, abs=5e-10)


def test_closed_forms_in_fractions():
    def fraction(*case):
        return Fraction(least_error(*case).inputs["fraction"])

    for n in (1, 2, 7, 50, 100, 200):
        for group in ("rev", "perm"):
            assert fraction("running_sum", group, n) == Fraction(n - 1, 4)
            assert fraction("position_index", group, n) == Fraction(n * n - 1, 12)
        assert fraction("running_sum", "const", n) == fraction("position_index", "const", n) == Fraction(n * n - 1, 12)
        assert fraction("shift", "rev", n) == Fraction(n - 1, 2 * n)
        assert fraction("shift", "perm", n) == Fraction(n - 1, n) ** 2
        q = Fraction(sum(4 * i < n for i in range(n)), n)
        assert fraction("first_quarter", "const", n) == fraction("first_quarter", "perm", n) == q * (1 - q)
        assert fraction("sort_numbers", "perm", n) == 1 - Fraction(1, n)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", LINEAR)
def test_linear_targets_over_all_orders(name, group):
    for n in (1, 2, 3, 4, 5, 6):
        matrix, offsets = matrix_of(name, n)
        wanted = pytest.approx(by_brute_force(matrix, offsets, group), rel=1e-12, abs=1e-14)
        assert least_error(name, group, n).value == wanted
        assert least_error_of_matrix(matrix, group, offsets).value == wanted


whole = st.integers(-5, 5)
MATRICES = st.integers(1, 5).flatmap(
    lambda n: st.tuples(
        st.lists(st.lists(whole, min_size=n, max_size=n), min_size=n, max_size=n),
        st.lists(whole, min_size=n, max_size=n),
    )
)


@given(case=MATRICES, group=st.sampled_from(GROUPS))
def test_any_matrix_over_all_orders(case, group):
    matrix, offsets = case
    wanted = by_brute_force(np.array(matrix, float), np.array(offsets, float), group)
    assert least_error_of_matrix(matrix, group, offsets).value == pytest.approx(wanted, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("scale", targets.SCALES)
@pytest.mark.parametrize("name", ["running_sum", "running_mean", "shift", "first_quarter"])
def test_the_bounds_that_tasks_give_themselves(name, scale):
    task = choose(name).task
    for n in (1, 2, 3, 10, 51):
        factors = targets.factors(n, scale)
        for group, bound in (("rev", task.reversal_bound), ("perm", task.permutation_bound)):
            found = least_error(name, group, n, factors=factors).value
            assert bound(n, factors) == pytest.approx(found, rel=1e-11, abs=1e-15)


def orbit_error(target, x, group):
    """The mean over orders of the squared distance from the mean over orders, each token keeping its number."""
    orders = [list(order) for order in orders_of(group, len(x))]
    found = np.empty((len(orders), len(x)))
    for row, order in zip(found, orders, strict=True):
        row[order] = target(x[order])
    return np.var(found, axis=0).mean()


def test_running_max_in_any_order_is_counted_right():
    for x in np.random.default_rng(1).standard_normal((5, 5)):
        brute = [orbit_error(np.maximum.accumulate, x, group) for group in ("rev", "perm")]
        found = [of_draws(x[None])[0] for of_draws in (orbits._max_rev, orbits._max_perm)]
        assert found == pytest.approx(brute, rel=1e-12)


@pytest.mark.parametrize("group", ["rev", "perm"])
def test_running_parity_over_all_signs_and_orders(group):
    for n in (1, 2, 3, 4, 5):
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=n)))
        brute = np.mean([orbit_error(np.cumprod, x, group) for x in signs])
        assert least_error("running_parity", group, n).value == pytest.approx(brute, abs=1e-14)
        assert least_error("running_parity", "const", n).value == pytest.approx(np.var(np.cumprod(-np.ones(n))))


def test_estimates_agree_with_the_specification():
    """Its intervals, and of the sort a longer draw: 0.967339 +- 0.000059 of a million sequences."""
    found = least_error("sort_numbers", "rev", 50)
    assert found.kind == "estimate"
    assert found.low <= 0.967339 + 0.000059
    assert found.high >= 0.967339 - 0.000059
    assert max(found.low, 0.96680 - 0.00061) <= min(found.high, 0.96680 + 0.00061)
    largest = least_error("running_max", "rev", 50)
    assert max(largest.low, 0.31747 - 0.00077) <= min(largest.high, 0.31747 + 0.00077)
    assert least_error("running_max", "perm", 50).low > largest.high


def test_two_numbers_in_closed_form():
    """E (x_1 - x_2)^2 / 4 is 1/2 for the sort, and half of it for the maximum."""
    cases = ("sort_numbers", "rev", 0.5), ("running_max", "rev", 0.25), ("running_max", "perm", 0.25)
    for name, group, value in cases:
        found = least_error(name, group, 2)
        assert found.low <= value <= found.high
        assert found.high - found.low < 0.03


def test_estimates_are_the_same_twice_and_depend_on_the_seed():
    same, other = (least_error("running_max", "perm", 9, draws=500, seed=seed) for seed in (0, 1))
    assert least_error("running_max", "perm", 9, draws=500) == same
    assert same.value != other.value
    assert same.inputs["draws"] == 500


@pytest.mark.parametrize("name", NUMBERS)
def test_one_position_forbids_nothing(name):
    for group in GROUPS:
        assert least_error(name, group, 1).value == 0.0


@pytest.mark.full("takes seconds")
def test_long_sequences():
    n = 2**14
    harmonic = float(np.sum(1.0 / np.arange(1, n + 1)))
    found = least_error("running_mean", "rev", n)
    assert found.value == pytest.approx(harmonic * (n - 1) / (2 * n * (n + 1)), rel=1e-12)
    assert "fraction" not in found.inputs
    assert least_error("running_max", "perm", n, draws=64).inputs["draws"] == 64


@pytest.mark.parametrize(
    ("case", "more", "wrong"),
    [
        (("running_summ", "rev", 5), {}, "task of numbers 'running_summ' is unknown; did you mean 'running_sum'"),
        (("running_sum", "reverse", 5), {}, "group must be rev or perm or const, not 'reverse'"),
        (("running_sum", "rev", 0), {}, "length must be at least 1, not 0"),
        (("running_sum", "rev", 2**14 + 1), {}, "length must be at most 16384, not 16385"),
        (("running_sum", "rev", 5), {"factors": [1, 2]}, "factors must be 5 numbers, one for each position, not 2"),
        (("running_sum", "rev", 1), {"factors": [float("nan")]}, "factors must be finite, not nan"),
        (("sort_numbers", "rev", 2), {"factors": [1, 2]}, "factors can be given only for linear targets"),
        (("running_max", "rev", 5), {"draws": 1}, "draws must be at least 2, not 1"),
    ],
)
def test_errors_of_least_error(case, more, wrong):
    with pytest.raises(ValueError, match=wrong):
        least_error(*case, **more)


@pytest.mark.parametrize(
    ("matrix", "offsets", "wrong"),
    [
        ([[1], [1, 2]], None, r"matrix must be square with 1 to 512 rows, not have 2 rows of lengths \[1, 2\]"),
        ([], None, "matrix must be square with 1 to 512 rows, not have 0 rows"),
        (3, None, "matrix must be a sequence of rows of numbers, not 3"),
        ([["a"]], None, "matrix must be a number, not 'a'"),
        ([[1]], [1, 2], "offsets must be 1 numbers, one for each row of the matrix, not 2"),
    ],
)
def test_errors_of_a_matrix(matrix, offsets, wrong):
    with pytest.raises((ValueError, TypeError), match=wrong):
        least_error_of_matrix(matrix, "rev", offsets)
