"""Sequences of a batch that go through the model together, and the rows of each.

Products of few rows cost more than their FLOPs: every matrix, and the gradient of every matrix, is read and written for
them. Short sequences that follow one another in a batch are therefore packed: their rows stand one after the other, as
many sequences as there is room for, and only what knows of positions goes from sequence to sequence. Lengths alone
decide which go together.

Packs of a group may go through the model side by side, in workers of their own. They add to the same gradients, which
have one order all the same: the additions are cut into *turns*, as many for each pack, and a pack has its turn after
the pack before it had that one. Meanwhile both go on with all that is their own.
"""

from typing import NamedTuple

import numpy as np

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.rows.dropout import drop_rows, drops, place_in
from fastpe.kernels.simd import at, pointer
from fastpe.kernels.threads.task_counter import pass_ticket, shared_count, wait_for_ticket

LINE = np.int64(8)  # counters that workers share stand on cache lines of their own
ALONE = np.int64(-1)  # in the place of a counter


class Pack(NamedTuple):
    """The sequences first .. last - 1 of a batch; `lengths` and `places` as a step has them."""

    first: int
    last: int
    rows: int  # of all of them
    lengths: np.ndarray
    places: np.ndarray
    before: int  # positions of a lone sequence whose keys and values stand in the workspace already
    turns: np.ndarray  # where packs go side by side: how many turns each one had
    own: int  # its counter there, and that of the pack before it; or ALONE
    previous: int


class Rows(NamedTuple):
    """One sequence of a pack."""

    sequence: int  # its number in the batch
    start: int  # its first row
    length: int
    places: np.ndarray  # of the whole batch
    before: int


@inner
def pack_from(first, last, layout, lengths, places):
    """As many of the sequences first .. last - 1 as have room in that many rows, in their order; the first at least."""
    rows, end = lengths[min(first, lengths.size - 1)], first + 1
    while end < last and rows + lengths[min(end, lengths.size - 1)] <= layout:
        rows += lengths[min(end, lengths.size - 1)]
        end += 1
    return Pack(first, end, rows, lengths, places, np.int64(0), lengths, ALONE, ALONE)


@inner
def side_by_side(pack, turns, previous):
    """The pack, with its turns, after the one that begins with the sequence `previous`, or is ALONE."""
    own, before = pack.first * LINE, previous * LINE if previous >= 0 else ALONE
    return Pack(pack.first, pack.last, pack.rows, pack.lengths, pack.places, pack.before, turns, own, before)


@inner
def packs_in(first, last, layout, lengths):
    """How many packs the sequences first .. last - 1 make."""
    count, done = np.int64(0), first
    while done < last:
        done = pack_from(done, last, layout, lengths, lengths).last
        count += 1
    return count


@inner
def take_turn(pack):
    """Return when the pack before has had this turn, and what it added can be read."""
    if pack.previous >= 0:
        turns = pointer(pack.turns)
        wait_for_ticket(turns, pack.previous, shared_count(turns, pack.own) + 1)


@inner
def pass_on(pack):
    """The turn is over."""
    if pack.own >= 0:
        pass_ticket(pointer(pack.turns), pack.own)


@inner
def rows_of(pack, sequence, start):
    """Those of a sequence of the pack, which begin where the ones of the sequence before it end."""
    length = pack.lengths[min(sequence, pack.lengths.size - 1)]
    return Rows(sequence, start, length, pack.places, pack.before)


@inner
def place_of(which, i, own):
    """The row that a rule gives to a sequence's i-th of the tokens that go through the model: of the table (which: 0),
    or of the rotations (1)."""
    return own.places[which, own.sequence, i]


@inner
def first_place(own):
    """The table's row at a sequence's first position, where rows follow one another."""
    return own.places[0, min(own.sequence, own.places.shape[1] - 1), 0]


@inner
def drop_pack(dropout, x, c, place, pack):
    """The pack's rows of c elements, at one of the model's places of dropout, in place."""
    if drops(dropout):
        start = np.int64(0)
        for sequence in range(pack.first, pack.last):
            own = rows_of(pack, sequence, start)
            drop_rows(dropout, at(x, start * c), own.length, c, place_in(dropout, sequence, place))
            start += own.length
