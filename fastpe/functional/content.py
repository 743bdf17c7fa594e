"""Queries and keys as the content of a score has them, mapped or lifted, turned and scaled; and the gradients of that.

A row goes through `rotors` or `polar`, then through `angles`, or a band's; queries are at last multiplied by their
`row_scale`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.functional.arguments import Call, in_float32
from fastpe.functional.bands import Band
from fastpe.functional.layouts import plain_rows, summed_to
from fastpe.functional.polar import lifted, lowered
from fastpe.functional.rotation import channels, crossed, turned
from fastpe.functional.rotors import mapped, rotors_gradient
from fastpe.functional.visibility import Positions

Array = np.ndarray[Any, Any]
Rows = tuple[Array, Array, Array, Array, Array]
"""Queries as they came and as the content has them, keys likewise, values."""

_ALL = slice(None)
_MOVING = {"rotors", "polar"}


def shared_turns(slots: Mapping[str, Array], h: int, hk: int) -> int:
    """How many copies of keys and values there must be, as heads that turn or map keys on their own share none."""
    apart = any(slots[name].shape[1] not in (1, hk) for name in ("rotors", "polar", "angles") if name in slots)
    return h // hk if apart else 1


def width_of(slots: Mapping[str, Array], d: int) -> int:
    """Channels of a row of the content."""
    return 2 * d if "polar" in slots else d


def pairs_of(slots: Mapping[str, Array], pairs: str) -> str:
    """Which channels of a row of the content are turned together."""
    return "half" if "polar" in slots else pairs


def own_angles(slots: Mapping[str, Array], positions: Positions) -> tuple[Array, Array] | None:
    """The angles of queries and those of keys, where the slots have any."""
    if "angles" not in slots:
        return None
    return positions.of_queries(slots["angles"], -2), positions.of_keys(slots["angles"], -2)


def turned_rows(
    q: Array, k: Array, v: Array, slots: Mapping[str, Array], angles: tuple[Array, Array | None] | None, group: int,
    positions: Positions, pairs: str, keys: slice = _ALL,
) -> Rows:  # fmt: skip
    """q, q mapped, turned and scaled row by row, k, k mapped and turned, and v; before and after they have the same
    strides, but for lifted rows, which are twice as wide.

    angles: of queries, and of keys, None where these are not turned. keys: those that anybody reads.
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
        qr = turned(qr, angles[0], pairs, np.empty(q.shape, q.dtype) if qr is q else qr, 1.0)
    if angles is not None and angles[1] is not None:
        made = np.empty(kr.shape, kr.dtype) if keys == _ALL else np.zeros(kr.shape, kr.dtype)
        turned(kr[:, :, keys], angles[1], pairs, made[:, :, keys], 1.0)
        kr = made
    return q, _scaled_rows(qr, slots), k, kr, v


def rows_read(rows: Rows, slots: Mapping[str, Array]) -> Rows:
    """What kernels read: nothing of rows before they were lifted, as no term beside them does."""
    _, qr, _, kr, v = rows
    return (qr, qr, kr, kr, v) if "polar" in slots else rows


def rows_of_bounds(rows: Rows, slots: Mapping[str, Array]) -> tuple[Array, Array]:
    """Of rows that kernels read, queries and keys whose norms are those of the content: rotations keep them."""
    q, qr, k, kr, _ = rows
    return qr if "row_scale" in slots or "rotors" in slots else q, kr if "rotors" in slots else k


def _moved(x: Array, slots: Mapping[str, Array], positions: Positions, pairs: str, *, queries: bool) -> Array:
    """Queries or keys times their maps, or lifted; x itself where there is nothing of that."""
    if "polar" in slots:
        return lifted(x, None if queries else slots["polar"])
    return mapped(x, slots["rotors"], positions, pairs, queries=queries) if "rotors" in slots else x


def _scaled_rows(x: Array, slots: Mapping[str, Array]) -> Array:
    """x (B, H, N, D), its rows times their `row_scale`, if there is one."""
    return x * slots["row_scale"][..., None] if "row_scale" in slots else x


