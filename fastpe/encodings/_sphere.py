"""The sphere: positions are (longitude, latitude) in degrees; without any, the points of a spiral."""

from typing import Any

import numpy as np

from fastpe.encoding import Spec

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
    """Longitudes in [0, 360) or [-180, 180) and latitudes in [-90, 90], (..., N) each, in degrees.

    Without positions: the spiral sin(latitude) = 2t - 1, longitude = 180 sqrt(pi N) t - 180 with t = (p + 1/2)/N and N
    the training length, which goes from pole to pole in sqrt(pi N)/2 turns, about as far apart as points along them.
    Past N it turns back at the pole, and so on; as the number of turns is irrational, no point comes twice.
    """
    points = spec.points()
    if spec.positions is not None:
        return np.remainder(points[..., 0], 360.0), points[..., 1]
    way = (points + 0.5) / spec.train_length
    there_and_back = np.remainder(way, 2.0)
    height = 2.0 * np.minimum(there_and_back, 2.0 - there_and_back) - 1.0
    longitude = 360.0 * np.remainder(np.sqrt(np.pi * spec.train_length) / 2 * way, 1.0) - 180.0
    return longitude, np.degrees(np.arcsin(height))


def directions(spec: Spec) -> tuple[Array, Array, Array, Array]:
    """cos and sin of the longitude, cos and sin of the latitude, (..., N) each."""
    longitude, latitude = (np.radians(each) for each in coordinates(spec))
    return np.cos(longitude), np.sin(longitude), np.cos(latitude), np.sin(latitude)
