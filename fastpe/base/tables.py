"""Tables as CSV and as Markdown. Cells may hold any text, such as names and messages from files."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

from fastpe.base.stored import printable

_FORMULA = tuple("=+-@＝＋－＠")  # noqa: RUF001 - spreadsheets accept full-width forms of these signs
_MARKUP = re.compile(r"\\|<(?=[A-Za-z/!?])|(?<=\])\(")  # a backslash, or the start of an HTML tag or of a link target


def csv_text(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    r"""A table as CSV. A text that a spreadsheet would treat as a formula gets a leading apostrophe.

    Numbers are written in full precision, and None as an empty cell. Control characters are escaped.

    Parameters
    ----------
    head : iterable
        The names of the columns.
    rows : iterable of iterables
        One value for each column.

    Returns
    -------
    str
        Lines that end in ``\n``.

    Examples
    --------
    >>> print(csv_text(("name", "loss"), [("=1+1", -1.5), ("-inf", None)]), end="")
    name,loss
    '=1+1,-1.5
    -inf,
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([csv_cell(each) for each in row] for row in (head, *rows))
    return text.getvalue()


def csv_cell(value: Any) -> str:
    """The text of a value in a CSV file. What a spreadsheet would take for a formula gets a leading apostrophe."""
    if value is None:
        return ""
    text = repr(value) if isinstance(value, float) else printable(str(value))
    if not text.startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], right: int | None = None) -> str:
    r"""A table as Markdown. The text of a cell cannot end the cell or its row, begin an HTML tag, or make a link.

    Parameters
    ----------
    head : sequence of str
        The names of the columns.
    rows : iterable of sequences of str
    right : int, optional
        The index of the first right-aligned column; later columns are right-aligned, too. By default no column is.

    Returns
    -------
    str

    Examples
    --------
    >>> print(markdown_table(("name", "loss"), [("a|b\n<b>", "0.5")], right=1))
    | name | loss |
    | --- | --: |
    | a\|b \<b> | 0.5 |
    """
    rule = ["---" if right is None or place < right else "--:" for place in range(len(head))]
    cells = ([markdown_text(cell).replace("|", "\\|") for cell in row] for row in (head, *rows))
    first, *others = (f"| {' | '.join(row)} |" for row in cells)
    return "\n".join([first, f"| {' | '.join(rule)} |", *others])


def markdown_text(text: str) -> str:
    r"""Return the text as one line of Markdown, in which it cannot begin an HTML tag or make a link.

    >>> print(markdown_text(r"<script> [x](y) \<b>"))
    \<script> [x]\(y) \\\<b>
    """
    return _MARKUP.sub(r"\\\g<0>", printable(text))
