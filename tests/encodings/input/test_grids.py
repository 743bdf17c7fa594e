"""Encodings of grids: printed values, SciPy, the shared terms, and what happens on other grids."""

import tracemalloc

import mpmath
import numpy as np
import pytest
from scipy import ndimage

import fastpe
from fastpe.encodings.combined import remarks
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.encodings.parts.gather import Term, fill_terms, pull_terms
from fastpe.encodings.registry import parse
from fastpe.encodings.slots import make_spec
from fastpe.kernels.fills.table import LARGE


def build(name: str, length: int, **keywords: object) -> np.ndarray:
    (slot,) = fastpe.build(name, length, **{"dtype": np.float64, **keywords}).values()
    return slot


# ---------------------------------------------------------------------------------------------------------------------
# Fixed


def test_detr_acts_on_queries_and_keys_and_normalises_each_image() -> None:
    assert set(fastpe.build("sincos_2d_detr", 6, dim=8)) == {"qk_table"}
    images = [np.indices(grid).reshape(2, -1).T for grid in ((2, 3), (3, 2))]
    got = build("sincos_2d_detr", 6, dim=8, positions=np.stack(images))
    for one, grid in zip(got, ((2, 3), (3, 2)), strict=True):
        np.testing.assert_array_equal(one, build("sincos_2d_detr", 6, dim=8, grid=grid))


def test_printed_values_of_sincos_2d_mae() -> None:
    rows = build("sincos_2d_mae", 4, dim=8, grid=(2, 2))
    printed = np.array([0.841470985, 0.009999833, 0.540302306, 0.99995, 0, 0, 1, 1])
    np.testing.assert_allclose(rows[1], printed, rtol=0, atol=5.1e-10)
    np.testing.assert_allclose(rows[2], np.roll(printed, 4), rtol=0, atol=5.1e-10)
    with_class = build("sincos_2d_mae", 5, dim=8, grid=(2, 2), class_token=True)
    np.testing.assert_array_equal(with_class, np.concatenate([np.zeros((1, 8)), rows]))
    cells = [[7, 7], [0, 0], [0, 1], [1, 0], [1, 1]]  # the class token's own is not looked at
    given = build("sincos_2d_mae", 5, dim=8, class_token=True, positions=cells)
    np.testing.assert_array_equal(given, with_class)


def test_printed_values_of_sincos_3d() -> None:
    printed = [
        *[0.841470985, 0.009999833, 0.540302306, 0.99995, 0.909297427, 0.019998667, -0.416146837, 0.999800007],
        *[0, 0, 1, 1],
    ]
    row = build("sincos_3d", 12, dim=12, grid=(2, 2, 3))[(1 * 2 + 0) * 3 + 2]
    np.testing.assert_allclose(row, printed, rtol=0, atol=5.1e-10)
    wider = build("sincos_3d", 12, dim=15, grid=(2, 2, 3))[8]
    np.testing.assert_array_equal(wider, [*row, 0, 0, 0])
    (remark,) = remarks(parse("sincos_3d"), make_spec(12, dim=15))
    assert remark == "sincos_3d: 3 of 15 channels are zero: three coordinates take a multiple of 6"


def test_printed_values_of_flat_sincos() -> None:
    printed = [
        *[0.721058597, 0.692874086, -0.650962306, -0.759110056],
        *[0.765354953, -0.643608419, 0.225055503, 0.974345945],
    ]
    rows = build("flat_sincos", 8 * 14 * 14, dim=8, grid=(8, 14, 14))
    np.testing.assert_allclose(rows[227], printed, rtol=0, atol=5.1e-10)
    one = build("flat_sincos", 1, dim=8, grid=(8, 14, 14), positions=[[1, 2, 3]])
    np.testing.assert_array_equal(one[0], rows[227])
    np.testing.assert_array_equal(rows, build("sinusoidal", 8 * 14 * 14, dim=8))


