"""Attention with bands: beside the reference cell by cell, with all other arguments, merged, refused by name."""

import numpy as np
import pytest
from attention_options import OPTIONS, options
from attention_problems import assert_agrees, problem, random_bands
from hypothesis import given
from hypothesis import strategies as st

import fastpe
from fastpe import bands
from fastpe.functional.slots import REFUSED
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES

# wide_offset: bands are merged by their lse, whose rounding is that of offsets of 10,000
APART = {"return_lse", "tolerance", "theta", "wide_offset", *REFUSED["bands"]}
NAMES = [name for name in OPTIONS if name not in APART]


def banded_problem(rng, names=(), *, b=2, h=2, n=23, m=None, d=8, dtype=np.float64, count=3, pairs=None, **sizes):
    m = m or n
    names = sorted(names, key=lambda name: name == "sinks")  # whose gradient comes last
    arguments = problem(rng, (), b=b, h=h, n=n, m=m, d=d, dtype=dtype, **sizes)
    arguments |= {"theta": rng.standard_normal(pairs or d // 2), **options(rng, names, b, h, n, m, d, dtype)}
    return arguments, random_bands(rng, b, n, m, count)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", NAMES)
def test_every_slot_and_option_goes_with_bands(name, dtype):
    if name == "rectify" and dtype == np.float32:
        pytest.skip("where scores are rounded to 0, a factor of the gradient is 0 or 1 as it happens")
    arguments, own = banded_problem(np.random.default_rng(1), [name], dtype=dtype, hk=1, n=41, m=50)
    assert_agrees(arguments, bands=own)


@given(st.data())
def test_bands_agree_with_the_reference(data):
    sizes = st.sampled_from([1, 2, 5, int(TILE_KEYS), int(TILE_QUERIES) + 1, 70])
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    names = draw(st.lists(st.sampled_from(sorted({*NAMES} - {"rectify"})), unique=True, max_size=4))
    arguments, own = banded_problem(
        rng, names, b=draw(st.sampled_from([1, 2])), n=draw(sizes), m=draw(sizes), d=draw(st.sampled_from([2, 3, 8])),
        dtype=draw(st.sampled_from([np.float32, np.float64])), count=draw(st.integers(1, 4)),
        pairs=draw(st.sampled_from([None, 1])),
    )  # fmt: skip
    own = tuple(each._replace(spans=each.spans[:1]) for each in own) if draw(st.booleans()) else own
    arguments["k"] = np.asfortranarray(arguments["k"]) if draw(st.booleans()) else arguments["k"]
    assert_agrees(arguments, bands=own, tolerance=draw(st.sampled_from([None, 0])))


def schemes(n, causal=True):
    """Every scheme with windows that divide nothing."""
    yield bands.self_extend(n, group=3, window=n // 3 + 1)
    yield bands.rerope(n, window=n // 4 + 1, causal=causal)
    yield bands.leaky_rerope(n, window=n // 5 + 1, step=3, causal=causal)
    yield bands.dual_chunk(n, chunk=n // 3 + 2, local=2)
    yield bands.lm_infinite(n, window=n // 4 + 1, start=2)
    yield bands.streaming(n, start=3, recent=n // 4 + 1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("causal", [True, False])
def test_schemes_agree_with_the_reference_at_sharp_scores_and_with_biases(dtype, causal):
    rng = np.random.default_rng(2)
    n = 2 * int(TILE_QUERIES) + 5
    for own in schemes(n, causal):
        arguments = problem(rng, ["bias", "key_bias"], b=1, n=n, d=8, dtype=dtype, reach=n - 1, sharp=30.0)
        arguments["theta"] = bands.frequencies("rope", n, dim=8)
        assert_agrees(arguments, bands=own, condition=30.0, causal=causal)


def test_central_differences_of_theta():
    rng = np.random.default_rng(4)
    arguments, own = banded_problem(rng, ["sinks"], n=9)
    dout = rng.standard_normal(arguments["q"].shape)
    _, pullback = fastpe.attention_vjp(**arguments, bands=own, causal=True)
    found, theta = pullback(dout)["theta"], arguments["theta"]
    for t in range(len(theta)):
        ends = []
        for step in (1e-6, -1e-6):
            moved = theta.copy()
            moved[t] += step
            out = fastpe.reference.attention(**{**arguments, "theta": moved}, bands=own, causal=True)
            ends.append(np.sum(out * dout))
        assert found[t] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-8)


def test_key_offsets_as_large_as_sums_of_gates_may_be_lose_nothing():
    rng = np.random.default_rng(5)
    arguments, own = banded_problem(rng, [], n=100, dtype=np.float32, b=1)
    arguments["key_offset"] = np.float32(50) * np.arange(100, dtype=np.float32)[None]
    assert_agrees(arguments, bands=own, causal=True)


def test_tiles_of_no_band_cost_nothing():
    """Skipping is seen by what must not be read: values of tiles that no band holds are no numbers, and spread not."""
    rng = np.random.default_rng(8)
    n, theta = 8 * int(TILE_KEYS), bands.frequencies("rope", 512, dim=8)
    q, k, v, dout = (rng.standard_normal((1, n, 8)) for _ in range(4))
    rows = slice(n - int(TILE_QUERIES), n)
    own = bands.lm_infinite(int(TILE_QUERIES), n, window=int(TILE_KEYS), start=4)
    hidden = slice(int(TILE_KEYS), 5 * int(TILE_KEYS))
    v[:, hidden] = np.nan
    out, pullback = fastpe.attention_vjp(q[:, rows], k, v, bands=own, theta=theta)
    found = pullback(dout[:, rows])
    assert np.isfinite(out).all()
    assert all(np.isfinite(gradient).all() for gradient in found.values())
    assert not found["k"][:, hidden].any()
    assert not found["v"][:, hidden].any()


def test_tiles_that_a_decaying_bias_makes_faint_are_left_out_of_bands_too():
    rng = np.random.default_rng(11)
    tile, block = int(TILE_KEYS), int(TILE_QUERIES)
    n, theta = 8 * tile, bands.frequencies("rope", 1024, dim=8)
    q, k, v, dout = (rng.standard_normal((1, n, 8)) for _ in range(4))
    rows, own = slice(n - block, n), bands.self_extend(block, n, group=4, window=4 * tile)
    bias = -np.abs(np.arange(1.0 - n, n))[None]
    given = {"bands": own, "theta": theta, "bias": bias, "causal": True}
    out, pullback = fastpe.attention_vjp(q[:, rows], k, v, **given)
    wanted = pullback(dout[:, rows])
    for first in (0, 5 * tile):  # far behind the nearest keys of the band beyond the window, and of that within
        v[:, first : first + tile] = np.nan
    found, pullback = fastpe.attention_vjp(q[:, rows], k, v, **given)
    np.testing.assert_array_equal(found, out)
    np.testing.assert_array_equal(pullback(dout[:, rows])["q"], wanted["q"])
    assert np.isnan(fastpe.attention(q[:, rows], k, v, tolerance=0, **given)).all()


GOOD = bands.rerope(4, window=2)
OVERLAP = (*GOOD, GOOD[0])


@pytest.mark.parametrize(("wrong", "named"), [
    ({"theta": None}, "bands and theta"), ({"bands": None}, "bands and theta"), ({"bands": ()}, "bands"),
    ({"bands": GOOD[0]}, "bands"), ({"bands": "ab"}, "bands"), ({"bands": [(1, 2)]}, r"bands\[0\]"),
    ({"bands": OVERLAP}, r"bands\[0\] and bands\[2\] both have key 0 of query 0"),
    ({"bands": (GOOD[0], GOOD[0]._replace(spans=np.eye(4, 2, 1, int)))}, "both have key 0 of query 0"),
    ({"bands": bands.rerope(5, window=2)}, r"bands\[0\].queries"),
    ({"bands": bands.rerope(4, 5, window=2)}, r"bands\[0\].keys"),
    ({"bands": [GOOD[0]._replace(spans=np.zeros((4, 2)))]}, r"bands\[0\].spans"),
    ({"bands": [GOOD[0]._replace(spans=np.zeros((4, 3), int))]}, r"bands\[0\].spans"),
    ({"bands": [GOOD[0]._replace(queries=np.full(4, np.nan))]}, r"bands\[0\].queries"),
    ({"bands": [GOOD[0]._replace(keys=np.zeros((3, 4)))]}, r"bands\[0\].keys"),
    ({"rotors": np.zeros((1, 1, 2, 2, 2))}, "rotors"), ({"polar": np.zeros((1, 4))}, "polar"),
    ({"angles": np.zeros((1, 4, 1))}, "angles"),
    ({"growth": np.zeros((4, 1)), "causal": True}, "growth"),
    ({"rel_gain": np.ones((1, 3, 4))}, "rel_gain"), ({"theta": [1.0, 2.0, 3.0]}, "theta"), ({"theta": 1.0}, "theta"),
    ({"theta": [[1.0]]}, "theta"), ({"theta": [np.inf]}, "theta"), ({"wrt": ("bands",)}, "bands"),
])  # fmt: skip
def test_mistakes_are_refused_by_name(wrong, named):
    q = np.ones((1, 4, 4))
    arguments = {"bands": GOOD, "theta": [1.0], **wrong}
    with pytest.raises((TypeError, ValueError), match=named):
        fastpe.attention_vjp(q, q, q, **arguments)
    if wrong.keys() & {"wrt"} or np.any(np.isinf(np.asarray(wrong.get("theta") or 0.0))):
        return
    for attention in (fastpe.attention, fastpe.reference.attention):
        with pytest.raises((TypeError, ValueError), match=named):
            attention(q, q, q, **arguments)
