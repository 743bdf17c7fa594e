"""A bank of curves over distances, mixed by every query, in plain NumPy.

A layer would compute a second kind of queries, the mixtures, from its input. Encodings cannot do that, so this is only
a reference.
"""

from typing import Any

import numpy as np

from fastpe.reference._causal import Array, Pullback, attended_vjp, doubles, scale_of, t


def distance_bank(q: Any, k: Any, v: Any, mixture: Any, curves: Any, *, scale: float | None = None) -> Array:
    """Causal attention with a bias that depends on the distance and on the query, in float64.

    The bias is a weighted sum of B curves, which are functions of the distance. Each query has its own weights. For
    j <= i, with the distance m = i - j, the score S_ij is::

        S_ij = s q_i . k_j + sum_b mixture_ib curves_bm,    where the sum is 0 for m >= M

    Parameters
    ----------
    q, k, v : (..., N, D) array
        Queries, keys and values.
    mixture : (..., N, B) array
        The weights of the curves for each query. In the source, each head computes them from the layer's input by a
        linear map.
    curves : (B, M) array
        The value of each curve at each distance, shared by all heads. In the source, B = 16, and initial values are
        drawn from N(0, 0.02^2).
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
    `fastpe.attention` can compute this if queries and keys get B more channels. Pass the scale s, the queries
    [q, mixture / s], the keys [k, 0] and the slot ``rel_key``. Its row for distance m < M is [0, curves[:, m]]. Its
    rows for distance M and for keys after the query are zeros.

    The formula is defined at any length: the bias is 0 from distance M on.

    References
    ----------
    lucidrains/x-transformers, RelativeProjPositionalBias, after "Inkling" of Thinking Machines.

    Examples
    --------
    >>> q = np.zeros((3, 2))
    >>> weights = distance_bank(q, q, np.eye(3), [[0.0], [0.0], [2.0]], [[0.0, 1.0]])
    >>> np.log(weights[2] / weights[2, 2]).round(9).tolist()
    [0.0, 2.0, 0.0]
    """
    return distance_bank_vjp(q, k, v, mixture, curves, scale=scale)[0]


def distance_bank_vjp(
    q: Any, k: Any, v: Any, mixture: Any, curves: Any, *, scale: float | None = None
) -> tuple[Array, Pullback]:
    """Return the output of `distance_bank`, and its pullback, which returns a dict of the gradients of all arrays.

    >>> one = np.ones((2, 3))
    >>> out, pullback = distance_bank_vjp(one, one, one, one, np.zeros((3, 5)))
    >>> sorted(pullback(np.ones_like(out)))
    ['curves', 'k', 'mixture', 'q', 'v']
    """
    given = {"q": q, "k": k, "v": v, "mixture": mixture, "curves": curves}
    q, k, v, mixture, curves = doubles(given)
    if mixture.shape[:-1] != q.shape[:-1]:
        raise ValueError(f"mixture must have shape {(*q.shape[:-1], 'B')}, not {mixture.shape}")
    if curves.ndim != 2 or len(curves) != mixture.shape[-1] or not curves.size:
        raise ValueError(f"curves must have shape ({mixture.shape[-1]}, M), M at least 1, not {curves.shape}")
    n, s = q.shape[-2], scale_of(q, scale)
    distance = np.arange(n)[:, None] - np.arange(n)
    has = (distance >= 0) & (distance < curves.shape[1])
    rows = np.where(has[..., None], curves.T[np.where(has, distance, 0)], 0.0)  # (N, N, B)
    out, of_scores = attended_vjp(s * q @ t(k) + np.einsum("...ib,ijb->...ij", mixture, rows), v)

    def pullback(dout: Array) -> dict[str, Array]:
        dscores, dv = of_scores(dout)
        drows = np.einsum("xij,xib->ijb", dscores.reshape(-1, n, n), mixture.reshape(-1, n, len(curves)))
        dcurves = np.zeros(curves.shape)
        np.add.at(dcurves.T, distance[has], drows[has])
        return {
            "q": s * dscores @ k, "k": s * t(dscores) @ q, "v": dv,
            "mixture": np.einsum("...ij,ijb->...ib", dscores, rows), "curves": dcurves,
        }  # fmt: skip

    return out, pullback
