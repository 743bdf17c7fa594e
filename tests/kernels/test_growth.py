"""Powers of positions."""

import mpmath
import numpy as np
import pytest

from fastpe.kernels.compile.decorators import entry
from fastpe.kernels.rows.growth import growth_factors
from fastpe.kernels.simd import pointer

FARTHEST = 708.0  # beyond it powers are infinite, and below minus that 0


@entry(label="powers of positions, for tests")
def _powers(logarithms, origin, sign, factors):
    growth_factors(pointer(logarithms), pointer(origin), factors.shape[0], 1, True, sign, pointer(factors))


def powers(logarithms, sign=1.0, dtype=np.float64):
    """Of rows of one pair."""
    factors = np.empty((len(logarithms), 2), dtype)
    _powers(np.array(logarithms, np.float64), np.zeros(1), sign, factors)
    return factors[:, 0]


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("reach", [1.0, 30.0, FARTHEST])
def test_powers_are_off_by_less_than_one_unit_in_the_last_place(reach, sign):
    x = np.random.default_rng(5).uniform(-reach, reach, 500)
    for found, each in zip(powers(x, sign).tolist(), x.tolist(), strict=True):
        with mpmath.workdps(30):
            right = mpmath.exp(sign * mpmath.mpf(each))
            assert abs(found - right) < np.spacing(found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_beyond_the_largest_number_are_infinite_and_their_inverses_0(dtype):
    x = np.array([FARTHEST + 1, 710.0, 5000.0, np.inf])
    assert np.all(powers(x, 1.0, dtype) == np.inf)
    assert np.all(powers(-x, 1.0, dtype) == 0.0)
    assert np.all(powers(x, -1.0, dtype) == 0.0)
    assert np.all(powers(-x, -1.0, dtype) == np.inf)
    assert np.isfinite(powers([FARTHEST - 1])).all()
    assert np.isnan(powers([np.nan], 1.0, dtype)).all()
