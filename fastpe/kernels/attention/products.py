"""The sums of products in a tile of scores, forward and backward: all that is linear in queries and keys.

    inner = content + q . rel_key[o] + k . rel_query[o] + key_bias . k,      o the offset of key and query

The content is the product of the rotated queries and keys, with their growth and `rel_gain` (`relative`).
"""

from fastpe.kernels.attention.bf16_panels import is_packed, keys_of_tile
from fastpe.kernels.attention.inputs import NONE, ONE, gradient_of
from fastpe.kernels.attention.nonfinite import add_weighted_rows
from fastpe.kernels.attention.slots import (
    GROWTH,
    GROWTH_K,
    KEY_BIAS,
    REL_GAIN,
    REL_KEY,
    REL_QUERY,
    doubles_of,
    floats_of,
    has_slot,
    rows_of,
    wants_gradient,
)
from fastpe.kernels.attention.terms.relative import (
    channel_scores,
    clipped_row,
    offsets_of,
    relative_gradient,
    relative_mix,
    relative_scores,
)
from fastpe.kernels.attention.tile import FEW, TILE_KEYS, add_scaled, bring_rows_near, cell_sums, dots
from fastpe.kernels.attention.visibility import on_diagonal
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.products.float_gemm import LOWER_C, OVERWRITE, PANEL
from fastpe.kernels.products.gemm import gemm, row_of_transposed, transpose_operand
from fastpe.kernels.rows.growth import grown, growth_factors
from fastpe.kernels.simd import (
    at,
    get,
    lanes,
    load_first,
    same_place,
    store_first,
)

# ---------------------------------------------------------------------------------------------------------------------
# Forward


@inner
def has_factors(table):
    """Whether the content has factors: growth, which multiplies queries and keys first, or `rel_gain`."""
    return has_slot(table, GROWTH) or has_slot(table, REL_GAIN)


@inner
def in_place(case):
    """Whether keys are read in place, not transposed, because there are few queries. This is never so in the model."""
    return case.queries <= FEW and not case.alone


@inner
def prepare_keys(head, terms, tile, case, scratch):
    """Transpose the tile's rotated keys. With growth, first scale the keys for the block of queries from tile.i0 on. Do
    not transpose them with `rel_gain`, or if keys are packed or read in place.
    """
    d, n, source, row = case.width, tile.n, at(head.kr, tile.j0 * case.kr_row), case.kr_row
    if terms is not None and has_slot(head.table, GROWTH):
        pairs, factors = rows_of(head.table, GROWTH), scratch.k_factors
        growth = at(doubles_of(head.table, GROWTH_K, terms), tile.j0 * pairs)
        origin = at(doubles_of(head.table, GROWTH, terms), tile.i0 * pairs)
        growth_factors(growth, origin, n, pairs, case.half, -1.0, factors)
        grown(source, row, factors, 2 * pairs, scratch.k_scaled, n, d)
        if not (in_place(case) or has_slot(head.table, REL_GAIN)):
            transpose_operand(scratch.k_scaled, d, scratch.k_columns, TILE_KEYS, n, d)
    elif not (is_packed(head.words) or in_place(case) or _has_gain(terms, head.table)):
        transpose_operand(source, row, scratch.k_columns, TILE_KEYS, n, d)


@inner
def _has_gain(terms, table):
    if terms is None:
        return False
    return bool(has_slot(table, REL_GAIN))


@inner
def columns_of(n, cells):
    """Return the number of columns to compute in a product that needs n columns. If more than half of the last panel is
    needed, the whole panel is computed, because this takes less time than computing the needed vectors one by one.
    """
    panel = PANEL * lanes(cells)
    return n if n % panel <= panel // 2 else n + panel - n % panel


@inner
def _make_in_place(content, content_row, keys, key_row, tile, case, cells):
    for i in range(tile.m):
        dots(at(content, i * content_row), keys, key_row, tile.n, case.width, at(cells, i * TILE_KEYS))


