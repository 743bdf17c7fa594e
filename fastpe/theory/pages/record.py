"""A record: one number of a page, how it is known, and what it decides."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpe.theory.value import Value


@dataclass(frozen=True)
class Quantity:
    """A quantity of a page: its name and what it decides.

    Attributes
    ----------
    id : str
        Q1 to Q20 or I1 to I8, or the claim or proof that the quantity belongs to.
    key : str
        The name of the quantity on a page, without the length.
    label : str
        What the quantity is called in tables.
    decides : str
        What the quantity decides for a user.
    """

    id: str
    key: str
    label: str
    decides: str

    def of(self, value: Value, column: int | None = None) -> "Record":
        """Return the record of a value at the length `column`, or for all lengths if `column` is None."""
        return Record(
            value.value, value.kind, value.low, value.high, self.decides, value.inputs, self.id, self.key, self.label,
            column, value.why,
        )  # fmt: skip


@dataclass(frozen=True)
class Record(Value):
    """A number of a page: a `Value` whose `why` says what the number decides.

    Attributes
    ----------
    id, key, label : str
        The same as in `Quantity`.
    column : int or None
        The length that the number belongs to, or None. For a table, it stands for the window of positions that ends
        there.
    how : str
        How the number is computed.
    """

    id: str = ""
    key: str = ""
    label: str = ""
    column: int | None = None
    how: str = ""

    @property
    def name(self) -> str:
        """The name on the page: the key, followed by "@" and the length if the number belongs to one.

        >>> Quantity("Q2", "nearest", "nearest two positions", "").of(Value(1.0, "exact", 1.0, 1.0, ""), 50).name
        'nearest@50'
        """
        return self.key if self.column is None else f"{self.key}@{self.column}"

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON in full precision. JSON has no infinities and NaN, so these are text."""
        about = {"id": self.id, "key": self.key, "label": self.label, "column": self.column}
        return {**about, **super().to_dict(), "how": self.how, "inputs": plain(self.inputs)}


def plain(value: Any) -> Any:
    """Convert a value of a page to JSON values.

    >>> plain({"window": (0, np.int64(50)), "sigma": float("inf"), "row": np.zeros(2)})
    {'window': [0, 50], 'sigma': 'inf', 'row': [0.0, 0.0]}
    """
    match value:
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case np.ndarray() | np.generic():
            return plain(value.tolist())
        case float():
            return value if math.isfinite(value) else str(value)
        case bool() | int() | str() | None:
            return value
    return str(value)
