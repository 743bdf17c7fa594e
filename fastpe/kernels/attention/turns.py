"""What maps, lifts, turns, scales and grows the rows of a call that is made again."""

import numpy as np

from fastpe.kernels._jit import allocating, inner
from fastpe.kernels.attention.given import end_of_first, grows_little
from fastpe.kernels.attention.turned_products import Turns, products_within
from fastpe.kernels.attention.unfolding import are_finite
from fastpe.kernels.board import BOARD
from fastpe.kernels.growth import grow_within
from fastpe.kernels.polar import factors_of_phases, lift_within
from fastpe.kernels.rotate import rotate_within
from fastpe.kernels.rotors import laid_in, map_within
from fastpe.kernels.simd import get, pointer

_ALONE = (0, 1, 1)


@inner
def has_turns(given):
    """Whether anything turns, maps, lifts or scales rows."""
    of_rows = given.angles.size + given.growth.size + given.rotors.size + given.polar.size
    return of_rows + given.row_scale.size > 0


@allocating
def turned_of(crew, memory, sizes, given, q, k, moves):
    """Queries mapped or lifted, turned by their angles, scaled, and grown; keys likewise, but scaled; they themselves
    where there is nothing of that. Last the products of both, in whose place keys stay as they are; none where keys are
    mapped or `rel_gain` reads them. Before all, whether attention takes what is given.

    crew: who does it, as a plain tuple. memory: as `looked_at` has filled it. q, k: in one piece, of one axis, as
    `start_within` has them. moves: True where anything is mapped or lifted, else None.
    """
    if not _takes(sizes, given, q):
        return False, q, k, q[:0]
    fits, qr, width = _turned_queries(memory, sizes, given, q, moves)
    if given.rotors.size or given.rel_gain.size or not (given.angles.size + given.growth.size + given.polar.size):
        return fits, qr, _turned_keys(crew, sizes, given, k, moves), q[:0]
    return fits, qr, k, _products(crew, sizes, given, qr, k, width)


@allocating
def turned_of_halves(crew, memory, sizes, given, q, k):
    """As `turned_of` without rotors, `rel_gain` and growth, of keys of half precision, but for what comes last."""
    if not (given.angles.size or given.polar.size):
        fits, qr = scaled_of(sizes, given, q, sizes.width)
        return fits, qr, q[:0]
    if not _takes(sizes, given, q):
        return False, q, q[:0]
    if given.polar.size:
        fits, qr, width = _turned_queries(memory, sizes, given, q, True)
    else:
        fits, qr, width = _turned_queries(memory, sizes, given, q, None)
    return fits, qr, _products(crew, sizes, given, qr, k, width)


@allocating
def _products(crew, sizes, given, qr, k, width):
    shape = sizes.samples, sizes.heads, sizes.key_heads, sizes.queries, sizes.keys, sizes.width, width
    return products_within(crew, qr, k, _turns_of_keys(sizes, given, qr), shape)


@allocating
def turned_in_memory(crew, memory, sizes, given, q, k):
    """`turned_of` without products: keys too are turned in memory, where a query reads them by itself."""
    if not has_turns(given):
        return True, q, k
    if not _takes(sizes, given, q):
        return False, q, k
    if given.rotors.size or given.polar.size:
        fits, qr, _ = _turned_queries(memory, sizes, given, q, True)
        return fits, qr, _turned_keys(crew, sizes, given, k, True)
    fits, qr, _ = _turned_queries(memory, sizes, given, q, None)
    return fits, qr, _turned_keys(crew, sizes, given, k, None)


@inner
def _takes(sizes, given, like):
    """Whether attention takes what is given, but for scales."""
    farthest = np.int64(0)
    for start in given.starts:
        farthest = max(farthest, start)
    most = max(farthest + sizes.queries, sizes.keys)
    fits = are_finite(given.angles) and are_finite(given.rotors) and are_finite(given.polar)
    fits &= (not given.angles.size or most <= sizes.places) and grows_little(sizes, given.growth, like)
    return fits and (sizes.mapped_places < 2 or most <= sizes.mapped_places)


@allocating
def _turns_of_keys(sizes, given, like):
    """What becomes of all keys."""
    angles, growth, origin, phases = given.angles, given.growth, given.growth, given.polar
    if angles.size and not given.starts.size:
        angles = angles[(sizes.places - sizes.keys) * sizes.pairs :]
    if growth.size:
        places, pairs = sizes.grown_places, sizes.grown_pairs
        growth, origin = growth[(places - sizes.keys) * pairs :], growth[(places - sizes.queries) * pairs :]
    if phases.size:
        phases = factors_of_phases(phases, sizes.width, like)
    return Turns(
        angles, sizes.angles_of_sample, sizes.angles_of_head, sizes.pairs, growth, origin, sizes.grown_pairs, phases,
        2 * sizes.phases_of_sample, 2 * sizes.phases_of_head, sizes.half > 0,
    )  # fmt: skip


