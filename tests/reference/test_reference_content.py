"""Attention whose scores other keys or heads decide, CoPE, DAPE, PaTH: printed values, formulas by cells, gradients."""

import numpy as np
import pytest
from content_checks import NEAR, G, assert_gradients, causal
from fixture_attention import K, Q, V
from scipy.special import expit, softmax

from fastpe import reference

# ---------------------------------------------------------------------------------------------------------------------
# CoPE


def test_cope_counts_its_gates():
    q, k = np.tile([1.0, 0.0], (4, 1)), np.array([[2.0, 0], [0, 0], [-2, 0], [1, 0]])
    table = np.outer(0.1 * np.arange(5), [1, 0])
    weights = reference.cope(q, k, np.eye(4), table, scale=1.0)
    places = np.array([2.231058579, 1.350261501, 0.850261501, 0.731058579])
    np.testing.assert_allclose(weights[3], softmax(k[:, 0] + 0.1 * places), rtol=0, atol=1e-10)
    np.testing.assert_allclose(expit(k[:, 0]), [0.880797078, 0.5, 0.119202922, 0.731058579], atol=5.1e-10)


def test_cope_in_the_shared_attention_problem():
    table = 0.1 * np.arange(4)[:, None] * (np.arange(4) + 1)
    weights, out = (reference.cope(Q, K, v, table) for v in (np.eye(4), V))
    got = [weights[2, 0], out[2, 0], out[3, 3]]
    np.testing.assert_allclose(got, [0.109876354, 0.392425923, 0.670272443], **NEAR)
    # S[3, 1] less S[3, 3], which is content and the position of the query's own gate
    own = Q[3] @ K[3] / 2
    term = Q[3] @ table[1] * expit(own)
    assert np.log(weights[3, 1] / weights[3, 3]) == pytest.approx(-2.131855646 - own - term, abs=1e-9)


def test_printed_gradients_of_cope():
    m, c = np.arange(3)[:, None], np.arange(4)
    out, pullback = reference.cope_vjp(Q, K, V, 0.1 * m * (c + 1) - 0.05 * c)
    np.testing.assert_allclose([out[2, 0], out[3, 3]], [0.392425923, 0.670272443], **NEAR)
    got = pullback(G)
    np.testing.assert_allclose([got["k"][0, 0], got["q"][3, 0]], [0.004225470, -0.040016365], **NEAR)
    np.testing.assert_allclose(got["table"][:, 0], [-0.002495023, -0.028663455, 0.031158478], **NEAR)


def test_cope_without_vectors_is_causal_attention_and_its_counts_are_clamped():
    q, k, v = np.random.default_rng(2).normal(size=(3, 2, 9, 4))
    np.testing.assert_allclose(reference.cope(q, k, v, np.zeros((3, 4))), reference.attention(q, k, v, causal=True))
    table = np.random.default_rng(3).normal(size=(40, 4))
    np.testing.assert_array_equal(reference.cope(q, k, v, table), reference.cope(q, k, v, table[:10]))


@pytest.mark.parametrize("positions", [3, 12])
def test_gradients_of_cope(positions):
    rng = np.random.default_rng(5)
    given = dict(zip("qkv", rng.normal(size=(3, 2, 6, 3)), strict=True)) | {"table": rng.normal(size=(positions, 3))}
    assert_gradients(reference.cope, given, rng.normal(size=(2, 6, 3)))


# ---------------------------------------------------------------------------------------------------------------------
# DAPE

OFFSETS = np.arange(4) - np.arange(4)[:, None]


def dape_problem(taps: int) -> dict:
    """The printed one: two heads, of which the second has keys for queries."""
    n = np.arange(12 * taps), np.arange(6 * taps)
    shape = () if taps == 1 else (taps,)
    return {
        "q": np.stack([Q, K]), "k": np.stack([K, Q]), "v": np.stack([V, V]),
        "bias": -np.array([[1 / 16], [1 / 256]]) * np.abs(np.arange(-3, 4)),
        "w1": np.cos(0.7 * n[0]).reshape(3, 4, *shape), "b1": np.array([0.1, -0.2, 0.05]),
        "w2": np.sin(1 + 0.9 * n[1]).reshape(2, 3, *shape),
    }  # fmt: skip


