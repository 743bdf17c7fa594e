"""Visible keys: an interval of keys for each query, from all masks except a dense one."""

import numpy as np

from fastpe.kernels.attention.slots import MASK, has_slot, rows_of
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES
from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.simd import at, blend, get, minus, where_negative


@inlined
def visible(i, head, case):
    """Return the range low .. high - 1 of the keys that query i sees."""
    position = i + head.visibility.start
    low, high = np.int64(0), head.key_length
    if case.causal:
        high = min(high, position + 1)
    if case.window:
        low, high = max(low, position - case.window + 1), min(high, position + case.window)
    if case.spanned:
        low, high = max(low, get(head.visibility.spans, 2 * i)), min(high, get(head.visibility.spans, 2 * i + 1))
    high = max(high, np.int64(0))
    return min(low, high), high


@inner
def visible_of_block(i0, m, head, case):
    """Return the smallest range low .. high - 1 that contains all keys that the m queries from i0 on see."""
    if m <= 0:
        return np.int64(0), np.int64(0)
    if not case.spanned:
        return visible(i0, head, case)[0], visible(i0 + m - 1, head, case)[1]
    first, last = head.key_length, np.int64(0)
    for i in range(i0, i0 + m):
        low, high = visible(i, head, case)
        if low < high:
            first, last = min(first, low), max(last, high)
    return min(first, last), last


@inner
def hide(x, j, low, high, lowest, width):
    """Return x, in which lane i belongs to key j + i, with `lowest` for keys outside low .. high - 1."""
    if high - j < width:
        x = blend(x, high - j, lowest)
    if low > j:
        x = blend(lowest, low - j, x)
    return x


@inner
def where_shown(x, added, lowest, none):
    """Return x, but `none` where the mask hides the key, even if x is NaN there. added: what the mask adds to the
    scores.
    """
    return where_negative(minus(added - lowest), x, none)


@inner
def masked(x, added, lowest):
    """Return x + added. Where minus infinity is added, the result is minus infinity, even if x is NaN."""
    return where_shown(x + added, added, lowest, lowest)


@inner
def mask_of_row(i, j0, head):
    """Return a pointer to the mask's entries for query i and the keys from j0 on."""
    return at(head.visibility.mask, i * rows_of(head.table, MASK) + j0)


@inner
def shown_of_block(i0, m, low, high, head, case):
    """Return the range of `visible_of_block`, without the keys at both ends that the mask hides from all queries."""
    if not has_slot(head.table, MASK):
        return low, high
    first, last = high, np.int64(0)
    for i in range(i0, i0 + m):
        row, (own, end) = mask_of_row(i, np.int64(0), head), visible(i, head, case)
        before, after = min(end, first), max(own, last)
        while own < before and get(row, own) == -np.inf:
            own += 1
        while end > after and get(row, end - 1) == -np.inf:
            end -= 1
        first, last = own if own < before else first, end if end > after else last
    return min(first, last), last


@inner
def may_hide(head, case):
    """Whether NaN or infinity could spread within a block: whether a key may be hidden from one query and visible to
    another. The result is always false in the model, whose rows are finite.
    """
    return not case.alone and (case.causal or case.window or case.spanned or has_slot(head.table, MASK))


@inner
def partly_hidden(head, tile, case):
    """Whether a key of the tile may be hidden from one of its queries."""
    if not may_hide(head, case):
        return False
    hidden = bool(has_slot(head.table, MASK))
    for i in range(tile.i0, tile.i0 + tile.m):
        low, high = visible(i, head, case)
        hidden |= low > tile.j0 or high < tile.j0 + tile.n
    return hidden


@inner
def masked_out(i0, number, head, case):
    """Whether the mask hides the whole tile."""
    return has_slot(head.table, MASK) and not get(
        head.visibility.occupied, i0 // TILE_QUERIES * case.key_blocks + number
    )


@inner
def on_diagonal(head, tile, case):
    """Whether causal attention skips half of the tile, because its first query and first key have the same position.

    If intermediate results are kept for the backward pass, whole tiles are computed, because entries that are skipped
    could hold NaN.
    """
    return case.causal and not (case.keep_raw or case.keep_slopes) and tile.i0 + head.visibility.start == tile.j0


@inner
def own_tile(tile_queries_end, head):
    """Return the number of the tile of keys that contains the position of a block's last query."""
    return (tile_queries_end - 1 + head.visibility.start) // TILE_KEYS
