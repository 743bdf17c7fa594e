"""Masks, spans, positions of each sample, soft caps, sinks, dropout and widths of values: any combination of them,
beside the reference; and what each of them is, beside a few lines of NumPy."""

import numpy as np
import pytest
from attention_problems import SLOTS, assert_agrees, problem
from hypothesis import given
from hypothesis import strategies as st

import fastpe
from fastpe import reference
from fastpe.functional.slots import REFUSED


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize("polar", [False, True])
@given(data=st.data())
def test_any_combination(data, polar):
    """Of slots, sizes, and everything that hides keys."""
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    b, h, hk = draw(st.sampled_from([(1, 1, 1), (2, 2, 1), (2, 4, 2), (3, 2, 2)]))
    n, m = draw(st.sampled_from([1, 2, 31, 95, 97, 130])), draw(st.sampled_from([1, 3, 64, 127, 129, 200]))
    names = draw(st.lists(st.sampled_from(SLOTS), unique=True, max_size=4))
    if polar:
        names = ["polar", *(name for name in names if name not in REFUSED["polar"])]
    wide = polar or bool({"rel_gain", "growth"} & set(names))  # their reference goes channel by channel
    d = draw(st.sampled_from([1, 2, 3, 7] if wide else [1, 2, 5, 8, 16, 17, 40]))
    names = [name for name in names if d > 1 or name not in ("angles", "growth")]
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    sizes = {"b": b, "h": h, "hk": hk, "d": d, "dtype": dtype}
    sizes |= {"shared": draw(st.booleans()), "led": draw(st.booleans())}
    arguments = problem(rng, names, n=n, m=m, reach=draw(st.sampled_from([0, 2, 60, 300])), **sizes)
    if draw(st.booleans()):
        arguments["query_start"] = starts = rng.integers(0, 2 * m, b)
        length = max(m, n + int(starts.max()))
        longer = problem(rng, names, n=length, m=length, **sizes)
        arguments |= {name: longer[name] for name in ("rotors", "angles", "growth") if name in names}
    if draw(st.booleans()):
        arguments["v"] = rng.standard_normal((b, hk, m, 11)).astype(dtype)
        if "rel_value" in arguments:
            arguments["rel_value"] = rng.standard_normal((*arguments["rel_value"].shape[:-1], 11)).astype(dtype)
    if draw(st.booleans()):
        arguments["sinks"] = rng.standard_normal(h).astype(dtype)
    options = drawn_sight(draw, rng, (b, h, n, m), dtype)
    if "mask" in options and options["mask"].dtype != bool:
        arguments["mask"] = options.pop("mask")
    assert_agrees(
        arguments, condition=4.0, causal="growth" in names or draw(st.booleans()),
        tolerance=draw(st.sampled_from([None, 0])), window=draw(st.sampled_from([None, 1, 70, 2**62])),
        pairs=draw(st.sampled_from(["interleaved", "half"])), rectify=dtype == np.float64 and draw(st.booleans()),
        **options,
    )  # fmt: skip


def drawn_sight(draw, rng, sizes, dtype):
    b, _, n, m = sizes
    options = {}
    kind = draw(st.sampled_from(["", "bool", "intervals", "float", "hiding"]))
    if kind:
        shape = tuple(draw(st.sampled_from([1, size])) for size in sizes)
        seen = rng.random(shape) < draw(st.sampled_from([0.1, 0.9]))
        if kind == "intervals":
            seen = np.arange(m) < rng.integers(0, m + 1, (b, 1, n, 1))
        added = np.where(seen, 0 if kind == "hiding" else rng.standard_normal(seen.shape), -np.inf).astype(dtype)
        options["mask"] = seen if kind in ("bool", "intervals") else added
    if draw(st.booleans()):
        options["spans"] = np.sort(rng.integers(-2, m + 3, (draw(st.sampled_from([1, b])), n, 2)), axis=-1)
    lengths = rng.integers(0, n + 1, b), rng.integers(0, m + 1, b)
    options["lengths"] = draw(st.sampled_from([None, lengths[1], lengths]))
    if draw(st.booleans()):
        options["softcap"] = draw(st.sampled_from([0.5, 5.0, 50.0]))
    if draw(st.booleans()):
        options |= {"dropout": draw(st.sampled_from([0.1, 0.9])), "dropout_seed": draw(st.integers(0, 2**40))}
    return options


def softmax(x):
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def drawn(rng, n=40, m=70, dtype=np.float64, d=6):
    q, k, v = (rng.standard_normal((2, 3, size, d)).astype(dtype) for size in (n, m, m))
    return q, k, v, q @ k.swapaxes(-1, -2) / np.sqrt(d)


def test_a_mask_with_holes(rng):
    q, k, v, scores = drawn(rng)
    seen = rng.random((2, 1, 40, 70)) < 0.5
    right = softmax(np.where(seen, scores, -np.inf)) @ v
    np.testing.assert_allclose(fastpe.attention(q, k, v, mask=seen), right, atol=1e-13)
    added = np.where(seen, 0.0, -np.inf)
    np.testing.assert_array_equal(fastpe.attention(q, k, v, mask=added), fastpe.attention(q, k, v, mask=seen))


