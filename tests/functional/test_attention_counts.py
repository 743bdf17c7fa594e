"""Keys that queries count by their gates: what they are, beside the authors' numbers, other slots and the reference."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from array_kinds import gapped, read_only, stepped, transposed, unaligned
from attention_problems import SLOTS, assert_agrees, problem
from fixture_attention import K, Q, V
from guards import guarded_allocations
from hypothesis import given
from hypothesis import strategies as st

import fastpe
from fastpe import reference
from fastpe.doctor.attention_checks import distance_to_whole_counts
from fastpe.kernels.attention.tile import FEW, TILE_KEYS, TILE_QUERIES
from fastpe.kernels.threads import team as threads_of_kernels
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
def test_the_authors_numbers(vjp, rows, divided):
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


@pytest.mark.parametrize("most", [5, 100, 300])
def test_where_all_gates_are_open_they_are_vectors_of_the_look_back(rng, most):
    """Gates of exactly 1: the slot `rel_key` says the same."""
    arguments = problem(rng, ("counts",), b=1, n=130, m=260, d=7, most=most)
    for name in "qk":
        arguments[name][..., 0] = 20.0
    out, pullback = fastpe.attention_vjp(**arguments, causal=True, scale=0.2)
    counts = arguments.pop("counts")
    rows = np.clip(1 - np.arange(-259, 260), 0, most)
    same, other = fastpe.attention_vjp(**arguments, rel_key=counts[:, rows] / 0.2, causal=True, scale=0.2)
    np.testing.assert_allclose(out, same, rtol=0, atol=1e-12)
    found, expected = pullback(out), other(out)
    for name in "qkv":
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-10, err_msg=name)
    summed = np.zeros_like(counts)
    np.add.at(summed, (slice(None), rows), expected["rel_key"] / 0.2)
    np.testing.assert_allclose(found["counts"], summed, rtol=0, atol=1e-9)


def test_where_all_gates_are_shut_nothing_is_counted(rng):
    arguments = problem(rng, ("counts",), n=140)
    arguments["q"][..., 0], arguments["k"][..., 0] = 100.0, -100.0
    out = fastpe.attention(**arguments, causal=True)
    arguments.pop("counts")
    np.testing.assert_allclose(out, fastpe.attention(**arguments, causal=True), rtol=0, atol=1e-10)


@pytest.mark.parametrize("rows", [1, 4])
def test_equal_vectors_change_nothing_but_lse(rng, rows):
    arguments = problem(rng, n=200, m=300)
    vector = rng.standard_normal((2, 1, 8))
    out, lse = fastpe.attention(**arguments, counts=np.repeat(vector, rows, axis=1), causal=True, return_lse=True)
    plain, without = fastpe.attention(**arguments, causal=True, return_lse=True)
    np.testing.assert_allclose(out, plain, rtol=0, atol=1e-13)
    np.testing.assert_allclose(lse, without + (arguments["q"] @ vector[:, 0, :, None])[..., 0], rtol=0, atol=1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# The error law


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("most", [1, 6, 200])
def test_they_obey_the_error_law(rng, dtype, most):
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


OPTIONS = {
    "window": {"window": 9}, "softcap": {"softcap": 2.0}, "half": {"pairs": "half"}, "rectify": {"rectify": True},
    "dropout": {"dropout": 0.25, "dropout_seed": 7}, "spans": {"spans": None}, "mask": {"mask": None},
    "intervals": {"mask": None}, "lengths": {"lengths": None}, "query_start": {"query_start": np.array([0, 40])},
}  # fmt: skip


def options_of(rng, names, n, m):
    """The options of these names."""
    drawn = {
        "spans": np.sort(rng.integers(-1, m + 2, (2, n, 2)), axis=-1), "mask": rng.random((2, 1, n, m)) < 0.7,
        "intervals": np.arange(m) < rng.integers(0, m + 1, (n, 1)),
        "lengths": (rng.integers(0, n + 1, 2), rng.integers(0, m + 1, 2)),
    }  # fmt: skip
    found = {}
    for name in names:
        found |= {key: drawn[name] if value is None else value for key, value in OPTIONS[name].items()}
    return found


@pytest.mark.parametrize("name", [*SLOTS, "sinks", *OPTIONS])
def test_every_slot_and_option_goes_with_them(rng, name):
    """But for bands, which have passes of their own. What a mask adds is no part of a gate; what it hides has none."""
    n, m = 101, 140
    arguments = problem(rng, ("counts", *([name] if name in SLOTS else [])), n=n, m=m, hk=1, d=6, most=20)
    if name == "sinks":
        arguments["sinks"] = rng.standard_normal(2)
    if name == "query_start":
        arguments = problem(rng, ("counts",), n=n, m=m, hk=1, d=6, most=20)
    condition = 4.0 if name == "rotors" else 2.0
    assert_agrees(
        arguments, causal=True, condition=condition, **options_of(rng, [name] if name in OPTIONS else [], n, m)
    )


@given(data=st.data())
def test_any_combination(data):
    draw = data.draw
    names = draw(st.lists(st.sampled_from(SLOTS), unique=True, max_size=3))
    d = draw(st.sampled_from([1, 2, 3, 7] if {"rel_gain", "growth"} & set(names) else [1, 2, 5, 8, 16, 17, 40]))
    names = [name for name in names if d > 1 or name not in ("angles", "growth")]
    n, m = draw(st.sampled_from(EDGES)), draw(st.sampled_from(EDGES))
    h = draw(st.sampled_from([1, 2, 4]))
    hk = draw(st.sampled_from([k for k in (1, 2, 4) if h % k == 0]))
    rng, sharp = np.random.default_rng(draw(st.integers(0, 2**32))), draw(st.sampled_from([1.0, 0.1, 5.0]))
    arguments = problem(
        rng, (*names, "counts"), b=2, h=h, hk=hk, n=n, m=m, d=d, led=draw(st.booleans()), shared=draw(st.booleans()),
        sharp=sharp, most=draw(st.sampled_from([0, 1, 2, 15, 100, 300])),
    )  # fmt: skip
    if draw(st.booleans()):
        arguments["sinks"] = rng.standard_normal(h)
    drawn = draw(st.lists(st.sampled_from(sorted(set(OPTIONS) - {"query_start"})), unique=True, max_size=2))
    assert_agrees(arguments, condition=2.0 * max(1.0, sharp), causal=True, **options_of(rng, drawn, n, m))


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


@pytest.mark.parametrize("most", [7, 150])
def test_a_cache_of_keys_gives_what_all_queries_give(rng, most):
    arguments = problem(rng, ("counts",), n=300, h=2, hk=1, dtype=np.float32, most=most)
    q = arguments.pop("q")
    whole = fastpe.attention(q, **arguments, causal=True)
    for n in (1, int(FEW), int(FEW) + 1, 130):
        last = fastpe.attention(q[:, :, -n:], **arguments, causal=True)
        np.testing.assert_allclose(last, whole[:, :, -n:], rtol=0, atol=2e-6)


def test_any_number_of_threads_gives_the_same_bits(rng, monkeypatch):
    arguments = problem(rng, ("counts", "bias"), b=1, h=2, hk=1, n=300, m=500, dtype=np.float32, most=100)
    found = []
    for threads in (1, 2, 3, 8):
        monkeypatch.setattr(threads_of_kernels, "default_threads", lambda threads=threads: threads)
        out, pullback = fastpe.attention_vjp(**arguments, causal=True)
        found.append({"out": out, **pullback(arguments["q"])})
    for other in found[1:]:
        for name, array in found[0].items():
            assert array.tobytes() == other[name].tobytes(), name


def test_a_pullback_may_be_called_again_and_by_two_threads_at_once(rng):
    arguments = problem(rng, ("counts",), n=300)
    _, pullback = fastpe.attention_vjp(**arguments, causal=True)
    douts = [rng.standard_normal(arguments["q"].shape) for _ in range(2)]
    expected = [pullback(dout) for dout in douts]
    with ThreadPoolExecutor(2) as pool:
        for found, wanted in zip(pool.map(pullback, 4 * douts), 4 * expected, strict=True):
            for name, gradient in wanted.items():
                np.testing.assert_array_equal(found[name], gradient)


def test_no_tile_is_left_out(rng):
    """Beside a bias that would hide the far ones."""
    arguments = problem(rng, ("counts",), n=300, h=1, most=290)
    arguments["bias"] = -3.0 * abs(np.arange(-299, 300.0))[None]
    arguments["counts"] *= 1000.0
    far, near = (fastpe.attention(**arguments, causal=True, tolerance=tolerance) for tolerance in (0.5, 0))
    np.testing.assert_array_equal(far, near)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_is_written_past_the_ends_of_scratch_memory(rng, dtype, monkeypatch):
    check = guarded_allocations(monkeypatch)
    for n, m, d, most in ((97, 129, 17, 31), (96, 128, 16, 32), (1, 1, 1, 0), (3, 200, 3, 300), (200, 70, 3, 1)):
        arguments = problem(rng, ("counts",), n=n, m=m, d=d, dtype=dtype, most=most)
        fastpe.attention_vjp(**arguments, causal=True)[1](arguments["q"])
        check()


def test_nothing_is_read_before_it_is_written(rng, monkeypatch):
    arguments = problem(rng, ("counts",), h=4, hk=2, n=140, m=150, d=6)
    options = {"causal": True, "lengths": (np.array([140, 50]), np.array([0, 150]))}

    def results():
        out, pullback = fastpe.attention_vjp(**arguments, **options)
        return {"out": out, **pullback(arguments["q"])}

    expected, empty = results(), np.empty

    def dirty(*given, **more):
        made = empty(*given, **more)
        made.view(np.uint8)[...] = 0xFF
        return made

    monkeypatch.setattr(np, "empty", dirty)
    for name, array in results().items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


@pytest.mark.parametrize("layout", [gapped, stepped, read_only, unaligned, transposed])
def test_every_layout(rng, layout):
    arguments = problem(rng, ("counts",), n=70, m=130)
    out, pullback = fastpe.attention_vjp(**arguments, causal=True)
    same, other = fastpe.attention_vjp(**{name: layout(x) for name, x in arguments.items()}, causal=True)
    np.testing.assert_array_equal(same, out)
    for name, gradient in pullback(out).items():
        np.testing.assert_array_equal(other(out)[name], gradient, err_msg=name)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(rng, dtype):
    dtype = np.dtype(dtype) if dtype == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    arguments = problem(rng, ("counts",), n=70, m=90, most=30)
    narrow = {name: array.astype(dtype) for name, array in arguments.items()}
    out, pullback = fastpe.attention_vjp(**narrow, causal=True)
    exact, exact_pullback = reference.attention_vjp(**narrow, causal=True)
    coarse = 2e-3 if dtype == np.float16 else 2e-2
    assert out.dtype == dtype
    np.testing.assert_allclose(out.astype(float), exact, rtol=0, atol=coarse * 4)
    found, wanted = pullback(out), exact_pullback(out.astype(float))
    for name, gradient in found.items():
        assert gradient.dtype == dtype
        assert np.linalg.norm(gradient.astype(float) - wanted[name]) < 2 * coarse * np.linalg.norm(wanted[name]), name


@pytest.mark.parametrize("wild", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("name", ["q", "k"])
def test_what_is_no_number_spreads_to_rows_that_see_it_alone(rng, name, wild):
    arguments = problem(rng, ("counts",), b=1, h=1, n=200, dtype=np.float32, most=50)
    expected = fastpe.attention(**arguments, causal=True)
    arguments[name][0, 0, 130, 3] = wild
    out, pullback = fastpe.attention_vjp(**arguments, causal=True)
    np.testing.assert_array_equal(out[0, 0, :130], expected[0, 0, :130])
    if name != "q" and np.isnan(wild):
        assert np.isnan(out[0, 0, 130:]).any(axis=-1).all()
    pullback(np.ones_like(out))


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
