"""Biases of the offsets of a grid: printed indices, class tokens, resampling, grids other than the trained one."""

import math

import numpy as np
import pytest
from scipy.interpolate import RectBivariateSpline
from scipy.optimize import brentq
from scipy.special import expit
from through_attention import assert_same_gradients

import fastpe
from fastpe.encodings.bias.irpe import piecewise
from fastpe.encodings.bias.swinv2_cpb import logarithmic
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.encodings.parts.offset_tables import bicubic, resized


def pairs(slots: dict) -> np.ndarray:
    """The bias (H, N, N) that index and values make."""
    return slots["values"][:, slots["index"]]


def numbered(name: str, length: int, **request) -> dict:
    """The slots of a learned table whose entries are their own numbers."""
    request = {"dtype": np.float64, **request}
    shape = fastpe.init(name, train_length=request.get("train_length", length), **{
        key: value for key, value in request.items() if key not in ("train_length", "positions")
    })["table"].shape  # fmt: skip
    table = np.arange(float(max(shape))).reshape(shape)
    return fastpe.build(name, length, params={"table": table}, **request)


# ---------------------------------------------------------------------------------------------------------------------
# Swin and BEiT


def test_a_smaller_grid_uses_the_middle_of_the_table():
    whole = pairs(numbered("swin_bias", 12, grid=(3, 4)))[0]
    part = pairs(numbered("swin_bias", 4, train_length=12, window=(3, 4)))[0]
    cells = [0, 1, 4, 5]
    np.testing.assert_array_equal(part, whole[np.ix_(cells, cells)])


def test_given_cells_are_those_of_the_raster():
    whole = pairs(numbered("swin_bias", 12, grid=(3, 4)))[0]
    cells = np.array([5, 0, 11, 7])
    places = np.stack(np.unravel_index(cells, (3, 4)), -1)
    some = numbered("swin_bias", 4, train_length=12, window=(3, 4), positions=np.stack([places, places + 40]))
    np.testing.assert_array_equal(pairs(some)[0], np.stack([whole[np.ix_(cells, cells)]] * 2))


@pytest.mark.parametrize("name", ["swin_bias", "beit_bias"])
@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        ({"length": 20, "train_length": 16}, BeyondTrainingLength, "windows of 4 x 4, not for a grid of 4 x 5; option"),
        ({"length": 4, "window": (1, 9)}, BeyondTrainingLength, "windows of 1 x 9, not for a grid of 2 x 2"),
        (
            {"length": 2, "positions": [[0, 0], [3, 0]], "window": (3, 3)},
            BeyondTrainingLength,
            r"positions over \(4, 1\)",
        ),
        ({"length": 2, "positions": [[0, 0], [0.5, 0]]}, ValueError, "needs integer positions, but one is 0.5"),
        ({"length": 6, "grid": (2, 2)}, ValueError, "'grid' must be 2 sides whose product is 6"),
        ({"length": 6, "window": (2, 0)}, ValueError, "'window' must be two sides of at least 1"),
    ],
)
def test_windows_and_positions_outside_the_table_are_refused(name, request_, error, words):
    with pytest.raises(error, match=words):
        fastpe.build(name, **request_)


# PyTorch 2.13, interpolate of [[0, 1, 4], [9, 16, 25], [36, 49, 64]] to (5, 5), mode "bicubic", align_corners False
BICUBIC = np.array(
    [
        [-0.904704, -0.874016, -0.44, 1.074016, 2.216704],
        [1.269984, 2.319136, 4.444, 7.648864, 9.810016],
        [8.328, 11.068, 16.0, 22.012, 25.864],
        [25.106016, 29.536864, 37.276, 46.095136, 51.637984],
        [37.288704, 42.738016, 52.168, 62.677984, 69.239296],
    ]
)


def test_a_resized_table_is_the_one_of_image_libraries():
    table = np.arange(9.0)[:, None] ** 2 * [1, -2]
    got = resized(table, (2, 2), (3, 3))
    np.testing.assert_allclose(got, BICUBIC.reshape(-1, 1) * [1, -2], atol=1e-13)
    np.testing.assert_allclose(bicubic(27, 13).sum(axis=1), 1, rtol=1e-14)
    built = fastpe.build("swin_bias", 9, train_length=4, heads=2, params={"table": table}, beyond="resize")
    np.testing.assert_allclose(built["values"].T, got, rtol=1e-6)
    same = fastpe.build("swin_bias", 4, train_length=4, heads=2, params={"table": table}, beyond="resize")
    np.testing.assert_array_equal(same["values"].T, table)


