"""`show_claims`: the list of claims, one with its certificate, JSON in full precision, an id that is none."""

import json
import re

import click
import pytest
from command_line import refused

from fastpe import paper_claims
from fastpe.paper_claims import CLAIMS, claim
from fastpe.theory.value import exact
from fastpe_cli.paper_claims import show_claims

SOME = tuple(each for each in CLAIMS if each.id in ("C5", "C10", "C16", "C47", "C66"))


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(paper_claims, "CLAIMS", SOME)


@pytest.mark.usefixtures("few")
def test_the_list_has_a_line_for_each(capsys):
    show_claims(None, False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["claim", "place", "verdict", "value", "statement"]
    found = {line.split()[0]: line for line in lines if line.startswith("C")}
    assert list(found) == [each.id for each in SOME]
    assert "FALSE" in found["C16"]
    assert " - " in found["C5"]
    assert "TRUE IF" in found["C66"]
    assert " inf " in found["C66"]
    assert "5 claims: 2 UNDEFINED, 1 EMPIRICAL, 1 FALSE, 1 TRUE IF" in lines
    assert max(map(len, lines)) <= 120


def test_one_claim_with_its_certificate(capsys):
    show_claims("c13", False)
    out = capsys.readouterr().out
    assert out.startswith("C13, section 3.2: TRUE\n")
    assert re.search(r"\nnearest +1\.471848048122478 +certified +1\.47184804812247\d +", out)
    assert "certified" in out
    assert "interval arithmetic" in out
    show_claims("C47", False)
    out = " ".join(capsys.readouterr().out.split())
    assert "TRUE the bound degrades" in out
    assert "UNDEFINED the model degrades" in out


@pytest.mark.usefixtures("few")
def test_json_has_every_digit(capsys):
    show_claims(None, True)
    found = json.loads(capsys.readouterr().out)
    assert [each["id"] for each in found] == [each.id for each in SOME]
    show_claims("C66", True)
    one = json.loads(capsys.readouterr().out)
    assert one["values"]["tested"]["value"] == "inf"
    assert one["values"]["long"]["value"] == 1001.0
    show_claims("C16", True)
    after = json.loads(capsys.readouterr().out)["values"]["after"]["value"]
    assert after == claim("C16").judge().values["after"].value


@pytest.mark.parametrize(("wrong", "near"), [("C131", "C13"), ("13", "C13"), ("nothing", "known: C1, C2")])
def test_an_id_that_is_none(wrong, near):
    with pytest.raises(click.BadParameter) as caught:
        show_claims(wrong, False)
    assert repr(wrong.upper()) in caught.value.message
    assert near in caught.value.message
    assert "C1 to C121" in caught.value.message


def test_a_value_outside_its_interval_is_said(capsys, monkeypatch):
    monkeypatch.setattr("fastpe.paper_claims.expressiveness.least_error", lambda *given: exact(7.0, "wrong"))
    show_claims("C29", False)
    assert "C29: error lies outside its stored interval 208.25" in capsys.readouterr().err


@pytest.mark.parametrize("others", [["alibi"], ["--causal"], ["--dim", "64"]], ids=" ".join)
def test_claims_stand_alone(others):
    """An encoding or a size beside them was ignored in silence."""
    line = refused(2, "theory", *others, "--claims", "C5")
    assert f"--claims uses the encodings and sizes of the paper: leave out {others[0]} (" in line
