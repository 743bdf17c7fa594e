"""Checks of the arguments of `resize` functions: learned tables, and the sides of grids and windows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.base.validation import array, finite, shown, unmasked, whole

Array = np.ndarray[Any, Any]


def checked_names(params: Any, names: tuple[str, ...]) -> None:
    """Raise an error unless `params` is a dict with these keys."""
    if not isinstance(params, Mapping):
        raise TypeError(f"params must be a dict of arrays, not {type(params).__name__}")
    if set(params) != set(names):
        raise ValueError(f"params must have the keys {list(names)}, not {list(params)}")


def only_table(params: Any, rows: tuple[int, ...] = (), width: str = "C") -> Array:
    """Check that `params` has one parameter, `table`, and return it, checked by `learned_table`."""
    checked_names(params, ("table",))
    return learned_table("params['table']", params["table"], rows, width)


def whole_sides(name: str, value: Any, count: int) -> tuple[int, ...]:
    """Check that `value` is `count` integers >= 1, and return them as a tuple.

    >>> whole_sides("grid", np.array([2, 3]), 2)
    (2, 3)
    """
    unmasked(name, value)
    expected = f"{name} must be {count} integers >= 1, not {shown(value)}"
    try:
        sides = tuple(whole(name, side) for side in value)
    except TypeError:
        raise TypeError(expected) from None
    if len(sides) != count or min(sides) < 1:
        raise ValueError(expected)
    return sides


def learned_table(name: str, value: Any, rows: tuple[int, ...] = (), width: str = "C") -> Array:
    """Check that `value` is a finite float32 or float64 table with one of the numbers of rows in `rows` (any if empty),
    and return it as an array. `width` is the name of the number of columns in the message.

    >>> learned_table("table", [[1.0], [2.0]], (2,)).shape
    (2, 1)
    """
    holds = "float32 or float64 numbers"
    found = array(name, value, holds)
    if found.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"{name} must hold {holds}, not {found.dtype}")
    if found.ndim != 2 or not found.size or (rows and len(found) not in rows):
        shape = f"({' or '.join(map(str, rows)) or 'N >= 1'}, {width} >= 1)"
        raise ValueError(f"{name} must have the shape {shape}, not {found.shape}")
    return finite(name, found, found.dtype)
