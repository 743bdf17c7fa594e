"""Attention with every slot, and its gradients, in O(N) memory: `attention` and `attention_vjp`.

This module checks the arguments and chooses the class that computes the call: `Pass`, `Networked` (DAPE) or
`SplitSoftmax` (bands). `Pass` runs the kernels of `kernels.attention`.
"""

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastpe.base.validation import at_least_zero
from fastpe.functional import arguments, decode
from fastpe.functional.arguments import Array, Call
from fastpe.functional.bands import Band
from fastpe.functional.dape import Networked
from fastpe.functional.passes import Pass
from fastpe.functional.result import Result
from fastpe.functional.slots import check_kernels, documented, names_of
from fastpe.functional.split_softmax import SplitSoftmax, part

_OTHER_DTYPES = {*names_of("float64"), *names_of("int32")}
_LARGEST = {np.dtype(kind): np.finfo(kind).max for kind in (np.float32, np.float64)}


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
    """Softmax attention with position terms ("slots"), computed in tiles: memory is O(N), not O(N^2).

    Parameters
    ----------
    q : (B, H, N, D), (H, N, D) or (N, D) float64, float32, float16 or bfloat16
        Queries. Query i is at position i + M - N. For half precision (bfloat16 from `ml_dtypes`), the computation is in
        float32. Exception: with at least 64 queries and keys, products of bfloat16 inputs use bfloat16 operands and
        float32 sums if the CPU has instructions for them.
    k : (B, Hk, M, D), (Hk, M, D) or (M, D) of q's dtype, with as many axes as q
        Keys. Hk divides H; query head h uses key head h // (H / Hk).
    v : (B, Hk, M, Dv), of q's dtype
        Values.
    causal : bool
        Whether keys after the query's position are hidden.
    window : int, optional
        Keys are visible only where ``|query position - key position| < window``.
    lengths : (B,) int, or a tuple (queries, keys) of two such arrays, optional
        Number of keys, or of queries and keys, that are not padding. Padding keys are hidden, and outputs of padding
        queries are zeros. Padding takes no time. If q has no axis B, each length is one integer. In a tuple, None means
        no padding.
    mask : bool or floats that broadcast to (B, H, N, M), optional
        A bool mask is True where a key is visible. A mask of floats is added to the scores last; minus infinity hides a
        key. Tiles that are hidden completely are skipped. If the keys that each query sees are contiguous, the mask
        adds no cost.
    spans : (B or 1, N, 2) int, optional
        The range of visible keys for each query: the index of the first one, and the index after the last one. Any
        integer dtype is accepted. Indices are clipped to the range from 0 to M. See `fastpe.spans`.
    query_start : int or (B,) int, optional
        The position of the first query, from 0 to 2**40; by default M - N. Key j is at position j. With `query_start`,
        a slot whose axis is max(N, M) in the table below has one row for each position, starting at position 0, and at
        least max(M, N + query_start) rows.
    softcap : float, optional
        Each score S is replaced by softcap tanh(S / softcap), before the mask.
    sinks : (H,) floats, optional
        Score of one extra key per head; this key has no value (as in gpt-oss).
    dropout : float
        Probability that an attention weight is dropped; the other weights are divided by 1 - dropout.
    dropout_seed : int, optional
        Seed from 0 to 2**64 - 1. Whether a weight is dropped depends only on this seed and on the sample, head, query
        and key of the weight.
    bands : tuple of fastpe.bands.Band, optional
        Sets of rotary positions of queries and keys. Each band applies to a range of keys for each query. Keys in no
        band are hidden. Bands need the slot ``theta``. They cannot be combined with ``rotors``, ``polar``, ``angles``,
        ``growth``, ``counts``, ``rel_gain`` or ``reflectors``. See `fastpe.bands`.
    tolerance : float, optional
        Tiles of keys are skipped if, for each query, the skipped softmax weights provably sum to at most this value.
        The default is a quarter of the dtype's precision; 0 skips nothing. See `kernels.attention`.
    return_lse : bool
        Whether to also return the logarithm of the softmax denominator.
    **slots
        Position terms by name: see the table below. A slot that is None is not used. Three options are passed in the
        same way:

        - ``scale``: a float or (H,) floats, by default 1/sqrt(D). Products of queries and keys are multiplied by it. It
          has a gradient.
        - ``rectify``: a bool. Whether negative products become 0.
        - ``pairs``: "interleaved" or "half". Which channels form a pair, as for `fastpe.rotate`.

    Returns
    -------
    out : (B, H, N, Dv)
        In q's dtype. The axes B and H are present only if q has them. Outputs of queries that see no key are zero.
    lse : (B, H, N)
        Only if `return_lse`: the logarithms of the softmax denominators; -inf for queries that see neither a key nor a
        sink.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type, shape or values; the message names it.

    Notes
    -----
    **Slots.** Every array may have a leading axis B or 1, unless the table says "no axis B". Arrays have q's dtype.
    Arrays that are "read in float64" may have any float dtype. In an axis of size 2K+1, the entries are for the offsets
    (key position - query position) from -K to K, for any K; larger offsets use the first or the last entry. R is the
    number of rotated channels; it is even and at most D. b divides D. V, P and W may have any size. "Gradient" says
    whether `attention_vjp` can differentiate with respect to the slot. "Not with" lists what cannot be combined with
    the slot. "Reference only with" lists what only `fastpe.reference.attention` can combine with it. All other
    combinations are supported.

    {slots}

    **Decoding.** A faster path is used for calls with at most 4 queries, as in text generation. It needs q, k and v
    with all four axes, and supports only these arguments: causal, window, return_lse, bias, key_offset, lengths, mask,
    query_start, scale, sinks, softcap and spans. Results of the two paths differ only by rounding errors. With rotary
    encodings, store rotated keys in the cache: rotate each new key once with `fastpe.rotate`. Rotate each query in the
    same way when it is used, and do not pass `angles`.

    **DAPE and PaTH.** With ``mlp_in`` (DAPE, `fastpe.reference.dape`) or ``reflectors`` (PaTH,
    `fastpe.reference.path`), half-precision inputs are computed in float32, and only the output is rounded. ``mlp_in``
    has at most 63 taps. Reflections act on queries and keys after ``rotors``, ``angles`` and ``row_scale``. Tokens
    whose keys are hidden still reflect; padding tokens do not.

    **Precision.** ``key_offset`` may contain sums over a long sequence (`fastpe.columns`). Precision is lost only if a
    mask hides keys whose offsets are far larger than the offsets of visible keys.

    **NaN and infinity** in q, k and v raise no error. In a key or its value, they affect only the outputs of queries
    that see the key, no matter which of `causal`, `window`, `lengths`, `mask` and `spans` hides it from the other
    queries. The same holds for gradients: the gradient of a query that sees no affected key is correct, and so is the
    gradient of a key that no affected query sees. There are three exceptions:

    - Gradients of the slots ``angles``, ``growth`` and ``rotors`` contain NaN in the row of an affected query or key.
    - The output of a query that sees an affected key may be finite, because the weight of the key underflows to 0 or
      its tile is skipped. So `tolerance` = 0 can give NaN where the default does not.
    - With ``reflectors`` or ``mlp_in``, several queries are computed together. Therefore NaN may reach queries that do
      not see the affected key.

    References
    ----------
    Vaswani et al. 2017, eq. (1); Milakov and Gimelshein 2018 (arXiv:1805.02867) for the running maximum.

    Examples
    --------
    >>> import fastpe
    >>> q = k = np.zeros((1, 3, 2))
    >>> v = np.array([[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]])
    >>> fastpe.attention(q, k, v, causal=True)[0].tolist()
    [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]
    """
    if tolerance is bands is dropout_seed is None and dropout == 0.0 and slots.keys() <= decode.SLOTS:
        visibility = lengths, mask, spans, query_start
        few = decode.attend(q, k, v, causal, window, return_lse, *visibility, softcap, sinks, **slots)
        if few is not None:
            return few
    slots |= {"mask": mask, "spans": spans, "query_start": query_start, "softcap": softcap, "sinks": sinks}
    slots |= {"dropout": dropout, "dropout_seed": dropout_seed, "bands": bands}
    call = checked(q, k, v, causal, window, lengths, return_lse, (), slots, reads_halves=True)
    return dispatch(call, checked_tolerance(tolerance, call.computed)).outputs()


