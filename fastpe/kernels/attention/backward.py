"""Backward pass of attention through softmax, scores and products. Key blocks add to shared sums in order."""

from typing import NamedTuple

import numpy as np

from fastpe.kernels.attention.dropout import drop_cells, mixed_weights
from fastpe.kernels.attention.inputs import (
    NONE,
    ONE,
    HeadGradients,
    Tile,
    at_offset,
    ends,
    gradient_of,
    offset_gradient_of,
)
from fastpe.kernels.attention.nonfinite import add_product, all_finite
from fastpe.kernels.attention.products import columns_of, grown, has_factors, prepare_keys, products_backward
from fastpe.kernels.attention.score import (
    adds_bias,
    bound,
    faint,
    make_scores,
    negligible,
    score,
    score_backward,
    score_factor,
    scores_backward,
)
from fastpe.kernels.attention.slots import (
    BIAS,
    GROWTH,
    MASK,
    REL_GAIN,
    REL_KEY,
    REL_VALUE,
    has_slot,
    rows_of,
    wants_gradient,
)
from fastpe.kernels.attention.terms.contextual_positions import counts_keys
from fastpe.kernels.attention.terms.key_query_offsets import add_query_slopes, columns_from_key
from fastpe.kernels.attention.terms.relative import (
    channel_gradients,
    offsets_of,
    relative_gradient,
    relative_mix,
    relative_scores,
)
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES, add_scaled, clear, dot
from fastpe.kernels.attention.visibility import (
    hide,
    mask_of_row,
    masked_out,
    on_diagonal,
    own_tile,
    partly_hidden,
    visible,
    visible_of_block,
    where_shown,
)
from fastpe.kernels.attention.workspace import at_block
from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.products.float_gemm import LOWER_A, LOWER_C, ONTO, OVERWRITE, UPPER_A
from fastpe.kernels.products.gemm import gemm, row_of_transposed, transpose_operand
from fastpe.kernels.simd import (
    at,
    blend,
    exp,
    get,
    lanes,
    load,
    load_first,
    put,
    scalar,
    splat,
    store,
    store_first,
    where_zero,
    zeros,
)
from fastpe.kernels.threads.task_counter import pass_ticket, wait_for_ticket


class Ticket(NamedTuple):
    """The turn of a key block to add to the gradients of one block of queries. The turn comes when the counter at
    `spot` in `counters` reaches `number`.
    """

    counters: int
    spot: int
    number: int


@inlined
def _weigh_row(row, factors, offsets, has_bias, mask, low, count, shifts):
    """Compute exp(S - shifts) for the row's keys low .. count - 1, and 0 for keys before `low`.

    Hidden keys get 0 even if S or the shifts are NaN. mask: the row's mask, or None if there is no mask.
    """
    width, none, lowest = lanes(row), zeros(row), splat(scalar(row, -np.inf))
    for j in range(0, count, width):
        x = score(load(row, j), j, count - j, factors, offsets, has_bias)
        if mask is None:
            x = exp(x - shifts)
        else:
            added = load_first(mask, j, count - j)
            x = where_shown(exp(x + added - shifts), added, lowest, none)
        store(row, j, hide(x, j, low, count, none, width))


