"""Theoretical properties on a terminal: one encoding, or several in columns."""

import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from fastpe.theory.pages.key_quantities import key_rows
from fastpe.theory.pages.quantities import IN_WINDOWS, QUANTITIES
from fastpe.theory.pages.record import Record
from fastpe.theory.pages.subject import Subject
from fastpe.theory.pages.words import cell_or_range, facts, heading

from .terminal import TITLE, columns, print_rich, table

if TYPE_CHECKING:
    from rich.table import Table

Page = Mapping[str, Record]

_WIDEST = 200  # characters per line if the output is not a terminal
_ORDER = {each.key: place for place, each in enumerate(QUANTITIES.values())}


def show(subjects: Sequence[Subject], pages: Sequence[Page], everything: bool) -> None:
    """Print the key quantities of each encoding, or everything: one page, or a table of several."""
    if not everything:
        _key_quantities(subjects, pages)
    elif len(subjects) == 1:
        _page(subjects[0], pages[0])
    else:
        _side_by_side(subjects, pages)
    for subject in subjects:
        for remark in subject.remarks:
            click.echo(f"{subject.name}: {remark}" if len(subjects) > 1 else f"  {remark}")
    if not everything:
        click.echo("\nThese quantities decide a choice of encoding. --all prints all quantities.")


def _key_quantities(subjects: Sequence[Subject], pages: Sequence[Page]) -> None:
    for subject, page in zip(subjects, pages, strict=True):
        click.echo(heading(subject, page))
    click.echo()
    rows = list(key_rows(subjects, pages))
    names = [subject.name for subject in subjects] if len(subjects) > 1 else ["value"]
    cells = [("quantity", *names), *((row.label, *row.values) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    head, *lines = (
        "  ".join([label.ljust(widths[0]), *map(str.rjust, values, widths[1:])]).rstrip() for label, *values in cells
    )
    click.secho(head, **TITLE)
    for line, row in zip(lines, rows, strict=True):
        click.echo(line)
        about = textwrap.fill(f"{row.unit}: {row.meaning}", columns(), initial_indent="    ", subsequent_indent="    ")
        click.secho(about, dim=True)


def _page(subject: Subject, page: Page) -> None:
    click.echo(heading(subject, page))
    for in_windows in (True, False):
        rows = _rows([{name: each for name, each in page.items() if not name.startswith("task.")}], in_windows)
        shown = [each for each in subject.columns if any(each in cells[0] for _, cells in rows)]
        if not rows:
            continue
        names = (f"[{subject.window(each)[0]},{each})" if in_windows else f"at {each}" for each in shown)
        made = table("", *names, right=range(1, len(shown) + 1))
        for label, (values,) in rows:
            made.add_row(f"  {label}", *(values.get(each, "-") for each in shown))
        _print(made)
    for line in facts(subject, page):
        click.echo(f"  {line}")


def _side_by_side(subjects: Sequence[Subject], pages: Sequence[Page]) -> None:
    names = (f"{subject.name}, causal" if subject.causal else subject.name for subject in subjects)
    made = table("", *names, right=range(1, len(subjects) + 1))
    for in_windows in (True, False):
        for label, each in _rows(pages, in_windows):
            for column in sorted({column for values in each for column in values if column is not None}):
                window = next(subject.window(column) for subject in subjects if column in subject.columns)
                where = f"in [{window[0]},{column})" if in_windows else f"at {column}"
                made.add_row(f"{label}, {where}", *(values.get(column, "-") for values in each))
        for label, each in _rows(pages, in_windows, alone=True):
            made.add_row(label, *(values.get(None, "-") for values in each))
    _print(made)


def _rows(
    pages: Sequence[Page], in_windows: bool, alone: bool = False
) -> list[tuple[str, list[dict[int | None, str]]]]:
    """Return the label of each row, and its cells by length for each page. `alone`: only rows without a length."""
    keys = {record.key: record for page in pages for record in page.values() if (record.column is None) == alone}
    found = []
    for key in sorted(keys, key=lambda key: _ORDER.get(key, len(_ORDER))):
        stem, _, end = key.rpartition(".")
        if (key in IN_WINDOWS) != in_windows or (end == "least" and f"{stem}.most" in keys):
            continue
        cells = [{each.column: cell_or_range(page, each) for each in _with_key(page, key)} for page in pages]
        found.append((keys[key].label, cells))
    return found


def _with_key(page: Page, key: str) -> list[Record]:
    return [record for record in page.values() if record.key == key]


def _print(made: "Table") -> None:
    print_rich(made, columns() if sys.stdout.isatty() else _WIDEST)