@inner
def make_content(content, content_row, keys, key_row, head, tile, case, scratch):
    """cells = content . key for all pairs that may be visible. keys: the tile's keys. Unless they are read in place or
    packed, `k_columns` holds them transposed.
    """
    mode, cells = LOWER_C if on_diagonal(head, tile, case) else OVERWRITE, scratch.cells
    if in_place(case):
        bring_rows_near(at(head.v, tile.j0 * case.v_row), case.v_row, case.v_width)
        _make_in_place(content, content_row, keys, key_row, tile, case, cells)
        return
    columns = scratch.k_columns if has_factors(head.table) else keys_of_tile(head.words, tile, scratch.k_columns)
    gemm(
        content, content_row, ONE, columns, row_of_transposed(columns, TILE_KEYS, case.width), cells, TILE_KEYS, tile.m,
        columns_of(tile.n, cells), case.width, mode, cells, NONE, cells, NONE,
    )  # fmt: skip


@inner
def make_products(head, terms, tile, case, scratch):
    """cells = inner. `prepare_keys` has prepared the tile's keys."""
    table, keys = head.table, at(head.kr, tile.j0 * case.kr_row)
    content, content_row = at(head.qr, tile.i0 * case.qr_row), case.qr_row
    if has_factors(table):
        _make_with_factors(content, content_row, keys, head, terms, tile, case, scratch)
    elif _reads_keys_once(head, terms, tile, case, scratch):
        _make_with_key_terms(content, content_row, keys, head, terms, tile, case, scratch)
        if has_slot(table, REL_KEY):
            _add_query_terms(head, terms, tile, case, scratch)
        return
    else:
        make_content(content, content_row, keys, case.kr_row, head, tile, case, scratch)
    # tested here, because for few queries passing the arguments takes longer than computing the entries
    if has_slot(table, REL_KEY) or has_slot(table, REL_QUERY) or has_slot(table, KEY_BIAS):
        add_relative_products(head, terms, tile, case, scratch)


@inner
def _make_with_factors(content, content_row, keys, head, terms, tile, case, scratch):
    """Compute the content if it `has_factors`."""
    d, m, table, cells = case.width, tile.m, head.table, scratch.cells
    pairs, factors, scaled = rows_of(table, GROWTH), scratch.q_factors, scratch.q_scaled
    if has_slot(table, GROWTH):
        growth = at(doubles_of(table, GROWTH, terms), tile.i0 * pairs)
        growth_factors(growth, growth, m, pairs, case.half, 1.0, factors)
        grown(content, content_row, factors, 2 * pairs, scaled, m, d)
        if not has_slot(table, REL_GAIN):
            make_content(scaled, d, scratch.k_scaled, d, head, tile, case, scratch)
            return
    offsets = offsets_of(terms, REL_GAIN, head, tile, case, scratch)
    if has_slot(table, GROWTH):
        channel_scores(scaled, d, scratch.k_scaled, d, offsets, at(scaled, m * d), cells)
    else:
        channel_scores(content, content_row, keys, case.kr_row, offsets, scaled, cells)


@inner
def _reads_keys_once(head, terms, tile, case, scratch):
    """Whether `_make_with_key_terms` can be used, and there is a term for it to add."""
    table = head.table
    if not (in_place(case) and (has_slot(table, KEY_BIAS) or has_slot(table, REL_QUERY))):
        return False
    offsets = offsets_of(terms, REL_QUERY, head, tile, case, scratch)
    one_row = not has_slot(table, REL_QUERY) or clipped_row(offsets) >= 0
    return one_row and same_place(head.k, head.kr)


