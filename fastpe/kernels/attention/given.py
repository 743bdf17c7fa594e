"""What is given beside q, k and v in a call of few queries that is made again, as the kernels take it.

All that `functional.seen` makes of it in Python is made here: that takes longer than attention of a single query.
"""

from typing import NamedTuple

import numpy as np

from fastpe.kernels._jit import allocating, inner
from fastpe.kernels.attention.columns import Columns
from fastpe.kernels.attention.records import Slots
from fastpe.kernels.attention.sight import lay
from fastpe.kernels.attention.unfolding import are_finite, unfold_into
from fastpe.kernels.dropout import Dropout, first_word, halves_of
from fastpe.kernels.growth import grow_within
from fastpe.kernels.kept import arrays_at
from fastpe.kernels.polar import lift_within
from fastpe.kernels.rotate import rotate_within
from fastpe.kernels.rotors import laid_in, map_within
from fastpe.kernels.simd import any_negative, get, lanes, load_first, maximum, minimum, pointer, splat


class Sizes(NamedTuple):
    """Of a call and of what its arrays become; an axis of what is not there is 1, and no slot has elements then."""

    samples: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    width: int
    spans: int  # samples that have their own
    masks: int
    heads_of_masks: int
    tiles: int  # of keys
    mask: int  # elements
    bias_offsets: int  # that it has
    bias: int  # elements, unfolded
    gain_offsets: int
    gain: int
    choices: int  # that indices make
    tallies: int  # elements
    places: int  # that angles have rows for
    pairs: int  # that they turn; 0: none
    angles_of_sample: int  # elements, 0 where one serves all
    angles_of_head: int
    half: int  # whether channels c and c + R are paired
    scales_of_sample: int  # of `row_scale`
    scales_of_head: int
    maps_of_samples: int  # samples, heads and positions that have rotors of their own, and channels of a block, 0: none
    maps_of_heads: int
    mapped_places: int
    block: int
    phases_of_sample: int  # of `polar`
    phases_of_head: int
    grown_places: int  # that `growth` has rows for
    grown_pairs: int


class Given(NamedTuple):
    """Arrays of one axis, empty where there is none: of int64, of bool, of the dtype of q, of float64."""

    key_lengths: np.ndarray
    starts: np.ndarray
    spans: np.ndarray
    indices: np.ndarray
    shown: np.ndarray  # the mask; or as numbers
    added: np.ndarray
    bias: np.ndarray
    scale: np.ndarray  # of each head, there where anything is given
    sinks: np.ndarray
    gain: np.ndarray
    rel_gain: np.ndarray
    rel_key: np.ndarray
    rel_query: np.ndarray
    rel_value: np.ndarray
    key_bias: np.ndarray
    values: np.ndarray
    scores: np.ndarray
    key_slope: np.ndarray
    query_slope: np.ndarray
    counts: np.ndarray
    row_scale: np.ndarray
    rotors: np.ndarray
    polar: np.ndarray
    key_offset: np.ndarray
    angles: np.ndarray
    growth: np.ndarray
    theta: np.ndarray


SIZES, NUMBER = len(Sizes._fields), len(Given._fields)
WORDS = NUMBER + len(Dropout._fields)
"""Addresses of `Given`, then the numbers of `Dropout`, which float64 holds exactly, by their bits; in the place of its
key the seed, and the other word that the key is made of. Bands come after all that (`banded`)."""
INTEGERS, LOGICAL, OWN, WIDE = Given._fields[:4], Given._fields[4:5], Given._fields[5:-4], Given._fields[-4:]
_OF_INTEGERS, _OF_LOGICAL, _OF_OWN, _OF_WIDE = map(len, (INTEGERS, LOGICAL, OWN, WIDE))
_FIRST_OWN, _FIRST_WIDE = _OF_INTEGERS + _OF_LOGICAL, NUMBER - _OF_WIDE
_ALONE = (0, 1, 1)
MOST_GROWTH = 0.9  # of the exponent that the dtype has room for, by which growth may change within a block of queries


@allocating
def given_at(addresses, counts, like):
    """`Given` of arrays at addresses, of so many elements each; who holds `counts` holds those without elements."""
    return Given(
        *arrays_at(addresses, counts, _OF_INTEGERS, np.int64),
        *arrays_at(addresses[_OF_INTEGERS:], counts[_OF_INTEGERS:], _OF_LOGICAL, np.bool_),
        *arrays_at(addresses[_FIRST_OWN:], counts[_FIRST_OWN:], _OF_OWN, like.dtype),
        *arrays_at(addresses[_FIRST_WIDE:], counts[_FIRST_WIDE:], _OF_WIDE, np.float64),
    )  # fmt: skip


