"""Attention whose queries are reflected by every token up to a key: the slots `reflectors` and `reflect` (PaTH)."""

import tracemalloc

import numpy as np
import pytest
from array_kinds import gapped, read_only, stepped, transposed, unaligned
from attention_problems import problem
from content_checks import NEAR, G
from fixture_attention import K, Q, V
from hypothesis import given
from reflected_problems import agrees, arguments_of, cases

import fastpe
from fastpe import reference
from fastpe.functional import attention
from fastpe.kernels.threads import team as threads_of_kernels

SLOTS = ("reflectors", "reflect")


@pytest.fixture
def rng():
    return np.random.default_rng(51)


# --------------------------------------------------------------------------------------------------- what it is


def printed_problem():
    i, c = np.arange(4.0)[:, None], np.arange(4)
    w = np.cos(1.3 * i + 0.9 * c)
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    return {"q": Q, "k": K, "v": V, "reflectors": w[None], "reflect": 2 / (1 + np.exp(0.2 - 0.3 * i.T))}


@pytest.mark.parametrize("vjp", [fastpe.attention_vjp, reference.attention_vjp])
def test_values_of_the_authors_code(vjp):
    """Of flash-linear-attention's naive_path_attn, and of PyTorch's autograd."""
    given = printed_problem()
    weights = vjp(**{**given, "v": np.eye(4)}, causal=True)[0]
    (out, lse), pull = vjp(**given, causal=True, return_lse=True)
    scores = np.log(np.where(np.tri(4) > 0, weights, 1)) + lse[:, None]
    found = [scores[3, 1], scores[1, 0], weights[2, 0], out[2, 0], out[3, 3]]
    printed = [-0.028694591, 0.680746821, 0.274780819, 0.330379874, 0.621834552]
    np.testing.assert_allclose(found, printed, **NEAR)
    gradients = pull((G, 0 * lse))
    of_reflect, of_w = (
        [0, -0.139782646, -0.142634411, -0.006402970],
        [0.142708655, 0.146871889, 0.189567810, 0.246114447],
    )
    np.testing.assert_allclose(gradients["reflect"][0], of_reflect, **NEAR)
    np.testing.assert_allclose(gradients["reflectors"][0, 1], of_w, **NEAR)
    np.testing.assert_allclose(gradients["k"][0], [0.035986543, -0.037886572, -0.026808990, 0.076908375], **NEAR)