def test_cells_far_from_the_origin_have_the_entries_of_near_ones():
    near = np.array([[0, 0], [0, 1], [3, 2]])
    for name, far in (("swin_bias", 2**27 - 20), ("beit_bias", -(2**24))):
        request = {"window": (200, 14), "train_length": 3}
        found = fastpe.build(name, 3, positions=near + far, **request)["index"]
        np.testing.assert_array_equal(found, fastpe.build(name, 3, positions=near, **request)["index"])
        np.testing.assert_array_equal(
            found, fastpe.build(name, 3, positions=near + far, reference=True, **request)["index"]
        )


def test_beit_has_three_entries_for_its_class_token():
    index = fastpe.build("beit_bias", 5, class_token=True)["index"]
    np.testing.assert_array_equal(index[1:, 1:], fastpe.build("swin_bias", 4)["index"])
    np.testing.assert_array_equal(index[0], [11, 9, 9, 9, 9])
    np.testing.assert_array_equal(index[:, 0], [11, 10, 10, 10, 10])
    table = np.arange(12.0)[:, None]
    larger = fastpe.build("beit_bias", 10, train_length=5, class_token=True, beyond="resize", params={"table": table})
    assert pairs(larger)[0, :2, :2].tolist() == [[11, 9], [10, pytest.approx(4)]]
    longer = fastpe.resize("beit_bias", {"table": table}, window=(2, 2), new_window=(3, 3))
    again = fastpe.build("beit_bias", 10, train_length=10, class_token=True, params=longer)
    np.testing.assert_allclose(pairs(again), pairs(larger), rtol=1e-6)


@pytest.mark.parametrize(("window", "grid"), [((3, 3), (5, 6)), ((7, 4), (14, 9)), ((5, 5), (3, 4)), ((3, 3), (40, 4))])
def test_beit_is_resized_by_a_spline_over_places_that_grow_apart(window, grid):
    """SciPy's spline of two variables at the authors' places, found here to the last digit instead of to 1e-6."""
    table = np.random.default_rng(0).standard_normal((math.prod(2 * side - 1 for side in window), 2))
    places = []
    for old, new in zip(window, grid, strict=True):
        gaps = np.arange(old - 1)

        def end(q, gaps=gaps, new=new):
            return (q**gaps).sum() - (new - 1)

        q = brentq(end, 1.01, 1.5, xtol=1e-13) if end(1.01) < 0 < end(1.5) else 1.01 if end(1.01) >= 0 else 1.5
        behind = np.cumsum(q**gaps)
        places.append(np.concatenate([-behind[::-1], [0], behind]))
    wanted = [np.arange(1.0 - new, new) for new in grid]
    image = table.reshape(*map(len, places), 2)
    expected = np.stack([RectBivariateSpline(*places, image[..., h])(*wanted).ravel() for h in range(2)], axis=1)
    resized_table = fastpe.resize("beit_bias", {"table": table}, window=window, new_window=grid)["table"]
    np.testing.assert_allclose(resized_table, expected, atol=2e-4)
    if grid == (5, 6):
        spec = {"heads": 2, "params": {"table": table}, "window": window, "grid": grid, "dtype": np.float64}
        built = fastpe.build("beit_bias", 30, beyond="resize", **spec)
        np.testing.assert_allclose(built["values"].T, expected, atol=2e-4)


def test_gradients_of_a_resized_table_with_a_class_token():
    options = {"class_token": True, "train_length": 5, "beyond": "resize", "causal": True}
    assert_same_gradients("beit_bias", 7, **options)


# ---------------------------------------------------------------------------------------------------------------------
# Swin V2


def test_printed_coordinates_of_swin_v2():
    got = logarithmic(np.array([[1.0, 2], [7, -3]]), (8, 8)).ravel()
    np.testing.assert_allclose(got, [0.366511891, 0.572069011, 1.056641667, -0.715613796], rtol=0, atol=5.1e-10)
    assert logarithmic(np.array([14.0, 0]), (8, 8))[0] == pytest.approx(1.36, abs=0.005)  # twice the window


