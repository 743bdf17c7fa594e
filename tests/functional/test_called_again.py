"""Calls of which q, k and v alone are new: the same bits, whatever the arrays are, and the same errors."""

from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from array_kinds import gapped, read_only, stepped, transposed, unaligned
from attention_options import qkv
from called_again import DTYPES, bits, dtype_of, in_dtype, only_again, reference_of

import fastpe
from fastpe import reference
from fastpe.functional import again, seen
from fastpe.kernels.attention import again as again_kernels
from fastpe.kernels.attention.cells import FEW

OPTIONS = (
    {}, {"causal": True}, {"window": 9}, {"softcap": 2.0}, {"scale": 0.3}, {"return_lse": True}, {"tolerance": 0.0},
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("nothing_kept")


@pytest.fixture
def rng():
    return np.random.default_rng(8)


@pytest.mark.parametrize("given", OPTIONS, ids=str)
@pytest.mark.parametrize("name", DTYPES)
def test_the_same_bits(rng, name, given):
    for n, hk, d in ((1, 2, 16), (1, 4, 64), (int(FEW), 1, 40), (2, 4, 17)):
        first, second = ([x.astype(dtype_of(name)) for x in qkv(rng, 2, 4, hk, n, 130, d)] for _ in range(2))
        seen._kept.clear()
        expected = fastpe.attention(*second, **given)
        for _ in range(2):
            fastpe.attention(*first, **given)
        for _ in range(2):
            found = only_again(*second, **given)
            for one, exact in zip(bits(found), bits(expected), strict=True):
                np.testing.assert_array_equal(one, exact)
        out = found[0] if isinstance(found, tuple) else found
        assert out.dtype == dtype_of(name)
        assert out.flags.writeable


def test_a_result_is_nobody_elses(rng):
    q, k, v = qkv(rng)
    outs = [fastpe.attention(q, k, v, return_lse=True) for _ in range(4)]
    expected = [x.copy() for x in outs[0]]
    for one in outs[1:]:
        for x in one:
            x[...] = np.nan
    for one, exact in zip(outs[0], expected, strict=True):
        np.testing.assert_array_equal(one, exact)
    np.testing.assert_array_equal(only_again(q, k, v, return_lse=True)[0], expected[0])


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("layout", [gapped, stepped, read_only, unaligned, transposed, np.array])
def test_every_layout(rng, layout, name):
    given = [[x.astype(dtype_of(name)) for x in qkv(rng, n=2, d=8)] for _ in range(2)]
    expected = [fastpe.attention(*each) for each in given]
    for each, exact in zip(given, expected, strict=True):
        for _ in range(3):
            np.testing.assert_array_equal(bits(fastpe.attention(*map(layout, each))), bits(exact))
            np.testing.assert_array_equal(bits(fastpe.attention(*each)), bits(exact))


def test_layouts_are_compiled_for_together(rng):
    kinds = again_kernels.forward_again.overloads
    for layout in (np.array, gapped, read_only, transposed):
        q, *kv = qkv(rng)
        for _ in range(2):
            fastpe.attention(q, *map(layout, kv))
        only_again(q, *map(layout, kv))
        if layout is np.array:
            first = set(kinds)
    assert set(kinds) == first


def test_numbers_that_are_none(rng):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float32):
        q, k, v = (x.astype(dtype) for x in qkv(rng))
        v[0, 0, 3], v[0, 1, 2], q[1, 2] = np.nan, np.inf, 6e4
        expected = fastpe.attention(q, k, v).astype(np.float32)
        fastpe.attention(q, k, v)
        for _ in range(2):
            np.testing.assert_array_equal(only_again(q, k, v).astype(np.float32), expected)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_halves_are_rounded_to_nearest(rng, name):
    """With one key the output is its value; with two alike keys it lies between two."""
    dtype = dtype_of(name)
    every = np.arange(2**16, dtype=np.uint16).view(dtype)
    every = every[np.isfinite(every.astype(np.float32))].reshape(1, 1, 1, -1)
    following = np.roll(every, -1, axis=-1)
    one = np.zeros((1, 1, 1, 2), dtype)
    keys, values = np.zeros((1, 1, 2, 2), dtype), np.concatenate([every, following], axis=2)
    with np.errstate(over="ignore"):
        for k, v in ((one, every), (keys, values)):
            exact = fastpe.attention(*(x.astype(np.float32) for x in (one, k, v))).astype(dtype)
            for _ in range(2):
                fastpe.attention(one, k, v)
            np.testing.assert_array_equal(only_again(one, k, v), exact)


