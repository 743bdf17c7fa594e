"""The way back through `reflected`: gradients of queries, keys, values, reflectors and how far each reflects.

A block meets its keys again, from near to far, and keeps the row as it came to every tile, for H_j has no inverse
where it projects. Then from far to near, y being the gradient of the row as it leaves the tile, e_j = dS_j and
g_j = -beta_j u_j:

    u_j = w_j . y + sum_n (e_n k_n . w_j + g_n w_n . w_j)      over the tile's n < j
    dk_j = sum_i e_j x_j,   dw_j = sum_i (g_j x_j + r_j y_j),   dbeta_j = -sum_i t_j u_j
    x_j = x + sum_(n > j) r_n w_n,   y_j = y + sum_(n < j) (e_n k_n + g_n w_n)

and y goes on as y + sum_n (e_n k_n + g_n w_n). The sums over a block's queries i are products of matrices with x and
y, and of TILE x TILE ones, E R^T and G R^T, with keys and reflectors. 30 D FLOP a cell, about.

A task is a head: it goes through its blocks in their order and adds to gradients of its own.
"""

from typing import Any, NamedTuple

from fastpe.kernels._jit import entry, inner
from fastpe.kernels.attention.reflected import (
    BLOCK,
    ONE,
    TILE,
    block_of,
    head_of,
    meet,
    product,
    turned_block,
)
from fastpe.kernels.gemm import FROM, ONTO, OVERWRITE, float_gemm, transpose
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
from fastpe.kernels.threads import claim, in_lanes


class Gradients(NamedTuple):
    """lse and what is taken from the gradient of a weight, (B, H, N); dout; where gradients go, which are zero: all
    for every head, in one piece, those of scales in float64."""

    lse: Any
    deltas: Any
    dout: Any
    dq: Any
    dk: Any
    dv: Any
    dw: Any
    dbeta: Any
    dscale: Any


class Queries(NamedTuple):
    """Pointers to what belongs to a block's queries, rows in one piece."""

    q: Any
    dout: Any
    lse: Any
    deltas: Any
    dq: Any


class Room(NamedTuple):
    """Where things lie in a lane's arena: of all tiles the rows x, t and scores; of one r, e, g and weights; y and
    dout of the block; x, y and r with a row for each query; E R^T and G R^T; lse and deltas."""

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
def _carry_back(products, beta, along, dscores, back, dbeta, count, ahead):
    """From products with y alone to those with the gradient as it comes to every key, times -beta: g, and dbeta."""
    lane = lanes(along)
    size, of_keys, none = BLOCK * lane, at(products, TILE * TILE), zeros(along)
    for j in range(count):
        u, t, off = at(back, j * size), at(along, j * size), ahead + j
        u0, u1, u2, u3 = load(u, 0), load(u, lane), load(u, 2 * lane), load(u, 3 * lane)
        for n in range(j):
            e, f = at(dscores, n * size), splat(get(of_keys, n * TILE + j))
            u0, u1 = fma(load(e, 0), f, u0), fma(load(e, lane), f, u1)
            u2, u3 = fma(load(e, 2 * lane), f, u2), fma(load(e, 3 * lane), f, u3)
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
def _mirror(of_scores, of_back, count):
    """Of pairs (j, n) those with n > j are meant: the others to 0 in E R^T, to their mirrored ones in G R^T."""
    for j in range(count):
        for n in range(j):
            put(of_scores, j * TILE + n, scalar(of_scores, 0.0))
            put(of_back, j * TILE + n, get(of_back, n * TILE + j))
    for j in range(count):
        put(of_scores, j * TILE + j, scalar(of_scores, 0.0))
        put(of_back, j * TILE + j, get(of_back, j * TILE + j) * 0)


@inner
def _onto(a, a_row, a_col, b, c, n, m, depth):
    """C += A B, the rows of B and C being n long."""
    product(a, a_row, a_col, b, c, n, m, depth, ONTO)


@inner
def _add_to_tokens(head, width, first, count, queries, arena, room, x, dk, dw):
    """What a tile's keys and reflectors get of a block."""
    steps, dscores, back = at(arena, room.steps), at(arena, room.dscores), at(arena, room.back)
    x_rows, y_rows, step_rows = at(arena, room.x_rows), at(arena, room.y_rows), at(arena, room.step_rows)
    of_scores, of_back = at(arena, room.of_scores), at(arena, room.of_back)
    size, w, k = BLOCK * lanes(x), at(head.w, first * width), at(head.k, first * width)
    transpose(x, size, x_rows, width, width, size)
    transpose(at(arena, room.y), size, y_rows, width, width, size)
    transpose(steps, size, step_rows, TILE, count, size)
    for a, c in ((dscores, of_scores), (back, of_back)):
        float_gemm(a, size, ONE, step_rows, TILE, c, TILE, count, count, size, OVERWRITE, c, TILE, c, TILE)
    _mirror(of_scores, of_back, count)
    _onto(dscores, size, ONE, x_rows, dk, width, count, queries)
    _onto(of_scores, TILE, ONE, w, dk, width, count, count)
    _onto(back, size, ONE, x_rows, dw, width, count, queries)
    _onto(steps, size, ONE, y_rows, dw, width, count, queries)
    _onto(of_back, TILE, ONE, w, dw, width, count, count)
    _onto(of_scores, ONE, TILE, k, dw, width, count, count)


