"""What queries see beside reflections: windows and spans hide keys, which reflect all the same."""

import numpy as np
import pytest
from attention_problems import problem

import fastpe

SLOTS = ("reflectors", "reflect")


@pytest.fixture
def rng():
    return np.random.default_rng(53)


SEEN = {"window": {"window": 37}, "spans": {"spans": np.stack([np.arange(90) % 50, 35 + np.arange(90) % 40], axis=-1)}}


@pytest.mark.parametrize("options", SEEN.values(), ids=SEEN)
def test_keys_that_are_not_seen_reflect(rng, options):
    """Weights are those of all keys, of which some are left out."""
    given = problem(rng, SLOTS, b=1, n=90, d=5)
    given["v"] = np.broadcast_to(np.eye(90), (1, 2, 90, 90))
    whole, i, j = fastpe.attention(**given, causal=True), *np.ogrid[:90, :90]
    seen = (
        i - j < options["window"]
        if "window" in options
        else (options["spans"][:, :1] <= j) & (j < options["spans"][:, 1:])
    )
    expected = np.where(seen, whole, 0)
    total = expected.sum(axis=-1, keepdims=True)
    expected = np.divide(expected, total, where=total > 0, out=np.zeros_like(expected))
    np.testing.assert_allclose(fastpe.attention(**given, causal=True, **options), expected, rtol=0, atol=1e-13)
    few = {"causal": True, "spans": options["spans"][40:42]} if "spans" in options else {"causal": True, **options}
    two = fastpe.attention(**{**given, "q": given["q"][:, :, 40:42]}, query_start=40, **few)
    np.testing.assert_allclose(two, expected[:, :, 40:42], rtol=0, atol=1e-13)


@pytest.mark.parametrize("n", [2, 70])
@pytest.mark.parametrize(
    ("seen", "before", "after", "near"),
    [((228, 258), 128, 288, 0.0), ((100, 130), 96, 160, 1e-13)],
    ids=["whole tiles", "sub-tiles"],
)
def test_tiles_of_which_nobody_sees_a_key_are_not_read(rng, n, seen, before, after, near):
    """Nor do they get gradients, but for what their reflectors do on the way. In a tile of which some keys are seen,
    hidden NaN have the sums made in another order."""
    given = problem(rng, SLOTS, b=1, n=n, m=300, d=5)
    options = {"causal": True, "spans": np.tile(seen, (n, 1)), "wrt": ("q", "k", "v", *SLOTS)}
    calm, pull = fastpe.attention_vjp(**given, **options)
    expected = pull(calm)
    for name in "kv":
        given[name][:, :, :before] = given[name][:, :, after:] = np.nan
    given["reflectors"][:, :before] = 1e200  # their products overflow
    out, pull = fastpe.attention_vjp(**given, **options)
    np.testing.assert_allclose(out, calm, rtol=0, atol=near / 100)
    for name, gradient in pull(calm).items():
        np.testing.assert_allclose(gradient, expected[name], rtol=0, atol=near)
        if name != "q":
            row = gradient if name == "reflect" else gradient[..., 0]
            assert not row[..., : seen[0]].any()
            assert row[..., seen[1] :].any() == (name in SLOTS)


@pytest.mark.parametrize("n", [2, 70])
def test_queries_far_beyond_the_keys(rng, n):
    """Tokens between, of which there are none, reflect nothing: wherever they stand, queries get the same."""
    given = problem(rng, SLOTS, n=n, m=50, d=5)
    near, pull = fastpe.attention_vjp(**given, causal=True, query_start=50)
    expected = pull(near)
    for start in (51, 2**32 + 3, 2**40):
        far, pull = fastpe.attention_vjp(**given, causal=True, query_start=start, window=2**62)
        np.testing.assert_array_equal(far, near)
        for name, gradient in pull(far).items():
            np.testing.assert_array_equal(gradient, expected[name])
