"""The table of Abacus: its rows, its initial values, its end."""

import numpy as np
import pytest

import fastpe
from fastpe.encodings.encoding import BeyondTrainingLength


def test_rows_are_looked_up_by_place():
    table = np.arange(8.0).reshape(4, 2) ** 2
    keywords = {"dim": 2, "train_length": 4, "dtype": np.float64, "params": {"table": table}}
    for reference in (False, True):
        found = fastpe.build("abacus", 5, positions=[0, 3, 0, 1, 2], reference=reference, **keywords)["table"]
        np.testing.assert_array_equal(found, table[[0, 3, 0, 1, 2]])
    with pytest.raises(BeyondTrainingLength, match=r"^'abacus' has no row for position 4: its table has 4 rows; "):
        fastpe.build("abacus", 5, **keywords)
    more = fastpe.build("abacus", 6, rows=6, **(keywords | {"params": {"table": np.arange(12.0).reshape(6, 2)}}))[
        "table"
    ]
    assert more[:, 0].tolist() == [0, 2, 4, 6, 8, 10]
