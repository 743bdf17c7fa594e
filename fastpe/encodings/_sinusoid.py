"""Tables of sines and cosines: what every encoding made of them shares.

A row is `sin(p w_t), cos(p w_t)` for frequencies w_t, the pairs side by side ("interleaved") or all sines before all
cosines ("concatenated"). An odd width drops the last cosine.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from fastpe.encodings._rows import row_blocks
from fastpe.kernels._jit import entry, inlined, inner
from fastpe.kernels.simd import (
    FUSED,
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
    store_interleaved_past_caches,
    store_past_caches,
    store_rounded,
    whole_vectors,
)
from fastpe.kernels.table import LARGE, finish, move_edges, move_line, move_rows
from fastpe.kernels.trig import PI, sincos, sincos_twice, times

Array = np.ndarray[Any, Any]
LAYOUTS = ("interleaved", "concatenated")


def exact(points: Array, omega: Sequence[Decimal]) -> tuple[Array, Array]:
    """Sines and cosines of every point times every frequency, (..., frequencies) float64 each.

    Angles in 60 decimal digits, then NumPy's sine and cosine of what is left in a quarter turn: for references.
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
    """base**(-t/divisor), t = 0 .. count-1, in 60 decimal digits: for references."""
    with localcontext() as context:
        context.prec = 60
        context.Emin, context.Emax = -999999, 999999
        return [1 / Decimal(base) ** (Decimal(t) / Decimal(divisor)) for t in range(count)]


def fill_sinusoid(
    table: Array, points: Callable[[slice], Array], omega: Array, *, layout: str = "interleaved", scale: float = 1.0
) -> None:
    """Fill a table (..., width) of any strides and dtype.

    `points(rows)` are the positions of some rows, numbered as in `row_blocks`; `omega` is (2, ceil(width / 2)) as from
    `_trig.frequencies`.
    """
    dim = table.shape[-1]
    cosines = 0 if layout == "interleaved" else (dim + 1) // 2
    width, wide = whole_vectors(1, np.float64), whole_vectors(1, table.dtype)
    vectors, turns, fine_turns = omega.shape[1] // width, None, None
    if wide > width:
        turns = aligned_zeros((vectors, _RUN, 2 * width), np.float64)
    elif FUSED:  # what such a rotation loses is not known otherwise
        fine_turns = aligned_zeros((vectors, _RUN, 4 * width), np.float64)
    blocks, fresh = aligned_zeros((2, _RUN, dim), table.dtype), True
    for rows, first, row_step, step in row_blocks(table):
        places, large = points(rows), table.nbytes >= LARGE
        _fill(places, omega, cosines, turns, fine_turns, fresh, blocks, scale, first, row_step, step, large)
        fresh = fresh and len(places) < 2 * _RUN


_RUN = 32  # rows of a block
_CANCELLED = 2.0**-20  # below so much of its terms a rotated value is computed anew: 2**-31 of its own size is kept
_CANCELLED_FINELY = 2.0**-16  # the same in float64, where 2**-58 is kept


