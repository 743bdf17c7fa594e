"""Theory computes with the integers that it has checked, not with what it was given."""

import numpy as np
import pytest
from integer_kinds import Index

from fastpe.theory import biases, locality


@pytest.mark.parametrize("kind", [Index, np.uint8])
def test_integers_of_any_type_are_the_int_that_they_equal(kind):
    row = -0.002 * np.arange(100.0)
    for call in (
        lambda of: biases.alibi_drift(0.002, of(50), of(200)).value,
        lambda of: locality.normalised_difference(0.1, of(50), of(200)).value,
        lambda of: locality.equation_9(row, of(50), of(99))["near"].value,
        lambda of: locality.weight_ratio(row, of(0), of(49)).value,
    ):
        assert call(kind) == call(int)
