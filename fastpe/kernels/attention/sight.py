"""What queries see, and the bias of few, checked and laid out for the kernels in compiled code: in Python that takes
longer than attention of a single query."""

import numpy as np

from fastpe.kernels._jit import entry, inner
from fastpe.kernels.attention.cells import TILE_KEYS

FARTHEST = np.int64(2**40)  # position of a first query, with which no sum of positions overflows


@inner
def _count(lengths, b, most):
    return lengths[b] if lengths.size else most


@inner
def _lay_mask(shown, added, mask, occupied, m):
    """The mask as numbers to add, and whether it leaves anything of a tile; False where one is no number below
    infinity."""
    strips, fits = (m + TILE_KEYS - 1) // TILE_KEYS, True
    rows = mask.size // m
    in_a_tile = rows // (occupied.size // strips)
    occupied[:] = 0
    for row in range(rows):
        for j in range(m):
            place = row * m + j
            if shown.size:
                mask[place] = 0.0 if shown[place] else -np.inf
            else:
                mask[place] = added[place]
                fits &= added[place] < np.inf
            if mask[place] > -np.inf:
                occupied[row // in_a_tile * strips + j // TILE_KEYS] = 1
    return fits


@inner
def _unfold(bias, count, unfolded, h, n, m, starts):
    """The bias of all offsets from -(n - 1) to m - 1; False where one is not finite."""
    fits = True
    for place in range(bias.size):
        fits &= abs(bias[place]) < np.inf
    met, reach, leads = n + m - 1, count // 2, bias.size // (h * count)
    for lead in range(unfolded.size // (h * met)):
        first = reach - (n - 1) - starts[lead]  # the row of the first entry, were nothing clipped
        low = min(max(-first, np.int64(0)), met)
        high = min(max(count - first, low), met)
        for head in range(h):
            source, target = (lead % leads * h + head) * count, (lead * h + head) * met
            for place in range(low):
                unfolded[target + place] = bias[source]
            for place in range(low, high):
                unfolded[target + place] = bias[source + first + place]
            for place in range(high, met):
                unfolded[target + place] = bias[source + count - 1]
    return fits


@entry(label="what queries see")
def lay_out(sizes, given, made):
    """Fill `made` from what is `given`; False where a value is none that attention takes.

    sizes: H, N, M and rows of the bias. given: lengths of queries and of keys, starts, spans, the mask as bytes or as
    numbers, the bias; flat, and empty where there is none. made: lengths (B, 2), starts (B,), spans, mask, occupied and
    the unfolded bias, flat, of which those that are not given are any arrays.
    """
    h, n, m, count = sizes
    query_lengths, key_lengths, starts, spans, shown, added, bias = given
    made_lengths, made_starts, made_spans, mask, occupied, unfolded = made
    fits = True
    for b in range(made_starts.size):
        queries, keys = _count(query_lengths, b, n), _count(key_lengths, b, m)
        first = _count(starts, b, m - n)
        fits &= 0 <= queries <= n and 0 <= keys <= m and (starts.size == 0 or 0 <= first <= FARTHEST)
        made_lengths[b, 0], made_lengths[b, 1], made_starts[b] = queries, keys, first
    if not fits:
        return False
    for place in range(spans.size):
        made_spans[place] = min(max(spans[place], np.int64(0)), m)
    if shown.size or added.size:
        fits &= _lay_mask(shown, added, mask, occupied, m)
    if bias.size:
        fits &= _unfold(bias, count, unfolded, h, n, m, made_starts)
    return fits
