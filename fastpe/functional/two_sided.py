"""Bidirectional attention with separate offsets for keys before the query and for keys after it.

The function `two_sided` is public as `fastpe.columns.two_sided`. The adapters for PyTorch and JAX call it through
`by_name`.

One pass covers the keys up to the query's position, and another pass the keys after it. Each pass has its own key
offsets. The offset at the query's position is the same for all keys of a side, so it is added when the passes are
merged: see `split_softmax`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fastpe.base.pulled import given, like, summed_to
from fastpe.functional import attention
from fastpe.functional.arguments import Array, Call, wanted
from fastpe.functional.passes import Pass
from fastpe.functional.slots import NETWORK, REFLECTIONS
from fastpe.functional.split_softmax import SplitSoftmax, part

_REFUSED = {
    "causal": "use key_offset of attention for causal attention", "key_offset": "before and after replace it",
    "query_start": "queries are at the positions of the keys", "bands": "it splits the keys into two sides instead",
    "growth": "it needs causal attention", "counts": "they need causal attention",
    "softcap": "the scores of a side are incomplete until both sides are merged",
    **dict.fromkeys(NETWORK, "the scores of a side are incomplete until both sides are merged"),
    **dict.fromkeys(REFLECTIONS, "they need causal attention"),
}  # fmt: skip


def two_sided(
    q: Any, k: Any, v: Any, before: Any, after: Any, *, window: int | None = None, lengths: Any = None,
    tolerance: float | None = None, return_lse: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """Bidirectional attention with two sets of gates: one for keys before the query, one for keys after it.

    The score S_ij of query i and key j gets one more term::

        S_ij += before_j - before_i  if j <= i,      S_ij += after_i - after_j  if j > i

    If `before` and `after` come from `forget_gate`, these terms are C_i - C_j and C'_j - C'_i. Here C and C' are the
    running sums of the logarithms of the two sets of gates. On both sides, every gate between query and key reduces
    the weight of the key.

    Parameters
    ----------
    q, k, v : (B, H, N, D), (B, Hk, N, D), (B, Hk, N, Dv), or with fewer axes
        As for `fastpe.attention`, with as many queries as keys.
    before, after : (H or 1, N) floats, optionally after an axis B
        Running sums over the sequence, as `forget_gate`, `cable` and `decay` return them. `before` is for keys before
        the query, and `after` for keys after it. Both are converted to float64.
    window, lengths, tolerance, return_lse, **options
        As for `fastpe.attention`. The options are ``mask``, ``spans``, ``sinks``, ``dropout``, ``dropout_seed``,
        ``scale`` and slots. Not supported: ``causal``, ``key_offset``, ``query_start``, ``bands``, ``growth``,
        ``counts``, ``softcap``, and the slots of DAPE (``mlp_in``) and of PaTH (``reflectors``).

    Returns
    -------
    out : (B, H, N, Dv)
        The output, in q's dtype. The axes B and H are present only if q has them.
    lse : (B, H, N)
        Only if `return_lse`: the logarithms of the softmax denominators. The scores in them contain the terms of the
        formula above, and sinks are compared with these scores.

    Raises
    ------
    TypeError, ValueError
        As `fastpe.attention` does; also if `before` or `after` has a wrong shape.

    References
    ----------
    Lin et al. 2025, "Forgetting Transformer: Softmax Attention with a Forget Gate" (ICLR); in both directions, as in
    DataDependentAlibi of lucidrains/x-transformers.

    Examples
    --------
    >>> from fastpe.columns import forget_gate
    >>> q, halves = np.zeros((1, 3, 4)), forget_gate(np.zeros((1, 3)))
    >>> two_sided(q, q, np.eye(3)[None], halves, halves)[0, 1].round(9).tolist()
    [0.25, 0.5, 0.25]
    """
    call, led = checked(
        q, k, v, before, after, window=window, lengths=lengths, return_lse=return_lse, wrt=(), slots=options
    )
    return split(call, led, tolerance).outputs()


def two_sided_vjp(
    q: Any, k: Any, v: Any, before: Any, after: Any, *, window: int | None = None, lengths: Any = None,
    tolerance: float | None = None, return_lse: bool = False, wrt: tuple[str, ...] | None = None, **options: Any,
) -> tuple[Any, Callable[[Any], dict[str, Array]]]:  # fmt: skip
    """Return the output of `two_sided`, and its pullback, which returns a dict of gradients.

    `wrt` is as for `fastpe.attention_vjp`.

    >>> q, sums = np.ones((1, 2, 4)), np.zeros((1, 2))
    >>> out, pullback = two_sided_vjp(q, q, q, sums, sums)
    >>> sorted(pullback(out))
    ['after', 'before', 'k', 'q', 'v']
    """
    call, led = checked(
        q, k, v, before, after, window=window, lengths=lengths, return_lse=return_lse, wrt=wrt, slots=options
    )
    done = split(call, led, tolerance)
    outputs = done.outputs()  # the pullback keeps the originals: callers may modify the returned outputs in place
    kept = tuple(x.copy() for x in outputs) if isinstance(outputs, tuple) else outputs.copy()
    return kept, done.pullback


def refuse(options: Mapping[str, Any]) -> None:
    """Raise ValueError for arguments of attention that `two_sided` does not support."""
    for name, why in _REFUSED.items():
        if options.get(name) is not None:
            raise ValueError(f"{name} cannot be given to two_sided: {why}")


def checked(
    q: Any, k: Any, v: Any, before: Any, after: Any, *, window: int | None, lengths: Any, return_lse: bool,
    wrt: tuple[str, ...] | None, slots: Mapping[str, Any],
) -> tuple[Call, list[Array]]:  # fmt: skip
    """Return the checked call, and the arrays `before` and `after` with a leading axis B or 1. The call lists both
    among the arguments that have gradients.
    """
    refuse(slots)
    own = () if isinstance(wrt, tuple) and not wrt else None
    call = attention.checked(q, k, v, False, window, lengths, return_lse, own, slots)
    if call.positions.n != call.positions.m:
        raise ValueError(f"q must have as many rows as k, {call.positions.m}, not {call.positions.n}")
    columns = {name: given(name, value) for name, value in (("before", before), ("after", after))}
    led = [_led(name, column, call) for name, column in columns.items()]
    shapes = wanted(wrt, call.shapes | {name: column.shape for name, column in columns.items()})
    dtypes = {name: like(columns[name], value).dtype for name, value in (("before", before), ("after", after))}
    return call._replace(shapes=shapes, dtypes=call.dtypes | dtypes), led


def split(call: Call, columns: Sequence[Array], tolerance: float | None, *, rounds: bool = False) -> SplitSoftmax:
    """Run the forward passes of the call. `rounds` is as for `Pass`."""
    return _TwoSided(call, columns, attention.checked_tolerance(tolerance, call.computed), rounds)


class _TwoSided(SplitSoftmax):
    """A call in two passes: over the keys up to the query's position, and over the keys after it."""

    def __init__(self, call: Call, led: Sequence[Array], tolerance: float, rounds: bool) -> None:
        n = call.positions.n
        edges = np.arange(n) + 1
        sides = np.stack([np.zeros(n, int), edges], axis=-1)[None], np.stack([edges, np.full(n, n)], axis=-1)[None]
        before, after = led
        columns = before, -after
        calls = [_with_offsets(part(call, spans)[0], own) for spans, own in zip(sides, columns, strict=True)]
        passes = [Pass(each, tolerance / 2, rounds=rounds) for each in calls]
        super().__init__(call, passes, rows=[-own for own in columns])
        self.past = self.passes[0].out  # the share of the output from keys up to the query's position

    def gradients(self, dout: Array, dlse: Array) -> dict[str, Array]:
        parts, deltas = self.by_pass(dout, dlse), self.deltas(dout, dlse)
        shares = self.past, self.out - self.past
        for name, sign, own, share, weight in zip(
            ("before", "after"), (1, -1), parts, shares, self.weights, strict=True
        ):
            # gradients of this side's scores, summed over queries, minus those summed over keys
            of_keys = own.pop("key_offset")
            of_queries = np.einsum("bhnd,bhnd->bhn", dout, share, dtype=np.float64) - weight * deltas
            own[name] = sign * (of_keys - summed_to(of_queries, of_keys.shape))
        return self.summed(parts, dout, dlse)


def _led(name: str, column: Array, call: Call) -> Array:
    """Return `before` or `after` with a leading axis B or 1, after checking its shape."""
    b, h, n = call.q.shape[:3]
    led = column if column.ndim == 3 else column[None]
    if led.ndim != 3 or led.shape[0] not in (1, b) or led.shape[1] not in (1, h) or led.shape[2] != n:
        sizes = f"B = {b}, H = {h}, N = {n}"
        raise ValueError(
            f"{name} must have the shape (H or 1, N), optionally after an axis B, with {sizes}, not {column.shape}"
        )
    return led


def _with_offsets(call: Call, column: Array) -> Call:
    """Return the call of one pass, with `before` or `-after` as the slot `key_offset`."""
    shapes = {name: shape for name, shape in call.shapes.items() if name not in ("before", "after")}
    return call._replace(
        slots=call.slots | {"key_offset": column}, shapes=shapes | {"key_offset": column.shape},
        dtypes=call.dtypes | {"key_offset": column.dtype},
    )  # fmt: skip
