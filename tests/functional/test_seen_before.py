"""Calls of a kind that was seen before, as decoding makes them: the same bits, and the same errors."""

from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from array_kinds import gapped, read_only, stepped, transposed, unaligned
from attention_options import OPTIONS, only_seen, options, qkv
from attention_problems import SLOTS, assert_agrees, problem
from guards import guarded_results
from hypothesis import given, settings
from hypothesis import strategies as st

import fastpe
from fastpe import reference
from fastpe.functional import again, looked, plans, seen
from fastpe.kernels.attention.cells import FEW


@pytest.fixture(autouse=True)
def _nothing_kept():
    seen._kept.clear()
    again._kept.clear()


@pytest.fixture
def rng():
    return np.random.default_rng(8)


@settings(max_examples=150)
@given(data=st.data())
def test_a_kind_that_was_seen_before_gives_the_same_bits(data):
    draw = data.draw
    names = draw(st.lists(st.sampled_from(OPTIONS), unique=True, max_size=5))
    b, hk = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2]))
    n, d = draw(st.sampled_from([1, 2, int(FEW), int(FEW) + 1, 100])), draw(st.sampled_from([2, 16, 40, 64, 130]))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    seen._kept.clear()
    for m in draw(st.lists(st.sampled_from([1, 4, 127, 128, 129, 300]), min_size=1, max_size=2)):  # a cache grows
        q, k, v = qkv(rng, b, 4, hk, n, m, d, dtype)
        given = options(rng, names, b, 4, n, m, d, dtype)
        first = fastpe.attention(q, k, v, **given)
        second = only_seen(q, k, v, **given)
        kept = seen._kept.copy()
        seen._kept.clear()
        anew, exact = fastpe.attention(q, k, v, **given), reference.attention(q, k, v, **given)
        seen._kept.update(kept)
        many = (first, second, anew, exact)
        for one, two, three, wanted in zip(*(many if "return_lse" in names else [[x] for x in many]), strict=True):
            np.testing.assert_array_equal(one, two)
            np.testing.assert_array_equal(one, three)
            hidden = np.isneginf(wanted)
            np.testing.assert_array_equal(np.isneginf(one), hidden)
            exactly = 1e-11 if "wide_offset" in names else 1e-12  # offsets of 10,000 are known to 2e-12
            tolerance = 2e-4 if dtype == np.float32 else exactly
            np.testing.assert_allclose(one[~hidden], wanted[~hidden], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["", *SLOTS])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_slot_obeys_the_error_law(rng, name, dtype):
    for n in (1, int(FEW), int(FEW) + 1):
        for reach in (3, 200):
            arguments = problem(rng, (name,) if name else (), h=4, hk=2, n=n, m=140, d=6, reach=reach, dtype=dtype)
            assert_agrees(arguments, causal=name == "growth")


@pytest.mark.parametrize("axes", [2, 3])
def test_axes_that_q_has_not(rng, axes):
    q, k, v = (x[(0,) * (4 - axes)] for x in qkv(rng, hk=4))
    bias = np.ones((4 if axes == 3 else 1, 3), np.float32)
    for _ in range(2):
        out, lse = fastpe.attention(q, k, v, lengths=60, bias=bias, return_lse=True)
        exact = reference.attention(q, k, v, lengths=60, bias=bias, return_lse=True)
        assert out.shape == exact[0].shape
        np.testing.assert_allclose(out, exact[0], atol=1e-6)
        np.testing.assert_allclose(lse, exact[1], atol=1e-5)
    assert len(seen._kept) == 1


@pytest.mark.parametrize("layout", [gapped, stepped, read_only, unaligned, transposed])
def test_every_layout(rng, layout):
    q, k, v = qkv(rng)
    bias = rng.standard_normal((4, 9)).astype(np.float32)
    expected = fastpe.attention(q, k, v, bias=bias)
    for _ in range(2):
        np.testing.assert_array_equal(
            fastpe.attention(layout(q), layout(k), layout(v), bias=layout(bias[None])), expected
        )


def test_a_part_of_a_larger_cache(rng):
    q, k, v = qkv(rng, m=200)
    for m in (64, 65, 130):
        part = fastpe.attention(q, k[:, :, :m], v[:, :, :m])
        np.testing.assert_array_equal(part, fastpe.attention(q, k[:, :, :m].copy(), v[:, :, :m].copy()))
        np.testing.assert_allclose(part, reference.attention(q, k[:, :, :m], v[:, :, :m]), atol=1e-6)
    assert len(seen._kept) == 1


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("n", [1, int(FEW) + 1])
def test_a_cache_grows_within_one_kind(rng, name, n):
    sizes = 2, 4, n, 16, np.float32
    for m in (70, 71, 130, 16):
        given = options(rng, [name], *sizes[:3], m, *sizes[3:])
        q, k, v = qkv(rng, n=n, m=m)
        call = fastpe.attention if m == 70 else only_seen
        found, exact = (
            x if "return_lse" in given else [x] for x in (call(q, k, v, **given), reference.attention(q, k, v, **given))
        )
        for one, wanted in zip(found, exact, strict=True):
            np.testing.assert_allclose(one, wanted, rtol=2e-4, atol=2e-5)
    assert len(seen._kept) == 1


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision(rng, name):
    dtype = np.dtype(name if name == "float16" else pytest.importorskip("ml_dtypes").bfloat16)
    q, k, v = (x.astype(dtype) for x in qkv(rng))
    given = options(rng, ["bias", "rel_key", "added", "sinks"], 2, 4, 1, 70, 16, dtype)
    expected = fastpe.attention(q, k, v, **given)
    found = only_seen(q, k, v, **given)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


