"""Angles that a layer computes from its input, for the slot `angles` of `fastpe.attention`, with their gradients.

    selective       running sums of a function of the content: Selective RoPE

A function whose name ends in `_vjp` returns the same array as the function without `_vjp`, and a pullback. The pullback
maps the gradient of this array to a dict of the gradients of the arguments.

>>> x, frequencies = np.ones((3, 4)), 500000.0 ** (-np.arange(0, 4, 2) / 4)
>>> maps = {"down": np.eye(4)[:, :1], "up": np.ones((1, 2)), "taps": np.eye(4)[3:].T * [1.0, 1.0]}
>>> angles = selective(x, **maps, frequencies=frequencies)
>>> angles.shape, angles[0, :, 0].round(6).tolist()
((1, 3, 2), [0.5, 1.0, 1.5])
>>> import fastpe
>>> q = np.ones((1, 3, 4))
>>> fastpe.attention(q, q, q, causal=True, angles=angles, pairs="half").shape
(1, 3, 4)
"""

from typing import Any

import numpy as np

from fastpe.base.pulled import Array, Pullback, given, like

__all__ = ["selective", "selective_vjp"]

_TAPS = 4
_LEAST = 1e-6
_TURN = 2 * np.pi


def selective(x: Any, down: Any, up: Any, taps: Any, *, frequencies: Any, before: Any = None) -> Array:
    """Return the angles of Selective RoPE. A small network has outputs for each token; the angles are the frequencies
    times the running sums of these outputs.

    First x is normalised to x^: the channels of each head are divided by the square root of (the sum of their squares
    + 1e-6). Then the angles of token t, modulo 2 pi, are::

        p = x^ @ down @ up
        f_t = taps[0] * p_{t-3} + ... + taps[3] * p_t
        angles_t = frequencies * (f_0 + ... + f_t)

    Parameters
    ----------
    x : (B, N, C) or (N, C) floats
        The input of a layer, after its normalisation.
    down : (C, rank) floats
        Learned map from channels to `rank` numbers.
    up : (rank, C/2) floats
        Learned map from the `rank` numbers to one number for each pair of channels. The pairs of the first head come
        first.
    taps : (4, C/2) floats
        Learned taps of a causal depthwise convolution, oldest first.
    frequencies : (D/2,) floats
        The angle of each pair of channels, in radians, for a running sum of 1. The authors use
        ``500000 ** (-np.arange(0, D, 2) / D)``. The length of this array determines the width D of a head, and thereby
        the number of heads, C / D.
    before : pair of arrays, optional
        The state after the preceding tokens, if x continues a sequence. The first array has the inputs x of the last n
        preceding tokens, (B, n, C). The second array has the angles of the last one, (B, H, 1, D/2). n is at least 3,
        or the number of preceding tokens if there are fewer. No gradient of the state is computed.

    Returns
    -------
    (B, H, N, D/2) or (H, N, D/2) float64
        Angles in [-pi, pi]. The pairs of channels are those of ``pairs="half"`` in the authors' code.

    Raises
    ------
    TypeError, ValueError
        If an argument does not hold finite real numbers, or has the wrong shape.

    References
    ----------
    Movahedi, Carstensen et al. 2026, "Selective Rotary Position Embedding" (ICLR), and its code, SelectiveRoPE.

    Examples
    --------
    >>> eye, taps = np.eye(2), np.array([[0.0], [0.0], [0.0], [1.0]])
    >>> selective(2 * eye, eye[:, :1], [[0.5]], taps, frequencies=[1.0]).round(6).tolist()
    [[[0.5], [0.5]]]
    """
    return selective_vjp(x, down, up, taps, frequencies=frequencies, before=before)[0]


