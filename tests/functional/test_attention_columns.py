"""Columns of keys and queries: what they are, beside NumPy and other slots that say the same; large offsets of keys."""

import numpy as np
import pytest
from attention_problems import problem
from guards import assert_error_law

import fastpe
from fastpe import reference

COLUMNS = ("key_offset", "key_slope", "query_slope", "row_scale")


@pytest.fixture
def rng():
    return np.random.default_rng(21)


def softmax(x):
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def forgetting(rng, *shape, rate=0.5):
    """Offsets of keys that grow from the first to the last: what comes before them is forgotten (float64)."""
    return np.cumsum(rng.exponential(rate, shape), axis=-1)


@pytest.mark.parametrize("start", [None, 7])
@pytest.mark.parametrize("attention", [fastpe.attention, reference.attention])
def test_outputs_are_those_of_the_formula(rng, attention, start):
    q, k, v = (rng.standard_normal((2, 3, size, 8)) for size in (40, 140, 140))
    offset, of_key = rng.standard_normal((2, 2, 3, 140))
    of_query, factor = rng.standard_normal((2, 1, 3, 40))
    o = np.arange(140) - np.arange(40)[:, None] - (100 if start is None else start)
    scores = factor[..., None] * (q @ k.swapaxes(-1, -2) / np.sqrt(8)) + offset[:, :, None]
    scores = scores + o * (of_key[:, :, None] / 50 + of_query[..., None] / 50)
    found = attention(
        q, k, v, key_offset=offset, key_slope=of_key / 50, query_slope=of_query / 50, row_scale=factor,
        query_start=start,
    )  # fmt: skip
    np.testing.assert_allclose(found, softmax(scores) @ v, rtol=0, atol=1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# Large offsets of keys, of which only differences count


def long(rng, n=100, m=65536, d=8):
    q, k, v = (rng.standard_normal((1, 1, size, d)).astype(np.float32) for size in (n, m, m))
    return {"q": q, "k": k, "v": v, "key_offset": forgetting(rng, 1, m, rate=0.05) * 1.7}


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("n", [1, 100])
def test_a_sum_over_65536_tokens_in_float64_loses_nothing(rng, n):
    arguments = long(rng, n)
    (out, lse), pullback = fastpe.attention_vjp(**arguments, causal=True, return_lse=True)
    exact, exact_pullback = reference.attention_vjp(**arguments, causal=True)
    plain = reference.attention(**{**arguments, "key_offset": arguments["key_offset"] - 5500}, causal=True)
    assert_error_law(out, exact, plain.astype(np.float32), 1000)
    found, expected = pullback((out, np.zeros_like(lse))), exact_pullback(out)
    for name, gradient in expected.items():
        assert found[name].dtype == arguments[name].dtype
        error = abs(found[name] - gradient).max()
        assert error < 1e-5 * abs(gradient).max(), name
    rounded = {**arguments, "key_offset": arguments["key_offset"].astype(np.float32)}  # what float32 would have cost
    assert abs(fastpe.attention(**rounded, causal=True) - exact).max() > 10 * abs(out - exact).max()


@pytest.mark.parametrize("low", [-1e9, -1e300])
def test_offsets_may_hide_keys(rng, low):
    arguments = long(rng, 130, 300)
    hidden = rng.random(300) < 0.5
    arguments["key_offset"] = np.where(hidden, low, rng.standard_normal((1, 300)))
    out, pullback = fastpe.attention_vjp(**arguments)
    exact = reference.attention(**arguments, mask=~hidden)
    np.testing.assert_allclose(out, exact, rtol=0, atol=1e-6)
    gradients = pullback(out)
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())
    np.testing.assert_array_equal(gradients["key_offset"][0, hidden], 0)


def test_offsets_of_hidden_keys_change_nothing(rng):
    """Of padding, and of keys that are yet to come, an offset of any size."""
    arguments = long(rng, 200, 200)
    options = {"lengths": [150], "causal": True, "tolerance": 0}
    expected = fastpe.attention(**arguments, **options)
    arguments["key_offset"][0, 150:] = 1e30
    np.testing.assert_array_equal(fastpe.attention(**arguments, **options), expected)
    arguments["key_offset"][0, 130] = 1e9
    np.testing.assert_array_equal(fastpe.attention(**arguments, **options)[0, 0, :96], expected[0, 0, :96])


@pytest.mark.parametrize("softcap", [None, 3.0])
def test_with_a_sink_offsets_of_keys_count_as_they_are(rng, softcap):
    """A sink's score, and a soft cap, are no differences."""
    arguments = {name: array.astype(np.float64) for name, array in long(rng, 100, 140).items()}
    arguments |= {"key_offset": forgetting(rng, 1, 140, rate=0.02) - 1, "sinks": np.array([0.3])}
    (out, lse), pullback = fastpe.attention_vjp(**arguments, causal=True, softcap=softcap, return_lse=True)
    (exact, exact_lse), exact_pullback = reference.attention_vjp(
        **arguments, causal=True, softcap=softcap, return_lse=True
    )
    np.testing.assert_allclose(out, exact, rtol=0, atol=1e-13)
    np.testing.assert_allclose(lse, exact_lse, rtol=0, atol=1e-13)
    for name, gradient in exact_pullback((out, lse)).items():
        np.testing.assert_allclose(pullback((out, lse))[name], gradient, rtol=0, atol=1e-11, err_msg=name)


# ---------------------------------------------------------------------------------------------------------------------
# What is taken


def test_offsets_of_keys_may_be_wider_than_queries_and_no_other_column(rng):
    arguments = problem(rng, n=9, dtype=np.float32)
    out, pullback = fastpe.attention_vjp(**arguments, key_offset=np.zeros((1, 9)))
    assert (out.dtype, pullback(out)["key_offset"].dtype) == (np.float32, np.float64)
    for name in COLUMNS[1:]:
        with pytest.raises(TypeError, match=f"^{name} must have the dtype of q, float32, not float64"):
            fastpe.attention(**arguments, **{name: np.zeros((1, 9))})


@pytest.mark.parametrize("attention", [fastpe.attention, reference.attention])
def test_wrong_columns_are_refused_by_name(rng, attention):
    arguments = problem(rng, b=2, h=4, hk=2, n=2, m=4)
    for name in COLUMNS:
        own, axis = (4, "M") if name.startswith("key") else (2, "N")
        for shape in ((own,), (3, own), (4, own + 1), (3, 4, own), (1, 2, 4, own), (4, 6 - own)):
            expected = rf"^{name} must have the shape \(H or 1, {axis}\), optionally after an axis B,"
            with pytest.raises(ValueError, match=expected):
                attention(**arguments, **{name: np.zeros(shape)})
    with pytest.raises(ValueError, match="key_slope must be finite"):
        fastpe.attention(**arguments, key_slope=np.full((1, 4), np.nan))


def test_a_column_of_queries_does_not_grow_with_the_keys(rng):
    q = rng.standard_normal((1, 4, 3))
    k = rng.standard_normal((1, 5, 3))
    with pytest.raises(ValueError, match=r"^query_slope must have the shape \(H or 1, N\)"):
        fastpe.attention(q, k, k, query_slope=np.ones((1, 5)))
