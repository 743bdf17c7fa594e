"""The way back through `path.forward`: gradients of queries, keys, values, reflectors and how far each reflects.

A block meets its keys again, from near to far, and keeps the row as it came to every tile, for H_j has no inverse
where it projects. Then from far to near, y being the gradient of the row as it leaves the tile, e_j = dS_j and
g_j = -beta_j u_j:

    u_j = w_j . y + sum_n (e_n k_n . w_j + g_n w_n . w_j)      over the tile's n < j
    dk_j = sum_i e_j x_j,   dw_j = sum_i (g_j x_j + r_j y_j),   dbeta_j = -sum_i t_j u_j
    x_j = x + sum_(n > j) r_n w_n,   y_j = y + sum_(n < j) (e_n k_n + g_n w_n)

and y goes on as y + sum_n (e_n k_n + g_n w_n). With weights P, factors f of dropout and delta as in `backward`,
e = P (f dP - delta) and dv_j = sum_i f P dout_i. The sums over a block's queries i are products of matrices with x and
y, and of TILE x TILE ones, E R^T and G R^T, with keys and reflectors. 30 D FLOP a cell, about.

A task is a head: it goes through its blocks in their order and adds to gradients of its own.
"""

from typing import Any, NamedTuple

from fastpe.kernels.attention.extra_terms import extra_terms_of
from fastpe.kernels.attention.path.blocks import BLOCK, TILE, ahead_of, look_at_tile
from fastpe.kernels.attention.path.dropout import NOTHING, drop_tile, dropped_of, lay_factors
from fastpe.kernels.attention.path.forward import ONE, block_of, head_of, meet, product, turned_block
from fastpe.kernels.attention.path.terms import finish_scores, offsets_of_weights, terms_back
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
from fastpe.kernels.threads.task_counter import next_task
from fastpe.kernels.threads.team import on_team


class Gradients(NamedTuple):
    """lse and what is taken from the gradient of a weight, (B, H, N); dout; where gradients go, which are zero: all
    for every head, in one piece, those of scales in float64, those of offsets of any size where keys have none."""

    lse: Any
    deltas: Any
    dout: Any
    dq: Any
    dk: Any
    dv: Any
    dw: Any
    dbeta: Any
    doffsets: Any
    dscale: Any


class Queries(NamedTuple):
    """Pointers to what belongs to a block's queries, rows in one piece."""

    q: Any
    dout: Any
    lse: Any
    deltas: Any
    dq: Any


class Layout(NamedTuple):
    """Where things lie in a lane's workspace: of all tiles the rows x, t and scores; of one r, e, g and weights; y and
    dout of the block; x, y and r with a row for each query; E R^T and G R^T; lse and deltas; sight; factors of
    dropout."""

    rows: int
    along: int
    scores: int
    steps: int
    dscores: int
    back: int
    y: int
    dout: int
    x_rows: int
    y_rows: int
    step_rows: int
    of_scores: int
    of_back: int
    stats: int
    visibility: int
    factors: int
    size: int


@inner
def _dscores(scores, dscores, stats, count):
    """Scores to weights, and gradients of weights to those of scores."""
    size = BLOCK * lanes(scores)
    for j in range(count):
        for i in range(0, size, lanes(scores)):
            weight = exp(load(scores, j * size + i) - load(stats, i))
            store(scores, j * size + i, weight)
            store(dscores, j * size + i, weight * (load(dscores, j * size + i) - load(stats, size + i)))


@inner
def _back_from_scores(of_keys, dscores, back, count):
    """To products of the reflectors with y, what scores of the tile's keys before each add."""
    lane = lanes(back)
    size = BLOCK * lane
    for j in range(count):
        u = at(back, j * size)
        u0, u1, u2, u3 = load(u, 0), load(u, lane), load(u, 2 * lane), load(u, 3 * lane)
        for n in range(j):
            e, f = at(dscores, n * size), splat(get(of_keys, n * TILE + j))
            u0, u1 = fma(load(e, 0), f, u0), fma(load(e, lane), f, u1)
            u2, u3 = fma(load(e, 2 * lane), f, u2), fma(load(e, 3 * lane), f, u3)
        store(u, 0, u0), store(u, lane, u1), store(u, 2 * lane, u2), store(u, 3 * lane, u3)


