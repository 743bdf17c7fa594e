"""A cell of a table of the paper: what is printed in it, and the claim that it is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fastpe.paper_claims.record import Claim, Compute, nothing
from fastpe.paper_claims.rules import Rule


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes
    ----------
    table : int
        1 to 4.
    row, column, printed : str
        As in the paper.
    claim : Claim
        What it rests on: one of C1 to C121, or one of its own, "T1.3.2": table, row, column.
    parts : tuple of str
        The sentences of the claim that the cell says; all where there are none.
    shown : tuple of str
        Names of the values that stand in the cell; the first that decide where there are none.
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
    """What a cell says that no claim does: how it is judged, as `fastpe.paper_claims.record.Claim` has it."""

    rule: Rule
    reason: str
    compute: Compute = nothing
    expected: Mapping[str, str] | None = None
    beside: tuple[str, ...] = ()
    reading: str = ""


@dataclass(frozen=True)
class On:
    """A cell that says what a claim says, or some of its sentences."""

    claim: Claim
    parts: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()


def row(
    table: int, number: int, name: str, columns: Sequence[str], entries: Iterable[tuple[str, Own | On]]
) -> tuple[Cell, ...]:
    """The cells of one row, from left to right.

    Parameters
    ----------
    table, number : int
        Of the table, and of the row from 1.
    name : str
        The row's.
    columns : sequence of str
    entries : (printed, Own or On) for each column

    Examples
    --------
    >>> from fastpe.paper_claims.rules import Needs
    >>> cell, = row(3, 4, "ALiBi", ["range"], [("Good for N' <= c N", Own(Needs(("c",)), "c is never given"))])
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
            said.compute, said.expected or {}, said.beside, said.reading,
        )  # fmt: skip
        cells.append(Cell(table, name, column, printed, claim))
    return tuple(cells)
