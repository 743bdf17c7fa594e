"""Sizes of a call of attention, its arrays, and the part of them that belongs to one head."""

from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.attention.slots import BATCH, HEAD, Terms
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.rows.dropout import Dropout
from fastpe.kernels.simd import at, get, part

ONE, NONE = np.int64(1), np.int64(0)
CHUNK = np.int64(32)  # number of offsets for which there is one sum of biases


class Options(NamedTuple):
    """The terms of the score that are not arrays; 0 if a term is missing."""

    rectify: int = 0
    softcap: float = 0.0


class Case(NamedTuple):
    """Sizes and flags of a call, and the strides of its arrays in elements; rows are contiguous.

    Flags, by caller (a dash: never set, or never read):

        .               keep_raw             keep_slopes  skip     apart             kept           alone
        call, forward   -                    -            bounded  -                 -              -
        call, backward  where raw is needed  capped       bounded  rotated or grown  -              -
        model, forward  -                    -            -        -                 -              yes
        model, step     where raw is needed  capped       -        rotated or grown  one key block  yes

    keep_raw: products before the scale are kept (`score.keeps_raw`). If this is set, all passes process whole tiles,
    also on the diagonal.
    skip: tiles may be skipped (`score.bounded`). If keep_raw is also set, only the gradient of the scale needs raw
    products.
    apart: the gradients of q and k from terms that read them before rotation (dq_rest, dk_rest) are stored separately
    from the gradients that must be rotated back.
    kept: a head has only one key block, and the forward pass keeps its weights, instead of lse, for the backward pass.
    Not set with keep_raw, a soft cap, growth, rel_gain or counts, because their gradients need intermediate results of
    the scores; nor with sinks, which change lse; nor with dropout, reflections or a network over scores.
    alone: one thread processes all key blocks of a head, in their order, without waiting for turns.
    dropped: weights are dropped out. The backward pass then recomputes the weights of each tile.
    joined: in the model, whether one of rel_gain, rel_key, rel_query, key_bias, growth and counts is given, or several
    query heads have the same key head. Tiles then add to the gradients of queries and keys; otherwise a tile may
    overwrite them (`backward._is_whole`).
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
    spanned: int  # whether each query additionally has an interval of keys
    key_blocks: int  # number of blocks of TILE_KEYS keys
    half: int  # whether rotations pair channels c and c + R/2, not 2c and 2c + 1
    options: Options
    in_passes: int  # whether there are passes over scores between the products and the bias, or raw is kept
    keep_raw: int
    keep_slopes: int  # whether the derivative of the soft cap is kept: in a backward pass with a soft cap
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
    """Return the number of queries and the number of keys that have rows. In a call, all have rows, including padding.
    In the model, only those of the sequence have rows, because rows of another sequence may follow.
    """
    if case.alone:
        return head.query_length, head.key_length
    return case.queries, case.keys


@inner
def place(table, slot, b, h):
    """Return the start of the part of a slot's array that belongs to a head."""
    return b * table[slot, BATCH] + h * table[slot, HEAD]


@inner
def terms_of(slots, b, h):
    """Return which parts of the slots a head reads (`Terms`). Return None if the call has no dropout, has no terms
    except a bias and a mask, and does not need the products before the scale.

    Kernels for such calls are compiled without code for dropout and all other terms. Kernels for other calls are
    compiled with code for all of them, because compiling a subset would take as long.
    """
    if slots is None:
        return None
    return Terms(b, h)


# columns of the table of addresses of gradients: start for the first head, strides over samples (or layers) and heads,
# number of entries of a head; 0 for a slot whose gradient is not wanted
START, OUTER, STEP, COUNT = (np.int64(number) for number in range(4))
PLACES = np.int64(4)


@inner
def gradient_of(gradients, slot):
    """Return the address of the gradient of a slot. gradients: `SlotGradients`."""
    row, places = slot * PLACES, gradients.places
    start = get(places, row + START) + gradients.outer * get(places, row + OUTER)
    return part(gradients.buffer, start + gradients.head * get(places, row + STEP), get(places, row + COUNT))


@inner
def offset_gradient_of(grads, slot):
    """Return the address of the gradient of a slot over offsets. It is the address of the entry for the call's last
    query and the key block's first key.
    """
    return at(gradient_of(grads.sums, slot), grads.shift)


class Guard(NamedTuple):
    """Data for deciding whether a tile may be skipped: see `score.bound` and the docstring of `kernels.attention`."""

    q_norms: int  # pointers
    key_norms: int
    bias_tails: int
    limit: float  # log of the weight that all keys beyond a tile together may have
    cell_limit: float  # log of the weight that a single key of a tile may have