@inner
def _make_with_key_terms(content, content_row, keys, head, terms, tile, case, scratch):
    """cells = content + key_bias . k + k . rel_query[o], if keys are not rotated and all read the same row of
    `rel_query`.

    The three vectors by which a key is multiplied (query, key_bias, row of rel_query) are added first, so that each key
    is loaded only once.
    """
    d, table, summed = case.width, head.table, scratch.q_scaled
    key_bias = floats_of(table, KEY_BIAS, terms, summed)
    offsets = offsets_of(terms, REL_QUERY, head, tile, case, scratch)
    for i in range(tile.m):
        for c in range(0, d, lanes(summed)):
            x = load_first(content, i * content_row + c, d - c)
            if has_slot(table, KEY_BIAS):
                x = x + load_first(key_bias, c, d - c)
            if has_slot(table, REL_QUERY):
                x = x + load_first(offsets.rel, clipped_row(offsets) * d + c, d - c)
            store_first(summed, i * d + c, x, d - c)
    bring_rows_near(at(head.v, tile.j0 * case.v_row), case.v_row, case.v_width)
    _make_in_place(summed, d, keys, case.kr_row, tile, case, scratch.cells)


@inner
def add_relative_products(head, terms, tile, case, scratch):
    """Add all terms of `inner` except the content to `cells`."""
    table, cells, k = head.table, scratch.cells, at(head.k, tile.j0 * case.k_row)
    if has_slot(table, REL_KEY):
        _add_query_terms(head, terms, tile, case, scratch)
    if has_slot(table, REL_QUERY):
        relative_scores(k, case.k_row, offsets_of(terms, REL_QUERY, head, tile, case, scratch), cells, True)
    if has_slot(table, KEY_BIAS):
        _add_key_terms(cells, floats_of(table, KEY_BIAS, terms, cells), k, tile, case, scratch)


@inner
def _add_query_terms(head, terms, tile, case, scratch):
    """cells[i, j] += q_i . rel_key[o]."""
    q, offsets = at(head.q, tile.i0 * case.q_row), offsets_of(terms, REL_KEY, head, tile, case, scratch)
    relative_scores(q, case.q_row, offsets, scratch.cells, False)


@inner
def _add_key_terms(cells, key_bias, k, tile, case, scratch):
    """cells[i, j] += key_bias . k_j."""
    n, sums = tile.n, scratch.band
    dots(key_bias, k, case.k_row, n, case.width, sums)
    for i in range(tile.m):
        for j in range(0, n, lanes(cells)):
            more = load_first(sums, j, n - j)
            store_first(cells, i * TILE_KEYS + j, load_first(cells, i * TILE_KEYS + j, n - j) + more, n - j)


# ---------------------------------------------------------------------------------------------------------------------
# Backward


@inner
def products_backward(head, terms, grads, tile, case, scratch):
    """Add the gradients that come from all terms of `inner` except the content. `dcells` holds the gradient of `inner`.

    The part of dq that comes from rel_key is not added here, but in `backward.rel_key_backward`.
    """
    table, dcells = head.table, scratch.dcells
    q, k = at(head.q, tile.i0 * case.q_row), at(head.k, tile.j0 * case.k_row)
    if wants_gradient(table, REL_KEY):
        offsets = offsets_of(terms, REL_KEY, head, tile, case, scratch)
        relative_gradient(dcells, q, case.q_row, gradient_of(grads.sums, REL_KEY), offsets, False)
    if has_slot(table, REL_QUERY):
        offsets = offsets_of(terms, REL_QUERY, head, tile, case, scratch)
        if wants_gradient(table, REL_QUERY):
            relative_gradient(dcells, k, case.k_row, gradient_of(grads.sums, REL_QUERY), offsets, True)
        relative_mix(dcells, offsets, grads.dk_rest, case.g_row, True)
    if has_slot(table, KEY_BIAS):
        _key_terms_backward(head, terms, grads, tile, case, scratch)


@inner
def _key_terms_backward(head, terms, grads, tile, case, scratch):
    """Add the gradients of `_add_key_terms`."""
    key_bias = floats_of(head.table, KEY_BIAS, terms, scratch.band)
    sums, k, wants = scratch.band, at(head.k, tile.j0 * case.k_row), wants_gradient(head.table, KEY_BIAS)
    cell_sums(scratch.dcells, sums, tile.m, tile.n, True)
    if wants:
        add_weighted_rows(sums, k, case.k_row, tile.n, case.width, gradient_of(grads.sums, KEY_BIAS))
    for j in range(tile.n):
        add_scaled(at(grads.dk_rest, j * case.g_row), get(sums, j), key_bias, case.width)
