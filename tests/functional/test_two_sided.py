"""Attention with sums of gates on either side of the query: the printed row, the formula cell by cell, large sums."""

import numpy as np
import pytest
from attention_options import options
from attention_problems import problem
from content_checks import differences
from fixture_attention import K, V

from fastpe import columns, reference
from fastpe.base.pulled import summed_to
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES


def biases(before, after):
    """What is added to every cell, (..., N, N)."""
    past, future = before[..., None, :] - before[..., None], after[..., None] - after[..., None, :]
    return np.where(np.tri(before.shape[-1], dtype=bool), *np.broadcast_arrays(past, future))


def column_gradients(dscores, before, after):
    """Of both columns, from those of all scores."""
    past = dscores * np.tri(dscores.shape[-1])
    of_past, of_future = (cells.sum(axis=-2) - cells.sum(axis=-1) for cells in (past, dscores - past))
    return {"before": summed_to(of_past, before.shape), "after": summed_to(-of_future, after.shape)}


def gates(rng, *shape, mean=1.0):
    return columns.forget_gate(rng.standard_normal(shape) + mean)


def assert_agrees(arguments, before, after, *, tolerance=1e-12, **options):
    """Outputs and all gradients, beside the reference with a bias for every cell."""
    (out, lse), pullback = columns.two_sided_vjp(**arguments, before=before, after=after, return_lse=True, **options)
    wide = {name: x.astype(np.float64) if np.size(x) > 1 else x for name, x in arguments.items()}
    scores = wide.pop("scores", 0.0) + biases(before, after)
    (exact, exact_lse), exact_pullback = reference.attention_vjp(**wide, scores=scores, return_lse=True, **options)
    np.testing.assert_allclose(out, exact, rtol=0, atol=tolerance)
    np.testing.assert_allclose(lse, exact_lse, rtol=tolerance, atol=tolerance)
    rng = np.random.default_rng(0)
    douts = rng.standard_normal(out.shape).astype(out.dtype), rng.standard_normal(lse.shape).astype(out.dtype)
    found, wanted = pullback(douts), exact_pullback(douts)
    dscores = wanted.pop("scores")
    if "scores" in found:
        wanted["scores"] = dscores.reshape(-1, *arguments["scores"].shape).sum(axis=0)
    wanted |= column_gradients(dscores, before, after)
    assert set(found) == set(wanted)
    for name, gradient in wanted.items():
        close = 30 * tolerance * max(1.0, abs(gradient).max(initial=0.0))
        np.testing.assert_allclose(found[name], gradient, rtol=0, atol=close, err_msg=name)
    again = pullback(douts)
    for name, gradient in found.items():
        np.testing.assert_array_equal(again[name], gradient)


def test_the_printed_row():
    logits = 1 + 0.5 * np.sin(np.arange(4.0))
    before, after = columns.forget_gate(logits[None]), columns.forget_gate(0.5 * logits[None])
    weights, lse = columns.two_sided(np.zeros((1, 4, 4)), K[None], np.eye(4)[None], before, after, return_lse=True)
    row = np.log(weights[0, 1]) + lse[0, 1]
    np.testing.assert_allclose(row, [-0.216349567, 0, -0.394202006, -0.855105179], rtol=0, atol=5.1e-10)
    alone = columns.two_sided(np.zeros((1, 4, 4)), K[None], V[None], before, after)
    np.testing.assert_allclose(alone, weights @ V, rtol=0, atol=1e-15)


@pytest.mark.parametrize("n", [1, 2, int(TILE_KEYS), int(TILE_QUERIES) + 1, 150])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 5e-6)])
def test_outputs_and_gradients_are_those_of_the_reference_with_biases(n, dtype, tolerance):
    rng = np.random.default_rng(n)
    arguments = problem(rng, [], b=2, n=n, d=8, hk=1, dtype=dtype)
    heads = arguments["q"].shape[1]
    assert_agrees(arguments, gates(rng, 2, heads, n), gates(rng, 1, n), tolerance=tolerance)


@pytest.mark.parametrize("name", [
    "angles", "bias", "scores", "rel_key", "rel_value", "key_slope", "row_scale", "scales", "window", "sinks",
    "dropout", "rectify", "half", "spans", "mask", "both_lengths",
])  # fmt: skip
def test_slots_and_options_go_with_it(name):
    rng, n = np.random.default_rng(1), 41
    arguments = problem(rng, [], b=2, n=n, d=8)
    names = [name, "angles"] if name == "half" else [name]
    given = options(rng, names, 2, 2, n, n, 8, float)
    arrays = {key: x for key, x in given.items() if getattr(x, "dtype", None) == np.float64}
    rest = {key: x for key, x in given.items() if key not in arrays}
    assert_agrees(arguments | arrays, gates(rng, 2, n), gates(rng, 2, 1, n), **rest)


@pytest.mark.parametrize("lead", [0, 1])
def test_axes_that_q_has_not(lead):
    rng = np.random.default_rng(2)
    q, k, v = rng.standard_normal((3, *(2,) * lead, 9, 4))
    before, after = gates(rng, 1, 9), gates(rng, 2 if lead else 1, 9)
    out, pullback = columns.two_sided_vjp(q, k, v, before, after)
    four = [x.reshape((1,) * (4 - x.ndim) + x.shape) for x in (q, k, v)]
    np.testing.assert_array_equal(out, columns.two_sided(*four, before, after).reshape(out.shape))
    found = pullback(out)
    assert {name: x.shape for name, x in found.items()} == {
        "q": q.shape, "k": k.shape, "v": v.shape, "before": before.shape, "after": after.shape,
    }  # fmt: skip