class Visibility(NamedTuple):
    """Which keys a head's queries see, in addition to what `Case` says for all heads."""

    start: int  # the position of the first query; keys have positions from 0 on
    spans: int  # pointer, (N, 2): the first key that each query sees, and the one after the last
    mask: int  # pointer, (N or 1, M): added to scores, minus infinity where a key is hidden
    occupied: int  # pointer, (blocks, key blocks): whether any key of a tile is visible


class HeadPath(NamedTuple):
    """Pointers to the reflections of one head's keys, see `path.content`."""

    w: int  # (M, D)
    beta: int  # (M,)
    products: int  # (sub-tiles, 2, SUBTILE, SUBTILE)


class Head(NamedTuple):
    """What attention reads of one head: pointers to its rows before and after rotation, to its bias and to the table of
    slots; its sizes; and the data of optional features.
    """

    q: int
    qr: int
    k: int
    kr: int
    v: int
    bias: int
    table: int
    scale: float
    query_length: int  # queries from there on are padding
    key_length: int
    visibility: Visibility
    guard: Guard
    dropout: Dropout | None
    place: int  # the number of the head in dropout
    columns: Any  # `key_query_offsets.HeadColumns`, None without terms
    running_counts: int  # of `contextual_positions`
    words: Any  # `bf16_panels.HeadPanels`, None if keys and values are not packed in advance
    path: HeadPath | None  # None without reflections; then no code for them is compiled


class SlotGradients(NamedTuple):
    """Where the gradients of slots for one head are: see `gradient_of`."""

    buffer: int  # pointer
    places: int  # pointer to the table of addresses in it
    outer: int  # the sample, or the layer of a model
    head: int


class HeadGradients(NamedTuple):
    """Pointers for the backward pass of one head. It reads lse, deltas and the gradient of the output, and it fills or
    adds to the other gradients.

    Gradients of queries start at the head's first query; those of keys start at the key block's first key.
    """

    dout: int
    lse: int
    deltas: int
    dq: int
    dq_rest: int
    dk: int
    dk_rest: int
    dv: int
    sums: SlotGradients  # slots whose gradients are summed over queries
    whole: SlotGradients  # slots with an entry for every query and key
    shift: int  # in gradients over offsets, number of entries before those of the key block's first key
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
    """Return the offset at the tile's entry (0, 0)."""
    return tile.j0 - (tile.i0 + head.visibility.start)


@inner
def at_offset(x, tile, case):
    """Return a pointer to the entry of x for the tile's entry (0, 0). x: an array over offsets
    (`expand_relative_bias`).
    """
    return at(x, tile.j0 - tile.i0 + case.queries - 1)


class Path(NamedTuple):
    """Reflections between key and query, flattened, and the strides of `beta` over samples and heads in elements."""

    w: np.ndarray  # reflectors, (B or 1, H or 1, M, D)
    beta: np.ndarray  # strength of each reflection, (B or 1, H or 1, M)
    products: np.ndarray  # (B, pairs, sub-tiles, 2, SUBTILE, SUBTILE), see `path.content`; empty for few queries
    of_sample: int
    of_head: int
    pairs: int  # number of heads with separate products


class Inputs(NamedTuple):
    """Arrays of a call: q and k before and after rotation, lengths (B, 2) of queries and keys, bounds of scores."""

    q: np.ndarray
    qr: np.ndarray
    k: np.ndarray
    kr: np.ndarray
    v: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray  # (B,): the positions of the first queries
    spans: np.ndarray  # (B or 1, N, 2), int64, if there are any
    mask: np.ndarray  # flat
    occupied: np.ndarray  # (B or 1, H or 1, blocks, key blocks), int64
    bias: np.ndarray  # an entry for each offset j - i, flattened
    scale: np.ndarray  # (H,)
    slots: int | None  # 1, or None, see `terms_of`
    columns: Any  # `key_query_offsets.Columns`, or None
    q_norms: np.ndarray  # (B H N,)
    key_norms: np.ndarray  # (B, Hk, 2, tiles): the largest norm of keys up to each tile, and from it on
    # (B or 1, H, 2, chunks), float64: log sum exp of all biases up to each chunk of CHUNK offsets, and from it on
    bias_tails: np.ndarray
    table: np.ndarray
    limits: tuple[float, float]  # as in `Guard`
    running_counts: np.ndarray  # (B, H, N, RUNNING_COUNT), flattened, in a call with `counts`
    path: Path | None


class Gradients(NamedTuple):
    """The arrays that the backward pass reads and fills: (B, H, ...) each; dk, dk_rest and dv (B, Hk, M, ...).

    dq and dk come from the content (after rotation), dq_rest and dk_rest from all other terms.
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
    slots: np.ndarray  # of all slots, flattened, except those of `key_query_offsets`
    places: np.ndarray  # start of each slot's gradient in `slots`
    sum_places: np.ndarray  # the same for the sums of a key block
    dscale: np.ndarray
    columns: Any  # `key_query_offsets.ColumnGradients`
