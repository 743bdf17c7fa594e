"""Rotations by several coordinates, and large ones: printed values, mpmath, identities, the learned gradient."""

import math
import tracemalloc

import mpmath
import numpy as np
import pytest

import fastpe
from fastpe.doctor.allowed_error import fill_bound
from fastpe.encodings import registry
from fastpe.encodings.rotation import mrope
from fastpe.encodings.slots import make_spec
from fastpe.kernels.simd import FUSED, aligned_zeros

GRIDS = ["rope_2d", "rope_mixed"]


def turned(x: np.ndarray, angles: np.ndarray, pairs: str) -> np.ndarray:
    """x (D,) as complex numbers, times exp(i angle)."""
    half = len(x) // 2
    z = x[0::2] + 1j * x[1::2] if pairs == "interleaved" else x[:half] + 1j * x[half:]
    z = z * np.exp(1j * angles)
    return np.stack([z.real, z.imag], axis=1 if pairs == "interleaved" else 0).ravel()


def test_tokens_of_a_text_and_of_a_video() -> None:
    text = fastpe.build("mrope", 30, dim=24, start=4)
    plain = fastpe.build("rope", 30, dim=24, start=4, base=1000000.0)  # Qwen2-VL's rope_theta
    np.testing.assert_array_equal(text["angles"], plain["angles"])
    video = fastpe.build("mrope", 24, dim=24, grid=(2, 3, 4))["angles"]
    cells = [[t, y, x] for t in range(2) for y in range(3) for x in range(4)]
    np.testing.assert_array_equal(video, fastpe.build("mrope", 24, dim=24, positions=cells)["angles"])


@pytest.mark.parametrize("name", GRIDS)
def test_grids_are_rasters_and_a_class_token_is_not_rotated(name: str) -> None:
    cells = [[y, x] for y in range(3) for x in range(4)]
    grid = fastpe.build(name, 12, dim=16, heads=2)["angles"]
    for keywords in ({"grid": (3, 4)}, {"positions": cells}):
        again = fastpe.build(name, 12, dim=16, heads=2, **keywords)["angles"]
        np.testing.assert_array_equal(again, grid)
    led = fastpe.build(name, 13, dim=16, heads=2, class_token=True)["angles"]
    np.testing.assert_array_equal(led[:, 1:], grid)
    np.testing.assert_array_equal(led[:, 0], 0)
    wide = fastpe.build(name, 12, dim=16, heads=2, grid=(2, 6))["angles"]
    assert np.abs(wide - grid).max() > 0.1


# ---------------------------------------------------------------------------------------------------------------------
# Learned frequencies


def test_mixed_holds_axial_as_a_special_case() -> None:
    theta = 10.0 ** -np.arange(2)
    params = {"fx": np.array([[*theta, 0, 0]]), "fy": np.array([[0, 0, *theta]])}
    keywords = {"dim": 8, "dtype": np.float64, "start": -3}
    found = fastpe.build("rope_mixed", 20, params=params, **keywords)
    axial = fastpe.build("rope_2d", 20, **keywords)
    np.testing.assert_allclose(found["angles"], axial["angles"], rtol=0, atol=2e-15)  # 0.1 is not 100^(-1/2)


def test_mixed_angles_against_mpmath() -> None:
    rng = np.random.default_rng(6)
    limit = 2**24
    points = [rng.integers(-limit, limit, (8, 2)), rng.uniform(-limit, limit, (8, 2)), [[1, -1], [0, 1]]]
    keywords = {"positions": np.concatenate(points), "dim": 12, "heads": 2, "dtype": np.float64}
    params = {name: rng.normal(size=(2, 3)) * 10.0 ** rng.integers(-6, 2, (2, 3)) for name in ("fx", "fy")}
    params["fy"][0, 0] = params["fx"][0, 0] * (1 + 2e-16)  # what is left after the large terms cancel is right too
    angles = fastpe.build("rope_mixed", 18, params=params, **keywords)["angles"]
    with mpmath.workdps(60):
        for h, n, t in np.ndindex(2, 18, 3):
            y, x = (mpmath.mpf(float(each)) for each in keywords["positions"][n])
            exact = mpmath.mpf(float(params["fx"][h, t])) * x + mpmath.mpf(float(params["fy"][h, t])) * y
            exact -= 2 * mpmath.pi * mpmath.nint(exact / (2 * mpmath.pi))
            bound = (0.51 if FUSED else 1.01) * np.spacing(abs(float(exact)))
            assert abs(mpmath.mpf(float(angles[h, n, t])) - exact) <= bound


