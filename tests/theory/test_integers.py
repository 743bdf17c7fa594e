"""Theory computes with the integers that it has checked, not with what it was given."""

import numpy as np
import pytest
from integer_kinds import Index

from fastpe.theory import biases


@pytest.mark.parametrize("kind", [Index, np.uint8])
def test_integers_of_any_type_are_the_int_that_they_equal(kind):
    assert biases.alibi_drift(0.002, kind(50), kind(200)).value == biases.alibi_drift(0.002, 50, 200).value
