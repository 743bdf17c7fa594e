"""A few features of every node through a learned map: table = features @ weight.

There is no BLAS in it: with so few features the product is as fast as memory, and the same bits come out with any
number of threads.
"""

from typing import Any

import numpy as np

from fastpe.encodings._rows import row_blocks
from fastpe.kernels._jit import entry
from fastpe.kernels.simd import (
    aligned_zeros,
    at,
    fma,
    lanes,
    load_first,
    load_wide,
    pointer,
    splat,
    store_first,
    store_rounded,
)
from fastpe.kernels.table import LARGE, finish, move_rows

Array = np.ndarray[Any, Any]

_RUN = 16  # rows of a block


def fill(features: Array, weight: Array, scale: float, table: Array) -> None:
    """table (N, C) = scale features (N, k) weight (k, C)."""
    wide = np.ascontiguousarray(scale * weight.astype(np.float64))
    block = aligned_zeros((_RUN, weight.shape[1]), table.dtype)
    for rows, first, row_step, step in row_blocks(table):
        _fill(features[rows], wide, block, first, row_step, step, table.nbytes >= LARGE)


def pull(features: Array, scale: float, dtable: Array, dweight: Array) -> None:
    """Add scale features^T dtable into dweight."""
    found = np.zeros(dweight.shape)
    _pull(features, dtable, found)
    dweight += scale * found


@entry(label="learned map of features")
def _fill(features: Array, weight: Array, block: Array, first: Array, row_step: int, step: int, large: bool) -> None:
    count, dim = features.shape[1], weight.shape[1]
    for i in range(0, features.shape[0], _RUN):
        rows = min(_RUN, features.shape[0] - i)
        for row in range(rows):
            for c in range(0, dim, lanes(splat(0.0))):
                total = splat(0.0)
                for k in range(count):
                    total = fma(splat(features[i + row, k]), load_first(pointer(weight), k * dim + c, dim - c), total)
                store_rounded(pointer(block), row * dim + c, total, dim - c)
        move_rows(pointer(block), rows, dim, at(pointer(first), i * row_step), row_step, step, large)
    finish(large)


@entry(label="gradient of a learned map of features")
def _pull(features: Array, dtable: Array, dweight: Array) -> None:
    dim = dweight.shape[1]
    for i in range(features.shape[0]):
        for c in range(0, dim, lanes(splat(0.0))):
            change = load_wide(pointer(dtable), i * dim + c, dim - c)
            for k in range(features.shape[1]):
                place = k * dim + c
                found = fma(splat(features[i, k]), change, load_first(pointer(dweight), place, dim - c))
                store_first(pointer(dweight), place, found, dim - c)
