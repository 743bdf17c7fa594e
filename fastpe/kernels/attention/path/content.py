"""The content of a tile if every token between a key and a query reflects the query (PaTH).

    content_ij = x_ij . k_j,   x_ii = q_i,   x_i,j-1 = x_ij + r_j w_j,   r_j = -beta_j t_j,   t_j = w_j . x_ij

x_ij is the query i after the reflections of the tokens j + 1 .. i. q and k are content rows. This content replaces the
content that `products.make_content` computes; all other parts of a tile are as without reflections.

A block of queries processes keys from near to far. x is stored transposed: its rows are channels, its columns (lanes)
are queries. A tile of keys is divided into sub-tiles of SUBTILE keys. If x is the state before a sub-tile is processed,

    t_j = w_j . x + sum_n r_n w_j . w_n,   content_j = k_j . x + sum_n r_n k_j . w_n      over the sub-tile's n > j

and x becomes x + sum_n r_n w_n. A sub-tile takes three matrix products, and sums of at most SUBTILE terms with the
matrices W W^T and K W^T of the sub-tile, which `subtile_products` computes once for all blocks. An entry takes
8 D + 2 SUBTILE FLOP. Keys that no query sees also reflect; their entries take half as many. A query before key j has
t_j = r_j = 0. A sub-tile skips groups of lanes whose queries are all before it.

The lanes of a block cost the same for one query as for several. So few queries are processed one at a time, with x as a
row. For each key, one pass over the channels of x applies the reflection of the key processed before, and multiplies
the result with the key and its reflector. An entry takes 6 D FLOP, and no products are computed in advance.
"""

import numpy as np

from fastpe.kernels.attention.inputs import ONE, HeadPath
from fastpe.kernels.attention.products import add_relative_products
from fastpe.kernels.attention.score import scores_of_products
from fastpe.kernels.attention.slots import KEY_BIAS, REL_KEY, REL_QUERY, has_slot
from fastpe.kernels.attention.terms.key_query_offsets import with_columns
from fastpe.kernels.attention.tile import FEW, SUBTILE, TILE_KEYS, TILE_QUERIES, clear
from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.products.float_gemm import ONTO, OVERWRITE, UPPER_A, float_gemm, transpose
from fastpe.kernels.simd import (
    REGISTER_BYTES,
    at,
    blend,
    fma,
    get,
    lanes,
    load,
    load_first,
    part,
    pointer,
    put,
    scalar,
    splat,
    store,
    total,
    zeros,
)

OF_PAIR = SUBTILE * SUBTILE  # elements of W W^T, and of K W^T, of a sub-tile
# number of lanes that process a tile's keys together: their memory fits into the nearest cache; with wide vectors,
# whole panels of products matter more
_TOGETHER = TILE_QUERIES if REGISTER_BYTES == 64 else TILE_QUERIES // 2
# size of groups of keys that are processed one by one; before each group, a product applies all groups processed so far
CHAIN = np.int64(11)
GROUP = 3  # vectors of lanes that are in registers together; TILE_QUERIES is a multiple, with vectors of any width


@inner
def path_of_head(path, b, h, case):
    """Return the reflections of one head, or None without reflections."""
    if path is None:
        return None
    token = b * path.of_sample + h * path.of_head
    size = (case.keys + SUBTILE - 1) // SUBTILE * 2 * OF_PAIR
    pair = b * path.pairs + h // (case.heads // path.pairs)
    return HeadPath(
        part(pointer(path.w), token * case.width, case.keys * case.width), part(pointer(path.beta), token, case.keys),
        part(pointer(path.products), pair * size, size),
    )  # fmt: skip


@inner
def subtile_products(w, k, k_row, d, count, columns, products):
    """Compute W W^T of a sub-tile, and the part of K W^T above the diagonal; the other entries of K W^T are set to 0.
    columns: scratch memory for D SUBTILE elements.
    """
    transpose(w, d, columns, SUBTILE, count, d)
    own = at(products, OF_PAIR)
    float_gemm(
        w, d, ONE, columns, SUBTILE, products, SUBTILE, count, count, d, OVERWRITE, products, SUBTILE, products, SUBTILE
    )
    float_gemm(k, k_row, ONE, columns, SUBTILE, own, SUBTILE, count, count, d, OVERWRITE, own, SUBTILE, own, SUBTILE)
    for j in range(count):
        for n in range(j + 1):
            put(own, j * SUBTILE + n, scalar(own, 0.0))


# ---------------------------------------------------------------------------------------------------------------------
# Keys that reflect, and lanes


@inner
def keys_reflecting(queries_end, head):
    """The end of the range of keys that reflect a block's last query. queries_end: the query after the last one."""
    return min(queries_end + head.visibility.start, head.key_length)


@inner
def keys_met(path, queries_end, low, high, head):
    """Return the end of the range of keys that a block processes, if its queries see keys in low .. high - 1. With
    reflections, the block processes all keys up to its last query.
    """
    if path is None:
        return high
    return max(keys_reflecting(queries_end, head), high) if low < high else high