def _with_table_of_slots(doc: str | None) -> str | None:
    return doc and doc.replace("    {slots}", textwrap.indent(documented(), " " * 4))


attention.__doc__ = _with_table_of_slots(attention.__doc__)


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
        As for `attention`. `pullback` reads these arrays again, so do not change them before you call it. The
        exceptions are ``index``, `lengths`, `spans`, `query_start` and `bands`, which are copied.
    wrt : tuple of str, optional
        The arguments whose gradients are computed. By default q, k, v, and those that you pass among `sinks`, a `mask`
        of floats, and the slots except ``index``, ``rectify`` and ``pairs``, which have no gradient.

    Returns
    -------
    out : array, or (array, array)
        What `attention` returns.
    pullback : callable
        ``pullback(dout)`` takes the gradient with respect to `out`, and returns a dict: argument name -> gradient, in
        the shape and dtype of the argument. With `return_lse`, ``pullback((dout, dlse))`` is also possible.

    Raises
    ------
    TypeError, ValueError
        As for `attention`; also if `wrt` is not a tuple of names, or if it names an argument that is not given or has
        no gradient.

    Notes
    -----
    NaN and infinity in q, k, v and `dout` spread only between queries and the keys that they see. The notes of
    `attention` state the exceptions.

    References
    ----------
    Dao 2023, FlashAttention-2 (arXiv:2307.08691), algorithm 2.

    Examples
    --------
    >>> import fastpe
    >>> q = k = v = np.ones((1, 2, 4))
    >>> out, pullback = fastpe.attention_vjp(q, k, v, bias=np.zeros((1, 3)))
    >>> sorted(pullback(np.ones_like(out)))
    ['bias', 'k', 'q', 'v']
    """
    slots |= {"mask": mask, "spans": spans, "query_start": query_start, "softcap": softcap, "sinks": sinks}
    slots |= {"dropout": dropout, "dropout_seed": dropout_seed, "bands": bands}
    call = checked(q, k, v, causal, window, lengths, return_lse, wrt, slots)
    done = dispatch(call, checked_tolerance(tolerance, call.computed))
    outputs = done.outputs()  # the pullback keeps the originals: callers may modify the returned outputs in place
    kept = tuple(x.copy() for x in outputs) if isinstance(outputs, tuple) else outputs.copy()
    return kept, done.pullback


def gradients(
    out: Array, lse: Array, dout: Any, q: Any, k: Any, v: Any, *, causal: bool, window: int | None, lengths: Any,
    tolerance: float | None, wrt: tuple[str, ...], rounds: bool = False, **slots: Any,
) -> dict[str, Array]:  # fmt: skip
    """Return what the pullback of `attention_vjp` returns for `dout` or (dout, dlse).

    `out` and `lse` are the results of an earlier forward pass. `rounds` is as for `Pass`.
    """
    call = checked(q, k, v, causal, window, lengths, True, wrt, slots)
    # With key_offset, lse may be so large that its rounding is too coarse to recompute weights from it. With counts,
    # the forward pass is needed for the running counts.
    known = None if {"key_offset", "counts"} & call.slots.keys() else (out, lse)
    return dispatch(call, checked_tolerance(tolerance, call.computed), known, rounds=rounds).pullback(dout)


def rounded(
    q: Any, k: Any, v: Any, *, causal: bool, window: int | None, lengths: Any, tolerance: float | None, **slots: Any
) -> tuple[Array, Array]:
    """Return output and lse of `attention` for q, k and v that hold bfloat16 values in float32 arrays, for callers
    without NumPy arrays of bfloat16."""
    call = checked(q, k, v, causal, window, lengths, True, (), slots)
    out, lse = dispatch(call, checked_tolerance(tolerance, call.computed), rounds=True).outputs()
    return out, lse


def dispatch(
    call: Call, tolerance: float, known: tuple[Array, Array] | None = None, *, rounds: bool = False
) -> Result | SplitSoftmax:
    """Run the forward passes of a call, and return the object that has its outputs and its pullback. The arguments are
    those of `Pass`.
    """
    if "mlp_in" in call.slots:
        return Networked(call.widened(), known)
    if "reflectors" in call.slots:  # products never round to bfloat16
        return Pass(call.widened() if call.q.dtype.itemsize == 2 else call, 0.0, known)
    if not call.bands or call.empty:
        return Pass(call, tolerance, known, rounds=rounds)
    calls = [_of_band(call, band) for band in call.bands]
    met = [each for each in calls if np.any(each.bands[0].spans[..., 0] < each.bands[0].spans[..., 1])]
    # the tolerance is divided equally among the bands
    passes = [Pass(each, tolerance / len(calls), known, rounds=rounds) for each in met or calls[:1]]
    return SplitSoftmax(call, passes, known)


def _of_band(call: Call, band: Band) -> Call:
    """Return the call restricted to the keys of one band."""
    own, spans = part(call, band.spans)
    return own._replace(bands=(band._replace(spans=spans),))


def checked(
    q: Any, k: Any, v: Any, causal: bool, window: int | None, lengths: Any, return_lse: bool,
    wrt: tuple[str, ...] | None, slots: Mapping[str, Any], *, reads_halves: bool = False,
) -> Call:  # fmt: skip
    """Check the arguments as `arguments.check` does, with the same `reads_halves`. Also check that all arrays have q's
    dtype, that slots are finite, and that there is a kernel."""
    call = arguments.check(
        q, k, v, causal=causal, window=window, lengths=lengths, return_lse=return_lse, wrt=wrt, slots=slots,
        reads_halves=reads_halves,
    )  # fmt: skip
    check_kernels(call.slots.keys() | ({"bands"} if call.bands else set()))
    dtype = call.computed
    for name in ("k", "v"):
        if name in call.dtypes and call.dtypes[name] != call.dtype:
            raise TypeError(f"{name} must have the dtype of q, {call.dtype}, not {call.dtypes[name]}")
    for name, array in call.slots.items():
        if name not in _OTHER_DTYPES and array.dtype != dtype:
            raise TypeError(f"{name} must have the dtype of q, {dtype}, not {array.dtype}")
        if name != "index" and not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite")
    if slots.get("scale") is not None and not np.abs(call.scale).max() <= _LARGEST[dtype]:
        raise ValueError(f"scale must be finite in {dtype}, not {call.scale.tolist()}")
    return call


def checked_tolerance(tolerance: float | None, dtype: np.dtype[Any]) -> float:
    """Return the checked tolerance, by default a quarter of the dtype's precision."""
    if tolerance is None:
        return float(np.finfo(dtype).eps) / 4
    return at_least_zero("tolerance", tolerance, below=1.0)
