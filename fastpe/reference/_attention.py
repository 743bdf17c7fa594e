"""Attention with every slot of the score, and its gradients, in plain NumPy; public as `fastpe.reference.attention`.

For query i and key j::

    content_ij = row_scale_i sum_d q^_id k^_jd rel_gain[j-i, d]
    inner_ij = content_ij + q_i . rel_key[j-i] + k_j . rel_query[j-i] + key_bias . k_j
    u_ij = s inner_ij,  or  max(u_ij, 0) if rectify
    c_ij = gain[j-i] u_ij
    S_ij = c_ij + bias[j-i] + values[index_ij] + scores_ij + key_offset_j + (j-i) (key_slope_j + query_slope_i)
           + (1 - w) q_i . counts[floor p_ij] + w q_i . counts[ceil p_ij],      w = p_ij - floor p_ij,
    p_ij = min(sum of sigmoid(c_it) over the keys t >= j that query i sees, P - 1)

    P_i = softmax of S_i over the visible keys,      out_i = sum_j P_ij (v_j + rel_value[j-i])

- q^ and k^ are q and k after these steps: mapped by ``rotors`` or converted to ``polar`` form, rotated, and multiplied
  by ``growth``. With `bands`, rotations use the rotary offsets of the bands.
- s is ``scale``.
- With ``reflectors`` (w), content_ij is q_i H_i H_(i-1) ... H_(j+1) k_j, where H_t = 1 - reflect_t w_t w_t^T.
- With a network, W2 lrelu(W1 [c, b] + b1) is added to S, where b is the sum of all that ``bias``, ``values`` and
  ``scores`` add to c: see `_mlp`.

Each stage below is a function that returns its value and a pullback. A pullback takes the gradient of the value, adds
to the gradients of the arrays that the stage has read, and returns the gradient of the stage's input.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fastpe.base.validation import shown
from fastpe.reference._case import Array, Case, Gradients, check
from fastpe.reference._nonfinite import times, where_nonzero
from fastpe.reference._rounding import Rounding, like
from fastpe.reference._score import inner_products, logits_of
from fastpe.reference._sizes import Sizes


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: int | None = None,
    lengths: Any = None,
    mask: Any = None,
    spans: Any = None,
    query_start: Any = None,
    softcap: float | None = None,
    sinks: Any = None,
    dropout: float = 0.0,
    dropout_seed: int | None = None,
    bands: Any = None,
    tolerance: float | None = None,
    return_lse: bool = False,
    **slots: Any,
) -> Any:
    """Return softmax attention in float64 with any combination of slots.

    A key or value with NaN or infinity affects only the queries that see it, because a key with weight 0 adds nothing.

    Parameters
    ----------
    q : (B, H, N, D), (H, N, D) or (N, D) of floats
        Queries. Query i is at position i + M - N.
    k : (B, Hk, M, D), (Hk, M, D) or (M, D) of floats, with as many axes as q
        Keys. Hk divides H; query head h uses key head h // (H / Hk).
    v : (B, Hk, M, Dv) of floats
        Values.
    causal : bool
        Whether keys after the query's position are hidden.
    window : int, optional
        Keys are visible only where ``|query position - key position| < window``.
    lengths : (B,) int, or a tuple (queries, keys) of two such arrays, optional
        Number of keys, or of queries and keys, that are not padding. Padding keys are hidden, and outputs of padding
        queries are zeros. Positions are those of the padded arrays. Without an axis B, each length is one integer. In a
        tuple, None means no padding.
    mask, spans, query_start, softcap, sinks, dropout, dropout_seed, bands
        As for `fastpe.attention`.
    tolerance : float, optional
        Ignored: this function skips nothing.
    return_lse : bool
        Whether to also return the logarithm of the softmax denominator.
    **slots
        The slots in the table of `fastpe.attention`. Combinations marked "reference only" are supported, too; those
        marked "not with" are not. None is the same as not given. In arrays with 2K+1 rows, offsets j - i are clipped to
        -K .. K. L is max(N, M). Some slots in more detail:

        - ``mlp_in``, ``mlp_bias`` and ``mlp_out`` are W1, b1 and W2 of a network that maps the scores and biases of all
          heads; see `dape`.
        - ``reflectors`` holds a direction for each token, and ``reflect`` a strength. A query is reflected by the
          tokens from its own position back to the token after the key; see `path`.
        - ``counts`` holds a vector for each number of counted keys; see `cope`.
        - ``polar`` holds a phase for each channel. A channel x becomes a pair: softplus(x) times the cosine and the
          sine of the phase, which is 0 for queries. ``angles`` (H or 1, L, D) then rotate these pairs.
        - ``growth`` holds natural logarithms. ``theta`` holds radians per unit of the positions in `bands`.
        - ``scale`` is a float or (H,), by default 1/sqrt(D). ``rectify`` is a bool.
        - ``pairs`` is ``"interleaved"`` (default) or ``"half"``. With ``"half"``, block r of ``rotors`` consists of the
          channels r, r + D/b, r + 2 D/b, ....
        - ``index`` and ``scores`` may also be (L, L): the last N rows and M columns are used.

    Returns
    -------
    out : (B, H, N, Dv) float64
        The axes B and H are present only if q has them. Outputs of queries that see no key are zero.
    lse : (B, H, N) float64
        Only if `return_lse`: the logarithms of the softmax denominators; -inf for queries that see neither a key nor a
        sink.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or shape; the message names it.

    References
    ----------
    Vaswani et al. 2017, "Attention is all you need", eq. (1).

    Examples
    --------
    >>> q = k = np.zeros((1, 3, 2))
    >>> v = np.array([[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]])
    >>> attention(q, k, v, causal=True)[0].tolist()
    [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]
    """
    slots |= {"mask": mask, "spans": spans, "query_start": query_start, "softcap": softcap, "sinks": sinks}
    slots |= {"dropout": dropout, "dropout_seed": dropout_seed, "bands": bands}
    case = check(np.float64, q, k, v, causal=causal, window=window, lengths=lengths, return_lse=return_lse, slots=slots)
    return _forward_and_pullback(case)[0]


def attention_vjp(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: int | None = None,
    lengths: Any = None,
    mask: Any = None,
    spans: Any = None,
    query_start: Any = None,
    softcap: float | None = None,
    sinks: Any = None,
    dropout: float = 0.0,
    dropout_seed: int | None = None,
    bands: Any = None,
    tolerance: float | None = None,
    return_lse: bool = False,
    wrt: tuple[str, ...] | None = None,
    **slots: Any,
) -> tuple[Any, Callable[[Any], dict[str, Array]]]:
    """Return the output of `attention`, and its pullback, which returns a dict of gradients.

    Parameters
    ----------
    q, k, v, causal, window, lengths, mask, spans, query_start, softcap, sinks, dropout, dropout_seed, bands, \
    tolerance, return_lse, **slots
        As for `attention`.
    wrt : tuple of str, optional
        The arguments whose gradients are computed. By default q, k, v and all slots that you pass, except ``index``,
        ``rectify`` and ``pairs``, which have no gradient.

    Returns
    -------
    out : array, or (array, array)
        What `attention` returns.
    pullback : callable
        ``pullback(dout)`` takes the gradient with respect to `out`, and returns a dict: argument name -> gradient, in
        float64 and in the shape of the argument.

    Raises
    ------
    TypeError, ValueError
        As for `attention`; also if `wrt` names an argument that is not given or has no gradient.

    Examples
    --------
    >>> q = k = v = np.ones((1, 2, 4))
    >>> out, pullback = attention_vjp(q, k, v, bias=np.zeros((1, 3)))
    >>> sorted(pullback(np.ones_like(out)))
    ['bias', 'k', 'q', 'v']
    """
    slots |= {"mask": mask, "spans": spans, "query_start": query_start, "softcap": softcap, "sinks": sinks}
    slots |= {"dropout": dropout, "dropout_seed": dropout_seed, "bands": bands}
    case = check(
        np.float64, q, k, v, causal=causal, window=window, lengths=lengths, return_lse=return_lse, wrt=wrt, slots=slots
    )
    return _forward_and_pullback(case)


STAGES = ("products", "biased", "capped", "masked", "weights", "dropped")


def attention_scores(
    q: Any, k: Any, *, stage: str = "weights", causal: bool = False, window: int | None = None, lengths: Any = None,
    mask: Any = None, spans: Any = None, query_start: Any = None, softcap: float | None = None, sinks: Any = None,
    dropout: float = 0.0, dropout_seed: int | None = None, **slots: Any,
) -> Array:  # fmt: skip
    """Return an intermediate result of `attention` for every query and key, as a dense array for inspection.

    `attention` itself never stores these N x M entries. This function computes them in plain NumPy, and needs the
    memory of several such arrays.

    Parameters
    ----------
    q, k, causal, window, lengths, mask, spans, query_start, softcap, sinks, dropout, dropout_seed, **slots
        As for `fastpe.attention`. `rel_value` is accepted, but has no effect on scores.
    stage : {"products", "biased", "capped", "masked", "weights", "dropped"}
        The result to return:

        - "products": inner products times the scale;
        - "biased": after all slots that change the scaled products: ``gain``, ``bias``, ``values``, ``scores``,
          ``key_offset``, ``key_slope``, ``query_slope`` and similar ones;
        - "capped": after the softcap;
        - "masked": after the mask; scores of hidden keys are minus infinity;
        - "weights": after the softmax; weights of hidden keys are zero;
        - "dropped": after dropout.

        If the arguments of a stage are not given, the stage changes nothing: without a softcap, "capped" equals
        "biased".

    Returns
    -------
    (B, H, N, M)
        In q's dtype, computed in float64. The axes B and H are present only if q has them.

    Raises
    ------
    TypeError, ValueError
        As for `attention`; also ValueError if `stage` is unknown.

    References
    ----------
    The operator Attention of ONNX (opset 23) can return four of these stages, in its output ``qk_matmul_output``.

    Examples
    --------
    >>> q = np.zeros((1, 3, 2))
    >>> attention_scores(q, q, causal=True)[0, 1].tolist()
    [0.5, 0.5, 0.0]
    """
    if not isinstance(stage, str) or stage not in STAGES:
        raise ValueError(f"stage must be one of {', '.join(map(repr, STAGES))}, not {shown(stage)}")
    slots |= {"mask": mask, "spans": spans, "query_start": query_start, "softcap": softcap, "sinks": sinks}
    slots |= {"dropout": dropout, "dropout_seed": dropout_seed, "rel_value": None}
    case = check(np.float64, q, k, k, causal=causal, window=window, lengths=lengths, slots=slots)
    return case.call.without_axes(_at_stage(case, stage)).astype(case.call.dtype)


def _at_stage(case: Case, stage: str) -> Array:
    inner, _ = inner_products(case)
    cut = case.rectify & (case.scale * inner <= 0)
    if stage == "products":
        return np.where(cut, 0, case.scale * inner)
    logits, _ = logits_of(replace(case, softcap=0.0) if stage == "biased" else case, inner, cut)
    if stage in ("biased", "capped"):
        return np.broadcast_to(logits, case.q.shape[:3] + case.k.shape[2:3])
    if stage == "masked":
        return np.where(case.visible, logits + case.mask, -np.inf)
    weights, _, _ = _masked_softmax(logits + case.mask, case.visible, case.slots.get("sinks"))
    return weights if stage == "weights" or case.dropped is None else case.dropped * weights


def attention_vjp_in(
    dtype: Any, q: Array, k: Array, v: Array, *, causal: Any = False, window: Any = None, lengths: Any = None,
    return_lse: Any = False, factors: Array | None = None, follows: bool = False, **slots: Any,
) -> tuple[Any, Callable[[Array], dict[str, Array]]]:  # fmt: skip
    """Compute `attention_vjp` in another dtype, such as float32, for error bounds in tests.

    `factors` (B, H, N, M) multiply the weights before values are mixed (dropout). `follows` is as in `Case`.
    """
    case = check(dtype, q, k, v, causal=causal, window=window, lengths=lengths, return_lse=return_lse, slots=slots)
    if isinstance(q, Rounding) and not {"reflectors", "mlp_in"} & slots.keys():  # kernels do not round with these two
        named = [name for name in ("rel_key", "rel_query", "rel_value", "counts") if name in case.slots]
        rows = {name: like(case.slots[name], q) for name in named}
        case = replace(case, q=like(case.q, q), k=like(case.k, q), v=like(case.v, q), slots=case.slots | rows)
    dropped = case.dropped if factors is None else factors.astype(dtype)
    return _forward_and_pullback(replace(case, dropped=dropped, follows=follows))


# q, k, v and dout may hold NaN and infinity; they pass to the results without a warning
_without_warnings = np.errstate(over="ignore", invalid="ignore", divide="ignore")


@_without_warnings
def _forward_and_pullback(case: Case) -> tuple[Any, Callable[[Any], dict[str, Array]]]:
    factors = case.dropped
    inner, inner_pullback = inner_products(case)
    inner = where_nonzero(case.visible, inner)
    cut = case.rectify & (case.scale * inner <= 0)
    logits, logits_pullback = logits_of(case, inner, cut)
    weights, lse, drained = _masked_softmax(logits + case.mask, case.visible, case.slots.get("sinks"))
    out, mix_pullback = _mix(case, weights if factors is None else factors * weights)

    def out_pullback(dout: Array, gradients: Gradients) -> Array:
        dmixed = mix_pullback(dout, gradients)
        return dmixed if factors is None else factors * dmixed

    def dlogits_of(dout: Array, dlse: Any, gradients: Gradients) -> Array:
        dweights = where_nonzero(weights, out_pullback(dout, gradients))
        # both sums are equal up to the rounding of operands; kernels compute the one with the output, which they have
        deltas = np.sum(dout * out if isinstance(case.q, Rounding) else weights * dweights, axis=-1) - dlse
        gradients.add("sinks", -(drained * deltas).sum(axis=-1))
        return where_nonzero(weights, weights * (dweights - deltas[..., None]))

    @_without_warnings
    def pullback(dout: Any) -> dict[str, Array]:
        gradients, dlse = Gradients(case), np.zeros(case.q.shape[:-1], case.q.dtype)
        if case.return_lse and isinstance(dout, tuple) and len(dout) == 2:
            dout, dlse = dout[0], case.check_dlse(dout[1])
        dout = like(case.check_dout(dout), case.q)
        dlogits = dlogits_of(dout, dlse, gradients)
        gradients.add("mask", dlogits)
        inner_pullback(like(logits_pullback(dlogits, gradients), case.q), gradients)
        found = gradients.finish()
        if isinstance(dout, Sizes):
            sizes = sizes_of_factors(np.asarray(dout), np.asarray(dlse))
            found = {name: np.maximum(found[name], size) for name, size in sizes.items()}
        return found

    def sizes_of_factors(dout: Array, dlse: Array) -> dict[str, Array]:
        """Return the sizes of the errors that gradients get from the errors of their factors.

        A factor, such as a rotated query or a score, is a computed sum itself. It may be small because large terms
        cancel, and then has the rounding errors of these terms.
        """
        dlogits = dlogits_of(dout, dlse, Gradients(case))
        inner_sizes, pull = inner_products(replace(case, q=case.q.view(Sizes), k=case.k.view(Sizes)))
        gradients = Gradients(case)
        pull(logits_of(case, inner_sizes, cut)[1](np.abs(dlogits).view(Sizes), gradients), gradients)
        return gradients.finish()

    shaped, lse = (case.call.without_axes(x) for x in (out, lse))
    return ((shaped, lse) if case.return_lse else shaped), pullback


def _masked_softmax(logits: Array, visible: Array, sinks: Array | None) -> tuple[Array, Array, Array]:
    """Return the softmax over visible keys and sinks, the logarithm of its denominator, and the weights of the sinks.

    In rows without visible keys and sinks, weights are 0 and the logarithm is -inf.
    """
    logits = np.where(visible, logits, -np.inf)
    top = logits.max(axis=-1, keepdims=True, initial=-np.inf)
    sink = np.full(top.shape, -np.inf, logits.dtype) if sinks is None else sinks[..., None, None]
    top = np.maximum(top, sink)
    empty = top == -np.inf
    shift = np.where(empty, 0, top)
    powers, drain = np.exp(logits - shift), np.exp(sink - shift)
    total = np.where(empty, 1, powers.sum(axis=-1, keepdims=True) + drain)
    lse = np.where(empty, -np.inf, top + np.log(total))
    weights = np.where(visible, powers / total, 0)  # also in rows with a NaN total
    return weights, lse[..., 0], (drain / total)[..., 0]


def _mix(case: Case, weights: Array) -> tuple[Array, Callable[[Array, Gradients], Array]]:
    v, rel_value = case.v, case.slots.get("rel_value")
    out = times(weights, v)
    if rel_value is not None:
        out = out + case.scatter(weights, "rel_value") @ rel_value

    def pullback(dout: Array, gradients: Gradients) -> Array:
        gradients.add("v", times(_t(weights), dout))
        dweights = dout @ _t(v)
        if rel_value is not None:
            gradients.add("rel_value", _t(case.scatter(weights, "rel_value")) @ dout)
            dweights = dweights + case.gather(dout @ _t(rel_value), "rel_value")
        return dweights

    return out, pullback


def _t(matrices: Array) -> Array:
    return np.swapaxes(matrices, -1, -2)
