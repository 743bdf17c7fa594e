"""Functions of the distance, one for each head, by runs of distances on which they are short series.

A slot has 2N-1 elements for each head. What fills them is smooth in the distance r, a logarithm or a power, or constant
on long runs of it. With one exact value for each run, a vector of elements takes as many operations as its series has
terms, whatever the function, and costs nothing more for the other side if that is the same:

    value(r) = level + gain (c_1 u + ... + c_n u^n),    u = rate (r - middle)

The gradient of anything in these formulas needs the sums of the slot's gradient times u^k over each run alone.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels._jit import entry, inner
from fastpe.kernels.sides import PIECE, SLACK, load_sides, move_sides, store_ahead, store_behind
from fastpe.kernels.simd import at, counting, fma, get, lanes, load, pointer, splat, store, total
from fastpe.kernels.table import LARGE, finish

Array = np.ndarray[Any, Any]


class Runs(NamedTuple):
    """Distances 0 .. N-1 cut into R runs: where each begins and the last ends, its middle, how many terms count."""

    begin: Array  # (R + 1,) int64
    middle: Array  # (R,)
    terms: Array  # (R,) int64


_ALONE = 64
_SHORT, _WIDE = 8, 512


@lru_cache(maxsize=16)
def geometric(length: int, dtype: np.dtype) -> Runs:
    """Runs that grow with the distance, for functions whose series in (r - m) / m have coefficients of at most 2.

    The first 64 distances are runs of their own. From there on a run is an eighth of its distance long, farther away
    less, so that fewer terms are needed: one that starts at 2^17 is a 64th.
    """
    begin, first = list(range(min(_ALONE, length))), _ALONE
    while first < length:
        step = max(first // 64, min(first // _SHORT, _WIDE))
        begin += range(first, min(2 * first, length), step)
        first *= 2
    ends = np.array([*begin, length])
    middle = np.where(ends[:-1] < _ALONE, ends[:-1], (ends[:-1] + ends[1:] - 1) / 2)
    u = np.where(ends[:-1] < _ALONE, 0.0, (ends[1:] - 1 - middle) / np.maximum(middle, 1))
    left_out = np.finfo(np.float64).eps / 4 if dtype == np.float64 else 2.0**-34
    terms = np.where(u > 0.0, np.ceil(np.log(left_out) / np.log(np.where(u > 0.0, u, 0.5))) - 1, 0)
    return Runs(*_frozen(ends, middle, terms.astype(np.int64)))


def _frozen(*arrays: Array) -> tuple[Array, ...]:
    for array in arrays:
        array.flags.writeable = False
    return arrays


def most_terms(runs: Runs) -> int:
    """How many coefficients a series needs."""
    return int(runs.terms.max())


def fill_runs(slot: Array, runs: Runs, level: Array, gain: Array, rate: Array, series: Array) -> None:
    """Fill a slot (H, 2N-1) of any strides and dtype.

    `level` (S, H, R), `gain` (S, H, R), `rate` (H, R), `series` (H, n); S is 1 where both sides are equal, or 2: keys
    behind the query, distance 0 among them, and keys ahead of it. They are broadcast.
    """
    heads, length = slot.shape[0], slot.shape[1] // 2 + 1
    shape = (max(len(level), len(gain)), heads, len(runs.middle))
    row_step, step = (stride // slot.itemsize for stride in slot.strides)
    _fill_runs(
        *runs, *(np.ascontiguousarray(np.broadcast_to(each, shape)) for each in (level, gain)),
        np.ascontiguousarray(np.broadcast_to(rate, shape[1:])),
        np.ascontiguousarray(np.broadcast_to(series, (heads, series.shape[1]))), length, slot[0, :1],
        row_step, step, slot.nbytes >= LARGE,
    )  # fmt: skip


def fill_values(slot: Array, first: int, values: Array, factors: Array) -> None:
    """Fill both sides, from distance `first` on, with factors (H,) times values (H, n), or (1, n) for all heads."""
    row_step, step = (stride // slot.itemsize for stride in slot.strides)
    _fill_values(
        np.ascontiguousarray(values), factors, first, slot.shape[1] // 2, slot[0, :1], row_step, step,
        slot.nbytes >= LARGE,
    )  # fmt: skip


def moments(slot: Array, runs: Runs, rate: Array, powers: int, sides: int = 1) -> Array:
    """Sums over each run of a slot's gradient (H, 2N-1) times u^k, k = 0 .. powers: (S, H, R, powers + 1) float64.

    One side is the sum of both.
    """
    shape = (len(slot), len(runs.middle))
    found = np.zeros((sides, *shape, powers + 1))
    _moments(
        *runs, np.ascontiguousarray(np.broadcast_to(rate, shape)), np.ascontiguousarray(slot), found,
    )  # fmt: skip
    return found


@entry(label="bias by runs of distances")
def _fill_runs(
    begin: Array, middle: Array, terms: Array, level: Array, gain: Array, rate: Array, series: Array, length: int,
    first: Array, row_step: int, step: int, large: bool,
) -> None:  # fmt: skip
    table, ahead, behind = pointer(first), np.empty(PIECE + SLACK, first.dtype), np.empty(PIECE + SLACK, first.dtype)
    sides, heads, count_runs = level.shape
    for h in range(heads):
        opening = 0  # the run that a piece starts in
        for start in range(0, length, PIECE):
            count = min(PIECE, length - start)
            while begin[opening + 1] <= start:
                opening += 1
            for side in range(sides):
                run = opening
                while run < count_runs and begin[run] < start + count:
                    j, last = max(begin[run] - start, 0), min(begin[run + 1] - start, count)
                    _fill_run(
                        pointer(ahead), pointer(behind), sides == 1 or side == 1, sides == 1 or side == 0, j, last,
                        start - middle[run], rate[h, run], level[side, h, run], gain[side, h, run],
                        at(pointer(series), h * series.shape[1]), terms[run],
                    )  # fmt: skip
                    run += 1
            move_sides(
                pointer(ahead), pointer(behind), start, count, at(table, h * row_step), length - 1, step, large
            )  # fmt: skip
    finish(large)


@inner
def _fill_run(ahead, behind, to_ahead, to_behind, j, last, offset, rate, level, gain, series, terms):  # type: ignore[no-untyped-def] # a kernel's types are Numba's
    """Distances j .. last - 1 of a piece, four vectors at a time: each is a chain of dependent operations."""
    rates, levels, gains, one = splat(rate), splat(level), splat(gain), splat(0.0)
    width = lanes(one)
    more = splat(float(width))
    highest = splat(get(series, terms - 1) if terms > 0 else 0.0)
    for i in range(j, last, 4 * width):
        t0 = counting(float(i) + offset)
        t1 = t0 + more
        t2 = t1 + more
        u0, u1, u2, u3 = t0 * rates, t1 * rates, t2 * rates, (t2 + more) * rates
        p0, p1, p2, p3 = highest, highest, highest, highest
        for k in range(terms - 2, -1, -1):
            c = splat(get(series, k))
            p0, p1, p2, p3 = fma(p0, u0, c), fma(p1, u1, c), fma(p2, u2, c), fma(p3, u3, c)
        v0, v1 = fma(u0, gains * p0, levels), fma(u1, gains * p1, levels)
        v2, v3 = fma(u2, gains * p2, levels), fma(u3, gains * p3, levels)
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


@entry(label="bias by distance")
def _fill_values(
    values: Array, factors: Array, start: int, reach: int, first: Array, row_step: int, step: int, large: bool
) -> None:
    table, ahead, behind = pointer(first), np.empty(PIECE + SLACK, first.dtype), np.empty(PIECE + SLACK, first.dtype)
    width = lanes(splat(0.0))
    for h in range(factors.size):
        own, factor = pointer(values[h if values.shape[0] > 1 else 0]), splat(factors[h])
        for i in range(0, values.shape[1], PIECE):
            count = min(PIECE, values.shape[1] - i)
            source = at(own, i)
            for j in range(0, count // width * width, width):
                value = factor * load(source, j)
                store_ahead(pointer(ahead), j, value)
                store_behind(pointer(behind), j, value)
            for j in range(count // width * width, count):
                store_ahead(pointer(ahead), j, factor * splat(get(source, j)))
                store_behind(pointer(behind), j, factor * splat(get(source, j)))
            move_sides(
                pointer(ahead), pointer(behind), start + i, count, at(table, h * row_step), reach, step, large
            )  # fmt: skip
    finish(large)


@entry(label="sums of a bias over runs of distances")
def _moments(begin: Array, middle: Array, terms: Array, rate: Array, slot: Array, found: Array) -> None:
    sides, heads, count, powers = found.shape
    sums = np.empty((powers, SLACK))
    for h in range(heads):
        for side in range(sides):
            for run in range(count):
                _moments_of_run(
                    pointer(slot[h]), slot.shape[1] // 2, sides == 1 or side == 1, sides == 1 or side == 0, begin[run],
                    begin[run + 1], middle[run], rate[h, run], min(terms[run] + 1, powers), sums, found[side, h, run],
                )  # fmt: skip


@inner
def _moments_of_run(row, reach, ahead, behind, first, last, middle, rate, powers, sums, found):  # type: ignore[no-untyped-def]
    width, rates, lines = lanes(splat(0.0)), splat(rate), pointer(sums)
    opening = first + (first == 0)  # distance 0 is on one side alone
    whole = opening + max(last - opening, 0) // width * width
    if whole > opening:
        for k in range(powers):
            store(lines, k * width, splat(0.0))
        for r in range(opening, whole, width):
            u, w = counting(float(r) - middle) * rates, load_sides(ahead, behind, row, reach, r, width)
            for k in range(powers):
                store(lines, k * width, load(lines, k * width) + w)
                w = w * u
        for k in range(powers):
            found[k] = total(load(lines, k * width))
    for r in range(first, opening):
        _add(row, reach, False, behind, r, (r - middle) * rate, powers, found)
    for r in range(whole, last):
        _add(row, reach, ahead, behind, r, (r - middle) * rate, powers, found)


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
