"""Every other term of the score beside reflections: bias, gain, products with rows over offsets, caps, masks."""

import numpy as np
import pytest
from attention_problems import problem
from beside_attention import assert_is_attention
from reflected_problems import TERMS, agrees

import fastpe
from fastpe import reference

SLOTS = ("reflectors", "reflect")


@pytest.fixture
def rng():
    return np.random.default_rng(55)


def all_terms(rng, **sizes):
    """Arguments with every term, a mask of floats and sinks."""
    given = problem(rng, (*SLOTS, *TERMS, "key_offset", "scale"), **sizes)
    (b, _, n, _), m = given["q"].shape, given["k"].shape[2]
    mask = np.where(rng.random((b, 1, n, m)) < 0.7, rng.standard_normal((b, 1, n, m)), -np.inf)
    return {**given, "mask": mask.astype(given["q"].dtype), "sinks": np.zeros(given["q"].shape[1], given["q"].dtype)}


@pytest.mark.parametrize("vjp", [fastpe.attention_vjp, reference.attention_vjp])
def test_weights_are_those_of_the_formula(rng, vjp):
    """One term of each place where there is one, with all matrices written out."""
    names = ("row_scale", "rel_key", "gain", "bias", "scores", "key_offset", "key_slope")
    given = problem(rng, (*SLOTS, *names), b=1, h=2, n=7, d=4, reach=6)
    given["v"] = np.broadcast_to(np.eye(7), (1, 2, 7, 7))
    mask = rng.random((7, 7)) < 0.6
    weights = vjp(**given, mask=mask, softcap=1.5, causal=True)[0]
    for h, i in np.ndindex(2, 7):
        row, scores = given["row_scale"][h, i] * given["q"][0, h, i], np.full(7, -np.inf)
        for j in range(i, -1, -1):
            o, w = j - i + 6, given["reflectors"][h, j]
            inner = row @ given["k"][0, h, j] + given["q"][0, h, i] @ given["rel_key"][h, o]
            s = given["gain"][h, o] * inner / 2 + given["bias"][h, o] + given["scores"][h, i, j]
            s += given["key_offset"][h, j] + (j - i) * given["key_slope"][h, j]
            scores[j] = 1.5 * np.tanh(s / 1.5) if mask[i, j] else -np.inf
            row = row - given["reflect"][h, j] * (row @ w) * w
        expected = np.exp(scores - scores.max()) if mask[i, : i + 1].any() else np.zeros(7)
        expected /= max(expected.sum(), 1e-30)
        np.testing.assert_allclose(weights[0, h, i], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("options", [{}, {"softcap": 3.0}, {"window": 50}, {"dropout": 0.4, "dropout_seed": 7}])
@pytest.mark.parametrize(("n", "m"), [(2, 40), (3, 320), (70, 100), (130, 130)])
def test_what_reflects_nothing_is_attention(rng, n, m, options):
    """Which adds its terms elsewhere, and drops the same weights."""
    given = all_terms(rng, h=4, hk=2, n=n, m=m)
    given["reflect"] = np.zeros((4, m))
    assert_is_attention(given, SLOTS, causal=True, **options)


@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"window": 40, "dropout": 0.2, "dropout_seed": 3}])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_terms_together_agree_with_the_reference(rng, dtype, options):
    agrees(all_terms(rng, h=4, hk=2, n=70, m=100, dtype=dtype), causal=True, **options)
