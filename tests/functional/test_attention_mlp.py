"""Attention whose scores a small network of all heads corrects: the slots `mlp_in`, `mlp_bias` and `mlp_out` (DAPE)."""

import attention_problems
import numpy as np
import pytest
from content_checks import NEAR, G
from fixture_attention import K, Q, V
from hypothesis import given
from network_problems import agrees, arguments_of, cases, problem
from pullbacks import slope

import fastpe
from fastpe import reference, spans
from fastpe.bands import Band
from fastpe.functional.slots import check_kernels
from fastpe.kernels.attention.slots import SLOTS, Slot

DROPPED = {"dropout": 0.3, "dropout_seed": 7}


@pytest.fixture
def rng():
    return np.random.default_rng(61)


# --------------------------------------------------------------------------------------------------- what it is


def printed_problem(taps):
    """Two heads, of which the second has keys for queries."""
    return {
        "q": np.stack([Q, K]), "k": np.stack([K, Q]), "v": np.stack([V, V]),
        "bias": -np.array([[1 / 16], [1 / 256]]) * np.abs(np.arange(-3, 4)),
        "mlp_in": np.cos(0.7 * np.arange(12 * taps)).reshape(3, 4, taps), "mlp_bias": np.array([0.1, -0.2, 0.05]),
        "mlp_out": np.sin(1 + 0.9 * np.arange(6 * taps)).reshape(2, 3, taps),
    }  # fmt: skip


@pytest.mark.parametrize("vjp", [fastpe.attention_vjp, reference.attention_vjp])
@pytest.mark.parametrize(
    ("taps", "printed"),
    [(1, [0.136686251, 0.405319750, 0.840073728]), (3, [0.058473361, 0.410222331, 0.590118738])],
)
def test_outputs_and_gradients_are_those_of_the_authors_code(vjp, taps, printed):
    """Of both versions, and of PyTorch's autograd."""
    given = printed_problem(taps)
    weights = vjp(**{**given, "v": np.stack([np.eye(4)] * 2)}, causal=True)[0]
    out, pull = vjp(**given, causal=True)
    np.testing.assert_allclose([weights[0, 2, 0], out[0, 2, 0], out[1, 3, 3]], printed, **NEAR)
    if taps == 1:
        found = pull(np.stack([G, G]))["mlp_bias"]
        np.testing.assert_allclose(found, [0.009478508, 0.079585389, -0.108420651], **NEAR)


# ------------------------------------------------------------------------------------------ beside the reference


@given(cases())
def test_any_combination(case):
    arguments, options = arguments_of(case)
    agrees(arguments, **options)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wide_rows_and_many_keys(rng, dtype):
    given = problem(rng, b=1, h=3, n=130, m=300, d=70, dv=33, w=32, taps=3, dtype=dtype, beside=("bias",))
    agrees(given, causal=True)
    agrees(given, causal=True, **DROPPED)


def test_first_positions_and_documents(rng):
    given = problem(rng, n=50, m=90, d=6, taps=3, beside=("bias",))
    agrees(given, causal=True, query_start=np.array([3, 40]))
    own = spans.documents(np.repeat([0, 1, 2], [20, 1, 29]))
    agrees(problem(rng, n=50, taps=5, beside=("bias", "scores")), spans=own, causal=True)


@pytest.mark.parametrize("follow", [0, 2])
def test_documents_are_those_alone(rng, follow):
    """Causal ones as if keys followed, as many as the taps reach."""
    given, causal = problem(rng, b=1, n=52, taps=5, beside=("bias",)), follow > 0
    found = fastpe.attention(**given, causal=causal, spans=spans.documents(np.repeat([0, 1, 2, 3], [20, 1, 29, 2])))
    for first, last in ((0, 20), (20, 21), (21, 50)):
        own = {name: given[name][:, :, first : last + follow * (name != "q")] for name in "qkv"}
        alone = fastpe.attention(**{**given, **own}, causal=causal, query_start=0)
        np.testing.assert_allclose(found[:, :, first:last], alone, rtol=0, atol=1e-13)


# ---------------------------------------------------------------------------------------------------- as elsewhere


# --------------------------------------------------------------------------------------------------------- mistakes


WITHOUT_KERNEL = {
    "rel_gain": "the backward pass of a network has one product per query and key, not one per channel",
    "growth": "the backward pass of a network uses queries and keys without the factors of growth",
    "counts": "the kernels count keys from near to far, and compute a network from far to near",
    "bands": "a network reads the scores of adjacent keys, and each band is a separate pass",
}


@pytest.mark.parametrize("name", WITHOUT_KERNEL)
def test_combinations_without_a_kernel_are_refused_and_the_reference_has_their_gradients(rng, name):
    given, options = problem(rng, b=1, h=2, n=4, d=4), {"causal": True}
    if name == "bands":
        options |= {"bands": (Band(np.arange(4.0), np.arange(4.0), np.tile([0, 4], (4, 1))),), "theta": np.ones(2)}
    else:
        given[name] = attention_problems.problem(rng, [name], b=1, n=4, d=4)[name]
    with pytest.raises(ValueError, match=f"^{name} cannot be given with mlp_in, except to .*: {WITHOUT_KERNEL[name]}$"):
        fastpe.attention(**given, **options)
    out, pull = reference.attention_vjp(**given, **options)
    found = pull(np.ones_like(out))
    for slot in ("mlp_in", "k", *(() if name == "bands" else [name])):
        expected = slope(lambda x, slot=slot: reference.attention(**{**given, slot: x}, **options).sum(), given[slot])
        assert found[slot].flat[1] == pytest.approx(expected, rel=1e-5, abs=1e-8), slot


MISFITS = {
    r"mlp_in, mlp_bias and mlp_out must be given together, not mlp_in and mlp_out alone": {"mlp_bias": None},
    r"mlp_in must have the shape \(W, 2H, 2K\+1\) with B = 2, H = 2": {"mlp_in": np.zeros((3, 4, 2))},
    r"mlp_bias must have the shape \(W,\) = \(3,\) of mlp_in's first axis, not \(4,\)": {"mlp_bias": np.zeros(4)},
    r"mlp_out must have the shape \(H, W, T\) with W = 3 and T = 1 as in mlp_in, not \(2, 3, 3\)": {
        "mlp_out": np.zeros((2, 3, 3))
    },
    r"mlp_out must have the shape \(H, W, 2K\+1\)": {"mlp_out": np.zeros((3, 3, 1))},
    r"mlp_bias must be finite": {"mlp_bias": np.array([0, np.nan, 0])},
}


@pytest.mark.parametrize(("message", "wrong"), MISFITS.items(), ids=range(len(MISFITS)))
def test_arrays_that_do_not_fit_are_refused(rng, message, wrong):
    with pytest.raises(ValueError, match=message):
        fastpe.attention(**problem(rng) | wrong)


def test_a_term_that_the_kernels_of_a_network_do_not_know_is_refused(monkeypatch):
    monkeypatch.setitem(SLOTS, "tomorrow", Slot(("H",), "what comes tomorrow", layout="rows"))
    with pytest.raises(ValueError, match=r"tomorrow cannot be given with mlp_in"):
        check_kernels({"mlp_in", "tomorrow"})
