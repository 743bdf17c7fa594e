"""Sizes of a call of attention, the arrays it takes, and what of them belongs to one head."""

from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.attention.slots import BATCH, HEAD, Terms
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.rows.dropout import Dropout
from fastpe.kernels.simd import at, get, part

ONE, NONE = np.int64(1), np.int64(0)
CHUNK = np.int64(32)  # offsets for which one sum of biases is known


class Options(NamedTuple):
    """The terms of the score that are no arrays; 0 of one that is not there."""

    rectify: int = 0
    softcap: float = 0.0


class Case(NamedTuple):
    """Sizes and flags of a call, and the strides of its arrays in elements; rows are contiguous.

    Flags, by who calls (a dash: never set, or never read):

        .                keep_raw             skip              apart            kept       alone
        call, forward    -                    bounded           -                -          -
        call, backward   where raw is needed  bounded           rotated or grown -          -
        model, forward   -                    -                 -                -          yes
        model, step      where raw is needed  -                 rotated or grown one key block  yes

    keep_raw: sums of products are kept (`score.keeps_raw`), and every pass then goes over whole tiles, diagonal or not.
    skip: tiles may be left out (`score.bounded`); with keep_raw only where nothing but the scale needs raw.
    apart: gradients of q and k before rotation (dq_rest, dk_rest) are kept apart from those that are rotated back.
    kept: a head is one key block, whose weights the forward pass leaves for the backward pass, instead of lse; not with
    keep_raw, growth, rel_gain and counts, whose gradients take what is made on the way to the scores.
    alone: one thread goes through all key blocks of a head, in their order; nobody waits for a turn.
    dropped: weights are dropped out; those of a tile are then recomputed, not kept.
    joined: of the model, whether slots other than those of the content give gradients to queries and keys.
    """

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    width: int
    v_width: int
    causal: int
    window: int  # 0: none
    spanned: int  # whether each query has an interval of keys of its own as well
    key_blocks: int  # number of blocks of TILE_KEYS keys
    half: int  # whether rotations pair channels c and c + R/2, not 2c and 2c + 1
    options: Options
    in_passes: int  # whether something is done to scores between the products and the bias, or raw is kept
    keep_raw: int
    keep_slopes: int  # whether the derivative of the soft cap is kept: of a call's backward pass that has one
    skip: int
    q_batch: int
    q_head: int
    q_row: int
    k_batch: int
    k_head: int
    k_row: int
    v_batch: int
    v_head: int
    v_row: int
    qr_row: int  # of queries and keys after rotation
    kr_row: int
    o_row: int  # of the output and its gradient
    g_row: int  # of the gradients of q and k
    gv_row: int  # of those of v
    apart: int
    kept: int
    alone: int
    dropped: int
    joined: int


@inner
def ends(head, case):
    """How many queries and keys have rows: of a call all, padding too; of the model, where rows of another sequence may
    follow, those of the sequence."""
    if case.alone:
        return head.query_length, head.key_length
    return case.queries, case.keys


@inner
def place(table, slot, b, h):
    """Where what belongs to a head begins in the array of a slot."""
    return b * table[slot, BATCH] + h * table[slot, HEAD]


@inner
def terms_of(slots, b, h):
    """Whose slots a head reads; None of a call without: then nothing of slots, columns and dropout is compiled.

    A call with any of these is compiled for all: for each subset of them it would take as long as for all together.
    """
    if slots is None:
        return None
    return Terms(b, h)


# columns of the table of places of gradients: where the first head's begins, from one sample (or layer) and from one
# head to the next, entries of a head; 0 of a slot whose gradient is not wanted
START, OUTER, STEP, COUNT = (np.int64(number) for number in range(4))
PLACES = np.int64(4)


@inner
def gradient_of(gradients, slot):
    """Where the gradient of a slot goes; gradients: `SlotGradients`."""
    row, places = slot * PLACES, gradients.places
    start = get(places, row + START) + gradients.outer * get(places, row + OUTER)
    return part(gradients.buffer, start + gradients.head * get(places, row + STEP), get(places, row + COUNT))


@inner
def offset_gradient_of(grads, slot):
    """That of a slot over offsets, from the entry on that the first query and the key block's first key read."""
    return at(gradient_of(grads.sums, slot), grads.shift)


class Guard(NamedTuple):
    """What tells whether a tile may be left out: see `score.bound` and the docstring of `kernels.attention`."""

    q_norms: int  # pointers
    key_norms: int
    bias_tails: int
    limit: float  # log of the weight that all keys beyond a tile may have together
    cell_limit: float  # log of the weight that a single key of a tile may have


class Visibility(NamedTuple):
    """What a head's queries see, in addition to what `Case` says of all heads."""

    start: int  # the position of the first query; keys have theirs from 0 on
    spans: int  # pointer, (N, 2): the first key that each query sees, and the first that it no longer does
    mask: int  # pointer, (N or 1, M): what is added to scores, minus infinity where a key is hidden
    occupied: int  # pointer, (blocks, key blocks): whether the mask leaves anything of a tile