@inner
def _carry_back(products, beta, along, back, dbeta, count, ahead):
    """From these to products with the gradient as it comes to every reflector, times -beta: g, and dbeta."""
    lane = lanes(along)
    size, none = BLOCK * lane, zeros(along)
    for j in range(count):
        u, t, off = at(back, j * size), at(along, j * size), ahead + j
        u0, u1, u2, u3 = load(u, 0), load(u, lane), load(u, 2 * lane), load(u, 3 * lane)
        for n in range(j):
            g, f = at(back, n * size), splat(get(products, n * TILE + j))
            u0, u1 = fma(load(g, 0), f, u0), fma(load(g, lane), f, u1)
            u2, u3 = fma(load(g, 2 * lane), f, u2), fma(load(g, 3 * lane), f, u3)
        u0, u1 = blend(none, off, u0), blend(none, off - lane, u1)
        u2, u3 = blend(none, off - 2 * lane, u2), blend(none, off - 3 * lane, u3)
        sums = fma(load(t, 0), u0, load(t, lane) * u1) + fma(load(t, 2 * lane), u2, load(t, 3 * lane) * u3)
        put(dbeta, j, get(dbeta, j) - total(sums))
        far = splat(-get(beta, j))
        store(u, 0, far * u0), store(u, lane, far * u1), store(u, 2 * lane, far * u2), store(u, 3 * lane, far * u3)


@inner
def _steps_again(along, beta, steps, count):
    """r from t."""
    size = BLOCK * lanes(along)
    for j in range(count):
        far = splat(-get(beta, j))
        for i in range(0, size, lanes(along)):
            store(steps, j * size + i, far * load(along, j * size + i))


@inner
def _onto(a, a_row, a_col, b, c, n, m, depth):
    """C += A B, the rows of B and C being n long."""
    product(a, a_row, a_col, b, c, n, m, depth, ONTO)


@inner
def _with_steps(rows, steps, pairs, count):
    """For pairs (j, n) of a tile's tokens the sums of a row of j times r of n."""
    size = BLOCK * lanes(rows)
    float_gemm(rows, size, ONE, steps, TILE, pairs, TILE, count, count, size, OVERWRITE, pairs, TILE, pairs, TILE)


@inner
def _add_to_reflectors(w, width, count, queries, workspace, layout, dw):
    """What a tile's reflectors get of a block, but for its scores; x, y and r lie there with a row for each query."""
    back, pairs, steps = at(workspace, layout.back), at(workspace, layout.of_back), at(workspace, layout.steps)
    size = BLOCK * lanes(workspace)
    _with_steps(back, at(workspace, layout.step_rows), pairs, count)
    for j in range(count):  # those with n > j are meant: the others to mirrored ones
        for n in range(j):
            put(pairs, j * TILE + n, get(pairs, n * TILE + j))
        put(pairs, j * TILE + j, get(pairs, j * TILE + j) * 0)
    _onto(back, size, ONE, at(workspace, layout.x_rows), dw, width, count, queries)
    _onto(steps, size, ONE, at(workspace, layout.y_rows), dw, width, count, queries)
    _onto(pairs, TILE, ONE, w, dw, width, count, count)


@inner
def _add_to_keys(k, w, width, count, queries, workspace, layout, dk, dw):
    """What a tile's keys, and its reflectors by its scores, get of a block."""
    dscores, pairs = at(workspace, layout.dscores), at(workspace, layout.of_scores)
    _with_steps(dscores, at(workspace, layout.step_rows), pairs, count)
    for j in range(count):  # likewise: the others to 0
        for n in range(j + 1):
            put(pairs, j * TILE + n, scalar(pairs, 0.0))
    _onto(dscores, BLOCK * lanes(workspace), ONE, at(workspace, layout.x_rows), dk, width, count, queries)
    _onto(pairs, TILE, ONE, w, dk, width, count, count)
    _onto(pairs, ONE, TILE, k, dw, width, count, count)


