"""One number of a page: what it is, how it is known, and what it decides."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpe.theory.value import Value


@dataclass(frozen=True)
class Quantity:
    """What a number of a page is.

    Attributes
    ----------
    id : str
        Q1 to Q20, I1 to I8, or the claim that it belongs to.
    key : str
        Its name on a page, without the length.
    label : str
        In a few words of the field.
    decides : str
        What somebody who knows it decides by it.
    """

    id: str
    key: str
    label: str
    decides: str

    def of(self, value: Value, column: int | None = None) -> "Record":
        """The number itself; `column` is the length that it belongs to, None where it is one for all lengths."""
        return Record(
            value.value, value.kind, value.low, value.high, self.decides, value.inputs, self.id, self.key, self.label,
            column, value.why,
        )  # fmt: skip


@dataclass(frozen=True)
class Record(Value):
    """A number of a page: a `Value` of which `why` says what it decides, and `how` how it comes about.

    Attributes
    ----------
    id, key, label : str
        As of `Quantity`.
    column : int or None
        The length that it belongs to; of a table the window that ends there.
    how : str
    """

    id: str = ""
    key: str = ""
    label: str = ""
    column: int | None = None
    how: str = ""

    @property
    def name(self) -> str:
        """The name on the page: the key, and where there is a length "@" and that.

        >>> Quantity("Q2", "nearest", "nearest two positions", "").of(Value(1.0, "exact", 1.0, 1.0, ""), 50).name
        'nearest@50'
        """
        return self.key if self.column is None else f"{self.key}@{self.column}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, in full precision; what JSON lacks, infinities and NaN, as text."""
        about = {"id": self.id, "key": self.key, "label": self.label, "column": self.column}
        return {**about, **super().to_dict(), "how": self.how, "inputs": plain(self.inputs)}


def plain(value: Any) -> Any:
    """Anything that a page is made of, as JSON has it.

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
