"""Queries and keys in the form that the products of scores use, and their gradients.

A row is first multiplied by the matrices in `rotors` or converted to `polar` form, and then rotated by `angles` or by
the angles of a band. Queries are finally multiplied by their `row_scale`. "Content rows" in this module are the rows
after these steps.

`polar` (PoPE, arXiv:2509.10534) turns each channel x into two: for a query (softplus(x), 0), for a key
(softplus(x) cos phi, softplus(x) sin phi) with phase phi. Then `angles` rotates all D pairs. Products of such rows are
sums of softplus(q) softplus(k) cos(b - a + phi), where a and b are the angles of query and key. `polar` cannot be
combined with terms of the score that read the original queries and keys.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.functional.arguments import Call, in_float32
from fastpe.functional.bands import Band
from fastpe.functional.layouts import contiguous, plain_rows, summed_to
from fastpe.functional.rotation import angle_gradient, channels_of_pairs, rotated
from fastpe.functional.visibility import Positions
from fastpe.kernels import simd
from fastpe.kernels.rows import block_maps, polar
from fastpe.kernels.threads.team import run_team, workers_for

Array = np.ndarray[Any, Any]
Rows = tuple[Array, Array, Array, Array, Array]
"""Original queries, content rows of queries, original keys, content rows of keys, values."""

_ALL = slice(None)
_MOVING = {"rotors", "polar"}
_OF_A_RADIUS = 16  # estimated cost of softplus(x), in multiplications


def shared_turns(slots: Mapping[str, Array], h: int, hk: int) -> int:
    """Return the number of copies of each head of keys and values: h / hk if query heads that share a key head have
    different rotations or matrices, otherwise 1.
    """
    apart = any(slots[name].shape[1] not in (1, hk) for name in ("rotors", "polar", "angles") if name in slots)
    return h // hk if apart else 1


def width_of(slots: Mapping[str, Array], d: int) -> int:
    """Return the number of channels of a content row (see the docstring of this module)."""
    return 2 * d if "polar" in slots else d


def pairs_of(slots: Mapping[str, Array], pairs: str) -> str:
    """Return which channels of a content row form a pair."""
    return "half" if "polar" in slots else pairs


def own_angles(slots: Mapping[str, Array], positions: Positions) -> tuple[Array, Array] | None:
    """Return the angles of queries and of keys, or None if the slots have no `angles`."""
    if "angles" not in slots:
        return None
    return positions.of_queries(slots["angles"], -2), positions.of_keys(slots["angles"], -2)


def content_rows(
    q: Array, k: Array, v: Array, slots: Mapping[str, Array], angles: tuple[Array, Array | None] | None, group: int,
    positions: Positions, pairs: str, keys: slice = _ALL,
) -> Rows:  # fmt: skip
    """Return q, the content rows of q, k, the content rows of k, and v.

    Original rows and content rows have the same strides, except rows in polar form, which are twice as wide. `angles`
    holds the angles of queries and of keys (None if keys are not rotated). `keys` is the range of keys that any query
    reads.
    """
    if group > 1:
        k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    q, k, v = plain_rows(q), plain_rows(k), plain_rows(v)
    if angles is None and not {*_MOVING, "row_scale"} & slots.keys():
        return q, q, k, k, v
    if angles is None and not _MOVING & slots.keys():
        q = np.ascontiguousarray(q)
        return q, _scaled_rows(q, slots), k, k, v
    q, k, pairs = np.ascontiguousarray(q), np.ascontiguousarray(in_float32(k)), pairs_of(slots, pairs)
    qr, kr = (_moved(x, slots, positions, pairs, queries=queries) for x, queries in ((q, True), (k, False)))
    if angles is not None:
        qr = rotated(qr, angles[0], pairs, np.empty(q.shape, q.dtype) if qr is q else qr, 1.0)
    if angles is not None and angles[1] is not None:
        made = np.empty(kr.shape, kr.dtype) if keys == _ALL else np.zeros(kr.shape, kr.dtype)
        rotated(kr[:, :, keys], angles[1], pairs, made[:, :, keys], 1.0)
        kr = made
    return q, _scaled_rows(qr, slots), k, kr, v


def rows_read(rows: Rows, slots: Mapping[str, Array]) -> Rows:
    """Return the rows that kernels read. In polar form, these are only content rows: no term reads original rows."""
    _, qr, _, kr, v = rows
    return (qr, qr, kr, kr, v) if "polar" in slots else rows


def rows_of_bounds(rows: Rows, slots: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return rows of queries and keys that have the norms of the content rows. These are the original rows if the
    content rows are only rotated."""
    q, qr, k, kr, _ = rows
    return qr if "row_scale" in slots or "rotors" in slots else q, kr if "rotors" in slots else k