def dape_scores(q, k, v, bias, w1, b1, w2) -> np.ndarray:
    """Of one sample, as the formula is written: by cells, channels and taps; bias (H, N, N)."""
    heads, n, width = q.shape
    w1, w2 = (w.reshape(*w.shape[:2], -1) for w in (w1, w2))
    reach = w1.shape[2] // 2
    x = np.zeros((2 * heads, n, n + 2 * reach))
    for h, i, j in np.ndindex(heads, n, n):
        if j <= i:
            x[h, i, reach + j] = q[h, i] @ k[h, j] / np.sqrt(width)
            x[heads + h, i, reach + j] = bias[h, i, j]
    units = np.zeros((len(w1), n, n + 2 * reach))
    for u, i, j in np.ndindex(len(w1), n, n):
        z = b1[u] + sum(w1[u, c] @ x[c, i, j : j + 2 * reach + 1] for c in range(2 * heads))
        units[u, i, reach + j] = z if z > 0 else 0.01 * z
    scores = np.empty((heads, n, n))
    for h, i, j in np.ndindex(scores.shape):
        corrected = sum(w2[h, u] @ units[u, i, j : j + 2 * reach + 1] for u in range(len(w1)))
        scores[h, i, j] = q[h, i] @ k[h, j] / np.sqrt(width) + bias[h, i, j] + corrected
    return scores


# S_0[3, 1], S_1[2, 0], P_0[2, 0], O_0[2, 0], O_1[3, 3] with the last maps' biases 0.03 and -0.04, which no weight knows
@pytest.mark.parametrize(
    ("taps", "printed"),
    [
        (1, [-0.009000562, -1.300574023, 0.136686251, 0.405319750, 0.840073728]),
        (3, [-0.939013430, -0.497258614, 0.058473361, 0.410222331, 0.590118738]),
    ],
)
def test_dape_in_the_shared_attention_problem(taps, printed):
    given = dape_problem(taps)
    scores = dape_scores(**{**given, "bias": given["bias"][:, OFFSETS + 3]})
    weights, out = reference.dape(**{**given, "v": np.stack([np.eye(4)] * 2)}), reference.dape(**given)
    np.testing.assert_allclose(weights, causal(scores), rtol=0, atol=1e-14)
    got = [scores[0, 3, 1] + 0.03, scores[1, 2, 0] - 0.04, weights[0, 2, 0], out[0, 2, 0], out[1, 3, 3]]
    np.testing.assert_allclose(got, printed, **NEAR)
    if taps == 1:
        gradient = reference.dape_vjp(**given)[1](np.stack([G, G]))["b1"]
        np.testing.assert_allclose(gradient, [0.009478508, 0.079585389, -0.108420651], **NEAR)


@pytest.mark.parametrize(("taps", "pairwise"), [(1, False), (3, True), (5, False)])
def test_dape_of_samples(taps, pairwise):
    """Two samples, three heads, six keys: the formula by cells, and gradients."""
    rng = np.random.default_rng(taps)
    shape = (taps,) if taps > 1 else ()
    given = dict(zip("qkv", rng.normal(size=(3, 2, 3, 6, 2)), strict=True)) | {
        "bias": rng.normal(size=(3, 6, 6) if pairwise else (3, 11)), "w1": rng.normal(size=(4, 6, *shape)),
        "b1": rng.normal(size=4), "w2": rng.normal(size=(3, 4, *shape)),
    }  # fmt: skip
    offset = np.arange(6) - np.arange(6)[:, None] + 5
    cells = given["bias"] if pairwise else given["bias"][:, offset]
    out = reference.dape(**given)
    for b in range(2):
        own = {name: array[b] for name, array in given.items() if name in "qkv"}
        scores = dape_scores(**{**given, **own, "bias": cells})
        np.testing.assert_allclose(out[b], causal(scores) @ own["v"], rtol=0, atol=1e-12)
    assert_gradients(reference.dape, given, rng.normal(size=out.shape))


def test_dape_without_a_network_is_attention_with_its_bias():
    given = dape_problem(3)
    plain = reference.dape(**{**given, "w2": np.zeros((2, 3, 3))}, scale=0.3)
    named = {name: given[name][None] for name in "qkv"}
    expected = reference.attention(**named, causal=True, scale=0.3, bias=given["bias"])[0]
    np.testing.assert_allclose(plain, expected, rtol=0, atol=1e-15)


# ---------------------------------------------------------------------------------------------------------------------
# PaTH


def path_problem() -> dict:
    """The printed one."""
    i, c = np.arange(4.0)[:, None], np.arange(4)
    w = np.cos(1.3 * i + 0.9 * c)
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    return {"q": Q, "k": K, "v": V, "w": w, "beta": 2 * expit(0.3 * i[:, 0] - 0.2)}


