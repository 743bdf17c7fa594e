"""Compiled attention beside its reference: every slot, mask, size and kind of array; identities; threads; memory."""

import numpy as np
import pytest
from attention_problems import SLOTS, assert_agrees, problem
from hypothesis import given
from hypothesis import strategies as st

import fastpe

EDGES_N, EDGES_M = (1, 2, 31, 95, 96, 97, 193), (1, 2, 45, 127, 128, 129, 257)


@pytest.fixture
def rng():
    return np.random.default_rng(11)


# ---------------------------------------------------------------------------------------------------------------------
# The error law


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["", *SLOTS])
def test_every_slot_alone(rng, name, dtype):
    """With more keys than queries, keys shared by heads; its rows clipped and not, of all heads or one, led by B."""
    names, causal = (name,) if name else (), name == "growth"
    wide = name in ("rel_gain", "growth")  # their reference goes channel by channel
    for kind in ({}, {"reach": 300, "led": True}, {"shared": True, "reach": 0}):
        arguments = problem(rng, names, h=4, hk=2, n=101, m=140, d=6 if wide else 16, dtype=dtype, **kind)
        assert_agrees(arguments, causal=causal)
    assert_agrees(problem(rng, names, n=140, m=101, d=6, dtype=dtype, reach=7), causal=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_slots_together(rng, dtype):
    arguments = problem(rng, SLOTS, h=2, hk=1, n=99, m=130, d=6, dtype=dtype)
    assert_agrees(arguments, causal=True, rectify=True, pairs="half")
    assert_agrees(arguments, causal=True, window=40, lengths=(np.array([99, 17]), np.array([60, 130])))


@given(data=st.data())
def test_any_combination(data):
    draw = data.draw
    names = draw(st.lists(st.sampled_from(SLOTS), unique=True, max_size=4))
    d = draw(st.sampled_from([1, 2, 3, 7] if {"rel_gain", "growth"} & set(names) else [1, 2, 5, 8, 16, 17, 40]))
    names = [name for name in names if d > 1 or name not in ("angles", "growth")]
    n, m = draw(st.sampled_from(EDGES_N)), draw(st.sampled_from(EDGES_M))
    h = draw(st.sampled_from([1, 2, 4]))
    hk = draw(st.sampled_from([k for k in (1, 2, 4) if h % k == 0]))
    b = draw(st.integers(1, 2))
    reach = draw(st.sampled_from([0, 1, 5, 60, 400]))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    arguments = problem(
        rng, names, b=b, h=h, hk=hk, n=n, m=m, d=d, reach=reach, dtype=dtype,
        led=draw(st.booleans()), shared=draw(st.booleans()),
    )  # fmt: skip
    lengths = None
    if draw(st.booleans()):
        lengths = tuple(np.array([draw(st.integers(0, size)) for _ in range(b)]) for size in (n, m))
        lengths = draw(st.sampled_from([lengths, lengths[1]]))
    assert_agrees(
        arguments, condition=2.0, causal="growth" in names or draw(st.booleans()), lengths=lengths,
        window=draw(st.sampled_from([None, 1, 3, 100, 2**62])), pairs=draw(st.sampled_from(["interleaved", "half"])),
        rectify=dtype == np.float64 and draw(st.booleans()), tolerance=draw(st.sampled_from([None, 0])),
    )  # fmt: skip


@pytest.mark.parametrize("d", [1, 8, 12, 24, 63, 64, 128, 255, 256])
def test_every_width(rng, d):
    names = ("bias", "rel_key", "rel_value", "key_bias") + (("angles",) if d > 1 else ())
    assert_agrees(problem(rng, names, b=1, n=98, m=131, d=d, dtype=np.float32, reach=9), causal=True)


@pytest.mark.parametrize("n", EDGES_N)
@pytest.mark.parametrize("m", EDGES_M)
def test_edges_of_tiles(rng, n, m):
    for causal in (False, True):
        assert_agrees(problem(rng, ("bias", "rel_query"), b=1, n=n, m=m, reach=max(n, m)), causal=causal)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("names", [
    ("rel_gain",), ("growth", "rel_gain"), ("rel_key",), ("rel_query",), ("key_bias",), ("rel_query", "key_bias"),
    ("angles", "rel_query", "key_bias"), ("row_scale", "rel_key", "rel_query", "key_bias"),
])  # fmt: skip
def test_few_queries_among_keys_far_and_near(rng, names, dtype):
    """Keys beyond the reach of vectors over offsets, before the queries and after them, and those within it."""
    for n, reach in ((1, 0), (3, 5), (4, 150)):
        arguments = problem(rng, names, h=4, hk=2, n=n, m=290, d=6, reach=reach, dtype=dtype)
        assert_agrees(arguments, causal="growth" in names)
        if "growth" not in names:
            assert_agrees(arguments | {"query_start": np.array([200, 60])})


@pytest.mark.parametrize("name", ["k", "rel_key", "scale"])
def test_a_gradient_that_is_wrong_is_seen_however_small(rng, monkeypatch, name):
    """Queries of 1e-20 make these gradients so small beside those of values."""
    arguments = problem(rng, ("rel_key", "rel_value", "scale"), n=9, sharp=1e-20)
    assert_agrees(arguments)
    right = fastpe.attention_vjp

    def wrong(*given, **options):
        out, pullback = right(*given, **options)
        return out, lambda dout: {key: (1 + 2e-12 * (key == name)) * found for key, found in pullback(dout).items()}

    monkeypatch.setattr(fastpe, "attention_vjp", wrong)
    with pytest.raises(AssertionError, match=f"^{name}: "):
        assert_agrees(arguments)


@pytest.mark.parametrize("size", [30.0, 1000.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_scores(rng, size, dtype):
    """Scores near +-size: their own rounding is what counts."""
    arguments = problem(rng, ("bias",), n=97, m=130, d=16, reach=130, dtype=dtype)
    arguments["bias"] = np.where(rng.random(arguments["bias"].shape) < 0.5, size, -size).astype(dtype)
    arguments["scale"] = size / 10
    assert_agrees(arguments, condition=size, causal=True)


def test_the_slope_of_rectify_at_zero_is_zero(rng):
    arguments = problem(rng, ("bias",), n=9)
    arguments["q"][:, :, 2:5] = 0
    assert_agrees(arguments, rectify=True)
    found = fastpe.attention_vjp(**arguments, rectify=True)[1](arguments["v"])
    np.testing.assert_array_equal(found["q"][:, :, 2:5], 0)


@pytest.mark.parametrize("names", [("bias",), ("angles", "rel_key", "rel_query", "key_bias"), SLOTS])
def test_nothing_is_read_before_it_is_written(rng, monkeypatch, names):
    """Fresh memory happens to be zero: here it is not."""
    arguments = problem(rng, names, h=4, hk=2, n=140, m=150, d=6)
    options = {"causal": True, "lengths": (np.array([140, 50]), np.array([0, 150]))}

    def results():
        out, pullback = fastpe.attention_vjp(**arguments, **options)
        return {"out": out, **pullback(arguments["q"])}

    expected, empty = results(), np.empty

    def dirty(*given, **more):
        found = empty(*given, **more)
        if found.dtype.kind == "f":
            found.fill(np.nan)
        return found

    monkeypatch.setattr(np, "empty", dirty)
    for name, found in results().items():
        np.testing.assert_array_equal(found, expected[name], err_msg=name)


# ---------------------------------------------------------------------------------------------------------------------
# What is asked for


def test_wrt_chooses(rng):
    arguments = problem(rng, SLOTS, n=20, d=4)
    out, pullback = fastpe.attention_vjp(**arguments, causal=True)
    dout = rng.standard_normal(out.shape)
    every = pullback(dout)
    assert set(every) == set(arguments) - {"index"}
    for wrt in ((), ("q",), *((name,) for name in SLOTS), ("scale", "k", "bias"), ("growth", "angles", "v")):
        some = fastpe.attention_vjp(**arguments, causal=True, wrt=wrt)[1](dout)
        assert list(some) == list(wrt)
        for name in wrt:
            np.testing.assert_array_equal(some[name], every[name], err_msg=name)
    for name, gradient in pullback(dout).items():  # once more
        np.testing.assert_array_equal(gradient, every[name], err_msg=name)


def test_gradients_have_the_dtype_of_what_they_belong_to(rng):
    q = problem(rng, n=9, d=4, dtype=np.float32)
    for dtype in (np.float32, np.float64):
        slots = {"scale": np.full(2, 0.4, dtype), "angles": np.ones((1, 9, 2), dtype), "growth": np.ones((9, 2), dtype)}
        out, pullback = fastpe.attention_vjp(**q, **slots, causal=True)
        found = pullback(np.ones_like(out))
        assert {name: found[name].dtype for name in slots} == dict.fromkeys(slots, dtype)
    assert fastpe.attention_vjp(**q, scale=1)[1](out)["scale"].dtype == np.float64


@pytest.mark.parametrize("attention", [fastpe.attention, fastpe.reference.attention])
def test_of_a_pair_of_lengths_none_is_no_padding(rng, attention):
    arguments = problem(rng, b=2, n=9, m=9)
    for pair, whole in (((None, [4, 2]), ([9, 9], [4, 2])), (([4, 2], None), ([4, 2], [9, 9])), ((None, None), None)):
        np.testing.assert_array_equal(attention(**arguments, lengths=pair), attention(**arguments, lengths=whole))
    np.testing.assert_array_equal(attention(**arguments, lengths=(4, 2)), attention(**arguments, lengths=[4, 2]))
    single = {name: array[0] for name, array in arguments.items()}
    np.testing.assert_array_equal(attention(**single, lengths=(None, 4)), attention(**single, lengths=(9, 4)))


def test_a_scalar_scale_has_a_scalar_gradient(rng):
    arguments = problem(rng, n=9)
    dscale = fastpe.attention_vjp(**arguments, scale=0.3)[1](arguments["q"])["scale"]
    expected = fastpe.reference.attention_vjp(**arguments, scale=0.3)[1](arguments["q"])["scale"]
    assert dscale.shape == ()
    np.testing.assert_allclose(dscale, expected, rtol=1e-12)


def test_none_is_as_good_as_absent(rng):
    arguments = problem(rng, n=9)
    out = fastpe.attention(**arguments, bias=None, scale=None, rel_key=None)
    np.testing.assert_array_equal(out, fastpe.attention(**arguments))


# ---------------------------------------------------------------------------------------------------------------------
# Identities


def test_rows_without_keys(rng):
    arguments = problem(rng, SLOTS, n=140, m=100, d=6)
    lengths = (np.array([140, 50]), np.array([0, 100]))
    (out, lse), pullback = fastpe.attention_vjp(**arguments, causal=True, lengths=lengths, return_lse=True)
    gradients = pullback(np.ones_like(out))
    blind = np.zeros((2, 140), bool)
    blind[0], blind[1, :40], blind[1, 50:] = True, True, True  # no keys; before the first key; padding
    for rows in range(2):
        np.testing.assert_array_equal(out[rows, :, blind[rows]], 0)
        np.testing.assert_array_equal(lse[rows, :, blind[rows]], -np.inf)
        np.testing.assert_array_equal(gradients["q"][rows, :, blind[rows]], 0)
    for name in ("k", "v"):
        np.testing.assert_array_equal(gradients[name][0], 0)
    assert np.isfinite(lse[1, :, 40:50]).all()
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())


def test_padding_may_hold_anything(rng):
    arguments = problem(rng, ("bias",), b=1, n=100, m=140, dtype=np.float32)
    lengths = (np.array([70]), np.array([131]))
    expected = fastpe.attention(**arguments, lengths=lengths)
    arguments["q"][:, :, 70:] = 3e38
    arguments["v"][:, :, 131:] = 3e38
    np.testing.assert_array_equal(fastpe.attention(**arguments, lengths=lengths), expected)


def test_a_single_key_gives_its_value(rng):
    arguments = problem(rng, ("bias", "rel_key", "gain"), n=1)
    np.testing.assert_allclose(fastpe.attention(**arguments), arguments["v"], rtol=1e-15)


def test_a_constant_added_to_the_bias_changes_nothing(rng):
    arguments = problem(rng, ("bias",), n=130, reach=129)
    shifted = {**arguments, "bias": arguments["bias"] + 64.0}
    np.testing.assert_allclose(fastpe.attention(**shifted), fastpe.attention(**arguments), rtol=0, atol=1e-13)
    gradient = fastpe.attention_vjp(**arguments)[1](arguments["q"])["bias"]
    np.testing.assert_allclose(gradient.sum(axis=-1), 0, atol=1e-11)


def test_the_order_of_keys_does_not_matter(rng):
    arguments = problem(rng, ("key_bias",), n=60, m=200)
    order = rng.permutation(200)
    permuted = arguments | {name: arguments[name][:, :, order] for name in "kv"}
    np.testing.assert_allclose(fastpe.attention(**permuted), fastpe.attention(**arguments), rtol=0, atol=1e-14)


def test_decoding_gives_the_last_row(rng):
    arguments = problem(rng, [name for name in SLOTS if name != "scores"], h=4, hk=2, n=150, d=8, reach=200)
    whole = fastpe.attention(**arguments, causal=True, window=120)
    of_queries = {name: arguments[name][..., -1:] for name in ("query_slope", "row_scale")}
    last = fastpe.attention(**{**arguments, "q": arguments["q"][:, :, -1:], **of_queries}, causal=True, window=120)
    np.testing.assert_allclose(last, whole[:, :, -1:], rtol=0, atol=1e-13)
