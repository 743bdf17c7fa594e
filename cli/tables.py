"""Tables as aligned text and as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastpe.base.stored import printable
from fastpe.base.tables import markdown_table


@dataclass(frozen=True)
class Table:
    """A table: title, description, columns, rows (there may be none), and notes below the rows."""

    title: str
    about: str = ""
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]], right: bool = False) -> list[str]:
    r"""Return a table as lines with aligned columns. Control characters in cells are escaped.

    >>> aligned(("model", "ms"), [("paper", "0.5"), ("lm", "12.25")])
    ['model  ms', 'paper  0.5', 'lm     12.25']
    """
    shown = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = []
    for row in shown:
        cells = [cell.rjust(width) if right else cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def as_text(table: Table) -> str:
    """Return the table as text for a terminal.

    >>> print(as_text(Table("Speed", "milliseconds", ("model", "ms"), [("paper", "0.5")], ["one thread"])))
    Speed: milliseconds
    <BLANKLINE>
    model  ms
    paper  0.5
    <BLANKLINE>
    one thread
    """
    blocks = [": ".join(filter(None, (table.title, table.about)))]
    if table.rows:
        blocks.append("\n".join(aligned(table.head, table.rows)))
    if table.notes:
        blocks.append("\n".join(table.notes))
    return "\n\n".join(blocks)


def as_markdown(table: Table) -> str:
    """Return the table as a section of a Markdown document.

    >>> print(as_markdown(Table("Speed", "milliseconds", ("model", "ms"), [("a|b", "0.5")], ["one thread"])))
    ## Speed
    <BLANKLINE>
    Milliseconds.
    <BLANKLINE>
    | model | ms |
    | --- | --- |
    | a\\|b | 0.5 |
    <BLANKLINE>
    - one thread
    """
    blocks = [f"## {table.title}"]
    if table.about:
        blocks.append(f"{table.about[0].upper()}{table.about[1:]}.")
    if table.rows:
        blocks.append(markdown_table(table.head, table.rows))
    if table.notes:
        blocks.append("\n".join(f"- {note}" for note in table.notes))
    return "\n\n".join(blocks)
