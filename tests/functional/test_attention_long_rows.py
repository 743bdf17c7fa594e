"""Long sums lose no digits: errors grow with the number of tiles, not with that of keys or queries.

Scores are equal and values constant: then each addition rounds in the same direction, and a sum of M numbers that is
made one by one is off by up to M eps / 8. All must stay below 8 eps log2(M), the last term of the error law.
"""

import math

import numpy as np
import pytest

import fastpe


@pytest.fixture
def rng():
    return np.random.default_rng(7)


M = 100_003
EPS = float(np.finfo(np.float32).eps)
C = np.float32(100.1)


def assert_close(found, exact, terms=M, eps=EPS):
    error = np.abs(np.asarray(found, np.float64) / exact - 1).max()
    assert error <= 8 * eps * math.log2(terms), f"a relative error of {error:.3g}"


def rows(number, count, width=4, dtype=np.float32):
    return np.full((1, count, width), number, dtype)


@pytest.mark.parametrize("n", [1, 4, 5])
@pytest.mark.parametrize("width", [3, 40])  # below four vectors, and above
def test_outputs_and_lse(n, width):
    q, k, v = rows(0, n, width), rows(1, M, width), rows(C, M, width)
    out, lse = fastpe.attention(q, k, v, return_lse=True)
    assert_close(out, np.float64(C))
    assert_close(lse, math.log(M))


@pytest.mark.parametrize("n", [1, 5])
def test_random_numbers(rng, n):
    q, k, v = (rng.standard_normal((1, count, 3), np.float32) for count in (n, M, M))
    scores = q[0].astype(np.float64) @ k[0].astype(np.float64).T / math.sqrt(3)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    exact = weights @ (v[0] + 100).astype(np.float64) / weights.sum(axis=-1, keepdims=True)
    assert_close(fastpe.attention(q, k, v + 100)[0], exact)


def test_half_precision():
    """Sums are float32: the output is the constant, but for its own rounding."""
    out = fastpe.attention(rows(0, 1, dtype=np.float16), rows(1, M, dtype=np.float16), rows(C, M, dtype=np.float16))
    assert_close(out, np.float64(np.float16(C)), eps=float(np.finfo(np.float16).eps) / 16)


@pytest.mark.parametrize(("n", "m"), [(2, M), (M, 2)])
def test_gradients(n, m):
    """The gradient of lse with respect to scores is the weights, 1 / m: sums over keys, and over queries."""
    for name, q, k, exact in (("q", 0, C, np.float64(C)), ("k", C, 0, C * n / m), ("v", 0, C, n / m)):
        (out, lse), pullback = fastpe.attention_vjp(rows(q, n), rows(k, m), rows(C, m), scale=1.0, return_lse=True)
        dout = np.full_like(out, name == "v")  # else dout . out would cancel, and what is left be rounded
        assert_close(pullback((dout, np.ones_like(lse)))[name], exact)


@pytest.mark.parametrize("name", ["key_bias", "rel_key", "rel_query", "values"])
def test_gradients_of_slots(name):
    """One entry for all cells: n times the sum of a row, which is 1, or C."""
    n, m = 24_000, 64
    q, k = (rows(C, n), rows(0, m)) if name == "rel_key" else (rows(0, n), rows(C, m))
    given = {
        "key_bias": {"key_bias": np.zeros((1, 4), np.float32)},
        "rel_key": {"rel_key": np.zeros((1, 1, 4), np.float32)},
        "rel_query": {"rel_query": np.zeros((1, 1, 4), np.float32)},
        "values": {"values": np.zeros((1, 1), np.float32), "index": np.zeros((n, n), np.int32)[:, :m]},
    }[name]
    (out, lse), pullback = fastpe.attention_vjp(q, k, rows(0, m), scale=1.0, return_lse=True, **given)
    found = pullback((np.zeros_like(out), np.ones_like(lse)))[name]
    assert_close(found, n if name == "values" else n * np.float64(C), terms=n)


@pytest.mark.full("takes seconds")
def test_reflections_and_networks():
    """Through reflections, and through a network over the scores."""
    n, m = 9, 20_000
    q, k, v = rows(0, n), rows(0, m), rows(C, m)
    reflections = {"reflectors": rows(0.5, m), "reflect": np.zeros((1, m), np.float32), "causal": True}
    network = {"mlp_in": np.zeros((2, 2, 1)), "mlp_bias": np.zeros(2), "mlp_out": np.zeros((1, 2, 1))}
    for options in (reflections, {name: x.astype(np.float32) for name, x in network.items()}):
        out, lse = fastpe.attention(q, k, v, return_lse=True, **options)
        assert_close(out, np.float64(C), terms=m)
        assert_close(lse[:, -1], math.log(m), terms=m)
        many = fastpe.attention_vjp(rows(0, m), rows(0, n), rows(C, n), **({} if "causal" in options else options))
        assert_close(many[1](np.ones_like(many[0]))["v"], m / n, terms=m)
