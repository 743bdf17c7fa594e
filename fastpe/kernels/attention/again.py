"""Calls of attention that are made again (see `kernels.kept`): of few queries.

q, k and v are laid out as those of the call that left the record; so is what else is given. Of tensors there may be
another number of keys.
"""

import numpy as np

from fastpe.kernels._jit import allocating, entry, inlined, inner
from fastpe.kernels.at_address import LAYOUT, array_at, float_at, numbers_at, tuple_at, whole_at, within
from fastpe.kernels.attention.banded import (
    OF_A_BAND,
    are_bands,
    band_at,
    mix_parts,
    rows_of_band,
    spans_of_band,
    weigh_parts,
)
from fastpe.kernels.attention.cells import TILE_KEYS
from fastpe.kernels.attention.draining import drain_rows
from fastpe.kernels.attention.given import (
    NUMBER,
    SIZES,
    WORDS,
    Sizes,
    dropout_of,
    given_at,
    has_columns,
    looked_at,
    place_of_bases,
    seen_in,
    size_of_memory,
    slots_in,
)
from fastpe.kernels.attention.records import COLUMNS, SLOTS, Case, Options
from fastpe.kernels.attention.turns import has_turns, turned_of, turned_of_halves
from fastpe.kernels.attention.unfolding import are_finite
from fastpe.kernels.board import BOARD
from fastpe.kernels.dlpack import LAYOUT as LAYOUT_OF_TENSOR
from fastpe.kernels.dlpack import Functions, hand_over, locate, take_back, tensor_like
from fastpe.kernels.kept import is_laid_out, run_kept, start_within
from fastpe.kernels.narrow import round_into, widened
from fastpe.kernels.simd import pointer
from fastpe.kernels.unlocked import unlocked

AT = 3
_OPTIONS = Case._fields.index("options")
_QUERIES, _KEYS, _WIDTH = 2, LAYOUT + 2, 2 * LAYOUT + 3
FRONT = AT * LAYOUT
_COUNTS = FRONT + SIZES
HEAD = _COUNTS + NUMBER
"""Words before the record of the call: the layouts of q, k and v, as `is_laid_out` takes them, `Sizes`, and how many
elements each of `Given` has."""
OF_CASE = (*Case._fields[:_OPTIONS], *Options._fields, *Case._fields[_OPTIONS + 1 :])
"""The numbers of a case as `records.in_one_row` has it, which here come after the first `HEAD` words."""
_SLOTS, _COLUMNS, _BEFORE = len(SLOTS), int(COLUMNS), OF_CASE.index("softcap")
_SOFTCAP = HEAD + _BEFORE
_AFTER, _REST = _SOFTCAP + 1, len(OF_CASE) - _BEFORE - 1
TABLE = HEAD + len(OF_CASE)
SLOPES = TABLE + _SLOTS * _COLUMNS
BODY = 2 * SLOPES
"""Where the table of slots begins; then what is added to each word up to there for every key more; then the record of
the call."""
STRIPS, TILES = HEAD + OF_CASE.index("strips"), FRONT + Sizes._fields.index("tiles")
"""The words that are not linear in the number of keys: both are the number of tiles."""
BLOCK = 7 + len(Functions._fields)
"""Words of which the address tells a call of tensors all that is kept of it (`where_they_lie`): the addresses of the
record, of layouts and of words, each before how many words, tensors and words these are, the size of a lane's memory,
and `dlpack.Functions`. Python hands over one number in a third of the time that an array takes."""
ELSEWHERE, REFUSED = np.int64(-1), np.int64(-2)
"""How a call of tensors went that was not made: they are laid out otherwise than those before; attention does not take
what they hold."""


@entry(label="attention that is called again")
def forward_again(run, lanes, record, size, out, lse, q, k, v, given, slots, turns, moves):
    """As `calls.forward`, of other arrays; False, and nothing done, where they are of other types or not laid out as
    those before, or hold what attention does not take.

    run, lanes: see `threads.run_again`. record: `BODY` words, then the record of the call. size: of a lane's memory.
    given: the `WORDS` of what is given, or None. True, else None: slots, where it has slots of the kernels or drops
    weights; turns, where it may have what turns or scales rows; moves, where it has what maps or lifts them.
    """
    return as_before(record, q, k, v) and _exactly(
        (run, lanes), record, size, out, lse, q, k, v, given, slots, turns, moves
    )  # fmt: skip


