"""DAPE, data-adaptive biases: attention in which a small network corrects all heads' scores, in plain NumPy.

A cell's scores depend on those of all heads, which no slot can hold: there is this reference and no encoding of that
name.
"""

from typing import Any

import numpy as np

from fastpe.reference._causal import Array, Pullback, attended_vjp, doubles, scale_of, t

_LEAK = 0.01  # slope of a unit below 0


def dape(
    q: Any, k: Any, v: Any, bias: Any, w1: Any, b1: Any, w2: Any, *, scale: float | None = None
) -> Array:  # fmt: skip
    """Causal attention with data-adaptive biases, in float64.

    With the products C_h = s q_h k_h^T and the biases b_h of all heads, at every cell::

        x = [C_1 .. C_H, b_1 .. b_H],    S = C + b + W2 lrelu(W1 x + b1)

    Version 2 has convolutions along the keys, of three taps, for both maps; what lies above the diagonal of x is 0.

    Parameters
    ----------
    q, k, v : (..., H, N, D) array
        Queries, keys and values.
    bias : (H, 2N-1) or (H, N, N) array
        b, a static bias: by offset, row j - i + N - 1, as the slot ``bias`` of ALiBi; or of every query and key, as the
        slot ``scores``.
    w1 : (W, 2H) or (W, 2H, T) array
        W1; of version 2 with an odd number of taps T, the middle one the cell's own.
    b1 : (W,) array
    w2 : (H, W) or (H, W, T) array
        W2.
    scale : float, optional
        s; 1/sqrt(D) where it is not given.

    Returns
    -------
    (..., H, N, D) float64

    Raises
    ------
    ValueError
        If the shapes do not fit.

    Notes
    -----
    The authors have W = 32, the slope 0.01 below 0, and initial values uniform in +-1/sqrt(fan-in). Their last map has
    a bias too, a constant of a row, which no softmax sees.

    Past the training length it is defined; the network then meets larger biases than it was trained on.

    It is not in the tiled kernels: a tile's scores need those of all heads at once, and version 2 those of a column of
    keys more on either side for each of its convolutions.

    References
    ----------
    Zheng et al. 2024, "DAPE: Data-Adaptive Positional Encoding for Length Extrapolation" (arXiv:2405.14722), and "DAPE
    V2: Process Attention Score as Feature Map for Length Extrapolation" (arXiv:2410.04798); chuanyang-Zheng/DAPE,
    DAPE.py, AliBi_DAPE, and megatron/model/positional_embeddings.py, Alibi_DAPEV2.

    Examples
    --------
    >>> q = k = np.zeros((1, 3, 2))
    >>> v = np.array([[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]])
    >>> dape(q, k, v, np.zeros((1, 5)), np.ones((4, 2)), np.zeros(4), np.ones((1, 4)))[0].tolist()
    [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]
    """
    return dape_vjp(q, k, v, bias, w1, b1, w2, scale=scale)[0]


