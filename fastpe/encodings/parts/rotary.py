"""Rotations: their options and sizes, and their frequencies and rescalings in more than float64 precision.

Frequencies are `Decimal`, in radians per position, the fastest first. A rescaling takes a tuple of frequencies and
returns another one. `angles.py` computes angles from them, and `rope_variant.py` makes an encoding of a rescaling.
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.parts.angles import Array, Frequencies, precise
from fastpe.encodings.parts.grids import axis_places, chosen_sides, coordinates, raster
from fastpe.encodings.parts.row_blocks import farthest_of
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.trig import PI

ROTATED = Option(
    None, "how many channels of a head are rotated, an even number; none: all", int, minimum=2, optional=True
)
LARGEST = 1e15  # limit of options without another limit: with larger values the printed formulas lose their digits
FACTOR = Option(
    None, "target length / training length; none: from the largest position", float, minimum=1, maximum=LARGEST,
    optional=True,
)  # fmt: skip

GRID = Option(None, "rows and columns; none: the closest factors", tuple, optional=True)
CLASS_TOKEN = Option(False, "whether the first token has no cell and is not rotated", bool)


def base_option(default: float = 10000.0) -> Option:
    """The base of the frequencies."""
    return Option(default, "the slowest frequency is about 1/base", float, minimum=1.0)


LOGARITHMIC_BASE = Option(10000.0, "the slowest frequency is about 1/base", float, above=1.0)
"""The base of formulas that divide by its logarithm."""


def pairs_option(default: str) -> Option:
    """Which channels are rotated together."""
    return Option(
        default, "which channels are a pair: neighbours, or two half a head apart", str, ("interleaved", "half")
    )


def rope_options(pairs: str, base: Option | None = None) -> dict[str, Option]:
    """The options of `rope`: `base`, `pairs` and `rotated`."""
    return {"base": base or base_option(), "pairs": pairs_option(pairs), "rotated": ROTATED}


# ---------------------------------------------------------------------------------------------------------------------
# Sizes


def rotated_width(spec: Spec, rotated: int | None) -> int:
    """R, the number of channels of a head that are rotated.

    Raises
    ------
    ValueError
        If R is odd or larger than a head.
    """
    head = spec.head_dim
    if rotated is None and head % 2:
        raise ValueError(f"dim / heads must be even, as channels are rotated in pairs, not {spec.dim} / {spec.heads}")
    if rotated is not None and (rotated % 2 or rotated > head):
        raise ValueError(f"option 'rotated' must be an even number up to a head's width {head}, not {rotated}")
    return head if rotated is None else rotated


def shapes(spec: Spec, *, rotated: int | None = None, **options: Any) -> dict[str, tuple[int, ...]]:
    """One angle for each token and pair, the same for all heads."""
    return {"angles": (*spec.batch, 1, spec.length, rotated_width(spec, rotated) // 2)}


def sharper_shapes(spec: Spec, *, rotated: int | None = None, **options: Any) -> dict[str, tuple[int, ...]]:
    """As `shapes`, with a slot `rotors` for the temperature mscale if some channels are not rotated."""
    found = shapes(spec, rotated=rotated)
    if rotated_width(spec, rotated) < spec.head_dim:
        found["rotors"] = (1, 1, spec.head_dim, 1, 1)
    return found


def sharper_scale(spec: Spec, rotated: int | None, mscale: float) -> float:
    """`scale`: mscale^2 / sqrt(D) if all channels are rotated, otherwise 1 / sqrt(D); see `sharper_channels`."""
    all_rotated = rotated_width(spec, rotated) == spec.head_dim
    return (mscale**2 if all_rotated else 1.0) / math.sqrt(spec.head_dim)


def sharper_channels(spec: Spec, rotated: int | None, mscale: float) -> dict[str, Array]:
    """`rotors` that multiply the rotated channels of query and key by mscale, if some channels are not rotated.

    Models multiply cosines and sines by mscale instead; the result is the same.
    """
    width, head = rotated_width(spec, rotated), spec.head_dim
    if width == head:
        return {}
    return {"rotors": np.where(np.arange(head) < width, mscale, 1.0)[None, None, :, None, None]}


def check(spec: Spec, *, rotated: int | None = None, **options: Any) -> None:
    """Require an even number of rotated channels, at most a head's width."""
    rotated_width(spec, rotated)


def check_order(larger: str, smaller: str, spec: Spec, *, rotated: int | None = None, **options: Any) -> None:
    """Require an even number of rotated channels, and that the option `larger` is larger than the option `smaller`."""
    rotated_width(spec, rotated)
    if not options[larger] > options[smaller]:
        raise ValueError(
            f"option {larger!r} must be larger than {smaller!r}, {options[smaller]:g}, not {options[larger]:g}"
        )


