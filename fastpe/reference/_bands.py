"""Products of queries and keys with the rotary offsets of bands, computed densely in plain NumPy, with pullback."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastpe.functional.arguments import Call
from fastpe.reference._nonfinite import times
from fastpe.reference._rotation import Pairs
from fastpe.reference._sizes import Sizes

Array = np.ndarray[Any, Any]

# kernels rotate each row by its own position, so rounding errors are relative to the size of a pair of channels, even
# if the cosine or the sine of the offset is small
_SIZES_OF_TURNS = np.ones(()), np.ones(())


def look_back(call: Call) -> tuple[Array, Array] | None:
    """Return the rotary offset of each query and key, and whether any band has the pair: (B or 1, 1, N, M) each."""
    if not call.bands:
        return None
    keys, found, has = np.arange(call.positions.m), np.zeros((1, 1, 1, 1)), np.zeros((1, 1, 1, 1), bool)
    for band in call.bands:
        first, last = band.spans[:, None, :, :1], band.spans[:, None, :, 1:]
        own = (first <= keys) & (keys < last)
        found = np.where(own, band.queries[:, None, :, None] - band.keys[:, None, None, :], found)
        has = has | own
    return found, has


def products(
    q: Array, k: Array, look_back: Array, theta: Array, pairs: Pairs
) -> tuple[Array, Callable[[Array], tuple[Array, Array, Array]]]:
    """Return the products of queries and keys, and their pullback to q, k and theta.

    A product is the sum of (q1 k1 + q2 k2) cos(M theta) + (q1 k2 - q2 k1) sin(M theta) over pairs of channels, plus the
    sum of q k over channels that are in no pair. M is the rotary offset `look_back`.
    """
    first, second = pairs
    rest = np.setdiff1d(np.arange(q.shape[-1]), np.concatenate([first, second]))
    angles = [look_back * own for own in theta.ravel()]
    turns = [(np.cos(each).astype(q.dtype), np.sin(each).astype(q.dtype)) for each in angles]
    if isinstance(q, Sizes):
        turns = [_SIZES_OF_TURNS] * len(turns)
    inner = q[..., rest] @ _t(k[..., rest])
    for (cos, sin), one, other in zip(turns, first, second, strict=True):
        along, across = _along_and_across(q, k, one, other)
        inner = inner + along * cos + across * sin

    def pullback(dinner: Array) -> tuple[Array, Array, Array]:
        dq, dk = (np.empty_like(dinner, shape=x.shape) for x in (q, k))
        dq[..., rest], dk[..., rest] = times(dinner, k[..., rest]), times(_t(dinner), q[..., rest])
        dtheta = np.empty_like(dinner, shape=len(turns))
        for t, ((cos, sin), one, other) in enumerate(zip(turns, first, second, strict=True)):
            if isinstance(dinner, Sizes):
                cos, sin = _SIZES_OF_TURNS
            along, across = dinner * cos, dinner * sin
            dq[..., one] = _rows(along, k, one) + _rows(across, k, other)
            dq[..., other] = _rows(along, k, other) - _rows(across, k, one)
            dk[..., one] = _rows(_t(along), q, one) - _rows(_t(across), q, other)
            dk[..., other] = _rows(_t(along), q, other) + _rows(_t(across), q, one)
            own_along, own_across = _along_and_across(q, k, one, other)
            dtheta[t] = np.sum(look_back * (along * own_across - across * own_along))
        return dq, dk, dtheta

    return inner, pullback


def _along_and_across(q: Array, k: Array, one: int, other: int) -> tuple[Array, Array]:
    q1, q2 = q[..., :, None, one], q[..., :, None, other]
    k1, k2 = k[..., None, :, one], k[..., None, :, other]
    return q1 * k1 + q2 * k2, q1 * k2 - q2 * k1


def _rows(cells: Array, x: Array, channel: int) -> Array:
    """Return the sum over j of cells[..., i, j] x[..., j, channel]."""
    return times(cells, x[..., channel, None])[..., 0]


def _t(matrices: Array) -> Array:
    return np.swapaxes(matrices, -1, -2)
