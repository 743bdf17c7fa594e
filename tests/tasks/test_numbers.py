"""Numbers: the running sums of Li 2025 and their kin, and what their errors are compared with."""

import numpy as np
import pytest
from running_sums import RUNNING_SUM, sample

from fastpe.base.random import Stream
from fastpe.tasks import frame, targets
from fastpe.tasks.registry import choose


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_targets_are_the_sums_of_the_cast_inputs(dtype):
    x, y = sample(5, "test", 20, 50, dtype, step=50)
    assert x.dtype == y.dtype == dtype
    np.testing.assert_array_equal(x, Stream(5, "test", 50).normal((20, 50)).astype(dtype))
    exact = [[sum(map(float, row[: i + 1])) for i in range(50)] for row in x]
    np.testing.assert_array_equal(y, np.array(exact).astype(dtype))


@pytest.mark.parametrize(("length", "zero", "bound"), [(50, 25.5, 12.25), (100, 50.5, 24.75), (200, 100.5, 49.75)])
def test_reference_points(length, zero, bound):
    """Check values of the protocol; that predictors reach them is tested below."""
    ones = np.ones(length)
    assert targets.zero_error(RUNNING_SUM, length) == zero
    assert RUNNING_SUM.task.reversal_bound(length, ones) == pytest.approx(bound, rel=1e-14)
    assert RUNNING_SUM.task.permutation_bound(length, ones) == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "reversal", "permutation"),
    [
        ("running_mean", 0.043227659, 0.064986377), ("shift", 0.49, 0.9604), ("first_quarter", 0.13, 0.1924),
        ("running_sum", 12.25, 12.25),
    ],
)  # fmt: skip
def test_bounds_at_length_50(name, reversal, permutation):
    """By the closed forms that others worked out."""
    task = choose(name).task
    assert task.reversal_bound(50, np.ones(50)) == pytest.approx(reversal, abs=5e-10)
    assert task.permutation_bound(50, np.ones(50)) == pytest.approx(permutation, abs=5e-10)


@pytest.mark.parametrize("name", ["running_mean", "shift", "first_quarter", "running_sum"])
@pytest.mark.parametrize("scale", targets.SCALES)
def test_bounds_are_what_the_best_answers_reach(name, scale):
    """The best linear answers that are symmetric, found by least squares, on sequences drawn for it."""
    chosen, length, count = choose(name), 7, 40_000
    x, y, _ = frame.draw(chosen, Stream(1, "bounds"), count, length)
    factors = targets.factors(length, scale, 5)
    y = y * factors
    assert np.mean(y**2) == pytest.approx(targets.zero_error(chosen, length, factors), rel=0.03)
    # what is symmetric answers at place i of x as at place N + 1 - i of its reverse, and that one is as likely
    mirrored = chosen.task.sample(Given(x[:, ::-1]), length, count)[1][:, ::-1] * factors[::-1]
    best = (y + mirrored) / 2
    assert np.mean((y - best) ** 2) == pytest.approx(chosen.task.reversal_bound(length, factors), rel=0.03)
    # what knows no order: a weight for the number itself, one for the sum of the others, and a constant
    own, others = x.ravel(), (x.sum(axis=1, keepdims=True) - x).ravel()
    known = np.stack([own, others, np.ones(x.size)], axis=1)
    residual = y.ravel() - known @ np.linalg.lstsq(known, y.ravel(), rcond=None)[0]
    assert np.mean(residual**2) == pytest.approx(chosen.task.permutation_bound(length, factors), rel=0.03)


class Given:
    """Draws that are known."""

    def __init__(self, x):
        self._x = x

    def normal(self, shape):
        assert shape == self._x.shape
        return self._x
