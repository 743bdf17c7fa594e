"""Tiles that are left out: never more than is promised, never where it matters, and where theory says they may be.

How much of a row is left out is seen from outside: the logarithm of the denominator falls by -log(1 - what is left
out), and values (or dout) that mark tiles (or blocks) show which ones have had a part.
"""

import math

import numpy as np
import pytest
from guards import assert_error_law
from hypothesis import given
from hypothesis import strategies as st
from skipping import N, alibi, assert_no_more_is_left_out, left_out, trained

import fastpe
from fastpe.functional.arguments import _OPTIONS
from fastpe.kernels.attention.inputs import Options
from fastpe.kernels.attention.score import bounded, keeps_raw
from fastpe.kernels.attention.slots import SLOTS, Slot
from fastpe.reference._attention import attention_vjp_in

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
    assert_no_more_is_left_out(CASES[case](np.random.default_rng(3)), tolerance, causal=causal)


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
def test_errors_of_gradients_are_bounded_by_the_tolerance(case, tolerance):
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


def along_a_line(rng, tolerance, excess):
    """All queries and keys along one line, so that the bound on scores is met: far keys weigh about the tolerance."""
    q, k = np.zeros((1, 1, N, 16)), np.zeros((1, 1, N, 16))
    q[..., 0], k[..., 0] = 4.0, rng.uniform(0, 1, N)
    near = np.abs(np.arange(1 - N, N)) < 200
    bias = np.where(near, 0.0, math.log(tolerance / N) + excess)[None]
    return {"q": q, "k": k, "v": rng.standard_normal(k.shape), "bias": bias}


@given(st.integers(0, 2**32), st.floats(-3.0, 3.0), st.sampled_from([1e-2, 1e-6]))
def test_around_the_bound_itself(seed, excess, tolerance):
    arguments = along_a_line(np.random.default_rng(seed), tolerance, excess)
    assert left_out(arguments, tolerance).max() <= tolerance + 1e-14


def test_both_sides_of_the_bound_occur():
    some, nothing = (left_out(along_a_line(np.random.default_rng(0), 1e-2, excess), 1e-2) for excess in (-3.0, 3.0))
    assert some.max() > 1e-8
    assert nothing.max() < 1e-14


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


def test_what_is_left_out_is_not_read():
    arguments = trained(np.random.default_rng(7)) | {"bias": alibi([0.5]), "causal": True}
    calm = fastpe.attention(**arguments, tolerance=1e-6)
    arguments["v"][0, 0, :128] = np.nan
    np.testing.assert_array_equal(fastpe.attention(**arguments, tolerance=1e-6)[0, 0, 500:], calm[0, 0, 500:])
    assert np.isnan(fastpe.attention(**arguments, tolerance=0)).all()


_BOUNDED = {"bias", "rotors", "polar", "angles", "key_offset", "row_scale", "sinks", "theta"}


def test_a_tile_on_the_diagonal_is_skipped_by_its_visible_scores_alone():
    """The scores after the diagonal are not computed there: earlier contents of memory must not count."""
    q, k = (np.zeros((1, 1, 768, 16), np.float32) for _ in range(2))
    q[..., 0], k[..., 0], k[..., 384:512, 0] = 10, 2, -16  # keys 384 to 511 have the weight exp(-45), the others 1
    out, pullback = fastpe.attention_vjp(q, k, k, causal=True, bias=np.zeros((1, 1535), np.float32))
    dk = pullback(out)["k"]
    assert not dk[..., 384:512, :].any()
    assert dk[..., :384, 0].all()


@pytest.mark.parametrize("name", sorted({*SLOTS, *Options._fields} - _BOUNDED))
def test_only_these_terms_are_bounded(name):
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
