"""Points on the sphere: positions are (longitude, latitude) in degrees; by default they follow a spiral."""

from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from fastpe.encodings.slots import Spec
from fastpe.kernels.compile.decorators import entry, inlined
from fastpe.kernels.fills.trig import PI, nearest, product_error, sincos
from fastpe.kernels.simd import absolute, counting, fma, lanes, load, minus, pointer, splat, sqrt, store_first

Array = np.ndarray[Any, Any]


def two(**options: Any) -> int:
    """The number of coordinates of a position."""
    return 2


def check_latitudes(spec: Spec) -> None:
    """Raise ValueError if a latitude is not within ±90 degrees."""
    if spec.positions is None:
        return
    latitude = spec.positions[..., 1]
    if (worst := max(abs(float(end) + spec.start) for end in (latitude.min(), latitude.max()))) > 90:
        raise ValueError(
            "positions must be (longitude, latitude) in degrees with latitudes within ±90, but one latitude has the "
            f"absolute value {worst:g}, including start={spec.start:g}"
        )


def coordinates(spec: Spec) -> tuple[Array, Array]:
    """Longitudes and latitudes within ±180 and ±90, (..., N) each, in degrees."""
    points = spec.points()
    if spec.positions is not None:
        longitude = points[..., 0]
        return longitude - 360.0 * np.rint(longitude / 360.0), points[..., 1]  # without rounding
    return _spiral(points, spec.train_length)


def from_pole(spec: Spec) -> Array:
    """The distance to the nearer pole in degrees, (..., N). Near the poles its sine is more accurate than the cosine of
    the latitude."""
    if spec.positions is not None:
        return 90.0 - np.abs(spec.points()[..., 1])
    below, above = _from_poles(spec.points() + 0.5, spec.train_length)
    return np.degrees(2.0 * np.arctan2(np.sqrt(np.minimum(below, above)), np.sqrt(np.maximum(below, above))))


def directions(spec: Spec, rows: slice) -> Array:
    """Cosine and sine of the longitude, then of the latitude, (4, rows), for rows numbered as in `row_blocks`."""
    if spec.positions is None:
        found = np.empty((4, rows.stop - rows.start))
        turns = _turns_per_position(spec.train_length)
        high = float(turns)
        _of_spiral(float(rows.start), spec.start, float(spec.train_length), high, float(turns - Decimal(high)), found)
        return found
    points = spec.positions.reshape(-1, 2)[rows]
    found = np.empty((4, len(points)))
    _of_points(points, spec.start, found)
    return found


def _turns_per_position(length: int) -> Decimal:
    """The turns of the spiral per position, sqrt(pi N)/2 over N positions, as a Decimal: float64 would lose four digits
    at 10^4 turns."""
    with localcontext() as context:
        context.prec = 50
        return (PI / length).sqrt() / 2


def _spiral(points: Array, length: int) -> tuple[Array, Array]:
    """Longitude and latitude in degrees: the longitude is 180 sqrt(pi N) t - 180, the sine of the latitude 2t - 1, with
    t = (p + 1/2)/N.

    The spiral makes sqrt(pi N)/2 turns from pole to pole; neighbouring turns are about as far apart as neighbouring
    points of a turn. Past the training length N it turns back at the pole, and again at each pole; because the number
    of turns is irrational, no point repeats.
    """
    places, each = points.ravel() + 0.5, _turns_per_position(length)
    with localcontext() as context:
        context.prec = 50
        turns = np.array([float(each * Decimal(place) % 1) for place in places.tolist()])
    below, above = _from_poles(places, length)
    latitude = np.degrees(2.0 * np.arctan2(np.sqrt(below), np.sqrt(above))) - 90.0
    longitude = 360.0 * (turns - np.floor(turns)) - 180.0
    return longitude.reshape(points.shape), latitude.reshape(points.shape)


def _from_poles(places: Array, length: int) -> tuple[Array, Array]:
    """N t and N (1 - t), with t folded into [0, 1]: the distances in positions from the ends of the spiral."""
    there = places % (2.0 * length)
    below = np.minimum(there, 2.0 * length - there)
    return below, length - below


_TURN, _DEGREE = ((float(unit), float(unit - Decimal(float(unit)))) for unit in (2 * PI, PI / 180))


@entry(label="points of a spiral on the sphere")
def _of_spiral(first: float, start: float, length: float, high: float, low: float, found: Array) -> None:
    # the longitude makes high + low turns per position; whole turns and whole round trips are removed exactly
    out, count, twice = pointer(found), found.shape[1], splat(2.0 * length)
    for i in range(0, count, lanes(out)):
        place = counting(first + i) + splat(start) + splat(0.5)
        turns = place * splat(high)
        rest = fma(place, splat(low), product_error(place, splat(high), turns))
        sine, cosine = sincos((turns - nearest(turns)) + rest, splat(_TURN[0]), splat(_TURN[1]))
        below = absolute(place - twice * nearest(place / twice))
        above = splat(length) - below
        height, flat = (below - above) / splat(length), splat(2.0) * sqrt(below * above) / splat(length)
        _store(out, count, i, minus(cosine), minus(sine), flat, height)


@entry(label="points of the sphere")
def _of_points(points: Array, start: float, found: Array) -> None:
    out, count, some = pointer(found), found.shape[1], np.empty((2, lanes(pointer(found))))
    high, low = splat(_DEGREE[0]), splat(_DEGREE[1])
    for i in range(0, count, lanes(out)):
        for k in range(some.shape[1]):
            point = min(i + k, count - 1)
            some[0, k], some[1, k] = points[point, 0] + start, points[point, 1] + start
        sin_lon, cos_lon = sincos(load(pointer(some[0]), 0), high, low)
        sin_lat, cos_lat = sincos(load(pointer(some[1]), 0), high, low)
        _store(out, count, i, cos_lon, sin_lon, cos_lat, sin_lat)


@inlined
def _store(out, count, i, cos_lon, sin_lon, cos_lat, sin_lat):  # type: ignore[no-untyped-def]
    store_first(out, i, cos_lon, count - i)
    store_first(out, count + i, sin_lon, count - i)
    store_first(out, 2 * count + i, cos_lat, count - i)
    store_first(out, 3 * count + i, sin_lat, count - i)
