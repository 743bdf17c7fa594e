"""Gegenbauer polynomials of a bounded map of the position, computed by a three-term recurrence.

Let R_l be Gegenbauer's polynomials for the weight (1 - x^2)^(a - 1/2), divided by their values at x = 1. They satisfy

    R_{l+1} = x R_l + f_l (x R_l - R_{l-1}),   f_l = l / (l + 2a),      R_l' = l (l + 2a) / (2a + 1)  R_{l-1} of a + 1

a = 1/2 gives Legendre's polynomials, and a = 0 Chebyshev's polynomials of the first kind. For a = 1, R_l is
U_l / (l + 1), with U_l Chebyshev's polynomials of the second kind; with f_l = 1 for all l >= 0 the recurrence gives U_l
itself. In this form the recurrence is exact at x = 1.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from fastpe.encodings.parts.row_blocks import points_of, row_blocks
from fastpe.encodings.slots import Spec
from fastpe.kernels.compile.decorators import entry, inlined
from fastpe.kernels.fills.table import LARGE, columns_to_table, finish
from fastpe.kernels.simd import (
    absolute,
    aligned_zeros,
    at,
    exp,
    fma,
    lanes,
    load_first,
    minus,
    pointer,
    splat,
    store_rounded,
    where_negative,
    whole_vectors,
)

Array = np.ndarray[Any, Any]


def place(points: Array, length: int, name: str, gamma: float) -> Array:
    """x(p) for positions p, by the map `name`."""
    if name == "tanh":
        return np.tanh(gamma * points / length)
    if name == "linear":
        return 2.0 * points / length - 1.0
    inside = np.clip(points, 0.0, length)
    if name == "clamp":
        return 2.0 * inside / length - 1.0
    return 2.0 * (np.log1p(inside) / math.log1p(length)) - 1.0


def check(spec: Spec, *, map: str, learned: bool, **options: Any) -> None:
    """Allow `learned` only with the map `tanh`."""
    if learned and map != "tanh":
        raise ValueError(f"option 'learned' needs map 'tanh', which has a gamma, not map {map!r}")


def parameters(spec: Spec, *, learned: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """gamma, if it is learned."""
    return {"gamma": (1,)} if learned else {}


def init(spec: Spec, rng: Any, *, gamma: float, learned: bool, **options: Any) -> dict[str, Any]:
    """The option `gamma`."""
    return {"gamma": np.array([gamma])} if learned else {}


def follows(alpha: float, count: int) -> Array:
    """f_0, f_1, ... of the recurrence of R_l, (count,).

    >>> follows(0.0, 3).tolist(), follows(0.5, 3).tolist()
    ([0.0, 1.0, 1.0], [0.0, 0.5, 0.6666666666666666])
    """
    degree = np.arange(1.0, count)
    return np.concatenate([[0.0], degree / (degree + 2.0 * alpha)])


def slopes(alpha: float, count: int) -> Array:
    """R_l'(1) for l = 0, 1, ..., (count,). R_l' is this factor times R_{l-1} of alpha + 1.

    >>> slopes(0.5, 4).tolist()
    [0.0, 1.0, 3.0, 6.0]
    """
    degree = np.arange(float(count))
    return degree * (1.0 + (degree - 1.0) / (2.0 * alpha + 1.0))


def fill_polynomials(
    spec: Spec, params: Mapping[str, Array], table: Array, follow: Array, *, map: str, gamma: float, learned: bool,
    scale: float,
) -> None:  # fmt: skip
    """Fill a table (..., C); `follow` (C,) are the f_l of the recurrence, and `map` is as in `place`."""
    if learned:
        gamma = float(params["gamma"][0])
    dim = spec.dim
    at_once, wide = 4 * whole_vectors(1, np.float64), whole_vectors(1, table.dtype)
    columns, tile = aligned_zeros((dim + wide, at_once), table.dtype), aligned_zeros((wide, wide), table.dtype)
    block = aligned_zeros((at_once, dim), table.dtype)
    for rows, first, row_step, step in row_blocks(table):
        points, bounded = points_of(spec, rows), map == "tanh"
        x = gamma * points / spec.train_length if bounded else place(points, spec.train_length, map, gamma)
        large = table.nbytes >= LARGE
        _fill(x, bounded, scale, first, row_step, step, large, follow, columns, block, tile)


def add_gradient(
    spec: Spec, params: Mapping[str, Array], dtable: Array, dgamma: Array, factor: Array, follow: Array, scale: float
) -> None:
    """dgamma += sum over p and l of dPE[p, l] P_l'(x) (p/N) (1 - x^2), for the map `tanh`.

    P_l' is `factor[l]` times the polynomial of degree l - 1 whose recurrence has the f_l in `follow`; both arrays are
    (C,).
    """
    ratio = spec.points().ravel() / spec.train_length
    x = np.tanh(float(params["gamma"][0]) * ratio)
    _pull(x, scale * ratio * (1.0 - x) * (1.0 + x), dtable.reshape(-1, spec.dim), dgamma, factor, follow)


@entry(label="table of polynomials")
def _fill(
    x: Array, bounded: bool, scale: float, first: Array, row_step: int, step: int, large: bool,
    follow: Array, columns: Array, block: Array, tile: Array,
) -> None:  # fmt: skip
    # Lanes are positions. The recurrence is a chain of dependent operations, so four vectors are processed together.
    width, dim = lanes(splat(0.0)), block.shape[1]
    rows = 4 * width
    for i in range(0, x.shape[0], rows):
        count = min(rows, x.shape[0] - i)
        places = at(pointer(x), i)
        x0, x1 = load_first(places, 0, count), load_first(places, width, count - width)
        x2, x3 = load_first(places, 2 * width, count - 2 * width), load_first(places, 3 * width, count - 3 * width)
        if bounded:
            x0, x1, x2, x3 = _tanh(x0), _tanh(x1), _tanh(x2), _tanh(x3)
        none, one = splat(0.0), splat(scale)
        older0, older1, older2, older3, newer0, newer1, newer2, newer3 = none, none, none, none, one, one, one, one
        for degree in range(dim):
            column = at(pointer(columns), degree * rows)
            store_rounded(column, 0, newer0, width)
            store_rounded(column, width, newer1, width)
            store_rounded(column, 2 * width, newer2, width)
            store_rounded(column, 3 * width, newer3, width)
            older0, newer0 = newer0, _next(x0, newer0, older0, follow[degree])
            older1, newer1 = newer1, _next(x1, newer1, older1, follow[degree])
            older2, newer2 = newer2, _next(x2, newer2, older2, follow[degree])
            older3, newer3 = newer3, _next(x3, newer3, older3, follow[degree])
        columns_to_table(
            pointer(columns), rows, count, dim, pointer(block), pointer(tile), at(pointer(first), i * row_step),
            row_step, step, large,
        )  # fmt: skip
    finish(large)


@inlined
def _next(x, newer, older, follow):  # type: ignore[no-untyped-def]
    """P_{l+1} = x P_l + f_l (x P_l - P_{l-1}); for f_l = 1 this is 2 x P_l - P_{l-1}, a single operation."""
    if follow == 1.0:
        return fma(x + x, newer, minus(older))
    return fma(splat(follow), fma(x, newer, minus(older)), x * newer)


@entry(label="gradient of the polynomials' gamma")
def _pull(x: Array, slope: Array, dtable: Array, dgamma: Array, factor: Array, follow: Array) -> None:
    total = 0.0
    for i in range(x.shape[0]):
        older, value, along = 0.0, 1.0, 0.0
        for degree in range(1, dtable.shape[1]):
            along += float(dtable[i, degree]) * factor[degree] * value
            f, ahead = follow[degree - 1], x[i] * value
            older, value = value, 2.0 * ahead - older if f == 1.0 else ahead + f * (ahead - older)
        total += along * slope[i]
    dgamma[0] += total


def _tangent_series(terms: int) -> tuple[float, ...]:
    """The coefficients of y^3, y^5, ... of tanh, from tanh' = 1 - tanh^2."""
    series = [Fraction(1)]
    for n in range(1, terms + 1):
        series.append(-sum((series[k] * series[n - 1 - k] for k in range(n)), Fraction(0)) / (2 * n + 1))
    return tuple(map(float, series[1:]))


