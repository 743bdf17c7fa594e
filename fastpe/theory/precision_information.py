"""The information, in nats, that a table row contains about its position after rounding."""

import math
from collections import Counter
from hashlib import blake2b
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.theory.value import Value, exact

Array = np.ndarray[Any, Any]

ROWS = 512
_MOST = 1e150
_PRECISIONS = ("float64", "float32", "bfloat16", "float16")


def checked_table(table: Any) -> Array:
    """Return a table (positions, channels) in its dtype, so that callers can convert it to float64 block by block.

    Examples
    --------
    >>> checked_table([[1, 2]]).shape
    (1, 2)
    """
    rows = validation.array("table", table)
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"table must have shape (positions, channels), at least (1, 1), not {rows.shape}")
    if not validation.largest(rows) < _MOST:
        raise ValueError(f"table must hold finite numbers below {_MOST:.0e} in size, because they are squared")
    return rows


def precision_information(table: Any, dtype: str = "bfloat16") -> Value:
    """Return the information that a row contains about its position after rounding. The position is uniform.

    Let the n rounded rows form sets of equal rows, with c rows in a set. The information is ln n - (1/n) sum c ln c,
    where the sum is over the sets.

    Parameters
    ----------
    table : array_like (positions, channels)
    dtype : {"float64", "float32", "bfloat16", "float16"}
        The precision to which rows are rounded: to the nearest number, with ties to even. For bfloat16 rows are first
        rounded to float32.

    Examples
    --------
    >>> round(precision_information([[1.0], [1.0 + 2.0**-12], [2.0]]).value, 6)
    0.636514
    """
    validation.choice("dtype", dtype, _PRECISIONS)
    rows = checked_table(table)
    seen: Counter[bytes] = Counter()
    for start in range(0, len(rows), ROWS):
        block = _rounded(rows[start : start + ROWS], dtype)
        seen.update(blake2b(row.tobytes(), digest_size=32).digest() for row in block)
    lost = math.fsum(count * math.log(count) for count in seen.values()) / len(rows)
    why = "I2: from the sets of rows that are equal after rounding"
    return exact(math.log(len(rows)) - lost, why, dtype=dtype, length=len(rows), distinct=len(seen))


def _rounded(rows: Array, dtype: str) -> Array:
    """Round so that equal numbers have equal bits. bfloat16 is returned as the upper half of the float32 bits."""
    with np.errstate(over="ignore"):
        near = rows.astype("float32" if dtype == "bfloat16" else dtype)
    near = np.ascontiguousarray(near + near.dtype.type(0))  # turns -0 into 0
    if dtype != "bfloat16":
        return near
    bits = near.view(np.uint32)
    half: Array = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype("u2")
    half[half == 0x8000] = 0  # numbers that were rounded to -0
    return half
