"""ALiBi's slopes and biases against printed values and an independent attention."""

import numpy as np
import pytest
from fixture_attention import results

import fastpe
from fastpe.encodings.bias.alibi import slopes


@pytest.mark.parametrize(
    ("heads", "printed"),
    [
        (1, [0.00390625]),
        (2, [0.0625, 0.00390625]),
        (4, [0.25, 0.0625, 0.015625, 0.00390625]),
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
        (8, [0.5**k for k in range(1, 9)]),
        (12, [0.5**k for k in range(1, 9)] + [0.70710678, 0.35355339, 0.1767767, 0.088388348]),
    ],
)
def test_printed_slopes(heads: int, printed: list[float]) -> None:
    np.testing.assert_allclose(slopes(heads), printed, rtol=0, atol=5.1e-9)


@pytest.mark.parametrize("heads", range(1, 40))
def test_slopes_follow_the_authors_recursion(heads: int) -> None:
    # the reference computes them by the recursion of the released code
    bias = fastpe.build("alibi", 2, heads=heads, reference=True)["bias"]
    np.testing.assert_allclose(-bias[:, 2], slopes(heads), rtol=1e-13)


def test_the_bias_is_minus_the_slope_times_the_distance() -> None:
    bias = fastpe.build("alibi", 3, slope=0.5, dtype=np.float64)["bias"]
    np.testing.assert_array_equal(bias, [[-1, -0.5, 0, -0.5, -1]])
    paper = fastpe.build("alibi", 100, train_length=50, alpha0=0.1, dtype=np.float64)["bias"]
    np.testing.assert_allclose(paper[0, 99:], -0.002 * np.arange(100), rtol=1e-15)


def test_learned_slopes() -> None:
    start = fastpe.init("alibi", heads=2, train_length=10, learned=True, alpha0=0.1, dtype=np.float64)
    np.testing.assert_array_equal(start["slope"], [0.01, 0.01])
    bias = fastpe.build("alibi", 3, heads=2, learned=True, params={"slope": [1.0, 2.0]})["bias"]
    np.testing.assert_array_equal(bias, [[-2, -1, 0, -1, -2], [-4, -2, 0, -2, -4]])


def test_numbers_of_segments_are_positions_as_bipe_has_them() -> None:
    """Printed values of two segments of two tokens; as a column of the keys it is the same."""
    found = fastpe.build("alibi", 4, positions=[0, 0, 1, 1], factor=96.0, causal=True, dtype=np.float64)
    printed = [0.128572347, 0.388161550, 0.699629834]
    np.testing.assert_allclose(results(found, causal=True)[2:], printed, rtol=0, atol=5.1e-10)
    column = {"key_offset": np.array([[0, 0, 1, 1]]) * 96 / 256}
    np.testing.assert_allclose(results(column, causal=True)[2:], printed, rtol=0, atol=5.1e-10)


def test_a_factor_multiplies_every_choice_of_slopes() -> None:
    for chosen in ({}, {"slope": 0.5}, {"alpha0": 0.1}, {"form": "one_sided"}):
        request = {"heads": 4, "train_length": 10, "dtype": np.float64, **chosen}
        once, more = (fastpe.build("alibi", 5, factor=factor, **request)["bias"] for factor in (1.0, 96.0))
        seen = once > -1e6  # what a head of `one_sided` must not see stays hidden
        np.testing.assert_array_equal(more, np.where(seen, 96 * once, once))
        if "form" not in chosen:
            first = fastpe.init("alibi", factor=96.0, learned=True, **request)["slope"]
            np.testing.assert_array_equal(-once[:, 5] * 96, first)