# ---------------------------------------------------------------------------------------------------------------------
# Gradients


def content_gradients(
    call: Call, rows: Rows, angles: tuple[Array, Array | None] | None, keys: slice, dq: Array, dk: Array
) -> tuple[Array, Array, dict[str, Array]]:
    """The gradients of the queries and keys that `turned_rows` had, and of the slots that it read.

    rows: what it gave. dq, dk: the gradients of its rows, which are written to.
    """
    (q, qr, k, kr, _), slots, positions, found = rows, call.slots, call.positions, dict[str, Array]()
    pairs = pairs_of(slots, call.pairs)
    if "growth" in call.shapes:
        found["growth"] = _growth_gradient(call, (qr, kr), (dq, dk))
    if "polar" in call.shapes:
        found["polar"] = crossed(kr, dk, k.shape[-1], pairs).sum(axis=-2)
    if angles is not None:
        if "angles" in call.shapes:
            found["angles"] = _angles_gradient(call, (qr, kr), (dq, dk))
        if "theta" in call.shapes:
            found["theta"] = _theta_gradient(call, call.bands[0], (qr, kr[:, :, keys]), (dq, dk[:, :, keys]), keys)
        for dx, own in zip((dq, dk[:, :, keys]), angles, strict=True):
            if own is not None:
                turned(dx, own, pairs, dx, -1.0)
    if "row_scale" in slots:
        if "row_scale" in call.shapes:
            moved = _moved(np.ascontiguousarray(q), slots, positions, pairs, queries=True)
            found["row_scale"] = np.einsum("bhnd,bhnd->bhn", dq, moved)
        dq *= slots["row_scale"][..., None]
    if "rotors" in slots:
        if "rotors" in call.shapes:
            found["rotors"] = rotors_gradient(slots["rotors"], q, k, dq, dk, positions, pairs)
        dq, dk = (
            mapped(np.ascontiguousarray(dx), slots["rotors"], positions, pairs, queries=queries, back=True)
            for dx, queries in ((dq, True), (dk, False))
        )
    if "polar" in slots:
        dq, dk = lowered(q, dq, None), lowered(k, dk, slots["polar"])
    return dq, dk, found


def _angles_gradient(call: Call, rows: tuple[Array, Array], drows: tuple[Array, Array]) -> Array:
    angles, positions = call.slots["angles"], call.positions
    size, count = angles.shape[-2:]
    of_queries, of_keys = (
        crossed(x, dx, count, pairs_of(call.slots, call.pairs)) for x, dx in zip(rows, drows, strict=True)
    )
    return summed_to(positions.queries_back(of_queries, -2, size), angles.shape) + summed_to(
        positions.keys_back(of_keys, -2, size), angles.shape
    )


def _theta_gradient(
    call: Call, band: Band, rows: tuple[Array, Array], drows: tuple[Array, Array], keys: slice
) -> Array:  # fmt: skip
    """Of what a band's places are multiplied by, (1, R)."""
    count = call.slots["theta"].shape[-1]
    of_queries, of_keys = (
        crossed(x, dx, count, call.pairs) * places[:, None, :, None]
        for x, dx, places in zip(rows, drows, (band.queries, band.keys[:, keys]), strict=True)
    )
    return np.asarray(of_queries.sum(axis=(0, 1, 2)) + of_keys.sum(axis=(0, 1, 2)))[None]


def _growth_gradient(call: Call, rows: tuple[Array, Array], drows: tuple[Array, Array]) -> Array:
    growth, positions = call.slots["growth"], call.positions
    first, second = channels(growth.shape[-1], call.pairs)
    size = growth.shape[-2]

    def content(x: Array, dx: Array) -> Array:
        product = dx.astype(np.float64) * x
        return (product[..., first] + product[..., second]).sum(axis=1)

    of_queries, of_keys = (content(x, dx) for x, dx in zip(rows, drows, strict=True))
    return positions.queries_back(of_queries, -2, size) - positions.keys_back(of_keys, -2, size)
