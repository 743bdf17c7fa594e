"""Tables 1 to 4 of Li (2025) cell by cell: what is printed, what is computed, and the verdict."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastpe.paper_claims import capacity_tables, expressiveness_tables, extrapolation_tables, summary_tables
from fastpe.paper_claims.cell import Cell
from fastpe.paper_claims.record import Judgement
from fastpe.paper_claims.rules import WORST

TITLES = {
    1: "Table 1: expressiveness", 2: "Table 2: generalisation", 3: "Table 3: extrapolation",
    4: "Table 4: new encodings compared with others",
}  # fmt: skip
CELLS: tuple[Cell, ...] = (
    *expressiveness_tables.CELLS, *capacity_tables.CELLS, *extrapolation_tables.CELLS, *summary_tables.CELLS,
)  # fmt: skip
"""All cells, row by row in the order of the paper."""

_SHOWN = 3  # number of values that a cell shows


@dataclass(frozen=True)
class JudgedCell:
    """A cell, the verdict on it, its computed values as text, and the judgement of its claim."""

    cell: Cell
    verdict: str
    computed: str
    judgement: Judgement

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON, with numbers in full precision."""
        cell = self.cell
        return {
            "table": cell.table, "row": cell.row, "column": cell.column, "printed": cell.printed,
            "computed": self.computed, "verdict": self.verdict, "sentences": list(cell.parts),
            "rests_on": cell.claim.to_dict(self.judgement),
        }  # fmt: skip


def judge(progress: Callable[[int], None] = lambda done: None) -> list[JudgedCell]:
    """Judge every cell of the four tables. This takes some seconds, and each claim is computed once.

    Parameters
    ----------
    progress : callable
        Called as ``progress(done)`` after each cell, with the number of finished cells of `CELLS`.

    Returns
    -------
    list of JudgedCell
        In the order of `CELLS`.
    """
    judged = cache(lambda identity: claims[identity].judge())
    claims = {cell.claim.id: cell.claim for cell in CELLS}
    found = []
    for done, cell in enumerate(CELLS, 1):
        found.append(_judged(cell, judged(cell.claim.id)))
        progress(done)
    return found


def _judged(cell: Cell, found: Judgement) -> JudgedCell:
    verdict = min((found.parts[part] for part in cell.parts), key=WORST.index) if cell.parts else found.verdict
    deciding = [name for name in found.values if name not in cell.claim.not_deciding]
    shown = cell.shown or tuple(deciding or found.values)[:_SHOWN]
    computed = ", ".join(f"{name.replace('_', ' ')} = {found.values[name].value:.7g}" for name in shown)
    return JudgedCell(cell, verdict, computed or "-", found)


def outside(cells: Iterable[JudgedCell]) -> list[str]:
    """Return a description of each value that lies outside its stored interval.

    A value that several cells use is described once.

    Examples
    --------
    >>> from fastpe.theory.value import exact
    >>> cell = next(each for each in CELLS if each.claim.id == "C19")
    >>> found = cell.claim.judged({"gap": exact(7.0, "wrong")})
    >>> outside([JudgedCell(cell, found.verdict, "", found)])
    ['C19 gap (7) not in 4.28682e-9']
    """
    found: dict[str, None] = {}
    for each in cells:
        claim, values = each.cell.claim, each.judgement.values
        for name in each.judgement.outside:
            found[f"{claim.id} {name} ({values[name].value:.12g}) not in {claim.expected[name]}"] = None
    return list(found)
