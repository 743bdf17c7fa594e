"""Tables whose first channels are a few features of the position; the other channels are zero."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


_ELEMENTS = 2**17


def row_views(table: Array) -> Iterator[tuple[slice, Array]]:
    """Some rows of a table (..., N, C) after the other, numbered as if its leading axes were one, so many as stay in a
    cache with what is computed for them.
    """
    *batch, length, dim = table.shape
    most = max(1, _ELEMENTS // dim)
    for sample, index in enumerate(np.ndindex(*batch)):
        for start in range(0, length, most):
            stop = min(start + most, length)
            yield slice(sample * length + start, sample * length + stop), table[index][start:stop]


def fill_columns(table: Array, columns: Sequence[Array], scale: float) -> None:
    """table (n, C) = the columns, each (n,), then zeros; columns past C are left out."""
    table[..., len(columns) :] = 0
    for channel, column in enumerate(columns[: table.shape[-1]]):
        table[..., channel] = scale * column


def beside_zeros(features: Array, dim: int, scale: float) -> Array:
    """As `fill_columns`, of features (..., N, k), for a reference."""
    kept = features[..., :dim]
    return scale * np.concatenate([kept, np.zeros((*kept.shape[:-1], dim - kept.shape[-1]))], axis=-1)


def remark(count: int, dim: int, what: str) -> tuple[str, ...]:
    """Say that there are more or fewer features than channels."""
    if count > dim:
        return (f"only the first {dim} of {count} {what} have a channel",)
    return (f"{count} of {dim} channels hold {what}, the others are zero",) if count < dim else ()
