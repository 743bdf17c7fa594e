"""`fastpe.resize`: what it is given is checked before any of it is used."""

import re

import numpy as np
import pytest

import fastpe

# for resizing from sides of 2: how many sides, the name of the new ones, and the rows of a table
GRIDS = {
    "learned_2d": (2, "new_grid", 4),
    "factorised_st": (3, "new_grid", 4),
    "swin_bias": (2, "new_window", 9),
    "beit_bias": (2, "new_window", 9),
}


def tables(name, table):
    return {"space": table, "time": np.ones((2, 2))} if name == "factorised_st" else {"table": table}


def resize(name, params, old, new, **more):
    argument = GRIDS[name][1]
    return fastpe.resize(name, params, **{argument.removeprefix("new_"): old, argument: new}, **more)


@pytest.mark.parametrize("name", GRIDS)
def test_sides_of_grids_are_checked(name):
    count, argument, rows = GRIDS[name]
    params, old = tables(name, np.ones((rows, 2))), (2,) * count
    cases = [(TypeError, wrong) for wrong in (3, "ab", "22", (2.5, 2, 2)[:count], None, (True, 2, 2)[:count])]
    cases += [(ValueError, wrong) for wrong in ((), (3,), (2, 2, 2, 2), (3, -5, 5)[:count], (0, 1, 1)[:count])]
    for error, wrong in cases:
        expected = re.escape(f" must be {count} integers >= 1, not {wrong!r}")
        with pytest.raises(error, match=f"^{argument}{expected}"):
            resize(name, params, old, wrong)
        with pytest.raises(error, match=f"^{argument.removeprefix('new_')}{expected}"):
            resize(name, params, wrong, old)
    sides = np.arange(2, 2 + count)
    np.testing.assert_equal(resize(name, params, old, sides), resize(name, params, old, tuple(sides.tolist())))


@pytest.mark.parametrize("name", ["learned", *GRIDS])
def test_dtype_and_shape_of_tables_are_checked(name):
    def resized(table):
        if name == "learned":
            return fastpe.resize("learned", {"table": table}, length=9)
        count = GRIDS[name][0]
        return resize(name, tables(name, table), (2,) * count, (3,) * count)

    what = r"^params\['space'\]" if name == "factorised_st" else r"^params\['table'\]"
    for kind in (int, np.float16, bool):
        with pytest.raises(TypeError, match=f"{what} must hold float32 or float64 numbers, not {np.dtype(kind)}"):
            resized(np.ones((9, 2), kind))
    for shape in ((9,), (9, 0), (0, 2), (3, 3, 2)):
        with pytest.raises(ValueError, match=f"{what} must have the shape .*, not {re.escape(str(shape))}"):
            resized(np.ones(shape))
    with pytest.raises(ValueError, match=f"{what} must be finite in float32, but 1 of its "):
        resized(np.array([[np.nan, 0]] + [[0, 0]] * (GRIDS.get(name, [2])[-1] - 1), np.float32))


def test_tables_of_space_and_time_must_fit_the_grid():
    params = {"space": np.ones((12, 2)), "time": np.ones((3, 2))}
    with pytest.raises(ValueError, match=r"^params\['space'\] must have the shape \(9, C >= 1\), not \(12, 2\)"):
        resize("factorised_st", params, (2, 3, 3), (3, 5, 5))
    with pytest.raises(ValueError, match=r"^params\['time'\] must have the shape \(2, C >= 1\), not \(3, 2\)"):
        resize("factorised_st", params, (2, 3, 4), (3, 5, 5))
    with pytest.raises(ValueError, match=r"^params\['time'\] must have the shape \(3, 2\), not \(3, 1\)"):
        resize("factorised_st", {**params, "time": np.ones((3, 1))}, (3, 3, 4), (3, 5, 5))
    for wrong in ({"space": params["space"]}, {**params, "frame": 1}):
        with pytest.raises(ValueError, match=r"^params must have the keys \['space', 'time'\], not \['space'"):
            resize("factorised_st", wrong, (3, 3, 4), (3, 5, 5))
    with pytest.raises(TypeError, match=r"^params must be a dict of arrays, not ndarray"):
        resize("factorised_st", params["space"], (3, 3, 4), (3, 5, 5))


def test_the_class_token_of_resize_is_checked():
    with pytest.raises(TypeError, match=r"^class_token must be True or False, not 'no'"):
        resize("learned_2d", {"table": np.ones((4, 2))}, (2, 2), (3, 3), class_token="no")
    with pytest.raises(TypeError, match=r"^class_token must be True or False, not 1"):
        resize("factorised_st", {"space": np.ones((5, 2)), "time": np.ones((2, 2))}, (2,) * 3, (3,) * 3, class_token=1)
    with pytest.raises(ValueError, match=r"^params\['table'\] must have the shape \(5, C >= 1\), not \(4, 2\)"):
        resize("learned_2d", {"table": np.ones((4, 2))}, (2, 2), (3, 3), class_token=True)


def test_resize_names_the_encodings_and_arguments_that_it_takes():
    with pytest.raises(ValueError, match=r"'rope' cannot be resized; encodings that can: beit_bias, facto"):
        fastpe.resize("rope", {}, length=3)
    with pytest.raises(TypeError, match=r"resize of 'learned' takes length: .* 'grid'"):
        fastpe.resize("learned", {"table": np.ones((2, 2))}, length=3, grid=(1, 2))
    with pytest.raises(TypeError, match=r"resize of 'learned' takes length: missing .* 'length'"):
        fastpe.resize("learned", {"table": np.ones((2, 2))})
