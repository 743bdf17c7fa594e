"""Encodings of points of the sphere and of space: printed values, SciPy's functions, and what may not change them."""

import mpmath
import numpy as np
import pytest
from scipy import special, stats
from scipy.spatial.transform import Rotation

import fastpe
from fastpe.encodings.combined import remarks
from fastpe.encodings.registry import parse
from fastpe.encodings.slots import make_spec

SPHERE = ["cartesian3d", "lonlat_wrap", "sph_harm"]
PLACE = (30.0, 45.0)


def rows(name: str, positions: object, dim: int, **options: object) -> np.ndarray:
    """The table of points given as (longitude, latitude)."""
    positions = np.asarray(positions, float)
    return fastpe.build(name, len(positions), dim=dim, positions=positions, dtype=np.float64, **options)["table"]


def scattered(count: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.stack([rng.uniform(-180, 180, count), np.degrees(np.arcsin(rng.uniform(-1, 1, count)))], axis=1)


# ---------------------------------------------------------------------------------------------------------------------
# The sphere


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("lonlat_wrap", [0.866025404, 0.5, 0.707106781, 0.707106781]),
        ("cartesian3d", [0.612372436, 0.353553391, 0.707106781]),
        (
            "sph_harm",
            [
                *(0.282094792, 0.172747075, -0.345494149, 0.29920671, 0.236543674),
                *(-0.273137108, 0.157695783, -0.473087348, 0.136568554),
            ],
        ),
    ],
)
def test_printed_rows(name: str, printed: list[float], reference: bool) -> None:
    row = rows(name, [PLACE], len(printed), reference=reference)[0]
    np.testing.assert_allclose(row, printed, rtol=0, atol=5.1e-10)


def test_degrees_to_the_last_place_against_mpmath() -> None:
    places = [(360 - 1e-9, -90 + 1e-9), (180.1, 89.99), (-30.7, 1e-7), (720.3, -45.0), (1e6 + 0.1, 30.0)]
    table = rows("lonlat_wrap", places, 4)
    with mpmath.workdps(50):
        for row, place in zip(table, places, strict=True):
            angles = [mpmath.radians(mpmath.mpf(degrees)) for degrees in place]
            exact = [f(angle) for angle in angles for f in (mpmath.cos, mpmath.sin)]
            for got, value in zip(row, exact, strict=True):
                assert abs(mpmath.mpf(got) - value) <= np.spacing(abs(float(value)))


