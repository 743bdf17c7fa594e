"""Blocks of queries that are reflected, the tiles of keys that they meet, and which keys of a tile they see; and what
keys add to scores by themselves.

All tokens up to a query reflect it, whatever it sees: of keys up to its own it sees an interval. A block goes from the
tile of its last query to the farthest key that one of its queries sees. Of a tile on the way in which none sees a key
it makes no scores, but for what the tile's reflectors make of the rows.

Offsets of keys, which may be sums over a whole sequence, are taken less the largest that the block may see, its base,
as in `key_query_offsets`; `lse` is left less the base.
"""

from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import (
    at,
    get,
    keep_first,
    lanes,
    largest,
    load,
    load_first,
    maximum,
    pointer,
    put,
    scalar,
    splat,
    store,
    where_negative,
)

TILE = np.int64(32)  # keys
BLOCK = np.int64(4)  # vectors of queries


class Block(NamedTuple):
    """The first query of a block, how many there are, where the first stands; the farthest key that one of them sees,
    how many keys the last one meets; a pointer to their spans, (queries, 2), and whether they have any; the base."""

    first: int
    queries: int
    position: int
    low: int
    met: int
    spans: Any
    spanned: int
    base: float


@inner
def spans_of(tokens, sizes, b):
    """Those of a sample's queries."""
    return at(pointer(tokens.spans), b % max(sizes.spans, 1) * 2 * sizes.queries * (sizes.spans > 0))


@inner
def span_of(spans, spanned, i, last):
    """The first key that query i sees, and the first that it no longer sees, `last` at most."""
    if not spanned:
        return last * 0, last
    return get(spans, 2 * i), min(last, get(spans, 2 * i + 1))


@inner
def _base_of(head, low, met):
    """The largest offset of these keys of a head."""
    lowest = scalar(head.offsets, -np.inf)
    best = splat(lowest)
    for j in range(low, met, lanes(head.offsets)):
        best = maximum(best, keep_first(load_first(head.offsets, j, met - j), met - j, lowest))
    return largest(best)


@inner
def block_from(head, first, count, position, keys, spans, spanned):
    """The block of `count` queries from this one on, with so many keys."""
    met = max(0, min(position + count, keys))
    low = met if spanned else met * 0
    for i in range(count if spanned else 0):
        near, last = span_of(spans, spanned, i, min(position + i + 1, keys))
        low = min(low, near if near < last else met)
    base = _base_of(head, low, met) if head.raised and low < met else scalar(head.offsets, 0.0)
    return Block(first, count, position, low, met, spans, spanned, base)


@inner
def ahead_of(block, first):
    """How far the tile's first key stands before the position of the block's first lane, negative; no more than it
    takes for none of its keys to stand after it, for vectors count lanes in 32 bits."""
    return max(first - block.position, -TILE)


@inner
def look_at_tile(block, first, count, visibility):
    """Whether a query of the block sees one of a tile's keys; `visibility` gets the first and the last for every query,
    counted from the tile's first key on."""
    if not block.spanned:
        return True
    size, seen = BLOCK * lanes(visibility), False
    for i in range(block.queries):
        near, last = span_of(block.spans, block.spanned, i, min(block.position + i + 1, block.met))
        near, last = max(near - first, 0), min(last - first, count)
        seen |= near < last
        put(visibility, i, scalar(visibility, min(near, TILE)))
        put(visibility, size + i, scalar(visibility, max(last, 0) - 1))
    return seen


@inner
def raise_scores(head, block, first, scores, count):
    """Offsets of a tile's keys, added to scores."""
    if not head.raised:
        return
    for j in range(count):
        offset = splat(scalar(scores, get(head.offsets, first + j) - block.base))
        for i in range(0, BLOCK * lanes(scores), lanes(scores)):
            s = at(scores, j * BLOCK * lanes(scores) + i)
            store(s, 0, load(s, 0) + offset)


@inner
def hide(block, scores, count, visibility):
    """Minus infinity in the place of scores of keys that are not seen."""
    if not block.spanned:
        return
    lane, hidden = lanes(scores), splat(scalar(scores, -np.inf))
    size = BLOCK * lane
    for i in range(0, size, lane):
        near, last = load(visibility, i), load(visibility, size + i)
        for j in range(count):
            s, key = at(scores, j * size + i), splat(scalar(scores, j))
            store(s, 0, where_negative(key - near, hidden, where_negative(last - key, hidden, load(s, 0))))