def test_a_cache_grows(rng):
    room = qkv(rng, m=200)
    for m in (64, 65, 66, 130):
        part = room[0], room[1][:, :, :m], room[2][:, :, :m]
        for _ in range(2):
            found = fastpe.attention(*part)
            np.testing.assert_allclose(found, reference.attention(*part), atol=1e-6)
    assert len(again._kept) == 1


def test_what_is_no_longer_there_is_not_read(rng):
    """A record holds none of the arrays of its call."""
    q, k, v = qkv(rng)
    for _ in range(2):
        fastpe.attention(q, k, v)
    (kept,) = again._kept.values()
    assert not any(np.shares_memory(x, y) for x in kept.others if isinstance(x, np.ndarray) for y in (q, k, v))


def test_other_arrays_than_before_are_refused_or_taken_as_ever(rng):
    q, k, v = qkv(rng)
    for _ in range(3):
        fastpe.attention(q, k, v)
    for wrong in (
        (q, k[:, :, 1:], v), (q, k[..., 1:], v), (q, k, v.astype(np.float64)), (q, k[:1], v), (q, k[0], v),
        (q, k.astype(">f4"), v), (q, k.astype(object), v),
    ):  # fmt: skip
        try:
            found = fastpe.attention(*wrong)
        except (TypeError, ValueError):
            continue
        np.testing.assert_allclose(found, reference.attention(*wrong), atol=1e-6)
    with pytest.raises(ValueError, match="k must have"):
        fastpe.attention(q, k[..., 1:], v)
    with pytest.raises(TypeError, match="v must have the dtype"):
        fastpe.attention(q, k, v.astype(np.float64))


@pytest.mark.parametrize("bad", [{"causal": 0}, {"window": True}, {"scale": "1"}, {"return_lse": 0}, {"scale": [1]}])
def test_what_only_looks_alike_is_refused(rng, bad):
    q, k, v = qkv(rng)
    good = {"causal": False, "window": 1, "scale": 1.0, "return_lse": False}
    for _ in range(3):
        fastpe.attention(q, k, v, **good)
    with pytest.raises((TypeError, ValueError)):
        fastpe.attention(q, k, v, **{**good, **bad})


def test_records_of_other_types_are_not_run(rng):
    """What would be memory of another size is told apart by compiled code itself."""
    q, k, v = qkv(rng)
    for _ in range(2):
        fastpe.attention(q, k, v)
    (kept,) = again._kept.values()
    wide = [x.astype(np.float64) for x in (q, k, v)]
    record = kept.record.copy()
    record[:24] = again.layouts_of(wide)
    out, nothing = np.full(q.shape, 7.0), (None,) * 4
    assert not again_kernels.forward_again(0, 1, record, kept.size, out, out[..., 0].copy(), *wide, *nothing)
    np.testing.assert_array_equal(out, 7.0)


def test_threads_do_not_meet(rng):
    problems = [qkv(rng, m=m) for m in (1, 60, 61, 200) * 8]
    expected = [fastpe.attention(*each) for each in problems]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            for one, exact in zip(pool.map(lambda each: fastpe.attention(*each), problems), expected, strict=True):
                np.testing.assert_array_equal(one, exact)


@pytest.mark.parametrize("given", [{"causal": True}, {"sinks": np.linspace(-2, 2, 4, dtype=np.float32)}], ids=str)
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_lanes_change_no_bit(rng, monkeypatch, name, given):
    arrays = [x.astype(dtype_of(name)) for x in qkv(rng, m=700)]
    expected = reference_of(*arrays, given)
    counts = []
    for lanes in range(1, numba.config.NUMBA_NUM_THREADS + 1):
        monkeypatch.setattr(again, "lanes_for", lambda work, tasks, lanes=lanes: counts.append(tasks) or lanes)
        fastpe.attention(*arrays, **given)
        for _ in range(5):
            found = only_again(*arrays, **given)
            np.testing.assert_array_equal(*(x.view(f"u{x.itemsize}") for x in (found, expected)))
    assert set(counts) == {2 * 4}


