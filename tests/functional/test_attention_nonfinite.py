"""NaN and infinity reach the queries that see their key, and nothing else, however keys are hidden."""

import numpy as np
import pytest

import fastpe


@pytest.fixture
def rng():
    return np.random.default_rng(7)


H, D = 2, 8
SIZES = {"one query": (1, 140), "few queries": (3, 140), "many queries": (100, 140)}
HIDINGS = ("causal", "window", "causal window", "lengths", "bool mask", "float mask", "spans", "query_start")


def hidden(hiding, n, m):
    """Options of attention, and which keys each query sees, (N, M)."""
    i, j, rng = np.arange(n)[:, None] + m - n, np.arange(m), np.random.default_rng(2)
    holes = rng.random((n, m)) < 0.6
    first = np.clip(i - 20, 0, m)
    spans = np.concatenate([first, np.clip(first + np.arange(n)[:, None] % 30, 0, m)], axis=1)
    return {
        "causal": ({"causal": True}, j <= i),
        "window": ({"window": 7}, abs(i - j) < 7),
        "causal window": ({"causal": True, "window": 9}, (j <= i) & (i - j < 9)),
        "lengths": ({"lengths": m - 7}, np.broadcast_to(j < m - 7, (n, m))),
        "bool mask": ({"mask": holes}, holes),
        "float mask": ({"mask": np.where(holes, np.float32(0.5), -np.inf).astype(np.float32)}, holes),
        "spans": ({"spans": spans}, (spans[:, :1] <= j) & (j < spans[:, 1:])),
        "query_start": ({"causal": True, "query_start": 20}, j <= i - m + n + 20),
    }[hiding]


def problem(rng, n, m, dtype):
    q, dout = rng.standard_normal((2, H, n, D)).astype(dtype)
    k, v = rng.standard_normal((2, H, m, D)).astype(dtype)
    return q, k, v, dout


def assert_only_where_seen(attention_vjp, given, dout, seen, bad, options):
    """given: q, k and v; bad: the array that holds NaN or infinity, its number there, and the row that it has.

    What is not affected is as it is with other numbers in that row, up to the order of sums.
    """
    name, number, row = bad
    spoilt = given | {name: given[name].copy()}
    spoilt[name][:, row] = number
    (clean, pull), (found, pull_found) = (attention_vjp(**x, **options) for x in (given, spoilt))
    affected = seen[:, row] if name != "q" else np.arange(len(seen)) == row
    touched = seen[affected].any(axis=0)  # keys that an affected query sees
    expected, gradients = pull(dout), pull_found(dout)
    rough = 0.03 if dout.dtype.itemsize == 2 else 2e-5
    for what, ours, right, spared in (
        ("out", found, clean, ~affected),
        ("dq", gradients["q"], expected["q"], ~affected),
        ("dk", gradients["k"], expected["k"], ~touched),
        ("dv", gradients["v"], expected["v"], ~touched),
    ):
        own, others = (x[:, spared].astype(np.float64) for x in (ours, right))
        np.testing.assert_allclose(own, others, rough, rough, err_msg=f"{what}, {name} {number} at {row}")
    assert not np.isfinite(found[:, affected & seen.any(axis=1)].astype(np.float64)).all(axis=-1).any()
    if not affected.any():
        for slot in gradients.keys() - {"q", "k", "v", "angles", "growth"}:  # these are NaN in the key's own row
            np.testing.assert_allclose(gradients[slot], expected[slot], rough, rough, err_msg=slot)
    return found