def test_central_differences_through_the_gates():
    rng = np.random.default_rng(3)
    q, k, v, dout = rng.standard_normal((4, 2, 6, 4))
    logits = {"before": rng.standard_normal((2, 6)), "after": rng.standard_normal((2, 6))}

    def forward(**changed):
        own = {name: columns.forget_gate_vjp(x) for name, x in {**logits, **changed}.items()}
        out, pullback = columns.two_sided_vjp(q, k, v, own["before"][0], own["after"][0], sinks=np.array([0.3, 1.0]))
        return out, lambda: {name: own[name][1](pullback(dout)[name])["logits"] for name in own}

    found = forward()[1]()
    for name, x in logits.items():
        expected = differences(lambda moved, name=name: np.sum(forward(**{name: moved})[0] * dout), x)
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-8)


def test_large_sums_lose_nothing():
    rng = np.random.default_rng(5)
    arguments = problem(rng, [], b=1, n=200, d=8, dtype=np.float32)
    heads = arguments["q"].shape[1]
    before, after = gates(rng, heads, 200) + 2.0**20, gates(rng, heads, 200) - 2.0**20
    assert_agrees(arguments, before, after, tolerance=5e-6)


def test_far_keys_are_left_out_on_both_sides():
    rng = np.random.default_rng(6)
    tile, block = int(TILE_KEYS), int(TILE_QUERIES)
    n = 12 * max(tile, block)
    q, k, v = rng.standard_normal((3, 1, n, 8))
    sums = np.arange(float(n))[None]
    rows = slice(n // 2 // block * block, n // 2 // block * block + block)
    exact = columns.two_sided(q, k, v, sums, sums)
    far = np.r_[0:tile, n - tile : n]
    v[:, far] = np.nan
    found = columns.two_sided(q, k, v, sums, sums)
    np.testing.assert_array_equal(found[:, rows], exact[:, rows])
    assert np.isnan(columns.two_sided(q, k, v, sums, sums, tolerance=0)).all()


def test_half_precision_and_gradients_in_the_dtypes_given():
    rng = np.random.default_rng(7)
    q, k, v = rng.standard_normal((3, 1, 2, 70, 8)).astype(np.float16)
    before, after = gates(rng, 2, 70).astype(np.float32), gates(rng, 2, 70).tolist()
    out, pullback = columns.two_sided_vjp(q, k, v, before, after)
    exact = reference.attention(q, k, v, scores=biases(before.astype(float), np.array(after)))
    assert out.dtype == np.float16
    np.testing.assert_allclose(out, exact, rtol=0, atol=2e-3)
    assert {name: x.dtype for name, x in pullback(out).items()} == {
        "q": np.float16, "k": np.float16, "v": np.float16, "before": np.float32, "after": np.float64,
    }  # fmt: skip


@pytest.mark.parametrize(("b", "n"), [(1, 0), (0, 3)])
def test_nothing_to_do(b, n):
    q, sums = np.ones((b, 2, n, 4)), np.ones((1, n))
    out, pullback = columns.two_sided_vjp(q, q, q, sums, sums, sinks=np.zeros(2))
    assert out.shape == q.shape
    assert not any(gradient.any() for gradient in pullback(out).values())


def test_only_what_is_wanted():
    q, sums = np.ones((1, 5, 4)), np.ones((1, 5))
    for wrt in ((), ("q",), ("after",), ("before", "v")):
        out, pullback = columns.two_sided_vjp(q, q, q, sums, sums, wrt=wrt)
        assert tuple(pullback(out)) == wrt


@pytest.mark.parametrize(("wrong", "named"), [
    ({"before": np.ones((2, 4))}, r"before must have the shape \(H or 1, N\), optionally after an axis B, with B = 1"),
    ({"after": np.ones(4)}, r"after must have the shape .*, not \(4,\)"), ({"before": [[np.nan] * 4]}, "before"),
    ({"after": [["a"] * 4]}, "after"), ({"causal": True}, "causal cannot be given"),
    ({"key_offset": np.ones((1, 4))}, "key_offset cannot be given"), ({"softcap": 3.0}, "softcap cannot be given"),
    ({"mlp_in": np.ones((1, 2, 1))}, "mlp_in cannot be given to two_sided"),
    ({"reflect": np.ones((1, 4))}, "reflect cannot be given to two_sided"),
    ({"growth": np.ones((4, 2))}, "growth cannot be given"), ({"counts": np.ones((1, 2, 4))}, "counts cannot be given"),
    ({"bands": ()}, "bands cannot be given"), ({"query_start": 0}, "query_start cannot be given"),
    ({"q": np.ones((1, 3, 4))}, "q must have as many rows as k, 4, not 3"), ({"wrt": ("key_offset",)}, "wrt names"),
    ({"wrt": "q"}, "wrt must be"), ({"tolerance": 2}, "tolerance"), ({"foo": 1}, "foo is not an argument"),
])  # fmt: skip
def test_mistakes_are_refused_by_name(wrong, named):
    q, sums = np.ones((1, 4, 4)), np.ones((1, 4))
    with pytest.raises((TypeError, ValueError), match=f"^{named}"):
        columns.two_sided_vjp(**{"q": q, "k": q, "v": q, "before": sums, "after": sums, **wrong})
