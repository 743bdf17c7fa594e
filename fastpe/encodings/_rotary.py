"""Rotations: frequencies and their rescalings, in more digits than float64 has, and the fill of their angles.

Frequencies are `Decimal`, radians for a step of one position, the fastest first. A rescaling takes a tuple of them and
gives another. `turns` turns them into pairs of float64, and `fill_angles` into angles without losing the phase.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.encoding import Option, Spec
from fastpe.encodings._grid import chosen_sides, coordinates, raster
from fastpe.encodings._rows import farthest_of, row_blocks
from fastpe.kernels._jit import entry, inlined
from fastpe.kernels.simd import aligned_zeros, at, lanes, load, pointer, splat, store_first, whole_vectors
from fastpe.kernels.table import LARGE, finish, move_rows
from fastpe.kernels.trig import PI, part_of_turn, plus_part, radians_of

Frequencies = tuple[Decimal, ...]
Array = np.ndarray[Any, Any]

ROTATED = Option(
    None, "how many channels of a head are rotated, an even number; none: all", int, minimum=2, optional=True
)
FACTOR = Option(
    None, "how many times longer than the training length; none: as needed", float, minimum=1, optional=True
)

GRID = Option(None, "rows and columns; none: as close to a square as there is", tuple, optional=True)
CLASS_TOKEN = Option(False, "whether the first token stands on no cell", bool)


def base_option(default: float = 10000.0) -> Option:
    """The base of the ladder of frequencies; its slowest is about 1/base."""
    return Option(default, "the slowest frequency is about 1/base", float, minimum=1.0)


def pairs_option(default: str) -> Option:
    """Which channels are rotated together."""
    return Option(
        default, "which channels are a pair: neighbours, or two half a head apart", str, ("interleaved", "half")
    )


# ---------------------------------------------------------------------------------------------------------------------
# Sizes


def rotated_width(spec: Spec, rotated: int | None) -> int:
    """R, the number of channels that are rotated.

    Raises
    ------
    ValueError
        If it is odd, or larger than a head.
    """
    head = spec.head_dim
    if rotated is None and head % 2:
        raise ValueError(f"dim / heads must be even, as channels are rotated in pairs, not {spec.dim} / {spec.heads}")
    if rotated is not None and (rotated % 2 or rotated > head):
        raise ValueError(f"option 'rotated' must be an even number up to a head's width {head}, not {rotated}")
    return head if rotated is None else rotated


def shapes(spec: Spec, *, rotated: int | None = None, **options: Any) -> dict[str, tuple[int, ...]]:
    """One angle for every token and pair, the same for all heads."""
    return {"angles": (*spec.batch, 1, spec.length, rotated_width(spec, rotated) // 2)}


def check(spec: Spec, *, rotated: int | None = None, **options: Any) -> None:
    """A head must be made of pairs."""
    rotated_width(spec, rotated)


def plain_pairs(spec: Spec, *, pairs: str, **options: Any) -> dict[str, Any]:
    """Which channels are a pair."""
    return {"pairs": pairs}


def reach(spec: Spec) -> float:
    """The length that the positions need: the largest and one, but at least the training length."""
    return max(farthest_of(spec) + 1.0, float(spec.train_length))


def stretch(spec: Spec, factor: float | None) -> Decimal:
    """s = target length / training length: as given, or as the positions need."""
    with precise():
        return Decimal(reach(spec)) / spec.train_length if factor is None else Decimal(factor)


def check_cells(spec: Spec, grid: tuple[int, ...] | None, class_token: bool) -> None:
    """The tokens, but for a class token, must fill the grid."""
    if spec.positions is None:
        if class_token and spec.length < 2:
            raise ValueError(f"length must be at least 2 with a class token, not {spec.length}")
        chosen_sides(spec, grid, 2, extra=class_token)


def cells(spec: Spec, grid: tuple[int, ...] | None, class_token: bool) -> Array:
    """Row and column of every token, (..., N, 2); a class token is at (0, 0), where nothing turns."""
    if spec.positions is not None or not class_token:
        return coordinates(spec, grid, 2)
    return np.concatenate([np.zeros((1, 2)), raster(chosen_sides(spec, grid, 2, extra=1)) + spec.start])


# ---------------------------------------------------------------------------------------------------------------------
# Frequencies


@contextmanager
def precise() -> Iterator[None]:
    """Decimal arithmetic on 60 digits, and exponents that no float64 exhausts."""
    with localcontext() as context:
        context.prec = 60
        context.Emin, context.Emax = -999999, 999999
        yield


@lru_cache(maxsize=64)
def ladder(base: float, width: int, steps: int = 2) -> Frequencies:
    """base^(-steps t / width) for t = 0, 1, ... while steps t < width."""
    with precise():
        return tuple(Decimal(base) ** (Decimal(-t) / width) for t in range(0, width, steps))


def interpolated(theta: Frequencies, s: Decimal) -> Frequencies:
    """Every frequency divided by s."""
    with precise():
        return tuple(each / s for each in theta)


def of_larger_base(theta: Frequencies, s: Decimal) -> Frequencies:
    """The ladder of the base times s^(R/(R-2)): frequency t of R/2 is divided by s^(t/(R/2-1)), the last one by s."""
    last = max(len(theta) - 1, 1)
    with precise():
        return tuple(each / s ** (Decimal(t) / last) for t, each in enumerate(theta))


def mixed(theta: Frequencies, s: Decimal, shares: tuple[Decimal, ...]) -> Frequencies:
    """Every frequency between itself (share 0) and itself divided by s (share 1)."""
    with precise():
        return tuple(each * (1 - share) + each / s * share for each, share in zip(theta, shares, strict=True))


def ramp_of_dimensions(base: float, pairs: int, length: int, fast: float, slow: float) -> tuple[Decimal, ...]:
    """YaRN's shares as in its code: linear in t between the pairs that turn `fast` and `slow` times in `length`."""
    with precise():
        low, high = (
            pairs * (length / (2 * PI * Decimal(turns))).ln() / Decimal(base).ln() for turns in (fast, slow)
        )  # fmt: skip
        first = max(low.to_integral_value(ROUND_FLOOR), Decimal(0))
        last = max(min(high.to_integral_value(ROUND_CEILING), Decimal(2 * pairs - 1)), first)
        run = last - first or Decimal("0.001")
        return tuple(_clipped((t - first) / run) for t in range(pairs))


