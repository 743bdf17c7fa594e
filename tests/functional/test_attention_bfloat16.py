"""Attention of bfloat16 numbers: products of rounded operands where they pay, float32 where they do not."""

import numpy as np
import pytest
from array_kinds import gapped, read_only, stepped, transposed, unaligned
from hypothesis import given as drawing
from hypothesis import strategies as st

import fastpe
from fastpe import reference
from fastpe.functional import attention as host
from fastpe.functional import passes
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES
from fastpe.kernels.products.bfloat16 import isa as way
from fastpe.kernels.threads import team as threads_of_kernels

USUAL = {"causal": False, "window": None, "lengths": None, "tolerance": None}
HALF = 2.0**-8  # what rounding to bfloat16 may change of a number
fast = pytest.mark.skipif(way.fastest() is way.SHIFTS, reason="this CPU has no bfloat16 products")


def drawn(*shape, seed=0):
    return reference.bfloat16(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def problem(n, m, heads=2, key_heads=2, d=24):
    return drawn(2, heads, n, d), drawn(2, key_heads, m, d, seed=1), drawn(2, key_heads, m, d, seed=2)


SIZES = {
    "short": (64, 64), "one tile and one more": (int(TILE_QUERIES) + 1, int(TILE_KEYS) + 1), "several": (200, 300),
}  # fmt: skip


@fast
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_outputs_are_off_by_the_rounding_of_weights_alone(size, causal):
    """Of bfloat16 queries and keys the scores are float32's; each weight is rounded once."""
    q, k, v = problem(*SIZES[size])
    out, lse = host.rounded(q, k, v, **USUAL | {"causal": causal})
    exact, exact_lse = reference.attention(q, k, v, causal=causal, return_lse=True)
    size = reference.attention(q, k, np.abs(v), causal=causal)
    np.testing.assert_array_less(np.abs(out - exact), 1.01 * HALF * size + 1e-5)
    assert np.abs(out - exact).max() > HALF / 100  # it was rounded indeed
    np.testing.assert_allclose(lse, exact_lse, rtol=1e-5, atol=1e-5)


@fast
@pytest.mark.parametrize("seen", [300, 290, 170, 32, 1])
def test_what_no_query_sees_may_be_anything(seen):
    """Keys and values are packed by whole steps, for all queries at once."""
    q, k, v = problem(200, 300)
    spans = np.stack([np.zeros(200, np.int64), np.minimum(np.arange(1, 201), seen)], axis=-1)[None]
    out, lse = host.rounded(q, k, v, **USUAL, spans=spans)
    assert np.isfinite(out).all()
    k[:, :, seen:], v[:, :, seen:] = np.nan, np.nan
    for one, other in zip(host.rounded(q, k, v, **USUAL, spans=spans), (out, lse), strict=True):
        np.testing.assert_array_equal(one, other)


@fast
@pytest.mark.parametrize(
    ("causal", "slots"),
    [
        (False, {}), (True, {}),
        (True, {"angles": np.random.default_rng(3).uniform(-3, 3, (1, 300, 6)), "softcap": 5.0}),
        (True, {"angles": np.random.default_rng(3).uniform(-3, 3, (1, 300, 24)), "polar": drawn(4, 24, seed=5)}),
        (True, {"growth": -0.01 * np.arange(300)[:, None] * np.ones(8)}),
    ],
)  # fmt: skip
def test_gradients_are_close(causal, slots):
    q, k, v = problem(200, 300, heads=4)
    options, dout, names = USUAL | {"causal": causal}, drawn(2, 4, 200, 24, seed=4), ("q", "k", "v")
    out, lse = host.rounded(q, k, v, **options, **slots)
    found = host.gradients(out, lse, dout, q, k, v, **options, wrt=names, rounds=True, **slots)
    exact = reference.attention_vjp(q, k, v, causal=causal, wrt=names, **slots)[1](dout)
    for name in names:
        error = np.linalg.norm(found[name] - exact[name]) / np.linalg.norm(exact[name])
        assert 1e-5 < error < 2 * HALF, name


@fast
def test_bits_do_not_depend_on_threads(monkeypatch):
    q, k, v = problem(200, 300, heads=4)
    options, dout, results = USUAL | {"causal": True}, drawn(2, 4, 200, 24, seed=4), []
    for threads in (1, 2, 3):
        monkeypatch.setattr(threads_of_kernels, "default_threads", lambda threads=threads: threads)
        out, lse = host.rounded(q, k, v, **options)
        found = host.gradients(out, lse, dout, q, k, v, **options, wrt=("q", "k", "v"), rounds=True)
        results.append([x.tobytes() for x in (out, lse, *found.values())])
    assert results[0] == results[1] == results[2]


def bfloat16(x):
    return x.astype(pytest.importorskip("ml_dtypes").bfloat16)


@fast
@drawing(data=st.data())
def test_arrays_are_read_and_written_where_they_lie(data):
    """Bit for bit what float32 arrays of the same numbers give, rounded; whatever they hold that nobody sees."""
    draw, rng = data.draw, np.random.default_rng(data.draw(st.integers(0, 2**31)))
    n, m = draw(st.sampled_from([64, 97, 200])), draw(st.sampled_from([64, 129, 300]))
    (h, hk), d, dv = (
        draw(st.sampled_from([(1, 1), (4, 2)])),
        draw(st.sampled_from([8, 24, 40])),
        draw(st.integers(1, 40)),
    )
    q, k, v = (rng.standard_normal((2, *shape)) for shape in ((h, n, d), (hk, m, d), (hk, m, dv)))
    given = [bfloat16(x) for x in (q, k, v)]
    options = USUAL | {"causal": draw(st.booleans()), "window": draw(st.sampled_from([None, 40]))}
    hidden = draw(st.sampled_from([None, "lengths", "spans"]))
    if hidden == "lengths":
        options["lengths"] = rng.integers(0, n + 1, 2), rng.integers(0, m + 1, 2)
    if hidden == "spans":
        seen = draw(st.integers(0, m))
        options["spans"] = np.sort(rng.integers(0, seen + 1, (2, n, 2)), axis=-1)
        for x in given[1:]:
            x[:, :, seen:] = np.nan
    layout = draw(st.sampled_from([np.array, gapped, stepped, read_only, unaligned, transposed]))
    out, lse = fastpe.attention(*map(layout, given), **options, return_lse=True)
    right, right_lse = host.rounded(*(x.astype(np.float32) for x in given), **options)
    assert out.dtype == given[0].dtype
    np.testing.assert_array_equal(out.view(np.uint16), right.astype(out.dtype).view(np.uint16))
    np.testing.assert_array_equal(lse, right_lse)


@fast
def test_arrays_without_samples_and_heads():
    given = [bfloat16(x) for x in problem(200, 300)]
    out = fastpe.attention(*(x[1, 0] for x in given), causal=True)
    assert (out.shape, out.dtype) == ((200, 24), given[0].dtype)
    np.testing.assert_array_equal(out, fastpe.attention(*given, causal=True)[1, 0])


@fast
def test_slots_beside_bfloat16_arrays():
    """With them rows are widened first; nothing else differs."""
    given = [bfloat16(x) for x in problem(200, 300)]
    wide = [x.astype(np.float32) for x in given]
    rng = np.random.default_rng(3)
    masks = {
        "mask": np.where(rng.random((200, 300)) < 0.1, -np.inf, rng.standard_normal((200, 300))).astype(np.float32)
    }
    beside = (
        {"bias": rng.standard_normal((2, 499)).astype(np.float32)},
        {"softcap": 3.0},
        {"sinks": np.ones(2, np.float32)},
    )
    for slots in (*beside, masks, {"angles": rng.uniform(-3, 3, (1, 300, 12))}, {"dropout": 0.2, "dropout_seed": 1}):
        found = fastpe.attention(*given, **slots)
        np.testing.assert_array_equal(found, host.rounded(*wide, **USUAL, **slots)[0].astype(found.dtype))


def test_few_queries_or_keys_are_computed_in_float32():
    for n, m in ((63, 300), (200, 63)):
        q, k, v = problem(n, m)
        plain = host.attention(q, k, v, return_lse=True)
        for one, other in zip(host.rounded(q, k, v, **USUAL), plain, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_cpu_without_products_computes_in_float32(monkeypatch):
    monkeypatch.setattr(passes, "fastest", lambda: way.SHIFTS)
    q, k, v = problem(200, 300)
    np.testing.assert_array_equal(host.rounded(q, k, v, **USUAL)[0], host.attention(q, k, v))


@fast
def test_tensors_take_them_too():
    torch = pytest.importorskip("torch")
    from fastpe.torch import attention

    q, k, v = problem(200, 300)
    tensors = [torch.from_numpy(x).to(torch.bfloat16).requires_grad_() for x in (q, k, v)]
    out = attention(*tensors, causal=True)
    right, lse = host.rounded(q, k, v, **USUAL | {"causal": True})
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out, torch.from_numpy(right).to(torch.bfloat16), rtol=0, atol=0)
    dout = torch.ones_like(out)
    out.backward(dout)
    options = USUAL | {"causal": True}
    found = host.gradients(
        right, lse, dout.float().numpy(), q, k, v, **options, wrt=("q", "k", "v"), rounds=True
    )  # fmt: skip
    for x, gradient in zip(tensors, found.values(), strict=True):
        torch.testing.assert_close(x.grad, torch.from_numpy(gradient).to(torch.bfloat16), rtol=0, atol=0)


@fast
def test_no_float32_copy_of_arrays(monkeypatch):
    widths = []

    class Seen(passes.Pass):
        def _forward(self):
            widths.extend(x.dtype.itemsize for x in (*self.inputs[:5], self.out))
            super()._forward()

    monkeypatch.setattr(host, "Pass", Seen)
    given = [bfloat16(x) for x in problem(200, 300)]
    for slots, expected in (({}, [2] * 6), ({"softcap": 4.0}, [4] * 6), ({"sinks": np.zeros(2, np.float32)}, [4] * 6)):
        widths.clear()
        fastpe.attention(*given, causal=True, **slots)
        assert widths == expected


def test_numpys_bfloat16_takes_them_too():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    q, k, v = problem(200, 300)
    out = host.attention(*(x.astype(bfloat16) for x in (q, k, v)))
    assert out.dtype == bfloat16
    right = host.rounded(q, k, v, **USUAL)[0]
    np.testing.assert_array_equal(out.astype(np.float32), right.astype(bfloat16).astype(np.float32))
