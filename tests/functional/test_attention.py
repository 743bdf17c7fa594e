"""Compiled attention agrees with its reference: every slot and size, gradients on request, limits, kinds of arrays."""

import numpy as np
import pytest
from array_kinds import read_only, transposed
from attention_problems import SLOTS, assert_agrees, problem

import fastpe
from fastpe.kernels.attention import calls

EDGES_N, EDGES_M = (1, 2, 31, 95, 96, 97, 193), (1, 2, 45, 127, 128, 129, 257)
COLUMNS = ("key_offset", "key_slope", "query_slope", "row_scale")


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
def test_the_comparison_finds_a_small_mistake_in_a_small_gradient(rng, monkeypatch, name):
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


# ---------------------------------------------------------------------------------------------------------------------
# What is asked for


def test_gradients_have_the_dtype_of_their_argument(rng):
    q = problem(rng, n=9, d=4, dtype=np.float32)
    for dtype in (np.float32, np.float64):
        slots = {"scale": np.full(2, 0.4, dtype), "angles": np.ones((1, 9, 2), dtype), "growth": np.ones((9, 2), dtype)}
        out, pullback = fastpe.attention_vjp(**q, **slots, causal=True)
        found = pullback(np.ones_like(out))
        assert {name: found[name].dtype for name in slots} == dict.fromkeys(slots, dtype)
    assert fastpe.attention_vjp(**q, scale=1)[1](out)["scale"].dtype == np.float64


@pytest.mark.parametrize("attention", [fastpe.attention, fastpe.reference.attention])
def test_none_in_a_pair_of_lengths_means_no_padding(rng, attention):
    arguments = problem(rng, b=2, n=9, m=9)
    for pair, whole in (((None, [4, 2]), ([9, 9], [4, 2])), (([4, 2], None), ([4, 2], [9, 9])), ((None, None), None)):
        np.testing.assert_array_equal(attention(**arguments, lengths=pair), attention(**arguments, lengths=whole))
    np.testing.assert_array_equal(attention(**arguments, lengths=(4, 2)), attention(**arguments, lengths=[4, 2]))
    single = {name: array[0] for name, array in arguments.items()}
    np.testing.assert_array_equal(attention(**single, lengths=(None, 4)), attention(**single, lengths=(9, 4)))


def test_an_argument_that_is_none_counts_as_absent(rng):
    arguments = problem(rng, n=9)
    out = fastpe.attention(**arguments, bias=None, scale=None, rel_key=None)
    np.testing.assert_array_equal(out, fastpe.attention(**arguments))


# ---------------------------------------------------------------------------------------------------------------------
# Limits


def test_padding_may_hold_anything(rng):
    arguments, found = problem(rng, ("bias",), b=1, n=100, m=240), []
    for padding in (0.0, np.nan):
        for name, end in (("q", 70), ("k", 131), ("v", 131)):
            arguments[name][:, :, end:] = padding
        out, pullback = fastpe.attention_vjp(**arguments, lengths=([70], [131]))
        found.append({"out": out, **pullback(np.ones_like(out))})
    for name, zeros in found[0].items():
        np.testing.assert_array_equal(found[1][name], zeros, err_msg=name)


def test_kernels_are_compiled_once_for_each_dtype(rng):
    """Whatever slots, strides and axes there are, read-only or not."""
    for names in ((), SLOTS, ("bias",), ("scale",), COLUMNS):
        for dtype in (np.float32, np.float64):
            arguments = problem(rng, names, n=5, d=4, dtype=dtype)
            for kind in (np.array, read_only, transposed):
                given = {name: kind(array) if name in "qkv" else array for name, array in arguments.items()}
                out, pullback = fastpe.attention_vjp(**given, causal=True)
                pullback(kind(np.ones_like(out)))
    for function in (calls.forward, calls.backward):
        # dropout is another kernel, and so are keys of half precision
        without = [each for each in function.signatures if str(each[3]) == "none" and "int16" not in str(each[2])]
        assert len(without) <= 8  # with slots other than a bias and columns, and without; with columns, and without
        assert sum("Columns" not in str(each[2]) for each in without) <= 4


def test_growth_that_overflows_within_a_tile_is_refused():
    q = np.ones((1, 97, 16), np.float32)
    slots = fastpe.build("xpos", 97, dim=16, causal=True, scale_base=1)
    with pytest.raises(ValueError, match="growth must change by at most 80 within 96 positions in float32, not by 119"):
        fastpe.attention(q, q, q, causal=True, **slots)


def test_outputs_may_be_written_to_before_gradients_are_asked_for():
    q, k, v = (np.random.default_rng(i).normal(size=(1, 20, 8)) for i in range(3))
    (out, lse), pullback = fastpe.attention_vjp(q, k, v, return_lse=True)
    before = pullback(v)
    out += 1
    lse[...] = 0
    for name, gradient in pullback(v).items():
        np.testing.assert_array_equal(gradient, before[name])


def test_a_bias_near_the_lowest_number_changes_nothing_if_it_is_constant():
    q, k, v = (np.random.default_rng(i).normal(size=(1, 300, 8)) for i in range(3))
    low = np.full((1, 599), -1.5e308)
    np.testing.assert_allclose(fastpe.attention(0 * q, k, v, bias=low), fastpe.attention(0 * q, k, v), atol=1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# Arrays of any kind


def test_heads_may_share_memory(rng):
    """Heads and sequences that are one and the same memory (strides of zero)."""
    q, k, v = (problem(rng, n=50, d=8)[name] for name in "qkv")
    one = np.ascontiguousarray(k[:1, :1])
    broad = np.lib.stride_tricks.as_strided(one, k.shape, (0, 0, *one.strides[2:]))
    for slots in ({}, {"angles": rng.standard_normal((1, 50, 4))}):
        expected = fastpe.attention(q, np.array(broad), v, **slots)
        np.testing.assert_array_equal(fastpe.attention(q, broad, v, **slots), expected)


def test_without_a_batch_axis(rng):
    arguments = problem(rng, ("bias", "scores", "scale"), b=1, n=40)
    single = {name: array[0] if name in "qkv" else array for name, array in arguments.items()}
    dout = rng.standard_normal(single["q"].shape)
    (out, lse), pullback = fastpe.attention_vjp(**single, return_lse=True, lengths=(30, 35))
    expected, expected_pullback = fastpe.attention_vjp(
        **arguments, return_lse=True, lengths=(np.array([30]), np.array([35]))
    )
    np.testing.assert_array_equal(out, expected[0][0])
    np.testing.assert_array_equal(lse, expected[1][0])
    for name, gradient in expected_pullback(dout[None]).items():
        np.testing.assert_array_equal(pullback(dout)[name], gradient[0] if name in "qkv" else gradient)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, np.finfo(np.float32).max])
@pytest.mark.parametrize("names", [(), ("angles", "rel_key"), ("growth",), ("gain", "bias"), SLOTS], ids=len)
def test_numbers_that_are_not_finite_go_through_without_a_warning(names, bad):
    """Warnings are errors here. Each of q, k, v and dout in turn holds one at its third row."""
    for name in ("q", "k", "v", "dout"):
        arguments = problem(np.random.default_rng(4), names, n=5, m=70, dtype=np.float32)
        dout = np.ones(arguments["q"].shape, np.float32)
        (dout if name == "dout" else arguments[name])[0, 0, 2] = bad
        for attention_vjp in (fastpe.attention_vjp, fastpe.reference.attention_vjp):
            out, pullback = attention_vjp(**arguments, causal=True)
            found = [out, *pullback(dout).values()]
            assert abs(bad) < np.inf or not all(np.isfinite(array).all() for array in found)
