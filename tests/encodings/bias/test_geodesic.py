"""Great-circle penalties: known distances, and what they are of."""

import mpmath
import numpy as np
import pytest

import fastpe
from fastpe.doctor.allowed_error import fill_bound
from fastpe.encodings import registry
from fastpe.encodings.slots import make_spec

PLACES = np.array([[30.0, 45.0], [-60.0, 10.0], [30.0, -45.0], [210.0, -45.0], [30.0, 45.0]])


def test_the_known_angle_and_opposite_points() -> None:
    angles = -fastpe.build("geodesic", 5, positions=PLACES, slope=1.0, dtype=np.float64)["scores"][0]
    np.testing.assert_allclose(angles[0, 1], 1.44769786841, rtol=1e-11)
    np.testing.assert_allclose(angles[0, 1] * 6371.0088, 9223.29586, rtol=1e-8)  # km
    np.testing.assert_allclose(angles[[0, 0, 0], [2, 3, 4]], [np.pi / 2, np.pi, 0.0], atol=4e-16)
    np.testing.assert_array_equal(angles, angles.T)


def on_the_spiral(p: float, length: int) -> list[mpmath.mpf]:
    """The unit vector of position p."""
    t = (mpmath.mpf(p) + mpmath.mpf(1) / 2) / length
    longitude, there = mpmath.pi * mpmath.sqrt(mpmath.pi * length) * t - mpmath.pi, t % 2
    height = 2 * min(there, 2 - there) - 1
    flat = mpmath.sqrt(1 - height**2)
    return [mpmath.cos(longitude) * flat, mpmath.sin(longitude) * flat, height]


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("length", [50, 2**20, 10**8])
def test_the_spiral_is_exact_at_the_poles_between_them_and_past_the_training_length(
    length: int, reference: bool
) -> None:
    for start in (0, -length // 2, length // 3, length - 3, 13 * length // 10):
        request = {"train_length": length, "start": start, "dtype": np.float64, "reference": reference}
        scores = fastpe.build("geodesic", 5, slope=1.0, **request)["scores"][0]
        table = fastpe.build("cartesian3d", 5, dim=3, **request)["table"]
        with mpmath.workdps(50):
            points = [on_the_spiral(start + i, length) for i in range(5)]
            for i, a in enumerate(points):
                assert max(abs(float(table[i, c]) - a[c]) for c in range(3)) < 8 * 2**-52
                for j, b in enumerate(points):
                    apart, together = (mpmath.norm([x + s * y for x, y in zip(a, b, strict=True)]) for s in (-1, 1))
                    assert abs(float(scores[i, j]) + 2 * mpmath.atan2(apart, together)) < 8 * 2**-52


@pytest.mark.parametrize(
    "request_",
    [
        {"train_length": 2**20},
        {"positions": [[7.0, 20.0], [7.001, 20.0], [7.0, 20.0005]]},
        {"positions": [[7.0, 20.0]] * 3},
    ],
)
def test_near_points_have_a_bound_that_holds(request_: dict) -> None:
    request_ = {**request_, "dtype": np.float64}
    (part,) = registry.parse("geodesic", {"slope": 1.0})
    exact = fastpe.build("geodesic", 3, slope=1.0, reference=True, **request_)
    bound = fill_bound(part, make_spec(3, axes=2, **request_), exact)["scores"]
    got = fastpe.build("geodesic", 3, slope=1.0, **request_)["scores"]
    assert (np.abs(got - exact["scores"]) <= bound).all()
    assert bound.max() < 1e-14


@pytest.mark.parametrize("apart", [1e-9, 1e-3, 1.0, 179.999999])
def test_small_and_large_angles_keep_their_digits(apart: float) -> None:
    lon, lat = 20.0, 50.0
    places = [[lon, lat], [lon + apart, lat]]
    angle = -fastpe.build("geodesic", 2, positions=places, slope=1.0, dtype=np.float64)["scores"][0, 0, 1]
    with mpmath.workdps(40):
        half = mpmath.sin(mpmath.radians(mpmath.mpf(places[1][0]) - lon) / 2) * mpmath.cos(mpmath.radians(lat))
        exact = 2 * mpmath.asin(half)
        assert abs(angle - exact) < 1e-15 * (1 + exact)


def test_slopes_are_those_of_alibi_times_the_scale() -> None:
    built = fastpe.build("geodesic", 5, heads=8, positions=PLACES, scale=3.0, dtype=np.float64)["scores"]
    one = fastpe.build("geodesic", 5, positions=PLACES, slope=1.0, dtype=np.float64)["scores"][0]
    np.testing.assert_allclose(built, 3.0 * 2.0 ** -np.arange(1, 9)[:, None, None] * one, rtol=1e-14)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("turn", [0.0, 360.0, -720.0])
def test_longitudes_just_west_of_greenwich_keep_their_digits(turn: float, reference: bool) -> None:
    places = np.array([[turn - 2.0**-20, 0.0], [turn + 2.0**-20, 0.0]])
    got = fastpe.build("geodesic", 2, positions=places, slope=1.0, dtype=np.float64, reference=reference)["scores"]
    np.testing.assert_array_max_ulp(-got[0, 0, 1], np.radians(2.0**-19), 16)
