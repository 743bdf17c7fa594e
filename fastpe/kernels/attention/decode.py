"""Attention of few queries over a key/value cache: one pass over the keys, a softmax, one pass over the values.

Each task is one query of one head. Its scores are in a row of the worker's workspace, so there are no tiles and no
running maximum. Keys and values are read in place, with any strides and a contiguous last axis.

Kernels get the first element and the strides of q, k and v, so that they are compiled once for all strides. Optional
arrays are contiguous and always have all their axes; one that is not given has size 0. `functional.decode` prepares
them.
"""

import math
from typing import NamedTuple

import numpy as np

from fastpe.base import validation
from fastpe.kernels.attention.expand_relative_bias import are_finite
from fastpe.kernels.attention.nonfinite import add_nonzero_rows, all_finite
from fastpe.kernels.attention.sinks import with_sink
from fastpe.kernels.attention.terms.softcap import cap_row
from fastpe.kernels.attention.tile import add_rows, clear, dots, scale_row
from fastpe.kernels.attention.visibility import masked
from fastpe.kernels.compile.decorators import entry, inlined, inner
from fastpe.kernels.simd import (
    at,
    exp,
    get,
    keep_first,
    lanes,
    largest,
    load_first,
    maximum,
    pointer,
    put,
    relu,
    row,
    scalar,
    splat,
    store_first,
    total,
    zeros,
)
from fastpe.kernels.threads.team import on_team

_FARTHEST, _ONE = np.int64(validation.FARTHEST), np.int64(1)


class Sizes(NamedTuple):
    """Shapes, and strides in bytes."""

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    width: int
    v_width: int
    itemsize: int
    q_strides: tuple[int, int, int, int]
    k_strides: tuple[int, int, int, int]
    v_strides: tuple[int, int, int, int]


class Visible(NamedTuple):
    """The arrays and numbers that say which keys are visible, without the mask."""

    causal: bool
    window: int  # 0: none
    lengths: np.ndarray  # (B,) int64
    starts: np.ndarray  # (B or 1,) int64, query_start
    spans: np.ndarray  # (B or 1, N, 2) int64


class Terms(NamedTuple):
    """Terms of the scores."""

    scale: np.ndarray  # (1 or H,) float64
    bias: np.ndarray  # (B or 1, H, T)
    offsets: np.ndarray  # (B or 1, H or 1, M) float64, key_offset
    softcap: float  # 0: none
    visible: np.ndarray  # (B or 1, H or 1, N or 1, M) bool, a mask
    added: np.ndarray  # (B or 1, H or 1, N or 1, M), a mask of floats
    sinks: np.ndarray  # (H,)


@inner
def _interval(visible, b, i, sizes):
    """Return the position of query i, and the interval of keys that it sees."""
    start = visible.starts[b % visible.starts.size] if visible.starts.size else sizes.keys - sizes.queries
    position, low, high = start + i, np.int64(0), sizes.keys
    if visible.lengths.size:
        high = visible.lengths[b]
    if visible.causal:
        high = min(high, position + 1)
    if visible.window:
        low, high = max(low, position - visible.window + 1), min(high, position + visible.window)
    if visible.spans.size:
        span = visible.spans[b % visible.spans.shape[0], i]
        low, high = max(low, span[0]), min(high, span[1])
    high = max(high, np.int64(0))
    return position, min(low, high), high


@inner
def _add_bias(scores, bias, count, position, low, high):
    """scores[j] += bias[clip(j - position, -reach, reach) + reach]."""
    reach, width = count // 2, lanes(scores)
    near, far = min(max(position - reach, low), high), min(max(position + reach + 1, low), high)
    first, last = splat(get(bias, 0)), splat(get(bias, count - 1))
    for j in range(low, near, width):
        store_first(scores, j, load_first(scores, j, near - j) + first, near - j)
    for j in range(near, far, width):
        own = load_first(bias, j - position + reach, far - j)
        store_first(scores, j, load_first(scores, j, far - j) + own, far - j)
    for j in range(far, high, width):
        store_first(scores, j, load_first(scores, j, high - j) + last, high - j)


@inner
def _add_offsets(scores, offsets, low, high, capped):
    """scores[j] += offsets[j] - base. Return the base: the largest of the offsets, or 0 with a soft cap. If no base
    were subtracted, large offsets would be rounded in the sums.
    """
    base = 0.0
    if high > low and not capped:
        base = get(offsets, low)
        for j in range(low + 1, high):
            base = max(base, get(offsets, j))
    for j in range(low, high):
        put(scores, j, get(scores, j) + scalar(scores, get(offsets, j) - base))
    return base


@inner
def _add_mask(scores, added, low, high):
    """scores[j] += added[j]; where -inf is added, the result is -inf even if the score is NaN."""
    lowest = splat(scalar(scores, -np.inf))
    for j in range(low, high, lanes(scores)):
        x = masked(load_first(scores, j, high - j), load_first(added, j, high - j), lowest)
        store_first(scores, j, x, high - j)


