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
from fastpe.kernels.kept import arrays_at
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
_OF_INTEGERS, _OF_LOGICAL, _OF_OWN, _OF_WIDE = map(len, (INTEGERS, LOGICAL, OWN, WIDE))
_FIRST_OWN, _FIRST_WIDE = _OF_INTEGERS + _OF_LOGICAL, NUMBER - _OF_WIDE
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
    mask = np.zeros(sizes.mask, like.dtype) if given.shown.size else given.added[:0]
    bias = np.zeros(sizes.bias, like.dtype) if given.bias.size else given.bias
    own = whole[:0], given.key_lengths, given.starts, given.spans, given.shown, given.added
    fits = lay((n, m), own, (lengths, starts, spans, mask, occupied)) and are_finite(given.scale)
    if given.bias.size:
        fits = fits and are_finite(given.bias)
        unfold_into(given.bias, sizes.heads, sizes.bias_offsets, first_positions(sizes, given), n, m, bias)
    tiles = occupied.reshape(sizes.masks, sizes.heads_of_masks, 1, sizes.tiles)
    mask = mask if given.shown.size else given.added
    return fits, (lengths, starts, spans.reshape(sizes.spans, n, 2), mask, tiles, bias, given.scale)


@allocating
def first_positions(sizes, given):
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
        and grows_little(sizes, given.growth, like)
    )  # fmt: skip
    if given.gain.size:
        unfold_into(
            given.gain, sizes.heads, sizes.gain_offsets, first_positions(sizes, given), sizes.queries, sizes.keys, gain
        )
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
