"""Keys that queries count by their gates: what they are, beside the authors' numbers, other slots and the reference."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from attention_options import OPTIONS, options
from attention_problems import assert_agrees, problem
from fixture_attention import K, Q, V
from hypothesis import given
from hypothesis import strategies as st

import fastpe
from fastpe import reference
from fastpe.doctor.attention_checks import distance_to_whole_counts
from fastpe.kernels.attention.tile import FEW, TILE_KEYS, TILE_QUERIES
from fastpe.reference._attention import attention_vjp_in

EDGES = (1, 2, int(FEW), int(FEW) + 1, 31, 95, int(TILE_QUERIES), 97, int(TILE_KEYS), 129, 193, 257)


@pytest.fixture
def rng():
    return np.random.default_rng(33)


def apart(rng, names=("counts",), **sizes):
    """A problem whose counts are none of them so near to a whole number that float32 may take it for another side."""
    while True:
        arguments = problem(rng, names, **sizes)
        if distance_to_whole_counts(arguments) > 1e-5:
            return arguments


# ---------------------------------------------------------------------------------------------------------------------
# What they are


G = np.cos(0.5 * np.arange(4)[:, None] - np.arange(4))
# the authors' code in float64, their options `cope_nodiv` and its opposite, and a table of two vectors
AUTHORS = {
    (3, False): (
        [0.109876354, 0.392425923, 0.670272443], [0.004225470, -0.040016365],
        [-0.002495023, -0.028663455, 0.031158478],
    ),
    (3, True): (
        [0.133591185, 0.379427011, 0.682689523], [0.007798715, -0.052758985],
        [-0.002216449, -0.018822655, 0.021039104],
    ),
    (2, False): (
        [0.138892882, 0.380835766, 0.684390046], [0.011935417, -0.062013492], [-0.006170023, 0.006170023],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "divided"), AUTHORS)
@pytest.mark.parametrize("vjp", [fastpe.attention_vjp, reference.attention_vjp])
def test_outputs_and_gradients_are_those_of_the_authors_code(vjp, rows, divided):
    numbers = np.arange(rows)[:, None]
    vectors = 0.1 * numbers * np.arange(1, 5) - 0.05 * np.arange(4)
    factor = 0.5 if divided else 1.0
    (found, products, of_vectors), counts = AUTHORS[rows, divided], factor * vectors[None]
    weights = vjp(Q[None], K[None], np.eye(4)[None], causal=True, counts=counts)[0][0]
    out, pullback = vjp(Q[None], K[None], V[None], causal=True, counts=counts)
    gradients = pullback(G[None])
    np.testing.assert_allclose([weights[2, 0], out[0, 2, 0], out[0, 3, 3]], found, rtol=0, atol=1e-9)
    np.testing.assert_allclose([gradients["k"][0, 0, 0], gradients["q"][0, 3, 0]], products, rtol=0, atol=1e-9)
    np.testing.assert_allclose(factor * gradients["counts"][0, :, 0], of_vectors, rtol=0, atol=1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# The error law


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("most", [1, 6, 200])
def test_errors_obey_the_error_law(rng, dtype, most):
    """With more keys than queries, keys shared by heads; vectors of all heads or one, led by B."""
    for kind in ({}, {"led": True}, {"shared": True}):
        assert_agrees(apart(rng, h=4, hk=2, n=101, m=140, d=16, b=1, dtype=dtype, most=most, **kind), causal=True)
    assert_agrees(apart(rng, n=140, m=101, d=6, b=1, dtype=dtype, most=most), causal=True)


@pytest.mark.parametrize("n", EDGES)
def test_edges_of_tiles(rng, n):
    for m in EDGES:
        assert_agrees(problem(rng, ("counts",), b=1, h=1, n=n, m=m, d=5, most=9), causal=True)


@pytest.mark.parametrize("d", [1, 8, 12, 24, 63, 64, 128, 255])
def test_every_width(rng, d):
    arguments = apart(rng, b=1, n=98, m=131, d=d, dtype=np.float32, most=40)
    arguments["v"] = rng.standard_normal((1, 2, 131, 33)).astype(np.float32)
    assert_agrees(arguments, causal=True)


NAMES = [name for name in OPTIONS if name not in ("counts", "polar", "theta", "return_lse", "tolerance")]


@pytest.mark.parametrize("name", NAMES)
def test_every_slot_and_option_goes_with_counts(rng, name):
    """But for bands, which have passes of their own. What a mask adds is no part of a gate; what it hides has none."""
    n, m = 101, 140
    arguments = problem(rng, ("counts",), n=n, m=m, hk=1, d=6, most=20) | options(rng, [name], 2, 2, n, m, 6, float)
    assert_agrees({**arguments, "causal": True}, condition=4.0 if name == "rotors" else 2.0)


@given(data=st.data())
def test_any_combination(data):
    draw = data.draw
    names = draw(st.lists(st.sampled_from(sorted(NAMES)), unique=True, max_size=4))
    d = draw(st.sampled_from([1, 2, 3, 7] if {"rel_gain", "growth"} & set(names) else [1, 2, 5, 8, 16, 17, 40]))
    names = [name for name in names if d > 1 or name not in ("angles", "growth")]
    names = [name for name in names if d % 2 == 0 or name != "rotors"]
    n, m = draw(st.sampled_from(EDGES)), draw(st.sampled_from(EDGES))
    h = draw(st.sampled_from([1, 2, 4]))
    hk = draw(st.sampled_from([k for k in (1, 2, 4) if h % k == 0]))
    rng, sharp = np.random.default_rng(draw(st.integers(0, 2**32))), draw(st.sampled_from([1.0, 0.1, 5.0]))
    arguments = problem(
        rng, ("counts",), b=2, h=h, hk=hk, n=n, m=m, d=d, led=draw(st.booleans()), shared=draw(st.booleans()),
        sharp=sharp, most=draw(st.sampled_from([0, 1, 2, 15, 100, 300])),
    )  # fmt: skip
    arguments |= {**options(rng, names, 2, h, n, m, d, float), "causal": True}
    assert_agrees(arguments, condition=2.0 * max(1.0, sharp))


@pytest.mark.full("takes seconds")
def test_counts_of_thousands_lose_nothing(rng):
    """What the sum over all keys less that over the far ones would leave of those near the query in float32."""
    arguments = problem(rng, ("counts",), b=1, h=1, n=100, m=16384, d=8, dtype=np.float32, most=9000)
    out, pullback = fastpe.attention_vjp(**arguments, causal=True)
    exact, exact_pullback = reference.attention_vjp(**arguments, causal=True)
    plain, plain_pullback = attention_vjp_in(np.float32, **arguments, causal=True)
    found, expected, others = ({"out": first, **pull(out)} for first, pull in (
        (out, pullback), (exact, exact_pullback), (plain, plain_pullback)
    ))  # fmt: skip
    for name, gradient in expected.items():
        size = np.linalg.norm(gradient)
        error, usual = (np.linalg.norm(each[name].astype(float) - gradient) / size for each in (found, others))
        assert error < 4e-5, name  # some counts lie on a whole number's other side
        assert error < 0.01 * usual, name


# ---------------------------------------------------------------------------------------------------------------------
# How they are computed


def test_a_pullback_may_be_called_again_and_by_two_threads_at_once(rng):
    arguments = problem(rng, ("counts",), n=300)
    _, pullback = fastpe.attention_vjp(**arguments, causal=True)
    douts = [rng.standard_normal(arguments["q"].shape) for _ in range(2)]
    expected = [pullback(dout) for dout in douts]
    with ThreadPoolExecutor(2) as pool:
        for found, wanted in zip(pool.map(pullback, 4 * douts), 4 * expected, strict=True):
            for name, gradient in wanted.items():
                np.testing.assert_array_equal(found[name], gradient)


# ---------------------------------------------------------------------------------------------------------------------
# What is taken


@pytest.mark.parametrize(("wrong", "message"), [
    ({"causal": False}, r"^counts needs causal=True"),
    ({"counts": np.zeros((1, 0, 4))}, r"^counts must have the shape"),
    ({"counts": np.zeros((3, 4))}, r"^counts must have the shape \(H or 1, P, D\)"),
    ({"counts": np.zeros((1, 3, 5))}, r"^counts must have the shape \(H or 1, P, D\)"),
    ({"counts": np.zeros((3, 3, 4))}, r"^counts must have the shape \(H or 1, P, D\)"),
    ({"bands": fastpe.bands.rerope(4, window=2), "theta": [1.0]}, r"^counts cannot be given with bands"),
    ({"counts": np.zeros((1, 3, 4), np.int64)}, r"^counts must be an array of float"),
])  # fmt: skip
@pytest.mark.parametrize("attention", [fastpe.attention, reference.attention])
def test_mistakes_are_refused_by_name(attention, wrong, message):
    q = np.ones((2, 4, 4))
    with pytest.raises((TypeError, ValueError), match=message):
        attention(q, q, q, **{"causal": True, "counts": np.zeros((1, 3, 4)), **wrong})


def test_vectors_must_be_finite_and_of_the_queries_dtype():
    q = np.ones((2, 4, 4))
    with pytest.raises(ValueError, match=r"^counts must be finite"):
        fastpe.attention(q, q, q, causal=True, counts=np.full((1, 3, 4), np.nan))
    with pytest.raises(TypeError, match=r"^counts must have the dtype of q"):
        fastpe.attention(q, q, q, causal=True, counts=np.zeros((1, 3, 4), np.float32))
