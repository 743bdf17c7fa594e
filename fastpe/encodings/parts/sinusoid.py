"""Code shared by encodings with tables of sines and cosines.

A row is `sin(p w_t), cos(p w_t)` for frequencies w_t, in pairs ("interleaved") or all sines before all cosines
("concatenated"). An odd width drops the last cosine.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from fastpe.encodings.parts.row_blocks import row_blocks
from fastpe.kernels.compile.decorators import entry, inlined, inner
from fastpe.kernels.fills.table import LARGE, finish, move_edges, move_line, move_rows
from fastpe.kernels.fills.trig import PI, sincos
from fastpe.kernels.simd import (
    absolute,
    aligned_zeros,
    any_negative,
    at,
    before_boundary,
    fma,
    interleaved,
    lanes,
    load,
    maximum,
    minimum,
    minus,
    pointer,
    scalar,
    splat,
    store,
    store_first,
    store_interleaved,
    store_rounded,
    whole_vectors,
)

Array = np.ndarray[Any, Any]
LAYOUTS = ("interleaved", "concatenated")


def exact(points: Array, omega: Sequence[Decimal]) -> tuple[Array, Array]:
    """Sines and cosines of every point times every frequency, (..., frequencies) float64 each.

    For references. Angles are computed with 60 decimal digits and reduced to a quarter turn; NumPy computes their sine
    and cosine.
    """
    angles = np.empty((points.size, len(omega)))
    quarters = np.empty(angles.shape, dtype=np.int64)
    with localcontext() as context:
        context.prec = 60
        context.Emin, context.Emax = -999999, 999999
        for i, p in enumerate(points.ravel().tolist()):
            for t, frequency in enumerate(omega):
                angle = Decimal(p) * frequency
                turns = (angle / (PI / 2)).to_integral_value()
                angles[i, t] = float(angle - turns * (PI / 2))
                quarters[i, t] = int(turns) % 4
    sine, cosine = np.sin(angles), np.cos(angles)
    shape = (*points.shape, len(omega))
    return (
        np.choose(quarters, [sine, cosine, -sine, -cosine]).reshape(shape),
        np.choose(quarters, [cosine, -sine, -cosine, sine]).reshape(shape),
    )


def geometric(base: float, count: int, divisor: float) -> list[Decimal]:
    """For references: base**(-t/divisor) for t = 0 .. count-1, with 60 decimal digits."""
    with localcontext() as context:
        context.prec = 60
        context.Emin, context.Emax = -999999, 999999
        return [1 / Decimal(base) ** (Decimal(t) / Decimal(divisor)) for t in range(count)]


def fill_sinusoid(
    table: Array, points: Callable[[slice], Array], omega: Array, *, layout: str = "interleaved", scale: float = 1.0
) -> None:
    """Fill a table (..., width) of any strides and dtype.

    `points(rows)` returns the positions of some rows, numbered as in `row_blocks`. `omega` is (2, ceil(width / 2)), as
    returned by `frequencies.frequencies`.
    """
    dim = table.shape[-1]
    cosines = 0 if layout == "interleaved" else (dim + 1) // 2
    width, wide = whole_vectors(1, np.float64), whole_vectors(1, table.dtype)
    # a float64 table does not use rotations: their error would be visible
    turns = aligned_zeros((omega.shape[1] // width, _RUN, 2 * width), np.float64) if wide > width else None
    blocks, fresh = aligned_zeros((2, _RUN, dim), table.dtype), True
    for rows, first, row_step, step in row_blocks(table):
        places, large = points(rows), table.nbytes >= LARGE
        _fill(places, omega, cosines, turns, fresh, blocks, scale, first, row_step, step, large)
        fresh = fresh and len(places) < 2 * _RUN


_RUN = 32  # rows of a block
_CANCELLED = 2.0**-20  # entries below this share of their terms are recomputed: the relative error stays below 2**-31


@entry(label="sinusoidal table")
def _fill(
    points: Array, omega: Array, cosines: int, turns: Array | None, fresh: bool, blocks: Array, scale: float,
    first: Array, row_step: int, step: int, large: bool,
) -> None:  # fmt: skip
    rows, dim, table, width = points.shape[0], blocks.shape[2], pointer(first), lanes(pointer(omega))
    if turns is not None:  # noqa: SIM102 - a condition of its own: for float64, Numba does not compile its body
        if fresh and rows >= 2 * _RUN:
            _all_turns(omega, turns)
    aside = large and step == 1 and row_step == dim
    # values that take long to compute are written to the table directly if its rows are whole cache lines
    direct = aside and dim % lanes(table) == 0 and before_boundary(table) == 0
    waiting = False  # whether the other block must still be copied while the next one is computed
    for i in range(0, rows, _RUN):
        count = min(_RUN, rows - i)
        target, before = at(table, i * row_step), at(table, (i - _RUN) * row_step)
        block, last = pointer(blocks[i // _RUN % 2]), pointer(blocks[(i // _RUN + 1) % 2])
        run = False
        if turns is not None:
            run = rows >= 2 * _RUN and count == _RUN and _in_steps_of_one(points, i)
            if waiting and not run:
                move_rows(last, _RUN, dim, before, row_step, step, large)
            if run:
                _rotate(points[i], omega, cosines, turns, scale, block, dim, _RUN * dim if waiting else 0, last, before)
        out = target if direct and not run else block
        for k in range(0 if run else count):
            for t in range(0, omega.shape[1], width):
                _exact(points[i + k], omega, t, scale, at(out, k * dim), dim, cosines)
        waiting = run and aside and i + _RUN < rows
        if not waiting and (run or not direct):
            move_rows(block, count, dim, target, row_step, step, large)
    finish(large)


@inner
def _in_steps_of_one(points, i):  # type: ignore[no-untyped-def]
    # this test is exact, because at least one of the three results is not rounded
    found = True
    for k in range(1, _RUN):
        first, later = points[i], points[i + k]
        found &= later - first == k and later - k == first and first + k == later
    return found


@inlined
def _pairs(position, omega, t):  # type: ignore[no-untyped-def]
    """Sines and cosines of one position for the frequencies from t on."""
    high = at(pointer(omega), t)
    return sincos(splat(position), load(high, 0), load(high, omega.shape[1]))


@inlined
def _store(row, t, sine, cosine, dim, cosines):  # type: ignore[no-untyped-def]
    """Store sines and cosines of the frequencies from t on: as pairs, or with the cosines from channel `cosines` on."""
    if cosines == 0:
        store_interleaved(row, 2 * t, sine, cosine, dim - 2 * t)
    else:
        store_rounded(row, t, sine, cosines - t)
        store_rounded(row, cosines + t, cosine, dim - cosines - t)


@inlined
def _exact(position, omega, t, scale, row, dim, cosines):  # type: ignore[no-untyped-def]
    """Write the channels of one vector of frequencies to a row; every sine and cosine is computed directly."""
    sine, cosine = _pairs(position, omega, t)
    _store(row, t, splat(scale) * sine, splat(scale) * cosine, dim, cosines)


# In a float32 table of consecutive positions, one sine and cosine per frequency are computed for each block of rows.
# The other rows are the first one rotated by w, 2w, ...: four products for two values instead of 60 operations. Their
# error is 2**-51 of the larger term, which is invisible in float32 unless the terms cancel.


@inner
def _all_turns(omega, turns):  # type: ignore[no-untyped-def]
    """turns[vector, k] = cos kw, sin kw. Row 0 would be the identity; it holds the largest |sin kw| instead."""
    width = turns.shape[2] // 2
    for vector in range(turns.shape[0]):
        out = pointer(turns[vector])
        largest = splat(0.0)
        for k in range(1, _RUN):
            sine, cosine = _pairs(float(k), omega, vector * width)
            store(out, 2 * k * width, cosine)
            store(out, (2 * k + 1) * width, sine)
            largest = maximum(largest, absolute(sine))
        store(out, 0, largest)


@inner
def _rotate(position, omega, cosines, turns, scale, block, dim, moved, last, table):  # type: ignore[no-untyped-def]
    """Compute a block of rows: for each vector of frequencies the first row, then all other rows from the first one.

    Meanwhile the previous block, of `moved` elements, is copied to the table.
    """
    width, line, head = turns.shape[2] // 2, 0, 0
    if moved > 0:
        head = move_edges(last, table, moved)
    for t in range(0, omega.shape[1], width):
        s, c = _pairs(position, omega, t)
        s, c = splat(scale) * s, splat(scale) * c
        minus_s = minus(s)
        _store(block, t, s, c, dim, cosines)
        move_line(last, table, head, line, moved)
        line += 1
        turn = pointer(turns[t // width])
        largest = load(turn, 0)
        least = interleaved(block, fma(absolute(c), largest, absolute(s)), fma(absolute(s), largest, absolute(c)))
        enough = least * splat(scalar(block, _CANCELLED))
        for k in range(1, _RUN):
            cosine, sine = load(turn, 2 * k * width), load(turn, (2 * k + 1) * width)
            turned_s, turned_c = fma(c, sine, s * cosine), fma(minus_s, sine, c * cosine)
            row = interleaved(block, turned_s, turned_c)
            least = minimum(absolute(row), least)
            if cosines == 0:
                store_first(block, k * dim + 2 * t, row, dim - 2 * t)
            else:
                _store(at(block, k * dim), t, turned_s, turned_c, dim, cosines)
            move_line(last, table, head, line, moved)
            line += 1
        if any_negative(least - enough):
            for k in range(1, _RUN):
                _exact(position + k, omega, t, scale, at(block, k * dim), dim, cosines)
