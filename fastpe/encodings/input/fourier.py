"""Fourier features: sines and cosines at random or harmonic frequencies, added to the embeddings.

    PE[p] = [ sin(2 pi B v) | cos(2 pi B v) ],   B (C/2, D) from N(0, sigma^2),  v in [0, 1)^D
    or, with basis `harmonics`,                  B = (1, 2, ..., C/2) / period,  v = p / N_train

Source: Tancik et al. 2020, "Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains"
(arXiv:2006.10739), section 6.1, the mapping "Gaussian"; the order of sines and cosines:
tancik/fourier-feature-networks, Demo.ipynb, input_mapping.

The basis `harmonics` is the Fourier series on an interval of `period` training lengths, without the constant term.

**Slot**: `table` (N, C), C even. **Learns**: nothing by default, because B is drawn once; with the option `learned`,
the matrix `frequencies` (C/2, D), which is B.

**Options**
- `basis`: `random`, or `harmonics`, which needs one coordinate.
- `sigma`: the standard deviation of B. The authors tried 1, 10 and 100; 10 was best for their images.
- `period`: the period of the first harmonic, in training lengths.
- `coordinates`: D, the number of coordinates of a position.
- `learned`: whether B is learned, starting from the values that `basis` gives.
- `draw`: the seed of the random matrix if it is not learned; the matrix is the same for every seed of a model.
- `grid`: the sides of the grid if D > 1. Default: the D factors of N that are closest to each other.
- `scale`: multiplies the table.

**Positions** may be real numbers. With one coordinate, v = p / N_train, where N_train is the training length. With
several coordinates, tokens are in raster order, and v is a token's place on the grid divided by the grid's sides. If
you pass positions with several coordinates, they are divided by the sides only if you also set `grid`; otherwise they
are used as v.

**Past the training length**: defined; v continues past 1, and rows do not repeat unless B has a common period.
Harmonics repeat after `period` training lengths; with the default of 1, position N_train gets the row of position 0.
With several coordinates, v stays in [0, 1): in a larger grid, the cells are closer together.

**Accuracy.** Whole turns are removed from B v exactly before its sine is taken, so the error of an entry is at most
(12 + 4 D) 2^-52, times `scale`, at any position.

**Facts.** The dot product of two rows is scale^2 sum_m cos(2 pi b_m . (v - v')): it depends only on v - v'. With the
basis `harmonics` and C < period N_train, the columns are orthogonal over the integer positions of a period.

**Traps.** The argument of the sine includes the factor 2 pi. Coordinates must be scaled first: with sigma = 10 and the
index of a token as v, the rows of neighbouring tokens would be unrelated. The paper writes the cosines first, before
the sines. At integer positions a harmonic m > period N_train / 2 equals a slower one, so C > period N_train gives
redundant columns.
"""

import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.base.random import Stream
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.frequencies import exact_product
from fastpe.encodings.parts.grids import chosen_sides, raster
from fastpe.encodings.parts.row_blocks import points_of, row_blocks
from fastpe.encodings.parts.sinusoid import fill_sinusoid
from fastpe.encodings.slots import Spec
from fastpe.kernels.compile.decorators import entry
from fastpe.kernels.fills.table import LARGE, finish, move_rows
from fastpe.kernels.fills.trig import PI, part_of_turn, plus_part, sincos
from fastpe.kernels.simd import aligned_zeros, at, lanes, load, pointer, splat, store_rounded, whole_vectors

_MOST_TURNS = 2.0**50
_MOST_COORDINATES = 16
_LARGEST_NORMAL = 8.3  # the largest value of `fastpe.base.random`
_FARTHEST = 2.0**27  # the largest angle in radians that the kernel of `sinusoidal` accepts
_TURN = float(2 * PI)
_TURN_REST = float(2 * PI - Decimal(_TURN))
Grid = tuple[int, ...] | None


def _sides(spec: Spec, coordinates: int, grid: Grid) -> tuple[int, ...]:
    """The numbers by which the coordinates are divided to give v, one for each axis."""
    if coordinates == 1:
        if grid is not None:
            raise ValueError(f"option 'grid' must be none with one coordinate, not {grid}")
        return (spec.train_length,)
    if spec.positions is None:
        return chosen_sides(spec, grid, coordinates)
    if grid is not None and (len(grid) != coordinates or min(grid) < 1):
        raise ValueError(f"option 'grid' must be {coordinates} sides of at least 1, not {grid}")
    return (1,) * coordinates if grid is None else grid


def check(spec: Spec, *, basis: str, sigma: float, period: float, coordinates: int, grid: Grid, **options: Any) -> None:
    """Require an even C, one coordinate for harmonics, and few enough turns for float64."""
    if spec.dim % 2:
        raise ValueError(f"dim must be even for 'fourier', half for sines and half for cosines, not {spec.dim}")
    if coordinates > _MOST_COORDINATES:
        raise ValueError(f"option 'coordinates' must be at most {_MOST_COORDINATES}, not {coordinates}")
    if basis == "harmonics" and coordinates > 1:
        raise ValueError(f"basis 'harmonics' needs one coordinate, not coordinates={coordinates}")
    least = min(_sides(spec, coordinates, grid))
    name, value, most = ("sigma", sigma, sigma * _LARGEST_NORMAL * coordinates)
    if basis == "harmonics":
        name, value, most = "period", period, spec.dim / 2 / period
    if most * (spec.farthest + 1) / least > _MOST_TURNS:
        raise ValueError(
            f"option {name!r} ({value:g}) makes more than 2**50 turns at positions up to {spec.farthest:g}"
        )


