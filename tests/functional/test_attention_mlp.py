"""Attention whose scores a small network of all heads corrects: the slots `mlp_in`, `mlp_bias` and `mlp_out` (DAPE)."""

import tracemalloc

import attention_problems
import numpy as np
import pytest
from array_kinds import gapped, read_only, stepped, transposed, unaligned
from content_checks import NEAR, G
from fixture_attention import K, Q, V
from guards import guarded_allocations
from hypothesis import given
from network_problems import agrees, arguments_of, cases, problem

import fastpe
from fastpe import reference, spans
from fastpe.bands import Band
from fastpe.functional import attention
from fastpe.functional.slots import NETWORK, check_kernels
from fastpe.kernels.attention.slots import SLOTS, Slot
from fastpe.kernels.threads import team as threads_of_kernels

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
def test_values_of_the_authors_code(vjp, taps, printed):
    """Of both versions, and of PyTorch's autograd."""
    given = printed_problem(taps)
    weights = vjp(**{**given, "v": np.stack([np.eye(4)] * 2)}, causal=True)[0]
    out, pull = vjp(**given, causal=True)
    np.testing.assert_allclose([weights[0, 2, 0], out[0, 2, 0], out[1, 3, 3]], printed, **NEAR)
    if taps == 1:
        found = pull(np.stack([G, G]))["mlp_bias"]
        np.testing.assert_allclose(found, [0.009478508, 0.079585389, -0.108420651], **NEAR)


@pytest.mark.parametrize("dropped", [{}, {"dropout": 0.4, "dropout_seed": 5}], ids=["all", "dropped"])
def test_a_network_that_says_nothing_is_attention(rng, dropped):
    """Which drops the same weights: of padding, too, the cells of dropout are counted."""
    given = problem(rng, h=4, hk=2, n=170, m=190, taps=3, beside=("bias", "scores", "angles", "sinks"))
    plain = {name: x for name, x in given.items() if name not in NETWORK}
    given["mlp_out"][...] = 0
    options = {**dropped, "lengths": (np.array([170, 99]), np.array([190, 120]))}
    (out, pull), (expected, back) = (fastpe.attention_vjp(**each, **options) for each in (given, plain))
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-13)
    found = pull(out)
    for name, gradient in back(out).items():
        np.testing.assert_allclose(found[name], gradient, rtol=0, atol=1e-12, err_msg=name)


def test_dropout_changes_no_lse(rng):
    given = problem(rng, n=40, m=70, beside=("sinks",))
    kept, dropped = (fastpe.attention(**given, return_lse=True, **own) for own in ({}, DROPPED))
    np.testing.assert_array_equal(dropped[1], kept[1])
    assert not np.array_equal(dropped[0], kept[0])


def test_heads_know_of_each_other(rng):
    """Each corrects by the products of the other: S_0 = C_0 + |C_1|, as a unit and its negative make it."""
    given = problem(rng, b=1, w=4)
    into = np.zeros((4, 4, 1))
    into[:2, 1, 0], into[2:, 0, 0] = (1, -1), (1, -1)
    out = np.repeat([[1, 1, 0, 0], [0, 0, 1, 1]], 1, axis=0)[..., None] / 0.99  # lrelu(x) + lrelu(-x) = 0.99 |x|
    given |= {"mlp_in": into, "mlp_bias": np.zeros(4), "mlp_out": out}
    products = given["q"] @ np.swapaxes(given["k"], -1, -2) / 2
    scores = products + np.abs(products[:, ::-1])
    expected = reference.attention(given["q"], given["k"], given["v"], scores=(scores - products)[0])
    np.testing.assert_allclose(fastpe.attention(**given), expected, rtol=0, atol=1e-14)


def test_a_query_at_a_time_gives_what_all_give(rng):
    """As decoding has it: the last query of as many keys as there are."""
    given = problem(rng, h=4, hk=2, n=70, d=8, taps=3, beside=("bias",))
    whole = fastpe.attention(**given, causal=True)
    rest = {name: given[name] for name in (*NETWORK, "bias")}
    for i in (0, 1, 29, 30, 31, 69):
        q, k, v = given["q"][:, :, i : i + 1], given["k"][:, :, : i + 2], given["v"][:, :, : i + 2]
        found = fastpe.attention(q, k, v, causal=True, query_start=i, **rest)
        np.testing.assert_allclose(found[:, :, 0], whole[:, :, i], rtol=0, atol=1e-13)


# ------------------------------------------------------------------------------------------ beside the reference


@given(cases())
def test_any_sizes_and_all_that_goes_with_it(case):
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


@pytest.mark.parametrize("sizes", [{"b": 0}, {"n": 0}, {"m": 0}])
def test_of_nothing(rng, sizes):
    given = problem(rng, **{"b": 2, "n": 3, "m": 3, "beside": ("sinks",)} | sizes)
    for vjp in (fastpe.attention_vjp, reference.attention_vjp):
        out, pull = vjp(**given)
        np.testing.assert_array_equal(out, np.zeros((*given["q"].shape[:3], 5)))
        for name, gradient in pull(out).items():
            assert gradient.shape == given[name].shape
            assert not gradient.any(), name


