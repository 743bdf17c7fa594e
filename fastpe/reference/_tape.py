"""TAPE, in plain NumPy: positions that each layer updates by attention and depending on the tokens.

Queries and keys are rotated by positions in a separate stream, which passes through all layers. Neither a slot of one
layer nor the residual stream can hold these positions, so this is only a reference of a layer, and there is no encoding
of that name.
"""

from typing import Any

import numpy as np
from scipy.special import expit

from fastpe.base import validation
from fastpe.reference._causal import Array, Pullback, attended_vjp, doubles, scale_of, t
from fastpe.reference._rotation import rotate_vjp


def tape(q: Any, k: Any, v: Any, positions: Any, weight: Any, *, scale: float | None = None) -> tuple[Array, Array]:
    """Causal attention with contextual positions, which rotate queries and keys and are mixed like values, in float64.

    Each token and head has a position E: D/2 cosines, then D/2 sines. They may be any numbers. R(E) maps every pair of
    channels c and c + D/2: (x, y) -> (x cos - y sin, x sin + y cos). For j <= i, the scores S, the output and the new
    positions E' are::

        S_ij = s R(E_i) q_i . R(E_j) k_j,    P = softmax(S),    out = P v,    E'_i = E_i + c_h sum_j P_ij E_j

    Parameters
    ----------
    q, k, v : (..., H, N, D) array
        Queries, keys and values; D is even.
    positions : (..., H, N, D) array
        E. In the first layer, these are the cosines and sines of RoPE's angles, equal for all heads.
    weight : (H, H) array
        A matrix; c_h is the sum of its row h. The authors initialise it to zeros.
    scale : float, optional
        s, by default 1/sqrt(D).

    Returns
    -------
    out : (..., H, N, D) float64
    positions : (..., H, N, D) float64
        The new positions E', which can be passed to `tape_map`.

    Raises
    ------
    ValueError
        If the shapes do not match.

    Notes
    -----
    The authors' code stores every cosine and sine twice, once for each channel of a pair, and treats both copies
    equally. In that code, `weight` looks like a map between heads, but only the sums of its rows are used.

    In training, the authors shift all positions by a random number. Angles beyond the training length are new to the
    model, as with RoPE.

    The tiled kernels do not compute this in one call. You can rotate queries and keys first, and then call
    `fastpe.attention` with the values [v, E], because values may have any width. But only `tape_vjp` returns the
    gradient of E through the rotation.

    References
    ----------
    Zhu et al. 2025, "Rethinking Addressing in Language Models via Contextualized Equivariant Positional Encoding"
    (ICML; arXiv:2501.00712); code: VITA-Group/TAPE, models/llama/adape.py, PELlamaAttention, LlamaDecoderLayer.

    Examples
    --------
    >>> q, v = np.zeros((1, 2, 2)), np.array([[[0.0, 1.0], [2.0, 3.0]]])
    >>> out, positions = tape(q, q, v, [[[1.0, 0.0], [0.0, 1.0]]], [[2.0]])
    >>> out[0].tolist(), positions[0].tolist()
    ([[0.0, 1.0], [1.0, 2.0]], [[3.0, 0.0], [1.0, 2.0]])
    """
    return tape_vjp(q, k, v, positions, weight, scale=scale)[0]


def tape_vjp(
    q: Any, k: Any, v: Any, positions: Any, weight: Any, *, scale: float | None = None
) -> tuple[tuple[Array, Array], Any]:
    """Return the two outputs of `tape`, and its pullback, which returns a dict of the gradients of all arrays.

    The argument of the pullback is a tuple: the gradients of the two outputs.

    >>> one = np.ones((1, 2, 4))
    >>> outputs, pullback = tape_vjp(one, one, one, one, [[1.0]])
    >>> sorted(pullback(outputs))
    ['k', 'positions', 'q', 'v', 'weight']
    """
    given = {"q": q, "k": k, "v": v, "positions": positions, "weight": weight}
    q, k, v, positions, weight = doubles(given)
    _check(q, positions, weight)
    s, half = scale_of(q, scale), q.shape[-1] // 2
    pairs = positions[..., :half], positions[..., half:]
    (turned_q, of_q), (turned_k, of_k) = (rotate_vjp(x, pairs="half", cos_sin=pairs) for x in (q, k))
    # positions are mixed like values
    mixed, of_scores = attended_vjp(s * turned_q @ t(turned_k), np.concatenate([v, positions], axis=-1))
    factor = weight.sum(axis=-1)[:, None, None]
    out, rest = mixed[..., : v.shape[-1]], mixed[..., v.shape[-1] :]

    def pullback(douts: Any) -> dict[str, Array]:
        dout, dpositions = (np.asarray(each, np.float64) for each in douts)
        dscores, dvalues = of_scores(np.concatenate([dout, factor * dpositions], axis=-1))
        turns = of_q(s * dscores @ turned_k), of_k(s * t(dscores) @ turned_q)
        own = sum(np.concatenate(each["cos_sin"], axis=-1) for each in turns)
        dfactor = (dpositions * rest).reshape(-1, *q.shape[-3:]).sum(axis=(0, -1, -2))
        return {
            "q": turns[0]["x"], "k": turns[1]["x"], "v": dvalues[..., : v.shape[-1]],
            "positions": dpositions + own + dvalues[..., v.shape[-1] :],
            "weight": np.repeat(dfactor[:, None], len(weight), axis=1),
        }  # fmt: skip

    return (out, positions + factor * rest), pullback


