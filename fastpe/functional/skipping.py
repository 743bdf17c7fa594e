"""Bounds on the scores of tiles, which decide what tiles are skipped: see the docstring of `kernels.attention`."""

import math
from typing import Any

import numpy as np

from fastpe.functional.slot_arrays import Arrays
from fastpe.kernels.attention.inputs import CHUNK
from fastpe.kernels.attention.slots import BIAS, GIVEN, KEY_OFFSET
from fastpe.kernels.attention.terms.key_query_offsets import Columns
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES

Array = np.ndarray[Any, Any]

_UNDERFLOW = 1e-30  # more than a squared norm can lose when squares underflow


def limits_of(tolerance: float, causal: bool, m: int) -> tuple[float, float]:
    """Return the logarithms of two limits on softmax weights; weights below them may be skipped. The first limit is for
    the total weight of all keys beyond a tile on one side, the second for the weight of a single one of the m keys.
    """
    if not tolerance:
        return -math.inf, -math.inf
    return math.log(tolerance / 2 / (1 if causal else 2)), math.log(tolerance / 2 / m)


def bounds_of(q: Array, k: Array, made: Arrays, met: tuple[int, int] | None) -> tuple[Array, Array, Array]:
    """Return three arrays from which kernels bound the scores of tiles:

    - the norms of queries;
    - the norms of keys, as running maxima over tiles, from the first tile on and from the last tile on;
    - the logarithms of sums of exp(bias), as running sums over chunks of offsets, from the first chunk on and from the
      last chunk on.

    `q` and `k` are content rows. `met` has the numbers of heads and of offsets of the bias. It is None if no tile is
    skipped; the results are then placeholders.
    """
    dtype = made.bias.dtype
    if met is None:
        return np.zeros(1, dtype), np.zeros((*k.shape[:2], 2, 1), dtype), np.zeros((1, q.shape[1], 2, 1))
    squares = (np.einsum("bhnd,bhnd->bhn", x, x) for x in (q, k))
    q_norms, k_norms = (np.sqrt(square + dtype.type(_UNDERFLOW)) for square in squares)
    largest = _blocks(k_norms, int(TILE_KEYS), 0.0).max(axis=-1)
    tails = np.zeros((1, met[0], 2, -(-met[1] // int(CHUNK))))
    if made.table[BIAS, GIVEN]:
        bias = made.bias.reshape(-1, *met).astype(np.float64)
        tails = _from_both_sides(np.logaddexp, _log_sums(_blocks(bias, int(CHUNK), -np.inf)))
    return q_norms.reshape(-1), _from_both_sides(np.maximum, largest), tails


def columns_with_room(made: Arrays, sizes: tuple[int, int, int, int], skips: bool) -> Columns | None:
    """Return the columns (`key_offset`, `key_slope`, `query_slope`) with memory for the base offsets of blocks. If
    tiles may be skipped, also add bounds on key offsets.

    `sizes` are B, H, N and M.
    """
    if made.columns is None:
        return None
    b, h, n, m = sizes
    columns = made.columns._replace(bases=np.zeros(b * h * -(-n // int(TILE_QUERIES))))
    if not (skips and made.table[KEY_OFFSET, GIVEN]):
        return columns
    blocks = _blocks(columns.key_offset.reshape(-1, m), int(TILE_KEYS), -np.inf)
    if made.table[BIAS, GIVEN]:  # sum exp(bias + offset) <= sum exp(bias) * max exp(offset)
        return columns._replace(tails=_from_both_sides(np.maximum, blocks.max(axis=-1)).reshape(-1))
    return columns._replace(tails=_from_both_sides(np.logaddexp, _log_sums(blocks)).reshape(-1))


def raised(lse: Array, columns: Columns | None, sign: float = 1.0) -> Array:
    """Return lse (B, H, N) plus `sign` times the base offsets of blocks, which the lse of kernels does not contain.
    With base offsets, the result is float64.
    """
    if columns is None:
        return lse
    bases = columns.bases.reshape(*lse.shape[:2], -1)
    return lse + sign * np.repeat(bases, int(TILE_QUERIES), axis=-1)[..., : lse.shape[-1]]


def _blocks(x: Array, size: int, fill: float) -> Array:
    """Divide the last axis into blocks of `size` entries. The last block is padded with `fill`."""
    padding = -x.shape[-1] % size
    padded = np.concatenate([x, np.full((*x.shape[:-1], padding), fill, x.dtype)], axis=-1)
    return padded.reshape(*x.shape[:-1], -1, size)


def _log_sums(x: Array) -> Array:
    """Return log sum exp along the last axis, rounded up."""
    top = x.max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x - np.where(top == -np.inf, 0.0, top)).sum(axis=-1)) + top[..., 0] + 1e-6


def _from_both_sides(function: Any, x: Array) -> Array:
    """Accumulate `function` along the last axis, from its beginning and from its end: (..., 2, size)."""
    ends = [function.accumulate(x, axis=-1), function.accumulate(x[..., ::-1], axis=-1)[..., ::-1]]
    return np.ascontiguousarray(np.stack(ends, axis=-2))