@pytest.mark.parametrize("vjp", [fastpe.attention_vjp, reference.attention_vjp])
def test_what_it_is(rng, vjp):
    """All matrices written out; two key heads for four, keys at positions 0 to 8, queries at 5 to 8."""
    given = problem(rng, SLOTS, b=1, h=4, hk=2, n=4, m=9, d=6)
    given["v"] = np.broadcast_to(np.eye(9), (1, 2, 9, 9))
    weights = vjp(**given, causal=True)[0]
    w, beta = given["reflectors"], given["reflect"]
    for h, i in np.ndindex(4, 4):
        row, scores = given["q"][0, h, i], np.full(9, -np.inf)
        for j in range(5 + i, -1, -1):
            scores[j] = row @ given["k"][0, h // 2, j] / np.sqrt(6)
            row = row @ (np.eye(6) - beta[h, j] * np.outer(w[h, j], w[h, j]))
        expected = np.exp(scores - scores.max())
        np.testing.assert_allclose(weights[0, h, i], expected / expected.sum(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("dropout", [{}, {"dropout": 0.4, "dropout_seed": 7}], ids=["whole", "dropped"])
@pytest.mark.parametrize("window", [None, 50])
@pytest.mark.parametrize(("n", "m"), [(3, 300), (3, 320), (70, 300), (300, 320)])
def test_what_reflects_nothing_is_attention(rng, n, m, window, dropout):
    """The same weights are dropped out."""
    given, options = problem(rng, SLOTS, h=4, hk=2, n=n, m=m), {"causal": True, "window": window, **dropout}
    given["reflect"] = np.zeros((4, m))
    plain, back = fastpe.attention_vjp(*(given[name] for name in "qkv"), **options)
    out, pull = fastpe.attention_vjp(**given, **options)
    np.testing.assert_allclose(out, plain, rtol=0, atol=1e-14)
    found, expected = pull(out), back(out)
    for name in "qkv":
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-13)
    np.testing.assert_array_equal(found["reflectors"], 0)


def test_a_reflection_twice_is_none(rng):
    """Along one vector by 2 at every token: rows of even distance are as they were."""
    given = problem(rng, SLOTS, b=1, h=1, n=9, d=4)
    given["reflectors"][:] = given["reflectors"][:, :1]
    given |= {"reflect": np.full((1, 9), 2.0), "v": np.eye(9)[None, None]}
    w = given["reflectors"][0, 0]
    turned = given["q"][0, 0] - 2 * np.outer(given["q"][0, 0] @ w, w)
    odd = (np.arange(9)[:, None] - np.arange(9)) % 2
    scores = np.where(odd, turned @ given["k"][0, 0].T, given["q"][0, 0] @ given["k"][0, 0].T) / 2
    weights = np.exp(np.where(np.tri(9) > 0, scores, -np.inf))
    found = fastpe.attention(**given, causal=True)[0, 0]
    np.testing.assert_allclose(found, weights / weights.sum(axis=1, keepdims=True), rtol=0, atol=1e-14)


def test_a_query_at_a_time_gives_what_all_give(rng):
    """As decoding has it: the last query of as many keys as there are."""
    given = problem(rng, SLOTS, h=4, hk=2, n=70, d=8)
    whole = fastpe.attention(**given, causal=True)
    for i in (0, 1, 31, 32, 63, 69):
        q, k, v = given["q"][:, :, i : i + 1], given["k"][:, :, : i + 1], given["v"][:, :, : i + 1]
        rest = {"reflectors": given["reflectors"][:, : i + 1], "reflect": given["reflect"][:, : i + 1]}
        found = fastpe.attention(q, k, v, causal=True, **rest)
        np.testing.assert_allclose(found[:, :, 0], whole[:, :, i], rtol=0, atol=1e-13)


def test_padding_reflects_nothing(rng):
    given = problem(rng, SLOTS, b=1, n=80, d=5)
    given["reflectors"][:, 50:], given["reflect"][:, 50:] = 7.0, 1.5
    options = {"causal": True, "lengths": [50]}
    out, pull = fastpe.attention_vjp(**given, **options)
    short = {name: given[name][..., :50, :] for name in ("k", "v")}
    for i in (49, 60, 79):  # queries past the last key too
        own = {**given, **short, "q": given["q"][:, :, i : i + 1]}
        own |= {"reflectors": given["reflectors"][:, :50], "reflect": given["reflect"][:, :50]}
        np.testing.assert_allclose(fastpe.attention(**own, causal=True)[:, :, 0], out[:, :, i], rtol=0, atol=1e-14)
    found = pull(out)
    for array in (found["k"], found["v"], found["reflectors"], found["reflect"][..., None]):
        np.testing.assert_array_equal(array[..., 50:, :], 0)


# ------------------------------------------------------------------------------------------ beside the reference


@given(cases())
def test_any_sizes_and_all_that_goes_with_it(case):
    arguments, options = arguments_of(case)
    agrees(arguments, **options)


@pytest.mark.parametrize("dropout", [{}, {"dropout": 0.2, "dropout_seed": 1}], ids=["whole", "dropped"])
@pytest.mark.parametrize("n", [3, 130])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wide_rows_and_many_keys(rng, n, dtype, dropout):
    agrees(problem(rng, SLOTS, b=1, h=2, hk=1, n=n, m=300, d=70, dtype=dtype), causal=True, **dropout)


def test_without_axes(rng):
    given = problem(rng, SLOTS, b=1, h=1, n=5, d=4)
    q, k, v = (given[name][0, 0] for name in "qkv")
    rest = {name: given[name] for name in SLOTS}
    (out, lse), pull = fastpe.attention_vjp(q, k, v, **rest, causal=True, return_lse=True)
    assert (out.shape, lse.shape) == ((5, 4), (5,))
    found = pull((out, lse))
    assert {name: x.shape for name, x in found.items()} == {
        "q": (5, 4), "k": (5, 4), "v": (5, 4), "reflectors": (1, 5, 4), "reflect": (1, 5)
    }  # fmt: skip
    w, beta = given["reflectors"][0], given["reflect"][0]
    np.testing.assert_allclose(out, reference.path(q, k, v, w, beta), rtol=0, atol=1e-14)


@pytest.mark.parametrize("sizes", [{"b": 0}, {"n": 0}, {"m": 0}])
def test_of_nothing(rng, sizes):
    sizes = {"b": 2, "n": 3, "m": 3} | sizes
    b, n, m = sizes["b"], sizes["n"], sizes["m"]
    w, sinks = rng.standard_normal((1, m, 4)), np.zeros(2)
    q, k = rng.standard_normal((b, 2, n, 4)), rng.standard_normal((b, 2, m, 4))
    for vjp in (fastpe.attention_vjp, reference.attention_vjp):
        out, pull = vjp(q, k, k, causal=True, reflectors=w, reflect=w[..., 0], sinks=sinks)
        np.testing.assert_array_equal(out, np.zeros((b, 2, n, 4)))
        for name, gradient in pull(out).items():
            assert not gradient.any(), name


def test_gradients_that_are_wanted_and_known_outputs(rng):
    given = problem(rng, [*SLOTS, "scale"], n=40, m=50) | {"sinks": rng.standard_normal(2)}
    (out, lse), pull = fastpe.attention_vjp(**given, causal=True, return_lse=True)
    whole = pull((out, lse))
    some, back = fastpe.attention_vjp(**given, causal=True, return_lse=True, wrt=("reflect", "scale"))
    found = back((out, lse))
    assert list(found) == ["reflect", "scale"]
    options = {"causal": True, "window": None, "lengths": None, "tolerance": None}
    again_found = attention.gradients(out, lse, (out, lse), **given, **options, wrt=tuple(whole))
    for name, gradient in whole.items():
        np.testing.assert_array_equal(again_found[name], gradient)
        if name in found:
            np.testing.assert_array_equal(found[name], gradient)
    np.testing.assert_array_equal(some[0], out)


@pytest.mark.parametrize("dropout", [{}, {"dropout": 0.4, "dropout_seed": 7}], ids=["whole", "dropped"])
def test_scores_that_one_looks_at(rng, dropout):
    given, options = problem(rng, SLOTS, n=5, m=7), {"causal": True, **dropout}
    given["v"] = np.broadcast_to(np.eye(7), (2, 2, 7, 7))
    given_scores = {name: given[name] for name in ("q", "k", *SLOTS)}
    weights = fastpe.reference.attention_scores(**given_scores, **options, stage="dropped")
    np.testing.assert_allclose(fastpe.attention(**given, **options), weights, rtol=0, atol=1e-14)


# ---------------------------------------------------------------------------------------------------- as elsewhere


@pytest.mark.parametrize("options", [{}, {"window": 60}, {"dropout": 0.3, "dropout_seed": 2}])
@pytest.mark.parametrize("n", [2, 200])
def test_any_number_of_threads_gives_the_same_bits(rng, n, options, monkeypatch):
    given, found = problem(rng, SLOTS, b=2, h=4, hk=2, n=n, m=430, d=40, dtype=np.float32, shared=True), []
    for threads in (1, 2, 3, 5):
        monkeypatch.setattr(threads_of_kernels, "default_threads", lambda threads=threads: threads)
        out, pull = fastpe.attention_vjp(**given, causal=True, **options)
        found.append({"out": out, **pull(out)})
    for name, array in found[0].items():
        assert all(array.tobytes() == other[name].tobytes() for other in found[1:]), name


@pytest.mark.parametrize("kind", [gapped, read_only, stepped, transposed, unaligned])
def test_any_strides_give_the_same_bits(rng, kind):
    given = problem(rng, SLOTS, h=4, hk=2, n=40, m=60, d=16)
    (out, pull), other = (
        fastpe.attention_vjp(**{name: how(x) for name, x in given.items()}, causal=True) for how in (np.copy, kind)
    )
    np.testing.assert_array_equal(other[0], out)
    expected = pull(out)
    for name, gradient in other[1](kind(out)).items():
        np.testing.assert_array_equal(gradient, expected[name])


@pytest.mark.parametrize("n", [1, 70])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(rng, n, name):
    dtype = np.dtype(name if name == "float16" else pytest.importorskip("ml_dtypes").bfloat16)
    halves = {name: x.astype(dtype) for name, x in problem(rng, SLOTS, n=n, m=90, d=16).items()}
    singles = {name: x.astype(np.float32) for name, x in halves.items()}
    (out, pull), (wide, back) = (fastpe.attention_vjp(**x, causal=True) for x in (halves, singles))
    np.testing.assert_array_equal(out, wide.astype(dtype))
    np.testing.assert_array_equal(fastpe.attention(**halves, causal=True), out)
    expected = back(out.astype(np.float32))
    for name, gradient in pull(out).items():
        assert gradient.dtype == dtype
        np.testing.assert_array_equal(gradient, expected[name].astype(dtype))


def test_nan_stays_where_it_belongs(rng):
    """In its query, or its sample, whose lane's memory others use after it."""
    given = problem(rng, SLOTS, b=3, h=1, n=70, d=5)
    calm, pull = fastpe.attention_vjp(**given, causal=True)
    gradients = pull(calm)
    given["q"][1, 0, 20], given["v"][1, 0, 66] = np.nan, np.inf
    out, pull = fastpe.attention_vjp(**given, causal=True)
    np.testing.assert_array_equal(out[::2], calm[::2])
    np.testing.assert_array_equal(np.isnan(out[1, 0, :66]).any(axis=-1), np.arange(66) == 20)
    found = pull(calm)
    for name in "qkv":
        np.testing.assert_array_equal(found[name][::2], gradients[name][::2])


@pytest.mark.parametrize("dropout", [{}, {"dropout": 0.4, "dropout_seed": 7}], ids=["whole", "dropped"])
def test_4096_positions_take_no_array_of_cells(rng, dropout):
    """Scores would take 64 MiB."""
    few, given = (problem(rng, SLOTS, b=1, h=1, n=n, d=8, dtype=np.float32) for n in (300, 4096))
    out, pull = fastpe.attention_vjp(**few, causal=True, **dropout)  # compiled
    pull(out)
    tracemalloc.start()
    try:
        out, pull = fastpe.attention_vjp(**given, causal=True, **dropout)
        pull(out)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 10 * 2**20