FIXED = {"sincos_2d_detr": 2, "sincos_2d_mae": 2, "sincos_3d": 3}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FIXED)
def test_given_coordinates_are_those_of_the_raster(name: str, dtype: type) -> None:
    grid = (5, 40, 3)[: FIXED[name]]
    cells = np.indices(grid).reshape(len(grid), -1).T
    keywords = {"dim": 24, "dtype": dtype, "start": 2, "scale": 3.0}
    implied = build(name, len(cells), grid=grid, **keywords)
    np.testing.assert_allclose(
        build(name, len(cells), positions=cells, **keywords), implied, rtol=np.finfo(dtype).eps, atol=1e-15
    )


def test_far_coordinates_keep_their_phase() -> None:
    place = [[2.0**24 - 1, 12345678.25, -7.5]]
    got = build("sincos_3d", 1, dim=12, positions=place)
    with mpmath.workdps(50):
        t, y, x = (mpmath.mpf(value) for value in place[0])
        right = [f(a * w) for a in (t, x, y) for f in (mpmath.sin, mpmath.cos) for w in (1, mpmath.mpf("0.01"))]
    np.testing.assert_allclose(got[0], np.array(right, dtype=np.float64), rtol=0, atol=3e-16)


# ---------------------------------------------------------------------------------------------------------------------
# Learned


def resize(table: np.ndarray, grid: tuple, new_grid: tuple, **more: bool) -> np.ndarray:
    return fastpe.resize("learned_2d", {"table": table}, grid=grid, new_grid=new_grid, **more)["table"]


def test_a_learned_grid_is_resized_as_the_authors_do() -> None:
    np.testing.assert_array_equal(
        resize(np.arange(4.0)[:, None], (2, 2), (3, 3)).reshape(3, 3), [[0, 0.5, 1], [1, 1.5, 2], [2, 2.5, 3]]
    )
    rng = np.random.default_rng(0)
    for old, new in [((3, 4), (6, 5)), ((4, 4), (2, 3)), ((3, 4), (3, 9)), ((5, 7), (5, 7)), ((2, 6), (7, 2))]:
        image = rng.normal(size=(*old, 3))
        factors = [n / o for n, o in zip(new, old, strict=True)]
        expected = np.stack([ndimage.zoom(image[..., c], factors, order=1) for c in range(3)], axis=-1)
        np.testing.assert_allclose(resize(image.reshape(-1, 3), old, new), expected.reshape(-1, 3), atol=1e-14)
        token = rng.normal(size=(1, 3))
        both = resize(np.concatenate([token, image.reshape(-1, 3)]), old, new, class_token=True)
        np.testing.assert_allclose(both, np.concatenate([token, expected.reshape(-1, 3)]), atol=1e-14)


