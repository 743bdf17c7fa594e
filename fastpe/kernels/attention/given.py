"""What is given beside q, k and v in a call of few queries that is made again, as the kernels take it.

All that `functional.seen` makes of it in Python is made here: that takes longer than attention of a single query.
"""

from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic

from fastpe.kernels._jit import allocating, inlined, inner
from fastpe.kernels.at_address import arrays_at, float_at, within
from fastpe.kernels.attention.columns import Columns
from fastpe.kernels.attention.records import Slots
from fastpe.kernels.attention.sight import lay
from fastpe.kernels.attention.unfolding import are_finite, unfold_into
from fastpe.kernels.board import BOARD
from fastpe.kernels.dropout import Dropout, first_word, halves_of
from fastpe.kernels.simd import any_negative, lanes, load_first, maximum, minimum, pointer, splat


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
    reflectors: np.ndarray
    reflect: np.ndarray
    mlp_in: np.ndarray
    mlp_bias: np.ndarray
    mlp_out: np.ndarray
    key_offset: np.ndarray
    angles: np.ndarray
    growth: np.ndarray
    theta: np.ndarray


SIZES, NUMBER = len(Sizes._fields), len(Given._fields)
WORDS = NUMBER + len(Dropout._fields)
"""Addresses of `Given`, then the numbers of `Dropout`, which float64 holds exactly, by their bits; in the place of its
key the seed, and the other word that the key is made of. Bands come after all that (`banded`)."""
INTEGERS, LOGICAL, OWN, WIDE = Given._fields[:4], Given._fields[4:5], Given._fields[5:-4], Given._fields[-4:]
MOST_GROWTH = 0.9  # of the exponent that the dtype has room for, by which growth may change within a block of queries


@intrinsic
def given_at(typingctx, addresses, counts, like):
    """`Given` of arrays at addresses, of so many elements each; who holds `counts` holds those without elements."""
    own = (types.int64, INTEGERS), (types.boolean, LOGICAL), (like.dtype, OWN), (types.float64, WIDE)
    kind, emit = arrays_at({name: dtype for dtype, names in own for name in names})
    return kind(addresses, counts, like), emit


# ---------------------------------------------------------------------------------------------------------------------
# What is made of it, in one array of words, zero at first: to make an array takes as long as to fill it


class Places(NamedTuple):
    """Where each begins among the words, which begin with a board (`kernels.board`)."""

    starts: int  # of int64, up to `mask`
    lengths: int
    spans: int
    tiles: int
    mask: int  # of q's dtype, but for those of float64 and of int32
    bias: int
    bases: int  # float64
    gain: int
    tallies: int
    indices: int  # int32
    end: int


@inner
def _places(sizes, given, like):
    starts = np.int64(BOARD)
    spans = starts + 3 * sizes.samples
    tiles = spans + 2 * sizes.queries * sizes.spans
    mask = tiles + sizes.masks * sizes.heads_of_masks * sizes.tiles
    bias = mask + (_words(sizes.mask, like.itemsize) if given.shown.size else 0)
    bases = bias + (_words(sizes.bias, like.itemsize) if given.bias.size else 0)
    gain = bases + sizes.samples * sizes.heads  # few queries are one block
    tallies = gain + (_words(sizes.gain, like.itemsize) if given.gain.size else 0)
    indices = tallies + (_words(sizes.tallies, like.itemsize) if given.counts.size else 0)
    end = indices + _words(given.indices.size, 4)
    return Places(
        starts, starts + sizes.samples, spans, tiles, mask, bias, bases, gain, tallies, indices, end
    )  # fmt: skip


@inner
def _words(count, size):
    return (count * size + 7) // 8


@inner
def size_of_memory(sizes, given, like):
    """How many words `looked_at` and whatever runs next use."""
    return _places(sizes, given, like).end


@inner
def looked_at(memory, sizes, given, like, slots):
    """Whether attention takes what is given, of which memory is filled. slots: True where slots are looked at, too."""
    n, m, p = sizes.queries, sizes.keys, _places(sizes, given, like)
    lengths, starts, _, mask, tiles, bias, scale = seen_in(memory, sizes, given, like)
    spans = within(memory, p.spans, (p.tiles - p.spans,), np.int64)
    occupied, nothing = within(memory, p.tiles, (tiles.size,), np.int64), within(memory, 0, (0,), np.int64)
    own = nothing, given.key_lengths, given.starts, given.spans, given.shown, given.added
    made = lengths, starts, spans, mask if given.shown.size else given.added[:0], occupied
    fits = lay((n, m), own, made) and are_finite(scale) and are_finite(given.sinks)
    if given.bias.size:
        fits = fits and are_finite(given.bias)
        unfold_into(given.bias, sizes.heads, sizes.bias_offsets, memory[BOARD : end_of_first(sizes, given)], n, m, bias)
    if slots is None:
        return fits
    return fits and _looked_at_slots(memory, sizes, given, like)


