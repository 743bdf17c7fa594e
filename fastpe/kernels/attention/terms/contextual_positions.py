"""Contextual positions (CoPE): a query counts keys by their gates, and there is a vector for every count.

    g_ij = sigmoid(u_ij),    p_ij = min(sum of g_it over the keys t >= j that query i sees, P - 1)
    S_ij = u_ij + (1 - w) z_i[floor p_ij] + w z_i[ceil p_ij],    w = p_ij - floor p_ij,    z_im = q_i . counts[m]

u is the product of query and key, with `scale` and `gain`; q is not rotated. Which vectors a tile reads depends on the
gates of all nearer keys. In the forward pass, tiles are processed from the nearest to the farthest, and the running
count of a query holds its count so far. Once the count is P - 1, all farther keys have this count: counting stops, and
one number is added to the row. In the backward pass, key blocks are processed from the farthest to the nearest, and
each subtracts its sum of gates from the running count. So a key block waits for its turn with a block of queries before
it computes scores. With e the gradient of S,

    t_ij = e_ij (z_i[ceil p_ij] - z_i[floor p_ij]),    dg_ij = sum of t_it over t <= j,    du = e + dg g (1 - g)

where t_ij is 0 if p_ij is clamped or an integer. A tile computes z only for the counts between its smallest and its
largest count. The gradients of z are not stored for all tiles: each tile adds its part to the gradients of q and of the
vectors. So no memory grows with N P.

A count is stored as an integer and a remainder. The remainder of a running count is summed in float64. The entries of a
row are processed in SIMD vectors; all entries of a vector have the same integer, and separate remainders. With a single
float32 number, counts of thousands would have only four digits left for their fraction, and small counts near the
query, which the backward pass computes by subtraction, would have none."""

import numpy as np

from fastpe.kernels.attention.inputs import NONE, ONE, gradient_of
from fastpe.kernels.attention.products import in_place
from fastpe.kernels.attention.slots import COUNTS, GIVEN, MASK, floats_of, has_slot, rows_of, wants_gradient
from fastpe.kernels.attention.tile import PACKED, TILE_KEYS, clear, dots
from fastpe.kernels.attention.visibility import hide, mask_of_row, visible
from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.products.float_gemm import ONTO, OVERWRITE
from fastpe.kernels.products.gemm import gemm, row_of_transposed, transpose_operand
from fastpe.kernels.simd import (
    absolute,
    at,
    backwards,
    exp,
    fma,
    get,
    lanes,
    largest,
    load,
    load_first,
    load_wide,
    maximum,
    minimum,
    minus,
    part,
    pointer,
    put,
    running_sums,
    scalar,
    splat,
    store,
    total,
    where_negative,
    where_zero,
    zeros,
)

RUNNING_COUNT = np.int64(4)
"""Number of elements, of the arrays' type, in the running count of a query."""
# the count so far (backward: what is left) as integer and remainder; the farthest key block whose keys are counted; the
# sum of t
_WHOLE, _REST, _LAST, _SLOPE = (np.int64(number) for number in range(4))


@inner
def counts_keys(head, terms):
    """Whether the call counts keys, as it does with the slot `counts`."""
    if terms is None:
        return False
    return bool(has_slot(head.table, COUNTS))


@inner
def running_counts_of(counts, table, b, h, case):
    """Return the running counts of one head. Without `counts`, the result has no elements."""
    size = case.queries * RUNNING_COUNT * table[COUNTS, GIVEN]
    return part(pointer(counts), (b * case.heads + h) * size, size)


@inner
def start_running_counts(head, terms, i0, m, case):
    """Set the counts of m queries to 0 before their first tile."""
    if counts_keys(head, terms):
        running_counts = at(head.running_counts, i0 * RUNNING_COUNT)
        clear(running_counts, m * RUNNING_COUNT)
        for i in range(m):
            put(running_counts, i * RUNNING_COUNT + _LAST, scalar(running_counts, case.key_blocks))


# ---------------------------------------------------------------------------------------------------------------------
# Shared by both passes


