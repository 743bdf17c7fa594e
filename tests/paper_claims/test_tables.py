"""Tables 1 to 4 of the paper: every cell there once, judged as the specification judges it, by what it rests on."""

import dataclasses
import json
from collections import Counter

import pytest
from wrong_values import check_deciding, check_stored

from fastpe.paper_claims import CLAIMS, tables
from fastpe.theory.value import exact

T, I, F, U = "TRUE", "TRUE IF", "FALSE", "UNDEFINED"  # noqa: E741  # one letter keeps a row of the paper on one line
# Rows and columns as in the paper. Advice ("weight decay") and what is left "TBD" have no truth: UNDEFINED.
EXPECTED = {
    (1, "Sinusoidal"): (T, T, I, T, F), (1, "Learned"): (T, U, T, T, U), (1, "Relative (Shaw et al.)"): (I, I, U, U, U),
    (1, "ALiBi"): (I, T, F, F, U), (1, "Wavelet"): (T, F, I, F, F), (1, "Polynomial"): (T, F, I, F, U),
    (2, "Sinusoidal"): (T, F, T), (2, "Learned"): (T, I, U), (2, "Relative"): (F, U, U), (2, "ALiBi"): (F, F, U),
    (2, "Proposed"): (U, U, U),
    (3, "Sinusoidal"): (F, U, F), (3, "Learned"): (T, U, T), (3, "Relative"): (T, F, I), (3, "ALiBi"): (U, U, I),
    (3, "Wavelet"): (I, U, F), (3, "Legendre"): (T, U, T),
    (4, "Wavelet (normalized)"): (T, T, F, T), (4, "Legendre (tanh)"): (T, T, U, T), (4, "ALiBi"): (F, F, U, T),
    (4, "Sinusoidal"): (T, T, U, T), (4, "Learned"): (T, U, U, T), (4, "Relative (Shaw)"): (F, U, I, F),
}  # fmt: skip
OWN = {cell.claim.id: cell.claim for cell in tables.CELLS if cell.claim.id.startswith("T")}


@pytest.fixture(scope="module")
def judged():
    return tables.judge()


@pytest.mark.full("takes seconds")
def test_every_cell_has_the_verdict_of_the_specification(judged):
    found = {}
    for each in judged:
        found.setdefault((each.cell.table, each.cell.row), []).append(each.verdict)
    assert {row: tuple(verdicts) for row, verdicts in found.items()} == EXPECTED
    assert Counter(cell.table for cell in tables.CELLS) == {1: 30, 2: 15, 3: 18, 4: 24}
    assert len({(cell.table, cell.row, cell.column) for cell in tables.CELLS}) == 87


@pytest.mark.full("takes seconds")
def test_a_cell_rests_on_a_claim_of_the_list_or_on_its_own(judged):
    listed = {claim.id: claim for claim in CLAIMS}
    for each in judged:
        claim, cell = each.cell.claim, each.cell
        assert claim is (listed | OWN)[claim.id]
        assert set(cell.parts) <= set(each.judgement.parts)
        if claim.id in OWN:
            assert claim.statement == f"{cell.row}, {cell.column}: {cell.printed}."


def test_values_lie_in_their_intervals(judged):
    assert tables.outside(judged) == []
    for each in judged:
        check_stored(each.cell.claim, each.judgement)


@pytest.mark.parametrize("identity", OWN)
def test_a_wrong_value_changes_the_verdict(identity, judged):
    claim = OWN[identity]
    found = next(each.judgement for each in judged if each.cell.claim is claim)
    check_deciding(claim, found)
    assert found.reason
    assert "{" not in found.reason


def test_a_value_outside_its_interval_is_named_once(judged):
    wrong = [each for each in judged if each.cell.claim.id == "C42"]
    assert len(wrong) == 2
    claim = wrong[0].cell.claim
    broken = claim.judged(wrong[0].judgement.values | {"exact": exact(7.5, "wrong")})
    cells = [tables.JudgedCell(each.cell, each.verdict, each.computed, broken) for each in wrong]
    assert tables.outside(cells) == ["C42 exact (7.5) not in 6.656854249"]


def test_a_cell_shows_what_was_computed(judged):
    found = {(each.cell.table, each.cell.row, each.cell.column): each for each in judged}
    assert "nearest = 1.471848" in found[1, "Sinusoidal", "absolute information"].computed
    assert found[4, "Relative (Shaw)", "cost"].computed == "shaw 64 = 64, shaw 128 = 128"
    assert found[2, "Learned", "regularisation"].computed == "-"


def test_a_cell_of_several_sentences_is_as_good_as_the_worst(monkeypatch):
    costs = next(cell for cell in tables.CELLS if cell.printed == "O(1)")
    mixed = dataclasses.replace(costs, parts=("wavelet O(d)", "Shaw O(1)"))
    monkeypatch.setattr(tables, "CELLS", (mixed, dataclasses.replace(costs, parts=("wavelet O(d)",))))
    assert [each.verdict for each in tables.judge()] == ["FALSE", "TRUE"]


def test_cells_as_json(judged):
    facts = json.loads(json.dumps([each.to_dict() for each in judged], allow_nan=False))
    assert facts[0]["rests_on"]["values"]["nearest"]["value"] == 1.471848048122478
    assert [each["verdict"] for each in facts] == [each.verdict for each in judged]
    assert facts[-1]["sentences"] == ["Shaw O(1)"]
