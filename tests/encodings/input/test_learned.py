"""The learned table: rows, what happens past its end, its initial values."""

import numpy as np
import pytest
from scipy import ndimage

import fastpe
from fastpe.encodings import combined
from fastpe.encodings.combined import remarks
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.encodings.registry import parse
from fastpe.encodings.slots import make_spec

TABLE = np.arange(8.0).reshape(4, 2) ** 2


def rows(length: int, **keywords: object) -> np.ndarray:
    keywords = {"dim": 2, "train_length": 4, "dtype": np.float64, "params": {"table": TABLE}, **keywords}
    return fastpe.build("learned", length, **keywords)["table"]


def test_rows_are_looked_up_in_any_order() -> None:
    np.testing.assert_array_equal(rows(5, positions=[3, 0, 0, 2, 1]), TABLE[[3, 0, 0, 2, 1]])
    np.testing.assert_array_equal(rows(2, start=2), TABLE[2:])


def test_past_the_table() -> None:
    with pytest.raises(BeyondTrainingLength, match="no row for position 4: its table ends with the training length 4"):
        rows(5)
    with pytest.raises(BeyondTrainingLength, match="no row for position 4"):
        rows(5, reference=True)
    np.testing.assert_array_equal(rows(6, beyond="clip"), TABLE[[0, 1, 2, 3, 3, 3]])
    np.testing.assert_array_equal(rows(4, beyond="interp"), TABLE)
    resized = np.stack([ndimage.zoom(TABLE[:, c], 9 / 4, order=1) for c in range(2)], axis=1)
    np.testing.assert_allclose(rows(9, beyond="interp"), resized, rtol=1e-13)


def test_clipping_is_remarked() -> None:
    parts = parse("learned", {"beyond": "clip"})
    assert remarks(parts, make_spec(4, train_length=4)) == ()
    (remark,) = remarks(parts, make_spec(6, train_length=4))
    assert remark == "learned: 2 of 6 positions lie past the training length 4 and use its last row"


def test_rows_that_did_not_occur_get_no_gradient() -> None:
    got = fastpe.pull("learned", 3, {"table": np.ones((3, 2))}, params={"table": TABLE}, dim=2, train_length=4)["table"]
    np.testing.assert_array_equal(got, [[1, 1], [1, 1], [1, 1], [0, 0]])
    got = fastpe.pull(
        "learned", 6, {"table": np.ones((6, 2))}, params={"table": TABLE}, dim=2, train_length=4, beyond="clip"
    )["table"]
    np.testing.assert_array_equal(got[:, 0], [1, 1, 1, 3])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_bad_value_in_a_large_table_is_found(dtype: str, bad: float) -> None:
    rows = np.zeros((2**12 + 1, 67), dtype)
    for place in (0, *range(5000, 5064, 8), rows.size - 1):  # in each of the vectors that are looked at together
        rows.flat[place] = bad
        with pytest.raises(ValueError, match=r"params\['table'\] must be finite.* 1 of its"):
            fastpe.build("learned", len(rows), dim=67, dtype=dtype, params={"table": rows})
        rows.flat[place] = -3.5
        assert combined.largest(rows) == 3.5
        rows.flat[place] = 0.0
