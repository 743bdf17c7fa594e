"""The sphere: positions are (longitude, latitude) in degrees; without any, the points of a spiral."""

from typing import Any

import numpy as np

from fastpe.encoding import Spec
from fastpe.encodings._rows import points_of

Array = np.ndarray[Any, Any]


def two(**options: Any) -> int:
    """Coordinates of a position."""
    return 2


def check_latitudes(spec: Spec) -> None:
    """Raise ValueError where a latitude lies past a pole."""
    if spec.positions is None:
        return
    latitude = spec.points()[..., 1]
    if (worst := float(np.abs(latitude).max())) > 90:
        raise ValueError(
            "positions must be (longitude, latitude) in degrees with latitudes within ±90, but one, "
            f"start={spec.start:g} included, is {worst:g} in size"
        )


def coordinates(spec: Spec) -> tuple[Array, Array]:
    """Longitudes in [0, 360) or [-180, 180) and latitudes in [-90, 90], (..., N) each, in degrees."""
    points = spec.points()
    return _spiral(points, spec.train_length) if spec.positions is None else _given(points)


def directions(spec: Spec, rows: slice) -> tuple[Array, Array, Array, Array]:
    """cos and sin of the longitude, cos and sin of the latitude, of some rows numbered as in `row_blocks`."""
    if spec.positions is None:
        degrees = _spiral(points_of(spec, rows), spec.train_length)
    else:
        degrees = _given(spec.positions.reshape(-1, 2)[rows] + spec.start)
    longitude, latitude = np.radians(degrees[0]), np.radians(degrees[1])
    return np.cos(longitude), np.sin(longitude), np.cos(latitude), np.sin(latitude)


def _given(points: Array) -> tuple[Array, Array]:
    return np.remainder(points[..., 0], 360.0), points[..., 1]


def _spiral(points: Array, length: int) -> tuple[Array, Array]:
    """sin(latitude) = 2t - 1, longitude = 180 sqrt(pi N) t - 180, with t = (p + 1/2)/N and N the training length.

    From pole to pole in sqrt(pi N)/2 turns, about as far apart as points along them. Past N it turns back at the pole,
    and so on; as the number of turns is irrational, no point comes twice.
    """
    way = (points + 0.5) / length
    there_and_back = np.remainder(way, 2.0)
    height = 2.0 * np.minimum(there_and_back, 2.0 - there_and_back) - 1.0
    longitude = 360.0 * np.remainder(np.sqrt(np.pi * length) / 2 * way, 1.0) - 180.0
    return longitude, np.degrees(np.arcsin(height))
