"""Windows of 1, 2, 3, ... keys: printed weights, which keys are seen, what is refused, and tiles that are left out."""

import numpy as np
import pytest
from fixture_attention import K, Q

import fastpe
from fastpe import reference

REQUEST = {"causal": True, "dtype": np.float64}


def test_printed_weights() -> None:
    bias = fastpe.build("hard_alibi", 4, heads=2, **REQUEST)["bias"]
    q, k = (np.stack([x, x])[None] for x in (Q, K))
    weights = reference.attention(q, k, np.stack([np.eye(4)] * 2)[None], causal=True, bias=bias)[0]
    np.testing.assert_allclose(weights[1, 2], [0, 0.344013015, 0.655986985, 0], rtol=0, atol=5.1e-10)
    np.testing.assert_array_equal(weights[0, 2], [0, 0, 1, 0])


@pytest.mark.parametrize("heads", [1, 3, 8, 11])
@pytest.mark.parametrize("masked", [None, 0, 1])
@pytest.mark.parametrize("given", [False, True])
def test_which_keys_are_seen(heads: int, masked: int | None, given: bool) -> None:
    positions = np.arange(20.0) * 1.5 if given else None
    request = {"heads": heads, "dim": heads, "masked": masked, "positions": positions, **REQUEST}
    slots = fastpe.build("hard_alibi", 20, **request)
    offsets = np.arange(20) - np.arange(20)[:, None]
    added = slots["scores"] if given else slots["bias"][:, offsets + 19]
    assert set(np.unique(added)) <= {0.0, -(2.0**30)}
    for h, i in np.ndindex(heads, 20):
        window = h if h < (min(8, heads) if masked is None else masked) else 99
        nearest = window // 1.5 if given else window
        seen = [j for j in range(i + 1) if added[h, i, j] == 0]
        assert seen == [j for j in range(i + 1) if i - j <= nearest]


def test_hidden_tiles_weigh_nothing_in_a_long_text() -> None:
    """Each head of a long text beside the same attention with a window of its own; values far away are not read."""
    n, heads = 700, 3
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=(1, heads, n, 8)).astype(np.float32) for _ in range(3))
    bias = fastpe.build("hard_alibi", n, heads=heads, dim=24, masked=2, causal=True)["bias"]
    found = fastpe.attention(q, k, v, causal=True, bias=bias)
    for h in range(heads):
        own = (each[:, h : h + 1].astype(np.float64) for each in (q, k, v))
        i, j = np.arange(n)[:, None], np.arange(n)
        hidden = np.where((i - j > h) & (h < 2), -np.inf, 0.0)[None]
        expected = reference.attention(*own, causal=True, scores=hidden)
        np.testing.assert_allclose(found[:, h], expected[:, 0], atol=3e-6)


@pytest.mark.parametrize("masked", [0, 1])
def test_tiles_behind_a_window_are_not_read(masked: int) -> None:
    """Values far behind that are no numbers reach the head without a window, and not the other."""
    n = 700
    q, k, v = np.random.default_rng(3).normal(size=(3, 1, 1, n, 8))
    v[..., 0, :] = np.nan
    bias = fastpe.build("hard_alibi", n, dim=8, masked=masked, **REQUEST)["bias"]
    found = fastpe.attention(q, k, v, causal=True, bias=bias)[0, 0, -1]
    assert np.isfinite(found).all() == (masked == 1)
