"""Calls of attention through reflections or a network that are made again, as `again` has those of others.

On those ways a query reads keys by itself, so that they are turned in memory.
"""

import numpy as np

from fastpe.kernels._jit import allocating, entry
from fastpe.kernels.at_address import numbers_at, tuple_at
from fastpe.kernels.attention.again import AT, FRONT, HEAD, as_before, drained, qkv_at, raised, where_they_lie
from fastpe.kernels.attention.given import (
    NUMBER,
    Sizes,
    dropout_of,
    given_at,
    looked_at,
    seen_of,
    size_of_memory,
    slots_of,
)
from fastpe.kernels.attention.mlp_calls import MlpInputs, MlpOutputs
from fastpe.kernels.attention.reflected import Tokens
from fastpe.kernels.attention.turns import turned_in_memory
from fastpe.kernels.attention.unfolding import are_finite
from fastpe.kernels.kept import run_kept, start_within
from fastpe.kernels.narrow import round_into, widened
from fastpe.kernels.simd import hold, pointer

PLAIN, DROPPED, BESIDE, WITH_SLOTS = map(np.int64, range(4))
"""What a record has others of: what all have, weights that are dropped as well, what goes beside, and its slots."""
UNMASKED, INTERVALS, MASKED = map(np.int64, range(3))
"""Whether there is a mask, and whether it was one that leaves every query an interval of keys, and so became spans."""
OWN = 5
BODY = HEAD + OWN
"""Words before the record: after `again.HEAD` one of the first; the window, or 0; whether lse is less than it is by
bases; the memory that a lane has for what goes beside; one of the second."""


@entry(label="attention through reflections that is called again")
def reflected_again(run, lanes, record, size, out, lse, q, k, v, given):
    """As `again.forward_again`; q, k and v lie in one piece, and there is a reflector for each `reflect`."""
    return as_before(record, q, k, v) and _reflected(
        (run, lanes), record, size, out, lse, (start_within(q), start_within(k), start_within(v)), given
    )


@entry(label="attention through reflections that is called again", objects=True)
def reflected_at(run, lanes, block, tensors, found, dtype):
    """As `again.forward_at`."""
    return where_they_lie(_reflected_at, tensors, found, block, dtype, (run, lanes))


@allocating
def _reflected_at(words, record, size, out, run, lanes):
    lse, (q, k, v) = np.empty(out.shape[:3], out.dtype), qkv_at(record, out, words)
    rows = start_within(q), start_within(k), start_within(v)
    return _reflected((run, lanes), record, size, out, lse, rows, words[AT:])


@entry(label="attention of half precision through reflections that is called again")
def reflected_halves_again(run, lanes, record, size, out, lse, q, k, v, given):
    """As `again.halves_again`, but that anything may be given, and k and v too were float32 in one piece before."""
    return as_before(record, q, k, v) and _reflected_halves((run, lanes), record, size, out, lse, q, k, v, given)


@entry(label="attention of half precision through reflections that is called again", objects=True)
def reflected_halves_at(run, lanes, block, tensors, found, dtype):
    """As `again.halves_at`."""
    return where_they_lie(_reflected_halves_at, tensors, found, block, dtype, (run, lanes))


@allocating
def _reflected_halves_at(words, record, size, out, run, lanes):
    lse, (q, k, v) = np.empty(out.shape[:3], np.float32), qkv_at(record, out, words)
    return _reflected_halves((run, lanes), record, size, out, lse, q, k, v, words[AT:])


@entry(label="attention through a network that is called again")
def network_again(run, lanes, record, size, out, lse, q, k, v, given):
    """As `again.forward_again`."""
    return as_before(record, q, k, v) and _networked(
        (run, lanes), record, size, out, lse, (start_within(q), start_within(k), start_within(v)), given
    )


@entry(label="attention through a network that is called again", objects=True)
def network_at(run, lanes, block, tensors, found, dtype):
    """As `again.forward_at`."""
    return where_they_lie(_network_at, tensors, found, block, dtype, (run, lanes))


@allocating
def _network_at(words, record, size, out, run, lanes):
    lse, (q, k, v) = np.empty(out.shape[:3], out.dtype), qkv_at(record, out, words)
    rows = start_within(q), start_within(k), start_within(v)
    return _networked((run, lanes), record, size, out, lse, rows, words[AT:])


