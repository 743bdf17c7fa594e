"""Channels as radii in the plane: the slot `polar` of attention."""

import numpy as np
import pytest
from attention_problems import assert_agrees, problem
from fixture_attention import results
from skipping import N, alibi, assert_bounds_are_of_rows_as_multiplied, trained

import fastpe
from fastpe import reference
from fastpe.functional.rows import _from_polar, _to_polar
from fastpe.functional.slots import REFUSED


@pytest.fixture
def rng():
    return np.random.default_rng(41)


# --------------------------------------------------------------------------------------------------- what it is


ANGLES = (np.arange(4.0)[:, None] * 10000.0 ** (-np.arange(4.0) / 4))[None]


@pytest.mark.parametrize(("phases", "printed"), [
    ([-0.1, -0.2, 0.0, -2 * np.pi], [0.321782262, 0.307362357, 0.286584498, 0.301876686, 0.617542594]),
    ([0.0] * 4, [0.290385149, 0.336346695, 0.294149724, 0.298317227, 0.617953706]),
])  # fmt: skip
def test_values_of_the_papers_formula(phases, printed):
    """Of a program in PyTorch."""
    found = results({"polar": np.array([phases]), "angles": ANGLES}, causal=True)
    np.testing.assert_allclose(found, printed, rtol=0, atol=5.1e-10)


@pytest.mark.parametrize("attention", [fastpe.attention, reference.attention])
def test_outputs_are_those_of_the_formula(rng, attention):
    """Two key heads for four; keys stand at positions 0 to 8, queries at 5 to 8."""
    given = problem(rng, ("polar", "angles"), h=4, hk=2, n=4, m=9, d=6)
    softplus = {name: np.log1p(np.exp(given[name])) for name in "qk"}
    turns = given["angles"][:, 5:, None] - given["angles"][:, None] - given["polar"][:, None, None]
    keys = np.repeat(softplus["k"], 2, axis=1)
    scores = np.einsum("bhnc,bhmc,hnmc->bhnm", softplus["q"], keys, np.cos(turns)) / np.sqrt(6)
    weights = np.exp(np.where(np.arange(9) > np.arange(5, 9)[:, None], -np.inf, scores))
    expected = weights / weights.sum(axis=-1, keepdims=True) @ np.repeat(given["v"], 2, axis=1)
    for pairs in ("interleaved", "half"):  # which says nothing here
        np.testing.assert_allclose(attention(**given, causal=True, pairs=pairs), expected, rtol=0, atol=1e-13)


def test_gradients_are_sums_over_cells(rng):
    """Of sigmoid(q) sp(k) cos, sigmoid(k) sp(q) cos, and - sp(q) sp(k) sin, times the gradients of scores."""
    given = problem(rng, ("polar", "angles"), b=1, n=5, m=7, d=3)
    q, k = (given[name] for name in "qk")
    turns = given["angles"][:, None] - given["angles"][:, 2:, None] + given["polar"][:, None, None]
    zeros = np.zeros((2, 5, 7))
    of_scores = fastpe.attention_vjp(**given, scores=zeros)[1](np.ones((1, 2, 5, 3)) * [1.0, -2.0, 0.5])["scores"]
    cells = of_scores[..., None] / np.sqrt(3)
    found = fastpe.attention_vjp(**given)[1](np.ones((1, 2, 5, 3)) * [1.0, -2.0, 0.5])
    radii = np.log1p(np.exp(q))[0, :, :, None], np.log1p(np.exp(k))[0, :, None]
    expected = {
        "q": (cells * radii[1] * np.cos(turns)).sum(axis=2) / (1 + np.exp(-q[0])),
        "k": (cells * radii[0] * np.cos(turns)).sum(axis=1) / (1 + np.exp(-k[0])),
        "polar": -(cells * radii[0] * radii[1] * np.sin(turns)).sum(axis=(1, 2)),
    }
    for name, array in expected.items():
        np.testing.assert_allclose(found[name].reshape(array.shape), array, rtol=0, atol=1e-14, err_msg=name)