def ramp_of_turns(theta: Frequencies, length: int, fast: float, slow: float) -> tuple[Decimal, ...]:
    """Shares linear in how many turns a pair makes in `length` positions: 0 from `fast` on, 1 up to `slow`."""
    with precise():
        most, least = Decimal(fast), Decimal(slow)
        return tuple(1 - _clipped((length * each / (2 * PI) - least) / (most - least)) for each in theta)


def _clipped(value: Decimal) -> Decimal:
    return min(max(value, Decimal(0)), Decimal(1))


# ---------------------------------------------------------------------------------------------------------------------
# Angles


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


def fill_angles(points: Array, frequencies: Array, angles: Array) -> None:
    """angles (..., G, N, pairs): points (..., N, axes) times frequencies (G, axes, 2, .) in turns, added over axes."""
    points = np.ascontiguousarray(points)
    for index in np.ndindex(angles.shape[:-2]):
        table, own = angles[index], points[index[:-1]]
        for rows, first, row_step, step in row_blocks(table):
            _fill(own[rows], frequencies[index[-1]], table.shape[1], first, row_step, step, table.nbytes >= LARGE)


def fill_line(spec: Spec, theta: Frequencies, angles: Array) -> None:
    """Angles of positions on a line."""
    fill_angles(spec.points()[..., None], turns(theta), angles)


_RUN = 16  # rows of a block


@entry(label="rotation angles")
def _fill(
    points: np.ndarray, frequencies: np.ndarray, pairs: int, first: np.ndarray, row_step: int, step: int, large: bool
) -> None:
    table, block = pointer(first), np.empty(_RUN * pairs, np.float64)
    direct = step == 1 and not large
    for i in range(0, points.shape[0], _RUN):
        count = min(_RUN, points.shape[0] - i)
        for k in range(count):
            row = at(table, (i + k) * row_step) if direct else at(pointer(block), k * pairs)
            for t in range(0, pairs, lanes(table)):
                store_first(row, t, _angles(points[i + k], frequencies, t), pairs - t)
        if not direct:
            move_rows(pointer(block), count, pairs, at(table, i * row_step), row_step, step, large)
    finish(large)


@inlined
def _angles(point, frequencies, t):  # type: ignore[no-untyped-def]
    """One token's angles for the frequencies from t on."""
    high, apart = at(pointer(frequencies), t), frequencies.shape[2]
    first, second = part_of_turn(splat(point[0]), load(high, 0), load(high, apart))
    for axis in range(1, frequencies.shape[0]):
        here = 2 * axis * apart
        part, rest = part_of_turn(splat(point[axis]), load(high, here), load(high, here + apart))
        first, second = plus_part(first, second, part, rest)
    return radians_of(first, second)


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