@entry(label="attention of half precision that is called again")
def halves_again(run, lanes, record, size, out, lse, q, k, v, given, slots, turns, moves):
    """As `forward_again`, of half precision, of which queries were float32 in one piece before; lse: float32.

    All of q, k, v and out are the integers that `simd.halves` makes of such numbers; what is given is float32, or
    float64, and maps nothing. What turns and lifts keys does not make them grow.
    """
    return as_before(record, q, k, v) and _rounded(
        (run, lanes), record, size, out, lse, q, k, v, given, slots, turns, moves
    )


@entry(label="attention that is called again", objects=True)
def forward_at(run, lanes, block, tensors, found, dtype, given, slots, turns, moves):
    """`forward_again` without lse, of tensors; the number of keys, `ELSEWHERE` or `REFUSED`.

    block: see `BLOCK`. tensors: the address of their tuple. found: of a list, whose only object becomes the output.
    dtype: of q, k, v and of that.
    """
    return where_they_lie(_forward_at, tensors, found, block, dtype, (run, lanes, given, slots, turns, moves))


@entry(label="attention of half precision that is called again", objects=True)
def halves_at(run, lanes, block, tensors, found, dtype, given, slots, turns, moves):
    """`halves_again` of tensors, as `forward_at`; dtype: of the integers."""
    return where_they_lie(_halves_at, tensors, found, block, dtype, (run, lanes, given, slots, turns, moves))


@allocating
def where_they_lie(function, tensors, found, block, dtype, arguments):
    """How ``function(words, record, size, out, *arguments)`` went, of a copy of the words in which stands where tensors
    lie, and a record for as many keys as there are.

    The words are for the addresses of q, k and v, and from `AT` on of what is given; they end there where nothing is.
    """
    numbers = numbers_at(whole_at(block, (BLOCK,), np.int64), 0, BLOCK)
    first, length, layouts, count, words, number, size, reader, maker = numbers
    record, own = whole_at(first, (length,), np.int64), whole_at(words, (number,), np.int64).copy()
    laid = whole_at(layouts, (2, count, LAYOUT_OF_TENSOR), np.int64)
    keys = locate(reader, tensors, laid, own, 1, 2)
    if keys < record[_QUERIES]:
        return ELSEWHERE
    if keys != record[_KEYS]:
        record = _stretched(record, keys)
    shape = record[0], record[1], record[_QUERIES], record[_WIDTH]
    made, rows = tensor_like(laid, 0, shape)
    if made == 0:
        return REFUSED
    if not unlocked(function, (own, record, size, whole_at(rows, shape, dtype), *arguments)):
        take_back(made)
        return REFUSED
    return keys if hand_over(maker, made, found) else REFUSED


@allocating
def _stretched(record, keys):
    """The record for another number of keys."""
    made, more = record.copy(), keys - record[_KEYS]
    for place in range(SLOPES):
        made[place] += more * record[SLOPES + place]
    made[STRIPS] = made[TILES] = (keys + TILE_KEYS - 1) // TILE_KEYS
    return made


@allocating
def _forward_at(words, record, size, out, run, lanes, given, slots, turns, moves):
    lse, rows = np.empty(out.shape[:3], out.dtype), qkv_at(record, out, words)
    if given is None:
        return _exactly((run, lanes), record, size, out, lse, *rows, None, slots, turns, moves)
    return _exactly((run, lanes), record, size, out, lse, *rows, words[AT:], slots, turns, moves)


@allocating
def _halves_at(words, record, size, out, run, lanes, given, slots, turns, moves):
    lse, rows = np.empty(out.shape[:3], np.float32), qkv_at(record, out, words)
    if given is None:
        return _rounded((run, lanes), record, size, out, lse, *rows, None, slots, turns, moves)
    return _rounded((run, lanes), record, size, out, lse, *rows, words[AT:], slots, turns, moves)


