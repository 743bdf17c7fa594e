"""Moirai's bias: numbers of its authors' code, and what the numbers of series may not change."""

import numpy as np
from fixture_attention import results

import fastpe

PAIRS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])  # series and time
BIAS = {"bias": np.array([[-0.5], [0.75]])}


def test_the_shared_attention_problem_with_two_series():
    printed = [-0.8403373832, -1.1714529661, 0.0295910555, 0.5534982161, 0.7110930556]
    for places in ({"positions": PAIRS}, {"grid": (2, 2)}):
        slots = fastpe.build("moirai", 4, dim=4, params=BIAS, dtype=np.float64, **places)
        np.testing.assert_allclose(results(slots, causal=False), printed, rtol=0, atol=5.1e-11)


def test_the_numbers_of_the_series_do_not_matter():
    request = {"dim": 16, "heads": 2, "dtype": np.float64, "params": {"bias": np.array([[1.0, 2.0], [3.0, 4.0]])}}
    found = fastpe.build("moirai", 4, positions=PAIRS, **request)
    other = fastpe.build("moirai", 4, positions=PAIRS * [-7.5, 1] + [40, 0], **request)
    for slot in ("index", "values", "angles"):
        np.testing.assert_array_equal(found[slot], other[slot])


def test_one_series_is_rope_on_half_of_the_channels():
    slots = fastpe.build("moirai", 9, dim=24, heads=2, grid=(1, 9), dtype=np.float64)
    plain = fastpe.build("rope", 9, dim=24, heads=2, rotated=6, dtype=np.float64)
    np.testing.assert_array_equal(slots["angles"], plain["angles"])
    assert slots["pairs"] == plain["pairs"] == "interleaved"
    assert (slots["index"] == 1).all()
