"""Offsets of keys beside reflections, as a forget gate makes them (PaTH-FoX)."""

import numpy as np
import pytest
from attention_problems import problem

import fastpe
from fastpe import reference

SLOTS = ("reflectors", "reflect")


@pytest.fixture
def rng():
    return np.random.default_rng(54)


@pytest.mark.parametrize("vjp", [fastpe.attention_vjp, reference.attention_vjp])
def test_what_it_is(rng, vjp):
    """All matrices written out; what is forgotten between key and query is not scaled."""
    given = problem(rng, SLOTS, b=1, h=2, n=9, d=6)
    forgotten = rng.exponential(size=(2, 9))
    given |= {"v": np.broadcast_to(np.eye(9), (1, 2, 9, 9)), "key_offset": np.cumsum(forgotten, axis=-1)}
    weights, w, beta = vjp(**given, causal=True)[0], given["reflectors"], given["reflect"]
    for h, i in np.ndindex(2, 9):
        row, scores = given["q"][0, h, i], np.full(9, -np.inf)
        for j in range(i, -1, -1):
            scores[j] = row @ given["k"][0, h, j] / np.sqrt(6) - forgotten[h, j + 1 : i + 1].sum()
            row = row @ (np.eye(6) - beta[h, j] * np.outer(w[h, j], w[h, j]))
        expected = np.exp(scores - scores.max())
        np.testing.assert_allclose(weights[0, h, i], expected / expected.sum(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("n", [3, 300])
def test_sums_over_a_long_text_lose_nothing(rng, n):
    """In float32 as if they had begun with the first key: 2^22 is taken off before anything is rounded."""
    given = problem(rng, SLOTS, b=2, n=n, m=300, d=8, dtype=np.float32)
    offsets = np.round(np.cumsum(rng.exponential(size=(2, 300)), axis=-1) * 1024) / 1024
    given["sinks"] = np.zeros(2, np.float32)
    options, found = {"causal": True, "window": 90, "return_lse": True}, []
    for before in (0, 2**22):
        own = {**given, "key_offset": offsets + before, "sinks": given["sinks"] + np.float32(before)}
        (out, lse), pull = fastpe.attention_vjp(**own, **options)
        assert lse.dtype == np.float32
        found.append({"out": out, "lse": lse - before, **pull((out, np.ones_like(lse)))})
    assert found[0]["key_offset"].dtype == np.float64
    for name, array in found[0].items():
        atol = 1.0 if name == "lse" else 1e-6
        np.testing.assert_allclose(found[1][name], array, rtol=0, atol=atol, err_msg=name)


def test_one_offset_for_all_is_none(rng):
    """But in lse; gradients of a row's offsets sum up to what its lse gets."""
    given = problem(rng, SLOTS, n=70, m=90)
    options = {"causal": True, "return_lse": True}
    (plain, logs), _ = fastpe.attention_vjp(**given, **options)
    (out, lse), pull = fastpe.attention_vjp(**given, **options, key_offset=np.full((1, 90), 3.0))
    np.testing.assert_array_equal(out, plain)
    np.testing.assert_allclose(lse, logs + 3, rtol=0, atol=1e-14)
    np.testing.assert_allclose(pull((0 * out, 0 * lse + 1))["key_offset"].sum(), lse.size, rtol=1e-13)
    np.testing.assert_allclose(pull((out, 0 * lse))["key_offset"].sum(), 0, atol=1e-12)