def test_every_seed_drops_other_weights(rng):
    q, k, v = qkv(rng)
    first = fastpe.attention(q, k, v, dropout=0.5, dropout_seed=1)
    np.testing.assert_array_equal(first, only_seen(q, k, v, dropout=0.5, dropout_seed=1))
    other = only_seen(q, k, v, dropout=0.5, dropout_seed=2)
    assert not np.array_equal(first, other)
    seen._kept.clear()
    np.testing.assert_array_equal(other, fastpe.attention(q, k, v, dropout=0.5, dropout_seed=2))


def with_last(array, value):
    array = array.copy()
    array[(-1,) * array.ndim] = value
    return array


def slot(*shape):
    return np.ones(shape, np.float32)


# arguments of calls that attention takes, what becomes of one of them, and what it is then told
BAD = {
    "lengths": ({"lengths": np.array([70, 3])}, 71, "lengths of keys must lie in"),
    "a negative length": ({"lengths": (None, np.array([70, 3]))}, -1, "lengths of keys must lie in"),
    "mask": ({"mask": slot(70)}, np.inf, "mask must hold numbers below infinity"),
    "query_start": ({"query_start": np.array([3, 4])}, -1, "query_start must lie in"),
    "scale": ({"scale": np.ones(4)}, 1e300, "scale must be finite in float32"),
    "index": ({"index": np.zeros((1, 70), int), "values": slot(4, 3)}, 3, "index must lie in"),
    "index below": ({"index": np.zeros((1, 70), int), "values": slot(4, 3)}, -1, "index must lie in"),
    "growth": ({"growth": np.zeros((70, 2)), "causal": True}, 100.0, "growth must change by at most"),
    "counts": ({"counts": slot(4, 5, 16), "causal": True}, np.nan, "counts must be finite"),
} | {
    f"{name} {value}": ({name: array}, value, f"{name} must be finite")
    for name, array in {
        "bias": slot(4, 5), "gain": slot(4, 5), "sinks": slot(4), "rel_key": slot(1, 5, 16),
        "rel_query": slot(4, 3, 16), "rel_value": slot(2, 4, 3, 16), "rel_gain": slot(4, 1, 16),
        "key_bias": slot(4, 16), "scores": slot(4, 1, 70), "angles": np.ones((1, 70, 8)),
    }.items()
    for value in (np.nan, -np.inf)
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_values_are_still_looked_at(rng, name):
    good, value, words = BAD[name]
    q, k, v = qkv(rng)
    fastpe.attention(q, k, v, **good)
    assert len(seen._kept) == 1
    of = next(iter(good))
    bad = (
        tuple(x if x is None else with_last(x, value) for x in good[of])
        if type(good[of]) is tuple
        else with_last(good[of], value)
    )
    with pytest.raises(ValueError, match=words):
        fastpe.attention(q, k, v, **{**good, of: bad})


@pytest.mark.parametrize("name", ["angles", "growth", "scores"])
def test_positions_beyond_the_rows_of_a_slot_are_still_refused(rng, name):
    q, k, v = qkv(rng)
    given = {
        name: np.zeros((4, 75, 75) if name == "scores" else (75, 8) if name == "growth" else (1, 75, 8), np.float32)
    }
    given["causal"] = True
    fastpe.attention(q, k, v, query_start=np.array([0, 74]), **given)
    only_seen(q, k, v, query_start=np.array([74, 3]), **given)
    with pytest.raises(ValueError, match=f"{name} must have the shape"):
        fastpe.attention(q, k, v, query_start=np.array([75, 3]), **given)


@pytest.mark.parametrize(
    ("good", "bad"),
    [({"causal": True}, {"causal": 1}), ({"window": 1}, {"window": True}), ({"scale": 1.0}, {"scale": "1"}),
     ({"return_lse": False}, {"return_lse": 0}), ({"tolerance": 0}, {"tolerance": False}), ({}, {"banana": 1})],
)  # fmt: skip
def test_what_only_looks_alike_is_refused_as_before(rng, good, bad):
    q, k, v = qkv(rng)
    fastpe.attention(q, k, v, **good)
    with pytest.raises(TypeError):
        fastpe.attention(q, k, v, **bad)


def test_other_shapes_and_dtypes_are_refused_as_before(rng):
    q, k, v = qkv(rng)
    fastpe.attention(q, k, v)
    for wrong in (
        (q, k, v[:, :, 1:]),
        (q, k[..., 1:], v),
        (q, k, v.astype(np.float64)),
        (q[:1], k, v),
        (q, k[:, :1], v),
    ):
        with pytest.raises((TypeError, ValueError)):
            fastpe.attention(*wrong)


def test_one_start_of_all_samples_may_be_an_array_without_axes(rng):
    q, k, v = qkv(rng, 3, 4, 2, 2, 9, 16, np.float64)
    for first in (0, 5):
        start = np.array([first, 7, 6])[:1].reshape(())  # what lies behind it is no start
        exact = reference.attention(q, k, v, causal=True, query_start=start)
        for attend in (fastpe.attention, only_seen):
            np.testing.assert_allclose(attend(q, k, v, causal=True, query_start=start), exact, atol=1e-13)


def test_the_farthest_position(rng):
    q, k, v = qkv(rng)
    far = np.array([2**40, 2**40])
    np.testing.assert_array_equal(
        fastpe.attention(q, k, v, query_start=far, causal=True), fastpe.attention(q, k, v, query_start=far, causal=True)
    )


def test_little_work_wakes_nobody_and_much_work_has_the_same_bits_on_any_number_of_threads(rng, monkeypatch):
    little, much = qkv(rng), qkv(rng, 2, 4, 4, 1, 2000, 64)
    expected = [fastpe.attention(*each) for each in (little, much)]
    before, most, lanes, run = numba.get_num_threads(), numba.config.NUMBA_NUM_THREADS, [], plans.run_apart
    monkeypatch.setattr(plans, "run_apart", lambda count, *rest: lanes.append(count) or run(count, *rest))
    monkeypatch.setattr(again, "_kept", {})
    monkeypatch.setattr(again, "keep", lambda *_: None)
    try:
        for threads in range(1, most + 1):
            numba.set_num_threads(threads)
            for each, exact in zip((little, much), expected, strict=True):
                np.testing.assert_array_equal(fastpe.attention(*each), exact)
    finally:
        numba.set_num_threads(before)
    assert lanes == [each for threads in range(1, most + 1) for each in (1, threads)]


def test_threads_do_not_meet(rng):
    """Nothing that a call writes to is another's."""
    problems = [(*qkv(rng, m=m), rng.standard_normal((4, 9)).astype(np.float32)) for m in (1, 60, 61, 200) * 8]
    expected = [fastpe.attention(q, k, v, bias=bias, causal=True) for q, k, v, bias in problems]
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda each: fastpe.attention(*each[:3], bias=each[3], causal=True), problems)
        for one, exact in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, exact)
    assert len(seen._kept) == 1