def test_what_is_kept_is_bounded(rng, monkeypatch):
    monkeypatch.setattr(again, "_MOST", 3)
    q, k, v = qkv(rng)
    for window in range(1, 9):
        for _ in range(2):
            fastpe.attention(q, k, v, window=window)
        assert 0 < len(again._kept) <= 3


# ---------------------------------------------------------------------------------------------------------------------
# With what queries see, a bias and sinks


def given_of(rng, name, n, m=130, b=2, h=4):
    """Such slots in float32, by what is tried."""
    spans = np.stack([rng.integers(0, m // 2, (b, n)), rng.integers(m // 2, m + 9, (b, n))], axis=-1)
    shown = rng.random((b, h, n, m)) < 0.7
    shown[0, 0, 0] = False
    added = np.where(shown, rng.standard_normal(shown.shape), -np.inf).astype(np.float32)
    starts, short = np.array([m - n, 3]), rng.standard_normal((h, 9)).astype(np.float32)
    bias = rng.standard_normal((h, 2 * m + 21)).astype(np.float32)
    of_samples = rng.standard_normal((b, h, 2 * m - 1)).astype(np.float32)
    sinks, lengths = rng.standard_normal(h).astype(np.float32), np.array([m, 5])
    return {
        "bias": {"bias": bias, "causal": True}, "clipped bias": {"bias": short},
        "bias of samples": {"bias": of_samples},
        "bias from starts": {"bias": short, "query_start": starts, "causal": True},
        "bools": {"mask": shown}, "a row of bools": {"mask": shown[:, :1, :1]}, "keys hidden": {"mask": shown[0, 0, 0]},
        "numbers": {"mask": added}, "numbers of heads": {"mask": added[0, :, :1]}, "spans": {"spans": spans},
        "spans of all": {"spans": spans[:1]}, "starts": {"query_start": starts, "causal": True, "window": 7},
        "lengths": {"lengths": lengths}, "sinks": {"sinks": sinks}, "scales": {"scale": short[:, 0]},
        "sinks alone": {"sinks": sinks, "lengths": lengths * 0},
        "all": {
            "sinks": sinks, "lengths": lengths, "query_start": starts, "spans": spans, "mask": added, "bias": bias,
            "causal": True, "softcap": 3.0, "scale": 0.4,
        },
    }[name]  # fmt: skip


NAMES = (
    "bias", "clipped bias", "bias of samples", "bias from starts", "bools", "a row of bools", "keys hidden", "numbers",
    "numbers of heads", "spans", "spans of all", "starts", "lengths", "sinks", "scales", "sinks alone", "all",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_bits_with_slots(rng, dtype, name):
    for n, return_lse in ((1, True), (3, False)):
        problems = []
        for _ in range(2):
            rows = [x.astype(dtype_of(dtype)) for x in qkv(rng, 2, 4, 2, n, 130, 24)]
            problems.append((rows, in_dtype(given_of(rng, name, n), dtype_of(dtype)) | {"return_lse": return_lse}))
        expected = []
        for rows, given in problems:
            seen._kept.clear()
            expected.append(bits(fastpe.attention(*rows, **given)))
        for rows, given in problems * 2:
            fastpe.attention(*rows, **given)
        for (rows, given), exact in zip(problems, expected, strict=True):
            for one, other in zip(bits(only_again(*rows, **given)), exact, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("good", "wrong", "words"),
    [
        ({"bias": np.zeros((4, 9), "f4")}, np.full((4, 9), np.nan, "f4"), "bias must be finite"),
        ({"mask": np.zeros((1, 130), "f4")}, np.full((1, 130), np.inf, "f4"), "below infinity"),
        ({"lengths": np.array([3, 4])}, np.array([3, 131]), "lengths"),
        ({"query_start": np.array([3, 4])}, np.array([3, -1]), "query_start"),
        ({"sinks": np.zeros(4, "f4")}, np.full(4, -np.inf, "f4"), "sinks must be finite"),
        ({"scale": np.ones(4, "f4")}, np.full(4, np.nan, "f4"), "scale must be finite"),
        ({"scale": np.ones(4)}, np.full(4, 1e39), "scale must be finite in float32"),
        ({"scale": np.ones(4)}, np.full(4, 3.4028235e38), "scale must be finite in float32"),  # rounds to one
        ({"scale": np.ones(4)}, np.ones(2), "scale must"),
        ({"bias": np.zeros((4, 9), "f4")}, np.zeros((4, 9), "f8"), "dtype"),
        ({"bias": np.zeros((4, 9), "f4")}, np.zeros((3, 9), "f4"), "bias must have"),
        ({"mask": np.zeros((1, 130), bool)}, np.zeros((2, 130), bool), "mask must have"),
        ({"spans": np.zeros((2, 1, 2), int)}, np.zeros((2, 1, 3), int), "spans"),
    ],
)
def test_errors_are_those_of_ever(rng, good, wrong, words):
    q, k, v = qkv(rng, 2, 4, 2, 1, 130, 24)
    for _ in range(3):
        fastpe.attention(q, k, v, **good)
    with pytest.raises((TypeError, ValueError), match=words):
        fastpe.attention(q, k, v, **dict.fromkeys(good, wrong))
    np.testing.assert_array_equal(fastpe.attention(q, k, v, **good), reference_of(q, k, v, good))


def test_slots_lie_as_they_like_and_masks_may_be_narrow(rng):
    q, k, v = qkv(rng, 2, 4, 2, 1, 130, 24)
    bias, mask = rng.standard_normal((4, 9)).astype("f4"), rng.random((2, 4, 1, 130)) < 0.5
    for given in (
        {"bias": np.asfortranarray(bias)}, {"bias": bias[:, ::2]}, {"mask": mask[..., ::-1]}, {"mask": mask[..., :1]},
        {"mask": np.where(mask, 0.0, -1e300)}, {"spans": np.array([[[1, 99]]], np.int32)},
    ):  # fmt: skip
        exact = reference_of(q, k, v, given)
        for _ in range(3):
            np.testing.assert_array_equal(fastpe.attention(q, k, v, **given), exact)


def test_slots_that_grow_with_a_cache(rng):
    q, k, v = qkv(rng, 2, 4, 2, 1, 200, 24)
    mask = rng.random((2, 1, 1, 200)) < 0.8
    for m in (64, 65, 66, 130):
        for _ in range(3):
            found = fastpe.attention(q, k[:, :, :m], v[:, :, :m], mask=mask[..., :m])
            exact = reference.attention(q, k[:, :, :m], v[:, :, :m], mask=mask[..., :m])
            np.testing.assert_allclose(found, exact, atol=1e-6)
    assert len(again._kept) == 1


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_queries_may_lie_as_they_like(rng, name):
    """What is widened in compiled code must be rows of one piece; others take another way, every time."""
    q, k, v = (x.astype(dtype_of(name)) for x in qkv(rng, 1, 4, 2, 2, 70, 8))
    wide = np.repeat(q, 2, axis=-1)
    for given in (
        q[..., ::-1], wide[..., ::2], np.asfortranarray(q), q.swapaxes(-1, -2).copy().swapaxes(-1, -2),
        np.broadcast_to(q[..., :1], q.shape), q[:, :, ::-1],
    ):  # fmt: skip
        exact = reference_of(given.copy(), k, v, {})
        for _ in range(4):
            np.testing.assert_array_equal(fastpe.attention(given, k, v), exact)


def test_keys_of_fewer_axes_are_refused_as_ever(rng):
    q, k, v = qkv(rng)
    for _ in range(3):
        fastpe.attention(q, k, v)
    with pytest.raises(ValueError, match="k must have"):
        fastpe.attention(q, k[0, 0, 0], v)


def test_keys_that_a_mask_hides_may_be_anything(rng):
    """Also where the mask is added, not taken for an interval."""
    q, k, v = qkv(rng, 1, 4, 2, 2, 70, 8)
    mask = np.ones((2, 70), bool)
    mask[0, 50:] = mask[0, 3] = mask[1, 3] = False
    wild = k.copy()
    wild[:, :, 3], wild[:, :, 51] = np.nan, np.inf
    exact = reference_of(q, k, v, {"mask": mask})[:, :, 0]
    for _ in range(4):
        np.testing.assert_array_equal(fastpe.attention(q, wild, v, mask=mask)[:, :, 0], exact)
