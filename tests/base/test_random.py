"""The random streams: the published generator, exact bits, right distributions."""

import hashlib
import itertools

import mpmath
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fastpe.base.random import Stream, normal_quantile

MASK = 2**64 - 1


def philox(counter, key):
    """Philox4x64-10 as printed by Salmon et al. 2011, in Python integers."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * c0, 0xCA5A826395121157 * c2
        c0, c1, c2, c3 = (b >> 64) ^ c1 ^ k0, b & MASK, (a >> 64) ^ c3 ^ k1, a & MASK
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & MASK, (k1 + 0xBB67AE8584CAA73B) & MASK
    return [c0, c1, c2, c3]


def name_hash(name):
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("0 0 0 0", "0 0", "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b"),
        (
            "ffffffffffffffff ffffffffffffffff ffffffffffffffff ffffffffffffffff",
            "ffffffffffffffff ffffffffffffffff",
            "87b092c3013fe90b 438c3c67be8d0224 9cc7d7c69cd777b6 a09caebf594f0ba0",
        ),
        (
            "243f6a8885a308d3 13198a2e03707344 a4093822299f31d0 082efa98ec4e6c89",
            "452821e638d01377 be5466cf34e90c6c",
            "a528f45403e61d95 38c72dbd566e9788 a5a1610e72fd18b5 57bd43b5e52b7fe6",
        ),
    ],
)
def test_philox_known_answers(counter, key, expected):
    """The vectors that the authors publish with Random123."""
    numbers = [[int(word, 16) for word in text.split()] for text in (counter, key, expected)]
    assert philox(numbers[0], numbers[1]) == numbers[2]


def test_choices_are_sets_and_equally_likely():
    assert Stream(0, "positions").choice(100, 5).tolist() == [23, 32, 49, 52, 66]  # these bits are promised
    np.testing.assert_array_equal(Stream(1, "positions").choice(300, 300), np.arange(300))
    sets = [tuple(Stream(0, "positions", step).choice(5, 3).tolist()) for step in range(3000)]
    counts = [sets.count(each) for each in itertools.combinations(range(5), 3)]
    assert sum(counts) == 3000
    assert scipy.stats.chisquare(counts).pvalue > 0.01
    many = Stream(0, "positions", "test.0").choice(2**27, 4000)
    assert (np.diff(many) > 0).all()
    assert scipy.stats.kstest(many / 2**27, "uniform").pvalue > 0.01


@given(
    seed=st.integers(0, MASK),
    stream=st.text(max_size=8),
    step=st.one_of(st.integers(0, MASK), st.text(max_size=8)),
    n=st.integers(0, 13),
)
def test_words_are_philox_blocks(seed, stream, step, n):
    key = (seed, name_hash(stream))
    middle = name_hash(step) if isinstance(step, str) else step
    expected = [word for block in range(4) for word in philox((block + 1, middle, 0, 0), key)]
    assert Stream(seed, stream, step).words(n).tolist() == expected[:n]


@pytest.mark.parametrize(
    ("arguments", "words", "normals"),
    [
        (
            (0, "init"),
            "fcd62d974b25e116 c061ad105c77ad3f 01df1c7ecd7046d6",
            "0x1.1f77eaed839cbp+1 0x1.5bbe719d0ce94p-1 -0x1.38872cd2935dap+1",
        ),
        (
            (1, "train", 0),
            "64d0ae63158abea2 d114f2f446f9fbd2 2e1e76aae98011fc",
            "-0x1.13dec41af8c1fp-2 0x1.ce5082d12a302p-1 -0x1.d45ea8ae54f33p-1",
        ),
        (
            (2**64 - 1, "test", "layers.0.attention.query.weight"),
            "931d344c131cbc1b 7b8c5dd122732159 0f222fdb65b06d1b",
            "0x1.818f84b5f9b45p-3 -0x1.65315ec8e5760p-5 -0x1.8fef24cf0146bp+0",
        ),
    ],
)
def test_first_bits_never_change(arguments, words, normals):
    """Stored bits: a difference would silently change every experiment of a seed."""
    stream = Stream(*arguments)
    assert [f"{word:016x}" for word in stream.words(3).tolist()] == words.split()
    assert [x.hex() for x in stream.normal(3).tolist()] == normals.split()


def test_all_bits_of_many_normals_never_change():
    digest = hashlib.sha256(Stream(7, "train").normal(200_000).astype("<f8").tobytes()).hexdigest()
    assert digest == "d9d15990c952c31556c32f480847a59639c76e3a1e6b0f2167dce6302c449e57"


@given(short=st.integers(0, 30), more=st.integers(0, 30))
def test_a_shorter_request_is_a_prefix(short, more):
    stream = Stream(3, "prefix")
    for draw in (stream.words, stream.uniform, stream.normal):
        np.testing.assert_array_equal(draw(short), draw(short + more)[:short])
    np.testing.assert_array_equal(stream.normal((4, 5)).ravel(), stream.normal(20))


def test_streams_seeds_and_steps_differ():
    draws = [Stream(*a).words(4) for a in [(0, "a"), (1, "a"), (0, "b"), (0, "a", 1), (0, "a", "1")]]
    assert len({word for draw in draws for word in draw.tolist()}) == 20


def test_uniform_is_open_and_uniform():
    u = Stream(11, "uniform").uniform(200_000)
    assert u.dtype == np.float64
    scaled = u * 2.0**53
    np.testing.assert_array_equal(scaled % 2, 1.0)
    assert 0 < u.min() < u.max() < 1
    assert scipy.stats.kstest(u, "uniform").pvalue > 1e-3


def test_quantile_agrees_with_mpmath():
    """Every branch and both ends of the range that `uniform` can give."""
    powers = 2.0 ** -np.arange(1, 54)
    edges = np.array([0.075, 0.925, np.nextafter(0.075, 0), np.nextafter(0.925, 1), 1 - 2**-53, 0.5 + 2**-53])
    far = np.exp(-25.0) * np.array([0.999, 1.0, 1.001])
    p = np.concatenate([powers, edges, far, Stream(0, "quantile").uniform(200)])
    with mpmath.workdps(30):
        expected = []
        for value in p.tolist():
            x = mpmath.mpf(float(scipy.special.ndtri(value)))
            for _ in range(2):
                x -= (mpmath.ncdf(x) - mpmath.mpf(value)) / mpmath.npdf(x)
            expected.append(float(x))
    np.testing.assert_allclose(normal_quantile(p), expected, rtol=1e-15, atol=1e-40)


def test_quantile_is_odd_and_keeps_shape():
    u = Stream(0, "odd").uniform((30, 4))
    np.testing.assert_array_equal(normal_quantile(1 - u), -normal_quantile(u))
    assert normal_quantile(u).shape == (30, 4)
    assert normal_quantile(np.array(0.5)).shape == ()


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, np.nan])
def test_quantile_refuses_what_is_no_probability(p):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        normal_quantile(np.array([0.5, p]))


@given(n=st.integers(0, 200), seed=st.integers(0, MASK))
def test_permutation_is_a_permutation(n, seed):
    np.testing.assert_array_equal(np.sort(Stream(seed, "order").permutation(n)), np.arange(n))


def test_permutations_are_uniform():
    orders = [tuple(Stream(0, "order", epoch).permutation(3).tolist()) for epoch in range(3000)]
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    assert counts.size == 6


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((-1, "a"), ValueError, "seed must be at least 0"),
        ((2**64, "a"), ValueError, r"seed must be at most 2\*\*64 - 1, not 18446744073709551616"),
        ((0.5, "a"), TypeError, "seed must be an integer, not 0.5"),
        ((True, "a"), TypeError, "seed must be an integer"),
        ((0, 3), TypeError, "stream must be a str, not 3"),
        ((0, "a", -1), ValueError, "step must be at least 0"),
        ((0, "a", 1.0), TypeError, "step must be an integer"),
    ],
)
def test_bad_streams_are_refused(arguments, error, match):
    with pytest.raises(error, match=match):
        Stream(*arguments)


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="n must be at least 0"):
        Stream(0, "a").words(-1)
    with pytest.raises(TypeError, match=r"shape must be an integer, not 1\.5"):
        Stream(0, "a").normal((2, 1.5))
