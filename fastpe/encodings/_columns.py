"""Tables whose first channels are a few features of the position; the other channels are zero."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


_ELEMENTS = 2**16


def fill_columns(table: Array, columns: Callable[[slice], Sequence[Array]], scale: float) -> None:
    """table (..., N, C) = columns, then zeros; columns past C are left out.

    `columns(rows)` are those of some rows, (n,) each, numbered as if the table's leading axes were one.
    """
    *batch, length, dim = table.shape
    most = min(length, max(1, _ELEMENTS // dim))
    block = np.zeros((most, dim), table.dtype)  # stays in cache: one column after the other is no way to write memory
    for sample, index in enumerate(np.ndindex(*batch)):
        for start in range(0, length, most):
            stop = min(start + most, length)
            part = block[: stop - start]
            found = columns(slice(sample * length + start, sample * length + stop))
            for channel, column in enumerate(found[:dim]):
                part[:, channel] = scale * column
            table[index][start:stop] = part


def beside_zeros(features: Array, dim: int, scale: float) -> Array:
    """As `fill_columns`, of features (..., N, k), for a reference."""
    kept = features[..., :dim]
    return scale * np.concatenate([kept, np.zeros((*kept.shape[:-1], dim - kept.shape[-1]))], axis=-1)


def remark(count: int, dim: int, what: str) -> tuple[str, ...]:
    """Say that there are more or fewer features than channels."""
    if count > dim:
        return (f"only the first {dim} of {count} {what} have a channel",)
    return (f"{count} of {dim} channels hold {what}, the others are zero",) if count < dim else ()
