"""CoPE, contextual position encoding, in plain NumPy: attention in which gates count keys."""

import math
from typing import Any

import numpy as np

from fastpe.reference._attention import attention_vjp
from fastpe.reference._causal import Array, Pullback, doubles


def cope(q: Any, k: Any, v: Any, table: Any, *, scale: float | None = None) -> Array:
    """Causal attention with contextual positions, in float64.

    The scaled product s q_i . k_j is both a term of the score and the logit of a gate. For j <= i, the position p_ij of
    key j relative to query i, and the score S_ij, are::

        p_ij = min(sum_{t=j}^{i} sigmoid(s q_i . k_t), P - 1)
        S_ij = s q_i . k_j + (1 - w) q_i . table[floor p_ij] + w q_i . table[ceil p_ij],    w = p_ij - floor p_ij

    Parameters
    ----------
    q, k, v : (..., N, D) array
        Queries, keys and values.
    table : (P, D) array
        A vector for each integer position, shared by all heads. The authors initialise it to zeros.
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
    The result equals `attention` with ``causal=True, counts=table[None]``, for which `fastpe.attention` has compiled
    kernels. By default, the authors' code also divides the terms that contain the table by sqrt(D). To reproduce this,
    multiply their table by s.

    As published, CoPE is for causal models only. Positions are at most P - 1 at any length. The gate of a hidden key is
    0.

    References
    ----------
    Golovneva, Wang, Weston and Sukhbaatar 2024, "Contextual Position Encoding: Learning to Count What's Important"
    (arXiv:2405.18719), section 4 and appendix B.

    Examples
    --------
    >>> q = k = np.zeros((3, 2))
    >>> cope(q, k, np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]), np.zeros((4, 2))).tolist()
    [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]
    """
    return cope_vjp(q, k, v, table, scale=scale)[0]


def cope_vjp(q: Any, k: Any, v: Any, table: Any, *, scale: float | None = None) -> tuple[Array, Pullback]:
    """Return the output of `cope`, and its pullback, which returns a dict of gradients.

    The gradients are those of "q", "k", "v" and "table". No gradient reaches the gates through a position p_ij that is
    an integer or was limited to P - 1.

    >>> one = np.ones((2, 3))
    >>> out, pullback = cope_vjp(one, one, one, np.zeros((2, 3)))
    >>> sorted(pullback(np.ones_like(out)))
    ['k', 'q', 'table', 'v']
    """
    q, k, v, table = doubles({"q": q, "k": k, "v": v, "table": table})
    if table.ndim != 2 or table.shape[1] != q.shape[-1] or len(table) < 1:
        raise ValueError(f"table must have shape (P, {q.shape[-1]}), not {table.shape}")
    batch = math.prod(q.shape[:-2])
    rows = (x.reshape(batch, 1, *x.shape[-2:]) for x in (q, k, v))
    out, back = attention_vjp(*rows, causal=True, counts=table[None], scale=scale, wrt=("q", "k", "v", "counts"))
    shapes = {"q": q.shape, "k": k.shape, "v": v.shape, "table": table.shape}

    def pullback(dout: Array) -> dict[str, Array]:
        found = back(np.reshape(dout, out.shape))
        return {name: found["counts" if name == "table" else name].reshape(shape) for name, shape in shapes.items()}

    return out.reshape(v.shape), pullback
