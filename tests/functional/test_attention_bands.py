"""Attention with bands: beside the reference cell by cell, with all other arguments, merged, refused by name."""

import numpy as np
import pytest
from attention_problems import SLOTS, assert_agrees, problem, random_bands
from hypothesis import given
from hypothesis import strategies as st

import fastpe
from fastpe import bands
from fastpe.functional import attention as host
from fastpe.functional import attention as ways
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES

REFUSED = ("rotors", "angles", "growth", "rel_gain")
OPTIONS = {
    "causal": {"causal": True}, "window": {"window": 9}, "softcap": {"softcap": 2.0}, "half": {"pairs": "half"},
    "dropout": {"dropout": 0.25, "dropout_seed": 7}, "rectify": {"rectify": True},
    "spans": {"spans": "spans"}, "mask": {"mask": "mask"}, "lengths": {"lengths": "lengths"},
}  # fmt: skip


def banded_problem(rng, names=(), *, b=2, n=23, m=None, d=8, dtype=np.float64, count=3, pairs=None, **sizes):
    arguments = problem(rng, [name for name in names if name != "sinks"], b=b, n=n, m=m, d=d, dtype=dtype, **sizes)
    arguments["theta"] = rng.standard_normal(pairs or d // 2)
    if "sinks" in names:
        arguments["sinks"] = rng.standard_normal(arguments["q"].shape[1]).astype(dtype)
    return arguments, random_bands(rng, b, n, m or n, count)


def options_of(rng, names, arguments):
    (b, _, n, _), m = arguments["q"].shape, arguments["k"].shape[2]
    drawn = {
        "spans": np.sort(rng.integers(-1, m + 2, (b, n, 2)), axis=-1),
        "mask": rng.random((b, 1, n, m)) < 0.7, "lengths": rng.integers(0, m + 1, b),
    }  # fmt: skip
    given = {}
    for name in names:
        given |= {
            key: drawn.get(value, value) if isinstance(value, str) else value for key, value in OPTIONS[name].items()
        }
    return given


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", [None, "sinks", *(name for name in SLOTS if name not in REFUSED), *OPTIONS])
def test_every_slot_and_option_goes_with_bands(name, dtype):
    if name == "rectify" and dtype == np.float32:
        pytest.skip("where scores are rounded to 0, a factor of the gradient is 0 or 1 as it happens")
    rng = np.random.default_rng(1)
    arguments, own = banded_problem(rng, [name] if name in (*SLOTS, "sinks") else [], dtype=dtype, hk=1, n=41, m=50)
    assert_agrees(arguments, bands=own, **options_of(rng, [name] if name in OPTIONS else [], arguments))


@given(st.data())
def test_bands_agree_with_the_reference(data):
    sizes = st.sampled_from([1, 2, 5, int(TILE_KEYS), int(TILE_QUERIES) + 1, 70])
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    slots = [*(name for name in SLOTS if name not in REFUSED), "sinks"]
    names = draw(st.lists(st.sampled_from(slots), unique=True, max_size=3))
    arguments, own = banded_problem(
        rng, names, b=draw(st.sampled_from([1, 2])), n=draw(sizes), m=draw(sizes), d=draw(st.sampled_from([2, 3, 8])),
        dtype=draw(st.sampled_from([np.float32, np.float64])), count=draw(st.integers(1, 4)),
        pairs=draw(st.sampled_from([None, 1])),
    )  # fmt: skip
    own = tuple(each._replace(spans=each.spans[:1]) for each in own) if draw(st.booleans()) else own
    arguments["k"] = np.asfortranarray(arguments["k"]) if draw(st.booleans()) else arguments["k"]
    given = options_of(
        rng, draw(st.lists(st.sampled_from(sorted(OPTIONS.keys() - {"rectify"})), unique=True, max_size=2)), arguments
    )
    assert_agrees(arguments, bands=own, tolerance=draw(st.sampled_from([None, 0])), **given)


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


def test_all_places_alike_are_rotary_attention_however_many_bands_there_are():
    rng = np.random.default_rng(3)
    n, theta = 150, bands.frequencies("rope", 150, dim=8)
    q, k, v, dout = (rng.standard_normal((2, 2, n, 8)) for _ in range(4))
    angles = (np.arange(n)[:, None] * theta)[None]
    out, pullback = fastpe.attention_vjp(q, k, v, causal=True, angles=angles)
    whole = pullback(dout)
    edges = np.sort(rng.integers(0, n + 1, (n, 5)), axis=-1)
    edges[:, 0], edges[:, -1] = 0, n
    place = np.arange(float(n))
    own = tuple(bands.Band(place, place, edges[:, each : each + 2]) for each in range(4))
    found, pullback = fastpe.attention_vjp(q, k, v, causal=True, bands=own, theta=theta)
    np.testing.assert_allclose(found, out, rtol=0, atol=1e-13)
    parts = pullback(dout)
    for name in "qkv":
        np.testing.assert_allclose(parts[name], whole[name], rtol=0, atol=1e-12)
    # theta turns rows by their places
    np.testing.assert_allclose(parts["theta"], (place[:, None] * whole["angles"][0]).sum(axis=0), rtol=1e-9)


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


def test_gradients_after_a_forward_pass_that_is_kept():
    rng = np.random.default_rng(6)
    for names in (["sinks"], ["key_offset", "sinks"]):
        arguments, own = banded_problem(rng, names, n=40)
        (out, lse), pullback = fastpe.attention_vjp(**arguments, bands=own, return_lse=True)
        douts = rng.standard_normal(out.shape), rng.standard_normal(lse.shape)
        exact = pullback(douts)
        found = host.gradients(
            out, lse, douts, **arguments, bands=own, causal=False, window=None, lengths=None, tolerance=None,
            wrt=tuple(exact),
        )  # fmt: skip
        for name, gradient in exact.items():
            np.testing.assert_allclose(found[name], gradient, rtol=0, atol=1e-12 * abs(gradient).max())


def test_keys_of_no_band_are_neither_read_nor_turned(monkeypatch):
    rng = np.random.default_rng(7)
    n, theta = 512, bands.frequencies("rope", 512, dim=8)
    q, k, v = (rng.standard_normal((1, n, 8)) for _ in range(3))
    cut, made = k.copy(), []
    cut[:, 40:300], v[:, 40:300] = np.nan, np.nan

    class Counted(ways.Pass):
        def __init__(self, call, *rest, **options):
            super().__init__(call, *rest, **options)
            made.append(self.keys)

    monkeypatch.setattr(ways, "Pass", Counted)
    own = bands.lm_infinite(1, n, window=100, start=4)
    found = fastpe.attention(q[:, -1:], cut, v, bands=own, theta=theta)
    assert made == [slice(412, 512), slice(0, 4)]
    np.testing.assert_allclose(
        found, fastpe.reference.attention(q[:, -1:], k, np.nan_to_num(v), bands=own, theta=theta)
    )


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


@pytest.mark.parametrize(("b", "n", "m"), [(1, 0, 3), (1, 3, 0), (0, 3, 3), (2, 1, 1)])
def test_nothing_to_do(b, n, m):
    arguments = {name: np.ones((b, 2, size, 4)) for name, size in (("q", n), ("k", m), ("v", m))}
    own = bands.self_extend(n, m, group=2, window=2)
    out, pullback = fastpe.attention_vjp(**arguments, bands=own, theta=[1.0, 0.1], sinks=np.zeros(2))
    found = pullback(np.ones_like(out))
    exact, exact_pullback = fastpe.reference.attention_vjp(**arguments, bands=own, theta=[1.0, 0.1], sinks=np.zeros(2))
    np.testing.assert_allclose(out, exact)
    for name, gradient in exact_pullback(np.ones_like(out)).items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-15, err_msg=name)


