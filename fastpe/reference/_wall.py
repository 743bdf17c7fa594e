"""Wall attention: every channel of the product of query and key decays by gates of its own, in plain NumPy.

A channel's decay is one of the content, which neither the slot `growth`, of positions alone, nor a column of the score
can hold: there is this reference and no encoding of that name.
"""

from typing import Any

import numpy as np
from scipy.special import expit

from fastpe.reference._causal import Array, Pullback, attended_vjp, doubles, log_sigmoid, scale_of


def wall(q: Any, k: Any, v: Any, logits: Any, *, scale: float | None = None) -> Array:
    """Causal attention whose channels decay, in float64.

    For j <= i, with the running sums P_ic of the logarithms of gates::

        S_ij = s sum_c q_ic k_jc exp(P_ic - P_jc),    P_ic = sum over t <= i of log sigmoid(logits_tc)

    Parameters
    ----------
    q, k, v : (..., N, D) array
        Queries, keys and values.
    logits : (..., N, D) array
        Of the gates, one for each token and channel; in the source a linear map of the layer's input, whose bias starts
        at 8, where next to nothing decays.
    scale : float, optional
        s; 1/sqrt(D) where it is not given.

    Returns
    -------
    (..., N, D) float64

    Raises
    ------
    ValueError
        If the shapes do not fit.

    Notes
    -----
    With one gate for all channels of a token products decay. The forgetting transformer's scores decay instead
    (`fastpe.columns.forget_gate`); the source can add that, unscaled.

    Past the training length it is defined: what has decayed stays so.

    It is not in the tiled kernels. In tiles exp(P_i - P_j) is a product of two factors with sums counted from the
    border between the query's and the key's tile, as both exponents are then below 0: rows would be made anew for
    every pair of tiles, and cells of one tile channel by channel.

    References
    ----------
    fla-org/flash-linear-attention, fla/ops/wall_attn/naive.py, naive_wall_attn, by Tilde Research.

    Examples
    --------
    Half of a channel is left after one token, a quarter after two:

    >>> q, k = np.array([[0.0], [0.0], [1.0]]), np.ones((3, 1))
    >>> weights = wall(q, k, np.eye(3), np.zeros((3, 1)))
    >>> np.log(weights[2] / weights[2, 2]).round(9).tolist()
    [-0.75, -0.5, 0.0]
    """
    return wall_vjp(q, k, v, logits, scale=scale)[0]


def wall_vjp(q: Any, k: Any, v: Any, logits: Any, *, scale: float | None = None) -> tuple[Array, Pullback]:
    """Return `wall` and the function that carries its gradient back, to a dict of "q", "k", "v" and "logits".

    >>> one = np.ones((2, 3))
    >>> out, pullback = wall_vjp(one, one, one, one)
    >>> sorted(pullback(np.ones_like(out)))
    ['k', 'logits', 'q', 'v']
    """
    q, k, v, logits = doubles({"q": q, "k": k, "v": v, "logits": logits})
    if logits.shape != q.shape:
        raise ValueError(f"logits must have the shape of q {q.shape}, not {logits.shape}")
    s, visible = scale_of(q, scale), np.tri(q.shape[-2], dtype=bool)[..., None]
    sums = np.cumsum(log_sigmoid(logits), axis=-2)
    # from the differences, which are below 0: neither factor alone would be bounded
    left = s * np.exp(np.where(visible, sums[..., :, None, :] - sums[..., None, :, :], 0.0))
    out, of_scores = attended_vjp(np.einsum("...ic,...jc,...ijc->...ij", q, k, left), v)

    def pullback(dout: Array) -> dict[str, Array]:
        dscores, dv = of_scores(dout)
        dq = np.einsum("...ij,...jc,...ijc->...ic", dscores, k, left)
        dk = np.einsum("...ij,...ic,...ijc->...jc", dscores, q, left)
        dsums = q * dq - k * dk
        dsteps = np.cumsum(dsums[..., ::-1, :], axis=-2)[..., ::-1, :]
        return {"q": dq, "k": dk, "v": dv, "logits": dsteps * expit(-logits)}

    return out, pullback
