"""Tables 1 to 4 of Li (2025), recomputed: text, Markdown, JSON and HTML as strings. No file is written."""

import json
from collections import Counter
from collections.abc import Sequence

from fastpe.base.version import VERSION
from fastpe.experiments import study_page
from fastpe.experiments.sections import Section, as_markdown
from fastpe.paper_claims.tables import TITLES, JudgedCell, outside

TITLE = "Tables 1 to 4 of Li (2025), recomputed"
_KEY = (
    "Verdicts: TRUE: proved, or every case was tried. TRUE IF: true under an assumption. FALSE: refuted by a "
    "counterexample. VACUOUS: true, but a trivial bound is at least as good. UNDEFINED: a definition is missing, or "
    "readings of the text differ. EMPIRICAL: only training can decide.",
    'Codes in the column "claim" and in reasons: C1 to C121 are claims of the text of the paper (fastpe theory '
    "--claims C13 prints one). T1.2.3 is the claim of a single cell: table 1, row 2, column 3. P1 to P13 are the "
    "propositions that help(fastpe.theory) lists.",
)
_HEAD = ("encoding", "property", "paper", "computed", "verdict", "claim", "reason")


def sections(cells: Sequence[JudgedCell]) -> list[Section]:
    """Sections for the terminal: every cell with its verdict, and the reason below it."""
    found = [
        Section(TITLES[table], (), ("cell", "verdict", "reason"), [
            (f"{_named(each)}: {each.cell.printed} | {each.computed}", each.verdict, _explained(each) + _claim(each))
            for each in cells if each.cell.table == table
        ])
        for table in TITLES
    ]  # fmt: skip
    return [*found, Section("Together", _together(cells))]


def tables(cells: Sequence[JudgedCell]) -> list[Section]:
    """Sections for documents: one for each table of the paper."""
    found = [
        Section(title, (), _HEAD, [
            (each.cell.row, each.cell.column, each.cell.printed, each.computed, each.verdict, each.cell.claim.id,
             _explained(each))
            for each in cells if each.cell.table == table
        ])
        for table, title in TITLES.items()
    ]  # fmt: skip
    return [Section(TITLE, _together(cells)), *found]


def files_of(cells: Sequence[JudgedCell]) -> dict[str, bytes]:
    """The contents of the report's files, by name: tables.md, tables.json, tables.html."""
    facts = {
        "schema": 1,
        "fastpe": VERSION,
        "outside": outside(cells),
        "cells": [each.to_dict() for each in cells],
    }
    said = tables(cells)
    return {
        "tables.md": as_markdown(said).encode(),
        "tables.json": (json.dumps(facts, indent=1, allow_nan=False) + "\n").encode(),
        "tables.html": study_page.sections_page(TITLE, said[1:], [*_together(cells), *_KEY]).encode(),
    }


def _named(cell: JudgedCell) -> str:
    return f"{cell.cell.row}, {cell.cell.column}"


def _explained(cell: JudgedCell) -> str:
    """The verdicts on the parts of a cell, and the reason of its verdict."""
    return "; ".join([*(f"{part}: {cell.judgement.parts[part]}" for part in cell.cell.parts), cell.judgement.reason])


def _claim(cell: JudgedCell) -> str:
    """The id of a claim of the text (C1 to C121) in brackets; "" for the claim of a single cell."""
    return "" if cell.cell.claim.id.startswith("T") else f" ({cell.cell.claim.id})"


def _together(cells: Sequence[JudgedCell]) -> list[str]:
    counts = Counter(each.verdict for each in cells)
    lines = [f"{len(cells)} cells: {', '.join(f'{count} {verdict}' for verdict, count in counts.most_common())}."]
    left = outside(cells)
    lines.append(
        f"Outside their stored intervals: {'; '.join(left)}." if left
        else "Every computed value lies in the interval that fastpe stores for it. Unless a cell says otherwise, the "
        "width d is 64, the training length N is 50, and ALiBi's slope is 0.002."
    )  # fmt: skip
    lines.append('Cells with "To analyze" in the paper are judged like "Yes".')
    return lines