def test_nothing_beyond_is_written_to(rng, monkeypatch):
    q, k, v = qkv(rng, d=17)
    given = options(rng, ("bias", "mask", "lengths", "spans", "query_start", "softcap"), 2, 4, 1, 70, 17, np.float32)
    expected = fastpe.attention(q, k, v, **given)
    check = guarded_results(monkeypatch, looked, plans, again)
    np.testing.assert_array_equal(fastpe.attention(q, k, v, **given), expected)
    check()
    expected = fastpe.attention(q, k, v)
    for _ in range(3):
        np.testing.assert_array_equal(fastpe.attention(q, k, v), expected)
    assert len(again._kept) == 2  # with slots, and without
    check()


def test_what_is_kept_is_bounded(rng, monkeypatch):
    monkeypatch.setattr(seen, "_MOST", 3)
    q, k, v = qkv(rng)
    for window in range(1, 9):
        fastpe.attention(q, k, v, window=window)
        assert len(seen._kept) <= 3


@pytest.mark.parametrize("others", [{}, {"causal": True}, {"window": 7}], ids=str)
@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("slot", ["key_offset", "rel_value"])
def test_under_a_mask_bits_are_those_of_the_first_call(slot, holes, others):
    """A mask of intervals becomes spans in the first call alone: what depends on a tile's keys must not."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, m = rng.integers(1, 5), rng.integers(4, 200)
        q, k, v = (rng.standard_normal((2, 2, rows, 8), np.float32) for rows in (n, m, m))
        first, last = rng.integers(0, m + 1, (2, 2, 1, n, 1))
        mask = (np.arange(m) >= first) & (np.arange(m) < last)
        if holes:
            mask &= rng.random(mask.shape) < 0.7
        array = 3 * rng.standard_normal((2, m) if slot == "key_offset" else (1, 9, 8), np.float32)
        slots = {slot: array, "bias": rng.standard_normal((2, 9), np.float32)}
        for kept in (seen, again):
            kept._kept.clear()
        once, more = (fastpe.attention(q, k, v, mask=mask, **slots, **others) for _ in range(2))
        np.testing.assert_array_equal(more, once, err_msg=f"seed {seed}")
