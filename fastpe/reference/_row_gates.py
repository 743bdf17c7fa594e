"""Gates of every query and key, summed along a row of the score: per-row ALiBi and GRAPE-AP, in plain NumPy.

Every query has its own gates for the keys between itself and another key. The sums of two queries have no terms in
common, so a slot with one number for each key cannot hold them. This is therefore only a reference, and there is no
encoding of that name.
"""

from typing import Any

import numpy as np
from scipy.special import expit

from fastpe.base import validation
from fastpe.reference._causal import Array, Pullback, attended_vjp, doubles, log_sigmoid, scale_of, t
from fastpe.reference._operations import rms_norm_vjp
from fastpe.reference._rotation import rotate_vjp

_FORMS = ("alibi", "grape")
_LEAST = 1e-24  # keeps the norm of a row of zeros above 0


def row_gates(
    q: Any, k: Any, v: Any, gate_q: Any, gate_k: Any, *, form: str = "alibi", slopes: Any = 1.0,
    scale: float | None = None,
) -> Array:  # fmt: skip
    """Causal attention with a bias that sums the logarithms of gates between key and query, in float64.

    Every pair of a query i and a key t has a gate, sigmoid(z_it). For j <= i, the score is::

        S_ij = s q_i . k_j + slope sum_t log sigmoid(z_it)

    The logits z_it and the range of the sum depend on `form`::

        "alibi":  z_it = gate_q_i . gate_k_t / sqrt(W),                             t = j .. i - 1
        "grape":  z_it = gate_q_i . R(-t) (gate_k_t / rms(gate_k_t)) / W,           t = j + 1 .. i

    R(-t) rotates every pair of channels c and c + W/2 clockwise by t radians; rms is the root mean square.

    Parameters
    ----------
    q, k, v : (..., N, D) array
        Queries, keys and values.
    gate_q, gate_k : (..., N, W) array
        The vectors whose products are the logits. In the source of "alibi", they are two maps of the layer's input, and
        W = 8. In that of "grape", both are the same array p, which is a map of the layer's input, or q, k or v. To
        reproduce this, pass p twice; the gradient of p is the sum of the gradients of `gate_q` and `gate_k`.
    form : {"alibi", "grape"}
        Selects the formula.
    slopes : array that broadcasts to (...), optional
        The slope of each head. In the sources, it is the slope of ALiBi for "grape", and 1 for "alibi". Slopes are not
        learned.
    scale : float, optional
        s, by default 1/sqrt(D).

    Returns
    -------
    (..., N, D) float64

    Raises
    ------
    ValueError
        If the shapes do not match, or there is no such form.

    Notes
    -----
    With "grape", only `gate_k` is normalised and rotated, so a gate depends on the position of its key, not on the
    distance to the query.

    Both forms are defined beyond the training length. The logarithms of all gates are below 0, so the bias lowers the
    scores of far keys.

    The tiled kernels support neither form. They would have to keep a running sum for each query from tile to tile, as
    for `cope`. They would also have to compute the products of `gate_q` and `gate_k` for every tile.

    References
    ----------
    GRAPE (ICLR 2026), from its code: model-architectures/GRAPE, llama-mha-grape-ap-v1.py; lucidrains/x-transformers,
    PerRowDataDependentAlibi.

    Examples
    --------
    If every gate is one half, this is ALiBi with the slope log 2:

    >>> q, gates = np.zeros((3, 2)), np.zeros((3, 4))
    >>> weights = row_gates(q, q, np.eye(3), gates, gates)
    >>> np.log2(weights[2] / weights[2, 2]).round(9).tolist()
    [-2.0, -1.0, 0.0]
    """
    return row_gates_vjp(q, k, v, gate_q, gate_k, form=form, slopes=slopes, scale=scale)[0]


def row_gates_vjp(
    q: Any, k: Any, v: Any, gate_q: Any, gate_k: Any, *, form: str = "alibi", slopes: Any = 1.0,
    scale: float | None = None,
) -> tuple[Array, Pullback]:  # fmt: skip
    """Return the output of `row_gates`, and its pullback, which returns a dict of the gradients of all arrays.

    >>> one = np.ones((2, 4))
    >>> out, pullback = row_gates_vjp(one, one, one, one, one, form="grape")
    >>> sorted(pullback(np.ones_like(out)))
    ['gate_k', 'gate_q', 'k', 'q', 'v']
    """
    given = {"q": q, "k": k, "v": v, "gate_q": gate_q, "gate_k": gate_k}
    q, k, v, gate_q, gate_k = doubles(given)
    grape = validation.choice("form", form, _FORMS) == "grape"
    _check(q, gate_q, gate_k, grape)
    factor = _factor(slopes, q)
    n, width, s = q.shape[-2], gate_q.shape[-1], scale_of(q, scale)
    size = width if grape else width**0.5
    rows, of_rows = _turned_vjp(gate_k) if grape else (gate_k, lambda drows: drows)
    z = gate_q @ t(rows) / size
    # own: whether query i has a gate for key t; between: whether gate t is in the sum of key j
    own, between = (np.tri(n), np.tri(n, k=-1)) if grape else (np.tri(n, k=-1), np.tri(n))
    scores = s * q @ t(k) + factor * (own * log_sigmoid(z)) @ between
    out, of_scores = attended_vjp(scores, v)

    def pullback(dout: Array) -> dict[str, Array]:
        dscores, dv = of_scores(dout)
        dz = factor * own * (dscores @ t(between)) * expit(-z) / size
        return {
            "q": s * dscores @ k, "k": s * t(dscores) @ q, "v": dv, "gate_q": dz @ rows,
            "gate_k": of_rows(t(dz) @ gate_q),
        }  # fmt: skip

    return out, pullback


def _turned_vjp(p: Array) -> tuple[Array, Any]:
    """Return R(-t) p_t / rms(p_t), and its pullback."""
    normed, of_norm = rms_norm_vjp(p, np.ones(p.shape[-1]), _LEAST)
    turns = np.repeat(-np.arange(float(p.shape[-2]))[:, None], p.shape[-1] // 2, axis=1)
    turned, of_turn = rotate_vjp(normed, turns, pairs="half")
    return turned, lambda dturned: of_norm(of_turn(dturned)["x"])[0]


def _factor(slopes: Any, q: Array) -> Array:
    """Return the slopes, in a shape that broadcasts to scores."""
    found = validation.array("slopes", slopes).astype(np.float64)
    if found.ndim > q.ndim - 2 or any(
        own not in (1, size) for own, size in zip(found.shape[::-1], q.shape[-3::-1], strict=False)
    ):
        raise ValueError(
            f"slopes must broadcast to the axes of q before the last two, {q.shape[:-2]}, not {found.shape}"
        )
    return found[..., None, None]


def _check(q: Array, gate_q: Array, gate_k: Array, grape: bool) -> None:
    if gate_q.shape[:-1] != q.shape[:-1] or gate_q.shape[-1] == 0:
        raise ValueError(f"gate_q must have shape {(*q.shape[:-1], 'W')}, not {gate_q.shape}")
    if gate_k.shape != gate_q.shape:
        raise ValueError(f"gate_k must have the shape of gate_q {gate_q.shape}, not {gate_k.shape}")
    if grape and gate_k.shape[-1] % 2:
        raise ValueError(
            f"gate_k must have an even number of channels, which are rotated in pairs, not {gate_k.shape[-1]}"
        )
