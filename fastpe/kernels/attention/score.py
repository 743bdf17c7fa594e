"""The score of a cell, its derivative, and what may be left out with it.

    u = scale inner,  then max(u, 0) where `rectify`             inner as in `products`
    S = gain[o] u + z[p] + bias[o] + values[index] + scores      o: offset; z[p]: `contextual_positions`
      + key_offset_j + o (key_slope_j + query_slope_i)           `key_query_offsets`
    S = c tanh(S / c) where there is a `softcap` c
    S + mask

`make_scores` goes over a tile once for each of these terms that is given, but for the bias and the mask; `score` adds
the bias, unless there is a soft cap, and where there is nothing between it and the products also the scale, to one
vector of cells at a time, wherever scores are read. `scores_backward` and `score_backward` are their derivatives. The
mask is added where keys are hidden.

To add a score term:

- `functional.slots`: a row with its axes and dtype, and what it cannot be given with;
- `inputs`: its name in `SLOTS`, a field in `Slots` and `Terms`, and its place in SUMMED or OF_CELLS;
  `workspace` gives its gradient memory there, by `gradient_shape`. A number becomes one of the `Options` instead;
- here: a pass in `scores_of_products`, the derivative in `scores_backward`, and whether it is in use in
  `_takes_passes`. A derivative that needs `inner` is named in FROM_RAW. No tile is left out with the new term until
  BOUNDED names it, which is a claim to be proved;
- `reference`: the formula. `encodings.slots` lists the terms that an encoding may give.
"""

from collections.abc import Iterable

import numpy as np

from fastpe.kernels.attention.contextual_positions import add_counts, counts_backward
from fastpe.kernels.attention.inputs import (
    BIAS,
    CHUNK,
    COUNTS,
    GAIN,
    SCORES,
    VALUES,
    Options,
    at_offset,
    given,
    gradient_of,
    offset_gradient_of,
    rows_of,
    wanted,
)
from fastpe.kernels.attention.key_query_offsets import columns_backward, has_columns, tail_of_keys, with_columns
from fastpe.kernels.attention.products import make_content, make_products
from fastpe.kernels.attention.softcap import cap_cells, cap_cells_backward
from fastpe.kernels.attention.tile import TILE_KEYS, add_cells, add_scaled, clear, copy_cells
from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.simd import (
    at,
    fma,
    get,
    lanes,
    largest,
    load_first,
    maximum,
    put,
    relu,
    scalar,
    splat,
    store_first,
    total,
    where_negative,
    where_zero,
    zeros,
)

# ---------------------------------------------------------------------------------------------------------------------
# What is known of the terms, by name

BOUNDED = frozenset({"rotors", "polar", "angles", "bias", "key_offset", "row_scale"})
"""Terms with which S_ij <= |scale| |row_scale_i q_i| |k_j| + bias[o] + key_offset_j, of mapped q_i and k_j. With any
other, whatever it is, no tile is left out."""

_DECAYING = frozenset({"bias", "key_offset"})

FROM_RAW = frozenset({"gain", "rectify"})
"""Terms whose derivatives, or those of what comes before them, need `inner` again."""


def terms_given(slots: Iterable[str], options: Options) -> frozenset[str]:
    """The names of all terms of a call: the slots that are arrays, and the options that are not 0."""
    return frozenset(slots) | {name for name, value in zip(options._fields, options, strict=True) if value}


def bounded(terms: frozenset[str]) -> bool:
    """Whether tiles may be left out: the score decays, and is known to be bounded."""
    return not terms.isdisjoint(_DECAYING) and terms <= BOUNDED


def keeps_raw(terms: frozenset[str], wants_scale: bool) -> bool:
    """Whether the backward pass needs `inner`."""
    return wants_scale or not terms.isdisjoint(FROM_RAW)


# ---------------------------------------------------------------------------------------------------------------------
# A tile


@inner
def make_scores(head, terms, tile, back, case, scratch):
    """The tile's scores before masks, in `cells`, as `score` takes them; returns its factor.

    The tile's keys stand as `prepare_keys` left them. back: whether this is the backward pass.
    """
    if terms is None:
        keys = at(head.kr, tile.j0 * case.kr_row)
        make_content(at(head.qr, tile.i0 * case.qr_row), case.qr_row, keys, case.kr_row, head, tile, case, scratch)
        return head.scale
    factor = _make_all_scores(head, terms, tile, back, case, scratch)
    if case.options.softcap > 0.0:
        return factor
    return with_columns(head.columns, factor, head, tile, case, scratch)


@inner
def _make_all_scores(head, terms, tile, back, case, scratch):
    make_products(head, terms, tile, case, scratch)
    return scores_of_products(head, terms, tile, back, case, scratch)


