"""Backward pass through reflections: gradients of queries, keys, values, and directions and strengths of reflections.

A block of queries processes its keys once more, from near to far, and stores x as it is before every sub-tile. x cannot
be computed backward, because a reflection with beta = 1 is a projection, which has no inverse. Then the block processes
its keys from far to near. A tile's weights and the gradients of its scores are computed as without reflections. x, r
and t are as in `path.content`. Let e be the gradient of the content, y the gradient of x after the sub-tile, and
g_j = -beta_j u_j. Then

    u_j = w_j . y + sum_n (e_n k_n . w_j + g_n w_n . w_j)      over the sub-tile's n < j
    dk_j = sum_i e_j x_j,   dw_j = sum_i (g_j x_j + r_j y_j),   dbeta_j = -sum_i t_j u_j
    x_j = x + sum_(n > j) r_n w_n,   y_j = y + sum_(n < j) (e_n k_n + g_n w_n)

and y becomes y + sum_n (e_n k_n + g_n w_n). The sums over a block's queries i are matrix products with x and y, and
products of the matrices E R^T and G R^T, SUBTILE x SUBTILE, with keys and reflectors. E, G and R hold e, g and r: a row
for each key, a column for each query. An entry takes about 30 D FLOP.

Each head processes its blocks in order, and has separate gradients, so there is no waiting for turns.
"""

from typing import Any, NamedTuple

from fastpe.kernels.attention.backward import (
    clear_rows,
    gradients_from_key,
    needs_care,
    recompute_weights,
    rel_key_backward,
    softmax_backward,
)
from fastpe.kernels.attention.inputs import NONE, ONE, Tile, ends
from fastpe.kernels.attention.path.content import (
    CHAIN,
    GROUP,
    OF_PAIR,
    hide_columns,
    keys_met,
    lanes_met,
    lanes_of,
    meet,
    product,
    scores_of_content,
    to_lanes,
)
from fastpe.kernels.attention.products import products_backward
from fastpe.kernels.attention.score import scores_backward
from fastpe.kernels.attention.terms.key_query_offsets import add_query_slopes
from fastpe.kernels.attention.tile import SUBTILE, TILE_KEYS, TILE_QUERIES, add_scaled, clear
from fastpe.kernels.attention.visibility import masked_out, visible_of_block
from fastpe.kernels.attention.workspace import with_tile
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.products.float_gemm import LOWER_A, ONTO, OVERWRITE, float_gemm, transpose
from fastpe.kernels.products.gemm import transpose_operand
from fastpe.kernels.simd import at, blend, fma, get, lanes, load, put, scalar, splat, store, total, zeros


class PathGradients(NamedTuple):
    """Gradients of reflections: arrays (B, H, M, D) and (B, H, M), or pointers to those of one head."""

    dw: Any
    dbeta: Any


@inner
def head_backward(head, terms, grads, of_path, case, scratch):
    """Compute all gradients of one head. In `grads`, the gradients of keys start at key 0, and `lse` and `deltas` are
    already computed."""
    queries, keys = ends(head, case)
    d, own = case.width, scratch.path
    clear_rows(grads.dq, case.g_row, queries, d)
    clear_rows(grads.dk, case.g_row, keys, d)
    clear_rows(grads.dv, case.gv_row, keys, case.v_width)
    if case.apart:
        clear_rows(grads.dq_rest, case.g_row, queries, d)
        clear_rows(grads.dk_rest, case.g_row, keys, d)
    clear(of_path.dw, keys * d)
    clear(of_path.dbeta, keys)
    for j0 in range(0, head.key_length, TILE_KEYS):
        n = min(TILE_KEYS, head.key_length - j0)
        columns = at(own.v_columns, j0 * _rows_of_values(case))
        transpose_operand(at(head.v, j0 * case.v_row), case.v_row, columns, TILE_KEYS, n, case.v_width)
    for i0 in range(0, head.query_length, TILE_QUERIES):
        m = min(TILE_QUERIES, head.query_length - i0)
        low, high = visible_of_block(i0, m, head, case)
        if low < high:
            _block_backward(head, terms, grads, of_path, i0, m, low, high, case, scratch)


@inner
def _rows_of_values(case):
    """Return the number of rows, of TILE_KEYS elements each, for the transposed values of a tile."""
    return max(case.v_width, 16)


