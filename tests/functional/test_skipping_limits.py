"""The limits of skipping, where they are exact; whose norms and biases they are made of; and what forbids skipping."""

import math

import numpy as np
import pytest
from attention_problems import problem
from skipping import N, alibi, left_out, tiles_met, tiles_of, trained

import fastpe
from fastpe import reference

LOW = -1e4  # of a bias whose weight is 0


def without_content(bias, n, m):
    """Scores that are biases alone: the bound on them is exact."""
    nothing = np.zeros((1, 1, m, 16))
    return {"q": np.zeros((1, 1, n, 16)), "k": nothing, "v": nothing, "bias": bias[None]}


def offsets_of(n, m):
    """Of every query and key."""
    return np.arange(m) - np.arange(n)[:, None] - (m - n)


@pytest.mark.parametrize(("causal", "side"), [(True, -1), (False, -1), (False, 1)])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
def test_tails_are_left_out_below_their_share_of_the_tolerance_and_not_above(causal, side, tolerance):
    """Half of it for all tails: that is a quarter for each of two sides. One percent above is too much."""
    n, far = 700, 400
    share = tolerance / (2 if causal else 4)
    for excess in (-0.01, 0.01):
        bias = np.full(2 * n - 1, LOW)
        bias[n - 1], bias[n - 1 + side * far] = 0.0, math.log(share) + excess
        arguments = without_content(bias, n, n)
        there = tiles_of(offsets_of(n, n) == side * far)
        for met in tiles_met(arguments, tolerance, causal=causal):
            np.testing.assert_array_equal(met[there], excess > 0)
        assert left_out(arguments, tolerance, causal=causal).max() <= share


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
@pytest.mark.parametrize("causal", [True, False])
def test_cells_are_left_out_below_their_share_of_the_tolerance_and_not_above(causal, tolerance):
    """Half of it for all M keys together. A peak beyond these cells keeps the rule of tails from leaving them out."""
    n, m, far = 500, 912, 480  # keys fill whole vectors
    for excess in (-0.01, 0.01):
        bias = np.full(2 * m - 1, LOW)
        bias[m - 1], bias[m - 1 - far : m - 1 - 250] = 0.0, math.log(tolerance / 2 / m) + excess
        bias[[0, n + m - 2]] = 5.0  # of the last query and the first key, and of the first and the last
        if not causal:
            bias[m + 250 : m + far] = math.log(tolerance / 2 / m) + excess
        arguments = without_content(bias, n, m)
        offsets = offsets_of(n, m)
        peaks = tiles_of((bias[offsets + m - 1] == 5.0) | (offsets == 0))
        some = bias[offsets + m - 1] == math.log(tolerance / 2 / m) + excess
        there = tiles_of(some & (offsets < 1 if causal else True)) & ~peaks
        assert there.sum() > 5
        for met in tiles_met(arguments, tolerance, causal=causal):
            np.testing.assert_array_equal(met[there], excess > 0)


@pytest.mark.parametrize("tolerance", [1e-12, 1e-4])
@pytest.mark.parametrize(("causal", "name"), [(False, "bias"), (True, "bias"), (True, "key_offset")])
def test_tiles_are_left_out_where_theory_says_and_kept_where_they_matter(name, causal, tolerance):
    """|s q.k| <= 1 here, and a row's largest score is at least that of its own key, -1."""
    rng, places = np.random.default_rng(6), np.arange(N)
    given = {"bias": alibi([0.5]), "key_offset": np.cumsum(rng.uniform(0.4, 0.6, (1, N)), axis=-1)}
    distances = 0.5 * (np.abs(places[:, None] - places) - 64)  # biases are bounded for 64 offsets at a time
    if name == "key_offset":
        distances = given[name][0, :, None] - given[name][0]
    arguments = trained(rng) | {name: given[name]}
    weights = reference.attention_scores(arguments["q"], arguments["k"], **{name: given[name]}, causal=causal)[0, 0]
    visible, matter = tiles_of(weights > 0), tiles_of(weights > tolerance)
    far = ~tiles_of(distances < 2.1 + math.log(N / tolerance)) & visible
    assert far.sum() > 20
    met, every = (tiles_met(arguments, each, causal=causal) for each in (tolerance, 0))
    for found, without in zip(met, every, strict=True):
        np.testing.assert_array_equal(without, visible)
        assert not (found & far).any()
        assert found[matter].all()