def test_rows_that_see_nothing_are_zero_and_have_no_gradient(rng):
    q, k, v, _ = drawn(rng)
    sees = np.arange(40) % 3 > 0
    interval = np.arange(70) < np.where(sees, 70, 0)[:, None]
    holes = (rng.random((40, 70)) < 0.5) & sees[:, None]
    spans = np.stack([np.full(40, 5), np.where(sees, 70, 5)], axis=-1)[None]
    for hidden in ({"mask": interval}, {"mask": holes}, {"spans": spans}):
        (out, lse), pullback = fastpe.attention_vjp(q, k, v, return_lse=True, **hidden)
        assert not out[:, :, ::3].any()
        assert (lse[:, :, ::3] == -np.inf).all()
        assert np.isfinite(lse[:, :, 1::3]).all()
        found = pullback(np.ones_like(out))
        assert not found["q"][:, :, ::3].any()
        assert all(np.isfinite(each).all() for each in found.values())


def test_a_soft_cap_and_a_mask_after_it(rng):
    q, k, v, scores = drawn(rng)
    added = rng.standard_normal((40, 70))
    right = softmax(2.0 * np.tanh(scores / 2.0) + added) @ v
    np.testing.assert_allclose(fastpe.attention(q, k, v, softcap=2.0, mask=added), right, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_soft_cap_keeps_small_scores_to_their_last_digits(dtype):
    """Where a hyperbolic tangent by exponentials would cancel."""
    scores = np.geomspace(1e-6, 60.0, 300).astype(dtype)
    q, k = np.ones((1, 1, 1, 1), dtype), scores[None, None, :, None]
    for which in (1, -1):
        lse = [fastpe.attention(which * q, k[..., [j], :], k[..., [j], :], scale=1.0, softcap=30.0, return_lse=True)[1]
               for j in range(300)]  # fmt: skip
        right = which * 30.0 * np.tanh(scores.astype(np.float64) / 30.0)
        np.testing.assert_allclose(np.ravel(lse), right, rtol=6 * np.finfo(dtype).eps)


def test_a_sink_is_a_key_without_a_value(rng):
    q, k, v, scores = drawn(rng)
    sinks = np.array([-1.0, 0.5, 3.0])
    column = np.broadcast_to(sinks[None, :, None, None], (2, 3, 40, 1))
    weights = softmax(np.concatenate([scores, column], axis=-1))[..., :-1]
    np.testing.assert_allclose(fastpe.attention(q, k, v, sinks=sinks), weights @ v, atol=1e-13)


def test_the_gradient_of_lse_joins_two_halves_of_a_cache(rng):
    """Keys in two parts, their outputs joined by lse: the same output and gradients as all at once."""
    q, k, v, _ = drawn(rng)
    out, pullback = fastpe.attention_vjp(q, k, v)
    parts = [fastpe.attention_vjp(q, k[:, :, part], v[:, :, part], return_lse=True) for part in np.s_[:31, 31:]]
    (o1, l1), (o2, l2) = (part[0] for part in parts)
    shares = softmax(np.stack([l1, l2], axis=-1))
    joined = shares[..., :1] * o1 + shares[..., 1:] * o2
    np.testing.assert_allclose(joined, out, atol=1e-13)
    dout = rng.standard_normal(out.shape)
    slope = shares.prod(axis=-1) * np.sum(dout * (o1 - o2), axis=-1)
    found = [pull((share[..., None] * dout, sign * slope)) for (_, pull), share, sign in
             zip(parts, np.moveaxis(shares, -1, 0), (1, -1), strict=True)]  # fmt: skip
    right = pullback(dout)
    np.testing.assert_allclose(found[0]["q"] + found[1]["q"], right["q"], atol=1e-13)
    for name in "kv":
        np.testing.assert_allclose(np.concatenate([each[name] for each in found], axis=2), right[name], atol=1e-13)


def test_a_cache_with_a_length_of_its_own_per_sample(rng):
    """The same as each sample by itself, its bias and rotation at its own positions."""
    q, k, v, _ = drawn(rng, n=3, m=20)
    bias, angles = rng.standard_normal((3, 39)), rng.standard_normal((1, 20, 3))
    starts = np.array([4, 15])
    out = fastpe.attention(q, k, v, causal=True, query_start=starts, bias=bias, angles=angles)
    for sample, start in enumerate(starts):
        end = start + 3
        alone = fastpe.attention(q[sample], k[sample, :, :end], v[sample, :, :end], causal=True, bias=bias,
                                 angles=angles[:, :end])  # fmt: skip
        np.testing.assert_allclose(out[sample], alone, atol=1e-13)


def test_packed_documents_are_each_by_itself(rng):
    q, k, v, _ = drawn(rng, n=70)
    spans = fastpe.spans.documents(cu_seqlens=[0, 20, 21, 70])
    out, pullback = fastpe.attention_vjp(q, k, v, causal=True, spans=spans)
    found = pullback(out)
    for first, last in ((0, 20), (20, 21), (21, 70)):
        part = np.s_[:, :, first:last]
        alone, alone_back = fastpe.attention_vjp(q[part], k[part], v[part], causal=True)
        np.testing.assert_allclose(out[part], alone, atol=1e-13)
        for name, gradient in alone_back(alone).items():
            np.testing.assert_allclose(found[name][part], gradient, atol=1e-13)


def test_dropout_drops_as_many_as_it_says_and_the_same_at_any_length(rng):
    """A cell's decision is a function of seed, sample, head, query and key."""
    q, k = np.zeros((2, 4, 300, 4)), np.zeros((2, 4, 256, 4))
    v = np.broadcast_to(np.eye(256), (2, 4, 256, 256)).copy()
    kept = fastpe.attention(q, k, v, dropout=0.3, dropout_seed=5) * 256 * 0.7
    assert set(np.unique(kept.round(12))) == {0.0, 1.0}
    share = 1 - kept.mean()
    assert abs(share - 0.3) < 4 * np.sqrt(0.21 / kept.size)
    flat = kept.reshape(8, -1) - 0.7
    assert abs(np.corrcoef(flat) - np.eye(8)).max() < 5 / np.sqrt(flat.shape[1])
    fewer = fastpe.attention(q[:, :, :9], k, v, dropout=0.3, dropout_seed=5) * 256 * 0.7
    np.testing.assert_array_equal(fewer.round(), kept[:, :, :9].round())
    other = fastpe.attention(q, k, v, dropout=0.3, dropout_seed=6) * 256 * 0.7
    assert 0.4 < (other.round() == kept.round()).mean() < 0.65


def test_queries_without_batch_or_heads(rng):
    q, k, v = rng.standard_normal((5, 4)), rng.standard_normal((7, 4)), rng.standard_normal((7, 3))
    (out, lse), pullback = fastpe.attention_vjp(q, k, v, causal=True, bias=np.zeros((1, 3)), return_lse=True)
    whole = fastpe.attention(q[None], k[None], v[None], causal=True)
    assert (out.shape, lse.shape, pullback((out, lse))["k"].shape) == ((5, 3), (5,), (7, 4))
    np.testing.assert_array_equal(out, whole[0])


def test_tiles_that_a_mask_hides_are_not_computed(rng):
    """Keys of hidden tiles may be no numbers at all: nobody multiplies them."""
    q, k, v, _ = drawn(rng, n=200, m=400)
    seen = rng.random((200, 400)) < 0.5
    seen[:96, 128:256] = False
    seen[96:, 256:384] = False
    plain = fastpe.attention(q, k, v, mask=seen)
    poisoned = v.copy()
    poisoned[:, :, 128:256] = np.nan
    np.testing.assert_array_equal(fastpe.attention(q, k, poisoned, mask=seen)[:, :, :96], plain[:, :, :96])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mask": np.full((4, 4), np.nan)}, "mask must hold finite numbers or minus infinity"),
        ({"mask": np.full((4, 4), np.inf)}, "mask must hold finite numbers or minus infinity"),
        ({"mask": np.zeros((4, 4), int)}, "mask must hold bool, or floats"),
        (
            {"mask": np.zeros((3, 4), bool)},
            r"mask must have a shape that broadcasts to \(B, H, N, M\) =",
        ),
        ({"spans": np.zeros((4, 2))}, "spans must hold integers"),
        ({"spans": np.zeros((3, 4, 2), int)}, r"spans must have the shape \(B or 1, N, 2\), N = 4, not \(3, 4, 2\)"),
        ({"query_start": [1, 2, 3]}, r"query_start must be one integer or have the shape \(B,\) = \(2,\), not \(3,\)"),
        ({"query_start": 9, "angles": np.zeros((1, 4, 2))}, r"angles must have the shape \(H or 1, max\(N, M\), R/2\)"),
        ({"softcap": 0}, "softcap must be above 0"),
        ({"softcap": "1"}, "softcap must be a number"),
        ({"sinks": np.zeros(3)}, r"sinks must have the shape \(H,\) with B = 2"),
        ({"dropout": 1.0, "dropout_seed": 1}, r"dropout must lie in \[0, 1\), not 1"),
        ({"dropout": 0.5}, "dropout needs dropout_seed, an integer"),
        ({"v": np.zeros((2, 2, 3, 4))}, "v must have the shape of k"),
    ],
)
def test_bad_arguments_are_one_clear_error(arguments, message):
    given = {**dict.fromkeys("qkv", np.zeros((2, 2, 4, 4))), **arguments}
    for module in (fastpe, reference):
        with pytest.raises((TypeError, ValueError), match=message):
            module.attention(**given)
