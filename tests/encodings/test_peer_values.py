"""The encodings beside what other packages gave (made by `make_peer_values.py`), wherever the packages are."""

from collections import Counter

import make_peer_values
import pytest
from peer_case import compare
from peer_cases import CASES, WITHOUT

import fastpe


@pytest.fixture(scope="module")
def stored():
    return make_peer_values.stored()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_stored_values_agree(case, stored):
    compare(case, stored[0][case.name])


def test_every_encoding_has_a_peer_or_a_reason(stored):
    names = Counter(case.name for case in CASES)
    assert max(names.values()) == 1
    assert set(names) == set(stored[0]) == set(stored[1])
    compared = {case.scheme for case in CASES}
    assert not compared & set(WITHOUT)
    assert compared | set(WITHOUT) == set(fastpe.list_encodings())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_difference_has_a_reason_and_an_exact_value(case):
    """Equal up to rounding in float64, or explained, with our side shown right."""
    if case.tolerance > 1e-12 or case.differs:
        assert case.why
        assert case.exact is not None


@pytest.mark.full("takes seconds")
def test_the_table_is_that_of_the_cases(stored):
    """But for the figures, whose last digits are the machine's."""

    def without_figures(text):
        rows = [line.split(" | ") for line in text.splitlines()]
        return [(*row[:3], row[-1]) if len(row) == 6 else tuple(row) for row in rows]

    assert without_figures(make_peer_values.TABLE.read_text()) == without_figures(make_peer_values.table(*stored))
