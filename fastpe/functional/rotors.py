"""Linear maps of blocks of channels that queries and keys pass through before they are turned: the slot `rotors`."""

import math
from typing import Any

import numpy as np

from fastpe.functional.layouts import contiguous, plain_rows
from fastpe.functional.visibility import Positions
from fastpe.kernels import simd
from fastpe.kernels.rows import block_maps as kernel
from fastpe.kernels.threads.team import run_team, workers_for

Array = np.ndarray[Any, Any]


def mapped(
    x: Array, rotors: Array, positions: Positions, pairs: str, *, queries: bool, back: bool = False
) -> Array:  # fmt: skip
    """x (B, H, N, D) with every block of channels times its map, or the transposed one with `back`.

    rotors: (B or 1, H or 1, L or 1, D/b, b, b), a map for each position or one for all.
    """
    x, y = plain_rows(x), np.empty(x.shape, x.dtype)
    strides = tuple(stride // x.itemsize for stride in x.strides[:3])
    of_maps, maps = _sizes(rotors), kernel.lie_in(rotors.astype(x.dtype, copy=False))
    tasks = math.prod(x.shape[:2]) * -(-x.shape[2] // kernel.ROWS_OF_A_TASK)
    workers = workers_for(x.size * of_maps[-1], tasks)
    run_team(
        workers, kernel.map_rows, x, strides, maps, _starts(x, rotors, positions, queries), y, x.shape, of_maps,
        pairs == "half", back, _scratch(workers, x),
    )  # fmt: skip
    return y


def rotors_gradient(
    rotors: Array, q: Array, k: Array, dq: Array, dk: Array, positions: Positions, pairs: str
) -> Array:  # fmt: skip
    """The gradient of the maps: q and k are what they were applied to, dq and dk the gradients of what they made."""
    found, of_maps = np.zeros(rotors.size, q.dtype), _sizes(rotors)
    led, per_head, length, _ = of_maps
    for x, dx, queries in ((q, dq, True), (k, dk, False)):
        x, dx = contiguous(x, x.dtype), contiguous(dx, x.dtype)
        pieces = length // kernel.ROWS_OF_A_TASK if length > 1 else x.shape[-1] // kernel.CHANNELS_OF_A_TASK
        workers = workers_for(x.size * of_maps[-1], led * per_head * (pieces + 1))
        run_team(
            workers, kernel.map_gradients, x, dx, _starts(x, rotors, positions, queries), found, x.shape,
            of_maps, pairs == "half", _scratch(workers, x),
        )  # fmt: skip
    return kernel.lie_out(found, rotors.shape)


def _sizes(rotors: Array) -> tuple[int, int, int, int]:
    """Samples, heads and positions with maps of their own, and channels of a block."""
    led, per_head, length, _, _, block = rotors.shape
    return led, per_head, length, block


def _starts(x: Array, rotors: Array, positions: Positions, queries: bool) -> Array:
    """The position of each sample's first row."""
    if positions.starts is None:
        first: Any = rotors.shape[2] - x.shape[2]
    else:
        first = positions.starts if queries else 0
    return np.array(np.broadcast_to(first, x.shape[:1]), np.int64)


def _scratch(workers: int, x: Array) -> Array:
    return simd.aligned_zeros((workers, kernel.scratch_size(x.shape[-1])), x.dtype)
