"""Calls with slots of which the arrays alone are new: the same bits, whatever the slots are, and the same errors."""

from itertools import combinations

import numpy as np
import pytest
from attention_options import qkv
from called_again import DTYPES, bits, dtype_of, in_dtype, only_again, reference_of
from slots_again import OF_HEADS, SLOT_NAMES, WIDENED, slot_of

import fastpe
from fastpe import reference
from fastpe.functional import again, fitting, seen

pytestmark = pytest.mark.usefixtures("nothing_kept")


@pytest.fixture
def rng():
    return np.random.default_rng(8)


@pytest.mark.parametrize("name", SLOT_NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_bits_with_any_slots(rng, dtype, name):
    for n, hk, return_lse in ((1, 4, True), (3, 2, False)):
        problems, expected = [], []
        for _ in range(2):
            rows = [x.astype(dtype_of(dtype)) for x in qkv(rng, 2, 4, hk, n, 130, 24)]
            problems.append((rows, in_dtype(slot_of(rng, name, n), dtype_of(dtype)) | {"return_lse": return_lse}))
        for rows, given in problems:
            seen._kept.clear()
            expected.append(bits(fastpe.attention(*rows, **given)))
        for rows, given in problems * 2:
            fastpe.attention(*rows, **given)
        # some keys of half precision are widened first; those that heads turn each in its own way are repeated
        elsewhere = (name in WIDENED and dtype in ("float16", "bfloat16")) or (name in OF_HEADS and hk < 4)
        run = fastpe.attention if elsewhere else only_again
        for (rows, given), exact in zip(problems, expected, strict=True):
            for one, other in zip(bits(run(*rows, **given)), exact, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        ({"gain": np.ones((4, 9), "f4")}, {"gain": np.full((4, 9), np.inf, "f4")}, "gain must be finite"),
        ({"angles": np.ones((1, 130, 3))}, {"angles": np.full((1, 130, 3), np.nan)}, "angles must be finite"),
        ({"row_scale": np.ones((1, 1), "f4")}, {"row_scale": np.full((1, 1), np.nan, "f4")}, "row_scale must"),
        ({"key_offset": np.ones((1, 130))}, {"key_offset": np.full((1, 130), np.nan)}, "key_offset must be finite"),
        (
            {"growth": np.zeros((130, 3)), "causal": True}, {"growth": np.full((130, 3), np.inf), "causal": True},
            "growth must be finite",
        ),
        (
            {"values": np.ones((4, 3), "f4"), "index": np.zeros((1, 130), int)},
            {"values": np.ones((4, 3), "f4"), "index": np.full((1, 130), 3)}, "index",
        ),
        (
            {"angles": np.ones((1, 140, 3)), "query_start": np.array([9, 3])},
            {"angles": np.ones((1, 140, 3)), "query_start": np.array([9, 140])}, "angles must have",
        ),
        ({"gain": np.ones((4, 9), "f4"), "rectify": True}, {"gain": np.ones((4, 9), "f4"), "rectify": 1}, "rectify"),
        ({"rotors": np.ones((1, 1, 8, 3, 3), "f4")}, {"rotors": np.full((1, 1, 8, 3, 3), np.inf, "f4")}, "rotors must"),
        (
            {"rotors": np.ones((1, 140, 8, 3, 3), "f4"), "query_start": np.array([9, 3])},
            {"rotors": np.ones((1, 140, 8, 3, 3), "f4"), "query_start": np.array([9, 140])}, "rotors must have",
        ),
        ({"polar": np.ones((1, 24), "f4")}, {"polar": np.full((1, 24), np.nan, "f4")}, "polar must be finite"),
        (
            {"polar": np.ones((1, 24), "f4"), "angles": np.ones((1, 130, 24))},
            {"polar": np.ones((1, 24), "f4"), "angles": np.full((1, 130, 24), np.inf)}, "angles must be finite",
        ),
        ({"dropout": 0.5, "dropout_seed": 1}, {"dropout": 0.5}, "dropout needs dropout_seed"),
        ({"dropout": 0.5, "dropout_seed": 1}, {"dropout": 0.5, "dropout_seed": True}, "dropout_seed must be an"),
        ({"dropout": 0.5, "dropout_seed": 1}, {"dropout": 0.5, "dropout_seed": -1}, "dropout_seed must be at"),
        ({"dropout": 0.5, "dropout_seed": 1}, {"dropout": 1.5, "dropout_seed": 1}, "dropout must"),
        ({}, {"dropout": 0.0, "dropout_seed": 0.5}, "dropout_seed must be an"),
    ],
)  # fmt: skip
def test_errors_of_any_slots_are_those_of_ever(rng, good, bad, words):
    q, k, v = qkv(rng, 2, 4, 2, 1, 130, 24)
    for _ in range(3):
        fastpe.attention(q, k, v, **good)
    with pytest.raises((TypeError, ValueError), match=words):
        fastpe.attention(q, k, v, **bad)
    np.testing.assert_array_equal(only_again(q, k, v, **good), reference_of(q, k, v, good))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pairs", ["interleaved", "half"])