def selective_vjp(
    x: Any, down: Any, up: Any, taps: Any, *, frequencies: Any, before: Any = None
) -> tuple[Array, Pullback]:
    """Return the output of `selective`, and its pullback, which returns a dict of gradients.

    The gradients are those of `x`, `down`, `up` and `taps`.

    >>> eye, taps = np.eye(2), np.array([[0.0], [0.0], [0.0], [1.0]])
    >>> pull = selective_vjp(eye, eye[:, :1], [[0.5]], taps, frequencies=[1.0])[1]
    >>> pull([[[1.0], [1.0]]])["up"].round(3).tolist()
    [[2.0]]
    """
    inputs, narrow, wide = given("x", x), given("down", down), given("up", up)
    kernel, tau = given("taps", taps), given("frequencies", frequencies)
    heads = _heads(inputs, narrow, wide, kernel, tau)
    last, start = _before(before, inputs, heads, tau)
    rows = np.concatenate([last, inputs], axis=-2)
    split = rows.reshape(*rows.shape[:-1], heads, -1)
    norm = np.sqrt(np.sum(split**2, axis=-1, keepdims=True) + _LEAST)
    unit = (split / norm).reshape(rows.shape)
    low = unit @ narrow
    steps = low @ wide
    older = last.shape[-2]
    sums = np.cumsum(_convolved(steps, kernel)[..., older:, :], axis=-2).reshape(*inputs.shape[:-1], heads, len(tau))
    angles = np.moveaxis(sums * tau, -2, -3) + start

    def pullback(dangles: Any) -> dict[str, Array]:
        d = given("dangles", dangles)
        if d.shape != angles.shape:
            raise ValueError(f"dangles must have the shape of the angles, {angles.shape}, not {d.shape}")
        later = np.moveaxis(np.flip(np.cumsum(np.flip(d, -2), axis=-2), -2) * tau, -3, -2)
        df = np.zeros(steps.shape)
        df[..., older:, :] = later.reshape(*inputs.shape[:-1], -1)
        dsteps, dtaps = _convolved_back(df, steps, kernel)
        dlow = dsteps @ wide.T
        dunit = (dlow @ narrow.T).reshape(split.shape)
        along = np.sum(dunit * split, axis=-1, keepdims=True) / norm**2
        dx = ((dunit - along * split) / norm).reshape(rows.shape)[..., older:, :]
        return {
            "x": like(dx, x), "down": like(_product(unit, dlow), down), "up": like(_product(low, dsteps), up),
            "taps": like(dtaps, taps),
        }  # fmt: skip

    return angles - _TURN * np.round(angles / _TURN), pullback


def _heads(x: Array, down: Array, up: Array, taps: Array, tau: Array) -> int:
    """Return the number of heads, after checking all shapes."""
    if tau.ndim != 1 or not tau.size:
        raise ValueError(f"frequencies must have the shape (D/2,), not {tau.shape}")
    if x.ndim not in (2, 3) or not x.shape[-1] or x.shape[-1] % (2 * len(tau)):
        raise ValueError(f"x must have the shape (B, N, C) or (N, C), C a multiple of D={2 * len(tau)}, not {x.shape}")
    width = x.shape[-1]
    rank = down.shape[1] if down.ndim == 2 else 0
    expected = {"down": (width, "rank"), "up": (rank, width // 2), "taps": (_TAPS, width // 2)}
    for name, array in (("down", down), ("up", up), ("taps", taps)):
        shape = tuple(rank if size == "rank" else size for size in expected[name])
        if array.shape != shape or not rank:
            said = ", ".join(map(str, expected[name]))
            raise ValueError(f"{name} must have the shape ({said}) for x {x.shape}, not {array.shape}")
    return width // 2 // len(tau)


def _before(before: Any, x: Array, heads: int, tau: Array) -> tuple[Array, Any]:
    """Return the inputs before x that the convolution reads, and the angles that the sums start from."""
    if before is None:
        return x[..., :0, :], 0.0
    if not isinstance(before, tuple | list) or len(before) != 2:
        raise TypeError(f"before must be a pair, the last inputs and the last angles, not {type(before).__name__}")
    last, angles = (given(f"before[{place}]", each) for place, each in enumerate(before))
    front = x.shape[:-2]
    if last.ndim != x.ndim or (*last.shape[:-2], last.shape[-1]) != (*front, x.shape[-1]):
        raise ValueError(
            f"before[0] must have the shape of x {x.shape}, except for the number of tokens, not {last.shape}"
        )
    if angles.shape != (shape := (*front, heads, 1, len(tau))):
        raise ValueError(f"before[1] must have the shape {shape}, not {angles.shape}")
    return last[..., max(0, last.shape[-2] - (_TAPS - 1)) :, :], angles


def _convolved(x: Array, taps: Array) -> Array:
    """Return an array whose row t is the sum of taps_k x_{t-3+k}, with zeros in place of rows before the first."""
    n, y = x.shape[-2], np.zeros(x.shape)
    for k, tap in enumerate(taps):
        ago = min(_TAPS - 1 - k, n)
        y[..., ago:, :] += tap * x[..., : n - ago, :]
    return y


def _convolved_back(d: Array, x: Array, taps: Array) -> tuple[Array, Array]:
    """Return the gradients of x and of the taps."""
    n, dx, dtaps = x.shape[-2], np.zeros(x.shape), np.zeros(taps.shape)
    for k, tap in enumerate(taps):
        ago = min(_TAPS - 1 - k, n)
        dx[..., : n - ago, :] += tap * d[..., ago:, :]
        dtaps[k] = np.sum((d[..., ago:, :] * x[..., : n - ago, :]).reshape(-1, x.shape[-1]), axis=0)
    return dx, dtaps


def _product(x: Array, y: Array) -> Array:
    """Return x^T y, summed over all rows."""
    product: Array = x.reshape(-1, x.shape[-1]).T @ y.reshape(-1, y.shape[-1])
    return product