@inner
def _make_scores(query, keys, place, interval, sizes, terms, scores):
    """Compute the scores of the visible keys; return the base that was subtracted from them."""
    (b, h, i), (position, low, high) = place, interval
    step, own = sizes.k_strides[2] // sizes.itemsize, at(scores, low)
    dots(query, at(keys, low * step), step, high - low, sizes.width, own)
    scale_row(own, high - low, scalar(scores, terms.scale[h % terms.scale.size]))
    base, capped = 0.0, terms.softcap > 0.0
    if terms.bias.size:
        bias = terms.bias[b % terms.bias.shape[0], h]
        _add_bias(scores, pointer(bias), bias.size, position, low, high)
    if terms.offsets.size:
        offsets = terms.offsets[b % terms.offsets.shape[0], h % terms.offsets.shape[1]]
        base = _add_offsets(scores, pointer(offsets), low, high, capped)
    if capped:
        cap_row(own, terms.softcap, high - low)
    if terms.visible.size:
        mask, hidden = terms.visible, scalar(scores, -np.inf)
        seen = mask[b % mask.shape[0], h % mask.shape[1], i % mask.shape[2]]
        for j in range(low, high):
            put(scores, j, get(scores, j) if seen[j] else hidden)
    if terms.added.size:
        mask = terms.added
        _add_mask(scores, pointer(mask[b % mask.shape[0], h % mask.shape[1], i % mask.shape[2]]), low, high)
    return base


@inner
def _softmax(scores, count):
    """Overwrite scores with exp(score - largest); return the largest score and the sum."""
    width, lowest = lanes(scores), scalar(scores, -np.inf)
    best = splat(lowest)
    for j in range(0, count, width):
        best = maximum(best, keep_first(load_first(scores, j, count - j), count - j, lowest))
    top = largest(best)
    shift, mass = splat(top if top > -np.inf else scalar(scores, 0.0)), zeros(scores)
    for j in range(0, count, width):
        x = exp(keep_first(load_first(scores, j, count - j), count - j, lowest) - shift)
        store_first(scores, j, x, count - j)
        mass = mass + x
    return np.float64(top), np.float64(total(mass))


@inner
def _mix_values(weights, values, step, count, width, y):
    """y = weights . values. If the result holds NaN or infinity, recompute it without values of weight 0."""
    clear(y, width)
    add_rows(weights, values, step, count, width, y)
    if not all_finite(y, np.int64(0), _ONE, width, y):
        clear(y, width)
        add_nonzero_rows(weights, _ONE, values, step, count, width, y)


@inlined
def _row_at(x, strides, b, h, i, sizes):
    """Return a pointer to a row of an array (B, H, N, D). x points to the array's first element."""
    return at(pointer(x), (b * strides[0] + h * strides[1] + i * strides[2]) // sizes.itemsize)


@inner
def _worker(number, workers, q, k, v, sizes, visible, terms, workspace, out, lse):
    """Process one share of all queries of all heads. The workers have equal shares."""
    d, dv, tasks = sizes.width, sizes.v_width, sizes.batch * sizes.heads * sizes.queries
    query = row(workspace, number)
    scores = at(query, d)
    for task in range(number * tasks // workers, (number + 1) * tasks // workers):
        b, h, i = task // (sizes.heads * sizes.queries), task // sizes.queries % sizes.heads, task % sizes.queries
        key_head = h // (sizes.heads // sizes.key_heads)
        interval = _interval(visible, b, i, sizes)
        _, low, high = interval
        own = _row_at(q, sizes.q_strides, b, h, i, sizes)
        keys = _row_at(k, sizes.k_strides, b, key_head, np.int64(0), sizes)
        values = _row_at(v, sizes.v_strides, b, key_head, low, sizes)
        for c in range(0, d, lanes(query)):
            store_first(query, c, load_first(own, c, d - c), d - c)
        base = _make_scores(query, keys, (b, h, i), interval, sizes, terms, scores)
        weights = at(scores, low)
        top, mass = _softmax(weights, high - low)
        y = at(pointer(out), task * dv)
        _mix_values(weights, values, sizes.v_strides[2] // sizes.itemsize, high - low, dv, y)
        whole, share = -np.inf, 0.0
        if mass != 0.0:  # also if it is NaN
            whole, share = top + math.log(mass) + base, 1.0 / mass
        if terms.sinks.size:
            keys_alone, whole = whole, with_sink(whole, np.float64(terms.sinks[h]))
            share *= math.exp(keys_alone - whole)
        scale_row(y, dv, scalar(y, share))
        put(pointer(lse), task, scalar(lse, whole))


@inner
def _all_within(x, low, high):
    inside = True
    for place in range(x.size):
        inside &= low <= x[place] <= high
    return inside


@inner
def _all_below_infinity(x):
    start, width = pointer(x), lanes(x)
    none, sums = zeros(start), zeros(start)
    for place in range(0, x.size, width):
        sums = sums + relu(load_first(start, place, x.size - place)) * none  # 0, or NaN
    return total(sums) == 0.0


@inner
def _are_valid(sizes, visible, terms, largest_scale):
    """Whether `arguments.check` would accept all values."""
    inside = _all_within(visible.lengths, np.int64(0), sizes.keys)
    inside = inside and _all_within(visible.starts, np.int64(0), _FARTHEST)
    finite = are_finite(terms.bias.reshape(-1)) and are_finite(terms.offsets.reshape(-1)) and are_finite(terms.sinks)
    return (
        inside and finite and _all_below_infinity(terms.added.reshape(-1))
        and _all_within(terms.scale, -largest_scale, largest_scale)
    )  # fmt: skip


@entry(label="attention of few queries")
def decode(run, workers, q, k, v, sizes, visible, terms, largest_scale, out, lse):
    """Fill out (B, H, N, Dv) and lse (B, H, N). If a value is not valid, return False without computing anything.

    run, workers: as in `threads.team.run_short`. sizes, visible, terms: as plain tuples.
    """
    sizes, visible, terms = Sizes(*sizes), Visible(*visible), Terms(*terms)
    if not _are_valid(sizes, visible, terms, largest_scale):
        return False
    workspace = np.empty((workers, sizes.width + sizes.keys + 16), out.dtype)
    on_team((run, workers, workers), _worker, (workers, q, k, v, sizes, visible, terms, workspace, out, lse))
    return True
