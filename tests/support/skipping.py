"""What tells from outside which tiles of attention were left out, and how much of each row."""

import numpy as np

import fastpe
from fastpe import reference
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES

N = 1100


def alibi(slopes, n=N):
    """Biases (H, 2n-1)."""
    return -np.asarray(slopes)[:, None] * np.abs(np.arange(1 - n, n))


def trained(rng, heads=1, n=N, d=16, norm=2.0):
    """q, k, v with rows of one norm, as layer norms leave them."""
    q, k, v = (rng.standard_normal((1, heads, n, d)) for _ in range(3))
    return {"q": q * norm / np.linalg.norm(q, axis=-1, keepdims=True),
            "k": k * norm / np.linalg.norm(k, axis=-1, keepdims=True), "v": v}  # fmt: skip


def left_out(arguments, tolerance, **options):
    """The weight left out of each row: so much smaller the denominator is."""
    every = fastpe.attention(**arguments, tolerance=0, return_lse=True, **options)[1]
    some = fastpe.attention(**arguments, tolerance=tolerance, return_lse=True, **options)[1]
    return -np.expm1(some - every)


def tiles_met(arguments, tolerance, **options):
    """[block, tile] of one head 16 wide: whether the tile had a part in the block's outputs; in its gradients."""
    (n, d), m = arguments["q"].shape[2:], arguments["k"].shape[2]
    marks, dout = np.zeros((1, 1, m, d)), np.zeros((1, 1, n, d))
    marks[..., np.arange(m), np.arange(m) // int(TILE_KEYS)] = 1
    dout[..., np.arange(n), np.arange(n) // int(TILE_QUERIES)] = 1
    out, pullback = fastpe.attention_vjp(**{**arguments, "v": marks}, tolerance=tolerance, **options)
    dv = pullback(dout)["v"]
    first_query, first_key = np.arange(0, n, int(TILE_QUERIES)), np.arange(0, m, int(TILE_KEYS))
    forward = np.maximum.reduceat(out[0, 0], first_query, axis=0)[:, : len(first_key)] > 0
    backward = np.maximum.reduceat(dv[0, 0], first_key, axis=0)[:, : len(first_query)].T > 0
    return forward, backward


def tiles_of(cells):
    """[block, tile]: whether one of these cells (N, M) is in it."""
    rows = np.maximum.reduceat(cells, np.arange(0, cells.shape[0], int(TILE_QUERIES)), axis=0)
    return np.maximum.reduceat(rows, np.arange(0, cells.shape[1], int(TILE_KEYS)), axis=1)


def assert_bounds_are_of_rows_as_multiplied(arguments, without, tolerance):
    """A far key whose row is large only after its map is not left out; without it results would be other ones."""
    most = np.finfo(np.float64).eps / 4 if tolerance is None else tolerance
    assert left_out(arguments, tolerance, causal=True).max() <= most + 1e-12
    exact = reference.attention(**arguments, causal=True)
    assert np.abs(exact - reference.attention(**without, causal=True)).max() > 0.001
    found, pull = fastpe.attention_vjp(**arguments, causal=True, tolerance=tolerance)
    np.testing.assert_allclose(found, exact, atol=1e-11 if tolerance is None else 1e-2)
    every = fastpe.attention_vjp(**arguments, causal=True, tolerance=0)[1](exact)
    for name, gradient in pull(exact).items():
        allowed = 1e-9 if tolerance is None else 0.2
        assert np.abs(gradient - every[name]).max() <= allowed * np.abs(every[name]).max(), name


def assert_no_more_is_left_out(arguments, tolerance, **options):
    """Of no row more than the tolerance, and outputs are those of the reference up to it."""
    most = np.finfo(np.float64).eps / 4 if tolerance is None else tolerance
    size = 1 + abs(fastpe.attention(**arguments, return_lse=True, **options)[1]).max()
    assert left_out(arguments, tolerance, **options).max() <= most + 4e-16 * size
    every = reference.attention(**arguments, **options)
    some = fastpe.attention(**arguments, tolerance=tolerance, **options)
    assert abs(some - every).max() <= 2 * most * abs(arguments["v"]).max() + 1e-11 + 1e-14 * size