def _moved(x: Array, slots: Mapping[str, Array], positions: Positions, pairs: str, *, queries: bool) -> Array:
    """Return queries or keys multiplied by their matrices, or in polar form. Without these slots, return x itself."""
    if "polar" in slots:
        return _to_polar(x, None if queries else slots["polar"])
    return _mapped(x, slots["rotors"], positions, pairs, queries=queries) if "rotors" in slots else x


def _scaled_rows(x: Array, slots: Mapping[str, Array]) -> Array:
    """Return x (B, H, N, D) with its rows multiplied by `row_scale`; x itself without this slot."""
    return x * slots["row_scale"][..., None] if "row_scale" in slots else x


# ---------------------------------------------------------------------------------------------------------------------
# Gradients


def content_gradients(
    call: Call, rows: Rows, angles: tuple[Array, Array | None] | None, keys: slice, dq: Array, dk: Array
) -> tuple[Array, Array, dict[str, Array]]:
    """Return the gradients of the queries and keys passed to `content_rows`, and of the slots that this function read.

    `rows` is the return value of `content_rows`. `dq` and `dk` are the gradients of the content rows; the arrays are
    overwritten.
    """
    (q, qr, k, kr, _), slots, positions, found = rows, call.slots, call.positions, dict[str, Array]()
    pairs = pairs_of(slots, call.pairs)
    if "growth" in call.shapes:
        found["growth"] = _growth_gradient(call, (qr, kr), (dq, dk))
    if "polar" in call.shapes:
        found["polar"] = angle_gradient(kr, dk, k.shape[-1], pairs).sum(axis=-2)
    if angles is not None:
        if "angles" in call.shapes:
            found["angles"] = _angles_gradient(call, (qr, kr), (dq, dk))
        if "theta" in call.shapes:
            found["theta"] = _theta_gradient(call, call.bands[0], (qr, kr[:, :, keys]), (dq, dk[:, :, keys]), keys)
        for dx, own in zip((dq, dk[:, :, keys]), angles, strict=True):
            if own is not None:
                rotated(dx, own, pairs, dx, -1.0)
    if "row_scale" in slots:
        if "row_scale" in call.shapes:
            moved = _moved(np.ascontiguousarray(q), slots, positions, pairs, queries=True)
            found["row_scale"] = np.einsum("bhnd,bhnd->bhn", dq, moved)
        dq *= slots["row_scale"][..., None]
    if "rotors" in slots:
        if "rotors" in call.shapes:
            found["rotors"] = _rotors_gradient(slots["rotors"], q, k, dq, dk, positions, pairs)
        dq, dk = (
            _mapped(np.ascontiguousarray(dx), slots["rotors"], positions, pairs, queries=queries, back=True)
            for dx, queries in ((dq, True), (dk, False))
        )
    if "polar" in slots:
        dq, dk = _from_polar(q, dq, None), _from_polar(k, dk, slots["polar"])
    return dq, dk, found


def _angles_gradient(call: Call, rows: tuple[Array, Array], drows: tuple[Array, Array]) -> Array:
    angles, positions = call.slots["angles"], call.positions
    size, count = angles.shape[-2:]
    of_queries, of_keys = (
        angle_gradient(x, dx, count, pairs_of(call.slots, call.pairs)) for x, dx in zip(rows, drows, strict=True)
    )
    return summed_to(positions.queries_back(of_queries, -2, size), angles.shape) + summed_to(
        positions.keys_back(of_keys, -2, size), angles.shape
    )


def _theta_gradient(
    call: Call, band: Band, rows: tuple[Array, Array], drows: tuple[Array, Array], keys: slice
) -> Array:  # fmt: skip
    """Return the gradient of `theta`, (1, R)."""
    count = call.slots["theta"].shape[-1]
    of_queries, of_keys = (
        angle_gradient(x, dx, count, call.pairs) * places[:, None, :, None]
        for x, dx, places in zip(rows, drows, (band.queries, band.keys[:, keys]), strict=True)
    )
    return np.asarray(of_queries.sum(axis=(0, 1, 2)) + of_keys.sum(axis=(0, 1, 2)))[None]


def _growth_gradient(call: Call, rows: tuple[Array, Array], drows: tuple[Array, Array]) -> Array:
    growth, positions = call.slots["growth"], call.positions
    first, second = channels_of_pairs(growth.shape[-1], call.pairs)
    size = growth.shape[-2]

    def content(x: Array, dx: Array) -> Array:
        product = dx.astype(np.float64) * x
        return (product[..., first] + product[..., second]).sum(axis=1)

    of_queries, of_keys = (content(x, dx) for x, dx in zip(rows, drows, strict=True))
    return positions.queries_back(of_queries, -2, size) - positions.keys_back(of_keys, -2, size)


# ---------------------------------------------------------------------------------------------------------------------
# Matrices for blocks of channels: the slot `rotors`


