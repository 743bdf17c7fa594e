"""Wall attention, in plain NumPy: every channel of the product of query and key has its own decay, from gates.

The decay of a channel depends on the content. Neither the slot `growth`, which depends on positions, nor a slot with
one number for each key can hold such a decay, so this is only a reference, and there is no encoding of that name.
"""

from typing import Any

import numpy as np
from scipy.special import expit

from fastpe.reference._causal import Array, Pullback, attended_vjp, doubles, log_sigmoid, scale_of


def wall(q: Any, k: Any, v: Any, logits: Any, *, scale: float | None = None) -> Array:
    """Causal attention with a decay for each channel, in float64.

    P_ic is the running sum of the logarithms of the gates of channel c. For j <= i, the score is::

        S_ij = s sum_c q_ic k_jc exp(P_ic - P_jc),    P_ic = sum over t <= i of log sigmoid(logits_tc)

    Parameters
    ----------
    q, k, v : (..., N, D) array
        Queries, keys and values.
    logits : (..., N, D) array
        Logits of the gates, one for each token and channel. In the source, they are a linear map of the layer's input.
        Its bias is initialised to 8, so that there is almost no decay at first.
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
    If all channels of a token share one gate, the product of query and key is multiplied by one decay. The forgetting
    transformer adds the logarithm of the decay to the score instead (`fastpe.columns.forget_gate`). The source has an
    option to add such a logarithm too; it is not multiplied by s.

    Wall attention is defined beyond the training length: channels that have decayed stay near 0.

    The tiled kernels do not support wall attention. They would have to split exp(P_i - P_j) into a factor of the query,
    exp(P_i - P_m), and a factor of the key, exp(P_m - P_j). To avoid overflow, both exponents must be at most 0, so m
    would have to be a position between the tile of keys and the tile of queries. The factors would then have to be
    computed again for every pair of tiles. If query and key are in the same tile, scores would have to be computed
    channel by channel.

    References
    ----------
    fla-org/flash-linear-attention, fla/ops/wall_attn/naive.py, naive_wall_attn, by Tilde Research.

    Examples
    --------
    With gates of one half, a channel decays to a half after one token and to a quarter after two:

    >>> q, k = np.array([[0.0], [0.0], [1.0]]), np.ones((3, 1))
    >>> weights = wall(q, k, np.eye(3), np.zeros((3, 1)))
    >>> np.log(weights[2] / weights[2, 2]).round(9).tolist()
    [-0.75, -0.5, 0.0]
    """
    return wall_vjp(q, k, v, logits, scale=scale)[0]


def wall_vjp(q: Any, k: Any, v: Any, logits: Any, *, scale: float | None = None) -> tuple[Array, Pullback]:
    """Return the output of `wall`, and its pullback, which returns a dict of gradients.

    The gradients are those of "q", "k", "v" and "logits".

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
    # exponents are differences, at most 0: exp of a single sum could overflow
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
