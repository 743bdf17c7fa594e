"""The checked arguments of reference attention (`Case`), methods that index them, and sums of their gradients."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.functional import arguments
from fastpe.functional.arguments import Call, dropout_key
from fastpe.functional.slot_arrays import cells_back
from fastpe.functional.visibility import Positions
from fastpe.reference._bands import look_back
from fastpe.reference._dropout import dropout_factors
from fastpe.reference._rotation import channels
from fastpe.reference._sizes import Sizes

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """Arguments in a common form.

    q, k and v are (B, H, N or M, D), with keys and values repeated for all heads. Slots have a leading axis B or 1.
    """

    q: Array
    k: Array
    v: Array
    slots: dict[str, Array]
    scale: Array  # (1, 1, 1, 1) or (1, H, 1, 1)
    rectify: bool
    pairs: tuple[Array, Array]  # the first and the second channels of rotated pairs
    visible: Array  # (B, 1 or H, N, M)
    mask: Array  # added to visible scores last, (B or 1, H or 1, N or 1, M or 1)
    softcap: float
    dropped: Array | None  # (B, H, N, M): factors of dropout on weights
    positions: Positions
    call: Call
    return_lse: bool
    shapes: dict[str, tuple[int, ...]]  # of the arguments to compute gradients for, as they were passed
    look_back: Array | None  # rotary offsets of bands, (B or 1, 1, N, M), 0 where no band applies
    follows: bool = False  # whether more keys may follow the last one, as in a model

    def rows(self, slot: str, transposed: bool = False) -> Array:
        """Return the row of a slot that each query and key read: clip(j - i, -K, K) + K, (B or 1, 1, N, M)."""
        reach = self.slots[slot].shape[-1 if slot in ("gain", "bias") else -2] // 2
        rows = np.clip(self.positions.offsets(), -reach, reach) + reach
        return (np.swapaxes(rows, -1, -2) if transposed else rows)[:, None]

    def gather(self, by_offset: Array, slot: str, transposed: bool = False) -> Array:
        """(B, H, N or 1, 2K+1) -> (B, H, N, M): give each query and key the entry of their offset."""
        rows = self.rows(slot, transposed)
        led = np.broadcast_to(by_offset, (*_samples(rows, by_offset), *by_offset.shape[1:]))
        return np.take_along_axis(led, rows, axis=-1)

    def scatter(self, cells: Array, slot: str, transposed: bool = False) -> Array:
        """(B, H, N, M) -> (B, H, N, 2K+1): sum the entries of each query by offset. This is the adjoint of `gather`."""
        axis = -1 if slot in ("gain", "bias") else -2
        return add_up(cells, self.rows(slot, transposed), self.slots[slot].shape[axis])

    def index_cells(self) -> Array:
        index = self.slots["index"]
        return index.reshape(len(index), 1, 1, index.shape[-2] * index.shape[-1])

    def look_up_values(self) -> Array:
        index = self.index_cells()
        values = self.slots["values"][:, :, None, :]
        led = np.broadcast_to(values, (*_samples(index, values), *values.shape[1:]))
        cells = np.take_along_axis(led, index, axis=-1)
        return cells.reshape(*cells.shape[:2], self.q.shape[-2], self.k.shape[-2])

    def channel_gain(self, d: int) -> Any:
        """Return rel_gain[j-i, d] of every query and key."""
        if "rel_gain" not in self.slots:
            return 1
        return self.gather(self.slots["rel_gain"][:, :, None, :, d], "rel_gain")

    def channel_growth(self, d: int) -> Any:
        """Return exp(growth_i - growth_j) where visible. exp of a single term could overflow."""
        pair = self.pair_of(d)
        if "growth" not in self.slots or pair is None:
            return 1
        growth = self.slots["growth"][:, None, :, pair]
        queries = self.positions.of_queries(growth, -1)[..., None]
        keys = self.positions.of_keys(growth, -1)[..., None, :]
        return np.exp(np.where(self.visible, queries - keys, 0)).astype(self.q.dtype)

    def pair_of(self, d: int) -> int | None:
        """Return the pair that channel d belongs to, or None if it is not rotated."""
        for side in self.pairs:
            if d in side:
                return int(np.flatnonzero(side == d)[0])
        return None

    def block_channels(self) -> Array:
        """Return the channels of every block of the rotors, (D/b, b)."""
        count, block = self.slots["rotors"].shape[-3:-1]
        channels = np.arange(count * block)
        return channels.reshape(count, block) if self.call.pairs == "interleaved" else channels.reshape(block, count).T

    def rotor_matrices(self) -> Array:
        """Return the rotors as one matrix for each position, (B or 1, H or 1, L or 1, D, D)."""
        rotors, d = self.slots["rotors"], self.q.shape[-1]
        matrices = np.zeros((*rotors.shape[:3], d, d), rotors.dtype)
        for block, own in enumerate(self.block_channels()):
            matrices[..., own[:, None], own] = rotors[..., block, :, :]
        return matrices

    def check_dout(self, dout: Any) -> Array:
        return self._given("dout", dout, (*self.q.shape[:-1], self.v.shape[-1]))

    def check_dlse(self, dlse: Any) -> Array:
        return self._given("dlse", dlse, self.q.shape[:-1])

    def _given(self, name: str, value: Any, whole: tuple[int, ...]) -> Array:
        shape = whole[2 - self.call.lead :]
        array = (value if isinstance(value, Sizes) else validation.array(name, value)).astype(self.q.dtype)
        if array.shape != shape:
            raise ValueError(f"{name} must have the shape of the output, {shape}, not {array.shape}")
        return array.reshape(whole)


def _samples(first: Array, second: Array) -> tuple[int, ...]:
    """Return the batch shape of two arrays, each of which may be shared by all samples."""
    return np.broadcast_shapes(first.shape[:1], second.shape[:1])


class Gradients:
    """Sums of gradients, in the shapes of the arguments. Gradients that are not wanted are ignored."""

    def __init__(self, case: Case) -> None:
        self.case = case
        own = {"q": case.q, "k": case.k, "v": case.v, "scale": case.scale, "mask": case.mask, **case.slots}
        self.sums: dict[str, Array] = {name: np.zeros(own[name].shape, case.q.dtype) for name in case.shapes}

    def add(self, name: str, gradient: Array) -> None:
        """Add a gradient, summed over the axes along which the argument was repeated."""
        if name in self.sums:
            shape = self.sums[name].shape
            repeated = tuple(axis for axis, size in enumerate(shape) if size == 1 and gradient.shape[axis] != 1)
            self.sums[name] += gradient.sum(axis=repeated, keepdims=True)

    def add_cells(self, name: str, cells: Array) -> None:
        """Add the gradient of an argument over queries and keys, or over all pairs of positions."""
        if name in self.sums:
            self.add(name, cells_back(cells, self.case.positions, self.sums[name].shape[-2:]))

    def add_rows(self, name: str, of: str, rows: Array) -> None:
        """Add the gradient of the rows that queries or keys (`of`: "q" or "k") read from an argument over positions."""
        if name in self.sums:
            size, positions = int(self.sums[name].shape[-2]), self.case.positions
            self.add(name, (positions.queries_back if of == "q" else positions.keys_back)(rows, -2, size))

    def add_rotors(self, of: str, matrices: Array) -> None:
        """Add the gradients of the matrices that queries or keys were multiplied by, (B, H, N, D, D)."""
        if "rotors" in self.sums:
            blocks = [matrices[..., own[:, None], own] for own in self.case.block_channels()]
            rows, size, positions = np.stack(blocks, axis=-3), self.sums["rotors"].shape[2], self.case.positions
            if size > 1:
                rows = (positions.queries_back if of == "q" else positions.keys_back)(rows, -4, size)
            self.add("rotors", rows)

    def add_values(self, dlogits: Array) -> None:
        if "values" in self.sums:
            cells = dlogits.reshape(*dlogits.shape[:2], 1, dlogits.shape[-2] * dlogits.shape[-1])
            by_value = add_up(cells, self.case.index_cells(), self.sums["values"].shape[-1])
            self.add("values", by_value[:, :, 0, :])

    def add_channel_gain(self, d: int, cells: Array) -> None:
        if "rel_gain" in self.sums:
            by_offset = self.case.scatter(cells, "rel_gain").sum(axis=-2)
            padded = np.zeros((*by_offset.shape, self.sums["rel_gain"].shape[-1]), cells.dtype)
            padded[..., d] = by_offset
            self.add("rel_gain", padded)

    def add_channel_growth(self, d: int, cells: Array) -> None:
        pair = self.case.pair_of(d)
        if "growth" in self.sums and pair is not None:
            of_pair = np.arange(self.sums["growth"].shape[-1]) == pair
            self.add_rows("growth", "q", cells.sum(axis=(1, 3))[..., None] * of_pair)
            self.add_rows("growth", "k", -cells.sum(axis=(1, 2))[..., None] * of_pair)

    def finish(self) -> dict[str, Array]:
        """Return the gradients in the shapes of the arguments, summed over repeated heads of keys and values."""
        done = {}
        for name, shape in self.case.shapes.items():
            gradient = self.sums[name]
            if name in ("k", "v"):
                heads = self.case.call.k.shape[1]
                repeats = self.case.call.q.shape[1] // heads
                gradient = gradient.reshape(len(gradient), heads, repeats, *shape[-2:]).sum(axis=2)
            done[name] = gradient.reshape(shape)
        return done


def add_up(cells: Array, columns: Array, size: int) -> Array:
    """(B, H, N, M) -> (B, H, N, size): sum the entries of each row that have the same number in `columns`."""
    b, h, n, _ = cells.shape
    sums = np.zeros_like(cells, shape=(b, h, n, size))
    where = tuple(np.ogrid[:b, :h, :n, :1][:3])
    np.add.at(sums, (*where, columns), cells)
    return sums


# ---------------------------------------------------------------------------------------------------------------------
# Construction from checked arguments


def check(
    dtype: Any, q: Any, k: Any, v: Any, *, causal: bool, window: int | None = None, lengths: Any = None,
    return_lse: bool = False, wrt: tuple[str, ...] | None = None, slots: Mapping[str, Any],
) -> Case:  # fmt: skip
    """Check the arguments of attention, before any work, and convert them to a common form."""
    call = arguments.check(
        q, k, v, causal=causal, window=window, lengths=lengths, return_lse=return_lse, wrt=wrt, slots=slots
    )
    repeats = call.q.shape[1] // call.k.shape[1]
    kept, bands = ("index", "angles", "growth", "theta"), look_back(call)
    return Case(
        q=call.q.astype(dtype),
        k=np.repeat(call.k, repeats, axis=1).astype(dtype),
        v=np.repeat(call.v, repeats, axis=1).astype(dtype),
        slots={name: array if name in kept else array.astype(dtype) for name, array in call.slots.items()},
        scale=call.scale.reshape(1, -1, 1, 1).astype(dtype),
        rectify=call.rectify,
        pairs=_pairs(call),
        visible=_visible(call) if bands is None else _visible(call) & bands[1],
        mask=_added(call, dtype),
        softcap=call.softcap,
        dropped=_dropped(call, dtype),
        positions=call.positions,
        call=call,
        return_lse=call.return_lse,
        shapes=call.shapes,
        look_back=None if bands is None else bands[0],
    )


def _pairs(call: Call) -> tuple[Array, Array]:
    count = max((call.slots[name].shape[-1] for name in ("angles", "growth", "theta") if name in call.slots), default=0)
    return channels(count, "half" if "polar" in call.slots else call.pairs)


def _visible(call: Call) -> Array:
    """Return whether each query sees each key, (B, 1 or H, N, M)."""
    n, m = call.positions.n, call.positions.m
    offset = call.positions.offsets()[:, None]
    visible = (np.arange(n) < call.query_lengths[:, None])[:, None, :, None]
    visible = visible & (np.arange(m) < call.key_lengths[:, None])[:, None, None, :]
    if call.causal:
        visible = visible & (offset <= 0)
    if call.window is not None:
        visible = visible & (np.abs(offset) < call.window)
    if call.spans is not None:
        first, last = call.spans[:, None, :, :1], call.spans[:, None, :, 1:]
        visible = visible & (first <= np.arange(m)) & (np.arange(m) < last)
    return visible if call.mask is None else visible & call.mask.seen


def _added(call: Call, dtype: Any) -> Array:
    """Return the numbers that the mask adds to scores, 0 where it hides a key."""
    if call.mask is None:  # spans replace the mask, and nothing is added
        own = call.shapes.get("mask", ())
        return np.zeros((1,) * (4 - len(own)) + own, dtype)
    added = np.where(call.mask.seen, call.mask.added, 0.0).astype(dtype)
    own = call.shapes.get("mask", added.shape)
    return added if own[-1:] == added.shape[-1:] else added[..., :1]


def _dropped(call: Call, dtype: Any) -> Array | None:
    if not call.dropout:
        return None
    (b, h), n, m = call.q.shape[:2], call.positions.n, call.positions.m
    key = dropout_key(call.dropout_seed)
    factors = [dropout_factors((n, m), call.dropout, key=key, counter=(place, 0, 0)) for place in range(b * h)]
    return np.reshape(factors, (b, h, n, m)).astype(dtype)