@entry(label="sinusoidal table")
def _fill(
    points: Array, omega: Array, cosines: int, turns: Array | None, fine_turns: Array | None, fresh: bool,
    blocks: Array, scale: float, first: Array, row_step: int, step: int, large: bool,
) -> None:  # fmt: skip
    # `is not None` stands alone in each condition: what it guards is not compiled for the other dtype
    rows, dim, table, width = points.shape[0], blocks.shape[2], pointer(first), lanes(pointer(omega))
    runs, fine = False, False
    if turns is not None:
        runs = rows >= 2 * _RUN
        if fresh and runs:
            _all_turns(omega, turns)
    if fine_turns is not None:
        runs, fine = rows >= 2 * _RUN, True
        if fresh and runs:
            _all_fine_turns(omega, fine_turns)
    aside = large and step == 1 and row_step == dim
    # what takes long to compute is written where it belongs, if all lines of memory are whole ones
    direct = aside and dim % lanes(table) == 0 and before_boundary(table) == 0
    waiting = False  # whether the other block is still to be moved, as the next one is computed
    for i in range(0, rows, _RUN):
        count = min(_RUN, rows - i)
        target, before = at(table, i * row_step), at(table, (i - _RUN) * row_step)
        block, last = pointer(blocks[i // _RUN % 2]), pointer(blocks[(i // _RUN + 1) % 2])
        run = runs and count == _RUN and _in_steps_of_one(points, i)
        if waiting and not run:
            move_rows(last, _RUN, dim, before, row_step, step, large)
        moved = _RUN * dim if waiting else 0
        if turns is not None:  # noqa: SIM102
            if run:
                _rotate(points[i], omega, cosines, turns, scale, block, dim, moved, last, before)
        straight = direct and (not run or (fine and dim % (2 * width) == 0))
        out = target if straight else block
        if fine_turns is not None:  # noqa: SIM102
            if run:
                _rotate_finely(points[i], omega, cosines, fine_turns, scale, out, dim, straight)
        for k in range(0 if run else count):
            for t in range(0, omega.shape[1], width):
                _exact(points[i + k], omega, t, scale, at(out, k * dim), dim, cosines)
        waiting = run and aside and not fine and i + _RUN < rows
        if not (waiting or straight):
            move_rows(block, count, dim, target, row_step, step, large)
    finish(large)


@inner
def _in_steps_of_one(points, i):  # type: ignore[no-untyped-def]
    found = True
    for k in range(1, _RUN):
        found &= points[i + k] - points[i] == k
    return found


@inlined
def _pairs(position, omega, t):  # type: ignore[no-untyped-def]
    """Sines and cosines of one position and the frequencies from t on."""
    high = at(pointer(omega), t)
    return sincos(splat(position), load(high, 0), load(high, omega.shape[1]))


@inlined
def _store(row, t, sine, cosine, dim, cosines):  # type: ignore[no-untyped-def]
    """Sines and cosines of the frequencies from t on: pairs, or the cosines from channel `cosines` on."""
    if cosines == 0:
        store_interleaved(row, 2 * t, sine, cosine, dim - 2 * t)
    else:
        store_rounded(row, t, sine, cosines - t)
        store_rounded(row, cosines + t, cosine, dim - cosines - t)


@inlined
def _exact(position, omega, t, scale, row, dim, cosines):  # type: ignore[no-untyped-def]
    """The channels of a vector of frequencies in one row."""
    sine, cosine = _pairs(position, omega, t)
    _store(row, t, splat(scale) * sine, splat(scale) * cosine, dim, cosines)


# A float32 table of positions one apart takes one sine and cosine of every frequency for each run of rows. The others
# are the first row rotated by w, 2w, ...: four products for two values instead of 60 operations. They are off by 2**-51
# of their larger term, which float32 does not see unless the terms cancel.


@inner
def _all_turns(omega, turns):  # type: ignore[no-untyped-def]
    """turns[vector, k] = cos kw, sin kw. Row 0, which turns nothing, holds the largest |sin kw| instead."""
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
    """A block of rows: for each vector of frequencies the first row, then all others from it.

    The last block, of `moved` elements, goes to its place in the table meanwhile.
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


# A float64 table is rotated in the same way, with sines and cosines that are sums of two numbers: of the two products
# one is exact, and the other is rounded once with the sum. 16 operations for two values, each off by two roundings.


@inner
def _all_fine_turns(omega, turns):  # type: ignore[no-untyped-def]
    """As `_all_turns`, of four vectors: cos kw and sin kw, each followed by what its rounding lost."""
    width = turns.shape[2] // 4
    high = pointer(omega)
    for vector in range(turns.shape[0]):
        out, t, largest = pointer(turns[vector]), vector * width, splat(0.0)
        for k in range(1, _RUN):
            s, s_low, c, c_low = sincos_twice(splat(float(k)), load(high, t), load(high, omega.shape[1] + t))
            row = at(out, 4 * k * width)
            store(row, 0, c)
            store(row, width, c_low)
            store(row, 2 * width, s)
            store(row, 3 * width, s_low)
            largest = maximum(largest, absolute(s))
        store(out, 0, largest)


@inner
def _rotate_finely(position, omega, cosines, turns, scale, out, dim, past_caches):  # type: ignore[no-untyped-def]
    """As `_rotate`, to where the rows belong."""
    width, high = turns.shape[2] // 4, pointer(omega)
    for t in range(0, omega.shape[1], width):
        s, s_low, c, c_low = sincos_twice(splat(position), load(high, t), load(high, omega.shape[1] + t))
        s, s_low = times(s, s_low, splat(scale), splat(0.0))
        c, c_low = times(c, c_low, splat(scale), splat(0.0))
        minus_s, minus_s_low = minus(s), minus(s_low)
        _store_all(out, t, s + s_low, c + c_low, dim, cosines, past_caches)
        turn = pointer(turns[t // width])
        largest = load(turn, 0)
        least_s, least_c = fma(absolute(c), largest, absolute(s)), fma(absolute(s), largest, absolute(c))
        enough_s, enough_c = least_s * splat(_CANCELLED_FINELY), least_c * splat(_CANCELLED_FINELY)
        for k in range(1, _RUN):
            row = at(turn, 4 * k * width)
            cosine, cosine_low = load(row, 0), load(row, width)
            sine, sine_low = load(row, 2 * width), load(row, 3 * width)
            turned_s = _rotated(s, s_low, c, c_low, cosine, cosine_low, sine, sine_low)
            turned_c = _rotated(c, c_low, minus_s, minus_s_low, cosine, cosine_low, sine, sine_low)
            least_s, least_c = minimum(absolute(turned_s), least_s), minimum(absolute(turned_c), least_c)
            _store_all(at(out, k * dim), t, turned_s, turned_c, dim, cosines, past_caches)
        if any_negative(minimum(least_s - enough_s, least_c - enough_c)):
            for k in range(1, _RUN):
                _exact(position + k, omega, t, scale, at(out, k * dim), dim, cosines)


@inlined
def _store_all(row, t, sine, cosine, dim, cosines, past_caches):  # type: ignore[no-untyped-def]
    """As `_store`, past the caches where all lines of memory are whole."""
    if not past_caches:
        _store(row, t, sine, cosine, dim, cosines)
    elif cosines == 0:
        store_interleaved_past_caches(row, 2 * t, sine, cosine)
    else:
        store_past_caches(row, t, sine)
        store_past_caches(row, cosines + t, cosine)


@inlined
def _rotated(x, x_low, y, y_low, cosine, cosine_low, sine, sine_low):  # type: ignore[no-untyped-def]
    """x cos + y sin, all of them sums of two, as one number."""
    product = y * sine
    rest = fma(x, cosine_low, fma(y, sine, minus(product)))
    rest = fma(y_low, sine, fma(y, sine_low, fma(x_low, cosine, rest)))
    return fma(x, cosine, product) + rest
