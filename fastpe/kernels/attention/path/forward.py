"""Attention whose queries are reflected by every token between them and a key (PaTH), forward, in O(N) memory.

    S_ij = x_ij . k_j,   x_ii = s q_i,   x_i,j-1 = x_ij + r_j w_j,   r_j = -beta_j t_j,   t_j = w_j . x_ij

A block of queries, BLOCK vectors of lanes, is kept transposed: channels are rows, and a lane is a query. It meets the
keys from near to far, a tile of TILE at a time. With x as it comes to the tile,

    t_j = w_j . x + sum_n r_n w_j . w_n,   S_j = k_j . x + sum_n r_n k_j . w_n      over the tile's n > j

and x leaves it as x + sum_n r_n w_n: three products of matrices, and sums of at most TILE terms with the products of
rows that `path.products` has made once for all blocks, (2, TILE, TILE) for each tile. A lane whose query stands
before key j has t_j = r_j = 0 and S_j = -inf. (8 D + 2 TILE) FLOP a cell, forward; where no lane sees a key of the tile
(`path.blocks`) it has no S, and costs half. Where weights are dropped out (`path.dropout`), those that mix
values are, and the sums of weights are not.

A task is a block of one head; what it writes is its own. `path.backward` has the way back. Nothing is rounded to
bfloat16, in models neither.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.attention.extra_terms import extra_terms_of
from fastpe.kernels.attention.path.blocks import (
    BLOCK,
    TILE,
    ahead_of,
    block_from,
    hide,
    look_at_tile,
    raise_scores,
    spans_of,
)
from fastpe.kernels.attention.path.dropout import NOTHING, drop_tile, dropped_of, lay_factors
from fastpe.kernels.attention.path.terms import finish_scores, mix_rel_value
from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.products.gemm import ONTO, OVERWRITE, float_gemm, transpose
from fastpe.kernels.simd import (
    at,
    blend,
    exp,
    fma,
    get,
    lanes,
    load,
    load_first,
    maximum,
    pointer,
    put,
    row,
    scalar,
    splat,
    store,
    zeros,
)
from fastpe.kernels.threads.task_counter import next_task
from fastpe.kernels.threads.team import on_team

ONE = np.int64(1)  # named: a call would be compiled once more for the literal


class Sizes(NamedTuple):
    """Axes of the arrays; how many tokens lie between the reflectors of samples and of heads; of products, the heads
    that have their own; of spans, the samples; whether keys have offsets, and strides of those."""

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    width: int
    v_width: int
    of_sample: int
    of_head: int
    pairs: int
    spans: int
    raised: int
    offsets_sample: int
    offsets_head: int


class Tokens(NamedTuple):
    """q, k and v (B, H, N or M, D), reflectors and how far each reflects; the products of a tile's rows, W W^T and K
    W^T; the scale of each head; (B, 3) the numbers of queries and keys, and where the first query stands; the keys that
    queries see, (B or 1, N, 2), where not all; offsets of keys, float64; the least number, and 1. All in one piece."""

    q: Any
    k: Any
    v: Any
    w: Any
    beta: Any
    products: Any
    scale: Any
    lengths: Any
    spans: Any
    offsets: Any
    limits: Any


class Head(NamedTuple):
    """Pointers to the keys of one head, and to what belongs to them; whether there are offsets."""

    k: Any
    v: Any
    w: Any
    beta: Any
    products: Any
    offsets: Any
    raised: int


class Desk(NamedTuple):
    """Pointers to the memory of a block on its way: its rows, t, scores and r of a tile, peaks and sums of weights,
    mixed values, and the keys that it sees of a tile."""

    x: Any
    along: Any
    scores: Any
    steps: Any
    peaks: Any
    sums: Any
    mixed: Any
    visibility: Any


@inner
def head_of(tokens, sizes, b, h):
    of_keys = (b * sizes.key_heads + h // (sizes.heads // sizes.key_heads)) * sizes.keys
    token = b * sizes.of_sample + h * sizes.of_head
    tiles = (sizes.keys + TILE - 1) // TILE
    pair = b * sizes.pairs + h // (sizes.heads // sizes.pairs)
    return Head(
        at(pointer(tokens.k), of_keys * sizes.width),
        at(pointer(tokens.v), of_keys * sizes.v_width),
        at(pointer(tokens.w), token * sizes.width),
        at(pointer(tokens.beta), token),
        at(pointer(tokens.products), pair * tiles * 2 * TILE * TILE),
        at(pointer(tokens.offsets), b * sizes.offsets_sample + h * sizes.offsets_head),
        sizes.raised,
    )


@inner
def block_of(tokens, sizes, head, b, number, size):
    """The block of so many queries of a head with this number."""
    first = number * size
    count, spans = min(size, tokens.lengths[b, 0] - first), at(spans_of(tokens, sizes, b), 2 * first)
    return block_from(head, first, count, tokens.lengths[b, 2] + first, tokens.lengths[b, 1], spans, sizes.spans)


@inner
def turned_block(rows, width, x, count, factor):
    """x (D, lanes) from `count` rows of D channels, times the factor; lanes past them are zero."""
    size, factors = BLOCK * lanes(x), splat(scalar(x, factor))
    transpose(rows, width, x, size, count, width)
    for c in range(width):
        for i in range(0, size, lanes(x)):
            store(x, c * size + i, load_first(x, c * size + i, count - i) * factors)


@inner
def product(a, a_row, a_col, b, c, n, m, depth, mode):
    """C (m, n), in one piece as B is, from A B, added to what C was or not."""
    float_gemm(a, a_row, a_col, b, n, c, n, m, n, depth, mode, c, n, c, n)


@inner
def _carry(products, beta, along, steps, count, ahead):
    """From products with x alone to those with the row as it comes to every reflector: t, and r."""
    lane = lanes(along)
    size, none = BLOCK * lane, zeros(along)
    for j in range(count - 1, -1, -1):
        t, off = at(along, j * size), ahead + j
        t0, t1, t2, t3 = load(t, 0), load(t, lane), load(t, 2 * lane), load(t, 3 * lane)
        for n in range(j + 1, count):
            r, f = at(steps, n * size), splat(get(products, j * TILE + n))
            t0, t1 = fma(load(r, 0), f, t0), fma(load(r, lane), f, t1)
            t2, t3 = fma(load(r, 2 * lane), f, t2), fma(load(r, 3 * lane), f, t3)
        t0, t1 = blend(none, off, t0), blend(none, off - lane, t1)
        t2, t3 = blend(none, off - 2 * lane, t2), blend(none, off - 3 * lane, t3)
        store(t, 0, t0), store(t, lane, t1), store(t, 2 * lane, t2), store(t, 3 * lane, t3)
        r, far = at(steps, j * size), splat(-get(beta, j))
        store(r, 0, far * t0), store(r, lane, far * t1), store(r, 2 * lane, far * t2), store(r, 3 * lane, far * t3)


@inner
def _score(of_keys, steps, scores, count, ahead):
    """From products with x alone to those with the row as it comes to every key; minus infinity where the key stands
    after the query."""
    lane = lanes(scores)
    size, hidden = BLOCK * lane, splat(scalar(scores, -np.inf))
    for j in range(count):
        s, off = at(scores, j * size), ahead + j
        s0, s1, s2, s3 = load(s, 0), load(s, lane), load(s, 2 * lane), load(s, 3 * lane)
        for n in range(j + 1, count):
            r, f = at(steps, n * size), splat(get(of_keys, j * TILE + n))
            s0, s1 = fma(load(r, 0), f, s0), fma(load(r, lane), f, s1)
            s2, s3 = fma(load(r, 2 * lane), f, s2), fma(load(r, 3 * lane), f, s3)
        store(s, 0, blend(hidden, off, s0)), store(s, lane, blend(hidden, off - lane, s1))
        store(s, 2 * lane, blend(hidden, off - 2 * lane, s2)), store(s, 3 * lane, blend(hidden, off - 3 * lane, s3))


@inner
def meet(head, beside, width, block, first, x, far, along, steps, scores, visibility):
    """A block meets the keys of the tile that begins with `first`: x becomes `far`, which may be x itself; returns
    whether a key is seen, without which there are no scores. With terms beside reflections these are the content."""
    size, count, ahead = BLOCK * lanes(x), min(TILE, block.met - first), ahead_of(block, first)
    w, beta, products = at(head.w, first * width), at(head.beta, first), at(head.products, 2 * TILE * first)
    product(w, width, ONE, x, along, size, count, width, OVERWRITE)
    _carry(products, beta, along, steps, count, ahead)
    seen = look_at_tile(block, first, count, visibility)
    if seen:
        product(at(head.k, first * width), width, ONE, x, scores, size, count, width, OVERWRITE)
        if beside is None:
            _score(at(products, TILE * TILE), steps, scores, count, ahead)
            raise_scores(head, block, first, scores, count)
            hide(block, scores, count, visibility)
        else:  # nothing is hidden before all is added
            _score(at(products, TILE * TILE), steps, scores, count, -TILE)
    if first > block.low:
        float_gemm(w, ONE, width, steps, size, far, size, width, size, count, ONTO, x, size, x, size)
    return seen


# ---------------------------------------------------------------------------------------------------------------------
# Forward


@inner
def _weigh(scores, count, v_width, peaks, sums, mixed):
    """Scores of a tile's keys to weights in the running softmax of all lanes; mixed: (Dv, lanes)."""
    lane = lanes(scores)
    size = BLOCK * lane
    for i in range(0, size, lane):
        old = load(peaks, i)
        peak = old
        for j in range(count):
            peak = maximum(peak, load(scores, j * size + i))
        kept, whole = exp(old - peak), zeros(scores)
        for j in range(count):
            weight = exp(load(scores, j * size + i) - peak)
            whole = whole + weight
            store(scores, j * size + i, weight)
        store(peaks, i, peak)
        store(sums, i, load(sums, i) * kept + whole)
        for c in range(v_width):
            store(mixed, c * size + i, load(mixed, c * size + i) * kept)