class HeadPath(NamedTuple):
    """Pointers to the reflections of one head's keys, see `path.content`."""

    w: int  # (M, D)
    beta: int  # (M,)
    products: int  # (sub-tiles, 2, SUBTILE, SUBTILE)


class Head(NamedTuple):
    """Pointers to the rows of one head, before and after rotation, to its bias and the table of slots; numbers."""

    q: int
    qr: int
    k: int
    kr: int
    v: int
    bias: int
    table: int
    scale: float
    query_length: int  # those from there on are padding
    key_length: int
    visibility: Visibility
    guard: Guard
    dropout: Dropout | None
    place: int  # the number by which dropout knows the head
    columns: Any  # `key_query_offsets.HeadColumns`, None where there are no terms
    running_counts: int  # of `contextual_positions`
    words: Any  # `bf16_panels.HeadPanels`, None where keys and values are not packed beforehand
    path: HeadPath | None  # None without reflections: then nothing of them is compiled


class SlotGradients(NamedTuple):
    """Where the gradients of slots go that belong to one head: see `gradient_of`."""

    buffer: int  # pointer
    places: int  # pointer to the table of places in it
    outer: int  # the sample, or the layer of a model
    head: int


class HeadGradients(NamedTuple):
    """Pointers to gradients of one head: of its output, and with it lse and deltas; what is to be filled or added to.

    Those of queries belong to the whole head; those of keys begin at the key block's first key.
    """

    dout: int
    lse: int
    deltas: int
    dq: int
    dq_rest: int
    dk: int
    dk_rest: int
    dv: int
    sums: SlotGradients  # what is summed over queries
    whole: SlotGradients  # of slots that have an entry for every query and key
    shift: int  # entries before those of the key block's first key in gradients over offsets
    dscale: int
    columns: Any  # `key_query_offsets.ColumnGradients`


class Tile(NamedTuple):
    """A tile's first query, number of queries, first key, number of keys."""

    i0: int
    m: int
    j0: int
    n: int


@inner
def first_offset(head, tile):
    """The offset of the tile's cell (0, 0)."""
    return tile.j0 - (tile.i0 + head.visibility.start)


@inner
def at_offset(x, tile, case):
    """Where cell (0, 0) reads an array with an entry for each offset (see `expand_relative_bias`)."""
    return at(x, tile.j0 - tile.i0 + case.queries - 1)


class Path(NamedTuple):
    """Reflections between key and query, flat, and the elements of `beta` from one sample and from one head to the
    next."""

    w: np.ndarray  # reflectors, (B or 1, H or 1, M, D)
    beta: np.ndarray  # how far each reflects, (B or 1, H or 1, M)
    products: np.ndarray  # (B, pairs, sub-tiles, 2, SUBTILE, SUBTILE), see `path.content`; empty for few queries
    of_sample: int
    of_head: int
    pairs: int  # heads with products of their own


class Inputs(NamedTuple):
    """Arrays of a call: q and k before and after rotation, lengths (B, 2) of queries and keys, what bounds scores."""

    q: np.ndarray
    qr: np.ndarray
    k: np.ndarray
    kr: np.ndarray
    v: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray  # (B,): the positions of the first queries
    spans: np.ndarray  # (B or 1, N, 2), int64, where there are any
    mask: np.ndarray  # flat
    occupied: np.ndarray  # (B or 1, H or 1, blocks, key blocks), int64
    bias: np.ndarray  # an entry for each offset j - i, flat
    scale: np.ndarray  # (H,)
    slots: int | None  # 1, or None as `terms_of` says
    columns: Any  # `key_query_offsets.Columns`, likewise
    q_norms: np.ndarray  # (B H N,)
    key_norms: np.ndarray  # (B, Hk, 2, tiles): the largest norm of keys up to each tile, and from it on
    # (B or 1, H, 2, chunks), float64: log sum exp of biases up to CHUNK offsets, and from them on
    bias_tails: np.ndarray
    table: np.ndarray
    limits: tuple[float, float]  # as `Guard` has them
    running_counts: np.ndarray  # (B, H, N, RUNNING_COUNT), flat, of a call with `counts`
    path: Path | None


class Gradients(NamedTuple):
    """What the backward pass reads and fills: (B, H, ...) each, k and v (B, Hk, M, D).

    dq and dk are those of the content (after rotation), dq_rest and dk_rest of the terms without it.
    """

    out: np.ndarray
    lse: np.ndarray
    dout: np.ndarray
    dlse: np.ndarray
    deltas: np.ndarray
    dq: np.ndarray
    dq_rest: np.ndarray
    dk: np.ndarray
    dk_rest: np.ndarray
    dv: np.ndarray
    slots: np.ndarray  # of all slots, flat, but for those of `key_query_offsets`
    places: np.ndarray  # of each slot in `slots`
    sum_places: np.ndarray  # likewise in a key block's own sums
    dscale: np.ndarray
    columns: Any  # `key_query_offsets.ColumnGradients`