@entry(label="attention of half precision through a network that is called again")
def network_halves_again(run, lanes, record, size, out, lse, q, k, v, given):
    """As `reflected_halves_again`."""
    return as_before(record, q, k, v) and _network_halves((run, lanes), record, size, out, lse, q, k, v, given)


@entry(label="attention of half precision through a network that is called again", objects=True)
def network_halves_at(run, lanes, block, tensors, found, dtype):
    """As `again.halves_at`."""
    return where_they_lie(_network_halves_at, tensors, found, block, dtype, (run, lanes))


@allocating
def _network_halves_at(words, record, size, out, run, lanes):
    lse, (q, k, v) = np.empty(out.shape[:3], np.float32), qkv_at(record, out, words)
    return _network_halves((run, lanes), record, size, out, lse, q, k, v, words[AT:])


@allocating
def _reflected_halves(crew, record, size, out, lse, q, k, v, given):
    exact = np.empty(out.shape, np.float32)
    done = _reflected(crew, record, size, exact, lse, (widened(q), widened(k), widened(v)), given)
    round_into(exact.reshape(-1), out.reshape(-1))
    return done


@allocating
def _network_halves(crew, record, size, out, lse, q, k, v, given):
    exact = np.empty(out.shape, np.float32)
    done = _networked(crew, record, size, exact, lse, (widened(q), widened(k), widened(v)), given)
    round_into(exact.reshape(-1), out.reshape(-1))
    return done


@allocating
def _reflected(crew, record, size, out, lse, rows, given):
    level, window, is_raised, _, masked = numbers_at(record, HEAD, OWN)
    sizes = tuple_at(Sizes, record, FRONT)
    arrays = given_at(given, record[HEAD - NUMBER : HEAD], out)
    memory = np.zeros(size_of_memory(sizes, arrays, out), np.int64)
    takes, rows, seen, slots = _looked(crew, memory, sizes, arrays, masked, out, rows)
    if not (takes and are_finite(arrays.reflectors) and are_finite(arrays.reflect)):
        return False
    (_, qr, _, kr, v, nothing), (lengths, starts, spans, _, _, _, scale) = rows, seen
    tokens = Tokens(
        qr, kr, v, arrays.reflectors, arrays.reflect, nothing, np.ones_like(scale) if level >= BESIDE else scale,
        _numbers(lengths, starts), _near(sizes, arrays, masked, spans, starts, window).reshape(-1),
        arrays.key_offset, np.array([np.finfo(out.dtype).min, out.dtype.type(1.0)]),
    )  # fmt: skip
    bases = _cleared(out, lse, is_raised)
    arenas = np.zeros((crew[1], size), out.dtype)
    first = pointer(memory), out.reshape(-1), lse.reshape(-1), bases.reshape(-1), arenas, tokens
    done = _run(crew, record, first, dropout_of(given), rows, seen, slots)
    hold(memory)
    return done and _finished(out, lse, bases, arrays.sinks, is_raised)


@allocating
def _networked(crew, record, size, out, lse, rows, given):
    is_raised, masked, sizes = record[HEAD + 2], record[BODY - 1], tuple_at(Sizes, record, FRONT)
    arrays = given_at(given, record[HEAD - NUMBER : HEAD], out)
    memory = np.zeros(size_of_memory(sizes, arrays, out), np.int64)
    takes, rows, seen, slots = _looked(crew, memory, sizes, arrays, masked, out, rows)
    if not (takes and are_finite(arrays.mlp_in) and are_finite(arrays.mlp_bias) and are_finite(arrays.mlp_out)):
        return False
    (_, qr, _, kr, v, none), (lengths, starts, spans, _, _, bias, scale) = rows, seen
    x = MlpInputs(
        qr, kr, v, bias, arrays.scores, arrays.values, slots[0].indices, scale, arrays.mlp_in, arrays.mlp_bias,
        arrays.mlp_out, lengths, starts, spans.reshape(-1),
    )  # fmt: skip
    bases = _cleared(out, lse, is_raised)
    y = MlpOutputs(
        out.reshape(-1), lse.reshape(-1), none, none, none, none, none, none, none, none, none, none, none, none
    )
    arenas = np.empty((crew[1], size), out.dtype)
    done = _run(crew, record, (pointer(memory), x, y, bases.reshape(-1), arenas), dropout_of(given), rows, seen, slots)
    hold(memory)
    return done and _finished(out, lse, bases, arrays.sinks, is_raised)


