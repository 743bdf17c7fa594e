"""Calls of attention that are made again (see `kernels.kept`): of few queries, in one lane, none of them turned.

q, k and v are laid out as those of the call that left the record; so is what queries see, with bias and sinks, where
`given` has it: all that `functional.seen` makes of these in Python is made here.
"""

from typing import NamedTuple

import numpy as np

from fastpe.kernels._jit import entry, inner
from fastpe.kernels.attention.draining import drain_rows
from fastpe.kernels.attention.sight import lay
from fastpe.kernels.attention.unfolding import are_finite, unfold_into
from fastpe.kernels.kept import LAYOUT, array_at, is_laid_out, run_kept, start_within
from fastpe.kernels.narrow import round_into, widened
from fastpe.kernels.simd import pointer
from fastpe.kernels.threads import BOARD


class Sizes(NamedTuple):
    """Of what `Given` becomes; an axis of what is not there is 1, and no slot has elements then."""

    samples: int
    queries: int
    keys: int
    spans: int  # samples that have their own
    masks: int
    heads_of_masks: int
    tiles: int  # of keys
    mask: int  # elements
    heads: int  # of the bias
    offsets: int  # that it has
    bias: int  # elements, unfolded


class Given(NamedTuple):
    """Arrays of one axis, empty where there is none."""

    key_lengths: np.ndarray  # int64
    starts: np.ndarray  # int64
    spans: np.ndarray  # int64
    shown: np.ndarray  # bool: the mask; or as numbers
    added: np.ndarray
    bias: np.ndarray
    sinks: np.ndarray


@entry(label="attention that is called again")
def forward_again(record, size, out, lse, q, k, v, sizes, given):
    """As `calls.forward`, of other arrays; False, and nothing done, where they are of other types or not laid out as
    those before, or hold what attention does not take.

    record: the layouts of q, k and v, as `is_laid_out` takes them, then the record of the call. size: of a lane's
    memory. lse: None where it is not wanted. sizes, given: `Sizes` and `Given` as plain tuples, or None twice.
    """
    return _as_before(record, q, k, v) and _exactly(record, size, out, lse, q, k, v, sizes, given)


@entry(label="attention of half precision that is called again")
def halves_again(record, size, out, lse, q, k, v, sizes, given):
    """As `forward_again`, of half precision, of which queries were float32 in one piece before; lse: float32 or None.

    All of q, k, v and out are the integers that `simd.halves` makes of such numbers; what is given is float32.
    """
    return _as_before(record, q, k, v) and _rounded(record, size, out, lse, q, k, v, sizes, given)


@entry(label="attention that is called again")
def forward_at(record, size, out, q, k, v, sizes, given):
    """`forward_again` without lse, of arrays at addresses, which must be laid out as those before."""
    return _exactly(record, size, out, None, *_qkv_at(record, out, q, k, v), sizes, given)


@entry(label="attention of half precision that is called again")
def halves_at(record, size, out, q, k, v, sizes, given):
    """`halves_again` of arrays at addresses, as `forward_at`."""
    return _rounded(record, size, out, None, *_qkv_at(record, out, q, k, v), sizes, given)


@inner
def _as_before(record, q, k, v):
    alike = is_laid_out(q, record, 0) and is_laid_out(k, record, LAYOUT)
    return alike and is_laid_out(v, record, 2 * LAYOUT)


@inner
def _qkv_at(record, like, q, k, v):
    return array_at(q, record, 0, like), array_at(k, record, LAYOUT, like), array_at(v, record, 2 * LAYOUT, like)


@inner
def _exactly(record, size, out, lse, q, k, v, sizes, given):
    sums = np.empty(out.shape[:3], out.dtype) if lse is None else lse
    return _again(record, size, out, sums, start_within(q), start_within(k), start_within(v), sizes, given)


@inner
def _rounded(record, size, out, lse, q, k, v, sizes, given):
    exact, wide = np.empty(out.shape, np.float32), widened(q)
    sums = np.empty(out.shape[:3], np.float32) if lse is None else lse
    done = _again(record, size, exact, sums, wide, start_within(k), start_within(v), sizes, given)
    round_into(exact.reshape(-1), out.reshape(-1))
    return done


@inner
def _again(record, size, out, lse, q, k, v, sizes, given):
    own, board, arenas = record[3 * LAYOUT :].copy(), np.zeros(BOARD, np.int64), np.zeros((1, size), out.dtype)
    changing, alive = (pointer(board), out, lse, arenas, (q, q, k, k, v)), (own, board, arenas, out, lse, q, k, v)
    if given is None:
        return run_kept(own, changing, alive)
    fits, seen = _seen(Sizes(*sizes), Given(*given), out)
    if not (fits and run_kept(own, (*changing, seen), (*alive, seen))):
        return False
    sinks = given[6]
    if sinks.size:
        if not are_finite(sinks):
            return False
        drain_rows(out, lse, sinks)
    return True


@inner
def _seen(sizes, given, like):
    """Lengths, starts, spans, the mask, what it leaves of tiles, and the bias, as `Inputs` has them; before them,
    whether attention takes what is given."""
    b, n, m = sizes.samples, sizes.queries, sizes.keys
    lengths, starts = np.empty((b, 2), np.int64), np.empty(b, np.int64)
    spans, none = np.zeros((sizes.spans, n, 2), np.int64), np.empty(0, np.int64)
    occupied = np.zeros((sizes.masks, sizes.heads_of_masks, 1, sizes.tiles), np.int64)
    mask, bias = np.zeros(sizes.mask, like.dtype), np.zeros(sizes.bias, like.dtype)
    made = lengths, starts, spans.reshape(-1), mask, occupied.reshape(-1)
    fits = lay((n, m), (none, given.key_lengths, given.starts, given.spans, given.shown, given.added), made)
    if given.bias.size:
        fits = fits and are_finite(given.bias)
        first = given.starts if given.starts.size else np.full(1, m - n)
        unfold_into(given.bias, sizes.heads, sizes.offsets, first, n, m, bias)
    return fits, (lengths, starts, spans, mask, occupied, bias)