@inner
def _block_backward(head, terms, grads, of_path, i0, m, low, high, case, scratch):
    d, own = case.width, scratch.path
    met, of_rows = keys_met(head.path, i0 + m, low, high, head), d * TILE_QUERIES
    farthest, nearest = low // SUBTILE, (met - 1) // SUBTILE
    to_lanes(at(head.qr, i0 * case.qr_row), case.qr_row, m, d, at(own.x, nearest * of_rows), TILE_QUERIES)
    for number in range(nearest, farthest - 1, -1):
        first, x = number * SUBTILE, at(own.x, number * of_rows)
        tile = first // TILE_KEYS
        seen, cells = first < high and not masked_out(i0, tile, head, case), _content_of(tile, case, own)
        beyond, along = at(own.x, (number - (number > farthest)) * of_rows), at(own.along, first * TILE_QUERIES)
        _keep_lanes(x, beyond, lanes_met(first, i0, NONE, head, x)[0], d)
        meet(
            head.path, head, i0, m, NONE, lanes_of(m, x), first, min(SUBTILE, met - first), x, beyond,
            number > farthest, along, seen, at(cells, first % TILE_KEYS), case, own,
        )  # fmt: skip
    clear(own.y, of_rows)
    for tile in range(low // TILE_KEYS, (met - 1) // TILE_KEYS + 1):
        j0 = tile * TILE_KEYS
        seen = j0 < high and not masked_out(i0, tile, head, case)
        if seen:
            hide_columns(_content_of(tile, case, own), m, farthest * SUBTILE - j0)
            keys = Tile(i0, m, j0, min(TILE_KEYS, high - j0))
            of_tile = with_tile(scratch, _content_of(tile, case, own), at(own.v_columns, j0 * _rows_of_values(case)))
            _scores_backward(head, terms, gradients_from_key(grads, j0, case), keys, case, of_tile)
        for first in range(max(j0, farthest * SUBTILE), min(j0 + TILE_KEYS, met), SUBTILE):
            count, visible = min(SUBTILE, met - first), min(SUBTILE, high - first) if seen else first * 0
            _subtile_backward(head, head.path, grads, of_path, i0, m, first, count, visible, case, scratch)
    transpose(own.y, TILE_QUERIES, own.y_rows, d, d, m)
    for i in range(m):
        add_scaled(at(grads.dq, (i0 + i) * case.g_row), scalar(own.y, 1.0), at(own.y_rows, i * d), d)


@inner
def _content_of(tile, case, own):
    """Return the address of the stored content of a tile."""
    return at(own.contents, tile * TILE_QUERIES * TILE_KEYS)


@inner
def _keep_lanes(x, beyond, count, d):
    """Copy the first `count` lanes of x to `beyond`. A sub-tile does not apply to these lanes."""
    for c in range(d):
        for i in range(0, count, lanes(x)):
            store(beyond, c * TILE_QUERIES + i, load(x, c * TILE_QUERIES + i))


@inner
def _scores_backward(head, terms, grads, tile, case, scratch):
    """Compute the gradient of the content, in `dcells`, from the content in `cells`. Add all gradients except those of
    the queries, keys and reflectors from which the content is computed.
    """
    factor = scores_of_content(head, terms, tile, True, case, scratch)
    recompute_weights(head, tile, factor, grads.lse, case, scratch)
    careful = needs_care(head, at(grads.dout, tile.i0 * case.o_row), tile, case)
    softmax_backward(head, terms, grads, tile, factor, careful, case, scratch)
    scores_backward(head, terms, grads, tile, case, scratch)
    if terms is not None:
        products_backward(head, terms, grads, tile, case, scratch)
        rel_key_backward(head, terms, grads, tile, case, scratch)
    add_query_slopes(head.columns, grads.columns, head.table, tile, scratch)


# ---------------------------------------------------------------------------------------------------------------------
# A sub-tile


@inner
def _subtile_backward(head, path, grads, of_path, i0, m, first, count, visible, case, scratch):
    """Change y from before to after the sub-tile's keys, and add to the gradients of these keys and of their
    reflections. visible: the number of these keys that may have a score.
    """
    d, own = case.width, scratch.path
    lane, ahead = lanes_met(first, i0, NONE, head, own.x)
    n, queries, seen = lanes_of(m, own.x) - lane, m - lane, visible > 0
    x, y = at(own.x, (first // SUBTILE * d) * TILE_QUERIES + lane), at(own.y, lane)
    along, steps, back = at(own.along, first * TILE_QUERIES + lane), at(own.steps, lane), at(own.back, lane)
    w, beta, k = at(path.w, first * d), at(path.beta, first), at(head.kr, first * case.kr_row)
    products, dcontent = at(path.products, first // SUBTILE * 2 * OF_PAIR), at(own.content, lane)
    product(w, d, ONE, y, back, n, count, d, OVERWRITE)
    if seen:
        j = first % TILE_KEYS
        to_lanes(at(scratch.dcells, lane * TILE_KEYS + j), TILE_KEYS, queries, visible, dcontent, TILE_QUERIES)
        product(at(products, OF_PAIR), ONE, SUBTILE, dcontent, back, n, count, visible, ONTO | LOWER_A)
    _carry_back(products, beta, along, back, at(of_path.dbeta, first), n, count, ahead)
    _make_steps(along, beta, steps, n, count)
    transpose(x, TILE_QUERIES, own.x_rows, d, d, queries)
    transpose(y, TILE_QUERIES, own.y_rows, d, d, queries)
    transpose(steps, TILE_QUERIES, own.step_rows, SUBTILE, count, queries)
    _add_to_reflectors(w, d, count, queries, back, steps, own, at(of_path.dw, first * d))
    if seen:
        dk, dw = at(grads.dk, first * case.g_row), at(of_path.dw, first * d)
        _add_to_keys(k, w, count, visible, queries, dcontent, own, dk, dw, case)
        product(k, ONE, case.kr_row, dcontent, y, n, d, visible, ONTO)
    product(w, ONE, d, back, y, n, d, count, ONTO)


@inner
def _carry_back(products, beta, along, back, dbeta, n, count, ahead):
    """Overwrite `back` with g_j = -beta_j u_j, and add to dbeta. On entry, `back` holds w_j . y plus the terms of u_j
    that contain e."""
    for first in range(0, count, CHAIN):
        own, u = min(CHAIN, count - first), at(back, first * TILE_QUERIES)
        if first > 0:
            product(at(products, first), ONE, SUBTILE, back, u, n, own, first, ONTO)
        of_pairs, t = at(products, first * SUBTILE + first), at(along, first * TILE_QUERIES)
        _carry_chain_back(of_pairs, at(beta, first), t, u, at(dbeta, first), n, own, ahead + first)


@inner
def _carry_chain_back(products, beta, along, back, dbeta, n, count, ahead):
    """Do the work of `_carry_back` for few keys. Each key needs the results of all keys processed before it."""
    width, none = lanes(along), zeros(along)
    for i in range(0, n, GROUP * width):
        for j in range(count):
            u, t, off = at(back, j * TILE_QUERIES + i), at(along, j * TILE_QUERIES + i), ahead + j - i
            u0, u1, u2 = load(u, 0), load(u, width), load(u, 2 * width)
            for before in range(j):
                g, f = at(back, before * TILE_QUERIES + i), splat(get(products, before * SUBTILE + j))
                u0, u1, u2 = fma(load(g, 0), f, u0), fma(load(g, width), f, u1), fma(load(g, 2 * width), f, u2)
            u0, u1, u2 = blend(none, off, u0), blend(none, off - width, u1), blend(none, off - 2 * width, u2)
            sums = fma(load(t, 0), u0, fma(load(t, width), u1, load(t, 2 * width) * u2))
            put(dbeta, j, get(dbeta, j) - total(sums))
            far = splat(-get(beta, j))
            store(u, 0, far * u0), store(u, width, far * u1), store(u, 2 * width, far * u2)


@inner
def _make_steps(along, beta, steps, n, count):
    """Compute r (`steps`) from t (`along`)."""
    for j in range(count):
        far = splat(-get(beta, j))
        for i in range(0, n, lanes(along)):
            store(steps, j * TILE_QUERIES + i, far * load(along, j * TILE_QUERIES + i))


@inner
def _add_product(a, a_row, a_col, b, b_row, c, c_row, n, m, depth):
    """C += A B."""
    float_gemm(a, a_row, a_col, b, b_row, c, c_row, m, n, depth, ONTO, c, c_row, c, c_row)


@inner
def _with_steps(lanes_of_keys, own, m, count, queries):
    """Compute `pairs`: for keys j and n of the sub-tile, the sum over queries of row j of `lanes_of_keys` times r_n."""
    pairs = own.pairs
    float_gemm(
        lanes_of_keys, TILE_QUERIES, ONE, own.step_rows, SUBTILE, pairs, SUBTILE, m, count, queries, OVERWRITE,
        pairs, SUBTILE, pairs, SUBTILE,
    )  # fmt: skip


@inner
def _add_to_reflectors(w, d, count, queries, back, steps, own, dw):
    """Add to the gradients of a sub-tile's reflectors the part that a block of queries contributes, without the part
    that comes through the content.
    """
    pairs = own.pairs
    _with_steps(back, own, count, count, queries)
    for j in range(count):  # the factor of w_n in dw_j: g_j r_n for n > j, from x_j; r_j g_n for n < j, from y_j
        for n in range(j):
            put(pairs, j * SUBTILE + n, get(pairs, n * SUBTILE + j))
        put(pairs, j * SUBTILE + j, scalar(pairs, 0.0))
    _add_product(back, TILE_QUERIES, ONE, own.x_rows, d, dw, d, d, count, queries)
    _add_product(steps, TILE_QUERIES, ONE, own.y_rows, d, dw, d, d, count, queries)
    _add_product(pairs, SUBTILE, ONE, w, d, dw, d, d, count, count)


@inner
def _add_to_keys(k, w, count, visible, queries, dcontent, own, dk, dw, case):
    """Add to the gradients of a sub-tile's keys the part that a block of queries contributes. Also add to the gradients
    of its reflectors the part that comes through the content.
    """
    d, pairs = case.width, own.pairs
    _with_steps(dcontent, own, visible, count, queries)
    for j in range(visible):  # only pairs with n > j contribute
        for n in range(j + 1):
            put(pairs, j * SUBTILE + n, scalar(pairs, 0.0))
    _add_product(dcontent, TILE_QUERIES, ONE, own.x_rows, d, dk, case.g_row, d, visible, queries)
    _add_product(pairs, SUBTILE, ONE, w, d, dk, case.g_row, d, visible, count)
    _add_product(pairs, ONE, SUBTILE, k, case.kr_row, dw, d, d, count, visible)