@allocating
def _turned_queries(memory, sizes, given, q, moves):
    """Queries mapped or lifted, turned, scaled and grown, and their channels; before them, whether attention takes
    their scales."""
    n, (qm, width) = sizes.queries, _moved_queries(sizes, given, q, moves)
    qr, queries = qm, (sizes.samples, sizes.heads, n, width)  # where they are nobody's they are changed in place
    if moves is None and (given.angles.size or given.growth.size):
        qr = np.empty(sizes.samples * sizes.heads * n * width, q.dtype)
    if given.angles.size:
        own, strides = _of_queries(memory, sizes, given)
        _turn(_ALONE, qm, queries, own, strides, sizes, qr)
        qm = qr
    fits, qm = scaled_of(sizes, given, qm, width)
    if given.growth.size:
        origin = given.growth[(sizes.grown_places - n) * sizes.grown_pairs :]
        grow_within(_ALONE, qm, origin, origin, 1.0, qr, queries, sizes.grown_pairs, sizes.half > 0)
        qm = qr
    return fits, qm, width


@allocating
def _turned_keys(crew, sizes, given, k, moves):
    """Keys mapped or lifted, turned and grown, in memory."""
    m, (km, width) = sizes.keys, _moved_keys(crew, sizes, given, k, moves)
    kr, keys = km, (sizes.samples, sizes.key_heads, m, width)
    if moves is None and (given.angles.size or given.growth.size):
        kr = np.empty(sizes.samples * sizes.key_heads * m * width, k.dtype)
    if given.angles.size:
        first = 0 if given.starts.size else sizes.places - m
        own, strides = given.angles[first * sizes.pairs :], (sizes.angles_of_sample, sizes.angles_of_head)
        _turn(crew, km, keys, own, strides, sizes, kr)
        km = kr
    if given.growth.size:
        pairs, places = sizes.grown_pairs, sizes.grown_places
        own, origin = given.growth[(places - m) * pairs :], given.growth[(places - sizes.queries) * pairs :]
        grow_within(crew, km, own, origin, -1.0, kr, keys, pairs, sizes.half > 0)
        km = kr
    return km


@allocating
def _moved_queries(sizes, given, q, moves):
    """Queries mapped or lifted, and the channels of their rows."""
    b, n, d = sizes.samples, sizes.queries, sizes.width
    if moves is None:
        return q, d
    lifts, queries = given.polar.size > 0, (b, sizes.heads, n, d)
    width, of_rows = 2 * d if lifts else d, (sizes.heads * n * d, n * d, d)
    qm = np.empty(b * sizes.heads * n * width, q.dtype)
    if lifts:
        lift_within(_ALONE, q, of_rows, np.zeros(d, q.dtype), (0, 0), qm, queries)
        return qm, width
    (maps, of_maps), starts = _maps(sizes, given), np.zeros(b, np.int64)
    for sample in range(b):
        starts[sample] = given.starts[sample] if given.starts.size else sizes.mapped_places - n
    map_within(_ALONE, q, of_rows, maps, starts, qm, queries, of_maps, sizes.half > 0)
    return qm, width


@allocating
def _moved_keys(crew, sizes, given, k, moves):
    """Keys likewise."""
    b, m, d = sizes.samples, sizes.keys, sizes.width
    if moves is None:
        return k, d
    lifts, keys = given.polar.size > 0, (b, sizes.key_heads, m, d)
    width, of_rows = 2 * d if lifts else d, (sizes.key_heads * m * d, m * d, d)
    km = np.empty(b * sizes.key_heads * m * width, k.dtype)
    if lifts:
        lift_within(crew, k, of_rows, given.polar, (sizes.phases_of_sample, sizes.phases_of_head), km, keys)
        return km, width
    (maps, of_maps), starts = _maps(sizes, given), np.zeros(b, np.int64)
    if not given.starts.size:
        starts[:] = sizes.mapped_places - m
    map_within(crew, k, of_rows, maps, starts, km, keys, of_maps, sizes.half > 0)
    return km, width


@allocating
def _maps(sizes, given):
    of_maps = sizes.maps_of_samples, sizes.maps_of_heads, sizes.mapped_places, sizes.block
    return laid_in(given.rotors, sizes.width, sizes.block), of_maps


@allocating
def _of_queries(memory, sizes, given):
    """The angles of queries, and the strides of samples and heads."""
    n, pairs, firsts = sizes.queries, sizes.pairs, memory[BOARD : end_of_first(sizes, given)]
    heads = sizes.heads if sizes.angles_of_head else 1
    found = np.empty((sizes.samples, heads, n, pairs))
    for b in range(sizes.samples):
        first = firsts[b] if given.starts.size else sizes.places - n
        for h in range(heads):
            place = b * sizes.angles_of_sample + h * sizes.angles_of_head + first * pairs
            for i in range(n):
                for pair in range(pairs):
                    found[b, h, i, pair] = given.angles[place + i * pairs + pair]
    return found.reshape(-1), (heads * n * pairs, n * pairs if heads > 1 else 0)


@inner
def _turn(crew, x, shape, angles, strides, sizes, y):
    _, heads, rows, width = shape
    own = heads * rows * width, rows * width, width
    rotate_within(crew, x, own, angles, strides, y, shape, sizes.pairs, sizes.half > 0)


@allocating
def scaled_of(sizes, given, x, width):
    """Queries, rows of so many channels, times their `row_scale`, or x itself; before them, whether attention takes
    it."""
    n, scale = sizes.queries, given.row_scale
    if not scale.size:
        return True, x
    rows, first = sizes.samples * sizes.heads * n, pointer(x)
    y = np.empty(rows * width, x.dtype)
    for row in range(rows):
        b, h = row // n // sizes.heads, row // n % sizes.heads
        factor = scale[b * sizes.scales_of_sample + h * sizes.scales_of_head + row % n]
        for c in range(width):
            y[row * width + c] = get(first, row * width + c) * factor
    return are_finite(scale), y
