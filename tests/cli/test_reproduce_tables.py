"""`fastpe reproduce tables`: what it prints and writes, and its exit status."""

import html
import json
import re

import pytest
from command_line import fastpe, refused

from fastpe.paper_claims import claim, tables
from fastpe.paper_claims.cell import Cell
from fastpe.paper_claims.record import Claim
from fastpe.paper_claims.rules import Holds
from fastpe.theory.value import exact

HOSTILE = Claim(
    "T9.9.9", "Table 1", "A.", Holds(lambda: True), "<script>alert(1)</script> & a | b",
    lambda: {"x": exact(1.0, "one")}, {"x": "1.0"},
)  # fmt: skip


@pytest.fixture(autouse=True)
def few(monkeypatch, tmp_path):
    """Two cells of the first table, one of the last."""
    cells = (
        Cell(1, "ALiBi", "universal (any N)", "Yes", claim("C30")), Cell(1, "A & B", "<b>", "|x|", HOSTILE),
        Cell(4, "Relative (Shaw)", "cost", "O(1)", claim("C120"), ("Shaw O(1)",), ("shaw_64", "shaw_128")),
    )  # fmt: skip
    monkeypatch.setattr(tables, "CELLS", cells)
    monkeypatch.chdir(tmp_path)


def test_what_is_printed_and_written(tmp_path):
    result = fastpe("reproduce", "tables", "--out", "report")
    assert result.exit_code == 0
    assert "Table 1: expressiveness\n" in result.stdout
    assert "FALSE           ALiBi, universal (any N): Yes | at 25 = 0.3983619\n" in result.stdout
    assert "shaw 64 = 64, shaw 128 = 128" in result.stdout
    assert "3 cells: 2 FALSE, 1 TRUE." in result.stdout
    assert """Cells with "To analyze" in the paper are judged like "Yes".""" in result.stdout
    assert result.stderr == "written in report: tables.md, tables.json, tables.html\n"
    found = json.loads((tmp_path / "report" / "tables.json").read_text())
    assert found["outside"] == []
    assert found["cells"][0]["rests_on"]["values"]["at_25"]["value"] == claim("C30").judge().values["at_25"].value
    text = (tmp_path / "report" / "tables.md").read_text()
    assert "| ALiBi | universal (any N) | Yes | at 25 = 0.3983619 | FALSE | C30 |" in text
    assert "a \\| b" in text


def test_the_page_is_escaped_and_whole(tmp_path):
    fastpe("reproduce", "tables", "--out", "report")
    page = (tmp_path / "report" / "tables.html").read_text()
    assert "alert(1)</script>" not in page
    assert html.escape("<script>alert(1)</script> & a | b") in page
    assert '>A &amp; B</td><td data-head="property">&lt;b&gt;</td>' in page
    assert not re.search(r"(src|href)=\"|url\(|@import", page)
    assert page.count("<table") == 2


def test_json_on_standard_output_is_the_file(tmp_path):
    result = fastpe("reproduce", "tables", "--json")
    assert result.exit_code == 0
    assert result.stdout == (tmp_path / "reproduce" / "tables" / "tables.json").read_text()


def test_a_value_outside_its_interval_is_an_error_that_names_it(monkeypatch, tmp_path):
    monkeypatch.setattr("fastpe.paper_claims.expressiveness.SLOPE", 0.003)
    result = fastpe("reproduce", "tables")
    assert result.exit_code == 1
    assert re.search(r"error: values outside their stored intervals: C30 own \(\d+\) not in 8821\n", result.stderr)
    found = json.loads((tmp_path / "reproduce" / "tables" / "tables.json").read_text())
    assert len(found["outside"]) == 1
    assert "C30 own" in result.stdout


def test_a_folder_in_the_place_of_a_file_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "judge", lambda progress: pytest.fail("worked"))
    (tmp_path / "report" / "tables.md").mkdir(parents=True)
    assert "tables.md cannot be written: it is a folder" in refused(2, "reproduce", "tables", "--out", "report")
