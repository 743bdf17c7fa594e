"""What queries see, checked and laid out for the kernels in compiled code: in Python that takes longer than attention
of a single query."""

import numpy as np

from fastpe.base import validation
from fastpe.kernels._jit import entry, inner
from fastpe.kernels.attention.cells import TILE_KEYS
from fastpe.kernels.simd import lanes, largest, load, maximum, pointer, relu, scalar, splat, store, total, zeros

FARTHEST = np.int64(validation.FARTHEST)


@inner
def _count(lengths, b, most):
    return lengths[b] if lengths.size else most


@inner
def _lay_shown(shown, mask):
    """Numbers to add in the place of bool; whether any is seen."""
    seen = False
    for j in range(shown.size):
        mask[j] = 0.0 if shown[j] else -np.inf
        seen |= shown[j]
    return seen


@inner
def _lay_added(added, mask):
    """Numbers to add, copied unless `mask` is empty; whether any is above minus infinity, and whether all are numbers
    below infinity."""
    source, target, copies = pointer(added), pointer(mask), mask.size > 0
    step, none, lowest = lanes(source), zeros(source), splat(scalar(source, -np.inf))
    whole, top, sums = added.size - added.size % step, lowest, none
    for j in range(0, whole, step):
        x = load(source, j)
        if copies:
            store(target, j, x)
        top, sums = maximum(x, top), sums + relu(x) * none  # 0, or no number
    seen, fits = largest(top) > -np.inf, total(sums) == 0.0
    for j in range(whole, added.size):
        if copies:
            mask[j] = added[j]
        seen |= added[j] > -np.inf
        fits &= added[j] < np.inf
    return seen, fits


@inner
def _lay_mask(shown, added, mask, occupied, m):
    """The mask as numbers to add, and whether it leaves anything of a tile; False where one is no number below
    infinity."""
    strips, fits = (m + TILE_KEYS - 1) // TILE_KEYS, True
    rows = (shown.size + added.size) // m
    in_a_tile = rows // (occupied.size // strips)
    occupied[:] = 0
    for row in range(rows):
        for strip in range(strips):
            first, last = row * m + strip * TILE_KEYS, row * m + min((strip + 1) * TILE_KEYS, m)
            if shown.size:
                seen = _lay_shown(shown[first:last], mask[first:last])
            else:
                seen, are_numbers = _lay_added(added[first:last], mask[first:last])
                fits &= are_numbers
            if seen:
                occupied[row // in_a_tile * strips + strip] = 1
    return fits


@inner
def lay(sizes, given, made):
    """Fill `made` from what is `given`; False where a value is none that attention takes.

    sizes: N and M. given: lengths of queries and of keys, starts, spans, the mask as bool or as numbers; flat, and
    empty where there is none. made: lengths (B, 2), starts (B,), spans, mask and occupied, flat, of which those that
    are not given are any arrays; the mask is empty, too, where numbers stay where they are.
    """
    n, m = sizes
    query_lengths, key_lengths, starts, spans, shown, added = given
    made_lengths, made_starts, made_spans, mask, occupied = made
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
    return fits


@entry(label="what queries see")
def lay_out(sizes, given, made):
    """`lay`, called from Python."""
    return lay(sizes, given, made)