def test_without_angles_channels_are_not_rotated(rng):
    arguments = problem(rng, ("polar",), h=4, hk=2, n=5, m=7, d=8)  # so that heads share no keys
    assert_agrees(arguments, causal=True)
    still = {**arguments, "angles": np.zeros((1, 7, 8))}
    np.testing.assert_array_equal(fastpe.attention(**still), fastpe.attention(**arguments))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_radii_and_their_slopes_at_any_size(dtype):
    """log(1 + e^x) and 1 / (1 + e^-x), beside NumPy in a wider type, relative precision in both tails."""
    x = np.concatenate([np.linspace(-60, 60, 4001), [-0.0, 1e-30, -1e-30, 1e4, 3e38]]).astype(dtype)
    least = np.finfo(dtype).tiny
    wide = x.astype(np.longdouble)
    rows = x.reshape(1, 1, 1, -1)
    y = _to_polar(rows, None)[0, 0, 0]
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(y[: x.size], np.logaddexp(0, wide), rtol=4 * eps, atol=least)
    np.testing.assert_array_equal(y[x.size :], 0)
    dy = np.ones((1, 1, 1, 2 * x.size), dtype)
    slopes = _from_polar(rows, dy, None)[0, 0, 0]
    np.testing.assert_allclose(slopes, 1 / (1 + np.exp(-wide)), rtol=4 * eps, atol=least)
    extreme = _to_polar(np.array([-np.inf, np.inf, np.nan, -800.0], dtype).reshape(1, 1, 1, 4), None)
    np.testing.assert_array_equal(extreme[0, 0, 0, :4], [0, np.inf, np.nan, 0])


# ------------------------------------------------------------------------------------------ beside the reference


# ---------------------------------------------------------------------------------------------------- as elsewhere


def far_key_with_large_radii(rng):
    """Rows of one norm as they come; but softplus makes those below 0 small, and others large."""
    arguments = {name: 0.01 * x for name, x in trained(rng).items()} | {"bias": alibi([0.3]), "scale": 10.0}
    arguments["q"] += 1.0
    arguments["k"] -= 1.0
    arguments["k"][0, 0, 40] += 2.0
    return arguments | {"polar": np.zeros((1, 16)), "angles": np.zeros((1, N, 16))}


@pytest.mark.parametrize("tolerance", [None, 1e-3])
@pytest.mark.parametrize("scaled", [False, True])
def test_bounds_of_tiles_are_those_of_lifted_rows(tolerance, scaled):
    arguments = far_key_with_large_radii(np.random.default_rng(3))
    if scaled:
        arguments["row_scale"] = np.full((1, N), 0.9)
    without = {**arguments, "k": np.where(np.arange(N)[:, None] == 40, -1.0, arguments["k"])}
    assert_bounds_are_of_rows_as_multiplied(arguments, without, tolerance)


# ----------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", REFUSED["polar"])
def test_slots_that_read_or_map_channels_are_refused(rng, name):
    given = problem(rng, (name,), n=5, d=8) | {"polar": np.zeros((1, 8))}
    for attention in (fastpe.attention, fastpe.attention_vjp, reference.attention):
        with pytest.raises(ValueError, match=f"{name} cannot be given with polar"):
            attention(**given, causal=True)


@pytest.mark.parametrize("shape", [(1, 7), (3, 8), (8,), (1, 1, 1, 8), (3, 2, 8)])
def test_phases_that_do_not_fit_are_refused(rng, shape):
    given = problem(rng, n=5, d=8)
    for attention in (fastpe.attention, reference.attention):
        with pytest.raises(ValueError, match=r"polar must have the shape \(H or 1, D\)"):
            attention(**given, polar=np.zeros(shape))
    with pytest.raises(ValueError, match="polar must be finite"):
        fastpe.attention(**given, polar=np.full((1, 8), np.nan))
    with pytest.raises(TypeError, match="polar must have the dtype of q"):
        fastpe.attention(**given, polar=np.zeros((1, 8), np.float32))


@pytest.mark.parametrize("count", [1, 4, 7, 9, 16])
def test_every_channel_has_an_angle(rng, count):
    given = problem(rng, ("polar",), n=5, d=8)
    for attention in (fastpe.attention, reference.attention):
        with pytest.raises(ValueError, match=r"angles must have the shape \(H or 1, max\(N, M\), D\)"):
            attention(**given, angles=np.zeros((1, 5, count)))
