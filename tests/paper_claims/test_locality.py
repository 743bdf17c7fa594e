"""Near keys against far ones in one row of biases: equation (9) of Li (2025), and when distance outweighs content."""

import math

import numpy as np
import pytest
from integer_kinds import Index

from fastpe.paper_claims import locality
from fastpe.theory.softmax import weights


def falling(length, slope=0.002):
    return -slope * np.arange(float(length))


@pytest.mark.parametrize("kind", [Index, np.uint8])
def test_integers_of_any_type_are_the_int_that_they_equal(kind):
    row = falling(100)
    for call in (
        lambda of: locality.normalised_difference(0.1, of(50), of(200)).value,
        lambda of: locality.equation_9(row, of(50), of(99))["near"].value,
        lambda of: locality.weight_ratio(row, of(0), of(49)).value,
    ):
        assert call(kind) == call(int)


def test_equation_9_within_one_row_needs_a_small_weight():
    """Between two keys of one row 1/4 is not enough where the nearer has more than a quarter of the weight."""
    found = {name: value.value for name, value in locality.equation_9(falling(3, 0.1), 1, 2).items()}
    assert found["difference"] > found["bound"]
    assert found["difference"] <= found["sharper"]
    assert found["one score"] <= found["bound"]


def test_bounds_of_equation_9_hold_and_are_attained():
    rng = np.random.default_rng(0)
    closest = 0.0
    for _ in range(2000):
        row = np.sort(rng.standard_normal(rng.integers(1, 7)) * rng.exponential(2.0))[::-1].copy()
        trained, tested = sorted(rng.integers(0, len(row), 2))
        found = {name: value.value for name, value in locality.equation_9(row, trained, tested).items()}
        assert found["difference"] <= found["sharper"]
        assert found["one score"] <= math.tanh(found["bound"]) * (1 + 1e-12)
        if found["bound"] > 1e-9:
            closest = max(closest, found["difference"] / found["sharper"])
    assert closest > 0.99


def test_one_score_moves_and_the_rest_stays():
    row = np.array([0.0, -0.3, -1.1])
    moved = row.copy()
    moved[1] = row[2]
    expected = weights(row)[1] - weights(moved)[1]
    assert locality.equation_9(row, 1, 2)["one score"].value == pytest.approx(expected, rel=1e-12)
    assert locality.equation_9(np.zeros(1), 0, 0)["one score"].value == 0.0


def test_distance_that_outweighs_content():
    """C66: from 1000 tokens on, never at 200."""
    assert locality.dominates_from(falling(200), 1.0) is None
    assert locality.dominates_from(-np.arange(1200.0) / 512, 1.0).value == 1025.0
    assert locality.dominates_from(np.array([0.0, -9.0, 0.0, -9.0]), 1.0).value == 3.0