@inner
def scores_of_products(head, terms, tile, back, case, scratch):
    """As `make_scores`, but for columns without a soft cap, of `inner` in `cells`."""
    i0, m, j0, n = tile
    table, cells, place = head.table, scratch.cells, i0 * case.keys + j0
    if case.keep_raw:
        copy_cells(cells, scratch.raw, TILE_KEYS, m, n)
    if not _takes_passes(table, case):
        return head.scale
    scale_products(head, terms, tile, case, cells)
    if given(table, COUNTS):  # asked before the call, which hands over more than a query has cells in a tile
        add_counts(head, terms, tile, back, case, scratch)
    if given(table, VALUES):
        add_values(cells, at(terms.indices, place), case.keys, terms.values, m, n)
    if given(table, SCORES):
        add_cells(cells, TILE_KEYS, at(terms.scores, place), case.keys, m, n)
    if case.options.softcap > 0.0:
        if given(table, BIAS):
            add_bias(cells, at_offset(head.bias, tile, case), m, n)
        with_columns(head.columns, scalar(cells, 1.0), head, tile, case, scratch)
        cap_cells(cells, scratch.slopes, case.options.softcap, m, n, case.keep_slopes)
    return scalar(cells, 1.0)


@inner
def scores_backward(head, terms, grads, tile, case, scratch):
    """Gradients of what `make_scores` adds; dcells: from that of its result to that of `inner`."""
    i0, m, j0, n = tile
    table, dcells, place = head.table, scratch.dcells, i0 * case.keys + j0
    if terms is None:
        return
    if case.options.softcap > 0.0:
        cap_cells_backward(dcells, scratch.slopes, m, n)
        if wanted(table, BIAS):
            bias_backward(dcells, at(offset_gradient_of(grads, BIAS), case.queries - 1 - i0), m, n)
    columns_backward(head.columns, grads.columns, head, tile, scratch)
    if wanted(table, SCORES):
        add_cells(at(gradient_of(grads.whole, SCORES), place), case.keys, dcells, TILE_KEYS, m, n)
    if wanted(table, VALUES):
        index, count = at(terms.indices, place), rows_of(table, VALUES)
        dvalues = gradient_of(grads.sums, VALUES)
        values_backward(dcells, index, case.keys, dvalues, scratch.values, count, m, n)
    counts_backward(head, terms, grads, tile, case, scratch)
    if case.keep_raw:
        scale_products_backward(head, terms, grads, tile, case, scratch)
    elif _takes_passes(table, case) or has_columns(table):
        _scale_cells(dcells, head.scale, False, terms.gain, False, m, n)


@inner
def _takes_passes(table, case):
    """Whether something is done to the scores between the products and the bias, or raw is kept."""
    between = case.options.rectify or given(table, GAIN) or given(table, VALUES) or given(table, SCORES)
    return case.keep_raw or between or given(table, COUNTS) or case.options.softcap > 0.0


@inner
def adds_bias(table, case):
    """Whether there is a bias that `score` adds: under a soft cap `make_scores` does."""
    return given(table, BIAS) and not case.options.softcap > 0.0


@inner
def add_bias(cells, bias, m, n):
    """cells += bias, which stands at the tile's cell (0, 0)."""
    for i in range(m):
        row, offsets = at(cells, i * TILE_KEYS), at(bias, -i)
        for j in range(0, n, lanes(cells)):
            store_first(row, j, load_first(row, j, n - j) + load_first(offsets, j, n - j), n - j)


@inner
def bias_backward(cells, dbias, m, n):
    """dbias += the sums of the gradients of cells by offset."""
    for i in range(m):
        row, offsets = at(cells, i * TILE_KEYS), at(dbias, -i)
        for j in range(0, n, lanes(cells)):
            store_first(offsets, j, load_first(offsets, j, n - j) + load_first(row, j, n - j), n - j)


@inner
def score_factor(head, terms, case):
    """What `make_scores` returns."""
    if terms is None:
        return head.scale
    return scalar(head.q, 1.0) if has_columns(head.table) or _takes_passes(head.table, case) else head.scale


@inner
def _scale_cells(cells, scale, rectify, gain, has_gain, m, n):
    """cells *= scale, then max(cells, 0) where `rectify`, then times gain; gain at the tile's cell (0, 0)."""
    factor = splat(scale)
    for i in range(m):
        row, offsets = at(cells, i * TILE_KEYS), at(gain, -i)
        for j in range(0, n, lanes(cells)):
            u = load_first(row, j, n - j) * factor
            if rectify:
                u = relu(u)
            if has_gain:
                u = u * load_first(offsets, j, n - j)
            store_first(row, j, u, n - j)


@inner
def scale_products(head, terms, tile, case, cells):
    """Cells times the scale, then max(cells, 0) where `rectify`, then times gain."""
    gain = at_offset(terms.gain, tile, case)
    _scale_cells(cells, head.scale, case.options.rectify, gain, given(head.table, GAIN), tile.m, tile.n)