@inner
def _add_to_offsets(head, dscores, doffsets, count):
    """The sum over a block's queries for every key of a tile."""
    lane = lanes(dscores)
    for j in range(count if head.raised else 0):
        e = at(dscores, j * BLOCK * lane)
        sums = (load(e, 0) + load(e, lane)) + (load(e, 2 * lane) + load(e, 3 * lane))
        put(doffsets, j, get(doffsets, j) + total(sums))


@inner
def _scores_back(head, beside, sizes, block, first, dropped, workspace, layout, dout, dv, doffsets):
    """e from dout, and what values, offsets and other terms get; products of the reflectors with what it adds to y."""
    width, count, size = sizes.v_width, min(TILE, block.met - first), BLOCK * lanes(workspace)
    scores, dscores = at(at(workspace, layout.scores), first * size), at(workspace, layout.dscores)
    finish_scores(head, beside, block, first, True, scores, count, at(workspace, layout.visibility))
    product(at(head.v, first * width), width, ONE, at(workspace, layout.dout), dscores, size, count, width, OVERWRITE)
    offsets_of_weights(beside, block, first, dout, count, dscores)
    drop_tile(dropped, first, dscores, count)
    _dscores(scores, dscores, at(workspace, layout.stats), count)
    drop_tile(dropped, first, scores, count)
    _onto(scores, size, ONE, dout, at(dv, first * width), width, count, block.queries)
    if beside is None:
        _add_to_offsets(head, dscores, at(doffsets, first), count)
    terms_back(beside, block, first, scores, dout, count, dscores)
    of_keys = at(head.products, 2 * TILE * first + TILE * TILE)
    _back_from_scores(of_keys, dscores, at(workspace, layout.back), count)


@inner
def _tile_back(head, beside, sizes, block, first, dropped, workspace, layout, dout, own):
    """A block's way back through a tile; own: where gradients of the head's keys go."""
    width, tile, count = sizes.width, first // TILE, min(TILE, block.met - first)
    (dk, dv, dw, dbeta, doffsets), at_keys, size = own, first * width, BLOCK * lanes(workspace)
    x, y = at(at(workspace, layout.rows), tile * width * size), at(workspace, layout.y)
    along, steps, back = (
        at(at(workspace, layout.along), first * size),
        at(workspace, layout.steps),
        at(workspace, layout.back),
    )
    w, k, beta = at(head.w, at_keys), at(head.k, at_keys), at(head.beta, first)
    seen = look_at_tile(block, first, count, at(workspace, layout.visibility))
    product(w, width, ONE, y, back, size, count, width, OVERWRITE)
    if seen:
        _scores_back(head, beside, sizes, block, first, dropped, workspace, layout, dout, dv, doffsets)
    products = at(head.products, 2 * TILE * first)
    _carry_back(products, beta, along, back, at(dbeta, first), count, ahead_of(block, first))
    _steps_again(along, beta, steps, count)
    transpose(x, size, at(workspace, layout.x_rows), width, width, size)
    transpose(y, size, at(workspace, layout.y_rows), width, width, size)
    transpose(steps, size, at(workspace, layout.step_rows), TILE, count, size)
    _add_to_reflectors(w, width, count, block.queries, workspace, layout, at(dw, at_keys))
    if seen:
        _add_to_keys(k, w, width, count, block.queries, workspace, layout, at(dk, at_keys), at(dw, at_keys))
        product(k, ONE, width, at(workspace, layout.dscores), y, size, width, count, ONTO)
    product(w, ONE, width, back, y, size, width, count, ONTO)


@inner
def _rows_back(q, dq, width, count, scale):
    """From the gradients of scaled queries to those of queries; returns the scale's."""
    factor, whole = splat(scale), 0.0
    for i in range(count):
        source, target, sums = at(q, i * width), at(dq, i * width), zeros(q)
        for c in range(0, width, lanes(q)):
            own = load_first(target, c, width - c)
            sums = fma(load_first(source, c, width - c), own, sums)
            store_first(target, c, own * factor, width - c)
        whole += total(sums)
    return whole


