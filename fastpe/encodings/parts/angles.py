"""Angles of rotations, position times frequency, with an exact phase at large positions.

Frequencies are converted to turns per position, as unevaluated sums of two float64; `fastpe.kernels.fills.trig` removes
whole turns exactly. Angles are float64 in [-pi, pi]."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.encodings.parts import learned_map
from fastpe.encodings.parts.frequencies import exact_product
from fastpe.encodings.parts.gather import Term, fill_terms, of_axis
from fastpe.encodings.parts.grids import along_axes
from fastpe.encodings.parts.row_blocks import points_of, row_blocks
from fastpe.encodings.slots import Spec
from fastpe.kernels.compile.decorators import entry, inlined, inner
from fastpe.kernels.fills.table import LARGE, finish, move_rows
from fastpe.kernels.fills.trig import PI, on_grid, part_of_turn, plus_part, radians_of, radians_of_sum
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

Frequencies = tuple[Decimal, ...]
Array = np.ndarray[Any, Any]


@contextmanager
def precise(digits: int = 60) -> Iterator[None]:
    """A context for decimal arithmetic with this many digits, and with exponents beyond the range of float64."""
    with localcontext() as context:
        context.prec = digits
        context.Emin, context.Emax = -999999, 999999
        yield


def exact_angles(points: Array, theta: list[Decimal]) -> Array:
    """For references: points (..., N) times frequencies, (..., N, pairs) in [-pi, pi], computed in Decimal and rounded
    once."""
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
    """The result of `in_turns`, cached; for frequencies that are not learned."""
    return in_turns(theta)


def in_turns(theta: Frequencies) -> Array:
    """Frequencies in turns per position: rounded values and rounding errors, (1, 1, 2, .) float64, padded to whole
    vectors."""
    table = np.zeros((1, 1, 2, whole_vectors(len(theta), np.float64)))
    with precise():
        for t, each in enumerate(theta):
            exact = each / (2 * PI)
            table[0, 0, :, t] = float(exact), float(exact - Decimal(float(exact)))
    table.flags.writeable = False
    return table


def turns_of(theta: Array) -> Array:
    """As `in_turns`, for float64 frequencies (H, axes, pairs) in radians per position: (H, axes, 2, .)."""
    high, low = (turns((Decimal(1),))[0, 0, row, 0] for row in (0, 1))
    table = aligned_zeros((*theta.shape[:2], 2, whole_vectors(theta.shape[2], np.float64)), np.float64)
    product, lost = exact_product(theta, high)
    table[:, :, 0, : theta.shape[2]] = product
    table[:, :, 1, : theta.shape[2]] = lost + theta * low
    table.flags.writeable = False
    return table


def fill_line(spec: Spec, theta: Frequencies, angles: Array) -> None:
    """Fill angles (..., 1, N, pairs) of positions with one coordinate."""
    frequencies = turns(theta)
    if spec.positions is None:
        _fill_table(lambda rows: points_of(spec, rows)[:, None], frequencies[0], angles[0])
    else:
        fill_angles(spec.points()[..., None], frequencies, angles)


def fill_angles(points: Array, frequencies: Array, angles: Array) -> None:
    """angles (..., G, N, pairs) = points (..., N, axes) times frequencies (G, axes, 2, .) in turns, summed over
    axes."""
    for index in np.ndindex(angles.shape[:-2]):
        own = np.ascontiguousarray(points[index[:-1]])
        _fill_table(own.__getitem__, frequencies[index[-1]], angles[index])


def pull_angles(points: Array, dangles: Array) -> Array:
    """The pullback of `fill_angles`: from the gradient of the angles, return the gradient (G, axes, pairs) of the
    frequencies in radians per position."""
    found = np.zeros((dangles.shape[-3], points.shape[-1], dangles.shape[-1]))
    for index in np.ndindex(dangles.shape[:-2]):
        own, change = np.ascontiguousarray(points[index[:-1]]), np.ascontiguousarray(dangles[index])
        learned_map.pull(own, 1.0, change, found[index[-1]])
    return found


def fill_sections(
    spec: Spec, places: Sequence[Array], sections: Sequence[tuple[int, Frequencies]], angles: Array
) -> None:
    """Fill angles (..., 1, N, pairs) for consecutive blocks of pairs, each given by its axis and its frequencies.

    `places` are as returned by `grids.axis_places`. For a raster, the angles are computed once for each side, not for
    each cell.
    """
    numbers, terms, first = along_axes([place.size for place in places]), [], 0
    for axis, theta in sections:
        if not theta:
            continue
        points, block = places[axis][..., None], angles[..., first : first + len(theta)]
        if spec.positions is None:
            points = points.reshape(-1, 1)
            block = np.empty((1, len(points), len(theta)))
            rows, columns = of_axis(axis, numbers)
            terms.append(Term(block[0], rows, first, columns=columns))
        fill_angles(points.astype(np.float64), turns(theta), block)
        first += len(theta)
    if terms:
        fill_terms(angles, terms)


def fill_raster(places: Sequence[Array], frequencies: Array, angles: Array) -> None:
    """Fill angles (G, N, pairs) of a raster of two axes as `fill_angles` does; `places` are as returned by
    `grids.axis_places`."""
    down, across = (place.reshape(-1).astype(np.float64) for place in places)
    for own, table in zip(frequencies, angles, strict=True):
        slow, fast = _on_grid(down, own[0]), _on_grid(across, own[1])
        for rows, first, row_step, step in row_blocks(table):
            count, large = rows.stop - rows.start, table.nbytes >= LARGE
            _fill_sums(slow, fast, rows.start, count, table.shape[1], first, row_step, step, large)


def _on_grid(points: Array, frequencies: Array) -> Array:
    """The turns (n, 2, .) of positions (n,) for frequencies (2, .), each as a sum of two numbers as returned by
    `trig.on_grid`."""
    table = aligned_zeros((len(points), *frequencies.shape), np.float64)
    _turns(points, np.ascontiguousarray(frequencies), table)
    return table


def _fill_table(points: Callable[[slice], Array], frequencies: Array, table: Array) -> None:
    known = len(frequencies) == 1 and len(table) >= 2 * _RUN
    steps = _on_grid(np.arange(float(_RUN if known else 0)), frequencies[0])
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
    whole, direct = _straight(table, pairs, row_step, step, large)
    for i in range(0, rows, _RUN):
        count = min(_RUN, rows - i)
        out, apart = (at(table, i * row_step), row_step) if direct else (pointer(block), pairs)
        if steps.shape[0] and count == _RUN and _whole_and_in_steps_of_one(points, i):
            # For consecutive integers only the first position is computed in full. The turns of the others are this
            # result plus precomputed steps, which takes half of the operations.
            for t in range(0, pairs, lanes(out)):
                high, low = _turn(points[i], frequencies, t)
                high, low = on_grid(high, low)
                _store_sums(high, low, pointer(steps), frequencies.shape[2], t, count, pairs, out, apart, whole)
        else:
            for k in range(count):
                for t in range(0, pairs, lanes(out)):
                    high, low = _turn(points[i + k], frequencies, t)
                    store_first(out, k * apart + t, radians_of(high, low), pairs - t)
        if not direct:
            move_rows(out, count, pairs, at(table, i * row_step), row_step, step, large)
    finish(large)


@entry(label="rotation angles of a raster")
def _fill_sums(
    slow: np.ndarray, fast: np.ndarray, number: int, count: int, pairs: int, first: np.ndarray, row_step: int,
    step: int, large: bool,
) -> None:  # fmt: skip
    table, block, across, padded = pointer(first), np.empty(_RUN * pairs, np.float64), fast.shape[0], fast.shape[2]
    whole, direct = _straight(table, pairs, row_step, step, large)
    for i in range(0, count, _RUN):
        some, k = min(_RUN, count - i), 0
        out, apart = (at(table, i * row_step), row_step) if direct else (pointer(block), pairs)
        while k < some:
            a, b = (number + i + k) // across, (number + i + k) % across
            run, own = min(some - k, across - b), pointer(slow[a])
            others = at(pointer(fast), 2 * b * padded)
            for t in range(0, pairs, lanes(out)):
                high, low, here = load(own, t), load(own, padded + t), at(out, k * apart)
                _store_sums(high, low, others, padded, t, run, pairs, here, apart, whole)
            k += run
        if not direct:
            move_rows(out, some, pairs, at(table, i * row_step), row_step, step, large)
    finish(large)


@inlined
def _straight(table, pairs, row_step, step, large):  # type: ignore[no-untyped-def]
    """Whether rows may bypass the caches, because they are whole cache lines; and whether no intermediate block is
    needed."""
    whole = step == 1 and row_step == pairs and pairs % lanes(table) == 0 and before_boundary(table) == 0
    return whole and large, step == 1 and (whole or not large)


@inlined
def _store_sums(high, low, others, padded, t, count, pairs, out, apart, past_caches):  # type: ignore[no-untyped-def]
    """Store the angles of one vector of frequencies, from t on, in `count` rows. Row k has the turns `high` + `low`
    plus the two numbers `others[k]`; `others` is (count, 2, padded)."""
    for k in range(count):
        part, rest = load(others, 2 * k * padded + t), load(others, (2 * k + 1) * padded + t)
        angles = radians_of_sum(high, low, part, rest)
        if past_caches:
            store_past_caches(out, k * apart + t, angles)
        else:
            store_first(out, k * apart + t, angles, pairs - t)


@inlined
def _turn(point, frequencies, t):  # type: ignore[no-untyped-def]
    """The turns of one token for the frequencies from t on, without whole turns, as a sum of two."""
    high, apart = at(pointer(frequencies), t), frequencies.shape[2]
    first, second = part_of_turn(splat(point[0]), load(high, 0), load(high, apart))
    for axis in range(1, frequencies.shape[0]):
        here = 2 * axis * apart
        part, rest = part_of_turn(splat(point[axis]), load(high, here), load(high, here + apart))
        first, second = plus_part(first, second, part, rest)
    return first, second


@inner
def _whole_and_in_steps_of_one(points, i):  # type: ignore[no-untyped-def]
    found = points[i, 0] == np.floor(points[i, 0])
    for k in range(1, _RUN):
        found &= points[i + k, 0] - points[i, 0] == k
    return found


@entry(label="turns of some positions")
def _turns(points: np.ndarray, frequencies: np.ndarray, table: np.ndarray) -> None:
    high, padded = pointer(frequencies), frequencies.shape[1]
    for i in range(points.shape[0]):
        for t in range(0, padded, lanes(high)):
            part, rest = part_of_turn(splat(points[i]), load(high, t), load(high, padded + t))
            part, rest = on_grid(part, rest)
            store(pointer(table), 2 * i * padded + t, part)
            store(pointer(table), (2 * i + 1) * padded + t, rest)