@inner
def scale_products_backward(head, terms, grads, tile, case, scratch):
    """dcells: the gradient of `scale_products`' result on entry, of its input (`raw`) on return; adds to the others."""
    _, m, _, n = tile
    rectify, has_gain, wants_gain = case.options.rectify, given(head.table, GAIN), wanted(head.table, GAIN)
    gain = at_offset(terms.gain, tile, case)
    dgain = at(offset_gradient_of(grads, GAIN), case.queries - 1 - tile.i0)
    cells, raw = scratch.dcells, scratch.raw
    factor, scale_sum, none = splat(head.scale), zeros(cells), zeros(cells)
    for i in range(m):
        row, inputs, offsets, doffsets = at(cells, i * TILE_KEYS), at(raw, i * TILE_KEYS), at(gain, -i), at(dgain, -i)
        for j in range(0, n, lanes(cells)):
            left = n - j
            d = load_first(row, j, left)
            x = where_zero(d, none, load_first(inputs, j, left))  # that of a hidden key may be NaN
            if has_gain:
                u = x * factor
                if rectify:
                    u = relu(u)
                if wants_gain:
                    store_first(doffsets, j, fma(d, u, load_first(doffsets, j, left)), left)
                d = d * load_first(offsets, j, left)
            if rectify:
                d = where_negative(none - x * factor, d, none)
            scale_sum = fma(d, x, scale_sum)
            store_first(row, j, d * factor, left)
    put(grads.dscale, 0, get(grads.dscale, 0) + np.float64(total(scale_sum)))


@inner
def add_values(cells, index, index_row, values, m, n):
    """cells[i, j] += values[index[i, j]]."""
    for i in range(m):
        for j in range(n):
            where = np.int64(get(index, i * index_row + j))
            put(cells, i * TILE_KEYS + j, get(cells, i * TILE_KEYS + j) + get(values, where))


@inner
def values_backward(cells, index, index_row, dvalues, own, count, m, n):
    """dvalues[index[i, j]] += cells[i, j]; where there are more cells than values, the tile has its own sums first."""
    if count > m * n:
        _add_by_index(cells, index, index_row, dvalues, m, n)
        return
    clear(own, count)
    _add_by_index(cells, index, index_row, own, m, n)
    add_scaled(dvalues, scalar(own, 1.0), own, count)


@inner
def _add_by_index(cells, index, index_row, dvalues, m, n):
    for i in range(m):
        for j in range(n):
            where = np.int64(get(index, i * index_row + j))
            put(dvalues, where, get(dvalues, where) + get(cells, i * TILE_KEYS + j))


# ---------------------------------------------------------------------------------------------------------------------
# One vector of cells


@inlined
def score(x, j, left, factors, bias, has_bias):
    """S of the cells from j on, `left` of them, of which x is what `make_scores` made; bias: at the row's cell 0."""
    s = x * factors
    if has_bias:
        s = s + load_first(bias, j, left)
    return s


@inlined
def score_backward(ds, j, left, factors, dbias, wants_bias):
    """The gradient of `score`'s x, from that of S; adds to dbias."""
    if wants_bias:
        store_first(dbias, j, load_first(dbias, j, left) + ds, left)
    return ds * factors


# ---------------------------------------------------------------------------------------------------------------------
# What may be left out: see the head of this package


@inner
def bound(head, tile, number, ahead, case):
    """The factor of |q_i|, and the term: log of the sum of exp(scores) that the tile and all beyond it cannot exceed.

    ahead: 1 where beyond means larger offsets, as of keys after the query, else 0.
    """
    chunks = (case.queries + case.keys - 1 + CHUNK - 1) // CHUNK
    first = tile.j0 - tile.i0 + case.queries - 1
    offset = first - (tile.m - 1) if ahead else first + tile.n - 1
    slope = (
        abs(np.float64(head.scale)) * np.float64(get(head.guard.key_norms, ahead * case.key_blocks + number)) * 1.001
    )
    tail = get(head.guard.bias_tails, ahead * chunks + offset // CHUNK)
    return slope, tail + tail_of_keys(head.columns, head.table, tile, number, ahead, case)


@inner
def negligible(head, tile, slope, term, floors):
    """Whether slope |q_i| + term is below floor_i + `limit` for every row."""
    held, norms = True, at(head.guard.q_norms, tile.i0)
    for i in range(tile.m):
        held &= slope * np.float64(get(norms, i)) + term < np.float64(get(floors, i)) + head.guard.limit
    return held


@inner
def faint(head, tile, factor, slope, floors, case, scratch):
    """Whether every score of the tile is below its row's floor + `cell_limit`.

    slope |q_i| times 0 is not a number where some score may be none, which the largest would not tell.
    """
    cells, bias, has_bias = scratch.cells, at_offset(head.bias, tile, case), given(head.table, BIAS)
    width, factors, none = lanes(cells), splat(factor), splat(scalar(cells, -np.inf))
    for i in range(tile.m):
        row, offsets, best = at(cells, i * TILE_KEYS), at(bias, -i), none
        for j in range(0, tile.n, width):
            left = tile.n - j
            best = maximum(best, score(load_first(row, j, left), j, left, factors, offsets, has_bias))
        row_best = np.float64(largest(best)) + 0.0 * slope * np.float64(get(head.guard.q_norms, tile.i0 + i))
        if not row_best < np.float64(get(floors, i)) + head.guard.cell_limit:
            return False
    return True
