"""Attention with gates of channels or rows, or a bank of distances: printed values, formulas by cells, gradients."""

import numpy as np
import pytest
from content_checks import NEAR, G, assert_gradients, causal
from fixture_attention import K, Q, V
from scipy.special import expit

from fastpe import reference

ROW, C = np.arange(4.0)[:, None], np.arange(4.0)
X = np.sin(0.8 * ROW + 0.4 * C)  # a layer's input
FIXTURE = {"q": Q, "k": K, "v": V}


def log_gate(logit):
    return np.log(expit(logit))


def assert_by_cells(function, given: dict, scores_of) -> None:
    """The weights of every sample, beside scores that are written out cell by cell; and gradients by differences."""
    out = function(**given)
    for place in np.ndindex(given["q"].shape[:-2]):
        own = {name: x[place] if np.ndim(x) == given["q"].ndim else x for name, x in given.items()}
        scores = np.array([[scores_of(i, j, **own) if j <= i else 0.0 for j in range(5)] for i in range(5)])
        np.testing.assert_allclose(out[place], causal(scores) @ own["v"], rtol=0, atol=1e-12)


def samples(seed: int, **widths: int) -> dict:
    """Two samples of three heads, five tokens."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(2, 3, 5, width)) for name, width in {"q": 4, "k": 4, "v": 2, **widths}.items()}


# ---------------------------------------------------------------------------------------------------------------------
# Wall


def wall_score(i, j, q, k, logits, **_):
    between = [log_gate(logits[t]) for t in range(j + 1, i + 1)]
    return (q[i] * k[j] * np.exp(sum(between, np.zeros(q.shape[1])))).sum() / np.sqrt(q.shape[1])


def test_wall_in_the_shared_attention_problem():
    logits = 1 + np.cos(0.9 * ROW + C)
    weights = reference.wall(Q, K, np.eye(4), logits)
    out, pullback = reference.wall_vjp(**FIXTURE, logits=logits)
    # S[3, 3] is plain: nothing stands between
    score = np.log(weights[3, 1] / weights[3, 3]) + Q[3] @ K[3] / 2
    got = [score, weights[2, 0], out[2, 0], out[3, 3]]
    np.testing.assert_allclose(got, [-0.221766669, 0.231900437, 0.340525291, 0.651687473], **NEAR)
    steps = pullback(G)["logits"] / expit(-logits)  # of the gates' logarithms
    np.testing.assert_allclose(steps[1], [0.009908391, 0.020004144, 0.023532280, 0.029372931], **NEAR)


def test_wall_by_cells():
    given = samples(0, logits=4)
    assert_by_cells(reference.wall, given, wall_score)
    assert_gradients(reference.wall, given, np.random.default_rng(1).normal(size=(2, 3, 5, 2)))


def test_open_gates_of_a_wall_are_causal_attention_and_shut_ones_leave_the_own_key():
    expected = reference.attention(Q, K, V, causal=True, scale=0.3)
    np.testing.assert_allclose(reference.wall(**FIXTURE, logits=np.full((4, 4), 50.0), scale=0.3), expected, atol=1e-13)
    shut = reference.wall(500 * K, K, V, np.full((4, 4), -1e4))
    assert np.isfinite(shut).all()
    np.testing.assert_allclose(shut, V, rtol=0, atol=1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# Gates of rows


def alibi_score(i, j, q, k, gate_q, gate_k, **_):
    gates = [log_gate(gate_q[i] @ gate_k[t] / np.sqrt(gate_q.shape[1])) for t in range(j, i)]
    return q[i] @ k[j] / np.sqrt(q.shape[1]) + sum(gates)


def turned(p, t):
    """Each pair of channels, of p divided by its root mean square, turned clockwise by t, as a complex number."""
    x, y = np.split(p / np.sqrt(np.mean(p * p)), 2)
    whole = (x + 1j * y) * np.exp(-1j * t)
    return np.concatenate([whole.real, whole.imag])


def grape_score(i, j, q, k, gate_q, gate_k, slopes=1.0, **_):
    gates = [log_gate(gate_q[i] @ turned(gate_k[t], t) / gate_q.shape[1]) for t in range(j + 1, i + 1)]
    return q[i] @ k[j] / np.sqrt(q.shape[1]) + slopes * sum(gates)


def test_alibi_of_rows_in_the_shared_attention_problem():
    gates = X @ np.cos(0.5 * (4 * ROW + C)).T
    q = np.zeros((4, 4))  # the bias alone
    weights = reference.row_gates(q, K, np.eye(4), gates[:, :2], gates[:, 2:], form="alibi")
    np.testing.assert_allclose(
        np.log(weights[3] / weights[3, 3]), [-2.095851156, -1.596053977, -0.914119250, 0], **NEAR
    )


def test_grape_ap_in_the_shared_attention_problem():
    def bias_free(q):
        return reference.row_gates(q, K, np.eye(4), Q, Q, form="grape", slopes=1 / 16)

    bias = bias_free(np.zeros((4, 4)))[3]
    np.testing.assert_allclose(np.log(bias / bias[3])[:3], [-0.146838731, -0.111832144, -0.075347092], **NEAR)
    weights, out = bias_free(Q), reference.row_gates(**FIXTURE, gate_q=Q, gate_k=Q, form="grape", slopes=1 / 16)
    score = np.log(weights[3, 1] / weights[3, 3]) + Q[3] @ K[3] / 2
    got = [score, weights[2, 0], out[2, 0], out[3, 3]]
    np.testing.assert_allclose(got, [-0.783285110, 0.152457031, 0.369757563, 0.691410320], **NEAR)


@pytest.mark.parametrize(("form", "score"), [("alibi", alibi_score), ("grape", grape_score)])
def test_gates_of_rows_by_cells(form, score):
    given = samples(2, gate_q=6, gate_k=6)
    slopes = np.array([0.5, 0.25, 2.0])

    def function(**arrays):
        return reference.row_gates(**arrays, form=form)

    assert_by_cells(function, given, score)
    np.testing.assert_allclose(
        reference.row_gates(**given, form="grape", slopes=slopes)[:, 1],
        reference.row_gates(**{name: x[:, 1] for name, x in given.items()}, form="grape", slopes=0.25),
    )

    def row_gates(**arrays):
        return reference.row_gates(**arrays, form=form, slopes=slopes)

    weight = np.random.default_rng(3).normal(size=(2, 3, 5, 2))
    pulled = reference.row_gates_vjp(**given, form=form, slopes=slopes)[1](weight)
    assert_gradients(row_gates, given, weight, pulled)


def test_gates_of_rows_that_no_key_decides_are_alibi_and_zeros_have_a_norm():
    zeros = np.zeros((4, 2))
    slope = np.log(2)
    expected = reference.attention(Q[None], K[None], V[None], causal=True, bias=slope * np.arange(-3.0, 4)[None])[0]
    for form in ("alibi", "grape"):
        np.testing.assert_allclose(reference.row_gates(**FIXTURE, gate_q=zeros, gate_k=zeros, form=form), expected)
        gradients = reference.row_gates_vjp(**FIXTURE, gate_q=zeros, gate_k=zeros, form=form)[1](G)
        assert all(np.isfinite(gradient).all() for gradient in gradients.values())


# ---------------------------------------------------------------------------------------------------------------------
# Banks of distances


def bank_score(i, j, q, k, mixture, curves, **_):
    bias = mixture[i] @ curves[:, i - j] if i - j < curves.shape[1] else 0.0
    return q[i] @ k[j] / np.sqrt(q.shape[1]) + bias


def bank_problem() -> dict:
    """The printed one: three curves over three distances."""
    numbers = np.arange(12.0)
    mixture = X @ np.cos(0.5 * numbers).reshape(3, 4).T + np.array([0.1, 0, -0.1])
    return {**FIXTURE, "mixture": mixture, "curves": np.sin(0.7 * numbers[:9]).reshape(3, 3)}


def test_a_bank_in_the_shared_attention_problem():
    given = bank_problem()
    weights = reference.distance_bank(**{**given, "q": 0 * Q, "v": np.eye(4)})
    bias = np.log(weights[3] / weights[3, 0])
    np.testing.assert_allclose(bias, [0, 1.613894334, 1.548334979, 0.754569489], **NEAR)


@pytest.mark.parametrize("distances", [1, 3, 9])
def test_a_bank_by_cells(distances):
    given = samples(4, mixture=2) | {"curves": np.random.default_rng(5).normal(size=(2, distances))}
    assert_by_cells(reference.distance_bank, given, bank_score)
    assert_gradients(reference.distance_bank, given, np.random.default_rng(6).normal(size=(2, 3, 5, 2)))


# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("wall", {"logits": np.zeros((4, 3))}, r"logits must have the shape of q \(4, 4\), not \(4, 3\)"),
        ("row_gates", {"gate_q": np.zeros((3, 2))}, r"gate_q must have shape \(4, 'W'\), not \(3, 2\)"),
        ("row_gates", {"gate_k": np.zeros((4, 3))}, r"gate_k must have the shape of gate_q \(4, 2\), not \(4, 3\)"),
        ("row_gates", {"form": "fox"}, "form must be alibi or grape, not 'fox'"),
        (
            "row_gates", {"gate_q": np.zeros((4, 3)), "gate_k": np.zeros((4, 3)), "form": "grape"},
            "gate_k must have an even number of channels, which are rotated in pairs, not 3",
        ),
        (
            "row_gates", {"slopes": np.ones(2)},
            r"slopes must broadcast to the axes of q before the last two, \(\), not \(2,\)",
        ),
        ("distance_bank", {"mixture": np.zeros((3, 3))}, r"mixture must have shape \(4, 'B'\), not \(3, 3\)"),
        ("distance_bank", {"curves": np.zeros((2, 3))}, r"curves must have shape \(3, M\), M at least 1, not \(2, 3\)"),
        ("distance_bank", {"curves": np.zeros((3, 0))}, r"curves must have shape \(3, M\), M at least 1, not \(3, 0\)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(name, changed, message):
    given = {
        "wall": {**FIXTURE, "logits": np.zeros((4, 4))},
        "row_gates": {**FIXTURE, "gate_q": np.zeros((4, 2)), "gate_k": np.zeros((4, 2))},
        "distance_bank": bank_problem(),
    }
    with pytest.raises(ValueError, match=f"^{message}$"):
        getattr(reference, name)(**{**given[name], **changed})