def dape_vjp(
    q: Any, k: Any, v: Any, bias: Any, w1: Any, b1: Any, w2: Any, *, scale: float | None = None
) -> tuple[Array, Pullback]:
    """Return `dape` and the function that carries its gradient back, to a dict of all arrays by their names.

    >>> one, maps = np.ones((1, 2, 3)), np.ones((1, 2))
    >>> out, pullback = dape_vjp(one, one, one, np.zeros((1, 3)), maps, np.ones(1), np.ones((1, 1)))
    >>> sorted(pullback(np.ones_like(out)))
    ['b1', 'bias', 'k', 'q', 'v', 'w1', 'w2']
    """
    given = {"q": q, "k": k, "v": v, "bias": bias, "w1": w1, "b1": b1, "w2": w2}
    q, k, v, bias, w1, b1, w2 = doubles(given)
    _check(q, bias, w1, b1, w2)
    heads, n = q.shape[-3:-1]
    s = scale_of(q, scale)
    visible, offset = np.tri(n, dtype=bool), np.arange(n) - np.arange(n)[:, None] + n - 1
    content = s * q @ t(k)
    cells = np.broadcast_to(bias[:, offset] if bias.ndim == 2 else bias, content.shape)
    x = np.where(visible, np.concatenate([content, cells], axis=-3), 0)
    before = _convolved(x, w1) + b1[:, None, None]
    slope = np.where(before > 0, 1, _LEAK)
    units = slope * before
    out, of_scores = attended_vjp(content + cells + _convolved(units, w2), v)

    def pullback(dout: Array) -> dict[str, Array]:
        dscores, dv = of_scores(dout)
        dunits, dw2 = _convolved_back(units, w2, dscores)
        dbefore = slope * dunits
        dx, dw1 = _convolved_back(x, w1, dbefore)
        dx = np.where(visible, dx, 0)
        dcontent, dcells = dscores + dx[..., :heads, :, :], _total(dscores + dx[..., heads:, :, :], 3)
        dbias = dcells
        if bias.ndim == 2:
            dbias = np.zeros(bias.shape)
            for own, of_head in zip(dbias, dcells, strict=True):
                np.add.at(own, offset, of_head)
        return {
            "q": s * dcontent @ k, "k": s * t(dcontent) @ q, "v": dv, "bias": dbias, "w1": dw1.reshape(w1.shape),
            "b1": _total(dbefore, 3).sum(axis=(-1, -2)), "w2": dw2.reshape(w2.shape),
        }  # fmt: skip

    return out, pullback


def _taps(maps: Array) -> list[tuple[int, Array]]:
    """By how many keys each tap of (out, in, T), or (out, in), looks ahead, and its map (out, in)."""
    taps = maps.reshape(*maps.shape[:2], -1)
    return [(number - taps.shape[-1] // 2, taps[..., number]) for number in range(taps.shape[-1])]


def _moved(x: Array, by: int) -> Array:
    """What stands so many keys further on, 0 past the ends."""
    found = np.zeros_like(x)
    last = max(x.shape[-1] - abs(by), 0)
    found[..., max(-by, 0) :][..., :last] = x[..., max(by, 0) :][..., :last]
    return found


def _convolved(x: Array, maps: Array) -> Array:
    """y_oij = sum over taps and channels of W_oc(tap) x_ci(j + tap), of x (..., C, N, N)."""
    found: Array = np.sum([np.einsum("oc,...cij->...oij", tap, _moved(x, by)) for by, tap in _taps(maps)], axis=0)
    return found


def _convolved_back(x: Array, maps: Array, dy: Array) -> tuple[Array, Array]:
    """The gradients of x and of the maps, (out, in, T)."""
    taps = _taps(maps)
    dx: Array = np.sum([_moved(np.einsum("oc,...oij->...cij", tap, dy), -by) for by, tap in taps], axis=0)
    of_taps = [_total(np.einsum("...oij,...cij->...oc", dy, _moved(x, by)), 2) for by, _ in taps]
    return dx, np.stack(of_taps, axis=-1)


def _total(x: Array, axes: int) -> Array:
    """The sum over all but the last axes."""
    return x.sum(axis=tuple(range(x.ndim - axes)))


def _check(q: Array, bias: Array, w1: Array, b1: Array, w2: Array) -> None:
    if q.ndim < 3:
        raise ValueError(f"q, k and v must have heads, (..., H, N, D), not {q.shape}")
    heads, n = q.shape[-3:-1]
    if bias.shape not in ((heads, 2 * n - 1), (heads, n, n)):
        raise ValueError(f"bias must have shape {(heads, 2 * n - 1)} or {(heads, n, n)}, not {bias.shape}")
    if w1.ndim not in (2, 3) or w1.shape[1] != 2 * heads:
        raise ValueError(f"w1 must have shape (W, {2 * heads}) or (W, {2 * heads}, T), not {w1.shape}")
    if w1.shape[2:] and w1.shape[2] % 2 == 0:
        raise ValueError(f"w1 must have an odd number of taps, not {w1.shape[2]}")
    if b1.shape != w1.shape[:1]:
        raise ValueError(f"b1 must have shape {w1.shape[:1]}, not {b1.shape}")
    if w2.shape != (heads, len(w1), *w1.shape[2:]):
        raise ValueError(f"w2 must have shape {(heads, len(w1), *w1.shape[2:])}, not {w2.shape}")
