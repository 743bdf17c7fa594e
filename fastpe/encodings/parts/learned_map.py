"""A learned map of a few features of every node: table = features @ weight.

It does not use BLAS, so that results are bitwise equal for any number of threads.
"""

from typing import Any

import numpy as np

from fastpe.encodings.parts.row_blocks import row_blocks
from fastpe.kernels.compile.decorators import entry, inlined
from fastpe.kernels.fills.table import LARGE, finish, move_rows
from fastpe.kernels.simd import (
    aligned_zeros,
    at,
    fma,
    get,
    lanes,
    load_first,
    load_wide,
    pointer,
    splat,
    store_first,
    store_rounded,
)

Array = np.ndarray[Any, Any]

_RUN = 32  # rows of a block, a multiple of four


def fill(features: Array, weight: Array, scale: float, table: Array) -> None:
    """Fill `table` (N, C) with `scale * features @ weight`, for features (N, k) and weight (k, C)."""
    wide = np.ascontiguousarray(scale * weight.astype(np.float64))
    block = aligned_zeros((_RUN, weight.shape[1]), table.dtype)
    for rows, first, row_step, step in row_blocks(table):
        _fill(features[rows], wide, block, first, row_step, step, table.nbytes >= LARGE)


def pull(features: Array, scale: float, dtable: Array, dweight: Array) -> None:
    """Add `scale * features.T @ dtable` to `dweight` (k, C)."""
    found = np.zeros(dweight.shape)
    _pull(features, dtable, found)
    dweight += scale * found


@entry(label="learned map of features")
def _fill(features: Array, weight: Array, block: Array, first: Array, row_step: int, step: int, large: bool) -> None:
    number, dim, last = features.shape[1], weight.shape[1], features.shape[0] - 1
    for i in range(0, last + 1, _RUN):
        rows = min(_RUN, last + 1 - i)
        for k in range(0, rows, 4):  # four rows share each read of the map
            here = pointer(features)
            f0, f1 = at(here, (i + k) * number), at(here, min(i + k + 1, last) * number)
            f2, f3 = at(here, min(i + k + 2, last) * number), at(here, min(i + k + 3, last) * number)
            for c in range(0, dim, lanes(splat(0.0))):
                sum0, sum1, sum2, sum3 = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
                for j in range(number):
                    w = load_first(pointer(weight), j * dim + c, dim - c)
                    sum0, sum1 = fma(splat(get(f0, j)), w, sum0), fma(splat(get(f1, j)), w, sum1)
                    sum2, sum3 = fma(splat(get(f2, j)), w, sum2), fma(splat(get(f3, j)), w, sum3)
                out = at(pointer(block), k * dim + c)
                store_rounded(out, 0, sum0, dim - c)
                store_rounded(out, dim, sum1, dim - c)
                store_rounded(out, 2 * dim, sum2, dim - c)
                store_rounded(out, 3 * dim, sum3, dim - c)
        move_rows(pointer(block), rows, dim, at(pointer(first), i * row_step), row_step, step, large)
    finish(large)


@entry(label="gradient of a learned map of features")
def _pull(features: Array, dtable: Array, dweight: Array) -> None:
    number, dim, width = features.shape[1], dweight.shape[1], lanes(splat(0.0))
    for i in range(0, features.shape[0], _RUN):
        stop = min(i + _RUN, features.shape[0])
        for c in range(0, dim, width):
            for k in range(0, number, 4):  # four features share each read of the table
                k1, k2, k3 = min(k + 1, number - 1), min(k + 2, number - 1), min(k + 3, number - 1)
                sum0, sum1, sum2, sum3 = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
                for row in range(i, stop):
                    own = at(pointer(features), row * number)
                    change = load_wide(pointer(dtable), row * dim + c, dim - c)
                    sum0, sum1 = fma(splat(get(own, k)), change, sum0), fma(splat(get(own, k1)), change, sum1)
                    sum2, sum3 = fma(splat(get(own, k2)), change, sum2), fma(splat(get(own, k3)), change, sum3)
                _add(dweight, k, c, sum0)
                if k + 1 < number:
                    _add(dweight, k1, c, sum1)
                if k + 2 < number:
                    _add(dweight, k2, c, sum2)
                if k + 3 < number:
                    _add(dweight, k3, c, sum3)


@inlined
def _add(dweight, row, c, change):  # type: ignore[no-untyped-def]
    place, left = row * dweight.shape[1] + c, dweight.shape[1] - c
    store_first(pointer(dweight), place, load_first(pointer(dweight), place, left) + change, left)
