"""A small network over the scores of all heads (DAPE), in plain NumPy, with pullback.

The input of W1 is 0 where a key is hidden. The input of W2 is 0 where a key is hidden from all heads. Causal attention
is an exception: there, the input of W2 is also computed for keys after the query, up to the last key, or beyond it if
`Case.follows` is true.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastpe.reference._case import Array, Case, Gradients

_LEAK = 0.01  # slope of a unit below 0


def networked(case: Case, content: Array, biases: Array) -> tuple[Any, Callable[[Array, Gradients], Any]]:
    """Return the term that the network adds to scores. Its pullback returns the gradients of products and biases."""
    if "mlp_in" not in case.slots:
        return 0, lambda dlogits, gradients: 0
    into, offsets, readout = (case.slots[name][0] for name in ("mlp_in", "mlp_bias", "mlp_out"))
    keys, reach = content.shape[-1], into.shape[-1] // 2
    seen = case.visible if case.visible.shape[1] == 1 else np.concatenate([case.visible] * 2, axis=1)
    x = np.where(seen, np.concatenate([content, np.broadcast_to(biases, content.shape)], axis=1), 0)
    x, there = (_longer(array, reach) for array in (x, np.any(case.visible, axis=1, keepdims=True)))
    if case.call.causal:
        last = np.inf if case.follows else case.call.key_lengths[:, None, None, None]
        there = np.maximum.accumulate(there, axis=-1) & (np.arange(keys + reach) < last)
    before = _convolved(x, into) + offsets[:, None, None]
    slope = np.where(there, np.where(before > 0, 1, _LEAK), 0).astype(offsets.dtype)
    units = slope * before

    def pullback(dlogits: Array, gradients: Gradients) -> Array:
        dunits, dreadout = _convolved_back(units, readout, _longer(dlogits, reach))
        dbefore = slope * dunits
        dx, dinto = _convolved_back(x, into, dbefore)
        gradients.add("mlp_in", dinto[None])
        gradients.add("mlp_bias", dbefore.sum(axis=(0, 2, 3))[None])
        gradients.add("mlp_out", dreadout[None])
        return np.where(seen, dx[..., :keys], 0)

    return _convolved(units, readout)[..., :keys], pullback


def _longer(x: Array, by: int) -> Array:
    """Return x, padded with `by` keys of zeros."""
    return np.concatenate([x, np.zeros((*x.shape[:-1], by), x.dtype)], axis=-1)


def _taps(maps: Array) -> list[tuple[int, Array]]:
    """Return, for each tap of maps (out, in, T), how many keys it looks ahead, and its map (out, in)."""
    return [(number - maps.shape[-1] // 2, maps[..., number]) for number in range(maps.shape[-1])]


def _moved(x: Array, by: int) -> Array:
    """Return x shifted by `by` keys, with 0 beyond the ends."""
    found = np.zeros_like(x)
    last = max(x.shape[-1] - abs(by), 0)
    found[..., max(-by, 0) :][..., :last] = x[..., max(by, 0) :][..., :last]
    return found


def _product(maps: Array, x: Array) -> Array:
    """Return the product (B, out, N, M) of maps (out, in) and x (B, in, N, M)."""
    rows = x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])
    return (maps @ rows).reshape(len(x), len(maps), *x.shape[2:])


def _convolved(x: Array, maps: Array) -> Array:
    """Return y_oij, the sum over taps and channels c of W_oc(tap) x_ci(j + tap), for x (B, C, N, M)."""
    return np.asanyarray(sum(_product(tap, _moved(x, by)) for by, tap in _taps(maps)))


def _convolved_back(x: Array, maps: Array, dy: Array) -> tuple[Array, Array]:
    """Return the gradients of x and of the maps (out, in, T)."""
    taps = _taps(maps)
    dx = np.asanyarray(sum(_moved(_product(tap.T, dy), -by) for by, tap in taps))
    cells = dy.shape[2] * dy.shape[3]
    flat = dy.reshape(*dy.shape[:2], cells)
    moved = [_moved(x, by).reshape(*x.shape[:2], cells) for by, _ in taps]
    return dx, np.stack([(flat @ np.swapaxes(each, -1, -2)).sum(axis=0) for each in moved], axis=-1)