def _mapped(
    x: Array, rotors: Array, positions: Positions, pairs: str, *, queries: bool, back: bool = False
) -> Array:  # fmt: skip
    """Return x (B, H, N, D) with every block of channels multiplied by its matrix, transposed if `back`.

    `rotors` (B or 1, H or 1, L or 1, D/b, b, b) has a matrix for each position and block, or one for all positions.
    """
    x, y = plain_rows(x), np.empty(x.shape, x.dtype)
    strides = tuple(stride // x.itemsize for stride in x.strides[:3])
    of_maps, maps = _sizes_of_maps(rotors), block_maps.lie_in(rotors.astype(x.dtype, copy=False))
    tasks = math.prod(x.shape[:2]) * -(-x.shape[2] // block_maps.ROWS_OF_A_TASK)
    workers = workers_for(x.size * of_maps[-1], tasks)
    run_team(
        workers, block_maps.map_rows, x, strides, maps, _first_positions(x, rotors, positions, queries), y, x.shape,
        of_maps, pairs == "half", back, _scratch_of_maps(workers, x),
    )  # fmt: skip
    return y


def _rotors_gradient(
    rotors: Array, q: Array, k: Array, dq: Array, dk: Array, positions: Positions, pairs: str
) -> Array:  # fmt: skip
    """Return the gradient of the matrices that multiplied q and k. dq and dk are the gradients of the products."""
    found, of_maps = np.zeros(rotors.size, q.dtype), _sizes_of_maps(rotors)
    led, per_head, length, _ = of_maps
    for x, dx, queries in ((q, dq, True), (k, dk, False)):
        x, dx = contiguous(x, x.dtype), contiguous(dx, x.dtype)
        pieces = length // block_maps.ROWS_OF_A_TASK if length > 1 else x.shape[-1] // block_maps.CHANNELS_OF_A_TASK
        workers = workers_for(x.size * of_maps[-1], led * per_head * (pieces + 1))
        run_team(
            workers, block_maps.map_gradients, x, dx, _first_positions(x, rotors, positions, queries), found, x.shape,
            of_maps, pairs == "half", _scratch_of_maps(workers, x),
        )  # fmt: skip
    return block_maps.lie_out(found, rotors.shape)


def _sizes_of_maps(rotors: Array) -> tuple[int, int, int, int]:
    """Return the numbers of samples, heads and positions with separate matrices, and the channels of a block."""
    led, per_head, length, _, _, block = rotors.shape
    return led, per_head, length, block


def _first_positions(x: Array, rotors: Array, positions: Positions, queries: bool) -> Array:
    """Return the position of each sample's first row, (B,)."""
    if positions.starts is None:
        first: Any = rotors.shape[2] - x.shape[2]
    else:
        first = positions.starts if queries else 0
    return np.array(np.broadcast_to(first, x.shape[:1]), np.int64)


def _scratch_of_maps(workers: int, x: Array) -> Array:
    return simd.aligned_zeros((workers, block_maps.scratch_size(x.shape[-1])), x.dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Channels in polar form: the slot `polar`


def _to_polar(x: Array, phases: Array | None) -> Array:
    """Return rows of 2 D channels for x (B, H, N, D): first softplus(x) cos phi for all channels, then
    softplus(x) sin phi.

    `phases` (B or 1, H or 1, D) has the phases phi of keys, in radians. It is None for queries, whose phases are 0.
    """
    x = plain_rows(x)
    y = np.empty((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    run_team(_workers_of_polar(x), polar.lift_rows, x, _strides(x), *_factors(x, phases), y, x.shape)
    return y


def _from_polar(x: Array, dy: Array, phases: Array | None) -> Array:
    """Return the gradient of x, where dy is the gradient of the result of `_to_polar`."""
    x, dx = plain_rows(x), np.empty(x.shape, x.dtype)
    dy = contiguous(dy, x.dtype)
    run_team(_workers_of_polar(x), polar.lower_rows, x, _strides(x), *_factors(x, phases), dx, dy, x.shape)
    return dx


def _workers_of_polar(x: Array) -> int:
    tasks = math.prod(x.shape[:2]) * -(-x.shape[2] // polar.ROWS_OF_A_TASK)
    return workers_for(_OF_A_RADIUS * x.size, tasks)


def _strides(x: Array) -> tuple[int, ...]:
    return tuple(stride // x.itemsize for stride in x.strides[:3])


def _factors(x: Array, phases: Array | None) -> tuple[Array, tuple[int, int]]:
    """Return the cosines and sines of the phases in one array, and its strides over samples and over heads."""
    phases = np.zeros((1, 1, x.shape[-1])) if phases is None else contiguous(phases, np.float64)
    led, per_head, width = phases.shape
    factors = np.empty(2 * phases.size, x.dtype)
    polar.fill_factors(phases.reshape(-1), width, factors)
    return factors, (2 * width * per_head if led > 1 else 0, 2 * width if per_head > 1 else 0)
