"""Directions and strengths of reflections (PaTH), computed from a layer's input in plain NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Pullback = Callable[[Array, Array], dict[str, Array]]

_LEAST = 1e-6


def reflections(
    x: Any, down: Any, up: Any, taps: Any, weight: Any, bias: Any, *, places: Any = None
) -> tuple[Array, Array]:
    """Compute the slots `reflectors` (w) and `reflect` (beta) of attention from a layer's input.

    The formulas are::

        p = x down up,    y_t = silu(sum over k < 3 of taps_k p_{t-2+k}),    w_t = y_t / sqrt(|y_t|^2 + 1e-6)
        beta = 2 sigmoid(x weight^T + bias)

    Parameters
    ----------
    x : (..., N, C)
        A layer's input, after normalisation.
    down, up : (C, rank), (rank, C)
        Factors of the map from x to p.
    taps : (3, C)
        Taps of a causal depthwise convolution, beginning with the tap for the earliest token.
    weight, bias : (H, C), (H,)
        Parameters of beta.
    places : (..., N) integers, optional
        For each token, the number of earlier tokens in its document. The convolution does not read other documents: it
        takes p as 0 before the first token of a document. By default every sequence is one document.

    Returns
    -------
    w : (..., H, N, C/H)
        Directions of the reflections. The vector of each head and token has length 1, up to the 1e-6 in the formula.
    beta : (..., H, N)
        Strengths of the reflections, between 0 and 2.

    References
    ----------
    Yang et al. 2025, "PaTH Attention" (arXiv:2505.16381); fla-org/flash-linear-attention, fla/layers/path_attn.py.

    Examples
    --------
    >>> x, eye = np.ones((2, 1)), np.ones((1, 1))
    >>> w, beta = reflections(x, eye, eye, np.ones((3, 1)), 0 * eye, np.zeros(1))
    >>> w.shape, beta.tolist()
    ((1, 2, 1), [[1.0, 1.0]])
    """
    return reflections_vjp(x, down, up, taps, weight, bias, places=places)[0]


def reflections_vjp(
    x: Any, down: Any, up: Any, taps: Any, weight: Any, bias: Any, *, places: Any = None
) -> tuple[tuple[Array, Array], Pullback]:  # fmt: skip
    """Return the output of `reflections`, and its pullback, which returns a dict of gradients.

    The pullback takes the gradients of w and beta. The dict has the gradients of all arguments except `places`.

    >>> x, eye = np.ones((2, 1)), np.ones((1, 1))
    >>> (w, beta), pullback = reflections_vjp(x, eye, eye, np.ones((3, 1)), 0 * eye, np.zeros(1))
    >>> pullback(0 * w, beta)["bias"].tolist()
    [1.0]
    """
    # nothing here is rounded, whatever type the arrays have
    x, down, up, taps, weight, bias = (
        np.asarray(each).view(np.ndarray) for each in (x, down, up, taps, weight, bias)
    )  # fmt: skip
    heads = len(bias)
    low = x @ down
    steps = low @ up
    convolved = np.zeros_like(steps)
    place = np.arange(x.shape[-2]) if places is None else np.asarray(places)
    within = [(place >= ago)[..., None] for ago in range(len(taps))]
    for k, tap in enumerate(taps):
        ago = len(taps) - 1 - k
        convolved += tap * within[ago] * _later(steps, ago)
    share = _sigmoid(convolved)
    y = _split(convolved * share, heads)
    norm = np.sqrt(np.sum(y**2, axis=-1, keepdims=True) + _LEAST)
    w = y / norm
    far = _sigmoid(x @ weight.T + bias)

    def pullback(dw: Array, dbeta: Array) -> dict[str, Array]:
        dy = (dw - w * np.sum(w * dw, axis=-1, keepdims=True)) / norm
        dconvolved = _merged(dy) * share * (1 + convolved * (1 - share))
        dsteps, dtaps = np.zeros_like(steps), np.zeros_like(taps)
        for k, tap in enumerate(taps):
            ago = len(taps) - 1 - k
            reached = within[ago] * dconvolved
            dsteps += tap * _later(reached, -ago)
            dtaps[k] = _rows(reached * _later(steps, ago)).sum(axis=0)
        dlow, dz = dsteps @ up.T, np.swapaxes(dbeta, -1, -2) * 2 * far * (1 - far)
        return {
            "x": dlow @ down.T + dz @ weight, "down": _rows(x).T @ _rows(dlow), "up": _rows(low).T @ _rows(dsteps),
            "taps": dtaps, "weight": _rows(dz).T @ _rows(x), "bias": _rows(dz).sum(axis=0),
        }  # fmt: skip

    return (w, np.swapaxes(2 * far, -1, -2)), pullback


def _sigmoid(x: Array) -> Array:
    found: Array = np.exp(-np.logaddexp(0, -x))
    return found


def _later(x: Array, ago: int) -> Array:
    """Return an array whose row t is row t - ago of x (..., N, C), or zero if there is none."""
    n, found = x.shape[-2], np.zeros_like(x)
    if abs(ago) < n:
        found[..., max(0, ago) : n + min(0, ago), :] = x[..., max(0, -ago) : n - max(0, ago), :]
    return found


def _split(x: Array, heads: int) -> Array:
    """(..., N, C) -> (..., H, N, C/H)."""
    return np.moveaxis(x.reshape(*x.shape[:-1], heads, -1), -2, -3)


def _merged(x: Array) -> Array:
    """(..., H, N, C/H) -> (..., N, C)."""
    rows = np.moveaxis(x, -3, -2)
    return rows.reshape(*rows.shape[:-2], -1)


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])
