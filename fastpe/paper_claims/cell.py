"""The cells of the paper's tables: what is printed in a cell, and the claim that it makes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fastpe.paper_claims.record import Claim, Compute, nothing
from fastpe.paper_claims.rules import Rule


@dataclass(frozen=True)
class Cell:
    """One cell of a table of the paper.

    Attributes
    ----------
    table : int
        1 to 4.
    row, column, printed : str
        The row, the column and the text of the cell, as in the paper.
    claim : Claim
        The claim that the cell makes: one of C1 to C121, or a claim of this cell only, such as "T1.3.2" (table, row,
        column).
    parts : tuple of str
        The sentences of the claim that the cell states. An empty tuple stands for all sentences.
    shown : tuple of str
        Names of the values that are shown for the cell. An empty tuple stands for the first deciding values.
    """

    table: int
    row: str
    column: str
    printed: str
    claim: Claim
    parts: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Own:
    """The claim of a cell that makes none of the claims C1 to C121. The fields are those of `record.Claim`."""

    rule: Rule
    reason: str
    compute: Compute = nothing
    expected: Mapping[str, str] | None = None
    not_deciding: tuple[str, ...] = ()
    reading: str = ""


@dataclass(frozen=True)
class On:
    """A cell that makes one of the claims C1 to C121, or some of its sentences."""

    claim: Claim
    parts: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()


def row(
    table: int, number: int, name: str, columns: Sequence[str], entries: Iterable[tuple[str, Own | On]]
) -> tuple[Cell, ...]:
    """Return the cells of one row from left to right.

    Parameters
    ----------
    table, number : int
        The number of the table, and the number of the row, from 1.
    name : str
        The name of the row.
    columns : sequence of str
        The names of the columns.
    entries : iterable of (str, Own or On)
        The printed text and the claim of the cell in each column.

    Returns
    -------
    tuple of Cell

    Examples
    --------
    >>> from fastpe.paper_claims.rules import Needs
    >>> cell, = row(3, 4, "ALiBi", ["range"], [("Good for N' <= c N", Own(Needs(("c",)), "no value is given"))])
    >>> cell.claim.id, cell.claim.judge().verdict
    ('T3.4.1', 'UNDEFINED')
    """
    cells = []
    for place, (column, (printed, said)) in enumerate(zip(columns, entries, strict=True), start=1):
        if isinstance(said, On):
            cells.append(Cell(table, name, column, printed, said.claim, said.parts, said.shown))
            continue
        claim = Claim(
            f"T{table}.{number}.{place}", f"Table {table}", f"{name}, {column}: {printed}.", said.rule, said.reason,
            said.compute, said.expected or {}, said.not_deciding, said.reading,
        )  # fmt: skip
        cells.append(Cell(table, name, column, printed, claim))
    return tuple(cells)