@inner
def lanes_of(m, like):
    """Return the number of lanes for m queries."""
    group = GROUP * lanes(like)
    return (m + group - 1) // group * group


@inner
def lanes_met(first, i0, begin, head, like):
    """Return two numbers: the first of the block's lanes, from `begin` on, to which a sub-tile applies, and the
    position of the sub-tile's first key relative to the query of that lane. The position is at least -SUBTILE, because
    vectors count lanes in 32 bits.
    """
    group, ahead = GROUP * lanes(like), first - (i0 + head.visibility.start)
    lane = max(ahead // group * group, begin)
    return lane, max(ahead - lane, -SUBTILE)


@inner
def to_lanes(rows, row, m, d, columns, columns_row):
    """Write the transpose of rows (m, D) to columns (D, lanes), with zeros in the lanes after the rows."""
    width, after = lanes(columns), lanes_of(m, columns)
    if m < after:
        for c in range(d):
            for i in range(m // width * width, after, width):
                store(columns, c * columns_row + i, zeros(columns))
    transpose(rows, row, columns, columns_row, m, d)


@inner
def product(a, a_row, a_col, b, c, n, m, depth, mode):
    """C (m, n) = A B, or C += A B; rows of B and C are TILE_QUERIES apart."""
    float_gemm(a, a_row, a_col, b, TILE_QUERIES, c, TILE_QUERIES, m, n, depth, mode, c, TILE_QUERIES, c, TILE_QUERIES)


# ---------------------------------------------------------------------------------------------------------------------
# Scores


@inner
def scores_of_content(head, terms, tile, back, case, scratch):
    """Do the same as `score.make_scores`, starting from the content in `cells`."""
    if terms is None:
        return head.scale
    table = head.table
    if has_slot(table, REL_KEY) or has_slot(table, REL_QUERY) or has_slot(table, KEY_BIAS):
        add_relative_products(head, terms, tile, case, scratch)
    factor = scores_of_products(head, terms, tile, back, case, scratch)
    if case.options.softcap > 0.0:
        return factor
    return with_columns(head.columns, factor, head, tile, case, scratch)


# ---------------------------------------------------------------------------------------------------------------------
# A block of queries


@inner
def start_path(path, head, i0, m, case, scratch):
    """Set x to the block's queries, before any key is processed."""
    if path is None:
        return
    d, own, rows = case.width, scratch.path, at(head.qr, i0 * case.qr_row)
    if m > FEW:
        to_lanes(rows, case.qr_row, m, d, own.x, TILE_QUERIES)
        return
    for i in range(m):
        x = at(own.x, i * _row_of(d))
        for c in range(0, d, lanes(x)):
            store(x, c, load_first(rows, i * case.qr_row + c, d - c))
        put(own.steps, i, scalar(x, 0.0))


@inner
def make_tile_content(path, head, tile, low, seen, case, scratch):
    """Compute the content of the tile's keys from `low` on, in `cells`, if they are `seen`. Apply the reflections of
    these keys to x, and those of later keys of the tile. Do nothing without reflections.
    """
    if path is None:
        return
    i0, m, j0, n = tile
    cells, own, shown = scratch.cells, scratch.path, j0 + n if seen else j0
    last, first = min(j0 + TILE_KEYS, keys_reflecting(i0 + m, head)), max(j0, low)
    if m <= FEW:
        for i in range(m):
            x, row, step = at(own.x, i * _row_of(case.width)), at(cells, i * TILE_KEYS), at(own.steps, i)
            met = keys_reflecting(i0 + i + 1, head)
            _row_content(path, head, x, step, row, j0, first, min(last, met), shown, case)
        return
    hide_columns(cells, m, first // SUBTILE * SUBTILE - j0)
    after = lanes_of(m, own.x)
    for begin in range(0, after, _TOGETHER):
        end = min(begin + _TOGETHER, after)
        for number in range((last - 1) // SUBTILE, first // SUBTILE - 1, -1):
            key = number * SUBTILE
            meet(
                path, head, i0, m, begin, end, key, min(SUBTILE, last - key), own.x, own.x, key > low, own.along,
                key < shown, at(cells, key - j0), case, own,
            )  # fmt: skip


@inner
def hide_columns(cells, m, count):
    """Set cells to zero for the tile's first keys, which no query sees and whose content is not computed."""
    for i in range(m if count > 0 else 0):
        clear(at(cells, i * TILE_KEYS), count)


@inner
def meet(path, head, i0, m, begin, end, first, count, x, beyond, goes_on, along, seen, cells, case, own):
    """Process the keys of the sub-tile from `first` on, for the lanes begin .. end - 1 of a block. If `goes_on`, write
    x after the sub-tile to `beyond`, which may be x itself. If a key is `seen`, write the content to `cells`."""
    d, (lane, ahead) = case.width, lanes_met(first, i0, begin, head, x)
    if lane >= end:
        return
    n, w, products = end - lane, at(path.w, first * d), at(path.products, first // SUBTILE * 2 * OF_PAIR)
    t, r, rows = at(along, lane), at(own.steps, lane), at(x, lane)
    product(w, d, ONE, rows, t, n, count, d, OVERWRITE)
    _carry(products, at(path.beta, first), t, r, n, count, ahead)
    if seen:
        content = at(own.content, lane)
        product(at(head.kr, first * case.kr_row), case.kr_row, ONE, rows, content, n, count, d, OVERWRITE)
        product(at(products, OF_PAIR), SUBTILE, ONE, r, content, n, count, count, ONTO | UPPER_A)
        transpose(content, TILE_QUERIES, at(cells, lane * TILE_KEYS), TILE_KEYS, count, min(end, m) - lane)
    if goes_on:
        to = at(beyond, lane)
        float_gemm(
            w, ONE, d, r, TILE_QUERIES, to, TILE_QUERIES, d, n, count, ONTO, rows, TILE_QUERIES, rows, TILE_QUERIES
        )


@inner
def _carry(products, beta, along, steps, n, count, ahead):
    """On entry, `along` holds the products w_j . x. Overwrite them with t_j = w_j . x_j, and compute r in `steps`."""
    for first in range((count - 1) // CHAIN * CHAIN, -1, -CHAIN):
        end = min(first + CHAIN, count)
        t, r = at(along, first * TILE_QUERIES), at(steps, first * TILE_QUERIES)
        if end < count:
            after, of_pairs = at(steps, end * TILE_QUERIES), at(products, first * SUBTILE + end)
            product(of_pairs, SUBTILE, ONE, after, t, n, end - first, count - end, ONTO)
        own = at(products, first * SUBTILE + first)
        _carry_chain(own, at(beta, first), t, r, n, end - first, ahead + first)


@inner
def _carry_chain(products, beta, along, steps, n, count, ahead):
    """Do the work of `_carry` for few keys. Each key needs the results of all keys processed before it."""
    width, none = lanes(along), zeros(along)
    for i in range(0, n, GROUP * width):
        for j in range(count - 1, -1, -1):
            t, off = at(along, j * TILE_QUERIES + i), ahead + j - i
            t0, t1, t2 = load(t, 0), load(t, width), load(t, 2 * width)
            for later in range(count - 1, j, -1):  # the key processed most recently comes last
                r, f = at(steps, later * TILE_QUERIES + i), splat(get(products, j * SUBTILE + later))
                t0, t1, t2 = fma(load(r, 0), f, t0), fma(load(r, width), f, t1), fma(load(r, 2 * width), f, t2)
            t0, t1, t2 = blend(none, off, t0), blend(none, off - width, t1), blend(none, off - 2 * width, t2)
            store(t, 0, t0), store(t, width, t1), store(t, 2 * width, t2)
            r, far = at(steps, j * TILE_QUERIES + i), splat(-get(beta, j))
            store(r, 0, far * t0), store(r, width, far * t1), store(r, 2 * width, far * t2)


# ---------------------------------------------------------------------------------------------------------------------
# One query at a time


@inner
def _row_of(d):
    """Return the number of elements between the rows x of queries, rounded up to whole vectors."""
    return (d + 15) // 16 * 16


@inlined
def _reflect_and_multiply(x, d, far, behind, w, k):
    """Replace x by x + far * behind; return the products of the new x with w and k."""
    factor, of_w, of_k = splat(far), zeros(x), zeros(x)
    for c in range(0, d, lanes(x)):
        row = fma(factor, load_first(behind, c, d - c), load(x, c))
        store(x, c, row)
        of_w, of_k = fma(row, load_first(w, c, d - c), of_w), fma(row, load_first(k, c, d - c), of_k)
    return total(of_w), total(of_k)


@inlined
def _reflect(x, d, far, behind, w):
    """Do the same as `_reflect_and_multiply` for a key that is not seen: return only the product of the
    new x with w.
    """
    factor, of_w = splat(far), zeros(x)
    for c in range(0, d, lanes(x)):
        row = fma(factor, load_first(behind, c, d - c), load(x, c))
        store(x, c, row)
        of_w = fma(row, load_first(w, c, d - c), of_w)
    return total(of_w)


@inner
def _row_content(path, head, x, step, cells, j0, first, last, shown, case):
    """Process the keys first .. last - 1 for one query, which sees the keys before `shown`. step: r of the key after
    them.
    """
    d, far = case.width, get(step, 0)
    behind = at(path.w, (last if far != 0.0 else first) * d)
    for j in range(last - 1, max(first, shown) - 1, -1):
        w = at(path.w, j * d)
        far, behind = -get(path.beta, j) * _reflect(x, d, far, behind, w), w
    for j in range(min(last, shown) - 1, first - 1, -1):
        w = at(path.w, j * d)
        t, s = _reflect_and_multiply(x, d, far, behind, w, at(head.kr, j * case.kr_row))
        put(cells, j - j0, s)
        far, behind = -get(path.beta, j) * t, w
    put(step, 0, far)