@inner
def end_of_first(sizes, given):
    """Where the positions of the first queries end in memory, those of all samples, or the only one."""
    return BOARD + (sizes.samples if given.starts.size else 1)


@inner
def _looked_at_slots(memory, sizes, given, like):
    (slots, _), n, m = slots_in(memory, sizes, given, like), sizes.queries, sizes.keys
    fits = (
        are_finite(given.gain) and are_finite(given.rel_gain) and are_finite(given.rel_key)
        and are_finite(given.rel_query) and are_finite(given.rel_value) and are_finite(given.key_bias)
        and are_finite(given.values) and are_finite(given.scores) and are_finite(given.key_slope)
        and are_finite(given.query_slope) and are_finite(given.counts) and are_finite(given.key_offset)
        and grows_little(sizes, given.growth, like)
    )  # fmt: skip
    if given.gain.size:
        first = memory[BOARD : end_of_first(sizes, given)]
        unfold_into(given.gain, sizes.heads, sizes.gain_offsets, first, n, m, slots.gain)
    for place in range(given.indices.size):
        chosen = given.indices[place]
        fits &= 0 <= chosen < sizes.choices
        slots.indices[place] = chosen if fits else 0
    return fits


def _seen(memory, sizes, given, like):
    """Lengths, starts, spans, the mask, what it leaves of tiles, the bias and the scale, as `Inputs` has them."""
    b, n, p = sizes.samples, sizes.queries, _places(sizes, given, like)
    lengths, starts = within(memory, p.lengths, (b, 2), np.int64), within(memory, p.starts, (b,), np.int64)
    spans = within(memory, p.spans, (sizes.spans, n, 2), np.int64)
    tiles = within(memory, p.tiles, (sizes.masks, sizes.heads_of_masks, 1, sizes.tiles), np.int64)
    mask = within(memory, p.mask, (sizes.mask,), like.dtype) if given.shown.size else given.added
    bias = within(memory, p.bias, (sizes.bias,), like.dtype) if given.bias.size else given.bias
    return lengths, starts, spans, mask, tiles, bias, given.scale


def _slots(memory, sizes, given, like):
    """`Slots` and `Columns`."""
    p, rest, pairs = _places(sizes, given, like), sizes.grown_places, sizes.grown_pairs
    gain = within(memory, p.gain, (sizes.gain if given.gain.size else 0,), like.dtype)
    tallies = within(memory, p.tallies, (sizes.tallies if given.counts.size else 0,), like.dtype)
    indices = within(memory, p.indices, (given.indices.size,), np.int32)
    growth_q, growth_k = given.growth, given.growth
    if growth_q.size:
        growth_q, growth_k = growth_q[(rest - sizes.queries) * pairs :], growth_k[(rest - sizes.keys) * pairs :]
    slots = Slots(
        given.rel_gain, given.rel_key, given.rel_query, given.rel_value, given.key_bias, gain, given.values, indices,
        given.scores, given.counts, growth_q, growth_k, tallies,
    )  # fmt: skip
    bases = within(memory, p.bases, (sizes.samples * sizes.heads,), np.float64)
    return slots, Columns(given.key_offset, given.key_slope, given.query_slope, bases, bases)


# whoever counts references takes arrays only from functions that do, though nobody counts those to these
seen_in, seen_of = inlined(_seen), allocating(_seen)
slots_in, slots_of = inlined(_slots), allocating(_slots)


@inner
def place_of_bases(sizes, given, like):
    """Where that begins in memory which lse is less than it is by, of each head."""
    return _places(sizes, given, like).bases


@inner
def grows_little(sizes, growth, like):
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


@inner
def dropout_of(words):
    """What is dropped, from the last of `WORDS`."""
    low, high = halves_of(first_word(words[NUMBER], words[NUMBER + 1]))
    step_low, step_high = np.int64(float_at(words, NUMBER + 2)), np.int64(float_at(words, NUMBER + 3))
    threshold, places = np.int64(float_at(words, NUMBER + 4)), np.int64(float_at(words, NUMBER + 6))
    return Dropout(low, high, step_low, step_high, threshold, float_at(words, NUMBER + 5), places)


@inner
def has_columns(given):
    """Whether there are columns, from whose bases lse is counted."""
    return given.key_offset.size > 0 or given.key_slope.size > 0 or given.query_slope.size > 0