def tape_map(positions: Any, x: Any, up: Any, gate: Any, down: Any) -> Array:
    """Map contextual positions between heads, by a matrix that depends on the token, in float64.

    For every token n, the result is E + M_n E. The matrix M_n mixes the heads::

        M_n = down diag(silu(gate x_n)) up

    Parameters
    ----------
    positions : (..., H, N, D) array
        E, as `tape` returns it.
    x : (..., N, C) array
        The input of the gates. In the source, it is the output of the layer's feed-forward block, before the residual
        is added.
    up : (W, H) array
        A map from the heads to W units. The authors initialise it to zeros, so that training starts with RoPE.
    gate : (W, C) array
        A map from the channels of x to a gate for each unit.
    down : (H, W) array
        A map from the units to the heads.

    Returns
    -------
    (..., H, N, D) float64
        The positions for the next layer.

    Raises
    ------
    ValueError
        If the shapes do not match.

    References
    ----------
    As for `tape`; this is PELayer in the same code.

    Examples
    --------
    >>> tape_map([[[1.0, 2.0]]], [[0.0]], [[1.0]], [[1.0]], [[1.0]]).tolist()
    [[[1.0, 2.0]]]
    """
    return tape_map_vjp(positions, x, up, gate, down)[0]


def tape_map_vjp(positions: Any, x: Any, up: Any, gate: Any, down: Any) -> tuple[Array, Pullback]:
    """Return the output of `tape_map`, and its pullback, which returns a dict of the gradients of all arrays.

    >>> one = np.ones((1, 1))
    >>> out, pullback = tape_map_vjp(np.ones((1, 1, 2)), one, one, one, one)
    >>> sorted(pullback(out))
    ['down', 'gate', 'positions', 'up', 'x']
    """
    given = {"positions": positions, "x": x, "up": up, "gate": gate, "down": down}
    positions, x, up, gate, down = (validation.array(name, value).astype(np.float64) for name, value in given.items())
    _check_map(positions, x, up, gate, down)
    before = x @ gate.T  # (..., N, W)
    slope = expit(before)
    silu = before * slope
    lifted = np.einsum("wh,...hnd->...wnd", up, positions)
    gated = t(silu)[..., None] * lifted

    def pullback(dout: Array) -> dict[str, Array]:
        dgated = np.einsum("hw,...hnd->...wnd", down, dout)
        dlifted = t(silu)[..., None] * dgated
        dbefore = t(np.sum(dgated * lifted, axis=-1)) * (slope + silu * (1 - slope))
        return {
            "positions": dout + np.einsum("wh,...wnd->...hnd", up, dlifted), "x": dbefore @ gate,
            "up": _product(dlifted, positions), "down": _product(dout, gated),
            "gate": t(dbefore.reshape(-1, len(gate))) @ x.reshape(-1, x.shape[-1]),
        }  # fmt: skip

    return positions + np.einsum("hw,...wnd->...hnd", down, gated), pullback


def _product(left: Array, right: Array) -> Array:
    """Return the sum over samples, tokens and channels of products of (..., A, N, D) and (..., B, N, D): (A, B)."""
    rows = (x.reshape(-1, *x.shape[-3:]) for x in (left, right))
    found: Array = np.einsum("sand,sbnd->ab", *rows)
    return found


def _check(q: Array, positions: Array, weight: Array) -> None:
    if q.ndim < 3 or q.shape[-1] % 2:
        raise ValueError(f"q, k and v must have heads and an even number of channels, (..., H, N, D), not {q.shape}")
    if positions.shape != q.shape:
        raise ValueError(f"positions must have the shape of q {q.shape}, not {positions.shape}")
    if weight.shape != (q.shape[-3],) * 2:
        raise ValueError(f"weight must have shape {(q.shape[-3],) * 2}, not {weight.shape}")


def _check_map(positions: Array, x: Array, up: Array, gate: Array, down: Array) -> None:
    if positions.ndim < 3:
        raise ValueError(f"positions must have shape (..., H, N, D), not {positions.shape}")
    heads, n = positions.shape[-3:-1]
    if x.ndim < 2 or x.shape[:-1] != (*positions.shape[:-3], n):
        raise ValueError(f"x must have shape {(*positions.shape[:-3], n, 'C')}, not {x.shape}")
    if up.ndim != 2 or up.shape[1] != heads:
        raise ValueError(f"up must have shape (W, {heads}), not {up.shape}")
    if gate.shape != (len(up), x.shape[-1]):
        raise ValueError(f"gate must have shape {(len(up), x.shape[-1])}, not {gate.shape}")
    if down.shape != (heads, len(up)):
        raise ValueError(f"down must have shape {(heads, len(up))}, not {down.shape}")
