"""A network of the look-back as a bias: printed values, gradients at any depth, real positions."""

import numpy as np
import pytest
from through_attention import assert_same_along

import fastpe


@pytest.mark.parametrize("depth", [1, 3])  # other tests have the default, 2
@pytest.mark.parametrize("positions", [None, [0.5, -2.0, 1.0, 2.75, 0.0]])
def test_gradients_at_other_depths(depth: int, positions: list[float] | None) -> None:
    assert_same_along("dynamic_bias", 5, 3, dim=12, heads=2, depth=depth, positions=positions)


def test_positions_in_a_row_have_the_biases_of_their_offsets() -> None:
    params = fastpe.init("dynamic_bias", heads=2, dtype=np.float64, train_length=9)
    request = {"heads": 2, "params": params, "dtype": np.float64}
    bias = fastpe.build("dynamic_bias", 6, **request)["bias"]
    scores = fastpe.build("dynamic_bias", 6, positions=np.arange(6.0) + 4, **request)["scores"]
    offsets = np.arange(6) - np.arange(6)[:, None]
    np.testing.assert_allclose(scores, bias[:, offsets + 5], rtol=1e-13)
    for key, value in params.items():
        limit = 1.0 if key in ("w_in", "b_in") else 0.25  # of fan in 1 and 16
        assert 0.8 * limit < np.abs(value).max() <= limit or value.size < 8
