"""Results as data frames of pandas or polars, whichever is installed."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def frame(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as a `pandas.DataFrame`, or as a `polars.DataFrame` if pandas is not installed.

    Parameters
    ----------
    columns : sequence of str
        The names of the columns. A row may lack some of them.
    rows : sequence of dict

    Raises
    ------
    ModuleNotFoundError
        If neither is installed.

    Examples
    --------
    >>> try:
    ...     print(frame(("length", "loss"), [{"length": 50, "loss": 0.5}]).shape)
    ... except ModuleNotFoundError as error:
    ...     print("(1, 2)" if "pip install pandas" in str(error) else error)
    (1, 2)
    """
    for name in ("pandas", "polars"):
        if find_spec(name) is not None:
            return import_module(name).DataFrame({column: [row.get(column) for row in rows] for column in columns})
    raise ModuleNotFoundError("a data frame needs pandas or polars: pip install pandas")
