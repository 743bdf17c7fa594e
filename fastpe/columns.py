"""Terms of the score that a layer computes from its input, for the slots `key_offset`, `key_slope` and `query_slope` of
`fastpe.attention`, with their gradients.

    forget_gate, cable, decay   key_offset: running sums of gates or decays over the preceding tokens
    gated_slopes                key_slope of keys, query_slope of queries
    with_sinks                  the output with sinks, for attention whose key offsets are sums of gates
    two_sided                   attention with separate offsets for keys before a query and after it

A function whose name ends in `_vjp` returns the same array as the function without `_vjp`, and a pullback. The pullback
maps the gradient of this array to a dict of the gradients of the arguments. All functions except `two_sided` are for
causal attention.

>>> offset = forget_gate([[0.0, 1.0, 2.0]])
>>> q = np.ones((1, 3, 4))
>>> import fastpe
>>> fastpe.attention(q, q, q + [[0], [1], [2]], causal=True, key_offset=offset)[0, :, 0].round(3).tolist()
[1.0, 1.578, 2.141]
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit

from fastpe.base.pulled import Array, Pullback, given, like, summed_to
from fastpe.base.validation import truth
from fastpe.functional.two_sided import two_sided, two_sided_vjp

__all__ = [
    "cable", "cable_vjp", "decay", "decay_vjp", "forget_gate", "forget_gate_vjp", "gated_slopes", "gated_slopes_vjp",
    "two_sided", "two_sided_vjp", "with_sinks", "with_sinks_vjp",
]  # fmt: skip

_LEAST_NORM = 1e-6


# ---------------------------------------------------------------------------------------------------------------------
# Offsets of keys


def forget_gate(logits: Any, *, before: Any = 0.0) -> Array:
    """Return the key offsets -C_j of the forgetting transformer, where C_j is the sum of log sigmoid(logit_t) over t <=
    j.

    In the paper, the score of query i and key j has the term C_i - C_j: the logarithm of the product of the gates of
    tokens j + 1 to i. C_i is left out here, because it is the same for all keys of a query. This changes neither
    weights nor outputs, except with sinks (see `with_sinks`). The `lse` of attention does not contain C_i either.

    Parameters
    ----------
    logits : (..., N) floats
        Logits of the gates, one for each token and query head; (B, H, N) or (H, N) for attention.
    before : floats that broadcast to (..., 1)
        The offset of the last key before these tokens, if the tokens continue a sequence, as with a key/value cache.

    Returns
    -------
    (..., N) float64
        The key offsets. They are float64 because in float32 the error of a sum over 65,536 tokens would be 0.1.

    Raises
    ------
    TypeError, ValueError
        If an argument does not hold finite real numbers.

    References
    ----------
    Lin et al. 2025, "Forgetting Transformer: Softmax Attention with a Forget Gate" (ICLR).

    Examples
    --------
    >>> forget_gate([0.0, 0.0]).round(6).tolist(), forget_gate([0.0], before=0.693147).round(6).tolist()
    ([0.693147, 1.386294], [1.386294])
    """
    return forget_gate_vjp(logits, before=before)[0]


def forget_gate_vjp(logits: Any, *, before: Any = 0.0) -> tuple[Array, Pullback]:
    """Return the output of `forget_gate`, and its pullback, which returns a dict of gradients.

    The gradients are those of `logits` and `before`.

    >>> forget_gate_vjp([0.0, 0.0])[1]([1.0, 1.0])["logits"].tolist()
    [-1.0, -0.5]
    """
    own = given("logits", logits)
    found, pull = _summed(np.logaddexp(0.0, -own), before)

    def pullback(doffset: Any) -> dict[str, Array]:
        steps, dbefore = pull(doffset)
        return {"logits": like(-steps * expit(-own), logits), "before": like(dbefore, before)}

    return found, pullback


def cable(logits: Any, *, before: Any = 0.0) -> Array:
    """Return the key offsets of CABLE: for key j, the sum of softplus(logit_t) over t <= j.

    This equals `forget_gate` of -logits. The published code does not divide scores by sqrt(D): pass ``scale=1`` to
    attention.

    Parameters
    ----------
    logits, before
        As for `forget_gate`.

    Returns
    -------
    (..., N) float64

    Raises
    ------
    TypeError, ValueError
        As `forget_gate` does.

    References
    ----------
    "Context-aware Biases for Length Extrapolation", 2025 (arXiv:2503.08067); implemented from its code.

    Examples
    --------
    >>> cable([0.0, 0.0]).round(6).tolist()
    [0.693147, 1.386294]
    """
    return cable_vjp(logits, before=before)[0]


def cable_vjp(logits: Any, *, before: Any = 0.0) -> tuple[Array, Pullback]:
    """Return the output of `cable`, and its pullback, which returns a dict of gradients.

    The gradients are those of `logits` and `before`.

    >>> cable_vjp([0.0, 0.0])[1]([1.0, 1.0])["logits"].tolist()
    [1.0, 0.5]
    """
    found, pull = forget_gate_vjp(-given("logits", logits), before=before)

    def pullback(doffset: Any) -> dict[str, Array]:
        gradients = pull(doffset)
        return {"logits": like(-gradients["logits"], logits), "before": like(gradients["before"], before)}

    return found, pullback


def decay(steps: Any, log_rate: Any, *, before: Any = 0.0, weighs_keys: bool = False) -> Array:
    """Return key offsets that make attention weights decay like the states of Mamba-2.

    The offset of key j is the sum of Delta_t exp(log_rate) over t <= j, where Delta_t = softplus(steps_t).

    Parameters
    ----------
    steps : (..., H, N) floats
        Step sizes before softplus, one for each token and head.
    log_rate : (H,) floats
        The logarithm of -A, where A < 0 is the scalar of each head in Mamba-2.
    before
        As for `forget_gate`.
    weighs_keys : bool
        Whether Delta_j also multiplies the weight of key j, as in Mamba-2. If so, log Delta_j is added to the offset
        of key j. `before` must not contain this logarithm.

    Returns
    -------
    (..., H, N) float64

    Raises
    ------
    TypeError, ValueError
        If an argument does not hold finite real numbers, or log_rate does not have the shape (H,).

    References
    ----------
    Dao and Gu 2024, "Transformers are SSMs" (arXiv:2405.21060), section 3, whose 1-semiseparable mask is
    computed here as a bias.

    Examples
    --------
    >>> decay([[0.0, 0.0]], [0.0]).round(6).tolist()
    [[0.693147, 1.386294]]
    """
    return decay_vjp(steps, log_rate, before=before, weighs_keys=weighs_keys)[0]


def decay_vjp(steps: Any, log_rate: Any, *, before: Any = 0.0, weighs_keys: bool = False) -> tuple[Array, Pullback]:
    """Return the output of `decay`, and its pullback, which returns a dict of gradients.

    The gradients are those of `steps`, `log_rate` and `before`.

    >>> decay_vjp([[0.0, 0.0]], [0.0])[1]([[1.0, 1.0]])["log_rate"].round(6).tolist()
    [2.079442]
    """
    own, rate = given("steps", steps), np.exp(given("log_rate", log_rate))
    if own.ndim < 2 or rate.shape != own.shape[-2:-1]:
        raise ValueError(
            f"log_rate must have the shape (H,), with H as in steps (..., H, N) = {own.shape}, not {rate.shape}"
        )
    delta, weighs = np.logaddexp(0.0, own), truth("weighs_keys", weighs_keys)
    found, pull = _summed(delta * rate[:, None], before)

    def pullback(doffset: Any) -> dict[str, Array]:
        d, dbefore = pull(doffset)
        ddelta = d * rate[:, None] + (given("doffset", doffset) / delta if weighs else 0.0)
        drate = np.sum(d * delta, axis=-1).reshape(-1, rate.size).sum(axis=0)
        return {
            "steps": like(ddelta * expit(own), steps), "log_rate": like(drate * rate, log_rate),
            "before": like(dbefore, before),
        }  # fmt: skip

    return found + np.log(delta) if weighs else found, pullback


def _summed(steps: Array, before: Any) -> tuple[Array, Callable[[Any], tuple[Array, Array]]]:
    """Return running sums along the last axis, starting from `before`, and the pullback to steps and `before`."""
    start = given("before", before)
    found = np.cumsum(steps, axis=-1) + start

    def pullback(doffset: Any) -> tuple[Array, Array]:
        d = given("doffset", doffset)
        if d.shape != found.shape:
            raise ValueError(f"doffset must have the shape of the offsets, {found.shape}, not {d.shape}")
        return np.cumsum(d[..., ::-1], axis=-1)[..., ::-1], summed_to(d, start.shape)

    return found, pullback


def with_sinks(out: Any, lse: Any, sinks: Any, own_offset: Any) -> Array:
    """Return the output of attention with sinks, for key offsets that are running sums, as those of `forget_gate`.

    With such key offsets, the scores in `lse` lack the term C_i of the query (see `forget_gate`). The softmax must
    compare the score of a sink with scores that contain C_i. This function therefore subtracts the key offset at the
    query's own position, -C_i, from `lse`.

    Parameters
    ----------
    out : (B, H, N, Dv) floats
        Output of `fastpe.attention` without sinks. The axis B may be missing in all arguments.
    lse : (B, H, N) floats
        The second output of the same call of attention, with ``return_lse=True``.
    sinks : (H,) floats
        The score of one extra key per head; this key has no value.
    own_offset : (B or 1, H or 1, N) floats
        For each query, the `key_offset` of the key at the same position.

    Returns
    -------
    (B, H, N, Dv)
        out * sigmoid(lse - own_offset - sinks), in out's dtype.

    Raises
    ------
    TypeError, ValueError
        If an argument does not hold real numbers, or has the wrong shape.

    Examples
    --------
    >>> with_sinks(np.ones((1, 2, 1)), [[0.0, 3.0]], [0.0], [[0.0, 3.0]]).tolist()
    [[[0.5], [0.5]]]
    """
    return with_sinks_vjp(out, lse, sinks, own_offset)[0]


def with_sinks_vjp(out: Any, lse: Any, sinks: Any, own_offset: Any) -> tuple[Array, Pullback]:
    """Return the output of `with_sinks`, and its pullback, which returns a dict of the gradients of all arguments.

    Pass the gradients of `out` and `lse` to the pullback of attention.

    >>> with_sinks_vjp(np.ones((1, 1, 1)), [[0.0]], [0.0], [[0.0]])[1](np.ones((1, 1, 1)))["sinks"].tolist()
    [-0.25]
    """
    mixed, score, sink, offset = (
        given(name, x, finite=name in ("sinks", "own_offset"))
        for name, x in (("out", out), ("lse", lse), ("sinks", sinks), ("own_offset", own_offset))
    )
    fits = mixed.ndim in (3, 4) and score.shape == mixed.shape[:-1] and sink.shape == score.shape[-2:-1]
    led = (1,) * (score.ndim - offset.ndim) + offset.shape
    fits = fits and len(led) == score.ndim and led[-1] == score.shape[-1]
    if not fits or any(size not in (1, most) for size, most in zip(led, score.shape, strict=True)):
        raise ValueError(
            f"out, lse, sinks and own_offset must have the shapes (B, H, N, Dv), (B, H, N), (H,) and (B or 1, H or 1, "
            f"N), not {mixed.shape}, {score.shape}, {sink.shape} and {offset.shape}"
        )
    rest = expit(score - offset - sink[:, None])[..., None]

    def pullback(dout: Any) -> dict[str, Array]:
        d = given("dout", dout)
        dscore = np.sum(rest * (1 - rest) * mixed * d, axis=-1)
        dsinks = -summed_to(dscore, (*sink.shape, 1))[..., 0]
        return {
            "out": like(rest * d, out), "lse": like(dscore, lse), "sinks": like(dsinks, sinks),
            "own_offset": like(-summed_to(dscore, offset.shape), own_offset),
        }  # fmt: skip

    return like(rest * mixed, out), pullback


# ---------------------------------------------------------------------------------------------------------------------
# Slopes


def gated_slopes(x: Any, direction: Any, *, slopes: Any, weight: Any) -> Array:
    """Return the slopes of GRAPE-A: slopes * softplus(weight) * softplus(u . x / sqrt(D)).

    Here u is `direction` divided by its norm. Pass the result to attention as `key_slope` if x are keys, and as
    `query_slope` if x are queries. If you pass both, attention adds both terms to the score.

    Parameters
    ----------
    x : (B, Hk, N, D) or (Hk, N, D) floats
        Keys or queries as attention receives them (after normalisation, before rotation); Hk divides H.
    direction : (H, D) floats
        Learned directions; they are normalised before use.
    slopes : (H,) floats
        The slopes of ALiBi, which are not learned.
    weight : (H,) floats
        Learned weights; softplus(0.541324855) is 1.

    Returns
    -------
    (B, H, N) or (H, N)
        In x's dtype.

    Raises
    ------
    TypeError, ValueError
        If an argument does not hold finite real numbers, or has the wrong shape.

    References
    ----------
    GRAPE (ICLR 2026); implemented from its code: llama-mha-grape-a-{key,query,querykey}gated.

    Examples
    --------
    >>> gated_slopes([[[0.0, 3.0]]], [[2.0, 0.0]], slopes=[0.5], weight=[0.541324855]).round(6).tolist()
    [[0.346574]]
    """
    return gated_slopes_vjp(x, direction, slopes=slopes, weight=weight)[0]


def gated_slopes_vjp(x: Any, direction: Any, *, slopes: Any, weight: Any) -> tuple[Array, Pullback]:
    """Return the output of `gated_slopes`, and its pullback, which returns a dict of gradients.

    The gradients are those of `x`, `direction` and `weight`.

    >>> pull = gated_slopes_vjp([[[0.0, 3.0]]], [[2.0, 0.0]], slopes=[0.5], weight=[0.0])[1]
    >>> pull([[1.0]])["weight"].round(6).tolist()
    [0.173287]
    """
    own, u = given("x", x), given("direction", direction)
    sigma, w = given("slopes", slopes), given("weight", weight)
    if own.ndim not in (3, 4) or u.ndim != 2 or u.shape[1] != own.shape[-1] or len(u) % own.shape[-3]:
        raise ValueError(
            f"direction must have the shape (H, D), with D and a multiple H of Hk as in x (B, Hk, N, D), not {u.shape} "
            f"for x {own.shape}"
        )
    for name, array in (("slopes", sigma), ("weight", w)):
        if array.shape != u.shape[:1]:
            raise ValueError(f"{name} must have the shape (H,) = ({len(u)},), not {array.shape}")
    group, norm = len(u) // own.shape[-3], np.linalg.norm(u, axis=-1, keepdims=True)
    repeated, size, root = np.repeat(own, group, axis=-3), np.maximum(norm, _LEAST_NORM), np.sqrt(own.shape[-1])
    unit = u / size
    z = np.einsum("...hnd,hd->...hn", repeated, unit) / root
    gate, factor = np.logaddexp(0.0, z), (sigma * np.logaddexp(0.0, w))[:, None]

    def pullback(dslope: Any) -> dict[str, Array]:
        d = given("dslope", dslope)
        dw = summed_to(d * gate, (len(u), 1))[..., 0] * sigma * expit(w)
        dz = d * factor * expit(z) / root
        dx = (dz[..., None] * unit[:, None]).reshape(*own.shape[:-2], group, *own.shape[-2:])
        dunit = summed_to(np.einsum("...hn,...hnd->...hd", dz, repeated), u.shape)
        along = np.sum(unit * dunit, axis=-1, keepdims=True)
        du = (dunit - np.where(norm > _LEAST_NORM, along * unit, 0.0)) / size
        return {"x": like(dx.sum(axis=-3), x), "direction": like(du, direction), "weight": like(dw, weight)}

    return like(factor * gate, x), pullback
