"""Tiles that are left out because offsets of keys decay: never more than is promised, never where it matters."""

import math

import numpy as np
import pytest
from skipping import N, alibi, assert_no_more_is_left_out, left_out, tiles_met, trained

import fastpe

LOW = -1e4  # of an offset whose weight is 0


def forgetting(rng, rate, n=N):
    """Offsets (1, n) that grow by `rate` on average from key to key."""
    return np.cumsum(rng.exponential(rate, (1, n)), axis=-1)


def lifted(rng):
    """A key that all forget, but whose own offset is large."""
    offset = forgetting(rng, 0.5)
    offset[0, 40] = offset[0, -1]
    return trained(rng) | {"key_offset": offset}


def aligned(rng):
    """A key that all forget, but all look for."""
    arguments = trained(rng) | {"key_offset": forgetting(rng, 0.5)}
    arguments["q"] += 1.0
    arguments["k"][0, 0, 40] = 75.0
    return arguments


def factored(rng):
    """Of one query in each block the content counts a hundredfold."""
    factors = np.ones((1, N))
    factors[0, 50::96] = 100.0
    return trained(rng) | {"key_offset": forgetting(rng, 0.5), "row_scale": factors}


def with_bias(rng):
    """Each of the two makes up for what the other takes away, now here, now there."""
    arguments = trained(rng) | {"key_offset": rng.uniform(-60, 0, (1, N)), "bias": alibi([0.3])}
    arguments["bias"][0, N - 1 - 700] = 120.0
    arguments["key_offset"][0, 30] = 250.0
    return arguments


CASES = {
    "steep": lambda rng: trained(rng) | {"key_offset": forgetting(rng, 0.5)},
    "gentle": lambda rng: trained(rng) | {"key_offset": forgetting(rng, 0.02)},
    "backwards": lambda rng: trained(rng) | {"key_offset": -forgetting(rng, 0.5)},
    "rough": lambda rng: trained(rng) | {"key_offset": rng.uniform(-400, 0, (1, N))},
    "none": lambda rng: trained(rng) | {"key_offset": np.zeros((1, N))},
    "a key with an offset of its own": lifted,
    "a key aligned with all queries": aligned,
    "rows with factors": factored,
    "with a bias": with_bias,
    "with a bias that decays": lambda rng: trained(rng) | {"key_offset": forgetting(rng, 0.1), "bias": alibi([0.2])},
    "a large sum": lambda rng: trained(rng) | {"key_offset": forgetting(rng, 0.5) - 2.0**30},
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tolerance", [None, 1e-9, 1e-3, 0.3])
@pytest.mark.parametrize("case", CASES)
def test_no_more_than_the_tolerance_is_left_out(case, tolerance, causal):
    assert_no_more_is_left_out(CASES[case](np.random.default_rng(3)), tolerance, causal=causal)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
def test_gradients_by_default(case, dtype):
    arguments = {name: array.astype(dtype) for name, array in CASES[case](np.random.default_rng(4)).items()}
    arguments["key_offset"] = arguments["key_offset"].astype(np.float64)
    dout = np.random.default_rng(5).standard_normal(arguments["q"].shape).astype(dtype)
    (every, pull), (some, skipping) = (fastpe.attention_vjp(**arguments, causal=True, tolerance=t) for t in (0, None))
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(some, every, rtol=0, atol=40 * eps)
    found = skipping(dout)
    for name, gradient in pull(dout).items():
        size = abs(gradient).max()
        np.testing.assert_allclose(found[name], gradient, rtol=0, atol=1000 * eps * (size + 1), err_msg=name)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
@pytest.mark.parametrize("causal", [True, False])
def test_tails_are_left_out_below_their_share_of_the_tolerance_and_not_above(causal, tolerance):
    """Half of it for all tails, shared by two sides where there are such: that share as a sum over two tiles."""
    n, share = 700, tolerance / (2 if causal else 4)
    for excess in (-0.01, 0.01):
        offset = np.full((1, n), LOW)
        offset[0, 384:] = 0.0
        offset[0, [100, 200]] = math.log(share / 2) + excess
        nothing = np.zeros((1, 1, n, 16))
        arguments = {"q": nothing, "k": nothing, "v": nothing, "key_offset": offset}
        spans = np.stack([np.zeros(n, int), np.where(np.arange(n) < 400, 384, 385)], axis=-1)
        alone = {"spans": spans, "causal": causal}  # one key of offset 0 at most: sums are at least 1, and no more
        lost = left_out(arguments, tolerance, **alone)
        assert lost[0, 0, 400:].max() <= share
        for met in tiles_met(arguments, tolerance, **alone):
            np.testing.assert_array_equal(met[5:, 1], excess > 0)