def test_initial_frequencies_are_the_authors() -> None:
    for dim, heads in ((64, 4), (24, 4)):
        params = fastpe.init("rope_mixed", dim=dim, heads=heads, train_length=9, dtype=np.float64)
        fx, fy, pairs, width = params["fx"], params["fy"], dim // heads // 2, dim // heads
        along = (pairs + 1) // 2
        sizes = [10.0 ** (-4 * t / width) for t in range(along)]
        np.testing.assert_allclose(np.hypot(fx, fy), [sizes + sizes[: pairs - along]] * heads, rtol=1e-14)
        across = (fx + 1j * fy) / sizes[0] / (fx + 1j * fy)[:, :1]  # seen from the first pair's direction
        np.testing.assert_allclose(np.angle(across[:, :along]), 0, rtol=0, atol=1e-14)
        np.testing.assert_allclose(np.angle(across[:, along:]), math.pi / 2, rtol=1e-14)
        assert len(set(fx[:, 0])) == heads


# ---------------------------------------------------------------------------------------------------------------------
# Large arrays and bad requests


@pytest.mark.parametrize(("pairs", "shift"), [(32, 0), (32, 1), (33, 0)])
def test_angles_past_the_caches_hold_the_same_values(pairs: int, shift: int) -> None:
    length = 2**16 + 77
    guarded = aligned_zeros(length * pairs + 32, np.float64)
    guarded += 7
    out = guarded[16 + shift : 16 + shift + length * pairs].reshape(1, length, pairs)
    fastpe.build("rope", length, dim=2 * pairs, out={"angles": out})
    np.testing.assert_array_equal(guarded[: 16 + shift], 7)
    np.testing.assert_array_equal(guarded[16 + shift + length * pairs :], 7)
    for start in (0, 15, length - 50):
        part = fastpe.build("rope", 50, dim=2 * pairs, start=start)["angles"]
        np.testing.assert_array_max_ulp(out[:, start : start + 50], part, 1)


