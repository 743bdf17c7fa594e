"""Tables whose first channels are a few features of the position; the other channels are zero."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastpe.encodings.parts.row_blocks import row_blocks
from fastpe.kernels.compile.decorators import entry
from fastpe.kernels.fills.table import LARGE, finish, move_rows
from fastpe.kernels.simd import at, pointer

Array = np.ndarray[Any, Any]
_RUN = 16  # rows of a block


def fill_columns(table: Array, columns: Callable[[slice], Array], scale: float) -> None:
    """Fill a table (..., N, C) with columns, then zeros; columns past C are left out.

    `columns(rows)` returns the columns of some rows, (k, n) float64; rows are numbered as in `row_blocks`.
    """
    block = np.zeros((_RUN, table.shape[-1]), table.dtype)
    for rows, first, row_step, step in row_blocks(table):
        _fill(columns(rows), scale, block, first, row_step, step, table.nbytes >= LARGE)


@entry(label="feature columns")
def _fill(columns: Array, scale: float, block: Array, first: Array, row_step: int, step: int, large: bool) -> None:
    dim = block.shape[1]
    for i in range(0, columns.shape[1], _RUN):
        count = min(_RUN, columns.shape[1] - i)
        for channel in range(min(columns.shape[0], dim)):
            for k in range(count):
                block[k, channel] = scale * columns[channel, i + k]
        move_rows(pointer(block), count, dim, at(pointer(first), i * row_step), row_step, step, large)
    finish(large)


def beside_zeros(features: Array, dim: int, scale: float) -> Array:
    """For references: features (..., N, k) times `scale`, padded with zeros or cut to (..., N, dim)."""
    kept = features[..., :dim]
    return scale * np.concatenate([kept, np.zeros((*kept.shape[:-1], dim - kept.shape[-1]))], axis=-1)


def remark(count: int, dim: int, what: str) -> tuple[str, ...]:
    """A remark if there are more or fewer features than channels."""
    if count > dim:
        return (f"only the first {dim} of {count} {what} have a channel",)
    return (f"{count} of {dim} channels hold {what}, the others are zero",) if count < dim else ()
