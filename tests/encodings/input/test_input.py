"""Encodings added to the input, one coordinate: printed values, SciPy, mpmath, and what each page promises."""

import contextlib

import mpmath
import numpy as np
import pytest
from scipy import ndimage
from scipy.special import eval_chebyt

import fastpe


def table(name: str, length: int, **keywords: object) -> np.ndarray:
    return fastpe.build(name, length, **{"dtype": np.float64, **keywords})["table"]


# ---------------------------------------------------------------------------------------------------------------------
# sinusoidal's layouts, and tensor2tensor's table


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [1, 8, 21, 64])
def test_layouts_are_orders_of_the_same_channels(dim: int, dtype: type) -> None:
    keywords = {"dim": dim, "start": 77, "dtype": dtype, "scale": 0.5}
    pairs = table("sinusoidal", 200, **keywords)
    halves = table("sinusoidal", 200, layout="concatenated", **keywords)
    np.testing.assert_array_equal(halves, np.concatenate([pairs[:, 0::2], pairs[:, 1::2]], axis=1))


@pytest.mark.parametrize("dim", [2, 3, 9, 64])
def test_tensor2tensor_against_mpmath(dim: int) -> None:
    positions = np.array([0, 1, 5000, -12.75, 2**24 - 1, 1e-3])
    rows, half = table("sinusoidal_t2t", 6, dim=dim, positions=positions), dim // 2
    with mpmath.workdps(50):
        omega = [mpmath.exp(-t * mpmath.log(10000) / max(half - 1, 1)) for t in range(half)]
        right = [
            [f(mpmath.mpf(float(p)) * w) for f in (mpmath.sin, mpmath.cos) for w in omega] + [mpmath.mpf(0)] * (dim % 2)
            for p in positions
        ]
    np.testing.assert_allclose(rows, np.array(right, dtype=np.float64), rtol=0, atol=3e-16)


# ---------------------------------------------------------------------------------------------------------------------
# Learned


def test_a_learned_table_is_stretched() -> None:
    rows = fastpe.init("learned", dim=3, train_length=8, dtype=np.float64)["table"]
    longer = fastpe.resize("learned", {"table": rows}, length=20)["table"]
    expected = np.stack([ndimage.zoom(rows[:, c], 20 / 8, order=1) for c in range(3)], axis=1)
    np.testing.assert_allclose(longer, expected, atol=1e-16)
    np.testing.assert_array_equal(fastpe.resize("learned", {"table": rows}, length=8)["table"], rows)
    with pytest.raises(ValueError, match="length must be at least 8, not 7"):
        fastpe.resize("learned", {"table": rows}, length=7)


# ---------------------------------------------------------------------------------------------------------------------
# Axial


def test_axial_orders() -> None:
    slow, fast = np.arange(2.0)[:, None] * [1, 1], 10 + np.arange(3.0)[:, None] * [1, 1]
    trax = table("axial", 6, dim=4, grid=(2, 3), params={"axis0": slow, "axis1": fast})
    np.testing.assert_array_equal(trax[4], [1, 1, 11, 11])  # (a, b) = (1, 1)
    np.testing.assert_array_equal(trax[:, 0], [0, 0, 0, 1, 1, 1])
    dufter = table("axial", 6, dim=4, grid=(3, 2), order="dufter", params={"axis0": fast, "axis1": slow})
    np.testing.assert_array_equal(dufter[4], [11, 11, 1, 1])  # (r, s) = (1, 1), the blocks swapped
    np.testing.assert_array_equal(dufter[:, 0], [10, 11, 12, 10, 11, 12])


def test_axial_axes_widths_and_sums() -> None:
    assert {name: value.shape for name, value in fastpe.init("axial", dim=8, train_length=50).items()} == {
        "axis0": (5, 4),
        "axis1": (10, 4),
    }
    options = {"grid": (4, 4, 3), "widths": (3, 3, 2)}
    params = fastpe.init("axial", dim=8, train_length=48, **options, dtype=np.float64)
    rows = table("axial", 48, dim=8, params=params, **options)
    a, b, c = np.unravel_index(29, (4, 4, 3))
    np.testing.assert_array_equal(
        rows[29], np.concatenate([params[f"axis{k}"][place] for k, place in enumerate((a, b, c))])
    )
    assert len(np.unique(rows, axis=0)) == 48  # every position has a vector of its own
    sums = fastpe.init("axial", dim=8, train_length=6, combine="sum", dtype=np.float64)
    added = table("axial", 6, dim=8, combine="sum", params=sums)
    np.testing.assert_array_equal(added[5], sums["axis0"][1] + sums["axis1"][2])
    large = fastpe.init("axial", dim=256, train_length=2**18, widths=(64, 192))
    assert sum(value.size for value in large.values()) == 131072


@pytest.mark.parametrize("order", ["trax", "dufter"])
@pytest.mark.parametrize("positions", [None, [46, 3, 3, 0, 83]])
def test_axial_sums_have_a_part_of_every_axis(order: str, positions: list | None) -> None:
    """Axis k counts in its own decimal place: a part left out, or taken twice, is seen in the digit."""
    grid, length = (3, 7, 4), 84 if positions is None else 5
    params = {f"axis{k}": 100.0**k * np.arange(1.0, side + 1)[:, None] for k, side in enumerate(grid)}
    request = {"dim": 1, "grid": grid, "combine": "sum", "order": order, "params": params, "train_length": 84}
    places = np.array(
        np.unravel_index(np.arange(84) if positions is None else positions, grid, order="C" if order == "trax" else "F")
    )
    for scale in (1.0, 2.0):
        got = table("axial", length, positions=positions, scale=scale, **request)
        np.testing.assert_array_equal(got[:, 0], scale * (100.0 ** np.arange(3) @ (places + 1)))
    dtable = np.arange(1.0, length + 1)[:, None]
    pulled = fastpe.pull("axial", length, {"table": dtable}, positions=positions, dtype=np.float64, **request)
    for k, side in enumerate(grid):
        np.testing.assert_array_equal(pulled[f"axis{k}"][:, 0], np.bincount(places[k], dtable[:, 0], side))


