"""Attention with every slot of the score, and its gradients, in O(N) memory: `attention` and `attention_vjp`.

Arguments are checked here; `passes` does the work with the kernels of `kernels.attention`.
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
    """Softmax attention with any combination of slots, in tiles: no array of N x N entries is made.

    Parameters
    ----------
    q : (B, H, N, D), (H, N, D) or (N, D) float64, float32, float16 or bfloat16
        Queries. Query i sits at position i + M - N. Half precision (bfloat16 as `ml_dtypes` has it) is computed in
        float32; but of bfloat16, from 64 queries and keys on, products have operands rounded to it where the CPU has
        instructions for that, and float32 sums.
    k : (B, Hk, M, D), or with as few axes as q, of q's dtype
        Keys; Hk divides H, and query head h reads their head h // (H / Hk).
    v : (B, Hk, M, Dv), of q's dtype
        Values.
    causal : bool
        Whether keys after the query's position are hidden.
    window : int, optional
        Keys are visible only where |query position - key position| < window.
    lengths : (B,) int, or a tuple of two such, (queries, keys), optional
        Keys and queries from there on are padding: nothing is computed for them, and such queries give zeros. Without B
        a length is one integer; of a pair, None stands for no padding.
    mask : bool or floats that broadcast to (B, H, N, M), optional
        Of bool, whether a key is seen; of floats, what is added to the scores at last, minus infinity where a key is
        hidden. Tiles that it hides wholly cost nothing; where every query sees one interval of keys, nor does the mask.
    spans : (B or 1, N, 2) int, optional
        The first key that each query sees, and the first that it no longer sees, of any integer type; a number above M
        stands for M, and one below 0 for 0. See `fastpe.spans`.
    query_start : int or (B,) int, optional
        The position of the first query, from 0 to 2**40, key j being at position j; by default M - N. Arrays over
        positions then have a row for each position from 0 on, max(M, N + query_start) at least.
    softcap : float, optional
        A score S becomes softcap tanh(S / softcap), before the mask.
    sinks : (H,) floats, optional
        The score of one more key of each head, which has no value (gpt-oss).
    dropout : float
        The probability with which a weight is dropped; the others are divided by 1 - dropout.
    dropout_seed : int, optional
        Which weights are dropped, from 0 to 2**64 - 1: a function of this seed, the sample, the head, the query and the
        key alone.
    bands : tuple of fastpe.bands.Band, optional
        Sets of places at which queries and keys are turned, each with the keys that are its own; keys of none are
        hidden. With it goes the slot ``theta``, and neither ``rotors``, ``polar``, ``angles``, ``growth`` nor
        ``counts``. See `fastpe.bands`.
    tolerance : float, optional
        Tiles of keys are left out where all that is left out of a row of the softmax provably sums up to at most this
        weight. By default a quarter of the dtype's precision; 0 leaves out nothing. See `kernels.attention`.
    return_lse : bool
        Whether to return the logarithm of the softmax's denominator as well.
    **slots
        Arrays of the score; None is the same as not given. Each may have an axis B or 1 in front. K is any number;
        offsets beyond it read the first or last row. They have q's dtype, unless the list says otherwise: what is read
        in float64 may have any dtype of floats, and loses nothing by its size. Numbers: ``scale``, a float or (H,),
        1/sqrt(D) by default; ``rectify``, a bool: negative products become 0; ``pairs``, "interleaved" or "half", which
        channels make a pair.

        {slots}

    Returns
    -------
    out : (B, H, N, Dv)
        In q's dtype; without the axes that q has not. Rows that see no key are zero.
    lse : (B, H, N)
        Only if `return_lse`; -inf for rows that see no key and have no sink.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type, shape or values; the message names it.

    Notes
    -----
    Calls with at most 4 queries, as when text is generated, take a shorter path if q, k and v have the axes
    (B, H, N, D) and of the other arguments only causal, window, return_lse, bias, key_offset, lengths, mask,
    query_start, scale, sinks, softcap and spans are given. Its results differ from those of the general path by
    rounding. With rotary encodings, keep a cache of rotated keys: rotate each new key once, and each query when it
    comes, with `fastpe.rotate`, and leave `angles` out.

    With ``mlp_in`` (DAPE, `fastpe.reference.dape`) or ``reflectors`` (PaTH, `fastpe.reference.path`) operands of half
    precision are not rounded before the output. ``mlp_in`` has at most 63 taps. Queries and keys are mapped, rotated
    and scaled before they are reflected; keys that are hidden reflect all the same, padding does not. Combinations that
    the list above excludes for want of a kernel are in `fastpe.reference.attention`. Offsets of keys may be sums over a
    long sequence (`fastpe.columns`); they lose digits only if a mask hides keys that have far larger ones.

    NaN and infinity in q, k and v raise no error. They reach the outputs of the queries that see their key, and no
    others, however keys are hidden: by `causal`, `window`, `lengths`, `mask` or `spans`. Gradients likewise: those of
    a query that sees no such key stay right, and so do those of a key that no affected query sees; but those of slots
    that turn or scale single rows (``angles``, ``growth``, ``rotors``) hold NaN for the row itself. A key may also fail
    to reach a query that sees it, where its weight underflows to 0 or its tile is left out: `tolerance` = 0 can give
    NaN where the default does not. With ``reflectors`` or ``mlp_in``, which compute several queries together, NaN may
    reach queries that do not see its key.

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


