"""Powers of positions, for one row of content after the other."""

import mpmath
import numpy as np
import pytest

from fastpe.functional.growth import grown

FARTHEST = 708.0  # beyond it powers are infinite, and below minus that 0


def powers(logarithms, sign=1.0, dtype=np.float64):
    """What rows of ones become."""
    count = len(logarithms)
    x = np.ones((1, 1, count, 2), dtype)
    return grown(x, np.reshape(logarithms, (-1, 1)), np.zeros(1), sign, "half", np.empty_like(x))[0, 0, :, 0]


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("reach", [1.0, 30.0, FARTHEST])
def test_they_are_nearly_rounded(reach, sign):
    x = np.random.default_rng(5).uniform(-reach, reach, 500)
    for found, each in zip(powers(x, sign).tolist(), x.tolist(), strict=True):
        with mpmath.workdps(30):
            right = mpmath.exp(sign * mpmath.mpf(each))
            assert abs(found - right) < np.spacing(found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_no_number_is_large_enough_for_is_infinite_and_the_other_end_is_0(dtype):
    x = np.array([FARTHEST + 1, 710.0, 5000.0, np.inf])
    assert np.all(powers(x, 1.0, dtype) == np.inf)
    assert np.all(powers(-x, 1.0, dtype) == 0.0)
    assert np.all(powers(x, -1.0, dtype) == 0.0)
    assert np.all(powers(-x, -1.0, dtype) == np.inf)
    assert np.isfinite(powers([FARTHEST - 1])).all()
    assert np.isnan(powers([np.nan], 1.0, dtype)).all()