# ---------------------------------------------------------------------------------------------------------------------
# Chebyshev


@pytest.mark.parametrize("kind", ["tanh", "clamp"])
def test_chebyshev_against_scipy(kind: str) -> None:
    positions = np.array([-3, 0, 0.25, 20, 50, 50.5, 400])
    rows = table("chebyshev", 7, map=kind, gamma=2.0, positions=positions, train_length=50, dim=200)
    place = np.tanh(2 * positions / 50) if kind == "tanh" else 2 * np.clip(positions, 0, 50) / 50 - 1
    np.testing.assert_allclose(rows, eval_chebyt(np.arange(200), place[:, None]), rtol=0, atol=2e-11)
    assert np.abs(rows).max() <= 1 + 1e-13
    np.testing.assert_allclose(rows[-1], 1, rtol=0, atol=1e-8)  # past the training length: all ones


def test_chebyshev_of_a_high_degree_against_mpmath() -> None:
    rows = table("chebyshev", 51, dim=513, map="clamp", train_length=50)
    with mpmath.workdps(40):
        for i in (0, 3, 24, 49, 50):
            x = mpmath.mpf(float(rows[i, 1]))
            for degree in (2, 255, 511, 512):
                assert abs(mpmath.cos(degree * mpmath.acos(x)) - rows[i, degree]) < 2e-12


# ---------------------------------------------------------------------------------------------------------------------
# Fourier features


def test_fourier_printed_values() -> None:
    got = table(
        "fourier", 1, dim=4, coordinates=2, learned=True, positions=[[0.25, 0.1]],
        params={"frequencies": [[0.5, 1.0], [2.0, -1.0]]},
    )  # fmt: skip
    np.testing.assert_allclose(got[0], [0.987688341, 0.587785252, 0.156434465, -0.809016994], rtol=0, atol=5.1e-10)


def test_fourier_coordinates() -> None:
    keywords = {"dim": 16, "coordinates": 2}
    implied = table("fourier", 12, **keywords)
    cells = np.indices((3, 4)).reshape(2, -1).T
    np.testing.assert_array_equal(table("fourier", 12, **keywords, positions=cells, grid=(3, 4)), implied)
    np.testing.assert_allclose(table("fourier", 12, **keywords, positions=cells / (3, 4)), implied, atol=1e-13)


def test_fourier_far_away_against_mpmath() -> None:
    frequencies = np.array([[31.7], [-0.001], [1e5 / 3]])
    positions = np.array([2**24 - 1, 12345678.25, -3.0, 2.0**26])
    got = table(
        "fourier", 4, dim=6, positions=positions, train_length=7, learned=True, params={"frequencies": frequencies}
    )
    with mpmath.workdps(50):
        angles = [[2 * mpmath.pi * mpmath.mpf(f) * mpmath.mpf(p) / 7 for f in frequencies[:, 0]] for p in positions]
        right = [[f(a) for f in (mpmath.sin, mpmath.cos) for a in row] for row in angles]
    np.testing.assert_allclose(got, np.array(right, dtype=np.float64), rtol=0, atol=1e-15)
    with pytest.raises(ValueError, match=r"params\['frequencies'\] must make at most 2\*\*50 turns"):
        table("fourier", 4, dim=6, learned=True, params={"frequencies": frequencies * 1e20})
    for change, refused in ((1 - 1e-12, False), (1 + 1e-12, True)):  # at length 4 a frequency of 1 makes a turn a place
        for settings in (
            {"learned": True, "params": {"frequencies": np.full((3, 1), change * 2.0**50)}},
            {"sigma": change * 2.0**50 / 8.3},
        ):
            with pytest.raises(ValueError, match="2\\*\\*50 turns") if refused else contextlib.nullcontext():
                table("fourier", 4, dim=6, **settings)


def test_fourier_frequencies_are_drawn_once_for_all_seeds() -> None:
    np.testing.assert_array_equal(table("fourier", 5, seed=0), table("fourier", 5, seed=1))
    assert np.abs(table("fourier", 5, draw=1) - table("fourier", 5)).max() > 0.5
    assert fastpe.init("fourier", train_length=5) == {}


# ---------------------------------------------------------------------------------------------------------------------
# Convolution


def test_taps_are_learned_as_they_are() -> None:
    taps = fastpe.init("conv", dim=64, train_length=50, kernel=16, dtype=np.float64)["taps"]
    assert taps.shape == (16, 64)
    slots = fastpe.build("conv", 9, dim=64, kernel=16, params={"taps": taps}, dtype=np.float64)
    np.testing.assert_array_equal(slots["taps"], taps)
    got = fastpe.pull("conv", 9, {"taps": 2 * taps}, dim=64, kernel=16, params={"taps": taps}, dtype=np.float64)
    np.testing.assert_array_equal(got["taps"], 2 * taps)
    assert fastpe.build("conv", 9, dim=4)["taps"].shape == (128, 4)
