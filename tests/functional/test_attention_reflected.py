"""Attention whose queries are reflected by every token up to a key: the slots `reflectors` and `reflect` (PaTH)."""

import numpy as np
import pytest
from attention_problems import problem
from content_checks import NEAR, G
from fixture_attention import K, Q, V
from hypothesis import given
from reflected_problems import agrees, arguments_of, cases

import fastpe
from fastpe import reference

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
def test_outputs_and_gradients_are_those_of_the_authors_code(vjp):
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
def test_any_combination(case):
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


# ---------------------------------------------------------------------------------------------------- as elsewhere


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