def test_gradients_that_are_wanted_and_known_outputs(rng):
    given = problem(rng, n=40, m=50, beside=("scale", "sinks", "bias")) | DROPPED
    (out, lse), pull = fastpe.attention_vjp(**given, causal=True, return_lse=True)
    whole = pull((out, lse))
    found = fastpe.attention_vjp(**given, causal=True, return_lse=True, wrt=("mlp_in", "scale"))[1]((out, lse))
    assert list(found) == ["mlp_in", "scale"]
    options = {"causal": True, "window": None, "lengths": None, "tolerance": None}
    known = attention.gradients(out, lse, (out, lse), **given, **options, wrt=tuple(whole))
    for name, gradient in whole.items():
        np.testing.assert_array_equal(known[name], gradient)
        if name in found:
            np.testing.assert_array_equal(found[name], gradient)


# ---------------------------------------------------------------------------------------------------- as elsewhere


@pytest.mark.parametrize("laid", [gapped, read_only, stepped, transposed, unaligned])
def test_arrays_however_they_lie(rng, laid):
    given = problem(rng, b=2, h=3, n=7, d=4, taps=3, beside=("bias", "scores"))
    out, pull = fastpe.attention_vjp(**given)
    same, back = fastpe.attention_vjp(**{name: laid(x) if x.ndim > 1 else x for name, x in given.items()})
    np.testing.assert_array_equal(same, out)
    for (name, found), expected in zip(back(laid(out)).items(), pull(out).values(), strict=True):
        np.testing.assert_array_equal(found, expected, err_msg=name)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.full("takes seconds")
def test_half_precision_is_float32_rounded(rng, half):
    dtype = np.dtype(half) if half == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    given = {name: x.astype(dtype) for name, x in problem(rng, n=70, d=8, dtype=np.float32).items()}
    wide = {name: x.astype(np.float32) for name, x in given.items()}
    np.testing.assert_array_equal(fastpe.attention(**given), fastpe.attention(**wide).astype(dtype))


@pytest.mark.parametrize("own", [{}, DROPPED], ids=["all", "dropped"])
def test_the_bits_do_not_depend_on_threads(rng, monkeypatch, own):
    given = own | problem(rng, b=2, n=300, d=16, w=32, dtype=np.float32, beside=("bias",))
    results = []
    for threads in (1, 2, 3, 5):
        monkeypatch.setattr(threads_of_kernels, "default_threads", lambda threads=threads: threads)
        out, pull = fastpe.attention_vjp(**given, causal=True)
        results.append((out, *pull(out).values()))
    for others in results[1:]:
        for one, other in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("own", [{}, DROPPED], ids=["all", "dropped"])
def test_writes_stay_inside(rng, monkeypatch, own):
    check = guarded_allocations(monkeypatch)
    given = own | problem(rng, b=2, h=3, n=45, m=61, d=5, w=5, taps=5, beside=("bias", "scores"))
    out, pull = fastpe.attention_vjp(**given, causal=True)
    pull(out)
    check()


@pytest.mark.full("takes seconds")
def test_no_array_of_queries_times_keys(rng):
    given = DROPPED | problem(rng, b=1, n=4096, d=8, dv=8, dtype=np.float32)
    fastpe.attention_vjp(**given)[1](np.ones((1, 2, 4096, 8), np.float32))
    tracemalloc.start()
    out, pull = fastpe.attention_vjp(**given)
    pull(out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4096 * 4096 * 4 / 4


# --------------------------------------------------------------------------------------------------------- mistakes


WITHOUT_KERNEL = {
    "rel_gain": "the backward pass of a network has one product per query and key, not one per channel",
    "growth": "the backward pass of a network uses queries and keys without the factors of growth",
    "counts": "the kernels count keys from near to far, and compute a network from far to near",
    "bands": "a network reads the scores of adjacent keys, and each band is a separate pass",
}


@pytest.mark.parametrize("name", WITHOUT_KERNEL)
def test_what_only_the_reference_takes(rng, name):
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
        place = (0, *(1 for _ in range(given[slot].ndim - 2)), 0)
        moved = [{**given, slot: given[slot].copy()} for _ in range(2)]
        for step, each in zip((1e-6, -1e-6), moved, strict=True):
            each[slot][place] += step
        rise = [reference.attention(**each, **options).sum() for each in moved]
        assert found[slot][place] == pytest.approx((rise[0] - rise[1]) / 2e-6, rel=1e-5, abs=1e-8), slot


@pytest.mark.parametrize("attend", [fastpe.attention, reference.attention])
def test_what_is_not_asked_for(rng, attend):
    attend(**problem(rng, b=1, h=2, n=4, d=4), dropout=0.0, rectify=False, pairs="half", softcap=None)


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
def test_mistakes(rng, message, wrong):
    with pytest.raises(ValueError, match=message):
        fastpe.attention(**problem(rng) | wrong)


def test_a_term_that_the_kernels_of_a_network_do_not_know_is_refused(monkeypatch):
    monkeypatch.setitem(SLOTS, "tomorrow", Slot(("H",), "what comes tomorrow", layout="rows"))
    with pytest.raises(ValueError, match=r"tomorrow cannot be given with mlp_in"):
        check_kernels({"mlp_in", "tomorrow"})