def apart(shape):
    """Factors from 1 to 100 times, one for each sample and head."""
    return np.geomspace(1.0, 100.0, math.prod(shape)).reshape(*shape, 1, 1)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("what", ["q", "k", "bias", "scale", "key_offset"])
def test_every_head_is_guarded_by_its_own_numbers(what, order):
    """100 times apart in norms, slopes or rates: with any other head's numbers, other tiles would be left out."""
    rng, n, heads = np.random.default_rng(0), 700, 4
    arguments = trained(rng, heads, n=n)
    arguments = {name: np.concatenate([array, array[:, ::-1]]) for name, array in arguments.items()}
    arguments |= {name: arguments[name][:, ::2].copy() for name in "kv"}
    arguments["bias"] = np.stack([alibi([0.3] * heads, n)] * 2)
    arguments["scale"] = np.full(heads, 0.25)
    if what == "scale":
        arguments["scale"] *= apart((heads,))[::order, 0, 0]
    elif what == "key_offset":
        rates = 0.02 * apart((2, heads))[::order, ::order, 0]
        arguments |= {"key_offset": np.cumsum(rates * rng.exponential(1.0, (2, heads, n)), axis=-1), "causal": True}
        del arguments["bias"]
    elif what == "bias":
        arguments["bias"] *= 0.1 * apart((2, heads))[::order, ::order, 0]
    else:
        arguments[what] *= apart(arguments[what].shape[:2])[::order, ::order]
    out, pullback = fastpe.attention_vjp(**arguments, tolerance=1e-3)
    found = pullback(np.ones_like(out))
    skipped = 0
    for b in range(2):
        for h in range(heads):
            alone = {name: arguments[name][b, h : h + 1] for name in ("q", "bias", "key_offset") if name in arguments}
            alone |= {name: arguments[name][b, h // 2 : h // 2 + 1] for name in "kv"}
            alone |= {"scale": arguments["scale"][h : h + 1], "causal": what == "key_offset"}
            own, back = fastpe.attention_vjp(**alone, tolerance=1e-3)
            np.testing.assert_array_equal(out[b, h], own[0])
            own = back(np.ones_like(own))
            for name in own.keys() - {"k", "v", "scale"}:  # each of which other heads share
                np.testing.assert_array_equal(found[name][b, h], own[name][0], err_msg=name)
            skipped += left_out(alone, 1e-3).max() > 0
    assert skipped > 2


@pytest.mark.parametrize("ahead", [False, True])
def test_the_largest_norm_of_a_side_counts_and_not_the_nearest(ahead):
    """Beyond tiles whose keys are small stands one that is not."""
    rng, n = np.random.default_rng(1), 900
    arguments = trained(rng, n=n, norm=1.0) | {"bias": alibi([0.15], n)}
    arguments["k"] *= 0.01
    place = n - 1 if ahead else 0
    arguments["k"][0, 0, place] = 400 * arguments["q"][0, 0, 450]
    lost = left_out(arguments, 1e-3)
    assert lost.max() <= 1e-3
    assert abs(fastpe.attention(**arguments, tolerance=1e-3)[0, 0, 450] - arguments["v"][0, 0, place]).max() < 1e-6


UNBOUNDED = (
    "rel_gain", "rel_key", "rel_query", "rel_value", "key_bias", "gain", "values", "scores", "growth", "key_slope",
    "query_slope", "counts",
)  # fmt: skip


@pytest.mark.parametrize("name", [*UNBOUNDED, "rectify"])
def test_no_slot_is_skipped_with_though_the_bias_decays(name):
    """A tolerance with which most tiles would be left out leaves every bit as it is."""
    rng, n = np.random.default_rng(2), 400
    arguments = problem(rng, (), b=1, h=1, n=n, d=6) | {"bias": alibi([0.5], n)}
    most = left_out(arguments, 0.3, causal=True)
    assert most.max() > 1e-9
    arguments |= {"rectify": True} if name == "rectify" else problem(rng, (name,), b=1, h=1, n=n, d=6)
    arguments |= {"bias": alibi([0.5], n)}
    found = []
    for tolerance in (0, 0.3):
        (out, lse), pullback = fastpe.attention_vjp(**arguments, causal=True, tolerance=tolerance, return_lse=True)
        found.append({"out": out, "lse": lse, **pullback(arguments["q"])})
    for key, array in found[0].items():
        np.testing.assert_array_equal(found[1][key], array, err_msg=key)
