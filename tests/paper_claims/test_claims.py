"""The claims of the paper: every one judged, as the specification judges it, by rules that follow the numbers."""

import dataclasses
import json
import math

import pytest
from wrong_values import check_deciding, check_stored

from fastpe.paper_claims import CLAIMS, expressiveness, polynomial_values
from fastpe.paper_claims.record import stored
from fastpe.paper_claims.rules import VERDICTS, Measured, Needs, Quoted, Readings, Sentences
from fastpe.theory.value import exact

# The specification's verdicts. Where it names two, the one that a single word can hold: a claim that is true under an
# assumption alone is TRUE IF (C21, C65, C78, C81, C85, C94, C105, C111), one of which a sentence is false is FALSE
# (C32, C59, C64, C92, C120, C121), one whose readings differ is UNDEFINED (C4, C7, C47, C80). Of C64 it knows clipping
# alone; a table that is interpolated keeps all its rows apart.
SAID = {
    "TRUE": "2 3 8 12 13 20 23 25 26 33 34 41 42 44 45 52 53 62 70 71 76 83 84 86 90 95 96 97 98 100 102 103 108 109 "
            "113 114 115",
    "TRUE IF": "6 15 21 28 35 40 46 65 66 72 74 75 78 81 85 89 94 105 111",
    "FALSE": "1 9 14 16 17 18 19 22 27 29 30 32 37 38 39 43 48 50 51 54 55 56 58 59 60 61 63 64 67 68 73 77 79 82 88 "
             "91 92 93 99 101 104 106 107 110 112 116 117 120 121",
    "VACUOUS": "118",
    "UNDEFINED": "4 7 10 11 24 31 36 47 49 69 80 87 119",
    "EMPIRICAL": "5 57",
}  # fmt: skip
EXPECTED = {f"C{number}": verdict for verdict, numbers in SAID.items() for number in numbers.split()}

# What no number decides.
DEFINITIONS = {"C10", "C11", "C12", "C24", "C31", "C36", "C49", "C69", "C119"}
SOURCES = {"C14", "C17", "C20", "C37"}
TRAINING = {"C5", "C57"}

every = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
_judged = {}


def judged(claim):
    """Judged once for all tests."""
    if claim.id not in _judged:
        _judged[claim.id] = claim.judge()
    return _judged[claim.id]


def test_every_claim_is_there_once():
    assert [claim.id for claim in CLAIMS] == [f"C{number}" for number in range(1, 122)]
    assert set(EXPECTED) == {claim.id for claim in CLAIMS}
    assert sum(len(numbers.split()) for numbers in SAID.values()) == 121


@every
def test_verdicts_are_those_of_the_specification(claim):
    found = judged(claim)
    assert found.verdict == EXPECTED[claim.id], found.reason
    assert found.verdict in VERDICTS
    assert set(found.parts.values()) <= set(VERDICTS)


@every
def test_values_lie_in_their_intervals(claim):
    found = judged(claim)
    assert found.outside == ()
    check_stored(claim, found)


@every
def test_reasons_and_statements_are_complete_sentences(claim):
    found = judged(claim)
    assert found.reason
    assert "{" not in found.reason
    assert not found.reason.endswith(".")
    assert claim.statement.endswith(".")
    assert set(claim.not_deciding) <= set(found.values)


@every
def test_a_wrong_value_changes_the_verdict(claim):
    """Of those that are said to decide, and of no other."""
    check_deciding(claim, judged(claim))


@every
def test_a_value_that_leaves_its_interval_is_named(claim):
    found = judged(claim)
    for name in found.values:
        low, high = stored(claim.expected[name])
        elsewhere = 0.0 if math.isinf(high) else high + (high - low) + 1e-9 * max(1.0, abs(high))
        assert claim.judged(found.values | {name: exact(elsewhere, "wrong")}).outside == (name,)


def rules(claim):
    """The claim's rule and those of its sentences."""
    found = [claim.rule]
    if isinstance(claim.rule, Sentences):
        found += claim.rule.sentences.values()
    if isinstance(claim.rule, Readings):
        found += claim.rule.readings.values()
    return found


@every
def test_definitions_and_sources_decide_claims_without_numbers(claim):
    """Definitions that are there make a claim true or false, and points on which a source agrees make it true."""
    for rule in rules(claim):
        if isinstance(rule, Needs):
            whole = dataclasses.replace(rule, defined=rule.needed)
            nothing = dataclasses.replace(rule, defined=())
            assert nothing({}) == "UNDEFINED"
            assert whole({}) != "UNDEFINED" if rule.then is None else whole.missing == ()
            assert (rule({}) == "UNDEFINED") == bool(rule.missing)
        if isinstance(rule, Quoted):
            assert dataclasses.replace(rule, said=rule.source)({}) == "TRUE"
            assert dataclasses.replace(rule, source={})({}) == "FALSE"


def test_which_claims_no_number_decides():
    kinds = {
        kind: {claim.id for claim in CLAIMS if claim.kind == kind} for kind in ("definitions", "source", "training")
    }
    assert kinds == {"definitions": DEFINITIONS, "source": SOURCES, "training": TRAINING}
    for claim in CLAIMS:
        deciding = set(judged(claim).values) - set(claim.not_deciding)
        assert bool(deciding) == (claim.kind == "numbers"), claim.id


def test_what_training_decides_names_a_command_that_is_there():
    from fastpe_cli.reproduce import reproduce

    for claim in CLAIMS:
        for rule in rules(claim):
            if isinstance(rule, Measured):
                assert rule.command.split()[:2] == ["fastpe", "reproduce"]
                assert rule.command.split()[2] in reproduce.commands


@pytest.mark.parametrize(
    ("power", "twice", "verdict"),
    [(0, 1, "TRUE"), (0, 2, "FALSE"), (1, 2, "TRUE"), (1, 3, "FALSE"), (2, 4, "TRUE"), (2, 6, "FALSE")],
)
def test_costs_grow_as_a_power_of_the_width(power, twice, verdict):
    values = {"x_64": exact(64.0, "numbers"), "x_128": exact(64.0 * twice, "numbers")}
    assert polynomial_values.of_order("x", power)(values) == verdict


def test_a_function_of_the_theory_that_goes_wrong_changes_verdicts(monkeypatch):
    claims = {claim.id: claim for claim in CLAIMS}
    monkeypatch.setattr(expressiveness, "least_error", lambda *given: exact(0.0, "wrong"))
    assert claims["C29"].judge().verdict == "TRUE"
    assert claims["C25"].judge().verdict == "FALSE"
    assert "error" in claims["C29"].judge().outside


@every
def test_claims_as_json(claim):
    found = json.loads(json.dumps(claim.to_dict(judged(claim)), allow_nan=False))
    assert (found["id"], found["verdict"]) == (claim.id, EXPECTED[claim.id])
    for name, value in judged(claim).values.items():
        assert float(found["values"][name]["value"]) == value.value
        assert found["values"][name]["decides"] == (name not in claim.not_deciding)
