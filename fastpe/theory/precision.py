"""Effects of rounding on a table: where neighbouring rows become equal, and the number of distinct rows."""

from typing import Any

import numpy as np

from fastpe.base.validation import choice
from fastpe.theory.pairs import BLOCK, Array, checked
from fastpe.theory.value import Value, exact

PRECISIONS = ("float64", "float32", "bfloat16")


def rounded(values: Array, precision: str) -> Array:
    """Round to the nearest numbers of a precision, with ties to even.

    bfloat16 numbers are returned as float32, which can represent all of them. They are rounded directly from float64,
    not first to float32.

    Parameters
    ----------
    values : (...) float64
    precision : "float64", "float32" or "bfloat16"

    Examples
    --------
    >>> rounded(np.array([1.0 + 2.0**-8, 1.0 + 2.0**-8 + 2.0**-40]), "bfloat16").tolist()
    [1.0, 1.0078125]
    """
    choice("precision", precision, PRECISIONS)
    if precision == "float64":
        return values
    if precision == "bfloat16":
        exponent = np.frexp(values)[1]
        # the spacing of numbers with 8 binary digits, but at least the spacing of the smallest numbers
        step = np.ldexp(1.0, np.maximum(exponent - 8, -133))
        values = np.rint(values / step) * step
    with np.errstate(over="ignore"):
        found: Array = values.astype(np.float32)
    return found


def horizon(table: Any, precision: str) -> dict[str, Value | None]:
    """Find the first two neighbouring positions with equal rows after rounding, and count the different rows (Q17).

    Parameters
    ----------
    table : (positions, channels)
        The table in float64.
    precision : "float64", "float32" or "bfloat16"

    Returns
    -------
    dict
        - "first": the first position p whose row equals the row of position p + 1, or None if there is none;
        - "distinct": the number of different rows.

    Raises
    ------
    ValueError, TypeError
        If the table is not two-dimensional or not finite, or the precision is unknown.

    Examples
    --------
    >>> found = horizon([[0.0], [1.0], [1.001], [0.0]], "bfloat16")
    >>> found["first"].value, found["distinct"].value
    (1.0, 2.0)
    """
    rows, about = checked(table), {"rows": len(table), "precision": precision}
    seen, first, before = set[bytes](), None, None
    for i in range(0, len(rows), BLOCK):
        block = rounded(rows[i : i + BLOCK], precision) + 0.0  # turns -0.0 into 0.0
        for p, row in enumerate(block, start=i):
            found = row.tobytes()
            if found == before and first is None:
                first = p - 1
            seen.add(found)
            before = found
    why = f"from comparing all rows after rounding to {precision}"
    return {
        "first": None if first is None else exact(float(first), f"the first row equal to the next, {why}", **about),
        "distinct": exact(float(len(seen)), f"the number of different rows, {why}", **about),
    }
