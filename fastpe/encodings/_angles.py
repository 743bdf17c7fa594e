"""Angles of rotations, position times frequency, without losing the phase at large positions.

Frequencies become turns for a step of one position, as unevaluated sums of two float64; `fastpe.kernels.trig` takes
whole turns away exactly. Angles are float64 in [-pi, pi].
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.encoding import Spec
from fastpe.encodings._rows import points_of, row_blocks
from fastpe.kernels._jit import entry, inlined, inner
from fastpe.kernels.simd import (
    aligned_zeros,
    at,
    before_boundary,
    lanes,
    load,
    pointer,
    splat,
    store,
    store_first,
    store_past_caches,
    whole_vectors,
)
from fastpe.kernels.table import LARGE, finish, move_rows
from fastpe.kernels.trig import PI, on_grid, part_of_turn, plus_part, radians_of, radians_of_sum

Frequencies = tuple[Decimal, ...]
Array = np.ndarray[Any, Any]


@contextmanager
def precise() -> Iterator[None]:
    """Decimal arithmetic on 60 digits, and exponents that no float64 exhausts."""
    with localcontext() as context:
        context.prec = 60
        context.Emin, context.Emax = -999999, 999999
        yield


def exact_angles(points: Array, theta: list[Decimal]) -> Array:
    """For references: points (..., N) times frequencies, (..., N, pairs) in [-pi, pi], in Decimal and rounded once."""
    found = np.empty((points.size, len(theta)))
    with precise():
        tau = 2 * PI
        for i, p in enumerate(points.ravel().tolist()):
            for t, each in enumerate(theta):
                angle = Decimal(p) * each
                found[i, t] = float(angle - (angle / tau).to_integral_value() * tau)
    limited: Array = np.clip(found, -math.pi, math.pi).reshape(*points.shape, len(theta))
    return limited


@lru_cache(maxsize=64)
def turns(theta: Frequencies) -> Array:
    """Frequencies in turns, (1, 1, 2, .) float64: rounded, and what rounding lost; filled up to whole vectors."""
    table = np.zeros((1, 1, 2, whole_vectors(len(theta), np.float64)))
    with precise():
        for t, each in enumerate(theta):
            exact = each / (2 * PI)
            table[0, 0, :, t] = float(exact), float(exact - Decimal(float(exact)))
    table.flags.writeable = False
    return table


def turns_of(theta: Array) -> Array:
    """As `turns`, of float64 frequencies (H, axes, pairs): (H, axes, 2, .)."""
    high, low = (turns((Decimal(1),))[0, 0, row, 0] for row in (0, 1))
    table = aligned_zeros((*theta.shape[:2], 2, whole_vectors(theta.shape[2], np.float64)), np.float64)
    product = theta * high
    x, y = _halves(theta), _halves(high)
    lost = ((x[0] * y[0] - product) + x[0] * y[1] + x[1] * y[0]) + x[1] * y[1]
    table[:, :, 0, : theta.shape[2]] = product
    table[:, :, 1, : theta.shape[2]] = lost + theta * low
    table.flags.writeable = False
    return table


def _halves(x: Any) -> tuple[Any, Any]:
    """x as a sum of two numbers of 26 bits (Veltkamp's splitting), whose products are exact."""
    shifted = 134217729.0 * x
    large = shifted - (shifted - x)
    return large, x - large


def fill_line(spec: Spec, theta: Frequencies, angles: Array) -> None:
    """Angles (..., 1, N, pairs) of positions on a line."""
    frequencies = turns(theta)
    if spec.positions is None:
        _fill_table(lambda rows: points_of(spec, rows)[:, None], frequencies[0], angles[0])
    else:
        fill_angles(spec.points()[..., None], frequencies, angles)


def fill_angles(points: Array, frequencies: Array, angles: Array) -> None:
    """angles (..., G, N, pairs): points (..., N, axes) times frequencies (G, axes, 2, .) in turns, added over axes."""
    for index in np.ndindex(angles.shape[:-2]):
        own = np.ascontiguousarray(points[index[:-1]])
        _fill_table(own.__getitem__, frequencies[index[-1]], angles[index])


def _fill_table(points: Callable[[slice], Array], frequencies: Array, table: Array) -> None:
    steps = aligned_zeros((frequencies.shape[2], _RUN, 2), np.float64)
    for rows, first, row_step, step in row_blocks(table):
        large = table.nbytes >= LARGE
        _fill(points(rows), frequencies, steps, table.shape[1], first, row_step, step, large)


_RUN = 32  # rows of a block


@entry(label="rotation angles")
def _fill(
    points: np.ndarray, frequencies: np.ndarray, steps: np.ndarray, pairs: int, first: np.ndarray, row_step: int,
    step: int, large: bool,
) -> None:  # fmt: skip
    rows, table, block = points.shape[0], pointer(first), np.empty(_RUN * pairs, np.float64)
    whole = step == 1 and row_step == pairs and pairs % lanes(table) == 0 and before_boundary(table) == 0
    direct = whole or (step == 1 and not large)
    known = points.shape[1] == 1 and rows >= 2 * _RUN
    if known:
        _all_steps(frequencies, steps)
    for i in range(0, rows, _RUN):
        count = min(_RUN, rows - i)
        out, apart = (at(table, i * row_step), row_step) if direct else (pointer(block), pairs)
        if known and count == _RUN and _whole_and_in_steps_of_one(points, i):
            _run(points[i, 0], frequencies, steps, pairs, out, apart, large and whole)
        else:
            for k in range(count):
                for t in range(0, pairs, lanes(out)):
                    high, low = _turn(points[i + k], frequencies, t)
                    store_first(out, k * apart + t, radians_of(high, low), pairs - t)
        if not direct:
            move_rows(out, count, pairs, at(table, i * row_step), row_step, step, large)
    finish(large)


@inlined
def _turn(point, frequencies, t):  # type: ignore[no-untyped-def]
    """How far one token turns by the frequencies from t on, less whole turns: a sum of two."""
    high, apart = at(pointer(frequencies), t), frequencies.shape[2]
    first, second = part_of_turn(splat(point[0]), load(high, 0), load(high, apart))
    for axis in range(1, frequencies.shape[0]):
        here = 2 * axis * apart
        part, rest = part_of_turn(splat(point[axis]), load(high, here), load(high, here + apart))
        first, second = plus_part(first, second, part, rest)
    return first, second


# Of positions that are whole numbers one apart, the first of a run is computed as any other, and the next ones are so
# many steps away, whose turns are known: half of the operations.


@inner
def _whole_and_in_steps_of_one(points, i):  # type: ignore[no-untyped-def]
    found = points[i, 0] == np.floor(points[i, 0])
    for k in range(1, _RUN):
        found &= points[i + k, 0] - points[i, 0] == k
    return found


@inner
def _all_steps(frequencies, steps):  # type: ignore[no-untyped-def]
    """steps[vector, k] = the turns of k steps, on the grid of `on_grid`, and the rest."""
    width = lanes(pointer(steps))
    for t in range(0, frequencies.shape[2], width):
        out, high = at(pointer(steps), 2 * t * _RUN), at(pointer(frequencies), t)
        for k in range(_RUN):
            part, rest = part_of_turn(splat(float(k)), load(high, 0), load(high, frequencies.shape[2]))
            part, rest = on_grid(part, rest)
            store(out, 2 * k * width, part)
            store(out, (2 * k + 1) * width, rest)


@inner
def _run(position, frequencies, steps, pairs, out, apart, past_caches):  # type: ignore[no-untyped-def]
    """The angles of a run of positions from the first one; past the caches, if rows are whole lines of memory."""
    width = lanes(out)
    for t in range(0, pairs, width):
        high, step = at(pointer(frequencies), t), at(pointer(steps), 2 * t * _RUN)
        first, second = part_of_turn(splat(position), load(high, 0), load(high, frequencies.shape[2]))
        first, second = on_grid(first, second)
        for k in range(_RUN):
            part, rest = load(step, 2 * k * width), load(step, (2 * k + 1) * width)
            angles = radians_of_sum(first, second, part, rest)
            if past_caches:
                store_past_caches(out, k * apart + t, angles)
            else:
                store_first(out, k * apart + t, angles, pairs - t)