def _with_list_of_slots(doc: str | None) -> str | None:
    return doc and doc.replace("        {slots}", textwrap.indent(documented(), " " * 8))


attention.__doc__ = _with_list_of_slots(attention.__doc__)


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
    """`attention`, and the function that carries its gradient back.

    Parameters
    ----------
    q, k, v, causal, window, lengths, mask, spans, query_start, softcap, sinks, dropout, dropout_seed, bands, \
    tolerance, return_lse, **slots
        As for `attention`. Arrays are read where they lie, again by `pullback`: if they change in between, its
        gradients are those of no function, but for ``index``, `lengths`, `spans`, `query_start` and `bands`, of
        which it has copies.
    wrt : tuple of str, optional
        The arguments whose gradients are wanted; by default q, k, v, `sinks`, a `mask` of floats, and every slot given
        that is an array of real numbers (so neither ``index`` nor ``rectify`` nor ``pairs``).

    Returns
    -------
    out : array, or (array, array)
        What `attention` returns.
    pullback : callable
        ``pullback(dout)`` gives a dict of arrays, each of the shape and dtype of the argument it is named after; with
        `return_lse` also ``pullback((dout, dlse))``.

    Raises
    ------
    TypeError, ValueError
        As for `attention`; also if `wrt` is no tuple of names, or names what is not given or has no gradient.

    Notes
    -----
    NaN and infinity in q, k, v and `dout` affect the queries and keys that see each other, and no others: see the notes
    of `attention`.

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
    outputs = done.outputs()  # what the pullback reads stays its own: users add to outputs in place
    kept = tuple(x.copy() for x in outputs) if isinstance(outputs, tuple) else outputs.copy()
    return kept, done.pullback


def gradients(
    out: Array, lse: Array, dout: Any, q: Any, k: Any, v: Any, *, causal: bool, window: int | None, lengths: Any,
    tolerance: float | None, wrt: tuple[str, ...], rounds: bool = False, **slots: Any,
) -> dict[str, Array]:  # fmt: skip
    """What the pullback of `attention_vjp` gives for `dout`, or (dout, dlse), after a forward pass that gave `out` and
    `lse`; rounds: as for `rounded`."""
    call = checked(q, k, v, causal, window, lengths, True, wrt, slots)
    # an lse that is as large as offsets may be, and rounded, is too coarse to recompute weights from;
    # and running counts come from a forward pass
    known = None if {"key_offset", "counts"} & call.slots.keys() else (out, lse)
    return dispatch(call, checked_tolerance(tolerance, call.computed), known, rounds=rounds).pullback(dout)


def rounded(
    q: Any, k: Any, v: Any, *, causal: bool, window: int | None, lengths: Any, tolerance: float | None, **slots: Any
) -> tuple[Array, Array]:
    """Output and lse of `attention`, of float32 arrays that hold bfloat16 numbers: where NumPy has no such type."""
    call = checked(q, k, v, causal, window, lengths, True, (), slots)
    out, lse = dispatch(call, checked_tolerance(tolerance, call.computed), rounds=True).outputs()
    return out, lse


def dispatch(
    call: Call, tolerance: float, known: tuple[Array, Array] | None = None, *, rounds: bool = False
) -> Result | SplitSoftmax:
    """The call's passes, the forward one done; the arguments are those of `Pass`."""
    if "mlp_in" in call.slots:
        return Networked(call.widened(), known)
    if "reflectors" in call.slots:  # nothing is rounded
        return Pass(call.widened() if call.q.dtype.itemsize == 2 else call, 0.0, known)
    if not call.bands or call.empty:
        return Pass(call, tolerance, known, rounds=rounds)
    calls = [_of_band(call, band) for band in call.bands]
    met = [each for each in calls if np.any(each.bands[0].spans[..., 0] < each.bands[0].spans[..., 1])]
    # each may leave out its share of a row's weight
    passes = [Pass(each, tolerance / len(calls), known, rounds=rounds) for each in met or calls[:1]]
    return SplitSoftmax(call, passes, known)


def _of_band(call: Call, band: Band) -> Call:
    """The call with one band's keys alone."""
    own, spans = part(call, band.spans)
    return own._replace(bands=(band._replace(spans=spans),))


def checked(
    q: Any, k: Any, v: Any, causal: bool, window: int | None, lengths: Any, return_lse: bool,
    wrt: tuple[str, ...] | None, slots: Mapping[str, Any], *, reads_halves: bool = False,
) -> Call:  # fmt: skip
    """Checked arguments of one dtype, finite slots; reads_halves: as for `arguments.check`."""
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
    """The tolerance as a number; by default a quarter of the precision."""
    if tolerance is None:
        return float(np.finfo(dtype).eps) / 4
    return at_least_zero("tolerance", tolerance, below=1.0)
