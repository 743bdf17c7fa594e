"""Calls that are made again with another number of keys, as a cache has with every token."""

import numpy as np
import pytest
from attention_options import qkv
from called_again import DTYPES, bits, dtype_of, in_dtype, only_again, reference_of
from slots_again import OF_HEADS, SLOT_NAMES, WIDENED, slot_of

import fastpe
from fastpe.functional import again
from fastpe.functional.grown import slopes
from fastpe.kernels.attention.again import SLOPES, TILES

pytestmark = pytest.mark.usefixtures("nothing_kept")

# whose keys are laid down before they are read, or whose offsets have a row of each table
STAYS = {
    "angles and gains of channels", "growth and others", "maps", "maps of heads", "maps of odd blocks",
    "maps and others", "radii", "radii of heads", "radii from starts", "vectors of values",
}  # fmt: skip
OTHERS = ("nothing", "lse of a window", "mask of keys", "mask of heads", "spans", "a scale of each head")


@pytest.fixture
def rng():
    return np.random.default_rng(8)


def given_of(rng, name, n, m):
    if name in SLOT_NAMES:
        return slot_of(rng, name, n, m)
    return {
        "nothing": {}, "lse of a window": {"return_lse": True, "window": 9, "causal": True},
        "mask of keys": {"mask": rng.standard_normal(m)},
        "mask of heads": {"mask": rng.random((2, 4, n, m)) < 0.8, "bias": rng.standard_normal((2, 4, 2 * m + 3))},
        "spans": {"spans": np.sort(rng.integers(0, m + 1, (2, n, 2)), -1)},
        "a scale of each head": {"scale": rng.standard_normal(4)},
    }[name]  # fmt: skip


def call_of(rng, name, n, m, dtype, hk=4):
    rows = [x.astype(dtype_of(dtype)) for x in qkv(rng, 2, 4, hk, n, m, 24)]
    given = in_dtype(given_of(rng, name, n, m), dtype_of(dtype))
    if name == "a scale of each head":
        given["scale"] = given["scale"].astype(np.float64 if dtype == "float64" else np.float32)
    return rows, given


@pytest.mark.parametrize("name", [*SLOT_NAMES, *OTHERS])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_bits_and_the_same_record(rng, dtype, name):
    laid = name in STAYS or (name in WIDENED and dtype in ("float16", "bfloat16"))
    for n, hk in ((1, 4), (2, 2)):
        calls = [call_of(rng, name, n, m, dtype, hk) for m in (130, 131, 64, 300, 12)]
        stays = laid or (name in OF_HEADS and hk < 4)
        right = []
        for rows, given in calls:
            expected = reference_of(*rows, given)
            fastpe.attention(*rows, **given)
            right.append((bits(expected), {key: x.record[:SLOPES] for key, x in again._kept.items()}))
        again._kept.clear()
        for _ in range(2):
            fastpe.attention(*calls[0][0], **calls[0][1])
        for (rows, given), (expected, records) in zip(calls, right, strict=True):
            found = (fastpe.attention if stays else only_again)(*rows, **given)
            for one, other in zip(bits(found), expected, strict=True):
                np.testing.assert_array_equal(one, other)
            if not stays:
                assert again._kept.keys() == records.keys()
                for key, words in records.items():
                    differ = np.flatnonzero(again._kept[key].record[:SLOPES] != words)
                    assert set(differ) <= {TILES}  # which nobody reads where nothing is given


def test_keys_may_lie_in_a_larger_cache(rng):
    q, *cache = (x.astype(np.float32) for x in qkv(rng, 2, 4, 2, 1, 50, 24))
    for _ in range(2):
        fastpe.attention(q, *(x[:, :, :20] for x in cache))
    for m in (21, 50, 7):
        k, v = (x[:, :, :m] for x in cache)
        expected = only_again(q, k, v)
        np.testing.assert_array_equal(expected, only_again(q, k.copy(), v.copy()))
        np.testing.assert_array_equal(expected, only_again(q, k.copy(), v))
        np.testing.assert_array_equal(expected, reference_of(q, k, v, {}))
        fastpe.attention(q, k, v)


@pytest.mark.parametrize("name", ["maps of heads", "angles and gains of channels", "radii", "angles", "growth alone"])
def test_so_may_keys_that_are_laid_down_first(rng, name):
    rows, given = call_of(rng, name, 1, 130, "float32")
    for _ in range(3):
        fastpe.attention(*rows, **given)
    rows, given = call_of(rng, name, 1, 141, "float32")
    q, *cache = rows
    k, v = (np.concatenate([x, x], axis=2)[:, :, :141] for x in cache)
    for keys in (k, k.copy()):
        np.testing.assert_array_equal(fastpe.attention(q, keys, v, **given), reference_of(*rows, given))


@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [
        ("angles", {"angles": np.zeros((1, 130, 12))}, "angles must have the shape"),
        ("angles from starts", {"angles": np.zeros((1, 130, 12))}, "angles must have"),
        ("scores", {"scores": np.zeros((2, 4, 1, 130))}, "scores must have the shape"),
        ("scores", {"bias": np.zeros((4, 8))}, "bias must have the shape"),
        ("slopes", {"key_slope": np.zeros((1, 130))}, "key_slope must have the shape"),
        ("slopes", {"lengths": np.array([152, 9])}, "lengths of keys must lie"),
        ("mask of keys", {"mask": np.zeros(130)}, "mask must"),
        ("spans", {"spans": np.zeros((2, 2, 2), int)}, "spans must"),
    ],
    ids=str,
)
def test_what_has_not_grown_with_the_keys_is_an_error(rng, name, wrong, words):
    rows, given = call_of(rng, name, 1, 130, "float64")
    for _ in range(2):
        fastpe.attention(*rows, **given)
    only_again(*rows, **given)
    rows, given = call_of(rng, name, 1, 151, "float64")
    with pytest.raises(ValueError, match=words):
        fastpe.attention(*rows, **(given | wrong))
    only_again(*rows, **given)


@pytest.mark.parametrize("changed", [{"b": 1}, {"hk": 2}, {"d": 32}], ids=str)
def test_of_other_sizes_it_is_a_call_of_its_own(rng, changed):
    sizes = {"b": 2, "h": 4, "hk": 4, "n": 1, "m": 40, "d": 24}
    q, k, v = qkv(rng, **sizes)
    for _ in range(2):
        fastpe.attention(q, k, v)
    other = qkv(rng, **(sizes | {"m": 41} | changed))
    np.testing.assert_array_equal(fastpe.attention(*other), reference_of(*other, {}))


def test_more_queries_than_keys_go_the_long_way(rng):
    q, k, v = qkv(rng, n=4, m=9)
    for _ in range(2):
        fastpe.attention(q, k, v, causal=True)
    for m in (4, 3, 1):
        own = k[:, :, :m], v[:, :, :m]
        found = fastpe.attention(q, *own, causal=True)
        np.testing.assert_array_equal(found, reference_of(q, *own, {"causal": True}))


def test_slopes_are_of_what_is_linear():
    before, now = np.array([5, 7, 2, 9]), np.array([11, 7, 8, 3])
    assert slopes(before, now, 3).tolist() == [2, 0, 2, -2]
    assert slopes(before, now, -3).tolist() == [-2, 0, -2, 2]
    assert slopes(before, now, 4) is None
    assert slopes(before, now, 0) is None
    assert slopes(before, now, 4, but=(0, 2, 3)).tolist() == [0, 0, 0, 0]