@inner
def block_back(head, beside, sizes, block, queries, scale, one, dropped, workspace, layout, own):
    """A block's part of all gradients; returns the scale's. one: 1, of the type of `scale`. beside,
    dropped: as those of `path.forward.block_forward`."""
    size, width, v_width = BLOCK * lanes(workspace), sizes.width, sizes.v_width
    rows, y, stats = at(workspace, layout.rows), at(workspace, layout.y), at(workspace, layout.stats)
    tiles, farthest = (block.met + TILE - 1) // TILE, block.low // TILE
    turned_block(queries.q, width, at(rows, (tiles - 1) * width * size), block.queries, scale)
    turned_block(queries.dout, v_width, at(workspace, layout.dout), block.queries, one)
    for i in range(0, size, lanes(workspace)):
        store(stats, i, load_first(queries.lse, i, block.queries - i))
        store(stats, size + i, load_first(queries.deltas, i, block.queries - i))
    for i in range(0, width * size, lanes(workspace)):
        store(y, i, zeros(y))
    for tile in range(tiles - 1, farthest - 1, -1):
        x, first = at(rows, tile * width * size), tile * TILE
        along, scores = at(at(workspace, layout.along), first * size), at(at(workspace, layout.scores), first * size)
        far, steps = at(rows, max(tile - 1, 0) * width * size), at(workspace, layout.steps)
        meet(head, beside, width, block, first, x, far, along, steps, scores, at(workspace, layout.visibility))
    held = NOTHING
    for tile in range(farthest, tiles):
        held = lay_factors(dropped, block, tile * TILE, held)
        _tile_back(head, beside, sizes, block, tile * TILE, dropped, workspace, layout, queries.dout, own)
    transpose(y, size, queries.dq, width, width, block.queries)
    return _rows_back(queries.q, queries.dq, width, block.queries, scale)


@inner
def _lane(worker, counters, tokens, sizes, dropout, others, g, layout, workspaces):
    workspace = row(workspaces, worker)
    size = BLOCK * lanes(workspace)
    task = next_task(counters)
    while task < sizes.batch * sizes.heads:
        b, h = task // sizes.heads, task % sizes.heads
        head, at_key = head_of(tokens, sizes, b, h), task * sizes.keys
        own = (
            at(pointer(g.dk), at_key * sizes.width),
            at(pointer(g.dv), at_key * sizes.v_width),
            at(pointer(g.dw), at_key * sizes.width),
            at(pointer(g.dbeta), at_key),
            at(pointer(g.doffsets), at_key * sizes.raised),
        )
        for number in range((sizes.queries + size - 1) // size):
            block = block_of(tokens, sizes, head, b, number, size)
            if block.queries > 0 and block.low < block.met:
                i = task * sizes.queries + block.first
                queries = Queries(
                    at(pointer(tokens.q), i * sizes.width), at(pointer(g.dout), i * sizes.v_width),
                    at(pointer(g.lse), i), at(pointer(g.deltas), i), at(pointer(g.dq), i * sizes.width),
                )  # fmt: skip
                scale, one = tokens.scale[h], tokens.limits[1]
                dropped = dropped_of(dropout, task, sizes.keys, at(workspace, layout.factors))
                beside = extra_terms_of(others, worker, b, h, task)
                of_scale = block_back(head, beside, sizes, block, queries, scale, one, dropped, workspace, layout, own)
                g.dscale[task] += of_scale
        task = next_task(counters)


@entry(label="gradients of attention through reflections")
def backward(team, counters, tokens, sizes, dropout, others, g, layout, workspaces):
    """All gradients, added to those in g; the other arguments as those of `path.forward`."""
    on_team(team, _lane, (pointer(counters), tokens, sizes, dropout, others, g, layout, workspaces))