def test_swin_v2_is_its_network_at_every_pair_and_at_any_grid():
    params = fastpe.init("swinv2_cpb", heads=3, train_length=16, hidden=5, dtype=np.float64)
    params = {key: 20 * value + 0.1 for key, value in params.items()}
    request = {"heads": 3, "hidden": 5, "train_length": 16, "dtype": np.float64, "params": params}
    for sides in ((4, 4), (3, 7)):
        bias = pairs(fastpe.build("swinv2_cpb", sides[0] * sides[1], grid=sides, window=(4, 4), **request))
        query, key = (2, 3), (1, 0)
        offset = logarithmic(np.subtract(query, key).astype(float), (4, 4))
        u = np.maximum(offset @ params["w1"] + params["b1"], 0) @ params["w2"]
        place = np.ravel_multi_index(np.transpose([query, key]), sides)
        np.testing.assert_allclose(bias[:, place[0], place[1]], 16 * expit(u), rtol=1e-14)
    given = fastpe.build("swinv2_cpb", 2, positions=[query, key], window=(4, 4), **request)["scores"]
    np.testing.assert_allclose(given[:, 0, 1], 16 * expit(u), rtol=1e-14)
    assert fastpe.build("swinv2_cpb", 1)["values"].item() == 8  # a window of one cell


# ---------------------------------------------------------------------------------------------------------------------
# iRPE


def test_printed_pieces_of_irpe():
    far = piecewise(np.array([0.0, 1, 2, 3, 4, 100, 1e9]), 1.9)
    np.testing.assert_array_equal(far, [0, 1, 2, 2, 3, 3, 3])
    np.testing.assert_array_equal(piecewise(-np.arange(5.0), 1.9), [0, -1, -2, -2, -3])
    np.testing.assert_array_equal(piecewise(np.array([0.5, 1.5, 2.5, -2.5]), 3.0), [0, 2, 2, -2])  # halves to even


@pytest.mark.parametrize(
    ("method", "buckets", "expected"),
    [
        # cells (4, 2) and (0, 0) of a grid of 5 x 3: dy = 4, dx = 2
        ("product", 49, (3 + 3) * 7 + 2 + 3),
        ("euclidean", 7, 3 + 3),  # sqrt 20 rounds to 4
        ("quant", 7, 3 + 3),
    ],
)
def test_buckets_of_irpe(method, buckets, expected):
    slots = fastpe.build("irpe", 15, grid=(5, 3), method=method)
    assert slots["values"].shape == (1, buckets)
    assert slots["index"][14, 0] == expected
    assert slots["index"][0, 14] == (expected if method != "product" else (3 - 3) * 7 - 2 + 3)
    one = fastpe.build("irpe", 16, grid=(5, 3), method=method, class_token=True)
    assert one["values"].shape == (1, buckets + 1)
    np.testing.assert_array_equal(one["index"][1:, 1:], slots["index"])
    np.testing.assert_array_equal([one["index"][0], one["index"][:, 0]], buckets)


def test_irpes_cross_adds_a_number_of_the_row_and_one_of_the_column():
    rows, columns = np.arange(8.0)[None], 100.0 * np.arange(8)[None]
    slots = fastpe.build(
        "irpe", 7, grid=(3, 2), method="cross", class_token=True, params={"rows": rows, "columns": columns}
    )
    bias = pairs(slots)[0]
    assert bias[0, 3] == bias[5, 0] == 707
    np.testing.assert_array_equal(bias[1, 1:], [303, 203, 302, 202, 301, 201])


def test_irpe_clips_far_offsets_and_shares_heads_if_told_to():
    index = fastpe.build("irpe", 400, train_length=16)["index"]
    assert index[0, 399] == index[0, 20 * 10 + 10] == 0
    rng = np.random.default_rng(0)
    own = rng.normal(size=(3, 49))
    slots = fastpe.build("irpe", 9, heads=3, shared_heads=False, params={"table": own}, dtype=np.float64)
    np.testing.assert_array_equal(slots["values"], own)
    shared = fastpe.build("irpe", 9, heads=3, params={"table": own[:1]}, dtype=np.float64)
    np.testing.assert_array_equal(shared["values"], own[[0, 0, 0]])