@inner
def _tile_back(head, sizes, block, first, arena, room, dout, own):
    """A block's way back through a tile; own: where gradients of the head's keys go."""
    width, v_width, tile, count = sizes.width, sizes.v_width, first // TILE, min(TILE, block.met - first)
    dk, dv, dw, dbeta = own
    x = at(at(arena, room.rows), tile * width * BLOCK * lanes(arena))
    size, y = BLOCK * lanes(arena), at(arena, room.y)
    along, scores = at(at(arena, room.along), first * size), at(at(arena, room.scores), first * size)
    steps, dscores, back = at(arena, room.steps), at(arena, room.dscores), at(arena, room.back)
    w, beta = at(head.w, first * width), at(head.beta, first)
    product(at(head.v, first * v_width), v_width, ONE, at(arena, room.dout), dscores, size, count, v_width, OVERWRITE)
    _dscores(scores, dscores, at(arena, room.stats), count)
    _onto(scores, size, ONE, dout, at(dv, first * v_width), v_width, count, block.queries)
    _steps_again(along, beta, steps, count)
    product(w, width, ONE, y, back, size, count, width, OVERWRITE)
    products = at(head.products, 2 * TILE * first)
    _carry_back(products, beta, along, dscores, back, at(dbeta, first), count, first - block.position)
    at_keys = first * width
    _add_to_tokens(head, width, first, count, block.queries, arena, room, x, at(dk, at_keys), at(dw, at_keys))
    product(at(head.k, at_keys), ONE, width, dscores, y, size, width, count, FROM)
    product(w, ONE, width, back, y, size, width, count, FROM)


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
def block_back(head, sizes, block, queries, scale, one, arena, room, own):
    """A block's part of all gradients; returns the scale's. one: 1, of the type of `scale`."""
    size, width, v_width = BLOCK * lanes(arena), sizes.width, sizes.v_width
    rows, y, stats = at(arena, room.rows), at(arena, room.y), at(arena, room.stats)
    tiles = (block.met + TILE - 1) // TILE
    turned_block(queries.q, width, at(rows, (tiles - 1) * width * size), block.queries, scale)
    turned_block(queries.dout, v_width, at(arena, room.dout), block.queries, one)
    for i in range(0, size, lanes(arena)):
        store(stats, i, load_first(queries.lse, i, block.queries - i))
        store(stats, size + i, load_first(queries.deltas, i, block.queries - i))
    for i in range(0, width * size, lanes(arena)):
        store(y, i, zeros(y))
    for tile in range(tiles - 1, -1, -1):
        x, first = at(rows, tile * width * size), tile * TILE
        along, scores = at(at(arena, room.along), first * size), at(at(arena, room.scores), first * size)
        far = at(rows, max(tile - 1, 0) * width * size)
        meet(head, width, block, first, x, far, along, at(arena, room.steps), scores)
    for tile in range(tiles):
        _tile_back(head, sizes, block, tile * TILE, arena, room, queries.dout, own)
    transpose(y, size, queries.dq, width, width, block.queries)
    return _rows_back(queries.q, queries.dq, width, block.queries, scale)


@inner
def _lane(lane, board, tokens, sizes, g, room, arenas):
    arena = row(arenas, lane)
    size = BLOCK * lanes(arena)
    task = claim(board)
    while task < sizes.batch * sizes.heads:
        b, h = task // sizes.heads, task % sizes.heads
        head, at_key = head_of(tokens, sizes, b, h), task * sizes.keys
        own = (
            at(pointer(g.dk), at_key * sizes.width),
            at(pointer(g.dv), at_key * sizes.v_width),
            at(pointer(g.dw), at_key * sizes.width),
            at(pointer(g.dbeta), at_key),
        )
        for number in range((sizes.queries + size - 1) // size):
            block = block_of(tokens, sizes, b, number, size)
            if block.queries > 0 and block.met > 0:
                i = task * sizes.queries + block.first
                queries = Queries(
                    at(pointer(tokens.q), i * sizes.width), at(pointer(g.dout), i * sizes.v_width),
                    at(pointer(g.lse), i), at(pointer(g.deltas), i), at(pointer(g.dq), i * sizes.width),
                )  # fmt: skip
                scale, one = tokens.scale[h], tokens.limits[1]
                of_scale = block_back(head, sizes, block, queries, scale, one, arena, room, own)
                g.dscale[task] += of_scale
        task = claim(board)


@entry(label="gradients of attention through reflections")
def backward(crew, board, tokens, sizes, g, room, arenas):
    """All gradients, added to those in g; the other arguments as those of `reflected.forward`."""
    in_lanes(crew, _lane, (pointer(board), tokens, sizes, g, room, arenas))
