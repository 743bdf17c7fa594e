"""The score of a query and key, its derivative, and bounds by which tiles are skipped.

    u = scale inner,  then max(u, 0) where `rectify`             inner: the products, see `products`
    S = gain[o] u + z[p] + bias[o] + values[index] + scores      o: offset; z[p]: `contextual_positions`
      + key_offset_j + o (key_slope_j + query_slope_i)           `key_query_offsets`
    S = c tanh(S / c) where there is a `softcap` c
    S + mask

Each term has a file in `terms`. `scores_of_products` applies the terms in order, each in one pass over the tile;
`scores_backward` applies their derivatives in reverse order. Two terms usually need no pass: the bias, unless there is
a soft cap, and the scale, if no term comes between the scale and the bias. `score` applies these two to one vector of
entries at a time, where scores are read, and `score_backward` applies their derivatives. The mask is added where keys
are hidden (`visibility`).

To add a term, see CONTRIBUTING.md.
"""

from collections.abc import Iterable

import numpy as np

from fastpe.kernels.attention.inputs import CHUNK, Options, at_offset
from fastpe.kernels.attention.products import make_content, make_products
from fastpe.kernels.attention.slots import BIAS, COUNTS, ROWS, has_slot
from fastpe.kernels.attention.terms.bias import add_bias, bias_backward
from fastpe.kernels.attention.terms.contextual_positions import add_counts, counts_backward
from fastpe.kernels.attention.terms.key_query_offsets import columns_backward, has_columns, tail_of_keys, with_columns
from fastpe.kernels.attention.terms.scale_and_gain import scale_backward, scale_products, scale_products_backward
from fastpe.kernels.attention.terms.scores import add_scores, slot_scores_backward
from fastpe.kernels.attention.terms.softcap import cap_cells, cap_cells_backward
from fastpe.kernels.attention.terms.values import add_values, values_backward
from fastpe.kernels.attention.tile import TILE_KEYS, copy_cells
from fastpe.kernels.attention.visibility import on_diagonal
from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.simd import (
    at,
    blend,
    get,
    lanes,
    largest,
    load_first,
    maximum,
    scalar,
    splat,
    store_first,
)

# ---------------------------------------------------------------------------------------------------------------------
# Properties of terms, by name

_DECAYING = frozenset({"bias", "key_offset"})


def terms_given(slots: Iterable[str], options: Options) -> frozenset[str]:
    """Return the names of all terms of a call: the slots that are arrays, and the options that are not 0."""
    return frozenset(slots) | {name for name, value in zip(options._fields, options, strict=True) if value}


def bounded(terms: frozenset[str]) -> bool:
    """Whether the terms of a call allow tiles to be skipped (`Pass._skips` has the other conditions).

    This is the case if a bias or key offset is given, and S_ij <= |scale| |row_scale_i q_i| |k_j| + bias[o] +
    key_offset_j holds with all terms. Here q_i and k_j are the rows after `rotors` or `polar`.
    """
    return not terms.isdisjoint(_DECAYING) and all(term in ROWS and ROWS[term].bounded for term in terms)


def keeps_raw(terms: frozenset[str], wants_scale: bool) -> bool:
    """Whether the backward pass needs the products before the scale."""
    return wants_scale or "rectify" in terms or any(term in ROWS and ROWS[term].needs_products for term in terms)


def in_passes(terms: frozenset[str]) -> bool:
    """Whether there is a pass over the scores between the products and the bias."""
    return bool(terms & {"rectify", "softcap"}) or any(term in ROWS and ROWS[term].in_passes for term in terms)


# ---------------------------------------------------------------------------------------------------------------------
# A tile


