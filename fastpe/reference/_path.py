"""PaTH attention, in plain NumPy: positions enter as a product of reflections between key and query.

`fastpe.attention` computes the same in compiled kernels, with the slots `reflectors` (w) and `reflect` (beta).
"""

from typing import Any

import numpy as np

from fastpe.reference._causal import Array, Pullback, attended_vjp, doubles, scale_of


def path(q: Any, k: Any, v: Any, w: Any, beta: Any, *, scale: float | None = None) -> Array:
    """Causal attention with a product of Householder maps between key and query, in float64.

    For j <= i::

        S_ij = s q_i . H_i H_(i-1) ... H_(j+1) k_j,    H_t = I - beta_t w_t w_t^T

    Parameters
    ----------
    q, k, v : (..., N, D) array
        Queries, keys and values.
    w : (..., N, D) array
        The direction w_t of each token's reflection. In the source, a layer computes it from its input in four steps: a
        linear map of rank 32, a causal depthwise convolution with three taps, SiLU, and normalisation to length 1.
    beta : (..., N) array
        The strength beta_t of each reflection. For w_t of length 1, 0 changes nothing, 1 removes the component along
        w_t, and 2 reverses it. In the source, beta is 2 sigmoid(z), where z is a linear map of the layer's input.
    scale : float, optional
        s, by default 1/sqrt(D).

    Returns
    -------
    (..., N, D) float64

    Raises
    ------
    ValueError
        If the shapes do not match.

    Notes
    -----
    The algorithm keeps one vector x for each query i; at first, x is q_i. It loops over the keys j from near to far. It
    computes S_ij = s x . k_j, and then replaces x by H_j x.

    PaTH is defined beyond the training length. A product of reflections does not decay with the distance.

    ``fastpe.attention(q, k, v, causal=True, reflectors=w, reflect=beta)`` computes the same in tiles. It passes the
    vector x of each query from tile to tile, in O(N) memory. The backward pass needs these vectors again. It cannot
    recompute them from later ones, because H_j has no inverse at beta = 1. So if gradients are computed, one vector is
    stored for each pair of a query and a tile of keys, which is more than O(N) memory.

    References
    ----------
    Yang et al. 2025, "PaTH Attention: Position Encoding via Accumulating Householder Transformations"
    (arXiv:2505.16381); fla-org/flash-linear-attention, fla/ops/path_attn/naive.py, naive_path_attn.

    Examples
    --------
    The second token reflects along the direction of the first key, which reverses the sign of the score:

    >>> q, k = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 0.0]])
    >>> weights = path(q, k, np.eye(2), q, np.array([0.0, 2.0]), scale=1.0)
    >>> np.log(weights[1] / weights[1, 1]).round(9).tolist()
    [-1.0, 0.0]
    """
    return path_vjp(q, k, v, w, beta, scale=scale)[0]


def path_vjp(q: Any, k: Any, v: Any, w: Any, beta: Any, *, scale: float | None = None) -> tuple[Array, Pullback]:
    """Return the output of `path`, and its pullback, which returns a dict of gradients.

    The gradients are those of "q", "k", "v", "w" and "beta".

    >>> one = np.ones((2, 3))
    >>> out, pullback = path_vjp(one, one, one, one, np.ones(2))
    >>> sorted(pullback(np.ones_like(out)))
    ['beta', 'k', 'q', 'v', 'w']
    """
    q, k, v, w, beta = doubles({"q": q, "k": k, "v": v, "w": w, "beta": beta})
    if w.shape != q.shape:
        raise ValueError(f"w must have the shape of q {q.shape}, not {w.shape}")
    if beta.shape != q.shape[:-1]:
        raise ValueError(f"beta must have shape {q.shape[:-1]}, not {beta.shape}")
    n = q.shape[-2]
    s = scale_of(q, scale)
    scores, x, seen = np.zeros((*q.shape[:-1], n)), q.copy(), {}
    for j in reversed(range(n)):  # every query starts at its own position
        seen[j] = x[..., j:, :].copy()
        scores[..., j:, j] = s * np.einsum("...id,...d->...i", seen[j], k[..., j, :])
        x[..., j:, :] -= _along(seen[j], w, j) * (beta[..., j, None, None] * w[..., j, None, :])
    out, of_scores = attended_vjp(scores, v)

    def pullback(dout: Array) -> dict[str, Array]:
        dscores, dv = of_scores(dout)
        dx, dk, dw, dbeta = (np.zeros_like(each) for each in (q, k, w, beta))
        for j in range(n):
            y, rows, e = dx[..., j:, :], seen[j], s * dscores[..., j:, j, None]
            u, along = _along(y, w, j), _along(rows, w, j)
            dbeta[..., j] = -np.sum(along * u, axis=(-1, -2))
            dw[..., j, :] = -beta[..., j, None] * np.sum(u * rows + along * y, axis=-2)
            dk[..., j, :] = np.sum(e * rows, axis=-2)
            y += e * k[..., j, None, :] - beta[..., j, None, None] * u * w[..., j, None, :]
        return {"q": dx, "k": dk, "v": dv, "w": dw, "beta": dbeta}

    return out, pullback


def _along(rows: Array, w: Array, j: int) -> Array:
    """Return the dot products of rows (..., M, D) with w_j, (..., M, 1)."""
    found: Array = np.einsum("...id,...d->...i", rows, w[..., j, :])[..., None]
    return found