@inner
def _counts(own, j0):
    """Whether a query counts the keys of a key block: whether its count was below P - 1 before that block."""
    return np.float64(j0 // TILE_KEYS) >= np.float64(get(own, _LAST))


@inner
def _seen(i, tile, head, case):
    """Return the range `first` .. `end` - 1 of the entries of the tile that query i sees."""
    low, high = visible(i, head, case)
    end = min(high - tile.j0, tile.n)
    return min(max(low - tile.j0, NONE), max(end, NONE)), max(end, NONE)


@inner
def _row_of_counts(table):
    """Return the number of elements between rows of z."""
    return (rows_of(table, COUNTS) + PACKED - 1) // PACKED * PACKED


@inlined
def _sigmoid(x, one):
    below = exp(minus(absolute(x)))
    share = one / (one + below)
    return where_negative(x, below * share, share)


# ---------------------------------------------------------------------------------------------------------------------
# Forward


@inner
def _sum_of_vector(gates, j):
    """Return the sum of a vector of gates, in float64."""
    width, found = lanes(gates), load_wide(gates, j, lanes(gates))
    for c in range(lanes(found), width, lanes(found)):
        found = found + load_wide(gates, j + c, width - c)
    return total(found)


@inlined
def _gate_row(row, gates, mask, first, end):
    """Compute the gates of a row, and return their sum. Hidden keys have the gate 0. mask: None if there is no mask."""
    width, none, one, found = lanes(row), zeros(row), splat(scalar(row, 1.0)), 0.0
    for j in range(first // width * width, end, width):
        g = hide(_sigmoid(load(row, j), one), j, first, end, none, width)
        if mask is not None:  # 0 times minus infinity is NaN, which is not negative either
            g = where_negative(load_first(mask, j, end - j) * none - one, g, none)
        store(gates, j, g)
        found += _sum_of_vector(gates, j)
    return found


@inner
def _tally(own, found, top, back):
    """Add `found`, the sum of the gates of a tile's row, to the running count of the row. If `back`, subtract it.

    Return the count of all keys nearer than the tile in two parts: an integer in 0 .. top, and the remainder. Both are
    0 if the count is NaN.
    """
    whole, rest = np.float64(get(own, _WHOLE)), np.float64(get(own, _REST))
    far = rest - found if back else rest + found
    steps = np.floor(far)
    put(own, _WHOLE, scalar(own, whole + steps))
    put(own, _REST, scalar(own, far - steps))
    if back:
        whole, rest = whole + steps, far - steps
    if whole >= 0.0 and whole < np.float64(top):
        return np.int64(whole), rest
    return top if whole > 0.0 else NONE, 0.0


@inner
def _place_row(gates, places, wholes, whole, rest, top, first, end):
    """Compute the clamped counts of the entries of a row: an integer for each vector of entries, and a remainder for
    each entry.

    whole, rest: the two parts of the count before the nearest entry. Return the first and the last row of `counts` that
    the entries use.
    """
    if end <= first:
        return top, NONE
    width, start, none = lanes(gates), first // lanes(gates) * lanes(gates), zeros(gates)
    least, most = top, whole
    last = start + (end - 1 - start) // width * width
    for step in range(0, last - start + 1, width):
        g, j = load(gates, last - step), last - step
        place = backwards(running_sums(backwards(g))) + splat(scalar(gates, rest))
        place = minimum(maximum(place, none), splat(scalar(gates, top - whole)))
        store(places, j, place)
        store(wholes, j, splat(scalar(gates, whole)))
        least = min(least, whole - np.int64(np.ceil(largest(minus(place)))))
        most = max(most, whole + np.int64(np.ceil(largest(place))))
        rest += _sum_of_vector(gates, j)
        steps = np.int64(rest) if rest > 0.0 else NONE  # 0 for NaN
        whole, rest = min(whole + steps, top), rest - np.float64(steps)
    return least, most


@inner
def _make_z(head, terms, tile, low, wide, case, scratch):
    """Compute z, the products of the tile's queries with vectors of `counts`, for `wide` vectors from
    vector `low` on.
    """
    z, row, d = scratch.count_scores, _row_of_counts(head.table), case.width
    q, columns = at(head.q, tile.i0 * case.q_row), scratch.count_columns
    vectors = at(floats_of(head.table, COUNTS, terms, z), low * d)
    if in_place(case):
        for i in range(tile.m):
            dots(at(q, i * case.q_row), vectors, d, wide, d, at(z, i * row))
        return
    transpose_operand(vectors, d, columns, row, wide, d)
    turned = row_of_transposed(columns, row, d)
    gemm(q, case.q_row, ONE, columns, turned, z, row, tile.m, wide, d, OVERWRITE, z, NONE, z, NONE)


@inner
def _look_up(row, places, wholes, z, low, first, end):
    """Add to each entry of a row the value of z at its count, interpolated. `z` starts at the count `low`."""
    for j in range(first, end):
        place = get(places, j)
        steps = np.int64(place)
        share, below = place - scalar(row, steps), np.int64(get(wholes, j)) + steps - low
        here, there = get(z, below), get(z, below + np.int64(share > 0.0))
        put(row, j, get(row, j) + here + share * (there - here))


@inner
def add_counts(head, terms, tile, back, case, scratch):
    """On entry, `cells` holds u. Compute S in its place. Gates and counts are kept for `counts_backward`."""
    if not has_slot(head.table, COUNTS):
        return
    i0, j0, top, masked = tile.i0, tile.j0, rows_of(head.table, COUNTS) - 1, has_slot(head.table, MASK)
    low, high, row_of_z = top, NONE, _row_of_counts(head.table)
    for i in range(tile.m):
        own, place, least, most = at(head.running_counts, (i0 + i) * RUNNING_COUNT), i * TILE_KEYS, top, top
        row, gates, places = at(scratch.cells, place), at(scratch.gates, place), at(scratch.places, place)
        if not back and np.float64(get(own, _WHOLE)) < np.float64(top):
            put(own, _LAST, scalar(own, j0 // TILE_KEYS))
        if _counts(own, j0):
            first, end = _seen(i0 + i, tile, head, case)
            if masked:
                found = _gate_row(row, gates, mask_of_row(i0 + i, j0, head), first, end)
            else:
                found = _gate_row(row, gates, None, first, end)
            whole, rest = _tally(own, found, top, back)
            least, most = _place_row(gates, places, at(scratch.wholes, place), whole, rest, top, first, end)
        low, high = min(low, least), max(high, most)
    wide = max(high - low + 1, NONE)
    put(scratch.count_range, 0, scalar(scratch.cells, low))
    put(scratch.count_range, 1, scalar(scratch.cells, wide))
    _make_z(head, terms, tile, low, wide, case, scratch)
    for i in range(tile.m):
        place, z = i * TILE_KEYS, at(scratch.count_scores, i * row_of_z)
        row = at(scratch.cells, place)
        first, end = _seen(i0 + i, tile, head, case)
        if _counts(at(head.running_counts, (i0 + i) * RUNNING_COUNT), j0):
            _look_up(row, at(scratch.places, place), at(scratch.wholes, place), z, low, first, end)
        else:
            _add_everywhere(row, get(z, top - low), first, end)


@inner
def _add_everywhere(row, number, first, end):
    more, width = splat(number), lanes(row)
    for j in range(first // width * width, end, width):
        store(row, j, load(row, j) + more)


# ---------------------------------------------------------------------------------------------------------------------
# Backward


@inner
def _row_backward(own, row, gates, places, wholes, z, dz, low, first, end):
    """Overwrite e with du in `row`, and add to dz. Both z and dz start at the count `low`."""
    for j in range(first, end):
        place, e = get(places, j), get(row, j)
        steps = np.int64(place)
        share, below = place - scalar(row, steps), np.int64(get(wholes, j)) + steps - low
        above = below + np.int64(share > 0.0)
        put(dz, below, get(dz, below) + e * (scalar(row, 1.0) - share))
        put(dz, above, get(dz, above) + e * share)
        put(places, j, e * (get(z, above) - get(z, below)))
    width, none, one, slope = lanes(row), zeros(row), splat(scalar(row, 1.0)), np.float64(get(own, _SLOPE))
    for j in range(first // width * width, end, width):
        e, g, t = load(row, j), load(gates, j), hide(load(places, j), j, first, end, none, width)
        dg = running_sums(t) + splat(scalar(row, slope))
        x = where_zero(g, e, fma(dg, g * (one - g), e))  # dg may be NaN where a mask hides the key
        store(row, j, hide(x, j, first, end, e, width))
        slope += np.float64(total(t))
    put(own, _SLOPE, scalar(own, slope))


@inner
def _sum_of_row(row, first, end):
    width, found = lanes(row), zeros(row)
    for j in range(first // width * width, end, width):
        found = found + hide(load(row, j), j, first, end, zeros(row), width)
    return total(found)


@inner
def counts_backward(head, terms, grads, tile, case, scratch):
    """Overwrite the gradients of S in `dcells` with those of u, and add the gradients of queries and of the vectors.
    Call this only when it is the key block's turn.
    """
    if not has_slot(head.table, COUNTS):
        return
    i0, m, j0, _ = tile
    d, top, row_of_z = case.width, rows_of(head.table, COUNTS) - 1, _row_of_counts(head.table)
    low, wide = np.int64(get(scratch.count_range, 0)), np.int64(get(scratch.count_range, 1))
    gradients = scratch.dcount_scores
    for i in range(m):
        own, place = at(head.running_counts, (i0 + i) * RUNNING_COUNT), i * TILE_KEYS
        first, end = _seen(i0 + i, tile, head, case)
        row, z, dz = at(scratch.dcells, place), at(scratch.count_scores, i * row_of_z), at(gradients, i * row_of_z)
        clear(dz, wide)
        if _counts(own, j0):
            gates, places, wholes = at(scratch.gates, place), at(scratch.places, place), at(scratch.wholes, place)
            _row_backward(own, row, gates, places, wholes, z, dz, low, first, end)
        else:
            put(dz, top - low, _sum_of_row(row, first, end))
    q, dq = at(head.q, i0 * case.q_row), at(grads.dq_rest, i0 * case.g_row)
    vectors = at(floats_of(head.table, COUNTS, terms, q), low * d)
    gemm(gradients, row_of_z, ONE, vectors, d, dq, case.g_row, m, d, wide, ONTO, dq, case.g_row, dq, NONE)
    if wants_gradient(head.table, COUNTS):
        dvectors = at(gradient_of(grads.sums, COUNTS), low * d)
        gemm(gradients, ONE, row_of_z, q, case.q_row, dvectors, d, wide, d, m, ONTO, dvectors, d, dvectors, NONE)
