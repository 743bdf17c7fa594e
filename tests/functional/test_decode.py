"""The short path for few queries: right against the reference, chosen only where it fits, and nothing remembered."""

from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from array_kinds import gapped, read_only, stepped, transposed, unaligned
from attention_options import qkv

import fastpe
from fastpe.functional import attention as general
from fastpe.functional import decode

DTYPES = ("float32", "float64", "float16", "bfloat16")
ERRORS = {"float32": 3e-5, "float64": 1e-13, "float16": 2e-3, "bfloat16": 2e-2}


def dtype_of(name):
    return np.dtype(pytest.importorskip("ml_dtypes").bfloat16 if name == "bfloat16" else name)


@pytest.fixture
def rng():
    return np.random.default_rng(8)


def problem(rng, dtype):
    """Random q, k and v, and some of the arguments that the kernel takes."""
    b, hk, n = (int(rng.integers(1, most)) for most in (4, 4, decode.MOST_QUERIES + 1))
    h, m = hk * int(rng.integers(1, 4)), int(rng.choice([1, 3, 17, 64, 130]))
    d, dv = (int(rng.choice([1, 5, 16, 64])) for _ in range(2))
    computed = np.float64 if dtype == np.float64 else np.float32

    def normal(*shape):
        return rng.standard_normal(shape).astype(computed)

    def lead():
        return [int(rng.choice([1, b]))] if rng.random() < 0.3 else []

    shape = [*(int(rng.choice([1, size])) for size in (b, h, n)), m]
    masks = (
        rng.random(shape) < 0.6, np.where(rng.random(shape) < 0.7, normal(*shape), -np.inf).astype(computed), None, None
    )  # fmt: skip
    given = {
        "causal": True, "window": int(rng.integers(1, m + 2)),
        "bias": normal(*lead(), h, int(rng.choice([1, 9, 2 * m + 1]))),
        "mask": masks[rng.integers(4)], "softcap": float(rng.uniform(0.5, 9)),
        "scale": float(rng.uniform(0.01, 2)) if rng.random() < 0.5 else rng.uniform(0.01, 2, h), "sinks": normal(h),
        "lengths": rng.integers(0, m + 1, b),
        "spans": np.sort(rng.integers(-1, m + 3, (int(rng.choice([1, b])), n, 2)), axis=-1),
        "query_start": rng.integers(0, m + 2, b) if rng.random() < 0.5 else int(rng.integers(0, m + 2)),
        "key_offset": 3.0 * rng.standard_normal((*lead(), int(rng.choice([1, h])), m)),
    }  # fmt: skip
    rows = [rng.standard_normal(size).astype(dtype) for size in ((b, h, n, d), (b, hk, m, d), (b, hk, m, dv))]
    return rows, {name: x for name, x in given.items() if rng.random() < 0.4 and x is not None}


def short_only(q, k, v, **given):
    """Attention that must take the short path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(general, "checked", None)
        return fastpe.attention(q, k, v, **given)


def general_only(q, k, v, **given):
    """Attention that must take the general path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "attend", lambda *_, **__: None)
        return fastpe.attention(q, k, v, **given)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("seed", range(40))
def test_it_agrees_with_the_reference(seed, name):
    rows, given = problem(np.random.default_rng(seed), dtype_of(name))
    out, lse = short_only(*rows, **given, return_lse=True)
    exact = fastpe.reference.attention(*(x.astype(np.float64) for x in rows), **given, return_lse=True)
    assert out.dtype == rows[0].dtype
    np.testing.assert_array_equal(np.isfinite(lse), np.isfinite(exact[1]))
    np.testing.assert_allclose(out.astype(np.float64), exact[0], rtol=0, atol=ERRORS[name])
    np.testing.assert_allclose(lse, exact[1], rtol=0, atol=min(ERRORS[name], 3e-5))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("layout", [gapped, transposed, stepped, read_only, unaligned])
def test_layouts_change_no_bit(rng, layout, name):
    rows = [x.astype(dtype_of(name)) for x in qkv(rng, n=2)]
    expected = short_only(*rows).view(f"u{rows[0].itemsize}")
    np.testing.assert_array_equal(short_only(*map(layout, rows)).view(expected.dtype), expected)
    q, k, v = rows
    np.testing.assert_array_equal(short_only(q, k[:, :, ::-1], v[:, :, ::-1]).shape, expected.shape)
    backwards = [np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1] for x in rows]
    np.testing.assert_array_equal(short_only(*backwards).view(expected.dtype), expected)
    repeated = np.broadcast_to(k[:1], k.shape), np.broadcast_to(v[:1], v.shape)
    copied = (x.copy() for x in repeated)
    np.testing.assert_array_equal(
        short_only(q, *repeated).view(expected.dtype), short_only(q, *copied).view(expected.dtype)
    )


def test_terms_in_any_layout(rng):
    q, k, v = qkv(rng, n=2)
    mask, bias = rng.random((2, 4, 2, 140)) < 0.6, rng.standard_normal((4, 18)).astype(np.float32)
    for given in (
        {"mask": mask[..., ::2]}, {"mask": mask[..., 69::-1]}, {"bias": bias[:, 1::2]},
        {"bias": np.asfortranarray(bias[:, 1:])},
        {"lengths": np.array([3, 0, 60, 0])[::2]}, {"spans": read_only(np.array([[[1, 60], [0, 9]]]))},
    ):  # fmt: skip
        plain = {name: x.copy() for name, x in given.items()}
        np.testing.assert_array_equal(short_only(q, k, v, **given), short_only(q, k, v, **plain))