@inner
def _write(block, peaks, sums, mixed, v_width, out, out_row, lse):
    """The rows of a block: shares of what was mixed, and the logarithm of the whole; nothing where no key is seen."""
    size = BLOCK * lanes(mixed)
    for i in range(size):
        whole = np.float64(get(sums, i))
        if i < block.queries:
            put(lse, i, np.float64(get(peaks, i)) + math.log(whole) if whole != 0.0 else -np.inf)
        put(sums, i, 1.0 / whole if whole != 0.0 else 0.0)
    for c in range(v_width):
        for i in range(0, size, lanes(mixed)):
            store(mixed, c * size + i, load(mixed, c * size + i) * load(sums, i))
    transpose(mixed, size, out, out_row, v_width, block.queries)


@inner
def block_forward(head, beside, width, v_width, block, q, scale, lowest, dropped, desk, out, out_row, lse):
    """The rows of `out`, and lse, of a block's queries q. lowest: the least number. beside, dropped: as
    `extra_terms_of` and `dropped_of` have them."""
    x, scores, peaks, sums, mixed = desk.x, desk.scores, desk.peaks, desk.sums, desk.mixed
    size, least = BLOCK * lanes(x), splat(scalar(x, lowest))
    turned_block(q, width, x, block.queries, scale)
    for i in range(0, size, lanes(x)):
        store(peaks, i, least)
    for i in range(0, size, lanes(x)):
        store(sums, i, zeros(x))
    for i in range(0, v_width * size, lanes(x)):
        store(mixed, i, zeros(x))
    held = NOTHING
    for tile in range((block.met + TILE - 1) // TILE - 1, block.low // TILE - 1, -1):
        first = tile * TILE
        count = min(TILE, block.met - first)
        if meet(head, beside, width, block, first, x, x, desk.along, desk.steps, scores, desk.visibility):
            finish_scores(head, beside, block, first, False, scores, count, desk.visibility)
            _weigh(scores, count, v_width, peaks, sums, mixed)
            held = lay_factors(dropped, block, first, held)
            drop_tile(dropped, first, scores, count)
            product(at(head.v, first * v_width), ONE, v_width, scores, mixed, size, v_width, count, ONTO)
            mix_rel_value(beside, block, first, scores, count, v_width, mixed)
    _write(block, peaks, sums, mixed, v_width, out, out_row, lse)


@inner
def _forward_lane(worker, counters, tokens, sizes, dropout, others, out, lse, bases, layout, workspaces):
    workspace, width, v_width = row(workspaces, worker), sizes.width, sizes.v_width
    desk = Desk(
        at(workspace, layout[0]), at(workspace, layout[1]), at(workspace, layout[2]), at(workspace, layout[3]),
        at(workspace, layout[4]), at(workspace, layout[5]), at(workspace, layout[6]), at(workspace, layout[7]),
    )  # fmt: skip
    size = BLOCK * lanes(workspace)
    blocks = (sizes.queries + size - 1) // size
    task = next_task(counters)
    while task < sizes.batch * sizes.heads * blocks:
        of_head, number = task // blocks, blocks - 1 - task % blocks  # long ones first
        b, h = of_head // sizes.heads, of_head % sizes.heads
        head = head_of(tokens, sizes, b, h)
        block = block_of(tokens, sizes, head, b, number, size)
        if block.queries > 0:
            at_query = of_head * sizes.queries + block.first
            q, own = at(pointer(tokens.q), at_query * width), at(pointer(out), at_query * v_width)
            dropped = dropped_of(dropout, of_head, sizes.keys, at(workspace, layout[8]))
            beside = extra_terms_of(others, worker, b, h, of_head)
            block_forward(
                head, beside, width, v_width, block, q, tokens.scale[h], tokens.limits[0],
                dropped, desk, own, v_width, at(pointer(lse), at_query),
            )  # fmt: skip
            for i in range(block.queries * sizes.raised):
                put(pointer(bases), at_query + i, block.base)
        task = next_task(counters)


@entry(label="attention through reflections")
def forward(team, counters, tokens, sizes, dropout, others, out, lse, bases, layout, workspaces):
    """out (B, H, N, Dv) and lse (B, H, N), in one piece; what no query sees stays as it is. bases: where keys have
    offsets, (B, H, N) float64, what lse is less of.

    dropout: as `kernels.rows.dropout` has it, or None. others: `Others`, or None; where they are, the scale is theirs.
    room: where the row of a block, t, scores, r, peaks, sums, mixed values, sight and factors of dropout lie in a
    lane's workspace."""
    on_team(
        team, _forward_lane, (pointer(counters), tokens, sizes, dropout, others, out, lse, bases, layout, workspaces)
    )