def parameters(spec: Spec, *, learned: bool, coordinates: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """B, if it is learned."""
    return {"frequencies": (spec.dim // 2, coordinates)} if learned else {}


def init(
    spec: Spec, rng: Any, *, basis: str, sigma: float, period: float, coordinates: int, learned: bool, **options: Any
) -> dict[str, Any]:
    """N(0, sigma^2), or the harmonics."""
    if not learned:
        return {}
    if basis == "harmonics":
        return {"frequencies": _harmonics(spec.dim // 2, period)}
    return {"frequencies": sigma * rng.normal((spec.dim // 2, coordinates))}


def _matrix(
    spec: Spec, params: dict[str, Any], *, basis: str, sigma: float, period: float, coordinates: int, draw: int,
    **options: Any,
) -> np.ndarray:  # fmt: skip
    """B, (C/2, D) float64: learned, drawn, or the harmonics."""
    if "frequencies" in params:
        learned: np.ndarray = np.asarray(params["frequencies"], np.float64)
        return learned
    if basis == "harmonics":
        return _harmonics(spec.dim // 2, period)
    return _drawn(sigma, draw, spec.dim // 2, coordinates)


def _harmonics(count: int, period: float) -> np.ndarray:
    return np.arange(1.0, count + 1)[:, None] / period


@lru_cache(maxsize=16)
def _drawn(sigma: float, draw: int, count: int, coordinates: int) -> np.ndarray:
    matrix = sigma * Stream(draw, "fourier").normal((count, coordinates))
    matrix.flags.writeable = False
    return matrix


def _points(spec: Spec, coordinates: int, sides: tuple[int, ...]) -> np.ndarray:
    """The coordinates before the division by the sides, (..., N, D)."""
    if coordinates == 1:
        return spec.points()[..., None]
    return raster(sides) + spec.start if spec.positions is None else spec.points()


def reference(
    spec: Spec, params: dict[str, Any], *, coordinates: int, grid: Grid, scale: float, **options: Any
) -> dict[str, Any]:
    """The printed formula. B v is computed in exact fractions, and whole turns are removed from it."""
    sides = _sides(spec, coordinates, grid)
    points = _points(spec, coordinates, sides)
    matrix = _matrix(spec, params, coordinates=coordinates, **options)
    rows = [[Fraction(value) for value in row] for row in matrix.tolist()]
    angles = np.empty((points.size // coordinates, len(rows)))
    for i, point in enumerate(points.reshape(-1, coordinates).tolist()):
        v = [Fraction(value) / side for value, side in zip(point, sides, strict=True)]
        for m, row in enumerate(rows):
            turns = sum((b * value for b, value in zip(row, v, strict=True)), Fraction(0))
            angles[i, m] = 2 * np.pi * float(turns - round(turns))
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    return {"table": scale * table.reshape(*points.shape[:-1], spec.dim)}


def _in_radians(turns: np.ndarray) -> np.ndarray:
    """`turns` times 2 pi. The argument and the result are sums of two float64 arrays, (2, .)."""
    table = aligned_zeros(turns.shape, np.float64)
    table[0], lost = exact_product(turns[0], _TURN)
    table[1] = lost + turns[1] * _TURN + turns[0] * _TURN_REST
    return table


def _per_unit(matrix: np.ndarray, sides: tuple[int, ...]) -> np.ndarray:
    """The number of turns for one unit of each coordinate, as sums of two float64: (D, 2, C/2 padded to whole
    vectors)."""
    table = aligned_zeros((matrix.shape[1], 2, whole_vectors(len(matrix), np.float64)), np.float64)
    for pair, column, side in zip(table[..., : len(matrix)], matrix.T, sides, strict=True):
        pair[0] = column / side
        product, lost = exact_product(pair[0], float(side))
        pair[1] = ((column - product) - lost) / side
    return table


def _fill_with(spec: Spec, table: np.ndarray, matrix: np.ndarray, coordinates: int, grid: Grid, scale: float) -> None:
    sides = _sides(spec, coordinates, grid)
    most = np.abs(matrix).max(initial=0.0) * coordinates * (spec.farthest + 1) / min(sides)
    if not most <= _MOST_TURNS:
        raise ValueError(f"params['frequencies'] must make at most 2**50 turns, not {most:g}")
    units = _per_unit(matrix, sides)
    if coordinates == 1 and 2.0 * math.pi * most <= _FARTHEST:
        omega = _in_radians(units[0])
        fill_sinusoid(table, lambda rows: points_of(spec, rows), omega, layout="concatenated", scale=scale)
        return
    points = _points(spec, coordinates, sides).reshape(-1, coordinates)
    block = aligned_zeros((_RUN, spec.dim), table.dtype)
    for rows, first, row_step, step in row_blocks(table):
        _fill(points[rows], units, block, scale, first, row_step, step, table.nbytes >= LARGE)


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, coordinates: int, grid: Grid, scale: float,
    **options: Any,
) -> None:  # fmt: skip
    """Fill `table`."""
    matrix = _matrix(spec, params, coordinates=coordinates, **options)
    _fill_with(spec, out["table"], matrix, coordinates, grid, scale)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, coordinates: int,
    grid: Grid, scale: float, **options: Any,
) -> None:  # fmt: skip
    """dB = 2 pi scale sum over p of (dsin cos - dcos sin) v^T; dsin and dcos are the gradients of sines and cosines."""
    matrix = np.asarray(params["frequencies"], np.float64)
    sides = _sides(spec, coordinates, grid)
    v = _points(spec, coordinates, sides).reshape(-1, coordinates) / np.array(sides)
    waves = np.empty((*spec.batch, spec.length, spec.dim))
    _fill_with(spec, waves, matrix, coordinates, grid, 1.0)
    total = np.zeros(matrix.shape)
    _pull(dslots["table"].reshape(-1, spec.dim), waves.reshape(-1, spec.dim), v, total)
    dparams["frequencies"] += (2.0 * math.pi * scale * total).astype(spec.dtype)


_RUN = 32  # rows of a block


@entry(label="Fourier features")
def _fill(
    points: np.ndarray, units: np.ndarray, block: np.ndarray, scale: float, first: np.ndarray, row_step: int,
    step: int, large: bool,
) -> None:  # fmt: skip
    dim, table, width = block.shape[1], pointer(first), lanes(pointer(units))
    half = dim // 2
    for i in range(0, points.shape[0], _RUN):
        count = min(_RUN, points.shape[0] - i)
        for k in range(count):
            row = at(pointer(block), k * dim)
            for m in range(0, half, width):
                turns, rest = splat(0.0), splat(0.0)
                for d in range(points.shape[1]):
                    unit = at(pointer(units[d]), m)
                    part, lost = part_of_turn(splat(points[i + k, d]), load(unit, 0), load(unit, units.shape[2]))
                    turns, rest = plus_part(turns, rest, part, lost)
                sine, cosine = sincos(turns + rest, splat(_TURN), splat(_TURN_REST))
                store_rounded(row, m, splat(scale) * sine, half - m)
                store_rounded(row, half + m, splat(scale) * cosine, half - m)
        move_rows(pointer(block), count, dim, at(table, i * row_step), row_step, step, large)
    finish(large)


@entry(label="gradient of Fourier features")
def _pull(dtable: np.ndarray, waves: np.ndarray, v: np.ndarray, total: np.ndarray) -> None:
    half = total.shape[0]
    for i in range(dtable.shape[0]):
        for m in range(half):
            along = dtable[i, m] * waves[i, half + m] - dtable[i, half + m] * waves[i, m]
            for d in range(v.shape[1]):
                total[m, d] += along * v[i, d]


ENCODING = Encoding(
    summary="sines and cosines, random or harmonic frequencies",
    formula=r"""
        \mathrm{PE}[p] &= [\, \sin(2 \pi B v) \mid \cos(2 \pi B v) \,] \\
        B &\in \mathbb{R}^{C/2 \times D} \text{ from } \mathcal{N}(0, \sigma^2), \quad v \in [0, 1)^D \\
        B &= (1, 2, \dots, C/2) / \mathrm{period}, \quad v = p / N_{\mathrm{train}}
            \quad \text{with basis } \mathrm{harmonics}
    """,
    use_when="positions are coordinates with fine detail between them, and you can tune the bandwidth sigma",
    also_called=("random Fourier features", "Gaussian Fourier features"),
    not_to_be_confused={
        "fope": "Fourier position embedding, which rotates pairs by sums of frequencies",
        "NeRF's encoding": "its frequencies are powers of two",
    },
    use="other",
    slots=("table",),
    options={
        "basis": Option("random", "the kind of frequencies", str, ("random", "harmonics")),
        "period": Option(1.0, "period of the first harmonic, in training lengths", float, above=0.0),
        "sigma": Option(10.0, "standard deviation of the frequencies", float, above=0.0),
        "coordinates": Option(1, "number of coordinates of a position", int, minimum=1),
        "learned": Option(False, "whether the frequencies are learned", bool),
        "draw": Option(0, "seed of random frequencies that are not learned", int, minimum=0, maximum=1e18),
        "grid": Option(None, "sides of the grid; none: the closest factors of N", tuple, optional=True),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    moves=lambda *, coordinates, **options: coordinates > 1,
    direction="yes",
    source="Tancik et al. 2020, arXiv:2006.10739, section 6.1",
    ulp=lambda spec, coordinates, **options: 12.0 + 4.0 * coordinates,
    axes=lambda coordinates, **options: coordinates,
)