def test_rows_that_see_nothing_are_zero_and_have_no_gradient():
    rng = np.random.default_rng(9)
    q, k, v, dout = (rng.standard_normal((1, 6, 4)) for _ in range(4))
    nothing = bands.Band(np.zeros(6), np.zeros(6), np.zeros((6, 2), int))
    some = bands.Band(np.zeros(6), np.zeros(6), np.array([[0, 0], [0, 6], [3, 2], [5, 5], [1, 2], [0, 1]]))
    for own in ((nothing,), (nothing, some)):
        (out, lse), pullback = fastpe.attention_vjp(q, k, v, bands=own, theta=[1.0], return_lse=True)
        blind = [0, 2, 3] if len(own) > 1 else list(range(6))
        assert not out[:, blind].any()
        assert np.all(lse[:, blind] == -np.inf)
        assert not pullback(dout)["q"][:, blind].any()


def test_half_precision():
    rng = np.random.default_rng(10)
    q, k, v, dout = (rng.standard_normal((1, 2, 70, 8)).astype(np.float16) for _ in range(4))
    own, theta = bands.rerope(70, window=20), bands.frequencies("rope", 70, dim=8)
    out, pullback = fastpe.attention_vjp(q, k, v, bands=own, theta=theta)
    exact, exact_pullback = fastpe.reference.attention_vjp(q, k, v, bands=own, theta=theta)
    assert out.dtype == np.float16
    np.testing.assert_allclose(out, exact, rtol=0, atol=2e-3)
    found, wanted = pullback(dout), exact_pullback(dout)
    for name, gradient in found.items():
        assert gradient.dtype == (np.float64 if name == "theta" else np.float16)
        np.testing.assert_allclose(gradient, wanted[name], rtol=2e-3, atol=2e-3 * abs(wanted[name]).max())
    one = fastpe.attention(q[:, :, -1:], k, v, bands=bands.rerope(1, 70, window=20), theta=theta)
    np.testing.assert_allclose(one, exact[:, :, -1:], rtol=0, atol=2e-3)


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