@pytest.mark.parametrize("name", ["rope", "rope_yarn", "xpos"])
def test_out_needs_no_temporary_of_its_size(name: str) -> None:
    keywords = {"dim": 64, "causal": True, "train_length": 2**15}
    slots = fastpe.build(name, 2**16, **keywords)
    out = {slot: np.empty((*array.shape[:-1], 64))[..., ::-2] for slot, array in slots.items() if np.ndim(array)}
    tracemalloc.start()
    try:
        fastpe.build(name, 2**16, **keywords, out=out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < out["angles"].nbytes / 8
    np.testing.assert_array_equal(out["angles"], slots["angles"])


# ---------------------------------------------------------------------------------------------------------------------
# Other dealings of the pairs, other coordinates


def test_printed_pairs_dealt_out_in_turn() -> None:
    keywords = {"dim": 16, "base": 10000.0, "dtype": np.float64}
    cases = [
        ("interleaved", (4, 2, 2), [5, 2, 7],
         [5, 0.632455532, 0.7, 0.158113883, 0.02, 0.022135944, 0.005, 0.001581139],
         [2.009725880, -0.370624750, 1.448724002, 2.502684810]),
        ("time_last", (2, 3, 3), [5, 2, 7],
         [2, 2.213594362, 0.2, 0.221359436, 0.02, 0.022135944, 0.005, 0.001581139],
         [-2.052882205, 0.778741232, 1.448724002, 2.502684810]),
    ]  # fmt: skip
    for deal, sections, place, printed, rotation in cases:
        slots = fastpe.build("mrope", 1, positions=[place], sections=sections, deal=deal, **keywords)
        angles = slots["angles"][0, 0]
        np.testing.assert_allclose(np.exp(1j * angles), np.exp(1j * np.array(printed)), rtol=0, atol=5.1e-9)
        y = turned(np.linspace(1, 2.5, 16), angles, slots["pairs"])
        np.testing.assert_allclose(y[[0, 2, 5, 15]], rotation, rtol=0, atol=5.1e-10)
        text = fastpe.build("mrope", 30, dim=24, deal=deal)["angles"]
        np.testing.assert_array_equal(text, fastpe.build("rope", 30, dim=24, base=1e6)["angles"])
    wide = [
        [np.count_nonzero(fastpe.build("mrope", 1, dim=128, positions=[np.eye(3)[axis]], deal=deal)["angles"])
         for axis in range(3)]
        for deal in ("sections", "interleaved", "time_last")
    ]  # fmt: skip
    assert wide == [[16, 24, 24], [24, 20, 20], [16, 24, 24]]


def test_printed_positions_of_texts_and_videos() -> None:
    time, row, column = mrope.positions([3, (1, 3, 3), 1], centred=True).T.tolist()
    assert time == [0, 1, 2, *[3] * 9, 4]
    assert row == [0, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4]
    assert column == [0, 1, 2, 2, 3, 4, 2, 3, 4, 2, 3, 4, 4]
    assert mrope.positions([10, (3, 1, 1)], seconds=0.37, per_second=4).T[0, 10:].tolist() == [10, 11, 12]
    assert mrope.positions([(3, 1, 1), 1], seconds=1.0)[:, 0].tolist() == [0, 25, 50, 51]
    assert mrope.positions([4, (2, 3, 2), 2])[[0, 3, 4, 15, 16, 17]].tolist() == [
        [0, 0, 0], [3, 3, 3], [4, 4, 4], [5, 6, 5], [7, 7, 7], [8, 8, 8],
    ]  # fmt: skip
    for part in (0, (1, 2), (1, 0, 2)):
        with pytest.raises(ValueError, match="3 sides, all at least 1, not"):
            mrope.positions([part])


@pytest.mark.parametrize(
    ("normalise", "printed"),
    [
        ("separate", [-3.141592654, -0.314159265, -4.188790205, -0.418879020]),
        ("max", [-4.188790205, -0.418879020, -4.188790205, -0.418879020]),
        ("min", [-3.141592654, -0.314159265, -3.141592654, -0.314159265]),
    ],
)
def test_printed_angles_of_dinov3(normalise: str, printed: list[float]) -> None:
    slots = fastpe.build("rope_dinov3", 6, dim=8, grid=(2, 3), normalise=normalise, dtype=np.float64)
    found = np.exp(1j * slots["angles"][0, 0])
    np.testing.assert_allclose(found, np.exp(1j * np.array(printed)), rtol=0, atol=5.1e-9)


def test_dinov3_takes_places_coordinates_and_a_prefix() -> None:
    keywords = {"dim": 16, "heads": 2, "dtype": np.float64}
    for normalise in ("separate", "max", "min"):
        grid = fastpe.build("rope_dinov3", 12, grid=(3, 4), normalise=normalise, **keywords)["angles"]
        led = fastpe.build("rope_dinov3", 17, prefix_tokens=5, normalise=normalise, **keywords)["angles"]
        np.testing.assert_array_equal(led[:, 5:], grid)
        np.testing.assert_array_equal(led[:, :5], 0)
        cells = [[[y, x] for y in range(3) for x in range(4)]] * 2
        placed = fastpe.build("rope_dinov3", 12, positions=cells, grid=(3, 4), normalise=normalise, **keywords)
        np.testing.assert_array_equal(placed["angles"][1], grid)
    sides = {"max": (4, 4), "min": (3, 3), "separate": (3, 4)}
    for normalise, (down, across) in sides.items():
        y, x = np.meshgrid((2 * np.arange(3) + 1) / down - 1, (2 * np.arange(4) + 1) / across - 1, indexing="ij")
        seen = fastpe.build("rope_dinov3", 12, positions=np.stack([y, x], -1).reshape(12, 2), **keywords)["angles"]
        grid = fastpe.build("rope_dinov3", 12, grid=(3, 4), normalise=normalise, **keywords)["angles"]
        np.testing.assert_allclose(np.exp(1j * seen), np.exp(1j * grid), rtol=0, atol=4e-15)


def test_whole_turns_leave_no_angle() -> None:
    sizes = {"dim": 8, "heads": 1, "train_length": 1, "start": 100}  # 100 and 10 turns
    angles = fastpe.build("rope_dinov3", 1, **sizes, dtype=np.float64)["angles"]
    assert np.abs(angles).max() < 1e-28
    exact = fastpe.build("rope_dinov3", 1, **sizes, reference=True)
    (part,), spec = registry.parse("rope_dinov3", {}), make_spec(1, **sizes, dtype=np.float64)
    bound = fill_bound(part, spec, {"angles": exact["angles"]})
    assert (np.abs(angles - exact["angles"]) <= bound["angles"]).all()
    assert bound["angles"].max() < 1e-25  # and no larger angle passes for none


def test_rope_2d_scales_places_from_their_grid_to_the_trained_one() -> None:
    keywords = {"dim": 8, "base": 10000.0, "first": "row", "train_grid": (2, 2), "dtype": np.float64}
    angles = fastpe.build("rope_2d", 9, grid=(3, 3), **keywords)["angles"]
    np.testing.assert_allclose(angles[0, 7], np.array([2, 0.02, 1, 0.01]) * 2 / 3, rtol=1e-14)
    placed = fastpe.build("rope_2d", 1, positions=[[2, 1]], grid=(3, 3), **keywords)["angles"]
    np.testing.assert_array_equal(placed[0], angles[0, 7:8])
    on_trained = fastpe.build("rope_2d", 1, positions=[[2, 1]], **keywords)["angles"]
    np.testing.assert_allclose(on_trained[0, 0], [2, 0.02, 1, 0.01], rtol=1e-15)
