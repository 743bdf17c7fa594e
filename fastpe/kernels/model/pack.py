"""Packs: sequences of a batch that are processed together, and the rows of each sequence.

Matrix products of few rows take longer than their FLOPs suggest, because every matrix and its gradient must be read or
written for each product. So consecutive short sequences of a batch are packed, as many as fit: their rows follow one
another in memory, and only operations that depend on positions process the sequences one by one. Which sequences form a
pack depends only on lengths.

Packs of a group may be processed in parallel, by separate workers. They add to the same gradients, in a fixed order.
For this purpose the additions of each pack are divided into *turns*, the same number for every pack. A pack has its
first turn after the first turn of the previous pack, its second after the second, and so on. Between its turns, a pack
continues with other work.
"""

from typing import NamedTuple

import numpy as np

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.rows.dropout import drop_rows, drops, place_in
from fastpe.kernels.simd import at, pointer
from fastpe.kernels.threads.task_counter import pass_ticket, shared_count, wait_for_ticket

LINE = np.int64(8)  # shared counters are on separate cache lines
ALONE = np.int64(-1)  # in place of the index of a counter


class Pack(NamedTuple):
    """The sequences first .. last - 1 of a batch; `lengths` and `places` are as for `batch.step`."""

    first: int
    last: int
    rows: int  # of all sequences together
    lengths: np.ndarray
    places: np.ndarray
    before: int  # positions of a single sequence whose keys and values are already in the workspace
    turns: np.ndarray  # for packs in parallel: counters of the turns that each pack has had
    own: int  # index in `turns` of the counter of this pack, or ALONE
    previous: int  # index of the counter of the previous pack, or ALONE


class Rows(NamedTuple):
    """One sequence of a pack."""

    sequence: int  # its number in the batch
    start: int  # its first row
    length: int
    places: np.ndarray  # of the whole batch
    before: int


@inner
def pack_from(first, last, layout, lengths, places):
    """Return the pack that begins with the sequence `first`. It has as many of the sequences first .. last - 1, in
    their order, as fit into `layout` rows, but at least one.
    """
    rows, end = lengths[min(first, lengths.size - 1)], first + 1
    while end < last and rows + lengths[min(end, lengths.size - 1)] <= layout:
        rows += lengths[min(end, lengths.size - 1)]
        end += 1
    return Pack(first, end, rows, lengths, places, np.int64(0), lengths, ALONE, ALONE)


@inner
def side_by_side(pack, turns, previous):
    """Return the pack, set up so that each of its turns comes after the same turn of the pack that begins with the
    sequence `previous`. If `previous` is ALONE, the pack does not wait.
    """
    own, before = pack.first * LINE, previous * LINE if previous >= 0 else ALONE
    return Pack(pack.first, pack.last, pack.rows, pack.lengths, pack.places, pack.before, turns, own, before)


@inner
def packs_in(first, last, layout, lengths):
    """Return the number of packs for the sequences first .. last - 1."""
    count, done = np.int64(0), first
    while done < last:
        done = pack_from(done, last, layout, lengths, lengths).last
        count += 1
    return count


@inner
def take_turn(pack):
    """Wait until the previous pack has had the same turn and its additions are visible."""
    if pack.previous >= 0:
        turns = pointer(pack.turns)
        wait_for_ticket(turns, pack.previous, shared_count(turns, pack.own) + 1)


@inner
def pass_on(pack):
    """End the turn of the pack, so that the next pack can have it."""
    if pack.own >= 0:
        pass_ticket(pointer(pack.turns), pack.own)


@inner
def rows_of(pack, sequence, start):
    """Return the rows of a sequence of the pack; they begin where the rows of the previous sequence end."""
    length = pack.lengths[min(sequence, pack.lengths.size - 1)]
    return Rows(sequence, start, length, pack.places, pack.before)


@inner
def place_of(which, i, own):
    """Return the row that a rule selects for a token of a sequence. It is a row of the table if `which` is 0, and of
    the rotations if `which` is 1. i: number of the token among those of the sequence that pass through the model.
    """
    return own.places[which, own.sequence, i]


@inner
def first_place(own):
    """Return the row of the table at the first position of a sequence, if rows are consecutive."""
    return own.places[0, min(own.sequence, own.places.shape[1] - 1), 0]


@inner
def drop_pack(dropout, x, c, place, pack):
    """Apply dropout number `place` of the model to the pack's rows of c elements, in place."""
    if drops(dropout):
        start = np.int64(0)
        for sequence in range(pack.first, pack.last):
            own = rows_of(pack, sequence, start)
            drop_rows(dropout, at(x, start * c), own.length, c, place_in(dropout, sequence, place))
            start += own.length