def plain_pairs(spec: Spec, *, pairs: str, **options: Any) -> dict[str, Any]:
    """The slot that says which channels are a pair."""
    return {"pairs": pairs}


def reach(spec: Spec) -> Decimal:
    """The largest position plus one, but at least the training length."""
    with precise():
        return max(Decimal(farthest_of(spec)) + 1, Decimal(spec.train_length))


def stretch(spec: Spec, factor: float | None) -> Decimal:
    """s = target length / training length: `factor`, or `reach` divided by the training length if `factor` is None."""
    with precise():
        return reach(spec) / spec.train_length if factor is None else Decimal(factor)


def check_cells(spec: Spec, grid: tuple[int, ...] | None, class_token: bool) -> None:
    """Require a grid with one cell for each token except a class token."""
    if spec.positions is None:
        if class_token and spec.length < 2:
            raise ValueError(f"length must be at least 2 with a class token, not {spec.length}")
        chosen_sides(spec, grid, 2, extra=class_token)


def cells(spec: Spec, grid: tuple[int, ...] | None, class_token: bool) -> Array:
    """Row and column of every token, (..., N, 2); a class token is at (0, 0), where nothing is rotated."""
    if spec.positions is not None or not class_token:
        return coordinates(spec, grid, 2)
    return np.concatenate([np.zeros((1, 2)), raster(chosen_sides(spec, grid, 2, extra=1)) + spec.start])


def raster_places(spec: Spec, grid: tuple[int, ...] | None, class_token: bool) -> tuple[list[Array], int]:
    """`axis_places` of all tokens except a class token, and the number of class tokens (0 if positions are given)."""
    extra = int(class_token and spec.positions is None)
    sides = chosen_sides(spec, grid, 2, extra=extra) if spec.positions is None else (1, 1)
    return axis_places(spec, sides, extra=extra), extra


# ---------------------------------------------------------------------------------------------------------------------
# Frequencies


@lru_cache(maxsize=64)
def ladder(base: float, width: int, steps: int = 2) -> Frequencies:
    """base^(-steps t / width) for t = 0, 1, ... while steps t < width."""
    with precise():
        return tuple(Decimal(base) ** (Decimal(-t) / width) for t in range(0, width, steps))


def printed_ladder(base: float | Decimal, width: int) -> Frequencies:
    """For references: 1 / base^(2t / width) for t = 0 .. width/2 - 1."""
    with precise():
        return tuple(1 / Decimal(base) ** (Decimal(2 * t) / width) for t in range(width // 2))


def interpolated(theta: Frequencies, s: Decimal) -> Frequencies:
    """Every frequency divided by s."""
    with precise():
        return tuple(each / s for each in theta)


def of_larger_base(theta: Frequencies, s: Decimal) -> Frequencies:
    """The frequencies for the base times s^(R/(R-2)): frequency t of the R/2 is divided by s^(t/(R/2-1))."""
    last = max(len(theta) - 1, 1)
    with precise():
        return tuple(each / s ** (Decimal(t) / last) for t, each in enumerate(theta))


def mixed(theta: Frequencies, s: Decimal, shares: tuple[Decimal, ...]) -> Frequencies:
    """Interpolate each frequency: share 0 keeps it, share 1 divides it by s."""
    with precise():
        return tuple(each * (1 - share) + each / s * share for each, share in zip(theta, shares, strict=True))


def ramp_of_dimensions(
    base: float, pairs: int, length: int, fast: float, slow: float, truncate: bool = True
) -> tuple[Decimal, ...]:
    """YaRN's shares as in its code: linear in t between the pairs that turn `fast` and `slow` times in `length`
    positions.

    With `truncate` the first index is rounded down and the last one up.
    """
    with precise():
        low, high = (
            pairs * (length / (2 * PI * Decimal(turns))).ln() / Decimal(base).ln() for turns in (fast, slow)
        )  # fmt: skip
        if truncate:
            low, high = low.to_integral_value(ROUND_FLOOR), high.to_integral_value(ROUND_CEILING)
        first = max(low, Decimal(0))
        last = max(min(high, Decimal(2 * pairs - 1)), first)
        if last == first:
            return tuple(Decimal(t > first) for t in range(pairs))
        return tuple(_clipped((t - first) / (last - first)) for t in range(pairs))


def ramp_of_turns(theta: Frequencies, length: int, fast: float, slow: float) -> tuple[Decimal, ...]:
    """Shares linear in the number of turns in `length` positions: 0 from `fast` turns on, 1 up to `slow` turns."""
    with precise():
        most, least = Decimal(fast), Decimal(slow)
        return tuple(1 - _clipped((length * each / (2 * PI) - least) / (most - least)) for each in theta)


def _clipped(value: Decimal) -> Decimal:
    return min(max(value, Decimal(0)), Decimal(1))