@allocating
def _looked(crew, memory, sizes, arrays, masked, out, rows):
    """Rows, what queries see, and slots, as `Inputs` has them; before them, whether attention takes what is given, and
    a mask has become what it was."""
    q, k, v = rows
    fits = looked_at(memory, sizes, arrays, out, True)
    lengths, starts, spans, mask, occupied, bias, scale = seen_of(memory, sizes, arrays, out)
    if fits and masked != UNMASKED:
        are_intervals, intervals = _intervals(sizes, mask)
        fits = are_intervals == (masked == INTERVALS)
        if are_intervals:
            spans = _spans_of(sizes, arrays, spans, intervals)
    seen, slots = (lengths, starts, spans, mask, occupied, bias, scale), slots_of(memory, sizes, arrays, out)
    if not fits:  # nor are the places that angles are read at looked at
        return False, (q, q, k, k, v, q[:0]), seen, slots
    takes, qr, kr = turned_in_memory((crew[0], crew[1], crew[1]), memory, sizes, arrays, q, k)
    if arrays.polar.size:  # nothing reads rows before they were lifted
        q, k = qr, kr
    return takes, (q, qr, k, kr, v, q[:0]), seen, slots


@allocating
def _intervals(sizes, mask):
    """Whether a mask only hides, and leaves every query one interval of keys, the same for all heads; and those."""
    m = sizes.keys
    found = np.zeros((mask.size // m, 2), np.int64)
    for row in range(found.shape[0]):
        first, last, count = m, 0, 0
        for j in range(m):
            x = mask[row * m + j]
            if x == 0.0:
                first, last, count = min(first, j), j + 1, count + 1
            elif x > -np.inf:
                return False, found
        if count:
            found[row, 0], found[row, 1] = first, last
        if count and last - first > count:
            return False, found
    return sizes.heads_of_masks == 1, found


@allocating
def _spans_of(sizes, arrays, spans, intervals):
    """What is in the spans that are given, if there are any, and in the intervals of a mask."""
    n, samples, rows = sizes.queries, arrays.spans.size // (2 * sizes.queries), intervals.shape[0] // sizes.masks
    found = np.empty(spans.shape, np.int64)
    for b in range(sizes.spans):
        for i in range(n):
            own = intervals[b % sizes.masks * rows + i % rows]
            low, high = own[0], own[1]
            if samples:
                low, high = max(spans[b % samples, i, 0], low), min(spans[b % samples, i, 1], high)
            found[b, i, 0], found[b, i, 1] = low, high
    return found


@allocating
def _numbers(lengths, starts):
    """`Tokens.lengths`."""
    found = np.empty((starts.size, 3), np.int64)
    for b in range(starts.size):
        found[b, 0], found[b, 1], found[b, 2] = lengths[b, 0], lengths[b, 1], starts[b]
    return found


@allocating
def _near(sizes, arrays, masked, spans, starts, window):
    """What `functional.reflections.spans_near` gives."""
    if window == 0:
        return spans
    samples, has_spans = sizes.samples if arrays.starts.size else 1, arrays.spans.size or masked == INTERVALS
    found = np.empty((max(sizes.spans, samples), sizes.queries, 2), np.int64)
    for b in range(found.shape[0]):
        for i in range(sizes.queries):
            query = starts[b] + i
            near, last = max(query - window + 1, 0), query + 1
            if has_spans:
                near, last = max(spans[b % sizes.spans, i, 0], near), spans[b % sizes.spans, i, 1]
            found[b, i, 0], found[b, i, 1] = near, last
    return found


@allocating
def _cleared(out, lse, is_raised):
    """Bases; outputs of queries that see nothing."""
    out[:], lse[:] = 0.0, -np.inf
    return np.zeros(lse.shape if is_raised else (1, 1, 1))


@allocating
def _run(crew, record, first, dropout, rows, seen, slots):
    """Run the record with as much of that as it has."""
    body, level, size = record[BODY:], record[HEAD], record[HEAD + 3]
    if level == PLAIN:
        return run_kept(crew, body, first)
    if level == DROPPED:
        return run_kept(crew, body, (*first, dropout))
    arenas = np.zeros((crew[1], size), rows[0].dtype)
    if level == BESIDE:
        return run_kept(crew, body, (*first, dropout, rows, seen, arenas))
    return run_kept(crew, body, (*first, dropout, rows, seen, arenas, slots))


@allocating
def _finished(out, lse, bases, sinks, is_raised):
    return raised(out, lse, bases.reshape(-1), sinks) if is_raised else drained(out, lse, sinks)
