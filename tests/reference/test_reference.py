"""Reference attention: gradients of every slot, identities, masks, hostile input."""

import math

import numpy as np
import pytest
from content_checks import differences
from foreign_arrays import Dlpack
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax

from fastpe.reference import attention, attention_vjp

# ---------------------------------------------------------------------------------------------------------------------
# Gradients


def problem(rng, *names, b=2, h=4, hk=2, n=3, m=4, d=5, reach=2):
    """Random q, k, v, and the slots named."""
    length = max(n, m)
    shapes = {
        "q": (b, h, n, d), "k": (b, hk, m, d), "v": (b, hk, m, d),
        "rel_gain": (h, 2 * reach + 1, d), "rel_key": (1, 2 * reach + 1, d), "rel_query": (b, h, 2 * reach + 1, d),
        "rel_value": (h, 2 * reach + 1, d), "key_bias": (h, d), "gain": (h, 2 * reach + 1),
        "bias": (b, h, 2 * reach + 1), "values": (h, 3), "scores": (h, n, m), "angles": (1, length, 2),
        "growth": (length, 2), "scale": (h,), "counts": (b, h, 3, d),
    }  # fmt: skip
    arguments = {name: rng.standard_normal(shapes[name]) for name in ("q", "k", "v", *names)}
    if "values" in names:
        arguments["index"] = rng.integers(0, 3, (b, n, m))
    return arguments


SLOTS = ["rel_gain", "rel_key", "rel_query", "rel_value", "key_bias", "gain", "bias", "values", "scores", "angles"]
ALL = [*SLOTS, "growth", "scale"]


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize(
    ("names", "options"),
    [
        ([], {}),
        ([], {"causal": True, "window": 2}),
        *[([name], {}) for name in [*SLOTS, "scale"]],
        (["growth"], {"causal": True}),
        (["angles", "growth"], {"causal": True, "pairs": "half"}),
        (["counts"], {"causal": True}),
        (["counts", "gain", "rel_key", "bias", "scale"], {"causal": True, "window": 2, "softcap": 3.0}),
        (["gain", "rel_key"], {"rectify": True, "lengths": ([3, 2], [4, 0])}),
        (ALL, {"causal": True, "rectify": True, "window": 3, "lengths": np.array([4, 3])}),
    ],
    ids=lambda value: "+".join(value) or "plain",
)
def test_gradients_are_the_central_differences(names, options):
    rng = np.random.default_rng(len(names))
    arguments = problem(rng, *names)
    dout = rng.standard_normal(arguments["q"].shape)
    gradients = attention_vjp(**arguments, **options)[1](dout)
    assert list(gradients) == ["q", "k", "v", *[name for name in arguments if name in names]]
    assert_differences(gradients, arguments, dout, **options)


def assert_differences(gradients, arguments, dout, **options):
    for name, gradient in gradients.items():

        def weighed(x, name=name):
            return np.sum(dout * attention(**{**arguments, name: x}, **options))

        numeric = differences(weighed, arguments[name], 1e-5)
        np.testing.assert_allclose(gradient, numeric, rtol=0, atol=2e-8, err_msg=name)


def test_more_queries_than_keys():
    """Queries before the first key see nothing when causal; gradients stay right."""
    rng = np.random.default_rng(0)
    arguments = problem(rng, "angles", "bias", "growth", n=5, m=3)
    dout = rng.standard_normal(arguments["q"].shape)
    out, pullback = attention_vjp(**arguments, causal=True)
    np.testing.assert_array_equal(out[:, :, :2], 0)
    gradients = pullback(dout)
    np.testing.assert_array_equal(gradients["q"][:, :, :2], 0)
    assert_differences(gradients, arguments, dout, causal=True)


def test_wrt_selects_gradients():
    arguments = problem(np.random.default_rng(0), "bias", "scale")
    dout = np.ones(arguments["q"].shape)
    every = attention_vjp(**arguments)[1](dout)
    some = attention_vjp(**arguments, wrt=("scale", "k"))[1](dout)
    assert list(some) == ["scale", "k"]
    for name in some:
        np.testing.assert_array_equal(some[name], every[name])
    scalar = attention_vjp(*(arguments[name] for name in "qkv"), scale=0.5)[1](dout)["scale"]
    assert scalar.shape == ()


# ---------------------------------------------------------------------------------------------------------------------
# Identities


def test_plain_attention_is_scipys_softmax():
    q, k, v = problem(np.random.default_rng(0), hk=4).values()
    logits = np.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(5)
    out, lse = attention(q, k, v, return_lse=True)
    np.testing.assert_allclose(out, softmax(logits, -1) @ v, rtol=1e-13)
    np.testing.assert_allclose(lse, logsumexp(logits, -1), rtol=1e-13)