@allocating
def seen_of(sizes, given, like):
    """Lengths, starts, spans, the mask, what it leaves of tiles, the bias and the scale, as `Inputs` has them; before
    them, whether attention takes what is given."""
    b, n, m = sizes.samples, sizes.queries, sizes.keys
    of_spans, of_tiles = 2 * n * sizes.spans, sizes.masks * sizes.heads_of_masks * sizes.tiles
    whole = np.zeros(3 * b + of_spans + of_tiles, np.int64)  # one array: to make one takes as long as to fill it
    starts, spans, occupied = whole[:b], whole[3 * b : 3 * b + of_spans], whole[3 * b + of_spans :]
    lengths = whole[b : 3 * b].reshape(b, 2)
    mask = np.zeros(sizes.mask, like.dtype) if given.shown.size + given.added.size else given.added
    bias = np.zeros(sizes.bias, like.dtype) if given.bias.size else given.bias
    own = whole[:0], given.key_lengths, given.starts, given.spans, given.shown, given.added
    fits = lay((n, m), own, (lengths, starts, spans, mask, occupied)) and are_finite(given.scale)
    if given.bias.size:
        fits = fits and are_finite(given.bias)
        unfold_into(given.bias, sizes.heads, sizes.bias_offsets, _firsts(sizes, given), n, m, bias)
    tiles = occupied.reshape(sizes.masks, sizes.heads_of_masks, 1, sizes.tiles)
    return fits, (lengths, starts, spans.reshape(sizes.spans, n, 2), mask, tiles, bias, given.scale)


@allocating
def _firsts(sizes, given):
    """The positions of the first queries."""
    return given.starts if given.starts.size else np.full(1, sizes.keys - sizes.queries)


@allocating
def slots_of(sizes, given, like):
    """`Slots` and `Columns`; before them, whether attention takes what is given."""
    gain = np.zeros(sizes.gain, like.dtype) if given.gain.size else given.gain
    indices = np.zeros(given.indices.size, np.int32) if given.indices.size else given.indices.view(np.int32)
    tallies = np.zeros(sizes.tallies, like.dtype) if given.counts.size else given.counts
    fits = (
        are_finite(given.gain) and are_finite(given.rel_gain) and are_finite(given.rel_key)
        and are_finite(given.rel_query) and are_finite(given.rel_value) and are_finite(given.key_bias)
        and are_finite(given.values) and are_finite(given.scores) and are_finite(given.key_slope)
        and are_finite(given.query_slope) and are_finite(given.counts) and are_finite(given.key_offset)
        and _grows_little(sizes, given.growth, like)
    )  # fmt: skip
    if given.gain.size:
        unfold_into(given.gain, sizes.heads, sizes.gain_offsets, _firsts(sizes, given), sizes.queries, sizes.keys, gain)
    for place in range(given.indices.size):
        chosen = given.indices[place]
        fits &= 0 <= chosen < sizes.choices
        indices[place] = chosen if fits else 0
    rest, pairs = sizes.grown_places, sizes.grown_pairs
    growth_q, growth_k = given.growth, given.growth
    if growth_q.size:
        growth_q, growth_k = growth_q[(rest - sizes.queries) * pairs :], growth_k[(rest - sizes.keys) * pairs :]
    slots = Slots(
        given.rel_gain, given.rel_key, given.rel_query, given.rel_value, given.key_bias, gain, given.values, indices,
        given.scores, given.counts, growth_q, growth_k, tallies,
    )  # fmt: skip
    bases = np.zeros(sizes.samples * sizes.heads)  # few queries are one block
    return fits, (slots, Columns(given.key_offset, given.key_slope, given.query_slope, bases, bases))


@inner
def _grows_little(sizes, growth, like):
    """Whether the logarithms of growth are finite, and change by no more over all places than they may within a block;
    those that do only there go the long way."""
    if not are_finite(growth):
        return False
    most = MOST_GROWTH * np.log(np.float64(np.finfo(like.dtype).max))
    first, pairs = pointer(growth), sizes.grown_pairs if growth.size else 0
    for c in range(0, pairs, lanes(first)):
        low = high = load_first(first, c, pairs - c)
        for place in range(1, sizes.grown_places):
            here = load_first(first, place * pairs + c, pairs - c)
            low, high = minimum(low, here), maximum(high, here)
        if any_negative(splat(most) - (high - low)):
            return False
    return True


@allocating
def dropout_of(words):
    """What is dropped, from the last of `WORDS`."""
    x = words[NUMBER:].view(np.float64)
    low, high = halves_of(first_word(words[NUMBER], words[NUMBER + 1]))
    return Dropout(low, high, np.int64(x[2]), np.int64(x[3]), np.int64(x[4]), x[5], np.int64(x[6]))