def test_on_its_own_grid_a_learned_table_gets_the_slots_gradient_in_its_own_memory() -> None:
    table = np.random.default_rng(0).standard_normal((1 + 512 * 512, 16), np.float32)
    keywords = {"dim": 16, "train_length": len(table), "grid": (512, 512), "class_token": True, "scale": 0.3}
    tracemalloc.start()
    try:
        got = fastpe.pull("learned_2d", len(table), {"table": table}, params={"table": table}, **keywords)["table"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(got, (0.3 * table.astype(np.float64)).astype(np.float32))
    assert peak < 2 * table.nbytes  # a sum in float64 alone takes so much


def test_a_learned_grid_takes_coordinates() -> None:
    table = np.arange(13.0)[:, None] ** 2
    keywords = {"dim": 1, "train_length": 13, "train_grid": (3, 4), "class_token": True, "params": {"table": table}}
    places = [[9, 9], [0, 0], [2, 3], [0.5, 1], [1.25, 2.5]]
    image = table[1:].reshape(3, 4)
    expected = ndimage.map_coordinates(image, np.array(places[1:]).T, order=1)
    got = build("learned_2d", 5, positions=places, **keywords)
    np.testing.assert_allclose(got[:, 0], [0, *expected], rtol=1e-14)
    batch = build("learned_2d", 5, positions=[places, places[:1] + places[:0:-1]], **keywords)
    np.testing.assert_array_equal(batch, [got, np.concatenate([got[:1], got[:0:-1]])])
    # on a grid of their own, whose corners are the learned one's
    other = build("learned_2d", 2, positions=[[0, 0], [4, 6]], grid=(5, 7), **keywords)
    np.testing.assert_array_equal(other[1], table[12])
    with pytest.raises(BeyondTrainingLength, match=r"no vector for coordinate 4 of axis 1: its grid is \(3, 4\)"):
        build("learned_2d", 2, positions=[[0, 0], [0, 4]], **keywords)
    with pytest.raises(ValueError, match=r"option 'train_grid' must be 2 sides whose product is 12, not \(3, 3\)"):
        build("learned_2d", 13, **{**keywords, "train_grid": (3, 3)})


@pytest.mark.parametrize(
    ("name", "grid"),
    [("learned_2d", (8,)), ("learned_2d", (2, 2, 2)), ("learned_2d", (-2, -4)),
     ("factorised_st", (8,)), ("factorised_st", (2, 4)), ("factorised_st", (-2, -4, 1))],
)  # fmt: skip
def test_a_wrong_grid_is_named(name, grid):
    """Also where it has as many cells as were learned."""
    sides = 2 if name == "learned_2d" else 3
    for length, train_length in ((8, 8), (12, 8), (8, 12)):
        with pytest.raises(ValueError, match=rf"^option 'grid' must be {sides} sides whose product is {length}, not "):
            fastpe.build(name, length, train_length=train_length, grid=grid)


def gradient_by_differences(name: str, params: dict, dslot: np.ndarray, **request: object) -> dict:
    """The slots are linear in the parameters: differences of one are exact but for rounding."""
    result = {}
    for key, value in params.items():
        result[key] = np.zeros_like(value)
        for place in np.ndindex(value.shape):
            one = {other: np.zeros_like(array) for other, array in params.items()}
            one[key][place] = 1.0
            result[key][place] = (build(name, params=one, reference=True, **request) * dslot).sum()
    return result


CELLS = np.array([[[1, 2, 0], [1, 2, 0]], [[0, 0, 0], [1, 0, 0]]])
REALS = np.array([[[0, 1.5], [2, 3], [0.25, 0.75]], [[1, 1], [2, 0], [1, 1]]])
LEARNED = {"train_grid": (3, 4), "train_length": 12}
SPACE_TIME = {"train_grid": (2, 3, 1), "train_length": 6}
OTHER_GRIDS = [
    ("learned_2d", {"length": 7, "grid": (2, 3), **LEARNED, "train_length": 13, "class_token": True}),
    ("learned_2d", {"length": 3, "positions": REALS, **LEARNED}),
    ("factorised_st", {"length": 13, "grid": (3, 2, 2), **SPACE_TIME, "train_length": 7, "class_token": True}),
    ("factorised_st", {"length": 2, "positions": CELLS, **SPACE_TIME}),
    ("learned_2d_detr", {"length": 2, "positions": CELLS[..., :2], "entries": 4}),
]


def test_one_grid_given_is_both_at_the_training_length() -> None:
    params = {"table": np.arange(6.0)[:, None]}
    for given in ({"grid": (3, 2)}, {"train_grid": (6, 1)}):
        np.testing.assert_array_equal(build("learned_2d", 6, dim=1, params=params, **given), params["table"])
    got = build("learned_2d", 2, dim=1, params=params, grid=(2, 1), train_grid=(6, 1), train_length=6)
    np.testing.assert_array_equal(got[:, 0], [0, 5])


@pytest.mark.parametrize(("name", "request_"), OTHER_GRIDS)
def test_gradients_on_other_grids_and_at_given_coordinates(name: str, request_: dict) -> None:
    request = {"dim": 4, "scale": 1.5, **request_}
    rng = np.random.default_rng(1)
    sizes = {key: request[key] for key in request if key not in ("length", "positions")}
    params = fastpe.init(name, **{"train_length": 2, **sizes}, dtype=np.float64)
    slots = fastpe.build(name, **request, params=params, dtype=np.float64)
    dslots = {slot: rng.normal(size=array.shape) for slot, array in slots.items()}
    got = fastpe.pull(name, **request, dslots=dslots, params=params, dtype=np.float64)
    expected = gradient_by_differences(name, params, *dslots.values(), **request)
    for key in params:
        np.testing.assert_allclose(got[key], expected[key], atol=1e-13)


def test_learned_2d_detr_joins_rows_and_columns() -> None:
    params = fastpe.init("learned_2d_detr", dim=6, train_length=6, dtype=np.float64)
    assert {key: value.shape for key, value in params.items()} == {"row": (50, 3), "column": (50, 3)}
    got = build("learned_2d_detr", 6, dim=6, grid=(2, 3), params=params)
    np.testing.assert_array_equal(got[5], [*params["column"][2], *params["row"][1]])


def test_factorised_st_adds_rows_of_space_and_time() -> None:
    drawn = fastpe.init("factorised_st", dim=64, train_length=4097, train_grid=(1, 64, 64), class_token=True)
    assert {key: value.shape for key, value in drawn.items()} == {"space": (4097, 64), "time": (1, 64)}
    params = {"space": np.arange(7.0)[:, None], "time": 100 * np.arange(1.0, 3.0)[:, None]}
    keywords = {"dim": 1, "train_length": 13, "train_grid": (2, 2, 3), "class_token": True, "params": params}
    rows = build("factorised_st", 13, grid=(2, 2, 3), **keywords)[:, 0]
    np.testing.assert_array_equal(rows, [0, *(100 + np.arange(1, 7)), *(200 + np.arange(1, 7))])
    # nearest neighbours: frames 0 0 1 of 3; rows 0 0 1 1 of 4; columns 0 of 1
    larger = build("factorised_st", 13, grid=(3, 4, 1), **keywords)[1:, 0].reshape(3, 4)
    np.testing.assert_array_equal(larger, [[101, 101, 104, 104]] * 2 + [[201, 201, 204, 204]])
    resized = fastpe.resize("factorised_st", params, grid=(2, 2, 3), new_grid=(3, 4, 1), class_token=True)
    again = build("factorised_st", 13, dim=1, train_grid=(3, 4, 1), class_token=True, params=resized)[1:, 0]
    np.testing.assert_array_equal(again.reshape(3, 4), larger)
    with pytest.raises(BeyondTrainingLength, match=r"no vector for coordinate 2 of axis 0: its grid is \(2, 2, 3\)"):
        build("factorised_st", 2, positions=[[0, 0, 0], [2, 0, 0]], **keywords)


def test_grids_without_sides_are_as_square_as_they_get() -> None:
    np.testing.assert_array_equal(build("sincos_2d_mae", 50, dim=8), build("sincos_2d_mae", 50, dim=8, grid=(5, 10)))


# ---------------------------------------------------------------------------------------------------------------------
# Terms


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shift", [0, 3])
def test_terms_of_a_raster_past_the_caches(dtype: type, shift: int) -> None:
    rng, length, side = np.random.default_rng(4), LARGE // (40 * np.dtype(dtype).itemsize) + 5, 13
    tables = [rng.normal(size=(rows, width)).astype(dtype) for rows, width in ((length // side + 2, 9), (side, 31))]
    guarded = np.full(length * 40 + 64, 7, dtype)
    out = guarded[32 + shift : 32 + shift + length * 40].reshape(length, 40)
    down, across = np.arange(len(tables[0])), np.arange(side)
    terms = [Term(tables[0], down, columns=0 * across), Term(tables[1], 0 * down, 9, columns=across)]
    fill_terms(out, terms, start=7)
    a, b = np.divmod(np.arange(7, length + 7), side)
    np.testing.assert_array_equal(out, np.concatenate([tables[0][a], tables[1][b]], axis=1))
    np.testing.assert_array_equal(guarded[: 32 + shift], 7)
    np.testing.assert_array_equal(guarded[32 + shift + length * 40 :], 7)
    ones = pull_terms(np.ones((length, 40), dtype), terms, start=7)
    for one, rows in zip(ones, (a, b), strict=True):
        np.testing.assert_array_equal(one[:, 0], np.bincount(rows, minlength=len(one)))
