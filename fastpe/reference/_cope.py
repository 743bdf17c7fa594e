"""CoPE, contextual position encoding: attention in which keys are counted by gates, in plain NumPy.

Positions depend on the content here, so no fill can know them: there is this reference and no encoding of that name.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastpe.base import validation

Array = np.ndarray[Any, Any]
Pullback = Callable[[Array], dict[str, Array]]


def cope(q: Any, k: Any, v: Any, table: Any, *, scale: float | None = None) -> Array:
    """Causal attention with contextual positions, in float64.

    With the scaled product s q_i . k_j as gate and score, for j <= i::

        p_ij = min(sum_{t=j}^{i} sigmoid(s q_i . k_t), P - 1)
        S_ij = s q_i . k_j + (1 - w) q_i . table[floor p_ij] + w q_i . table[ceil p_ij],    w = p_ij - floor p_ij

    Parameters
    ----------
    q, k, v : (..., N, D) array
        Queries, keys and values.
    table : (P, D) array
        A vector for each whole position, shared by all heads; the authors start it at zeros.
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
    For causal models only, as published. Past P - 1 counted keys every position is P - 1: counts are clamped, whatever
    the length. Keys that the mask hides have a gate of 0 and no term.

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
    """Return `cope` and the function that carries its gradient back, to a dict of "q", "k", "v" and "table".

    Where a count is clamped, or whole, the gates get no gradient through it.

    >>> one = np.ones((2, 3))
    >>> out, pullback = cope_vjp(one, one, one, np.zeros((2, 3)))
    >>> sorted(pullback(np.ones_like(out)))
    ['k', 'q', 'table', 'v']
    """
    given = {"q": q, "k": k, "v": v, "table": table}
    q, k, v, table = (validation.array(name, value).astype(np.float64) for name, value in given.items())
    _check(q, k, v, table)
    s = q.shape[-1] ** -0.5 if scale is None else float(scale)
    visible = np.tri(q.shape[-2], dtype=bool)
    content = s * q @ _t(k)
    gates = np.where(visible, 1 / (1 + np.exp(-content)), 0)
    counted = np.flip(np.cumsum(np.flip(gates, -1), -1), -1)
    place = np.minimum(counted, len(table) - 1)
    low, high = np.floor(place).astype(int), np.ceil(place).astype(int)
    share = place - low
    at = q @ table.T
    below, above = (np.take_along_axis(at, whole, -1) for whole in (low, high))
    logits = np.where(visible, content + (1 - share) * below + share * above, -np.inf)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)

    def pullback(dout: Array) -> dict[str, Array]:
        dweights = dout @ _t(v)
        dlogits = weights * (dweights - np.sum(weights * dweights, axis=-1, keepdims=True))
        dplace = np.where(counted < len(table) - 1, dlogits * (above - below), 0)
        dgates = np.where(visible, np.cumsum(dplace, axis=-1), 0)
        dcontent = dlogits + dgates * gates * (1 - gates)
        whole = np.arange(len(table))
        dat = np.sum(((1 - share) * dlogits)[..., None] * (low[..., None] == whole), axis=-2)
        dat += np.sum((share * dlogits)[..., None] * (high[..., None] == whole), axis=-2)
        dtable = dat.reshape(-1, len(table)).T @ q.reshape(-1, q.shape[-1])
        dq, dk = s * dcontent @ k + dat @ table, s * _t(dcontent) @ q
        return {"q": dq, "k": dk, "v": _t(weights) @ dout, "table": dtable}

    return weights @ v, pullback


def _check(q: Array, k: Array, v: Array, table: Array) -> None:
    if q.ndim < 2 or k.shape != q.shape or v.shape[:-1] != q.shape[:-1]:
        raise ValueError(f"q, k and v must have one shape (..., N, D), not {q.shape}, {k.shape} and {v.shape}")
    if table.ndim != 2 or table.shape[1] != q.shape[-1] or len(table) < 1:
        raise ValueError(f"table must have shape (P, {q.shape[-1]}), not {table.shape}")


def _t(matrices: Array) -> Array:
    return np.swapaxes(matrices, -1, -2)
