"""Distances below the rounding of one, as real positions have them."""

import mpmath
import numpy as np

import fastpe


def test_kerple_log_at_distances_below_the_rounding_of_one() -> None:
    positions = [0.0, 2e-69, 2.5e-16, 1e-8, 0.125]
    params = {"r1": np.array([1.5]), "r2": np.array([0.25])}
    request = {"heads": 1, "positions": positions, "train_length": 20, "params": params, "dtype": np.float64}
    distances = np.abs(np.subtract.outer(positions, positions))
    with mpmath.workdps(50):
        exact = [[float(-1.5 * mpmath.log1p(mpmath.mpf(d) / 4)) for d in row] for row in distances.tolist()]
    for reference in (False, True):
        found = fastpe.build("kerple_log", 5, **request, reference=reference)["scores"]
        np.testing.assert_allclose(found[0], exact, rtol=1e-15)
