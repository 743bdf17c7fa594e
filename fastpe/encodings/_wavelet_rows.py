"""The rows of a wavelet table, where lanes are positions: what `fastpe.encodings.wavelet` compiles.

A row's nonzero entries are few: of each scale j those shifts k for which p / 2^j - k lies in [0, L-1). Their values
depend on the last j binary digits of p alone, so rows in order meet those of the finer scales again and again: up to
some level they are kept. Each coarser level takes one refinement, 2 L^2 operations for a vector of positions, and each
function that reaches a row about ten more. All scratch comes from the caller, which makes this quick to compile.
"""

import math

import numpy as np

from fastpe.encodings._daubechies import at_fractions, mixed_taps, refine
from fastpe.kernels._jit import entry, inner
from fastpe.kernels.simd import (
    absolute,
    any_negative,
    at,
    fma,
    get,
    lanes,
    load,
    maximum,
    minus,
    pointer,
    put,
    splat,
    sqrt,
    store,
    store_rounded,
    where_negative,
    zeros,
)
from fastpe.kernels.table import columns_to_rows, finish, move_rows

ZERO, PHI, PSI = 0, 1, 2
_LOST = 2.0**-600  # a sum of squares below this may have lost some of them
_TINY, _RAISED = 2.0**-400, 2.0**600  # rows whose largest entry is tiny are raised before they are squared


