"""Forward pass of attention: blocks of queries, online softmax over tiles of keys."""

import math

import numpy as np
from numba.extending import intrinsic

from fastpe.kernels.attention.bf16_panels import packs_values, values_of_tile
from fastpe.kernels.attention.dropout import drop_cells
from fastpe.kernels.attention.inputs import NONE, ONE, Tile, at_offset, ends
from fastpe.kernels.attention.nonfinite import add_product, all_finite
from fastpe.kernels.attention.path.content import keys_met, make_tile_content, scores_of_content, start_path
from fastpe.kernels.attention.products import in_place, prepare_keys
from fastpe.kernels.attention.score import adds_bias, bound, faint, make_scores, negligible, score
from fastpe.kernels.attention.slots import MASK, REL_VALUE, has_slot
from fastpe.kernels.attention.terms.contextual_positions import counts_keys, start_running_counts
from fastpe.kernels.attention.terms.key_query_offsets import choose_base
from fastpe.kernels.attention.terms.relative import offsets_of, relative_mix
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES, add_rows, bring_rows_near, clear, scale_row
from fastpe.kernels.attention.visibility import (
    hide,
    mask_of_row,
    masked,
    masked_out,
    may_hide,
    on_diagonal,
    own_tile,
    partly_hidden,
    shown_of_block,
    visible,
    visible_of_block,
)
from fastpe.kernels.attention.workspace import at_block
from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.compile.overload import overload_by_type
from fastpe.kernels.products.float_gemm import LOWER_A, ONTO, OVERWRITE
from fastpe.kernels.products.gemm import gemm
from fastpe.kernels.simd import (
    at,
    exp,
    get,
    lanes,
    largest,
    load,
    load_first,
    maximum,
    put,
    scalar,
    splat,
    store,
    store_first,
    total,
    zeros,
)


@inlined
def _score_row(row, factors, offsets, has_bias, mask, low, count):
    """Compute the scores of the row's keys before `count`, and hide the keys before `low`. Return a vector with the
    largest of the scores.

    mask: None without a mask, so that the loop contains no code for it.
    """
    width, lowest = lanes(row), splat(scalar(row, -np.inf))
    best = lowest
    for j in range(0, count, width):
        x = score(load(row, j), j, count - j, factors, offsets, has_bias)
        if mask is not None:
            x = masked(x, load_first(mask, j, count - j), lowest)
        x = hide(x, j, low, count, lowest, width)
        store(row, j, x)
        best = maximum(best, x)
    return best