@inner
def recompute_weights(head, tile, factor, lse, case, scratch):
    """Overwrite the tile's scores with the weights P = exp(S - lse); hidden keys get 0."""
    i0, m, j0, n = tile
    cells, bias, has_bias = scratch.cells, at_offset(head.bias, tile, case), adds_bias(head.table, case)
    width, factors = lanes(cells), splat(factor)
    masked = has_slot(head.table, MASK)
    for i in range(m):
        row, offsets, shift = at(cells, i * TILE_KEYS), at(bias, -i), get(lse, i0 + i)
        low, high = visible(i0 + i, head, case)
        count = min(max(high - j0, np.int64(0)), n)
        shifts = splat(shift if shift != -np.inf else scalar(cells, 0.0))
        if masked:
            _weigh_row(row, factors, offsets, has_bias, mask_of_row(i0 + i, j0, head), low - j0, count, shifts)
        else:
            _weigh_row(row, factors, offsets, has_bias, None, low - j0, count, shifts)
        for j in range((count + width - 1) // width * width, n, width):
            store(row, j, zeros(cells))


@inlined
def _row_backward(row, grad, delta, factors, offsets, wants_bias, dmask, count):
    """Do the work of `_weights_backward` for one row, up to the key `count`.

    dmask: None if the gradient of the mask is not wanted.
    Where a weight is 0, dS is 0 even if the gradient of the weight is NaN, as it may be for hidden keys.
    """
    width, none = lanes(row), zeros(row)
    for j in range(0, count, width):
        weights = load(row, j)
        x = where_zero(weights, none, weights * (load(grad, j) - delta))
        if count - j < width:
            x = blend(x, count - j, none)
        if dmask is not None:
            store_first(dmask, j, x, count - j)
        store(grad, j, score_backward(x, j, count - j, factors, offsets, wants_bias))


@inner
def _weights_backward(head, grads, tile, factor, case, scratch):
    """Overwrite dP, in `dcells`, with the gradient of the result of `make_scores`. It is computed from the
    gradient of the scores, dS = P (dP - delta).
    """
    weights, dweights = scratch.cells, scratch.dcells
    wants_bias = adds_bias(head.table, case) and wants_gradient(head.table, BIAS)
    wants_mask = wants_gradient(head.table, MASK)
    width, factors, diagonal = lanes(weights), splat(factor), on_diagonal(head, tile, case)
    dbias = at(offset_gradient_of(grads, BIAS), case.queries - 1 - tile.i0)
    whole = gradient_of(grads.whole, MASK)
    for i in range(tile.m):
        row, grad, offsets = at(weights, i * TILE_KEYS), at(dweights, i * TILE_KEYS), at(dbias, -i)
        delta, count = splat(get(grads.deltas, tile.i0 + i)), min(tile.n, i + 1) if diagonal else tile.n
        if wants_mask:
            dmask = at(whole, (tile.i0 + i) * case.keys + tile.j0)
            _row_backward(row, grad, delta, factors, offsets, wants_bias, dmask, count)
        else:
            _row_backward(row, grad, delta, factors, offsets, wants_bias, None, count)
        for j in range((count + width - 1) // width * width, tile.n, width):
            store(grad, j, zeros(weights))


@inner
def _is_whole(head, case):
    """Whether each tile alone computes the complete gradients of its queries and keys."""
    return case.kept and not case.joined and head.query_length <= TILE_QUERIES


@inner
def _tile_weights(head, terms, grads, tile, slope, case, scratch):
    """Compute the weights of the tile, in `cells`. Return two values: the factor of the gradients of scores, and False
    if all weights of the tile are negligible, otherwise True.
    """
    if case.kept:
        return score_factor(head, terms, case), True
    if terms is not None and has_slot(head.table, GROWTH):
        prepare_keys(head, terms, tile, case, scratch)
    factor = make_scores(head, terms, tile, True, case, scratch)
    if case.skip and faint(head, tile, factor, slope, at(grads.lse, tile.i0), case, scratch):
        return factor, False
    recompute_weights(head, tile, factor, grads.lse, case, scratch)
    return factor, True


@inner
def _tile_backward(head, terms, grads, tile, factor, ticket, case, scratch):
    """Compute all gradients of one tile. The part of dq is added when it is the key block's turn."""
    careful = needs_care(head, at(grads.dout, tile.i0 * case.o_row), tile, case)
    softmax_backward(head, terms, grads, tile, factor, careful, case, scratch)
    scores_backward(head, terms, grads, tile, case, scratch)
    if terms is not None:
        products_backward(head, terms, grads, tile, case, scratch)
    _content_backward(head, terms, grads, tile, ticket, careful, case, scratch)
    if terms is not None:
        rel_key_backward(head, terms, grads, tile, case, scratch)  # still in the turn that was waited for above
    add_query_slopes(head.columns, grads.columns, head.table, tile, scratch)  # likewise


@inner
def softmax_backward(head, terms, grads, tile, factor, careful, case, scratch):
    """Compute the gradient of the result of `make_scores`, in `dcells`, from the tile's weights in `cells` and the
    gradient of the output. Add to the gradients of values, rel_value, bias and mask.

    `v_columns` holds the tile's transposed values. careful: whether hidden rows may hold NaN or infinity.
    """
    i0, m, _, n = tile
    dv, dcells, do = case.v_width, scratch.dcells, at(grads.dout, i0 * case.o_row)
    mixed = mixed_weights(head.dropout, head.place, tile, case, scratch)
    diagonal = on_diagonal(head, tile, case)
    gemm(
        do, case.o_row, ONE, scratch.v_columns, row_of_transposed(scratch.v_columns, TILE_KEYS, dv), dcells, TILE_KEYS,
        m, columns_of(n, dcells), dv, LOWER_C if diagonal else OVERWRITE, dcells, NONE, dcells, NONE,
    )  # fmt: skip
    mode = _start(head, case) | UPPER_A if diagonal else _start(head, case)
    add_product(mixed, ONE, TILE_KEYS, do, case.o_row, grads.dv, case.gv_row, n, dv, m, mode, careful)
    if terms is not None:
        _mix_backward(head, terms, mixed, grads, tile, case, scratch)
    drop_cells(head.dropout, head.place, dcells, tile, case)
    _weights_backward(head, grads, tile, factor, case, scratch)


@inner
def _start(head, case):
    """Return the mode of a tile's products: OVERWRITE if they are the complete gradients of rows, otherwise ONTO."""
    return OVERWRITE if _is_whole(head, case) else ONTO


@inner
def _content_backward(head, terms, grads, tile, ticket, careful, case, scratch):
    """Add to dk, wait for the key block's turn, and add to dq. `dcells` holds the gradient of the content, the products
    of rotated queries and keys.
    """
    scaled = False
    if terms is not None:
        scaled = bool(has_factors(head.table))
        if scaled:
            _scaled_content_backward(head, terms, grads, tile, ticket, careful, case, scratch)
    if not scaled:
        (i0, m, j0, n), d, dcells, start = tile, case.width, scratch.dcells, _start(head, case)
        diagonal, dq = on_diagonal(head, tile, case), at(grads.dq, i0 * case.g_row)
        over_queries, over_keys = start | UPPER_A if diagonal else start, start | LOWER_A if diagonal else start
        qr, kr = at(head.qr, i0 * case.qr_row), at(head.kr, j0 * case.kr_row)
        add_product(dcells, ONE, TILE_KEYS, qr, case.qr_row, grads.dk, case.g_row, n, d, m, over_queries, careful)
        _wait(ticket, case)
        add_product(dcells, TILE_KEYS, ONE, kr, case.kr_row, dq, case.g_row, m, d, n, over_keys, careful)


@inner
def rel_key_backward(head, terms, grads, tile, case, scratch):
    """Add the part of dq that comes from rel_key."""
    if has_slot(head.table, REL_KEY):
        offsets = offsets_of(terms, REL_KEY, head, tile, case, scratch)
        relative_mix(scratch.dcells, offsets, at(grads.dq_rest, tile.i0 * case.g_row), case.g_row, False)


@inner
def needs_care(head, do, tile, case):
    """Whether NaN or infinity in a tile's rows could spread to queries or keys that do not see them."""
    i0, m, j0, n = tile
    if not partly_hidden(head, tile, case):
        return False
    finite = all_finite(do, case.o_row, m, case.v_width, do)
    finite &= all_finite(at(head.qr, i0 * case.qr_row), case.qr_row, m, case.width, do)
    return not (finite and all_finite(at(head.kr, j0 * case.kr_row), case.kr_row, n, case.width, do))


@inner
def _mix_backward(head, terms, mixed, grads, tile, case, scratch):
    """Add dout . rel_value to `dcells`, and add the gradient of rel_value. mixed: the weights used in
    the forward pass.
    """
    if has_slot(head.table, REL_VALUE):
        offsets = offsets_of(terms, REL_VALUE, head, tile, case, scratch)
        do = at(grads.dout, tile.i0 * case.o_row)
        relative_scores(do, case.o_row, offsets, scratch.dcells, False)
        if wants_gradient(head.table, REL_VALUE):
            relative_gradient(mixed, do, case.o_row, gradient_of(grads.sums, REL_VALUE), offsets, False)


@inner
def _scaled_content_backward(head, terms, grads, tile, ticket, careful, case, scratch):
    """Add to dk, wait for the key block's turn, and add to dq, if the content has factors (growth, rel_gain)."""
    _, m, _, n = tile
    d, dcells = case.width, scratch.dcells
    q_scaled, k_scaled, mine, theirs = scratch.q_scaled, scratch.k_scaled, scratch.dq_scaled, scratch.dk_scaled
    if has_slot(head.table, REL_GAIN):
        offsets = offsets_of(terms, REL_GAIN, head, tile, case, scratch)
        clear(mine, m * d)
        clear(theirs, n * d)
        wants, drel_gain = wants_gradient(head.table, REL_GAIN), gradient_of(grads.sums, REL_GAIN)
        if has_slot(head.table, GROWTH):
            channel_gradients(dcells, q_scaled, d, k_scaled, d, offsets, mine, theirs, drel_gain, wants)
        else:
            qr, kr = at(head.qr, tile.i0 * case.qr_row), at(head.kr, tile.j0 * case.kr_row)
            channel_gradients(dcells, qr, case.qr_row, kr, case.kr_row, offsets, mine, theirs, drel_gain, wants)
    else:
        diagonal = on_diagonal(head, tile, case)
        over_queries, over_keys = (UPPER_A, LOWER_A) if diagonal else (OVERWRITE, OVERWRITE)
        add_product(dcells, ONE, TILE_KEYS, q_scaled, d, theirs, d, n, d, m, over_queries, careful)
        add_product(dcells, TILE_KEYS, ONE, k_scaled, d, mine, d, m, d, n, over_keys, careful)
    channels = 2 * rows_of(head.table, GROWTH)
    grown(theirs, d, scratch.k_factors, channels, theirs, n, d)
    grown(mine, d, scratch.q_factors, channels, mine, m, d)
    _add_rows(grads.dk, case.g_row, theirs, n, d)
    _wait(ticket, case)
    _add_rows(at(grads.dq, tile.i0 * case.g_row), case.g_row, mine, m, d)


@inner
def _wait(ticket, case):
    """Wait until it is the key block's turn to add to a block of queries. Do not wait if one thread does
    all the work.
    """
    if not case.alone:
        wait_for_ticket(ticket.counters, ticket.spot, ticket.number)


@inner
def _add_rows(target, target_row, source, n, d):
    for i in range(n):
        add_scaled(at(target, i * target_row), scalar(source, 1.0), at(source, i * d), d)


@inner
def clear_rows(rows, row, n, d):
    for i in range(n):
        clear(at(rows, i * row), d)


@inner
def gradients_from_key(g, j0, case):
    """Move the addresses in `g`, so that the gradients of keys and those over offsets start at key j0. In `g`, they
    start at the first key.
    """
    return HeadGradients(
        g.dout, g.lse, g.deltas, g.dq, g.dq_rest, at(g.dk, j0 * case.g_row), at(g.dk_rest, j0 * case.g_row),
        at(g.dv, j0 * case.gv_row), g.sums, g.whole, j0, g.dscale, columns_from_key(g.columns, j0),
    )  # fmt: skip


@inner
def prepare_deltas(dout, out, deltas, block, end, case):
    """Compute delta = dout . out for the queries of one block that are before `end`."""
    for i in range(block * TILE_QUERIES, min((block + 1) * TILE_QUERIES, end)):
        put(deltas, i, dot(at(dout, i * case.o_row), at(out, i * case.o_row), case.v_width))


@inner
def prepare_key_block(head, terms, grads, number, case, scratch):
    """Transpose the keys and values of the key block, and set its gradients to zero. Call this once for all
    query heads that read the keys.
    """
    d, j0 = case.width, number * TILE_KEYS
    n = min(TILE_KEYS, ends(head, case)[1] - j0)
    if not _is_whole(head, case):
        clear_rows(grads.dk, case.g_row, n, d)
        clear_rows(grads.dv, case.gv_row, n, case.v_width)
    if case.apart:
        clear_rows(grads.dk_rest, case.g_row, n, d)
    transpose_operand(at(head.v, j0 * case.v_row), case.v_row, scratch.v_columns, TILE_KEYS, n, case.v_width)
    by_block = False  # whether keys are prepared again for every block of queries, as with growth
    if terms is not None:
        by_block = bool(has_slot(head.table, GROWTH))
    if not (case.kept or by_block):
        prepare_keys(head, terms, Tile(NONE, NONE, j0, n), case, scratch)


@inner
def key_block_backward(head, terms, grads, number, ticket, case, scratch):
    """Add the gradients of one head that come from one block of keys. ticket: the key block's turn for the head's first
    block of queries.
    """
    j0 = number * TILE_KEYS
    queries, keys = ends(head, case)
    n, shared = min(TILE_KEYS, keys - j0), scratch
    for block in range((queries + TILE_QUERIES - 1) // TILE_QUERIES):
        i0 = block * TILE_QUERIES
        rows, scratch = min(TILE_QUERIES, queries - i0), at_block(shared, i0, case)
        m = max(np.int64(0), min(rows, head.query_length - i0))
        low, high = visible_of_block(i0, m, head, case)
        seen = low < j0 + n and high > j0 and not masked_out(i0, number, head, case)
        tile, slope, factor = Tile(i0, m, j0, min(n, high - j0)), 0.0, head.scale  # without padding
        if seen and case.skip:
            ahead = np.int64(number > own_tile(i0 + m, head))
            slope, term = bound(head, tile, number, ahead, case)
            seen = not negligible(head, tile, slope, term, at(grads.lse, i0))
        if number == 0 and not _is_whole(head, case):  # the first key block in the order
            clear_rows(at(grads.dq, i0 * case.g_row), case.g_row, rows, case.width)
            if case.apart:
                clear_rows(at(grads.dq_rest, i0 * case.g_row), case.g_row, rows, case.width)
        own = Ticket(ticket.counters, ticket.spot + block, ticket.number)
        if counts_keys(head, terms):
            _wait(own, case)
        if seen:
            factor, seen = _tile_weights(head, terms, grads, tile, slope, case, scratch)
        if seen:
            _tile_backward(head, terms, grads, tile, factor, own, case, scratch)
        else:
            _wait(own, case)
        if not case.alone:
            pass_ticket(own.counters, own.spot)