@entry(label="wavelet table")
def fill_rows(
    points: np.ndarray,
    taps: np.ndarray,
    integers: np.ndarray,
    runs: np.ndarray,
    shift: np.ndarray,
    place: np.ndarray,
    amplitudes: np.ndarray,
    unit: bool,
    scale: float,
    phase: int,
    kept: int,
    values: np.ndarray,
    ready: np.ndarray,
    indices: np.ndarray,
    work: np.ndarray,
    found: np.ndarray,
    rounded: np.ndarray,
    block: np.ndarray,
    tile: np.ndarray,
    first: np.ndarray,
    row_step: int,
    step: int,
    large: bool,
) -> None:
    # Lanes are positions. An entry of `values` is phi and psi of one level for one group of positions; the first ones
    # are those of the current group on each level, the others are kept.
    levels, count, dim, width = amplitudes.shape[0], integers.shape[0], block.shape[1], lanes(pointer(points))
    wide, total_rows, entry_size = lanes(pointer(first)), points.shape[0], 2 * count * width
    floors = pointer(indices)
    source_of = at(floors, width)
    cursors = at(source_of, levels)
    column_of = at(cursors, runs.shape[1])
    group, columns, busy = at(pointer(found), dim * width), pointer(rounded), 0
    number_of_runs, shifts, places = runs.shape[1], pointer(shift), pointer(place)
    kinds = pointer(runs)
    level_of, starts, stops = at(kinds, number_of_runs), at(kinds, 2 * number_of_runs), at(kinds, 3 * number_of_runs)
    for i in range(0, total_rows, width):
        in_order = True
        for lane in range(width):
            put(group, lane, points[i + lane] if i + lane < total_rows else get(group, lane - 1) + 1.0)
            put(floors, lane, math.floor(get(group, lane)))
            in_order &= get(group, lane) - get(group, 0) == lane
        in_order &= get(group, 0) == get(floors, 0) and (get(floors, 0) - phase) % width == 0
        least, most = get(floors, 0), get(floors, 0)
        for lane in range(1, width):
            least, most = min(least, get(floors, lane)), max(most, get(floors, lane))

        # the functions that reach these positions, and the coarsest of them
        needed = 0
        for run in range(number_of_runs):
            level, c = get(level_of, run), max(get(starts, run), get(cursors, run))
            while c > get(starts, run) and get(shifts, c - 1) > (least >> level) - count:
                c -= 1
            while c < get(stops, run) and get(shifts, c) <= (least >> level) - count:
                c += 1
            put(cursors, run, c)
            if c < get(stops, run) and get(shifts, c) <= most >> level:
                needed = max(needed, level + 1)

        # one more binary digit of the whole part leads from each level to the next coarser one
        before, start = pointer(values), levels
        for level in range(needed):
            number = level
            if level < kept:
                if in_order:
                    number = start + (get(floors, 0) & ((1 << level) - 1)) // width
                start += max(1, (1 << level) // width)
            out = at(pointer(values), number * entry_size)
            if number < levels or not ready[number]:
                if level == 0:
                    at_fractions(
                        group, pointer(taps), pointer(integers), count, out, at(out, count * width), pointer(work)
                    )
                else:
                    chosen = at(pointer(taps), ((least >> (level - 1)) & 1) * (taps.size // 2))
                    if least >> (level - 1) != most >> (level - 1):
                        digit, mixed = pointer(work), at(pointer(work), width)
                        for lane in range(width):
                            put(digit, lane, float((get(floors, lane) >> (level - 1)) & 1))
                        chosen = mixed_taps(pointer(taps), digit, mixed, count)
                    refine(chosen, before, out, at(out, count * width), count)
                ready[number] = True
            put(source_of, level, number * entry_size)
            before = out

        used, total = 0, splat(0.0)
        for run in range(number_of_runs if needed else 0):
            level, c = get(level_of, run), get(cursors, run)
            amplitude = splat(amplitudes[level])
            lowest, highest = least >> level, most >> level
            source = at(pointer(values), get(source_of, level) + (count * width if get(kinds, run) == PSI else 0))
            while c < get(stops, run) and get(shifts, c) <= highest:
                out = at(pointer(found), used * width)
                if lowest == highest:
                    value = amplitude * load(source, (lowest - get(shifts, c)) * width)
                    store(out, 0, value)
                else:
                    store(out, 0, splat(0.0))
                    for lane in range(width):
                        row = (get(floors, lane) >> level) - get(shifts, c)
                        if 0 <= row < count:
                            put(out, lane, amplitudes[level] * get(source, row * width + lane))
                    value = load(out, 0)
                total = fma(value, value, total)
                put(column_of, used, get(places, c))
                used += 1
                c += 1

        if i % wide == 0:
            busy = 0
        if used > 0:
            if busy == 0:
                for c in range(dim):
                    store(columns, c * wide, zeros(columns))
            busy += used
            _finish_rows(pointer(found), used, total, unit, scale, column_of, at(columns, i % wide), wide)
        if (i + width) % wide == 0 or i + width >= total_rows:
            begin = i // wide * wide
            if busy > 0:
                columns_to_rows(columns, pointer(block), wide, dim, pointer(tile))
            else:
                for c in range(dim):
                    store(pointer(block), c * wide, zeros(columns))
            target = at(pointer(first), begin * row_step)
            move_rows(pointer(block), min(wide, total_rows - begin), dim, target, row_step, step, large)
    finish(large)


@inner
def _finish_rows(found, used, total, unit, scale, column_of, out, out_step):  # type: ignore[no-untyped-def]
    """Divide every row, which is one lane of the columns found, by its norm where asked to; multiply it by scale.

    `total` is the sum of the squares.
    """
    width = lanes(found)
    factor, raised = splat(scale), splat(1.0)
    if unit:
        if any_negative(total - splat(_LOST)):
            peak = splat(0.0)
            for n in range(used):
                peak = maximum(absolute(load(found, n * width)), peak)
            raised, total = where_negative(peak - splat(_TINY), splat(_RAISED), raised), splat(0.0)
            for n in range(used):
                value = raised * load(found, n * width)
                total = fma(value, value, total)
        factor = where_negative(minus(total), factor / sqrt(total), splat(0.0))
    for n in range(used):
        value = factor * (raised * load(found, n * width))
        store_rounded(out, get(column_of, n) * out_step, value, width)