@entry(label="attention with bands that is called again")
def bands_again(run, lanes, record, size, out, lse, q, k, v, given, slots):
    """`forward_again` with bands, whose record is that of the pass over one of them."""
    return as_before(record, q, k, v) and _banded(
        (run, lanes), record, size, out, lse, start_within(q), start_within(k), start_within(v), given, slots
    )


@entry(label="attention of half precision with bands that is called again")
def banded_halves_again(run, lanes, record, size, out, lse, q, k, v, given, slots):
    """Likewise `halves_again`, with whatever is given; keys were float32 in one piece before."""
    return as_before(record, q, k, v) and _banded_halves(
        (run, lanes), record, size, out, lse, q, k, start_within(v), given, slots
    )


@inner
def as_before(record, q, k, v):
    """Whether they are laid out as those of the call that left a record."""
    alike = is_laid_out(q, record, 0) and is_laid_out(k, record, LAYOUT)
    return alike and is_laid_out(v, record, 2 * LAYOUT)


@allocating
def qkv_at(record, like, words):
    """q, k and v, which lie where the first words say, laid out likewise."""
    q, k, v = numbers_at(words, 0, AT)
    return array_at(q, record, 0, like), array_at(k, record, LAYOUT, like), array_at(v, record, 2 * LAYOUT, like)


@inner
def _exactly(crew, record, size, out, lse, q, k, v, given, slots, turns, moves):
    first = start_within(q), start_within(k), start_within(v)
    return _again(crew, record, size, out, lse, *first, given, slots, turns, moves, None)


@allocating
def _rounded(crew, record, size, out, lse, q, k, v, given, slots, turns, moves):
    exact, wide = np.empty(out.shape, np.float32), widened(q)
    done = _again(
        crew, record, size, exact, lse, wide, start_within(k), start_within(v), given, slots, turns, moves, True
    )
    round_into(exact.reshape(-1), out.reshape(-1))
    return done


@allocating
def _again(crew, record, size, out, lse, q, k, v, given, slots, turns, moves, halves):
    """halves: True where keys are of half precision, which nothing maps here; else None."""
    arenas = np.empty((crew[1], size), out.dtype)
    if given is None:
        memory = np.zeros(BOARD, np.int64)
        return _run(crew, record, memory, (out, lse, arenas), (q, q, k, k, v, q[:0]), None, None, None, None, None)
    sizes, arrays = tuple_at(Sizes, record, FRONT), given_at(given, record[_COUNTS:HEAD], out)
    memory = np.zeros(size_of_memory(sizes, arrays, out), np.int64)
    if not looked_at(memory, sizes, arrays, out, slots):
        return False
    takes, rows = _turned(crew, memory, sizes, arrays, q, k, v, turns, moves, halves)
    if not (takes and _run(crew, record, memory, (out, lse, arenas), rows, None, sizes, arrays, given, slots)):
        return False
    if slots is None or not has_columns(arrays):
        return drained(out, lse, arrays.sinks)
    bases = within(memory, place_of_bases(sizes, arrays, out), (sizes.samples * sizes.heads,), np.float64)
    return raised(out, lse, bases, arrays.sinks)


@inlined
def _run(crew, record, memory, made, rows, spans, sizes, arrays, given, slots):
    """Run the record with what is in memory; False where it is of calls that take something else.

    made: output, lse, and the memory of lanes. spans: in the place of those that are given, or None.
    """
    body, (out, lse, arenas), (case, table) = record[BODY:], made, _case_and_table(record)
    first = pointer(memory), out, lse, arenas, case, table, rows
    if given is None:
        return run_kept(crew, body, first)
    lengths, starts, own, mask, tiles, bias, scale = seen_in(memory, sizes, arrays, out)
    if spans is not None:
        own = spans
    seen = lengths, starts, own, mask, tiles, bias, scale
    if slots is None:
        return run_kept(crew, body, (*first, seen))
    return run_kept(crew, body, (*first, seen, slots_in(memory, sizes, arrays, out), dropout_of(given)))


@inlined
def _case_and_table(record):
    before, after = numbers_at(record, HEAD, _BEFORE), numbers_at(record, _AFTER, _REST)
    return (*before, float_at(record, _SOFTCAP), *after), within(record, TABLE, (_SLOTS, _COLUMNS), np.int64)


