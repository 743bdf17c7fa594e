"""Theoretical properties on a terminal: one encoding, or several in columns."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from fastpe.theory.pages.key_quantities import key_rows
from fastpe.theory.pages.quantities import IN_WINDOWS, QUANTITIES
from fastpe.theory.pages.record import Record
from fastpe.theory.pages.subject import Subject
from fastpe.theory.pages.words import cell_or_range, facts, heading

if TYPE_CHECKING:
    from rich.table import Table

Page = Mapping[str, Record]

_WIDEST = 200  # characters per line if the output is not a terminal
_WIDEST_OF_ONE = 120  # the same for the key quantities of a single encoding
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
        click.echo("\nThese quantities decide a choice of encoding. --all prints every quantity that is computed.")


def _key_quantities(subjects: Sequence[Subject], pages: Sequence[Page]) -> None:
    for subject, page in zip(subjects, pages, strict=True):
        click.echo(heading(subject, page))
    table = _table()
    table.add_column("quantity", no_wrap=not sys.stdout.isatty())
    for subject in subjects:
        table.add_column(subject.name if len(subjects) > 1 else "value", justify="right")
    table.add_column("unit")
    table.add_column("meaning")
    for row in key_rows(subjects, pages):
        table.add_row(row.label, *row.values, row.unit, row.meaning)
    _print(table, _WIDEST if len(subjects) > 1 else _WIDEST_OF_ONE)


def _page(subject: Subject, page: Page) -> None:
    click.echo(heading(subject, page))
    for in_windows in (True, False):
        rows = _rows([{name: each for name, each in page.items() if not name.startswith("task.")}], in_windows)
        columns = [each for each in subject.columns if any(each in cells[0] for _, cells in rows)]
        if not rows:
            continue
        table = _table()
        table.add_column("")
        for column in columns:
            name = f"[{subject.window(column)[0]},{column})" if in_windows else f"at {column}"
            table.add_column(name, justify="right")
        for label, (values,) in rows:
            table.add_row(f"  {label}", *(values.get(column, "-") for column in columns))
        _print(table)
    for line in facts(subject, page):
        click.echo(f"  {line}")


def _side_by_side(subjects: Sequence[Subject], pages: Sequence[Page]) -> None:
    table = _table()
    table.add_column("")
    for subject in subjects:
        table.add_column(f"{subject.name}, causal" if subject.causal else subject.name, justify="right")
    for in_windows in (True, False):
        for label, each in _rows(pages, in_windows):
            for column in sorted({column for values in each for column in values if column is not None}):
                window = next(subject.window(column) for subject in subjects if column in subject.columns)
                where = f"in [{window[0]},{column})" if in_windows else f"at {column}"
                table.add_row(f"{label}, {where}", *(values.get(column, "-") for values in each))
        for label, each in _rows(pages, in_windows, alone=True):
            table.add_row(label, *(values.get(None, "-") for values in each))
    _print(table)


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


def _table() -> "Table":
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")


def _print(table: "Table", widest: int = _WIDEST) -> None:
    from rich.console import Console

    terminal = sys.stdout.isatty()
    width = max(60, shutil.get_terminal_size().columns) if terminal else widest
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())