def path_scores(q, k, v, w, beta) -> np.ndarray:
    """Of one sample, with all matrices written out."""
    n, width = q.shape
    scores = np.zeros((n, n))
    for i in range(n):
        between = np.eye(width)
        for j in range(i, -1, -1):
            scores[i, j] = q[i] @ between @ k[j] / np.sqrt(width)
            between = between @ (np.eye(width) - beta[j] * np.outer(w[j], w[j]))
    return scores


def test_path_in_the_shared_attention_problem():
    given = path_problem()
    scores = path_scores(**given)
    weights = reference.path(**{**given, "v": np.eye(4)})
    out, pullback = reference.path_vjp(**given)
    np.testing.assert_allclose(weights, causal(scores), rtol=0, atol=1e-14)
    got = [scores[3, 1], scores[1, 0], weights[2, 0], out[2, 0], out[3, 3]]
    np.testing.assert_allclose(got, [-0.028694591, 0.680746821, 0.274780819, 0.330379874, 0.621834552], **NEAR)
    gradients = pullback(G)
    printed = {
        "beta": [0, -0.139782646, -0.142634411, -0.006402970],
        "w": [0.142708655, 0.146871889, 0.189567810, 0.246114447],
        "k": [0.035986543, -0.037886572, -0.026808990, 0.076908375],
    }
    for name, row in printed.items():
        got = {"beta": gradients["beta"], "w": gradients["w"][1], "k": gradients["k"][0]}[name]
        np.testing.assert_allclose(got, row, **NEAR, err_msg=name)


def test_path_of_samples():
    rng = np.random.default_rng(8)
    given = dict(zip(("q", "k", "v", "w"), rng.normal(size=(4, 2, 3, 5, 3)), strict=True))
    given |= {"beta": rng.uniform(0, 2, (2, 3, 5))}
    given["v"] = rng.normal(size=(2, 3, 5, 2))
    out = reference.path(**given)
    for place in np.ndindex(2, 3):
        own = {name: array[place] for name, array in given.items()}
        np.testing.assert_allclose(out[place], causal(path_scores(**own)) @ own["v"], rtol=0, atol=1e-12)
    assert_gradients(reference.path, given, rng.normal(size=out.shape))


def test_path_that_reflects_nothing_is_causal_attention():
    given = {**path_problem(), "beta": np.zeros(4)}
    expected = reference.attention(Q[None, None], K[None, None], V[None, None], causal=True, scale=0.2)[0, 0]
    np.testing.assert_allclose(reference.path(**given, scale=0.2), expected, rtol=0, atol=1e-15)


# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("cope", {"table": np.zeros((3, 5))}, r"table must have shape \(P, 4\), not \(3, 5\)"),
        ("cope", {"k": K[:3]}, r"q, k and v must have one shape \(..., N, D\), not \(4, 4\), \(3, 4\) and \(4, 4\)"),
        ("dape", {"q": Q, "k": K, "v": V}, r"q, k and v must have heads, \(..., H, N, D\), not \(4, 4\)"),
        ("dape", {"bias": np.zeros((2, 6))}, r"bias must have shape \(2, 7\) or \(2, 4, 4\), not \(2, 6\)"),
        ("dape", {"w1": np.zeros((3, 2))}, r"w1 must have shape \(W, 4\) or \(W, 4, T\), not \(3, 2\)"),
        ("dape", {"w1": np.zeros((3, 4, 2))}, r"w1 must have an odd number of taps, not 2"),
        ("dape", {"b1": np.zeros(2)}, r"b1 must have shape \(3,\), not \(2,\)"),
        ("dape", {"w2": np.zeros((2, 3, 3))}, r"w2 must have shape \(2, 3\), not \(2, 3, 3\)"),
        ("path", {"w": np.zeros((4, 3))}, r"w must have the shape of q \(4, 4\), not \(4, 3\)"),
        ("path", {"beta": np.zeros((4, 1))}, r"beta must have shape \(4,\), not \(4, 1\)"),
    ],
)
def test_what_does_not_fit_is_named(name, changed, message):
    cope = {"q": Q, "k": K, "v": V, "table": np.zeros((3, 4))}
    given = {"cope": cope, "dape": dape_problem(1), "path": path_problem()}
    with pytest.raises(ValueError, match=f"^{message}$"):
        getattr(reference, name)(**{**given[name], **changed})