@pytest.mark.parametrize("given", [
    {"dropout": 0.1, "dropout_seed": 3}, {"tolerance": 0.0}, {"gain": np.ones((4, 3), np.float32)}, {"lengths": [3, 4]},
    {"lengths": np.array([3, 4], np.uint8)}, {"mask": np.ones((1, 1), bool)}, {"scale": np.float32(0.3)},
    {"mask": [[True] * 70]}, {"lengths": (None, np.array([3, 4]))}, {"bias": np.ones((4, 3), np.float16)},
], ids=str)  # fmt: skip
def test_other_calls_take_the_general_path(rng, given):
    q, k, v = qkv(rng)
    if given.keys() <= {"lengths", "mask", "scale", "bias"}:
        assert decode.attend(q, k, v, False, None, False, **given) is None
    np.testing.assert_array_equal(fastpe.attention(q, k, v, **given), general_only(q, k, v, **given))


@pytest.mark.parametrize(("given", "words"), [
    ({"bias": np.full((4, 9), np.nan, "f4")}, "bias must be finite"), ({"foo": None}, "foo is not an argument"),
    ({"bias": np.zeros((4, 8), "f4")}, "bias must have"), ({"bias": np.zeros((3, 9), "f4")}, "bias must have"),
    ({"bias": np.zeros((4, 9))}, "dtype"), ({"mask": np.full((1, 70), np.inf, "f4")}, "minus infinity"),
    ({"mask": np.full((1, 70), np.nan, "f4")}, "minus infinity"),
    ({"mask": np.zeros((3, 1, 1, 70), bool)}, "mask must have"),
    ({"sinks": np.full(4, -np.inf, "f4")}, "sinks must be finite"),
    ({"scale": np.full(4, np.nan)}, "scale must be finite"), ({"scale": 1e39}, "scale must be finite in float32"),
    ({"scale": np.ones(2)}, "scale must"), ({"spans": np.zeros((2, 1, 3), int)}, "spans"), ({"causal": 0}, "causal"),
    ({"return_lse": 0}, "return_lse"),
    ({"softcap": -1.0}, "softcap"),
    ({"key_offset": np.full((4, 70), np.inf)}, "key_offset must be finite"),
], ids=str)  # fmt: skip
def test_bad_arguments_raise_the_errors_of_the_general_path(rng, given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        fastpe.attention(*qkv(rng), **given)


@pytest.mark.parametrize("wrong", ["keys", "width", "dtype", "batch", "axes", "swapped"])
def test_arrays_that_do_not_fit_are_refused(rng, wrong):
    q, k, v = qkv(rng)
    rows = {
        "keys": (q, k[:, :, 1:], v), "width": (q, k[..., 1:], v), "dtype": (q, k, v.astype(np.float64)),
        "batch": (q, k[:1], v), "axes": (q, k[0], v), "swapped": (q, k.astype(">f4"), v),
    }[wrong]  # fmt: skip
    with pytest.raises((TypeError, ValueError)):
        fastpe.attention(*rows)


def test_large_offsets_lose_no_digits(rng):
    q, k, v = qkv(rng)
    offsets = rng.standard_normal((4, 70))
    near, far = (short_only(q, k, v, key_offset=offsets + base, return_lse=True) for base in (0.0, 2.0**30))
    np.testing.assert_allclose(far[0], near[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(far[1], near[1] + 2.0**30, rtol=1e-7)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_threads_change_no_bit(rng, name):
    rows = [x.astype(dtype_of(name)) for x in qkv(rng, n=3, m=900, d=64)]
    given = {"causal": True, "sinks": np.linspace(-2, 2, 4, dtype=np.float32)}
    before = numba.get_num_threads()
    try:
        found = []
        for threads in range(1, numba.config.NUMBA_NUM_THREADS + 1):
            numba.set_num_threads(threads)
            found.append(short_only(*rows, **given).view(f"u{rows[0].itemsize}"))
    finally:
        numba.set_num_threads(before)
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])


def test_threads_of_the_caller_do_not_meet(rng):
    problems = [qkv(rng, m=m, d=64) for m in (1, 60, 61, 900) * 8]
    expected = [fastpe.attention(*each) for each in problems]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            for one, exact in zip(pool.map(lambda each: fastpe.attention(*each), problems), expected, strict=True):
                np.testing.assert_array_equal(one, exact)


def test_a_cache_of_rotated_keys(rng):
    """How a caller decodes with rotary encodings: each new key is rotated once, each query when it comes."""
    q, k, v = qkv(rng, n=70)
    angles = fastpe.build("rope", 70, dim=16)["angles"]
    exact = fastpe.attention(q, k, v, angles=angles, causal=True)
    cache = np.empty_like(k)
    for i in range(70):
        now = angles[:, i : i + 1]
        cache[:, :, i : i + 1] = fastpe.rotate(k[:, :, i : i + 1], now)
        query = fastpe.rotate(q[:, :, i : i + 1], now)
        out = short_only(query, cache[:, :, : i + 1], v[:, :, : i + 1])
        np.testing.assert_allclose(out, exact[:, :, i : i + 1], rtol=0, atol=2e-6)