@inner
def make_scores(head, terms, tile, back, case, scratch):
    """Compute the tile's scores before masks, in `cells`, in the form that `score` takes. Return the factor by which
    `score` multiplies them.

    `prepare_keys` has prepared the tile's keys. back: whether this is the backward pass.
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
    """Do the same as `make_scores`, but start from the products in `cells`, and add columns only if there is a soft
    cap.
    """
    cells = scratch.cells
    if case.keep_raw:
        copy_cells(cells, scratch.raw, TILE_KEYS, tile.m, tile.n)
    if not case.in_passes:
        return head.scale
    scale_products(head, terms, tile, case, cells)
    if has_slot(head.table, COUNTS):  # tested here, as in `make_products`
        add_counts(head, terms, tile, back, case, scratch)
    add_values(head, terms, tile, case, cells)
    add_scores(head, terms, tile, case, cells)
    if case.options.softcap > 0.0:
        add_bias(head, tile, case, cells)
        with_columns(head.columns, scalar(cells, 1.0), head, tile, case, scratch)
        cap_cells(cells, scratch.slopes, case.options.softcap, tile.m, tile.n, case.keep_slopes)
    return scalar(cells, 1.0)


@inner
def scores_backward(head, terms, grads, tile, case, scratch):
    """On entry, `dcells` holds the gradient of the result of `make_scores`. Overwrite it with the gradient of the
    products, and add the gradients of all terms that `make_scores` applies to the products.
    """
    if terms is None:
        return
    if case.options.softcap > 0.0:
        cap_cells_backward(scratch.dcells, scratch.slopes, tile.m, tile.n)
        bias_backward(head, grads, tile, case, scratch.dcells)
    columns_backward(head.columns, grads.columns, head, tile, scratch)
    slot_scores_backward(head, grads, tile, case, scratch.dcells)
    values_backward(head, terms, grads, tile, case, scratch.dcells, scratch)
    counts_backward(head, terms, grads, tile, case, scratch)
    if case.keep_raw:
        scale_products_backward(head, terms, grads, tile, case, scratch)
    elif case.in_passes or has_columns(head.table):
        scale_backward(head, terms, tile, scratch)


@inner
def adds_bias(table, case):
    """Whether `score` adds the bias; with a soft cap, `make_scores` adds it."""
    return has_slot(table, BIAS) and not case.options.softcap > 0.0


@inner
def score_factor(head, terms, case):
    """Return what `make_scores` returns, without computing scores."""
    if terms is None:
        return head.scale
    return scalar(head.q, 1.0) if has_columns(head.table) or case.in_passes else head.scale


# ---------------------------------------------------------------------------------------------------------------------
# One vector of entries


@inlined
def score(x, j, left, factors, bias, has_bias):
    """Return the scores S of `left` entries of a row from entry j on. x: the result of `make_scores` for these entries.
    bias: pointer to the bias of the row's first entry.
    """
    s = x * factors
    if has_bias:
        s = s + load_first(bias, j, left)
    return s


@inlined
def score_backward(ds, j, left, factors, dbias, wants_bias):
    """Return the gradient of the argument x of `score`, given the gradient of S. Add to dbias."""
    if wants_bias:
        store_first(dbias, j, load_first(dbias, j, left) + ds, left)
    return ds * factors


# ---------------------------------------------------------------------------------------------------------------------
# Skipping: see the docstring of `kernels.attention`


@inner
def bound(head, tile, number, ahead, case):
    """Return `slope` and `term` such that the logarithm of the sum of exp(scores), over the tile and all tiles beyond
    it, is at most slope |q_i| + term.

    ahead: 1 if the tiles beyond it have larger offsets, as for keys after the query; otherwise 0.
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
    """First rule of skipping: whether slope |q_i| + term is below floor_i + `limit` for every row i. `slope` and `term`
    are the results of `bound`.
    """
    held, norms = True, at(head.guard.q_norms, tile.i0)
    for i in range(tile.m):
        held &= slope * np.float64(get(norms, i)) + term < np.float64(get(floors, i)) + head.guard.limit
    return held


@inner
def faint(head, tile, factor, slope, floors, case, scratch):
    """Second rule of skipping: whether every score of the tile is below its row's floor + `cell_limit`.

    The maximum of a row ignores NaN. So `0 * slope * |q_i|` is added to the maximum: this product is NaN if one of the
    scores may be NaN.
    """
    cells, bias, has_bias = scratch.cells, at_offset(head.bias, tile, case), has_slot(head.table, BIAS)
    width, factors, none = lanes(cells), splat(factor), splat(scalar(cells, -np.inf))
    diagonal = on_diagonal(head, tile, case)  # then products after the diagonal are not written
    for i in range(tile.m):
        row, offsets, best = at(cells, i * TILE_KEYS), at(bias, -i), none
        count = min(tile.n, i + 1) if diagonal else tile.n
        for j in range(0, count, width):
            left = count - j
            x = score(load_first(row, j, left), j, left, factors, offsets, has_bias)
            best = maximum(best, x if left >= width else blend(x, left, none))
        row_best = np.float64(largest(best)) + 0.0 * slope * np.float64(get(head.guard.q_norms, tile.i0 + i))
        if not row_best < np.float64(get(floors, i)) + head.guard.cell_limit:
            return False
    return True
