"""What is learned begins with the spread that its authors gave it."""

import numpy as np
import pytest

import fastpe

SIZES = {"dim": 64, "heads": 8, "train_length": 400, "dtype": np.float64}


@pytest.mark.parametrize(
    ("name", "parameter", "options", "deviation"),
    [
        ("da", "w", {"heads": 64}, 0.1),
        ("deberta", "query", {}, 0.02),
        ("deberta", "key", {}, 0.02),
        ("factorised_st", "space", {"grid": (4, 10, 10)}, 0.02),
        ("huang4", "weight", {}, 0.02),
        ("learned", "table", {}, 0.02),
        ("learned_2d", "table", {"grid": (20, 20)}, 0.02),
        ("li_eq5", "table", {}, 0.02),
        ("li_eq5", "vector", {"heads": 1}, 1 / 8),
        ("swin_bias", "table", {"window": (20, 20)}, 0.02),
        ("swinv2_cpb", "w1", {"window": (20, 20)}, 0.02),
        ("swinv2_cpb", "w2", {"window": (20, 20)}, 0.02),
        ("t5", "table", {"buckets": 512}, 1 / 8),
        ("transformer_xl", "u", {}, 0.02),
        ("transformer_xl", "v", {}, 0.02),
    ],
)
def test_normal_with_this_deviation(name, parameter, options, deviation):
    """Seeds together give at least ten thousand numbers, whose deviation is known to 3 %."""
    drawn = []
    for seed in range(10_000):
        drawn.append(fastpe.init(name, seed=seed, **{**SIZES, **options})[parameter].ravel())
        if sum(array.size for array in drawn) >= 10_000:
            break
    values = np.concatenate(drawn)
    np.testing.assert_allclose([values.mean() / deviation, values.std() / deviation], [0, 1], atol=0.04)
    np.testing.assert_allclose(np.mean((values / deviation) ** 4), 3, atol=0.3)