@given(seed=st.integers(0, 2**32), m=st.integers(1, 9), keep=st.integers(1, 9), h=st.sampled_from([1, 2, 3]))
def test_queries_are_the_last_positions(seed, m, keep, h):
    """Attention of the last queries is the end of attention of all, whatever the slots; B and grouped heads may go."""
    rng = np.random.default_rng(seed)
    arguments = problem(rng, *ALL, b=1, h=h, hk=h, n=m, m=m)
    whole, lse = attention(**arguments, causal=True, rectify=True, return_lse=True)
    keep = min(keep, m)
    arguments["q"] = arguments["q"][:, :, m - keep :]
    part_out, part_lse = attention(**arguments, causal=True, rectify=True, return_lse=True)
    np.testing.assert_allclose(part_out, whole[:, :, m - keep :], rtol=0, atol=1e-12)
    np.testing.assert_allclose(part_lse, lse[:, :, m - keep :], rtol=0, atol=1e-12)
    alone = {name: x[0] if x.ndim == 4 or name in ("bias", "index") else x for name, x in arguments.items()}
    np.testing.assert_array_equal(attention(**alone, causal=True, rectify=True), part_out[0])


def test_four_ways_to_add_a_bias():
    arguments = problem(np.random.default_rng(2), "bias", b=1, m=3)
    bias = arguments.pop("bias")[0]
    rows = np.arange(3) - np.arange(3)[:, None] + 2
    expected = attention(**arguments, bias=bias)
    for slots in ({"scores": bias[:, rows]}, {"index": rows, "values": bias}, {"bias": np.pad(bias, ((0, 0), (2, 2)))}):
        np.testing.assert_allclose(attention(**arguments, **slots), expected, rtol=0, atol=1e-14)


# ---------------------------------------------------------------------------------------------------------------------
# Masks and hostile input


def test_a_causal_row_is_blind_to_its_future():
    arguments = problem(np.random.default_rng(9), *ALL, n=5, m=5)
    before = attention(**arguments, causal=True)
    for name in ("k", "v"):
        arguments[name] = arguments[name] + 10.0 * (np.arange(5) > 2)[:, None]
    after = attention(**arguments, causal=True)
    np.testing.assert_array_equal(after[:, :, :3], before[:, :, :3])
    assert np.abs(after - before)[:, :, 3:].min() > 0


def test_windows_and_lengths_hide_what_they_say():
    q, k, _ = problem(np.random.default_rng(10), hk=4, n=4, m=6, d=6).values()
    visible = attention(q, k, np.eye(6)[None, None].repeat(4, 1).repeat(2, 0), window=2, lengths=([4, 3], [6, 4])) > 0
    expected = [[[abs(i + 2 - j) < 2 and i < queries and j < keys for j in range(6)] for i in range(4)]
                for queries, keys in ((4, 6), (3, 4))]  # fmt: skip
    np.testing.assert_array_equal(visible, np.array(expected)[:, None].repeat(4, 1))


def test_rows_without_a_key_are_zero_and_send_no_gradient():
    arguments = problem(np.random.default_rng(11), *ALL)
    options = {"causal": True, "lengths": ([3, 1], [4, 0]), "return_lse": True}
    (out, lse), pullback = attention_vjp(**arguments, **options)
    np.testing.assert_array_equal(out[1], 0)
    np.testing.assert_array_equal(lse[1], -np.inf)
    gradients = pullback(np.ones_like(out))
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())
    for name in ("q", "k", "v", "bias", "rel_query"):
        np.testing.assert_array_equal(gradients[name][1], 0, err_msg=name)


def test_bias_of_minus_infinity_is_a_mask():
    q, k, v = problem(np.random.default_rng(12), n=4).values()
    bias = np.where(np.arange(-3, 4) > 0, -np.inf, 0.0)[None].repeat(4, 0)
    (masked, pullback), (causal, expected) = attention_vjp(q, k, v, bias=bias), attention_vjp(q, k, v, causal=True)
    np.testing.assert_array_equal(masked, causal)
    for name, gradient in expected(masked).items():
        np.testing.assert_array_equal(pullback(masked)[name], gradient)


@pytest.mark.parametrize("level", [-1000.0, 1000.0])
def test_large_scores_do_not_overflow(level):
    arguments = problem(np.random.default_rng(13), "scores")
    expected = attention(**arguments)
    out, lse = attention(**arguments | {"scores": arguments["scores"] + level}, return_lse=True)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-12)
    assert abs(lse - level).max() < 20


def test_growth_never_overflows():
    q, k, v = problem(np.random.default_rng(14), n=4).values()
    growth = -900.0 * np.arange(4)[:, None] * np.ones(2)
    out, pullback = attention_vjp(q, k, v, growth=growth, causal=True)
    # against an earlier key the four grown channels vanish; at the diagonal nothing is grown
    grown = q[..., :4] @ np.swapaxes(k.repeat(2, 1)[..., :4], -1, -2) / math.sqrt(5)
    expected = attention(q, k, v, scores=np.where(np.eye(4), 0, -grown), causal=True)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-13)
    assert all(np.isfinite(gradient).all() for gradient in pullback(out).values())