@allocating
def _turned(crew, memory, sizes, arrays, q, k, v, turns, moves, halves):
    """The rows that kernels read; before them, whether attention takes what turns and scales them."""
    if turns is None or not has_turns(arrays):
        return True, (q, q, k, k, v, q[:0])
    if halves is None:
        takes, qr, kr, products = turned_of((crew[0], crew[1], crew[1]), memory, sizes, arrays, q, k, moves)
        if arrays.polar.size:  # nothing reads rows before they were lifted
            return takes, (qr, qr, kr, kr, v, products)
        return takes, (q, qr, k, kr, v, products)
    takes, qr, products = turned_of_halves((crew[0], crew[1], crew[1]), memory, sizes, arrays, q, k)
    return takes, (qr if arrays.polar.size else q, qr, k, k, v, products)


@inner
def drained(out, lse, sinks):
    """True, after what sinks take."""
    if sinks.size:
        drain_rows(out, lse, sinks)
    return True


@allocating
def raised(out, lse, bases, sinks):
    """As `drained`, of lse that is less than it is by bases: flat, one for each head, or for each row."""
    rows, whole = lse.reshape(-1), np.empty(lse.shape)
    sums = whole.reshape(-1)
    _add_bases(rows, bases, 1.0, sums)
    if sinks.size:
        drain_rows(out, whole, sinks)
        _add_bases(sums, bases, -1.0, rows)  # rounded, as it is kept without them
        _add_bases(rows, bases, 1.0, sums)
    _add_bases(sums, bases[:0], 1.0, rows)
    return True


@inner
def _add_bases(source, bases, sign, target):
    """Each row and its base, where there are any; as many rows follow each other with each. All are flat."""
    rows = source.size // max(bases.size, 1)
    for row in range(source.size):
        target[row] = source[row] + (sign * bases[row // rows] if bases.size else 0.0)


@allocating
def _banded_halves(crew, record, size, out, lse, q, k, v, given, slots):
    exact = np.empty(out.shape, np.float32)
    done = _banded(crew, record, size, exact, lse, widened(q), widened(k), v, given, slots)
    round_into(exact.reshape(-1), out.reshape(-1))
    return done


@allocating
def _banded(crew, record, size, out, lse, q, k, v, given, slots):
    sizes, arrays, words = tuple_at(Sizes, record, FRONT), given_at(given, record[_COUNTS:HEAD], out), given[WORDS:]
    memory, arenas = np.zeros(size_of_memory(sizes, arrays, out), np.int64), np.empty((crew[1], size), out.dtype)
    fits = looked_at(memory, sizes, arrays, out, True)
    if not (fits and are_finite(arrays.theta) and are_bands(words, sizes)):
        return False
    parts, first = words.size // OF_A_BAND, place_of_bases(sizes, arrays, out)
    bases = within(memory, first, (sizes.samples * sizes.heads,), np.float64)
    outs, lses, whole = np.empty((parts, *out.shape), out.dtype), np.empty((parts, *lse.shape)), np.empty(lse.shape)
    sums = lses.reshape(parts, lse.size)
    for number in range(parts):
        band = band_at(words[number * OF_A_BAND :], sizes)
        spans, low, high = spans_of_band(band[2], arrays.spans, sizes)
        takes, qr, kr = rows_of_band(sizes, arrays, band, low, high, q, k)
        rows, made = (q, qr, k, kr, v, q[:0]), (outs[number], lse, arenas)
        _clear(memory[:BOARD])
        _clear(bases)
        if not (takes and _run(crew, record, memory, made, rows, spans, sizes, arrays, given, slots)):
            return False
        _add_bases(lse.reshape(-1), bases if has_columns(arrays) else bases[:0], 1.0, sums[number])
    weigh_parts(lses, arrays.sinks, whole)
    mix_parts(outs, lses, out)
    _add_bases(whole.reshape(-1), bases[:0], 1.0, lse.reshape(-1))
    return True


@inner
def _clear(x):
    for place in range(x.size):
        x[place] = 0
