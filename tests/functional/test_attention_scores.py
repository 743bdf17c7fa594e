"""`attention_scores`: its weights, mixed with values, are what the kernels give; its other stages are what they say."""

import numpy as np
import pytest
from attention_problems import problem
from fixture_attention import K, Q
from hypothesis import given
from hypothesis import strategies as st

import fastpe


@given(
    st.integers(0, 2**31), st.sampled_from([(1, 1), (4, 2)]), st.booleans(), st.sampled_from([None, 3]),
    st.sampled_from([None, 2.0]), st.sampled_from([0.0, 0.3]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_weights_mix_the_values_as_attention_does(seed, heads, causal, window, softcap, dropout, masked, rectify):
    rng = np.random.default_rng(seed)
    (h, hk), n, m, d = heads, 9, 11, 6
    names = ["gain", "bias", "angles", "rel_key", "key_bias", "scores"]
    arguments = problem(rng, names, b=2, h=h, hk=hk, n=n, m=m, d=d, reach=3)
    arguments["sinks"] = rng.standard_normal(h)
    arguments |= {"causal": causal, "window": window, "softcap": softcap, "rectify": rectify, "lengths": [m, 7],
                  "dropout": dropout, "dropout_seed": 5}  # fmt: skip
    arguments["mask"] = rng.random((n, m)) < 0.8 if masked else None
    values = arguments.pop("v")
    out, lse = fastpe.attention(**arguments, v=values, return_lse=True)
    dropped = fastpe.attention_scores(**arguments, stage="dropped")
    np.testing.assert_allclose(dropped @ np.repeat(values, h // hk, axis=1), out, atol=1e-13)
    logits = fastpe.attention_scores(**arguments, stage="masked")
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(logits).sum(axis=-1) + np.exp(arguments["sinks"])[:, None])
    np.testing.assert_allclose(total, lse, atol=1e-13)
    np.testing.assert_allclose(fastpe.attention_scores(**arguments), np.exp(logits - lse[..., None]), atol=1e-13)


def test_stages_follow_one_another():
    rng = np.random.default_rng(3)
    q, k = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    bias = rng.standard_normal((3, 7)).astype(np.float32)
    at = {stage: fastpe.attention_scores(q, k, stage=stage, bias=bias, softcap=0.5, causal=True)
          for stage in ("products", "biased", "capped", "masked", "weights", "dropped")}  # fmt: skip
    products = q.astype(float) @ k.astype(float).swapaxes(-1, -2) / np.sqrt(5)
    biased = products + bias[:, 3 + np.arange(4) - np.arange(4)[:, None]]
    capped = 0.5 * np.tanh(biased / 0.5)
    for stage, right in (("products", products), ("biased", biased), ("capped", capped)):
        assert at[stage].dtype == np.float32
        np.testing.assert_allclose(at[stage], right, rtol=1e-6, atol=1e-7)
    below = np.tri(4, dtype=bool)
    np.testing.assert_allclose(at["masked"], np.where(below, capped, -np.inf), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(at["weights"].sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_array_equal(at["weights"], at["dropped"])


def test_what_is_no_stage_is_refused():
    q = np.ones((2, 3))
    for stage in ("softmax", 3, None):
        with pytest.raises(ValueError, match=r"stage must be one of 'products', 'biased', .*, not "):
            fastpe.attention_scores(q, q, stage=stage)
    with pytest.raises(TypeError, match="biass is not an argument of attention"):
        fastpe.attention_scores(q, q, biass=1.0)


@pytest.mark.parametrize(("factor", "score"), [(1.0, -1.881255663), (0.5, -1.276354315)])
def test_scores_with_counts_are_those_of_their_authors(factor, score):
    vectors = 0.1 * np.arange(3)[:, None] * np.arange(1, 5) - 0.05 * np.arange(4)
    scores = fastpe.attention_scores(Q[None], K[None], stage="masked", causal=True, counts=factor * vectors[None])
    np.testing.assert_allclose(scores[0, 3, 1], score, rtol=0, atol=1e-9)


def test_the_counts_are_those_of_their_authors():
    """Read off the scores, where vector m times the last query is m."""
    vectors = np.arange(5)[:, None] * Q[3] / (Q[3] @ Q[3])
    products, scores = (
        fastpe.attention_scores(Q[None], K[None], stage=stage, causal=True, counts=vectors[None])[0, 3]
        for stage in ("products", "biased")
    )
    np.testing.assert_allclose(scores - products, [1.924758313, 1.736342827, 1.398171254, 0.791527066], atol=1e-9)
