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
    if spec.positions is not None:
        return np.remainder(points[..., 0], 360.0), points[..., 1]
    turn, height = _spiral(points, spec.train_length)
    return 360.0 * turn - 180.0, np.degrees(np.arcsin(height))


def directions(spec: Spec, rows: slice) -> tuple[Array, Array, Array, Array]:
    """cos and sin of the longitude, cos and sin of the latitude, of some rows numbered as in `row_blocks`."""
    if spec.positions is None:
        turn, height = _spiral(points_of(spec, rows), spec.train_length)
        longitude = 2 * np.pi * turn
        return -np.cos(longitude), -np.sin(longitude), np.sqrt((1 - height) * (1 + height)), height
    points = spec.positions.reshape(-1, 2)[rows] + spec.start
    longitude, latitude = np.radians(np.remainder(points[:, 0], 360.0)), np.radians(points[:, 1])
    return np.cos(longitude), np.sin(longitude), np.cos(latitude), np.sin(latitude)


def _spiral(points: Array, length: int) -> tuple[Array, Array]:
    """(longitude + 180)/360 and sin(latitude): sqrt(pi N) t/2, modulo 1, and 2t - 1 with t = (p + 1/2)/N.

    From pole to pole in sqrt(pi N)/2 turns, about as far apart as points along them. Past the training length N it
    turns back at the pole, and so on; as the number of turns is irrational, no point comes twice.
    """
    way = (points + 0.5) / length
    there_and_back = way - 2.0 * np.floor(way / 2)
    turn = np.sqrt(np.pi * length) / 2 * way
    return turn - np.floor(turn), 2.0 * np.minimum(there_and_back, 2.0 - there_and_back) - 1.0