@inner
def soften(head, tile, factor, tops, sums, case, scratch):
    """Overwrite scores with exp(score - running maximum), or with 0 for hidden keys. Rescale the previous sums to the
    new maximum.

    If weights are kept (`case.kept`), a row has only this tile, so its weights are normalised immediately.
    """
    i0, m, j0, n = tile
    cells, bias, has_bias = scratch.cells, at_offset(head.bias, tile, case), adds_bias(head.table, case)
    width, factors = lanes(cells), splat(factor)
    masked = has_slot(head.table, MASK)
    for i in range(m):
        row, offsets = at(cells, i * TILE_KEYS), at(bias, -i)
        low, high = visible(i0 + i, head, case)
        count = min(max(high - j0, np.int64(0)), n)
        if masked:
            best = _score_row(row, factors, offsets, has_bias, mask_of_row(i0 + i, j0, head), low - j0, count)
        elif has_bias:  # passed as a literal, so that the loop does not test it
            best = _score_row(row, factors, offsets, True, None, low - j0, count)
        else:
            best = _score_row(row, factors, offsets, False, None, low - j0, count)
        old = get(tops, i)
        top = max(old, largest(best))
        shift = splat(top if top > -np.inf else scalar(cells, 0.0))
        mass = zeros(cells)
        for j in range(0, count, width):
            x = exp(load(row, j) - shift)
            store(row, j, x)
            mass = mass + x
        for j in range((count + width - 1) // width * width, n, width):
            store(row, j, zeros(cells))
        if case.kept:
            scale_row(row, n, scalar(cells, 1.0) / total(mass))
            continue
        if top > old:
            if old > -np.inf:
                keep = largest(exp(splat(old) - shift))
                put(sums, i, get(sums, i) * keep)
                scale_row(at(scratch.mixed, i * case.v_width), case.v_width, keep)
            put(tops, i, top)
        put(sums, i, get(sums, i) + total(mass))


@inner
def _mix_values(words, v, cells, tile, mode, y, y_row, case):
    """y = weights v, plus y if `mode` says so, by a matrix product. v is read from the packed operands in `words`, if
    there are any.
    """
    _, m, _, n = tile
    if words is not None and packs_values(tile, case):
        packed, row = values_of_tile(words, tile, case)
        gemm(cells, TILE_KEYS, ONE, packed, row, y, y_row, m, case.v_width, n, mode, y, y_row, y, NONE)
        return
    gemm(cells, TILE_KEYS, ONE, v, case.v_row, y, y_row, m, case.v_width, n, mode, y, y_row, y, NONE)


@inner
def _mix(head, terms, tile, start, careful, y, y_row, case, scratch):
    """y = weights v + rows of rel_value. If start is ONTO, y is added.

    careful: whether hidden values of the tile may hold NaN or infinity.
    """
    _, m, j0, n = tile
    d, mode, cells = case.v_width, start | LOWER_A if on_diagonal(head, tile, case) else start, scratch.cells
    v = at(head.v, j0 * case.v_row)
    if careful and partly_hidden(head, tile, case) and not all_finite(v, case.v_row, n, d, y):
        add_product(cells, TILE_KEYS, ONE, v, case.v_row, y, y_row, m, d, n, mode, True)
    elif in_place(case):
        bring_rows_near(at(head.kr, (j0 + n) * case.kr_row), case.kr_row, case.width)
        for i in range(m):
            add_rows(at(cells, i * TILE_KEYS), v, case.v_row, n, d, at(y, i * y_row))
    else:
        _mix_values(head.words, v, cells, tile, mode, y, y_row, case)
    if terms is not None and has_slot(head.table, REL_VALUE):
        relative_mix(cells, offsets_of(terms, REL_VALUE, head, tile, case, scratch), y, y_row, False)


@inner
def finish_rows(tops, sums, i0, rows, out, lse, case, scratch):
    """Divide the sums of weighted values by the sums of the weights, write them to `out`, and compute lse.

    A row that sees no key has the sum 0, the output 0 and the lse -inf. If a sum is NaN, so is the output.
    """
    d, width = case.v_width, lanes(out)
    for i in range(rows):
        mass = np.float64(get(sums, i))
        put(lse, i0 + i, scalar(lse, np.float64(get(tops, i)) + math.log(mass) if mass != 0.0 else -np.inf))
        share = splat(scalar(out, 1.0 / mass if mass != 0.0 else 0.0))
        for c in range(0, d, width):
            store_first(out, (i0 + i) * case.o_row + c, load_first(scratch.mixed, i * d + c, d - c) * share, d - c)


@inner
def _either(out, mixed, kept):
    return out if kept else mixed


@inner
def _second(out, mixed, kept):
    return mixed


@intrinsic
def _mixed_in(typingctx, out, mixed, kept):
    """Return the array in which the sums of values are computed: `out` itself if weights are kept, otherwise `mixed`.
    If weights are kept, `out` never has half precision, so both arrays have the same type.
    """
    return overload_by_type(typingctx, _either if out == mixed else _second, (out, mixed, kept))


@inner
def forward_rows(head, terms, i0, out, lse, case, scratch):
    """Compute out (N, Dv) and lse for the queries of one head from i0 on, at most TILE_QUERIES of them.

    If weights are kept, `lse` is not written. A block whose result holds NaN or infinity is computed again with care:
    a value that some of its queries do not see may have spread to them.
    """
    rows, scratch = min(TILE_QUERIES, ends(head, case)[0] - i0), at_block(scratch, i0, case)
    m = max(np.int64(0), min(rows, head.query_length - i0))
    y, y_row, start = _mixed_in(at(out, i0 * case.o_row), scratch.mixed, case.kept), case.v_width, ONTO
    if case.kept:
        y_row, start = case.o_row, OVERWRITE
    low, high = visible_of_block(i0, m, head, case)
    if in_place(case):
        low, high = shown_of_block(i0, m, low, high, head, case)
    hides, careful = may_hide(head, case), False
    while True:
        _go_through_keys(head, terms, i0, m, rows, low, high, start, careful, y, y_row, case, scratch)
        if careful or not hides or all_finite(scratch.mixed, case.v_width, m, case.v_width, scratch.mixed):
            break
        careful = True
    if not case.kept:
        finish_rows(scratch.stats, at(scratch.stats, TILE_QUERIES), i0, rows, out, lse, case, scratch)


@inner
def _go_through_keys(head, terms, i0, m, rows, low, high, start, careful, y, y_row, case, scratch):
    """Process the tiles of keys: add weighted values to y, and keep the maximum and the sum of each row in `stats`.
    low, high: the range of visible keys.
    """
    tops, sums = scratch.stats, at(scratch.stats, TILE_QUERIES)
    if not case.kept:
        clear(scratch.mixed, rows * case.v_width)
        clear(sums, rows)
    for i in range(rows):
        put(tops, i, scalar(tops, -np.inf))
    choose_base(head.columns, head.table, i0, low, high, case)
    start_running_counts(head, terms, i0, m, case)
    start_path(head.path, head, i0, m, case, scratch)
    farthest, met = low // TILE_KEYS, keys_met(head.path, i0 + m, low, high, head)
    after = (met + TILE_KEYS - 1) // TILE_KEYS
    nearest = min(max(own_tile(i0 + m, head), farthest), after - 1)
    from_near = head.path is not None or counts_keys(head, terms)
    if in_place(case) and not from_near:  # rows read in memory order arrive sooner
        nearest = farthest - 1
    behind = nearest - farthest + 1
    step = np.int64(0)
    while step < after - farthest:  # from the queries' tile backward, then forward from the tile after it
        ahead = np.int64(step >= behind)
        number = farthest + step if ahead else nearest - step
        step += 1
        tile, slope = Tile(i0, m, number * TILE_KEYS, min(TILE_KEYS, high - number * TILE_KEYS)), 0.0
        if case.skip:
            slope, term = bound(head, tile, number, ahead, case)
            if negligible(head, tile, slope, term, tops):
                step = after - farthest if ahead else max(step, behind)  # all tiles beyond are negligible, too
                continue
        seen = not masked_out(i0, number, head, case)
        make_tile_content(head.path, head, tile, low, seen, case, scratch)
        if not (seen and tile.n > 0):
            continue
        factor = _tile_scores(head.path, head, terms, tile, case, scratch)
        if case.skip and faint(head, tile, factor, slope, tops, case, scratch):
            continue
        weigh_values(head, terms, tile, factor, start, careful, y, y_row, case, scratch)


@inner
def _tile_scores(path, head, terms, tile, case, scratch):
    """Compute the tile's scores, and return their factor, as `make_scores` does."""
    if path is None:
        prepare_keys(head, terms, tile, case, scratch)
        return make_scores(head, terms, tile, False, case, scratch)
    return scores_of_content(head, terms, tile, False, case, scratch)


@inner
def weigh_values(head, terms, tile, factor, start, careful, y, y_row, case, scratch):
    """Overwrite the tile's scores, which `make_scores` computed, with its weights in the running softmax. Add the
    weighted values to y.
    """
    soften(head, tile, factor, scratch.stats, at(scratch.stats, TILE_QUERIES), case, scratch)
    drop_cells(head.dropout, head.place, scratch.cells, tile, case)
    _mix(head, terms, tile, start, careful, y, y_row, case, scratch)
