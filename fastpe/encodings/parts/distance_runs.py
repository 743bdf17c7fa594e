"""Functions of the distance, one for each head; on each run of consecutive distances, a short series gives the values.

A slot has 2N-1 elements for each head. The function must be smooth in the distance r, such as a logarithm or a power,
or constant on long runs of distances. The function itself is computed only once for each run. After that, the cost does
not depend on the function: one SIMD vector of elements takes one multiply-add for each term of the run's series. If the
function has the same values before and after the query, they are computed once for both sides. On a run:

    value(r) = level + gain (c_1 u + ... + c_n u^n),    u = rate (r - middle)

For the gradients of all quantities in these formulas, the sums of the slot's gradient times u^k over each run are
sufficient.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.compile.decorators import entry, inlined, inner
from fastpe.kernels.fills.sides import (
    PIECE,
    SLACK,
    load_sides,
    move_edges_of,
    move_lines,
    move_sides,
    places_of,
    store_ahead,
    store_behind,
)
from fastpe.kernels.fills.table import LARGE, finish
from fastpe.kernels.simd import at, counting, fma, get, lanes, load, load_first, pointer, splat, start_of, store, total

Array = np.ndarray[Any, Any]


class Runs(NamedTuple):
    """Distances 0 .. N-1 cut into R runs: the first distance of each run and the end of the last, their middles, and
    the numbers of terms of their series."""

    begin: Array  # (R + 1,) int64
    middle: Array  # (R,)
    terms: Array  # (R,) int64


_ALONE = 64
_SHORT, _WIDE = 8, 512


@lru_cache(maxsize=16)
def geometric(length: int, dtype: np.dtype) -> Runs:
    """Runs that grow with the distance, for functions whose series in (r - m) / m have coefficients of at most 2.

    Each of the first 64 distances is a run. Beyond these, the length of a run is at most an eighth of its first
    distance. This share decreases from distance 4096 on, to at most 1/64 from 2^15 on, so that far runs need fewer
    terms.
    """
    begin, first = list(range(min(_ALONE, length))), _ALONE
    while first < length:
        step = max(first // 64, min(first // _SHORT, _WIDE))
        begin += range(first, min(2 * first, length), step)
        first *= 2
    ends = np.array([*begin, length])
    middle = np.where(ends[:-1] < _ALONE, ends[:-1], (ends[:-1] + ends[1:] - 1) / 2)
    u = np.where(ends[:-1] < _ALONE, 0.0, (ends[1:] - 1 - middle) / np.maximum(middle, 1))
    left_out = np.finfo(np.float64).eps / 4 if dtype == np.float64 else 2.0**-28
    terms = np.where(u > 0.0, np.ceil(np.log(left_out) / np.log(np.where(u > 0.0, u, 0.5))) - 1, 0)
    return Runs(*_frozen(ends, middle, terms.astype(np.int64)))


def _frozen(*arrays: Array) -> tuple[Array, ...]:
    for array in arrays:
        array.flags.writeable = False
    return arrays


def most_terms(runs: Runs) -> int:
    """The number of coefficients that a series needs."""
    return int(runs.terms.max())


def fill_runs(slot: Array, runs: Runs, level: Array, gain: Array, rate: Array, series: Array) -> None:
    """Fill a slot (H, 2N-1) of any strides and dtype.

    `level`, `gain` and `rate` have shape (S, H, R) and `series` has shape (H, n); any of these axes may have size 1 and
    is then broadcast. S is 1 if both sides are equal. Otherwise S is 2: keys before the query, including distance 0,
    and keys after it.
    """
    _fill_runs(*runs, *_contiguous(level, gain, rate, series), *place(slot))


def fill_values(slot: Array, start: int, values: Array, factors: Array) -> None:
    """Fill both sides, from distance `start` on, with factors (H,) times values (H, n), or (1, n) for all heads."""
    _fill_values(*_contiguous(values, factors), start, *place(slot))


def moments(slot: Array, runs: Runs, rate: Array, powers: int, sides: int = 1) -> Array:
    """Sums over each run of a slot's gradient (H, 2N-1) times u^k, k = 0 .. powers: (S, H, R, powers + 1) float64.

    If `sides` is 1, the sums are over both sides.
    """
    found = np.zeros((sides, len(slot), len(runs.middle), powers + 1))
    _moments(*runs, *_contiguous(rate, slot), found)
    return found


def _contiguous(*arrays: Array) -> Iterator[Array]:
    return map(np.ascontiguousarray, arrays)


def place(slot: Array) -> tuple[Any, ...]:
    """The number of heads, the largest distance, the first element, the strides between heads and offsets in elements,
    and whether the slot is large."""
    row_step, step = (stride // slot.itemsize for stride in slot.strides)
    return len(slot), slot.shape[1] // 2, start_of(slot), row_step, step, slot.nbytes >= LARGE


@inlined
def _of(array, side, h, run):  # type: ignore[no-untyped-def] # a kernel's types are Numba's
    """An element, with axes of size 1 broadcast."""
    return array[min(side, array.shape[0] - 1), min(h, array.shape[1] - 1), min(run, array.shape[2] - 1)]


@entry(label="bias by runs of distances")
def _fill_runs(
    begin: Array, middle: Array, terms: Array, level: Array, gain: Array, rate: Array, series: Array, heads: int,
    reach: int, first: Array, row_step: int, step: int, large: bool,
) -> None:  # fmt: skip
    table, lines = pointer(first), np.empty((2, 2, PIECE + SLACK), first.dtype)
    sides, runs, length = max(level.shape[0], gain.shape[0]), middle.size, reach + 1
    for h in range(heads):
        row, opening, waiting, edges, start = at(table, h * row_step), 0, False, (0, 0), 0
        while start < length:
            # a row that stays in cache is written directly, except its last elements: stores must not pass its end
            direct = step == 1 and not large and length - start >= 4 * SLACK
            count, turn = length - SLACK - start if direct else min(PIECE, length - start), start // PIECE % 2
            ahead, behind = pointer(lines[turn, 0]), pointer(lines[turn, 1])
            if direct:
                ahead, behind = places_of(row, reach, start)
            last = pointer(lines[1 - turn, 0]), pointer(lines[1 - turn, 1]), start - PIECE, row, reach
            if waiting:
                edges = move_edges_of(last)
            while begin[opening + 1] <= start:  # the run in which this piece starts
                opening += 1
            for side in range(sides - 1, -1, -1):  # distance 0 belongs to the side that is written last
                both, run, line = sides == 1, opening, 0 if waiting else -1
                if start == 0:
                    run = _fill_alone(
                        ahead, behind, both or side == 1, both or side == 0, count, begin, terms, level, side, h
                    )
                while run < runs and begin[run] < start + count:
                    j, end = max(begin[run] - start, 0), min(begin[run + 1] - start, count)
                    line = _fill_run(
                        ahead, behind, both or side == 1, both or side == 0, j, end, start - middle[run],
                        _of(rate, side, h, run), _of(level, side, h, run), _of(gain, side, h, run),
                        pointer(series[min(h, series.shape[0] - 1)]), terms[run], last, edges, line,
                    )  # fmt: skip
                    run += 1
                if waiting:
                    for rest in range(line, PIECE // lanes(table)):
                        move_lines(last, edges, rest, both or side == 1, both or side == 0)
            waiting = large and step == 1 and start > 0 and count == PIECE and start + PIECE < length
            if not waiting and not direct:
                move_sides(ahead, behind, start, count, row, reach, step, large)
            start += count
    finish(large)


@inner
def _fill_alone(ahead, behind, to_ahead, to_behind, count, begin, terms, level, side, h):  # type: ignore[no-untyped-def]
    """Fill the first distances, where each distance is a run; return their number."""
    alone, width = 0, lanes(splat(0.0))
    while alone < min(terms.size, level.shape[2], count) and begin[alone + 1] == alone + 1 and terms[alone] == 0:
        alone += 1
    values = pointer(level[min(side, level.shape[0] - 1), min(h, level.shape[1] - 1)])
    for i in range(0, alone, 4 * width):
        v0, v1, v2, v3 = _four(values, i, alone - i)
        _put_four(ahead, behind, to_ahead, to_behind, i, v0, v1, v2, v3, (ahead, behind, 0, ahead, 0), (0, 0), -1)
    return alone


@inlined
def _four(values, i, left):  # type: ignore[no-untyped-def]
    """Four vectors from element i on, with `left` elements remaining."""
    width = lanes(values)
    v0, v1 = load_first(values, i, left), load_first(values, i + width, left - width)
    i, left = i + 2 * width, left - 2 * width
    return v0, v1, load_first(values, i, left), load_first(values, i + width, left - width)


@inner
def _fill_run(ahead, behind, to_ahead, to_behind, j, end, offset, rate, level, gain, series, terms, last, edges, line):  # type: ignore[no-untyped-def]
    """Fill distances j .. end - 1 of a piece, four vectors at a time, because each vector is a chain of dependent
    operations.

    With every four vectors, four cache lines of the previous piece are written to memory, starting with `line`; if
    `line` is negative, none are written.
    """
    rates, levels, width = splat(rate), splat(level), lanes(splat(0.0))
    if terms == 0:
        for i in range(j, end, 4 * width):
            line = _put_four(ahead, behind, to_ahead, to_behind, i, levels, levels, levels, levels, last, edges, line)
        return line
    more = splat(float(width))
    highest = splat(gain * get(series, terms - 1))
    for i in range(j, end, 4 * width):
        t0 = counting(float(i) + offset)
        t1 = t0 + more
        t2 = t1 + more
        u0, u1, u2, u3 = t0 * rates, t1 * rates, t2 * rates, (t2 + more) * rates
        p0, p1, p2, p3 = highest, highest, highest, highest
        for k in range(terms - 2, -1, -1):
            c = splat(gain * get(series, k))
            p0, p1, p2, p3 = fma(p0, u0, c), fma(p1, u1, c), fma(p2, u2, c), fma(p3, u3, c)
        v0, v1, v2, v3 = fma(u0, p0, levels), fma(u1, p1, levels), fma(u2, p2, levels), fma(u3, p3, levels)
        line = _put_four(ahead, behind, to_ahead, to_behind, i, v0, v1, v2, v3, last, edges, line)
    return line


@inlined
def _put_four(ahead, behind, to_ahead, to_behind, i, v0, v1, v2, v3, last, edges, line):  # type: ignore[no-untyped-def]
    width = lanes(v0)
    if line >= 0:
        for _ in range(4 * width // lanes(ahead)):
            move_lines(last, edges, line, to_ahead, to_behind)
            line += 1
    if to_ahead:
        store_ahead(ahead, i, v0)
        store_ahead(ahead, i + width, v1)
        store_ahead(ahead, i + 2 * width, v2)
        store_ahead(ahead, i + 3 * width, v3)
    if to_behind:
        store_behind(behind, i, v0)
        store_behind(behind, i + width, v1)
        store_behind(behind, i + 2 * width, v2)
        store_behind(behind, i + 3 * width, v3)
    return line


@entry(label="bias by distance")
def _fill_values(
    values: Array, factors: Array, start: int, heads: int, reach: int, first: Array, row_step: int, step: int,
    large: bool,
) -> None:  # fmt: skip
    lines = np.empty((2, 2, PIECE + SLACK), first.dtype)
    for h in range(heads):
        own, row = values[min(h, values.shape[0] - 1)], at(pointer(first), h * row_step)
        put_values(own, factors[h], start, lines, row, reach, step, large)
    finish(large)


@inner
def put_values(values, factor, first, lines, row, reach, step, large):  # type: ignore[no-untyped-def]
    """Write both sides of one head's row, from distance `first` on: factor times values. Call `finish` after the last
    row.

    `lines` (2, 2, PIECE + SLACK) holds two pieces.
    """
    width, waiting, edges, length = lanes(splat(0.0)), False, (0, 0), first + values.size
    for start in range(first, length, PIECE):
        count, turn = min(PIECE, length - start), (start - first) // PIECE % 2
        ahead, behind = pointer(lines[turn, 0]), pointer(lines[turn, 1])
        last, line = (pointer(lines[1 - turn, 0]), pointer(lines[1 - turn, 1]), start - PIECE, row, reach), -1
        if waiting:
            edges, line = move_edges_of(last), 0
        for i in range(0, count, 4 * width):
            v0, v1, v2, v3 = _four(pointer(values), start - first + i, count - i)
            c = splat(factor)
            line = _put_four(ahead, behind, True, True, i, c * v0, c * v1, c * v2, c * v3, last, edges, line)
        if waiting:
            for rest in range(line, PIECE // lanes(row)):
                move_lines(last, edges, rest, True, True)
        waiting = large and step == 1 and start > 0 and count == PIECE and start + PIECE < length
        if not waiting:
            move_sides(ahead, behind, start, count, row, reach, step, large)


@entry(label="sums of a bias over runs of distances")
def _moments(begin: Array, middle: Array, terms: Array, rate: Array, slot: Array, found: Array) -> None:
    sides, heads, runs, powers = found.shape
    sums = np.empty((powers, SLACK))
    for h in range(heads):
        for side in range(sides):
            for run in range(runs):
                _moments_of_run(
                    pointer(slot[h]), slot.shape[1] // 2, sides == 1 or side == 1, sides == 1 or side == 0, begin[run],
                    begin[run + 1], middle[run], _of(rate, side, h, run), min(terms[run] + 1, powers), sums,
                    found[side, h, run],
                )  # fmt: skip


@inner
def _moments_of_run(row, reach, ahead, behind, first, last, middle, rate, powers, sums, found):  # type: ignore[no-untyped-def]
    width, rates, lines = lanes(splat(0.0)), splat(rate), pointer(sums)
    opening = first + (first == 0)  # distance 0 is only on one side
    whole = opening + max(last - opening, 0) // width * width
    if whole > opening:
        for k in range(powers):
            store(lines, k * width, splat(0.0))
        r = opening
        while r + 4 * width <= whole:
            u0, w0 = _weights(row, reach, ahead, behind, r, middle, rates)
            u1, w1 = _weights(row, reach, ahead, behind, r + width, middle, rates)
            u2, w2 = _weights(row, reach, ahead, behind, r + 2 * width, middle, rates)
            u3, w3 = _weights(row, reach, ahead, behind, r + 3 * width, middle, rates)
            for k in range(powers):
                store(lines, k * width, load(lines, k * width) + ((w0 + w1) + (w2 + w3)))
                w0, w1, w2, w3 = w0 * u0, w1 * u1, w2 * u2, w3 * u3
            r += 4 * width
        while r < whole:
            u, w = _weights(row, reach, ahead, behind, r, middle, rates)
            for k in range(powers):
                store(lines, k * width, load(lines, k * width) + w)
                w = w * u
            r += width
        for k in range(powers):
            found[k] = total(load(lines, k * width))
    for r in range(first, opening):
        _add(row, reach, False, behind, r, (r - middle) * rate, powers, found)
    for r in range(whole, last):
        _add(row, reach, ahead, behind, r, (r - middle) * rate, powers, found)


@inlined
def _weights(row, reach, ahead, behind, r, middle, rate):  # type: ignore[no-untyped-def]
    """u and the gradients at these distances."""
    return counting(float(r) - middle) * rate, load_sides(ahead, behind, row, reach, r, lanes(rate))


@inner
def _add(row, reach, ahead, behind, r, u, powers, found):  # type: ignore[no-untyped-def]
    w = 0.0
    if behind:
        w += get(row, reach - r)
    if ahead:
        w += get(row, reach + r)
    for k in range(powers):
        found[k] += w
        w *= u
