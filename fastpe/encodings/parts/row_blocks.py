"""Blocks of rows of the array that a fill writes to: any strides are possible without a temporary array of the same
size.

A compiled fill gets the first element of its table, and the strides in elements within a row (`step`) and between rows
(`row_step`). In this way the fill is compiled once for each dtype, not for each memory layout.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastpe.encodings.slots import Spec
from fastpe.kernels.simd import start_of

_BLOCK_ELEMENTS = 2**19


class Rows(NamedTuple):
    """Some rows of a table: which ones, the first element, and the strides in elements."""

    rows: slice
    first: np.ndarray
    row_step: int
    step: int


def row_blocks(table: np.ndarray, elements: int = 0) -> Iterator[Rows]:
    """Yield blocks of rows of a table (..., C), numbered as if its leading axes were flattened.

    A block has about half a million elements, or `elements` if given, so that temporary values for each row stay small.
    """
    *batch, _, dim = table.shape
    most = max(1, (elements or _BLOCK_ELEMENTS) // dim)
    whole = table.reshape(-1, dim) if table.flags.c_contiguous else None
    blocks = [whole] if whole is not None else [table[index] for index in np.ndindex(*batch)]
    before = 0
    for block in blocks:
        row_step, step = (stride // table.itemsize for stride in block.strides)
        for start in range(0, len(block), most):
            stop = min(start + most, len(block))
            yield Rows(slice(before + start, before + stop), start_of(block[start:stop]), row_step, step)
        before += len(block)


def points_of(spec: Spec, rows: slice) -> np.ndarray:
    """The positions of these rows, numbered as in `row_blocks`: a part of `spec.points()`, computed without the other
    parts."""
    if spec.positions is None:
        return np.arange(rows.start, rows.stop, dtype=np.float64) + spec.start
    return spec.positions.reshape(-1)[rows] + spec.start


def farthest_of(spec: Spec) -> float:
    """The largest position."""
    if spec.positions is None:
        return spec.length - 1 + spec.start
    return float(spec.positions.max()) + spec.start
