"""The compiled functions of `fastpe.encodings.input.wavelet`: rows of a wavelet table; each lane is a position.

A row has few nonzero entries: for each scale j the shifts k for which p / 2^j - k lies in [0, L-1). Their values depend
only on the last j binary digits of p, so in consecutive rows the values of the finer scales repeat; up to some level
they are cached. Each coarser level takes one refinement, which is 2 L^2 operations for a vector of positions, and each
function that reaches a row takes about ten more. The caller provides all scratch arrays, which makes these functions
fast to compile.
"""

import math

import numpy as np

from fastpe.encodings.parts.daubechies import at_fractions, mixed_taps, refine
from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.fills.table import columns_to_table, finish, move_rows
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
    part,
    pointer,
    put,
    splat,
    sqrt,
    store,
    store_rounded,
    where_negative,
    zeros,
)

ZERO, PHI, PSI = 0, 1, 2
_LOST = 2.0**-600  # a sum of squares below this may have lost terms to underflow
_TINY, _RAISED = 2.0**-400, 2.0**600  # rows whose largest entry is tiny are scaled up before they are squared


# Long: a single pass over the rows keeps the cursors of all levels in local variables.
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
    # Lanes are positions. An entry of `values` is phi and psi of one level for one group of positions. The first
    # entries, one for each level, belong to the current group; the others are cached.
    levels, count, dim, width = amplitudes.shape[0], integers.shape[0], block.shape[1], lanes(pointer(points))
    wide, total_rows, number_of_runs = lanes(pointer(first)), points.shape[0], runs.shape[1]
    floors, source_of = part(pointer(indices), 0, width), part(pointer(indices), width, levels)
    cursors = part(pointer(indices), width + levels, number_of_runs)
    column_of = part(pointer(indices), width + levels + number_of_runs, dim)
    group, columns, busy = part(pointer(found), dim * width, width), pointer(rounded), 0
    for i in range(0, total_rows, width):
        least, most, in_order = _next_positions(points, i, phase, group, floors)
        needed = _levels_in_reach(pointer(runs), number_of_runs, pointer(shift), cursors, least, most, count)
        _fill_levels(
            group, floors, least, most, in_order, needed, levels, kept, pointer(taps), taps.size // 2,
            pointer(integers), count, pointer(values), ready, source_of, pointer(work),
        )  # fmt: skip
        used, total = _functions_in_reach(
            pointer(runs), number_of_runs if needed else 0, number_of_runs, pointer(shift), pointer(place), cursors,
            floors, least, most, count, amplitudes, pointer(values), source_of, pointer(found), column_of,
        )  # fmt: skip
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
            rows, target = min(wide, total_rows - begin), at(pointer(first), begin * row_step)
            if busy > 0:
                columns_to_table(
                    columns, wide, rows, dim, pointer(block), pointer(tile), target, row_step, step, large
                )  # fmt: skip
            else:
                for c in range(dim):
                    store(pointer(block), c * wide, zeros(columns))
                move_rows(pointer(block), rows, dim, target, row_step, step, large)
    finish(large)


@inner
def _next_positions(points, i, phase, group, floors):  # type: ignore[no-untyped-def]
    """Write the points from `i` on, and their integer parts, to the lanes of a group.

    Returns the smallest and largest integer part, and whether the points are consecutive integers aligned with cached
    values.
    """
    width, in_order = lanes(group), True
    for lane in range(width):
        put(group, lane, points[i + lane] if i + lane < points.shape[0] else get(group, lane - 1) + 1.0)
        put(floors, lane, math.floor(get(group, lane)))
        in_order &= get(group, lane) - get(group, 0) == lane
    in_order &= get(group, 0) == get(floors, 0) and (get(floors, 0) - phase) % width == 0
    least, most = get(floors, 0), get(floors, 0)
    for lane in range(1, width):
        least, most = min(least, get(floors, lane)), max(most, get(floors, lane))
    return least, most, in_order


@inner
def _levels_in_reach(runs, number_of_runs, shifts, cursors, least, most, count):  # type: ignore[no-untyped-def]
    """Move each run's cursor to its first function that may reach these positions; return the number of levels
    needed."""
    level_of, starts, stops = at(runs, number_of_runs), at(runs, 2 * number_of_runs), at(runs, 3 * number_of_runs)
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
    return needed


@inner
def _fill_levels(  # type: ignore[no-untyped-def]
    group, floors, least, most, in_order, needed, levels, kept, taps, taps_size, integers, count, values, ready,
    source_of, work,
):  # fmt: skip
    """Compute phi and psi on each level if they are not cached, and record where they are.

    Each level follows from the next finer one by one more binary digit of the integer part.
    """
    width = lanes(group)
    entry_size, before, start = 2 * count * width, values, levels
    for level in range(needed):
        number = level
        if level < kept:
            if in_order:
                number = start + (get(floors, 0) & ((1 << level) - 1)) // width
            start += max(1, (1 << level) // width)
        out = at(values, number * entry_size)
        if number < levels or not ready[number]:
            if level == 0:
                at_fractions(group, taps, integers, count, out, at(out, count * width), work)
            else:
                chosen = at(taps, ((least >> (level - 1)) & 1) * taps_size)
                if least >> (level - 1) != most >> (level - 1):
                    digit, mixed = work, at(work, width)
                    for lane in range(width):
                        put(digit, lane, float((get(floors, lane) >> (level - 1)) & 1))
                    chosen = mixed_taps(taps, digit, mixed, count)
                refine(chosen, before, out, at(out, count * width), count)
            ready[number] = True
        put(source_of, level, number * entry_size)
        before = out


@inner
def _functions_in_reach(  # type: ignore[no-untyped-def]
    kinds, runs_used, number_of_runs, shifts, places, cursors, floors, least, most, count, amplitudes, values,
    source_of, found, column_of,
):  # fmt: skip
    """Write the functions that reach these positions to `found`, and the indices of their columns to `column_of`.

    Returns their number, and the sum of their squares for each position.
    """
    width, level_of, stops = lanes(found), at(kinds, number_of_runs), at(kinds, 3 * number_of_runs)
    used, total = 0, splat(0.0)
    for run in range(runs_used):
        level, c = get(level_of, run), get(cursors, run)
        amplitude = splat(amplitudes[level])
        lowest, highest = least >> level, most >> level
        source = at(values, get(source_of, level) + (count * width if get(kinds, run) == PSI else 0))
        while c < get(stops, run) and get(shifts, c) <= highest:
            out = at(found, used * width)
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
    return used, total


@inner
def _finish_rows(found, used, total, unit, scale, column_of, out, out_step):  # type: ignore[no-untyped-def]
    """Divide every row, which is one lane of the columns in `found`, by its norm if `unit`, and multiply it by `scale`.

    `total` is the sum of squares of each row.
    """
    width = lanes(found)
    factor, raised = splat(1.0), splat(1.0)
    if unit:
        if any_negative(total - splat(_LOST)):
            peak = splat(0.0)
            for n in range(used):
                peak = maximum(absolute(load(found, n * width)), peak)
            raised, total = where_negative(peak - splat(_TINY), splat(_RAISED), raised), splat(0.0)
            for n in range(used):
                value = raised * load(found, n * width)
                total = fma(value, value, total)
        factor = where_negative(minus(total), splat(1.0) / sqrt(total), splat(0.0))
    for n in range(used):  # `scale` is applied last: divided by a small norm it might overflow
        value = splat(scale) * (factor * (raised * load(found, n * width)))
        store_rounded(out, get(column_of, n) * out_step, value, width)