@pytest.mark.skipif(not hasattr(special, "sph_harm_y"), reason="SciPy before 1.15 has no sph_harm_y")
def test_two_hundred_degrees_agree_with_scipy() -> None:
    points = np.concatenate([scattered(9), [[12.0, 90.0], [-180.0, -90.0], [5.0, 89.99]]])
    table = rows("sph_harm", points, 200**2)
    polar, azimuth = np.radians(points[:, 1]) + np.pi / 2, np.radians(points[:, 0]) + np.pi
    for degree in (0, 1, 2, 7, 60, 133, 199):
        for order in (-degree, -degree // 2, -1, 0, 1, degree // 3, degree):
            if abs(order) > degree:
                continue
            complex_ = special.sph_harm_y(degree, abs(order), polar, azimuth)
            part = complex_.imag if order < 0 else complex_.real
            expected = part * (np.sqrt(2) if order else 1)
            got = table[:, degree**2 + degree + order]
            np.testing.assert_allclose(got, expected, rtol=0, atol=2e-12, err_msg=f"{degree} {order}")


def test_products_depend_on_the_angle_alone() -> None:
    points = scattered(12)
    table, unit = rows("sph_harm", points, 30**2), rows("cartesian3d", points, 3)
    for degree in range(30):
        block = table[:, degree**2 : (degree + 1) ** 2]
        expected = (2 * degree + 1) / (4 * np.pi) * special.eval_legendre(degree, unit @ unit.T)
        np.testing.assert_allclose(block @ block.T, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SPHERE)
def test_the_seam_and_the_poles(name: str) -> None:
    seam = rows(name, [[180, 20], [-180, 20], [540, 20]], 16)
    np.testing.assert_allclose(seam[1:], seam[[0, 0]], rtol=0, atol=1e-14)
    poles = rows(name, [[0, 90], [77, 90], [-120, 90]], 16)
    if name == "lonlat_wrap":  # its known fault
        assert np.abs(poles[1:] - poles[0]).min(axis=0)[:2].max() > 0.5
    else:
        np.testing.assert_allclose(poles[1:], poles[[0, 0]], rtol=0, atol=1e-15)


@pytest.mark.parametrize("reference", [False, True])
def test_next_to_a_pole_nothing_is_lost(reference: bool) -> None:
    """x and y are small there, and may be all that fits: a latitude near 90 has few digits of its cosine left."""
    n = 2**20
    got = fastpe.build("cartesian3d", 4, dim=2, train_length=n, dtype=np.float64, reference=reference)["table"]
    north = [[20.0, 90 - 2.0**-20], [-50.0, 90 - 3 * 2.0**-30]]
    given = fastpe.build("cartesian3d", 2, dim=2, positions=north, dtype=np.float64, reference=reference)["table"]
    with mpmath.workdps(40):
        t = [(mpmath.mpf(p) + 0.5) / n for p in range(4)]
        spiral = [(2 * mpmath.sqrt(at * (1 - at)), mpmath.pi * (mpmath.sqrt(mpmath.pi * n) * at - 1)) for at in t]
        there = [(mpmath.cos(mpmath.radians(lat)), mpmath.radians(lon)) for lon, lat in north]
        for found, points in ((got, spiral), (given, there)):
            exact = [[float(radius * mpmath.cos(lon)), float(radius * mpmath.sin(lon))] for radius, lon in points]
            np.testing.assert_allclose(found, exact, rtol=0, atol=1e-15 * np.abs(exact).max())


@pytest.mark.parametrize("name", SPHERE)
def test_without_positions_a_spiral_is_taken(name: str) -> None:
    t = (np.arange(50) + 0.5) / 50
    spiral = np.stack([180 * np.sqrt(50 * np.pi) * t - 180, np.degrees(np.arcsin(2 * t - 1))], axis=1)
    got = fastpe.build(name, 50, dim=16, dtype=np.float64)["table"]
    np.testing.assert_allclose(got, rows(name, spiral, 16), rtol=0, atol=1e-13)
    longer = fastpe.build(name, 200, dim=16, train_length=50, dtype=np.float64)["table"]
    np.testing.assert_array_equal(longer[:50], got)
    distance = np.linalg.norm(longer[:, None] - longer, axis=-1) + np.eye(200)
    assert distance.min() > 0.01


def test_features_are_cut_off_or_padded_with_zeros() -> None:
    assert not rows("lonlat_wrap", [PLACE], 7)[0, 4:].any()
    np.testing.assert_array_equal(rows("cartesian3d", [PLACE], 2), rows("cartesian3d", [PLACE], 3)[:, :2])
    full = rows("sph_harm", [PLACE], 16)
    np.testing.assert_array_equal(rows("sph_harm", [PLACE], 12, degrees=4), full[:, :12])
    padded = rows("sph_harm", [PLACE], 20)
    np.testing.assert_array_equal(padded[0], [*full[0], 0, 0, 0, 0])
    np.testing.assert_array_equal(rows("sph_harm", [PLACE], 16, degrees=2)[0], [*full[0, :4], *np.zeros(12)])

    def said(name: str, dim: int, **options: object) -> tuple[str, ...]:
        return remarks(parse(name, options), make_spec(3, dim=dim, axes=2))

    assert said("sph_harm", 16) == said("lonlat_wrap", 4) == said("cartesian3d", 3) == ()
    assert said("sph_harm", 20) == ("sph_harm: 16 of 20 channels hold harmonics, the others are zero",)
    assert said("sph_harm", 12, degrees=4) == ("sph_harm: only the first 12 of 16 harmonics have a channel",)
    assert said("lonlat_wrap", 2) == ("lonlat_wrap: only the first 2 of 4 features have a channel",)


# ---------------------------------------------------------------------------------------------------------------------
# Space

POINTS = np.random.default_rng(2).normal(size=(7, 3))


def scores(positions: object, length: int = 7, **request: object) -> np.ndarray:
    request = {"heads": 2, "dtype": np.float64, "seed": 4, **request}
    return fastpe.build("rbf_distance", length, positions=positions, **request)["scores"]


def test_a_pair_by_hand() -> None:
    params = {
        "mu": [0.5, 2.0], "sigma": [0.3, -1.0], "mul": [1.5], "bias": [-0.25],
        "hidden_weight": [[1.0, -2.0], [0.5, 3.0]], "hidden_bias": [0.1, -0.2],
        "out_weight": [[2.0, -1.0], [0.75, 4.0]], "out_bias": [0.01, -0.02],
    }  # fmt: skip
    got = scores([[0, 0, 0], [1, 2, 2]], 2, params=params, gaussians=2)
    for distance, pairs in ((3.0, got[:, [0, 1], [1, 0]]), (0.0, got[:, [0, 1], [0, 1]])):
        y = 1.5 * distance - 0.25
        bells = stats.norm.pdf(y, [0.5, 2.0], [0.3 + 1e-5, 1.0 + 1e-5])
        hidden = bells @ np.array(params["hidden_weight"]) + params["hidden_bias"]
        active = hidden / 2 * (1 + special.erf(hidden / np.sqrt(2)))
        expected = active @ np.array(params["out_weight"]) + params["out_bias"]
        np.testing.assert_allclose(pairs, np.stack([expected, expected], axis=1), rtol=1e-13)


def test_moving_turning_and_mirroring_change_nothing() -> None:
    before = scores(POINTS)
    np.testing.assert_array_equal(before, before.swapaxes(1, 2))
    turned = Rotation.from_rotvec([0.3, -2, 1.1]).apply(POINTS) * [1, 1, 1] + [5, -3, 0.5]
    np.testing.assert_allclose(scores(turned), before, rtol=0, atol=1e-11)
    np.testing.assert_allclose(scores(POINTS * [1, -1, 1]), before, rtol=0, atol=1e-11)
    assert np.abs(scores(1.1 * POINTS) - before).max() > 1e-3


def test_far_points_get_the_network_without_gaussians() -> None:
    params = fastpe.init("rbf_distance", heads=2, train_length=4, dtype=np.float64)
    far = scores([[0, 0, 0], [1e6, 0, 0]], 2, params=params)[:, 0, 1]
    hidden = params["hidden_bias"]
    expected = hidden * special.ndtr(hidden) @ params["out_weight"] + params["out_bias"]
    np.testing.assert_allclose(far, expected, rtol=1e-13)


def test_without_points_a_helix_is_taken() -> None:
    t = np.arange(30) / 10
    helix = np.stack([np.cos(6 * np.pi * t) / 4, np.sin(6 * np.pi * t) / 4, 3 * t], axis=1)
    longer = scores(None, 30, train_length=10)
    np.testing.assert_allclose(longer, scores(helix, 30), rtol=0, atol=1e-11)
    np.testing.assert_array_equal(longer[:, :10, :10], scores(None, 10, train_length=10))
    np.testing.assert_allclose(scores(None, 30, train_length=10, start=4), longer, rtol=0, atol=1e-11)
    many = np.arange(1, 2000) / 2000
    distance = np.sqrt((np.sin(3 * np.pi * many) / 2) ** 2 + (3 * many) ** 2)
    assert (np.diff(distance) > 0).all()  # no two offsets within the training length are as far


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("positions", [None, POINTS])
def test_a_start_changes_no_digit(positions: np.ndarray | None, reference: bool) -> None:
    far = scores(positions, start=2.0**24 + 0.5, reference=reference)
    np.testing.assert_array_equal(far, scores(positions, reference=reference))