def test_inputs_of_any_kind():
    q, k, v = problem(np.random.default_rng(15)).values()
    small = [x.astype(np.float32) for x in (q, k, v)]
    out = attention(*small)
    assert out.dtype == np.float64
    np.testing.assert_array_equal(out, attention(*(x.astype(np.float64) for x in small)))
    np.testing.assert_array_equal(
        attention(q[::-1, :, ::-1], k[::-1], v[::-1], tolerance=1e-3)[::-1, :, ::-1], attention(q, k, v)
    )
    np.testing.assert_array_equal(
        attention(memoryview(q[0].copy()), k[0].tolist(), v[0], bias=None), attention(q, k, v)[0]
    )
    np.testing.assert_array_equal(attention(Dlpack(q), k, v), attention(q, k, v))


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"q": np.zeros(5)}, ValueError, r"q must have the shape \(B, H, N, D\).*not \(5,\)"),
        ({"q": np.zeros((2, 0, 3, 5))}, ValueError, "q must have .* H and D not 0"),
        ({"q": np.zeros((2, 4, 3, 5), int)}, TypeError, "q must be an array of float32 or float64, .*not of int64"),
        ({"k": np.zeros((2, 2, 4, 6))}, ValueError, r"k must have the shape .*not \(2, 2, 4, 6\)"),
        ({"k": np.zeros((2, 3, 4, 5)), "v": np.zeros((2, 3, 4, 5))}, ValueError, "divides q's 4, not 3"),
        ({"v": np.zeros((2, 2, 3, 5))}, ValueError, r"v must have the shape of k, \(2, 2, 4, 5\)"),
        ({"bias": np.zeros((4, 6))}, ValueError, r"bias must have the shape \(H, 2K\+1\).*H = 4.*not \(4, 6\)"),
        ({"bias": np.zeros((1, 7))}, ValueError, "bias must have the shape"),
        ({"bias": np.zeros((3, 4, 7))}, ValueError, "bias must have the shape .* after an axis B, with B = 2"),
        ({"rel_key": np.zeros((2, 7, 5))}, ValueError, r"rel_key must have the shape \(H or 1, 2K\+1, D\)"),
        ({"angles": np.zeros((1, 3, 2))}, ValueError, r"angles must have the shape \(H or 1, max\(N, M\), R/2\)"),
        ({"angles": np.zeros((1, 4, 3))}, ValueError, "angles must have the shape"),
        ({"growth": np.zeros((4, 2))}, ValueError, "growth needs causal=True"),
        ({"growth": np.zeros((4, 2)), "angles": np.zeros((1, 4, 1)), "causal": True}, ValueError, "as many pairs"),
        ({"index": np.zeros((3, 4), int)}, ValueError, "index and values must be given together"),
        ({"index": np.full((3, 4), 3), "values": np.zeros((4, 3))}, ValueError, r"index must lie in \[0, 2\]"),
        ({"index": np.zeros((3, 4)), "values": np.zeros((4, 3))}, TypeError, "index must hold integers"),
        ({"scale": np.ones(3)}, ValueError, r"scale must be a number or have the shape \(H,\)"),
        ({"scale": "big"}, TypeError, "scale must hold real numbers"),
        ({"rectify": 1}, TypeError, "rectify must be True or False, not 1"),
        ({"causal": None}, TypeError, "causal must be True or False"),
        ({"pairs": "both"}, ValueError, "pairs must be 'interleaved' or 'half', not 'both'"),
        ({"window": 0}, ValueError, "window must be at least 1, not 0"),
        ({"window": 1.5}, TypeError, r"window must be an integer, not 1\.5"),
        ({"lengths": [1, 2, 3]}, ValueError, r"lengths of keys must have the shape \(B,\) = \(2,\)"),
        ({"lengths": [1, 5]}, ValueError, r"lengths of keys must lie in \[0, 4\]"),
        ({"lengths": ([1, 4], [1, 1])}, ValueError, r"lengths of queries must lie in \[0, 3\]"),
        ({"lengths": [1.0, 2.0]}, TypeError, "lengths of keys must hold integers"),
        ({"table": np.zeros((4, 20))}, TypeError, "table is added to the embeddings"),
        ({"wrt": ("q", "bias")}, ValueError, "wrt names 'bias', but the given arguments that .* are q, k, v"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(change, error, match):
    with pytest.raises(error, match=match):
        attention_vjp(**problem(np.random.default_rng(0)) | change)


def test_bad_output_gradients_are_refused():
    pullback = attention_vjp(**problem(np.random.default_rng(0)))[1]
    with pytest.raises(ValueError, match="dout must have the shape of the output"):
        pullback(np.zeros((2, 4, 3, 4)))