@pytest.mark.parametrize(("heads", "d", "m"), [(4, 64, 130), (3, 24, 67), (1, 2, 3), (2, 10, 35)])
def test_keys_that_only_grow_need_not_be_laid_down(rng, heads, d, m, pairs, dtype):
    """Each is read by one query alone, all channels grow: a way of its own, of the same numbers."""
    q, k, v = (x.astype(dtype) for x in qkv(rng, 2, heads, heads, 1, m, d))
    given = {"causal": True, "pairs": pairs, "growth": 0.1 * rng.standard_normal((m, d // 2))}
    expected = reference_of(q, k, v, given)
    fastpe.attention(q, k, v, **given)
    np.testing.assert_array_equal(only_again(q, k, v, **given), expected)
    exact = reference.attention(*(x.astype(np.float64) for x in (q, k, v)), **given)
    np.testing.assert_allclose(expected, exact, rtol=0, atol=2e-6 if dtype == np.float32 else 1e-14)


def test_growth_that_changes_much_goes_the_long_way(rng):
    """Within a block it may change by less than over all places."""
    q, k, v = qkv(rng, 2, 4, 2, 1, 300, 24)
    for most in (50.0, 150.0):
        growth = np.linspace(0, most, 300)[:, None] * np.ones(12)
        for _ in range(3):
            np.testing.assert_array_equal(
                fastpe.attention(q, k, v, causal=True, growth=growth),
                reference_of(q, k, v, {"causal": True, "growth": growth}),
            )


def test_lse_of_sinks_and_offsets_is_rounded_alike_every_time(rng):
    for _ in range(20):
        q, k, v = qkv(rng, 1, 4, 2, 4, 1, 16)
        given = {"sinks": rng.standard_normal(4).astype("f4"), "key_offset": rng.standard_normal((1, 1))}
        found = [fastpe.attention(q, k, v, **given, return_lse=True)[1] for _ in range(3)]
        for each in found[1:]:
            np.testing.assert_array_equal(each, found[0])
        seen._kept.clear()
        again._kept.clear()


def test_of_many_keys_that_are_turned_in_memory_no_call_is_kept(rng, monkeypatch):
    q, k, v = qkv(rng, 2, 4, 2, 1, 130, 24)
    monkeypatch.setattr(fitting, "_MOST_TURNED", 4 * k.size)
    for name in ("radii", "maps", "angles"):
        given = slot_of(rng, name, 1)
        expected = fastpe.attention(q, k, v, **given)
        for _ in range(3):
            np.testing.assert_array_equal(fastpe.attention(q, k, v, **given), expected)
        assert len(again._kept) == (0 if name == "maps" else 1)
        again._kept.clear()


def test_every_seed_drops_the_weights_of_ever(rng):
    """Compiled code makes of a seed the key that `Stream` makes of it."""
    q, k, v = qkv(rng, 1, 2, 1, 1, 200, 4)
    seeds = [0, 1, 2**32, 2**63 - 1, *map(int, rng.integers(2**63, size=20))]
    expected = [reference_of(q, k, v, {"dropout": 0.5, "dropout_seed": seed}) for seed in seeds]
    for _ in range(2):
        fastpe.attention(q, k, v, dropout=0.5, dropout_seed=9)
    for seed, exact in zip(seeds, expected, strict=True):
        np.testing.assert_array_equal(only_again(q, k, v, dropout=0.5, dropout_seed=seed), exact)
    np.testing.assert_array_equal(fastpe.attention(q, k, v, dropout=0.5, dropout_seed=2**64 - 1), reference_of(
        q, k, v, {"dropout": 0.5, "dropout_seed": 2**64 - 1}
    ))  # fmt: skip
    with pytest.raises(ValueError, match="seed must"):
        fastpe.attention(q, k, v, dropout=0.5, dropout_seed=2**64)


def test_slots_of_a_call_are_not_kept(rng):
    q, k, v = qkv(rng, 2, 4, 2, 1, 130, 24)
    given = slot_of(rng, "scores", 1)
    for _ in range(3):
        fastpe.attention(q, k, v, **given)
    (kept,) = again._kept.values()
    own = [x for x in given.values() if isinstance(x, np.ndarray)]
    assert not any(np.shares_memory(x, y) for x in kept.others if isinstance(x, np.ndarray) for y in own)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_made_side_by_side_does_not_overlap(rng, dtype):
    """Of any of these something is made in the same memory; their sizes are odd, so that the last word of each of
    float32 is not full."""
    m, h, d = 131, 3, 8
    made = {
        "mask": {"mask": rng.random((1, 1, 1, m)) < 0.7}, "bias": {"bias": rng.standard_normal((h, 7)).astype(dtype)},
        "gain": {"gain": rng.random((h, 9)).astype(dtype)}, "counts": {"counts": np.ones((1, 7, d), dtype)},
        "values": {"values": rng.standard_normal((h, 5)).astype(dtype), "index": rng.integers(0, 5, (1, m))},
        "starts": {"query_start": np.array([m - 1]), "spans": np.array([[[2, m - 3]]]), "lengths": np.array([m - 2])},
    }  # fmt: skip
    offsets, rows = {"key_offset": rng.standard_normal((h, m))}, [x.astype(dtype) for x in qkv(rng, 1, h, h, 1, m, d)]
    for count in range(1, len(made) + 1):
        for names in combinations(made, count):
            given = offsets | {"causal": True} | {slot: x for name in names for slot, x in made[name].items()}
            expected = reference_of(*rows, given)
            fastpe.attention(*rows, **given)
            np.testing.assert_array_equal(only_again(*rows, **given), expected)