@inner
def has_columns(given):
    """Whether there are columns, from whose bases lse is counted."""
    return given.key_offset.size > 0 or given.key_slope.size > 0 or given.query_slope.size > 0


@inner
def has_turns(given):
    """Whether anything turns, maps, lifts or scales rows."""
    of_rows = given.angles.size + given.growth.size + given.rotors.size + given.polar.size
    return of_rows + given.row_scale.size > 0


@allocating
def turned_of(crew, sizes, given, q, k, moves):
    """Queries and keys mapped or lifted, turned by their angles, queries scaled, and both grown; they themselves where
    there is nothing of that. Before both, whether attention takes what is given.

    crew: who does it, as a plain tuple. q, k: in one piece, of one axis, as `start_within` has them. moves: True where
    anything is mapped or lifted, else None.
    """
    b, n, m = sizes.samples, sizes.queries, sizes.keys
    farthest = np.int64(0)
    for start in given.starts:
        farthest = max(farthest, start)
    most = max(farthest + n, m)
    fits = are_finite(given.angles) and are_finite(given.rotors) and are_finite(given.polar)
    fits &= (not given.angles.size or most <= sizes.places) and _grows_little(sizes, given.growth, q)
    if not (fits and (sizes.mapped_places < 2 or most <= sizes.mapped_places)):
        return False, q, k
    qm, km, width = moved_of(crew, sizes, given, q, k, moves)
    qr, kr = qm, km  # where they are nobody's they are changed in place
    if moves is None and (given.angles.size or given.growth.size):
        qr, kr = np.empty(b * sizes.heads * n * width, q.dtype), np.empty(b * sizes.key_heads * m * width, k.dtype)
    queries, keys = (b, sizes.heads, n, width), (b, sizes.key_heads, m, width)
    if given.angles.size:
        (of_queries, strides), first = _of_queries(sizes, given), 0 if given.starts.size else sizes.places - m
        _turn(_ALONE, qm, queries, of_queries, strides, sizes, qr)
        of_keys, strides = given.angles[first * sizes.pairs :], (sizes.angles_of_sample, sizes.angles_of_head)
        _turn(crew, km, keys, of_keys, strides, sizes, kr)
        qm, km = qr, kr
    fits, qm = scaled_of(sizes, given, qm, width)
    if given.growth.size:
        pairs, half, places = sizes.grown_pairs, sizes.half > 0, sizes.grown_places
        origin = given.growth[(places - n) * pairs :]
        grow_within(_ALONE, qm, origin, origin, 1.0, qr, queries, pairs, half)
        grow_within(crew, km, given.growth[(places - m) * pairs :], origin, -1.0, kr, keys, pairs, half)
        qm, km = qr, kr
    return fits, qm, km


@allocating
def moved_of(crew, sizes, given, q, k, moves):
    """Queries and keys mapped or lifted, and the channels of their rows."""
    b, n, m, d = sizes.samples, sizes.queries, sizes.keys, sizes.width
    if moves is None:
        return q, k, d
    of_queries, of_keys, lifts = (b, sizes.heads, n, d), (b, sizes.key_heads, m, d), given.polar.size > 0
    width = 2 * d if lifts else d
    qm, km = np.empty(b * sizes.heads * n * width, q.dtype), np.empty(b * sizes.key_heads * m * width, k.dtype)
    if lifts:
        lift_within(_ALONE, q, (sizes.heads * n * d, n * d, d), np.zeros(d, q.dtype), (0, 0), qm, of_queries)
        own = sizes.phases_of_sample, sizes.phases_of_head
        lift_within(crew, k, (sizes.key_heads * m * d, m * d, d), given.polar, own, km, of_keys)
        return qm, km, width
    maps, of_maps = laid_in(given.rotors, d, sizes.block), (
        sizes.maps_of_samples, sizes.maps_of_heads, sizes.mapped_places, sizes.block,
    )  # fmt: skip
    starts = np.zeros(b, np.int64)
    if not given.starts.size:
        starts[:] = sizes.mapped_places - m
    of_rows = sizes.key_heads * m * d, m * d, d
    map_within(crew, k, of_rows, maps, starts, km, of_keys, of_maps, sizes.half > 0)
    for sample in range(b):
        starts[sample] = given.starts[sample] if given.starts.size else sizes.mapped_places - n
    of_rows = sizes.heads * n * d, n * d, d
    map_within(_ALONE, q, of_rows, maps, starts, qm, of_queries, of_maps, sizes.half > 0)
    return qm, km, width


@allocating
def _of_queries(sizes, given):
    """The angles of queries, and the strides of samples and heads."""
    n, pairs, firsts = sizes.queries, sizes.pairs, _firsts(sizes, given)
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