_NEAR = 0.3  # up to here tanh is a series, whose terms shrink by (2 y / pi)^2 < 1/27; 1 - e^(-2y) would lose digits
_T3, _T5, _T7, _T9, _T11, _T13, _T15, _T17, _T19, _T21, _T23 = _tangent_series(11)


@inlined
def _tanh(y):  # type: ignore[no-untyped-def]
    """tanh of a float64 vector, with an error of at most 2^-52 and three units in the last place."""
    size = absolute(y)
    power = exp(splat(-2.0) * size)
    far = (splat(1.0) - power) / (splat(1.0) + power)
    # near 1, where the polynomials are steepest, 1 minus a small term has only one rounding error
    farther = splat(1.0) - (power + power) / (splat(1.0) + power)
    far = where_negative(power - splat(0.25), farther, far)
    z = y * y
    t = fma(z, splat(_T23), splat(_T21))
    t = fma(z, t, splat(_T19))
    t = fma(z, t, splat(_T17))
    t = fma(z, t, splat(_T15))
    t = fma(z, t, splat(_T13))
    t = fma(z, t, splat(_T11))
    t = fma(z, t, splat(_T9))
    t = fma(z, t, splat(_T7))
    t = fma(z, t, splat(_T5))
    t = fma(z, t, splat(_T3))
    return where_negative(size - splat(_NEAR), fma(y * z, t, y), where_negative(y, minus(far), far))
