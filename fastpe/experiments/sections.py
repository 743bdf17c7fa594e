"""Sections of a report (a heading, lines of text and a table), as plain text for a terminal or as Markdown."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from fastpe.base.tables import markdown_table, markdown_text

_WIDTH = 110  # characters of a line on the terminal


class Cell(NamedTuple):
    """A number, with an interval and a note that pages show smaller. As text, all three are in one line."""

    value: str
    interval: str = ""
    note: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, self))


class Section(NamedTuple):
    """A heading, lines of text, and a table. Its columns are right-aligned from the index `right` on."""

    title: str
    lines: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str | Cell]] = ()
    right: int = 99


def as_text(sections: Sequence[Section], width: int = _WIDTH) -> str:
    """The sections as plain text for a terminal with this number of columns."""
    return "\n\n".join(_text(section, width) for section in sections) + "\n"


def as_markdown(sections: Sequence[Section]) -> str:
    """The sections as a Markdown document."""
    return "\n\n".join(map(_markdown, sections)) + "\n"


def _text(section: Section, width: int) -> str:
    parts = [section.title, "-" * len(section.title)]
    parts += [textwrap.fill(line, width) for line in section.lines]
    if section.rows and section.head[-1] == "reason":  # a reason is a sentence, too long for a cell
        for claim, verdict, reason in section.rows:
            parts += [f"{verdict:14}  {claim}", textwrap.indent(textwrap.fill(str(reason), width - 16), " " * 16)]
    elif section.rows:
        parts += _aligned(section)
    return "\n".join(parts)


def _aligned(section: Section) -> list[str]:
    rows = [section.head, *(list(map(str, row)) for row in section.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if place >= section.right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _markdown(section: Section) -> str:
    parts = [f"## {markdown_text(section.title)}", *map(markdown_text, section.lines)]
    if section.rows:
        parts.append(markdown_table(section.head, (list(map(str, row)) for row in section.rows), section.right))
    return "\n\n".join(parts)
