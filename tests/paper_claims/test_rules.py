"""Rules: what each makes of values, and that bounds are taken from their certain end."""

import pytest

from fastpe.paper_claims.record import Claim, stored
from fastpe.paper_claims.rules import (
    Agree,
    Bounds,
    Holds,
    HoldsIf,
    Measured,
    Needs,
    Quoted,
    Readings,
    Sentences,
    high,
    low,
)
from fastpe.theory.value import certified, estimate, exact

YES, NO = Holds(lambda: True), Holds(lambda: False)
IF = HoldsIf(lambda: False, lambda: True, "it rains")
OPEN = Needs(("x", "y"), ("x",))


def test_verdicts_of_one_sentence():
    assert (YES({}), NO({}), IF({})) == ("TRUE", "FALSE", "TRUE IF")
    assert HoldsIf(lambda: True, lambda: False, "")({}) == "TRUE"
    assert HoldsIf(lambda: False, lambda: False, "")({}) == "FALSE"
    assert IF.note() == "true if it rains"
    assert Bounds(lambda: True, lambda: True)({}) == "TRUE"
    assert Bounds(lambda: True, lambda: False)({}) == "VACUOUS"
    assert Bounds(lambda: False, lambda: True)({}) == "FALSE"
    assert Measured()({}) == "EMPIRICAL"


def test_definitions_and_sources():
    assert (OPEN({}), OPEN.missing, OPEN.note()) == ("UNDEFINED", ("y",), "not defined: y")
    assert Needs(("x",), ("x",))({}) == "TRUE"
    assert Needs(("x",), ("x",), NO)({}) == "FALSE"
    quoted = Quoted({"a": "1", "b": "2"}, {"a": "1", "b": "3"}, "the book")
    assert (quoted({}), quoted.note()) == ("FALSE", "the source, the book, differs in b (paper: 2; source: 3)")
    assert Quoted({"a": "1"}, {"a": "1"}, "the book")({}) == "TRUE"
    missing = Quoted({"a": "1"}, {}, "the book")
    assert missing.note() == "the source, the book, differs in a (paper: 1; source: not mentioned)"


def test_several_sentences_are_as_good_as_the_worst():
    order = [NO, OPEN, Measured(), Bounds(lambda: True, lambda: False), IF, YES]
    words = [rule({}) for rule in order]
    assert words == ["FALSE", "UNDEFINED", "EMPIRICAL", "VACUOUS", "TRUE IF", "TRUE"]
    for i, worst in enumerate(words):
        found = Sentences({str(k): rule for k, rule in enumerate(order[i:][::-1])})
        assert found({}) == worst
        assert list(found.parts({}).values()) == words[i:][::-1]
    assert Sentences({"a": IF, "b": OPEN}).note() == "true if it rains; not defined: y"


def test_readings_that_differ_leave_a_claim_undefined():
    assert Readings({"a": YES, "b": NO})({}) == "UNDEFINED"
    assert Readings({"a": NO, "b": NO})({}) == "FALSE"
    assert Agree(("a", "b"))({"a": exact(1.0, ""), "b": exact(2.0, "")}) == "UNDEFINED"
    assert Agree(("a", "b"))({"a": exact(1.0, ""), "b": exact(1.0, "")}) == "TRUE"


def test_bounds_are_taken_from_their_certain_end():
    below, above = certified("", low=1.0), certified("", high=2.0)
    assert (low(below), high(below)) == (1.0, float("inf"))
    assert (low(above), high(above)) == (float("-inf"), 2.0)
    assert (low(estimate(2.0, 1.0, 3.0, "")), high(exact(2.0, ""))) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("text", "ends"),
    [("17", (16.5, 17.5)), ("-0.25", (-0.255, -0.245)), ("2.5e-3", (2.45e-3, 2.55e-3)), ("0 .. 0", (0.0, 0.0))],
)
def test_stored_digits(text, ends):
    assert stored(text) == pytest.approx(ends, rel=1e-12)


def test_a_value_just_inside_and_just_outside():
    claim = Claim("C0", "", "", YES, "{x:.3g}", lambda: {"x": exact(0.2549, "")}, {"x": "0.25"})
    assert claim.judge().outside == ()
    assert claim.judged({"x": exact(0.2551, "")}).outside == ("x",)
    assert claim.judged({"x": exact(0.2449, "")}).outside == ("x",)
    assert claim.judge().reason == "0.255"