@pytest.mark.parametrize("hiding", HIDINGS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_hidden_numbers_do_not_spread(rng, dtype, size, hiding):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    (n, m), (options, seen) = SIZES[size], hidden(hiding, *SIZES[size])
    q, k, v, dout = problem(rng, n, m, dtype)
    given = {"q": q, "k": k, "v": v}
    for bad in (("v", np.nan, 0), ("v", np.inf, m // 2), ("k", np.nan, m - 1), ("k", np.inf, m // 2), ("q", np.nan, 0)):
        found = assert_only_where_seen(fastpe.attention_vjp, given, dout, seen, bad, options)
        if dtype == "float64":
            assert_only_where_seen(fastpe.reference.attention_vjp, given, dout, seen, bad, options)
        spoilt = given | {bad[0]: given[bad[0]].copy()}
        spoilt[bad[0]][:, bad[2]] = bad[1]
        alone = fastpe.attention(**spoilt, **options)  # without gradients few queries go a way of their own
        np.testing.assert_array_equal(np.isfinite(alone.astype(np.float32)), np.isfinite(found.astype(np.float32)))


def slots(rng, names, n, m):
    made = {name: rng.standard_normal((H, 9, D)) for name in ("rel_key", "rel_query", "rel_value", "rel_gain")}
    made |= {"clipped": rng.standard_normal((H, 1, D)), "counts": rng.standard_normal((H, 5, D))}
    made |= {"key_bias": rng.standard_normal((H, D)), "gain": rng.standard_normal((H, 9)), "scale": np.full(H, 0.3)}
    made |= {"growth": -0.02 * np.arange(m)[:, None] * np.ones(D // 2), "softcap": 2.0, "rectify": True}
    made |= {"angles": rng.standard_normal((1, m, D // 2)), "query_slope": 0.1 * rng.standard_normal((H, n))}
    return {name: made[name] for name in names.split()}


@pytest.mark.parametrize(
    "names",
    [
        "rel_key rel_query rel_value key_bias angles",
        "rel_gain",
        "softcap gain scale query_slope",
        "rectify scale growth",
        "counts",
    ],
)
@pytest.mark.parametrize("implementation", [fastpe, fastpe.reference], ids=["kernels", "reference"])
def test_hidden_numbers_do_not_spread_through_slots(rng, implementation, names):
    n, m = 100, 140
    q, k, v, dout = problem(rng, n, m, np.float64)
    options, seen = hidden("causal", n, m)
    options["mask"] = rng.random((n, m)) < 0.8
    options["mask"][:, 7] = False  # no query sees it: gradients of slots stay right as well
    options |= slots(rng, names, n, m)
    for bad in (("k", np.nan, 7), ("v", np.inf, 7), ("k", np.nan, 120), ("v", np.nan, 120)):
        given = {"q": q, "k": k, "v": v}
        assert_only_where_seen(implementation.attention_vjp, given, dout, seen & options["mask"], bad, options)


def test_tiles_are_left_out_safely(rng):
    """Bounds of scores that are NaN or infinite leave nothing out: rows that do not see the key stay right."""
    n = m = 400
    q, k, v, dout = problem(rng, n, m, np.float32)
    bias = (-0.5 * np.abs(np.arange(1 - n, n)) * np.ones((H, 1))).astype(np.float32)
    seen = np.tril(np.ones((n, m), bool))
    for name, number, row in (("k", np.nan, 200), ("k", np.inf, 200), ("q", np.nan, 200)):
        spoilt = {"q": q, "k": k, "v": v}
        spoilt[name] = spoilt[name].copy()
        spoilt[name][:, row] = number
        out, pull = fastpe.attention_vjp(**spoilt, causal=True, bias=bias)
        right, pull_right = fastpe.attention_vjp(q, k, v, causal=True, bias=bias)
        spared = ~seen[:, row] if name == "k" else np.arange(n) != row
        np.testing.assert_allclose(out[:, spared], right[:, spared], 1e-5, 1e-5)
        np.testing.assert_allclose(pull(dout)["q"][:, spared], pull_right(dout)["q"][:, spared], 1e-4, 1e-4)


@pytest.mark.parametrize("n", [3, 8, 200])
def test_lse_and_gradients_of_a_row_that_sees_nan_are_nan(rng, n):
    q, k, v = rng.standard_normal((3, 1, 1, n, 4)).astype(np.float32)
    k[0, 0, n - 2] = np.nan
    (out, lse), pull = fastpe.attention_vjp(q, k, v, causal=True, return_lse=True)
    assert np.isfinite(out[0, 0, : n - 2]).all()
    assert np.isfinite(lse[0, 0, : n - 2]).all()
    assert np.isnan(lse[0, 0, n - 2 :]).all()
    assert np.isnan(pull((np.ones_like(out), np.zeros_like(lse)))["v"]).all()
    few = fastpe.attention(q[:, :, -2:], k, v, causal=True, return_lse=True)[1]
    assert np.isnan(few).all()


def test_a_soft_cap_that_float32_does_not_hold_is_refused(rng):
    q, k, v = rng.standard_normal((3, 1, 1, 8, 4)).astype(np.float32)
    with pytest.raises(ValueError, match=r"softcap must be finite in float32, not 3\.5e\+38"):
        fastpe.attention(q, k, v, softcap=3.5e38)
    with pytest.raises(
        ValueError, match=r"softcap must be at least 2\.94e-39, for its reciprocal in float32, not 1e-40"
    ):
        fastpe.attention(q, k, v, softcap=1e-40)
    assert np.isfinite(fastpe.attention(q, k, v, softcap=3e-39)).all()
