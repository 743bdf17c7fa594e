"""Tiles that are left out: never more than is promised, never where it matters, and where theory says they may be.

How much of a row is left out is seen from outside: the logarithm of the denominator falls by -log(1 - what is left
out), and values (or dout) that mark tiles (or blocks) show which ones have had a part.
"""

import math
from typing import NamedTuple

import numpy as np
import pytest
from guards import assert_error_law
from hypothesis import given
from hypothesis import strategies as st
from skipping import N, alibi, left_out, tiles_met, trained

import fastpe
from fastpe.functional.arguments import _OPTIONS
from fastpe.kernels.attention.inputs import Options
from fastpe.kernels.attention.score import bounded, keeps_raw, terms_given
from fastpe.kernels.attention.slots import SLOTS, Slot
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES
from fastpe.reference._attention import attention_vjp_in

BLOCKS, TILES = -(-N // int(TILE_QUERIES)), -(-N // int(TILE_KEYS))


def exact_weights(q, k, bias, causal=False, **_):
    """P in float64, NumPy only."""
    n = q.shape[2]
    offsets = np.arange(n) - np.arange(n)[:, None]
    scores = np.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.shape[-1]) + bias[:, offsets + bias.shape[-1] // 2]
    if causal:
        scores = np.where(offsets > 0, -np.inf, scores)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def heaviest(weights):
    """[block, tile]: the largest sum of a row of weights within the tile."""
    sums = np.add.reduceat(weights[0, 0], np.arange(0, N, int(TILE_KEYS)), axis=1)
    return np.maximum.reduceat(sums, np.arange(0, N, int(TILE_QUERIES)), axis=0)


# ---------------------------------------------------------------------------------------------------------------------
# The bound


CASES = {
    "steep": lambda rng: trained(rng) | {"bias": alibi([0.5])},
    "gentle": lambda rng: trained(rng) | {"bias": alibi([2.0**-6])},
    "logarithmic": lambda rng: trained(rng) | {"bias": -6 * np.log1p(np.abs(np.arange(1 - N, N)))[None]},
    "rough": lambda rng: trained(rng) | {"bias": rng.uniform(-400, 0, (1, 2 * N - 1))},
    "peaks far away": lambda rng: trained(rng) | {"bias": peaks(rng)},
    "no decay": lambda rng: trained(rng) | {"bias": np.zeros((1, 2 * N - 1))},
    "constant scores": lambda rng: trained(rng, norm=0.0) | {"bias": alibi([0.03])},
    "a key aligned with all queries": lambda rng: aligned(rng, 300.0),
    "an aligned key of huge norm": lambda rng: aligned(rng, 1e6),
    "keys of very different norms": lambda rng: uneven(rng),
    "first offsets only": lambda rng: trained(rng) | {"bias": alibi([0.2], 150)},
}


def peaks(rng):
    bias = np.full((1, 2 * N - 1), -500.0)
    bias[0, N - 1] = 0.0
    bias[0, rng.integers(0, 2 * N - 1, 6)] = rng.uniform(-20, 5, 6)
    return bias


def aligned(rng, norm):
    """The first key is far from most queries, and they all look for it."""
    arguments = trained(rng) | {"bias": alibi([0.5])}
    arguments["q"] += 1.0
    arguments["k"][0, 0, 0] = norm / 4
    return arguments


def uneven(rng):
    arguments = trained(rng) | {"bias": alibi([0.25])}
    arguments["k"] *= np.exp(rng.uniform(-8, 5, (1, 1, N, 1)))
    arguments["q"] *= np.exp(rng.uniform(-8, 3, (1, 1, N, 1)))
    return arguments


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tolerance", [None, 1e-9, 1e-3, 0.3])
@pytest.mark.parametrize("case", CASES)
def test_no_more_than_the_tolerance_is_left_out(case, tolerance, causal):
    arguments = CASES[case](np.random.default_rng(3))
    most = np.finfo(np.float64).eps / 4 if tolerance is None else tolerance
    lost = left_out(arguments, tolerance, causal=causal)
    size = 1 + abs(fastpe.attention(**arguments, return_lse=True, causal=causal)[1]).max()
    assert lost.max() <= most + 4e-16 * size
    every, some = (fastpe.attention(**arguments, tolerance=t, causal=causal) for t in (0, tolerance))
    assert abs(some - every).max() <= 2 * most * abs(arguments["v"]).max() + 1e-14 * size


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
def test_by_default_the_error_law_holds(case, dtype):
    """Against weights in float64, or wider."""
    arguments = {name: array.astype(dtype) for name, array in CASES[case](np.random.default_rng(4)).items()}
    short = {name: array[:, :, :400] if name in "qkv" else array for name, array in arguments.items()}
    wide = np.float64 if dtype == np.float32 else np.longdouble
    exact, plain = (attention_vjp_in(kind, **short, causal=True) for kind in (wide, dtype))
    out, pullback = fastpe.attention_vjp(**short, causal=True)
    assert_error_law(out, exact[0], plain[0], 816, condition=4)
    gradients, exact, plain = (found(short["v"]) for found in (pullback, exact[1], plain[1]))
    a, size = (np.linalg.norm(short["v"], axis=-1).max() ** 2, {name: abs(short[name]).max() for name in "qkv"})
    natural = {"q": a * size["k"], "k": 400 * a * size["q"], "v": 400 * size["v"], "bias": 400 * a}
    for name, gradient in gradients.items():  # P (dP - delta) cancels up to the precision of dP
        bound = 2 * abs(plain[name] - exact[name]).max() + 8 * np.finfo(dtype).eps * natural[name]
        assert abs(gradient - exact[name]).max() <= bound


@pytest.mark.parametrize("tolerance", [1e-7, 1e-3])
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_off_by_no_more_than_follows(case, tolerance):
    """With A = max|dout_i| max|v_j| >= |dP|, |delta|: a row of dS is off by at most 6 tolerance A in all."""
    rng = np.random.default_rng(5)
    arguments = CASES[case](rng)
    dout = rng.standard_normal(arguments["q"].shape)
    every, some = (fastpe.attention_vjp(**arguments, tolerance=t, causal=True)[1](dout) for t in (0, tolerance))
    norms = {name: np.linalg.norm(array, axis=-1) for name, array in {**arguments, "dout": dout}.items()}
    row = 6.1 * tolerance * norms["dout"].max() * norms["v"].max()
    scale, rounding = 0.25, 1e-9 * max(abs(gradient).max() for gradient in every.values())
    error = {name: abs(some[name] - every[name]) for name in every}
    assert error["q"].max() <= scale * row * norms["k"].max() + rounding
    assert error["k"].max() <= scale * row * norms["q"].sum() + rounding
    assert error["bias"].sum() <= row * N + rounding
    assert error["v"].sum(axis=2).max() <= 2.1 * tolerance * abs(dout).sum(axis=2).max() + rounding


@given(st.integers(0, 2**32), st.floats(-3.0, 3.0), st.sampled_from([1e-2, 1e-6]))
def test_around_the_bound_itself(seed, excess, tolerance):
    """All queries and keys along one line, so that the bound on scores is met: far keys weigh about the tolerance."""
    rng = np.random.default_rng(seed)
    q, k = np.zeros((1, 1, N, 16)), np.zeros((1, 1, N, 16))
    q[..., 0], k[..., 0] = 4.0, rng.uniform(0, 1, N)
    near = np.abs(np.arange(1 - N, N)) < 200
    bias = np.where(near, 0.0, math.log(tolerance / N) + excess)[None]
    arguments = {"q": q, "k": k, "v": rng.standard_normal(k.shape), "bias": bias}
    assert left_out(arguments, tolerance).max() <= tolerance + 1e-14


def test_both_sides_of_the_bound_occur():
    """The sweep above is about the bound: some of it is left out, some is not."""
    rng, lost = np.random.default_rng(0), []
    for excess in (-3.0, 3.0):
        q, k = np.zeros((1, 1, N, 16)), np.zeros((1, 1, N, 16))
        q[..., 0], k[..., 0] = 4.0, rng.uniform(0, 1, N)
        bias = np.where(np.abs(np.arange(1 - N, N)) < 200, 0.0, math.log(1e-2 / N) + excess)[None]
        lost.append(left_out({"q": q, "k": k, "v": k, "bias": bias}, 1e-2).max())
    assert lost[0] > 1e-8
    assert lost[1] < 1e-14


def test_squares_that_underflow_count():
    """Norms whose squares are no float32: the scores are not small."""
    q, k = (np.zeros((1, 1, 600, 8), np.float32) for _ in range(2))
    q[..., 0], k[..., :300, 0] = 1e-24, 1e14
    v = np.zeros_like(k)
    v[..., :300, :] = 1
    arguments = {"q": q, "k": k, "v": v, "bias": alibi([0.2], 600).astype(np.float32), "scale": 1.5e12}
    np.testing.assert_allclose(
        fastpe.attention(**arguments), fastpe.reference.attention(**arguments), rtol=0, atol=1e-4
    )


# ---------------------------------------------------------------------------------------------------------------------
# Which tiles


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tolerance", [1e-12, 1e-4])
@pytest.mark.parametrize("slope", [0.5, 0.25])
def test_tiles_are_left_out_where_theory_says_and_kept_where_they_matter(slope, tolerance, causal):
    """|s q.k| <= s |q| |k| = 1 here, and a row's maximum is at least its diagonal score, -1."""
    arguments = trained(np.random.default_rng(6)) | {"bias": alibi([slope])}
    met = tiles_met(arguments, tolerance, causal=causal)
    every = tiles_met(arguments, 0, causal=causal)
    weights = heaviest(exact_weights(**arguments, causal=causal))
    first_query, first_key = np.arange(BLOCKS) * int(TILE_QUERIES), np.arange(TILES) * int(TILE_KEYS)
    last_query = np.minimum(first_query + int(TILE_QUERIES), N) - 1
    last_key = np.minimum(first_key + int(TILE_KEYS), N) - 1
    gap = np.maximum(first_query[:, None] - last_key, first_key - last_query[:, None])
    far = slope * (gap - 64) > 2.1 + math.log(N / tolerance)  # biases are bounded for 64 offsets at a time
    visible = weights > 0
    assert (far & visible).sum() > 20
    for found, without in zip(met, every, strict=True):
        np.testing.assert_array_equal(without, visible)
        assert not (found & far).any()
        assert found[weights > tolerance].all()


def test_what_is_left_out_is_not_read_into_the_result():
    """Huge values behind tiles that are left out; they would be seen."""
    arguments = trained(np.random.default_rng(7)) | {"bias": alibi([0.5])}
    calm = fastpe.attention(**arguments, causal=True, tolerance=1e-6)
    arguments["v"][0, 0, :128] = 1e300
    loud = fastpe.attention(**arguments, causal=True, tolerance=1e-6)
    np.testing.assert_array_equal(loud[0, 0, 500:], calm[0, 0, 500:])
    assert abs(fastpe.attention(**arguments, causal=True, tolerance=0)[0, 0, 500]).max() > 1e100
    arguments["v"][0, 0, :128] = np.nan
    np.testing.assert_array_equal(
        fastpe.attention(**arguments, causal=True, tolerance=1e-6)[0, 0, 500:], calm[0, 0, 500:]
    )
    assert np.isnan(fastpe.attention(**arguments, causal=True, tolerance=0)).all()


@pytest.mark.parametrize("slots", [{"scores": np.zeros((1, N, N))}, {"gain": np.full((1, 3), 50.0)}, {"rectify": True}])
def test_scores_that_the_bound_does_not_cover_are_all_computed(slots):
    """A far key that another term lifts."""
    arguments = trained(np.random.default_rng(8)) | {"bias": alibi([0.5])} | slots
    if "scores" in slots:
        slots["scores"][0, -1, 0] = 600.0
    out = fastpe.attention(**arguments, causal=True)
    np.testing.assert_allclose(out, fastpe.reference.attention(**arguments, causal=True), rtol=0, atol=1e-11)


_BOUNDED = {"bias", "rotors", "polar", "angles", "key_offset", "row_scale", "sinks", "theta"}


@pytest.mark.parametrize("name", sorted({*SLOTS, *Options._fields} - _BOUNDED))
def test_no_other_term_is_said_to_be_bounded(name):
    assert bounded(frozenset(_BOUNDED))
    assert not bounded(frozenset({"bias", name}))


def test_a_slot_that_nobody_knows_leaves_nothing_out(monkeypatch):
    """A slot is not bounded, and skipped with, before somebody says so."""
    arguments = trained(np.random.default_rng(11)) | {"bias": alibi([0.5])}
    every, some = (fastpe.attention_vjp(**arguments, tolerance=t)[1](arguments["v"]) for t in (0, 1e-3))
    assert (every["q"] != some["q"]).any()
    monkeypatch.setitem(SLOTS, "tomorrow", Slot(("H",), "what comes tomorrow"))
    unknown = fastpe.attention_vjp(**arguments, tomorrow=np.ones(1), tolerance=1e-3, wrt=("q", "k", "v"))
    for name, gradient in unknown[1](arguments["v"]).items():
        np.testing.assert_array_equal(gradient, every[name])


def test_an_option_that_nobody_knows_leaves_nothing_out():
    class Tomorrow(NamedTuple):
        rectify: int = 0
        tomorrow: float = 0.0

    assert bounded(terms_given(["bias"], Tomorrow()))
    assert not bounded(terms_given(["bias"], Tomorrow(tomorrow=0.5)))


def test_every_term_that_is_no_array_is_an_option():
    """What the kernels take otherwise, nobody asks whether the bound holds with it. It does with scale, pairs, with
    what hides keys, and with what is done to weights."""
    harmless = {"scale", "pairs", "spans", "bands", "query_start", "mask", "dropout", "dropout_seed"}
    assert {*_OPTIONS} - harmless == {*Options._fields}
    assert not any(bounded(frozenset({"bias", name})) for name in (*Options._fields, "mask"))
    assert keeps_raw(frozenset({"rectify"}), wants_scale=False)


@pytest.mark.parametrize("scale", [-8.0, 8.0])
def test_the_sign_and_size_of_the_scale_count(scale):
    arguments = aligned(np.random.default_rng(9), 60.0 * np.sign(scale)) | {"scale": scale}
    out = fastpe.attention(**arguments, causal=True)
    np.testing.assert_allclose(out, fastpe.reference.attention(**arguments, causal=True), rtol=0, atol=1e-11)
    assert abs(out[0, 0, -1] - arguments["v"][0, 0, 0]).max() < 1e-6


def test_eight_slopes_with_rotations_and_shared_keys():
    """As a trained model has them: ALiBi's standard slopes, N = 2048, grouped queries."""
    rng = np.random.default_rng(10)
    arguments = trained(rng, heads=8, n=2048, norm=4.0)
    arguments |= {name: arguments[name][:, ::4] for name in "kv"}
    arguments["bias"] = alibi(2.0 ** -np.arange(1, 9), 2048)
    arguments["angles"] = rng.uniform(-math.pi, math.pi, (1, 2048, 8))
    arguments = {name: array if name == "angles" else array.astype(np.float32) for name, array in arguments.items()}
    every, some = (fastpe.attention_vjp(**arguments, tolerance=t, causal=True) for t in (0, None))
    np.testing.assert_allclose(some[0], every[0], rtol=0, atol=2e-6)
    gradients = every[1](arguments["q"]), some[1](arguments["q"])
    for name, gradient in gradients[0].items():
        np.testing.assert_allclose(gradients[1][name], gradient, rtol=0, atol=1e-5 * abs(gradient).max(), err_msg=name)
