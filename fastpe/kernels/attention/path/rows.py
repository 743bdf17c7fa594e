"""Few queries that are reflected on their way to the keys, one at a time: `path.forward` without its blocks.

A block costs the same for one query as for all that it has room for, and the products of a tile's rows serve few. Here
a task is one query: its row goes from key to key, one pass over its channels for each, which reflects it by the key's
token and multiplies it with the next key and reflector. 6 D FLOP a cell; scores lie in the lane's workspace.
"""

import math

import numpy as np

from fastpe.kernels.attention.extra_terms import extra_terms_of
from fastpe.kernels.attention.path.blocks import span_of, spans_of
from fastpe.kernels.attention.path.dropout import drop_from, dropped_of, margin
from fastpe.kernels.attention.path.forward import ONE, block_of, head_of
from fastpe.kernels.attention.path.terms import finish_row, mix_rel_value_of_row
from fastpe.kernels.attention.tile import FEW, clear
from fastpe.kernels.compile.decorators import entry, inlined, inner
from fastpe.kernels.products.gemm import ONTO, float_gemm
from fastpe.kernels.simd import (
    at,
    exp,
    fma,
    get,
    keep_first,
    lanes,
    largest,
    load,
    load_first,
    maximum,
    pointer,
    put,
    row,
    scalar,
    splat,
    store,
    store_first,
    total,
    zeros,
)
from fastpe.kernels.threads.task_counter import next_task_from_ends
from fastpe.kernels.threads.team import on_team

_KEYS = np.int64(128)  # whose sum is rounded on its own


@inlined
def _pass(x, width, far, behind, w, k):
    """x + far * behind in the place of x; the products of that with w and k."""
    factor, of_w, of_k = splat(far), zeros(x), zeros(x)
    for c in range(0, width, lanes(x)):
        left = width - c
        own = fma(factor, load_first(behind, c, left), load(x, c))
        store(x, c, own)
        of_w, of_k = fma(own, load_first(w, c, left), of_w), fma(own, load_first(k, c, left), of_k)
    return total(of_w), total(of_k)


@inlined
def _turn(x, width, far, behind, w):
    """As `_pass`, past a key that is not seen."""
    factor, of_w = splat(far), zeros(x)
    for c in range(0, width, lanes(x)):
        own = fma(factor, load_first(behind, c, width - c), load(x, c))
        store(x, c, own)
        of_w = fma(own, load_first(w, c, width - c), of_w)
    return total(of_w)


@inner
def _scores_of_row(head, width, k_row, x, scores, near, last, met):
    """The scores of the keys near .. last - 1, of those before `met`."""
    far, behind = scalar(x, 0.0), head.w
    for j in range(met - 1, last - 1, -1):
        w = at(head.w, j * width)
        far, behind = -get(head.beta, j) * _turn(x, width, far, behind, w), w
    for j in range(last - 1, near - 1, -1):
        w = at(head.w, j * width)
        t, s = _pass(x, width, far, behind, w, at(head.k, j * k_row))
        put(scores, j - near, s)
        far, behind = -get(head.beta, j) * t, w


@inner
def _raise(head, scores, near, last, base):
    """Offsets of keys, less the base, added to their scores."""
    for j in range(near, last if head.raised else near):
        put(scores, j - near, get(scores, j - near) + scalar(scores, get(head.offsets, j) - base))


@inner
def _weigh(scores, count):
    """Scores to exp(score - largest), of which the sum is 1 at least, or 0 where all are minus infinity; returns the
    sum and the largest."""
    lowest, lane = scalar(scores, -np.inf), lanes(scores)
    peaks = splat(lowest)
    for j in range(0, count, lane):
        peaks = maximum(peaks, keep_first(load_first(scores, j, count - j), count - j, lowest))
    peak, whole = largest(peaks), 0.0
    shift = splat(peak if peak > -np.inf else scalar(scores, 0.0))
    for j in range(0, count, lane):
        weights = exp(keep_first(load_first(scores, j, count - j), count - j, lowest) - shift)
        store_first(scores, j, weights, count - j)
        whole += total(weights)
    return whole, peak


@inner
def row_forward(head, beside, width, k_row, v_width, v_row, q, scale, seen, met, base, dropped, i, x, memory, out):
    """`out` of one query, i in its sequence, and its lse. seen: the first key that it sees, one at least, and the first
    that it no longer does; met: how many reflect it; base: of the block that it would be in; beside, dropped: as those
    of `path.forward.block_forward`. k_row, v_row: from key to key; memory: room for a number for each key."""
    factor, (near, last) = splat(scalar(x, scale)), seen
    scores = at(memory, margin(dropped, near))
    for c in range(0, width, lanes(x)):
        store(x, c, load_first(q, c, width - c) * factor)
    _scores_of_row(head, width, k_row, x, scores, near, last, met)
    finish_row(beside, i, near, last, scores)
    _raise(head, scores, near, last, base)
    count = last - near
    whole, peak = _weigh(scores, count)
    drop_from(dropped, i, memory, near, last)
    share = splat(scalar(x, 1.0 / whole if whole > 0.0 else 0.0))
    clear(out, v_width)
    for j in range(0, count, _KEYS):
        v, some = at(head.v, (near + j) * v_row), min(_KEYS, count - j)
        float_gemm(
            at(scores, j), count, ONE, v, v_row, out, v_width, ONE, v_width, some, ONTO, out, v_width, out, v_width
        )
    mix_rel_value_of_row(beside, i, near, last, scores, v_width, out)
    for c in range(0, v_width, lanes(x)):
        store_first(out, c, load_first(out, c, v_width - c) * share, v_width - c)
    return peak + math.log(whole)


@inner
def _lane(worker, counters, tokens, sizes, dropout, others, out, lse, bases, workspaces):
    workspace, width, v_width = row(workspaces, worker), sizes.width, sizes.v_width
    x, scores = workspace, at(workspace, (width + lanes(workspace) - 1) // lanes(workspace) * lanes(workspace))
    tasks = sizes.batch * sizes.heads * sizes.queries
    task = next_task_from_ends(counters, worker, tasks)
    while task < tasks:
        of_head, i = task // sizes.queries, task % sizes.queries
        b, h = of_head // sizes.heads, of_head % sizes.heads
        met = min(tokens.lengths[b, 2] + i + 1, tokens.lengths[b, 1])
        near, last = span_of(spans_of(tokens, sizes, b), sizes.spans, i, met)
        if i < tokens.lengths[b, 0] and near < last:
            head, scale = head_of(tokens, sizes, b, h), tokens.scale[h]
            q, own = at(pointer(tokens.q), task * width), at(pointer(out), task * v_width)
            base = block_of(tokens, sizes, head, b, of_head * 0, FEW).base
            dropped = dropped_of(dropout, of_head, sizes.keys, scores)
            beside = extra_terms_of(others, worker, b, h, of_head)
            found = row_forward(
                head, beside, width, width, v_width, v_width, q, scale, (near, last), met, base, dropped, i, x, scores,
                own,
            )  # fmt: skip
            put(pointer(lse), task, found)
            if sizes.raised:
                put(pointer(bases), task, base)
        task = next_task_from_ends(counters, worker, tasks)


@entry(label="attention of few queries through reflections")
def forward(team, counters, tokens, sizes, dropout, others, out, lse, bases, workspaces):
    """As `path.forward`, without products.

    workspaces: for a lane D numbers, in whole vectors, and one for each key.
    """
    on_team(team, _lane, (pointer(counters), tokens, sizes, dropout, others, out, lse, bases, workspaces))
