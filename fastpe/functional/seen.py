"""Calls of a kind that was seen before, as decoding makes them: what depends on axes and options alone is kept.

The kernels of a single query take microseconds, and what Python does before them took a hundred. So a call whose kind
was seen before is checked by its `kind` alone: all that makes an error but values of arrays. Those are looked at in
compiled code (`kernels.attention.sight` and `unfolding`), and what is not as it should be goes the whole way again,
where the errors are. The number of keys is no part of the kind: a cache grows. Nothing that is written to is kept from
call to call; what is read alone, and depends on the number of keys, is kept of the last one, as all layers of a model
have it.
"""

from collections.abc import Mapping
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from fastpe.functional import again, arguments
from fastpe.functional.arguments import Array
from fastpe.functional.axes import AXES, UNLED, WIDE
from fastpe.functional.bounds import bounds_of, columns_with_room, limits_of, raised
from fastpe.functional.content import own_angles, pairs_of, rows_of_bounds, rows_read, turned_rows
from fastpe.functional.layouts import contiguous
from fastpe.functional.passes import Pass, dropout_of
from fastpe.functional.positions import Positions
from fastpe.functional.rotation import without_warnings
from fastpe.functional.sight import Mask
from fastpe.functional.sinks import drain
from fastpe.functional.slot_arrays import Arrays, all_or_none, slot_arrays, with_tallies
from fastpe.kernels import simd
from fastpe.kernels.attention import calls, score
from fastpe.kernels.attention.cells import FEW, TILE_KEYS, TILE_QUERIES
from fastpe.kernels.attention.records import Case, Options, in_one_row
from fastpe.kernels.attention.sight import FARTHEST, lay_out
from fastpe.kernels.attention.unfolding import finite
from fastpe.kernels.threads import lanes_for, run_apart

_PLAIN = frozenset({bool, int, float, str, type(None), np.bool_, np.int64, np.float32, np.float64})
_COUNTS = frozenset({"query_start", "dropout_seed"})  # others in each call
# axes that grow with the keys, counted from the last: those over positions; and whether over clipped offsets
_GROWING = {
    name: [
        (place - len(axes), axis == "T")
        for place, axis in enumerate(axes)
        if axis in ("M", "L", "L1", "T") or (axis == "N" and "M" in axes)
    ]
    for name, axes in (*AXES.items(), ("mask", ("M",)))
}
_AS_MANY_AS_KEYS = -2
_FEW, _BLOCK, _TILE, _FARTHEST = int(FEW), int(TILE_QUERIES), int(TILE_KEYS), int(FARTHEST)
_NO_SPANS, _NO_TILES = np.zeros((1, 1, 2), np.int64), np.zeros((1, 1, 1, 1), np.int64)
_MOST = 512  # kinds that are kept; then all are dropped

_kept: dict[Any, "_Plan"] = {}


# ---------------------------------------------------------------------------------------------------------------------
# Kinds


def kind_of(
    q: Any, k: Any, v: Any, causal: Any, window: Any, lengths: Any, tolerance: Any, return_lse: Any,
    slots: Mapping[str, Any],
) -> Any:  # fmt: skip
    """What tells calls apart that take different ways; None where it is none that is kept."""
    if not (type(q) is type(k) is type(v) is np.ndarray):
        return None
    size, keys, values = q.shape, k.shape, v.shape
    if not len(keys) == len(values) == len(size) > 1 or keys[-2] != values[-2]:
        return None
    n, m, options = size[-2], keys[-2], (causal, window, tolerance, return_lse)
    types = tuple(map(type, options))
    if not _PLAIN.issuperset(types):
        return None
    kind = [size, keys[:-2], keys[-1], values[:-2], values[-1], q.dtype, k.dtype, v.dtype, options, types]
    kind.append(m if m < n else None)
    for name, value in slots.items():
        if value is not None and not _add(kind, name, value, m):
            return None
    if lengths is not None:
        for each in lengths if type(lengths) is tuple and len(lengths) == 2 else (None, lengths):
            if each is None:
                kind.append(None)
            elif type(each) is np.ndarray and each.ndim == 1:
                kind += each.dtype, each.shape
            elif each is lengths and _plain_count(each):
                kind.append(int)
            else:
                return None
    return tuple(kind)


def _add(kind: list[Any], name: str, value: Any, m: int) -> bool:
    """Add what tells calls with a slot from others; False where it is none that is taken here."""
    if type(value) is np.ndarray:
        kind += name, value.dtype, _shape(value.shape, _GROWING[name], m) if name in _GROWING else value.shape
        return True
    if name in _COUNTS:
        kind += name, int
        return again.is_seed(value) if name == "dropout_seed" else _plain_count(value)
    kind += name, type(value), value
    return type(value) in _PLAIN


def _shape(shape: tuple[int, ...], growing: list[tuple[int, bool]], m: int) -> tuple[int, ...]:
    """The axes, those that grow with the keys by what they must be."""
    sizes = list(shape)
    for place, clipped in growing:
        if -place <= len(sizes):
            if clipped:
                sizes[place] %= 2
            elif sizes[place] == m:
                sizes[place] = _AS_MANY_AS_KEYS
    return tuple(sizes)


def _plain_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _FARTHEST


def attend(
    kind: Any, q: Array, k: Array, v: Array, lengths: Any, slots: Mapping[str, Any], key: Any = None,
    given: Mapping[str, Array] | None = None,
) -> Any:  # fmt: skip
    """What `attention` returns; None where the kind was not seen before, or a value is none that attention takes.

    key: what `again` is to know such calls by; None of those that are none of its. given: the arrays that it takes.
    """
    plan = _kept.get(kind)
    if plan is None:
        return None
    rest = q, k, v, lengths, slots, key, given
    return plan.run(*rest) if plan.quiet else _run_quietly(plan, *rest)


@without_warnings
def _run_quietly(plan: "_Plan", *arguments: Any) -> Any:
    return plan.run(*arguments)


def keep(kind: Any, done: Pass, slots: Mapping[str, Any]) -> None:
    """Keep what a call of this kind that was done has in common with others; not of rounded products, whose calls are
    long."""
    if done.call.empty or done.way is not None:
        return
    if len(_kept) >= _MOST:
        _kept.clear()
    _kept[kind] = _Plan(done, slots)


# ---------------------------------------------------------------------------------------------------------------------
# Calls


class _Sight(NamedTuple):
    """What queries see, as `Inputs` has it."""

    lengths: Array
    starts: Array
    spans: Array
    mask: Mask | None
    occupied: Array = _NO_TILES


class _Plan:
    """What calls of one kind have in common."""

    def __init__(self, done: Pass, slots: Mapping[str, Any]) -> None:
        call, self.dtype, case = done.call, done.dtype, done.case(gradients=False)
        self.own_dtype, self.lead, self.return_lse = call.dtype, call.lead, call.return_lse
        self.pairs, self.causal, self.group, self.dropout = call.pairs, call.causal, done.group, call.dropout
        self.reads_halves = call.v.dtype != done.dtype
        self.sizes = *call.q.shape[:3], call.v.shape[-1]
        # where NumPy computes nothing it cannot warn, and need not be told not to
        self.quiet = self.own_dtype is self.dtype and not any(isinstance(x, np.ndarray) for x in slots.values())
        self.arrays = [name for name in AXES if slots.get(name) is not None]
        self.has_slots = any(name not in UNLED for name in self.arrays)
        self.scale = None if isinstance(slots.get("scale"), np.ndarray) else done.inputs.scale
        self.has_terms, self.tolerance = done.keeps_raw or call.softcap > 0, done.tolerance
        self.skips = done.tolerance > 0 and call.positions.n > _FEW and score.bounded(done.terms - {"mask"})
        room = done.room(case, gradients=False)
        self.room, self.size = tuple(room), room.size + 80
        row = in_one_row(case._replace(window=min(call.window or 0, _FARTHEST)))
        self.numbers = row[:_KEYS], row[_KEYS + 1 : _SPANNED], row[_SPANNED + 2 : _SKIP], row[_AFTER:]
        self.nothing = slot_arrays({}, (), call.positions, self.dtype, self.has_terms)
        self.no_bounds = *bounds_of(done.rows[0], done.rows[2], self.nothing, None), limits_of(0.0, self.causal, 1)
        self.has_records = self.lead == 2 and call.positions.n <= _FEW and call.k.dtype == call.v.dtype
        self.has_records &= self.reads_halves or self.own_dtype is self.dtype
        self.last_sight: tuple[int, _Sight] | None = None
        self.last_case: tuple[Any, tuple[Any, ...]] | None = None

    def run(
        self, q: Array, k: Array, v: Array, lengths: Any, slots: Mapping[str, Any], key: Any,
        own: Mapping[str, Array] | None,
    ) -> Any:  # fmt: skip
        """What `attention` returns, or None."""
        (b, h, n, dv), m, dtype = self.sizes, k.shape[-2], self.dtype
        first_q, scale, sight = q, self._scale(slots), self._sight(m, lengths, slots)
        if scale is None or sight is None or (given := self._given(m, sight.starts, slots)) is None:
            return None
        if self.own_dtype is not dtype:
            q = q.astype(dtype, "C")
            if not self.reads_halves:
                k, v = k.astype(dtype), v.astype(dtype)
        if self.lead < 2:
            q, k, v = (x.reshape((1,) * (2 - self.lead) + x.shape) for x in (q, k, v))
        skips = self.skips and (sight.mask is None or sight.mask.hides_only)
        positions = Positions(n, m, None if slots["query_start"] is None else sight.starts)
        unturned = q, k, v
        angles = own_angles(given, positions)
        rows = turned_rows(q, k, v, given, angles, self.group, positions, self.pairs)
        lain = all(map(is_, unturned, rows[::2])) and again.fits(first_q, k, own, dtype)
        rows = q, qr, k, kr, v = rows_read(rows, given)
        first, keys = simd.start_of(q), simd.start_of(k)
        made, bounds = self._laid(given, sight.mask, positions), self.no_bounds
        if skips:
            content = rows_of_bounds(rows, given)
            bounds = *bounds_of(*content, made, (h, n + m - 1)), limits_of(self.tolerance, self.causal, m)
        columns = columns_with_room(made, (b, h, n, m), skips)
        dropped = dropout_of(self.dropout, slots["dropout_seed"])
        own_slots, own_columns, dropout = all_or_none(with_tallies(made, b, h, n), columns, dropped, dtype)
        x = (
            first, first if qr is q else simd.start_of(qr), keys, keys if kr is k else simd.start_of(kr),
            simd.start_of(v), sight.lengths, sight.starts, sight.spans, made.mask, sight.occupied, made.bias,
            scale, own_slots, own_columns, *bounds[:3], made.table, bounds[3],
        )  # fmt: skip
        out, lse = np.empty((b, h, n, dv), dtype), np.empty((b, h, n), dtype)
        lanes = lanes_for(b * h * n * m * (q.shape[-1] + dv), b * h * -(-n // _BLOCK))
        arenas = np.zeros((lanes, self.size), dtype) if n <= _FEW else simd.aligned_zeros((lanes, self.size), dtype)
        record = run_apart(
            lanes, calls.forward, x, dropout, out, lse,
            self._case(m, sight.spans is not _NO_SPANS, skips, (q, k, v)), self.room, arenas,
        )  # fmt: skip
        if key is not None and self.has_records and lain:
            half = pairs_of(given, self.pairs) == "half"
            rest = record, x, self.size, out, half, self.return_lse, dropped
            again.keep(key, again.Again((first_q, *unturned[1:]), own, *rest))
        lse = raised(lse, columns)
        if "sinks" in given:
            drain(out, lse, given["sinks"])
            lse = raised(raised(lse, columns, -1.0).astype(dtype), columns)  # rounded as `Pass` keeps it
        if columns is not None:
            lse = lse.astype(dtype)
        if self.own_dtype is not dtype:
            out = out.astype(self.own_dtype)
        if self.lead < 2:
            out, lse = out.reshape(out.shape[2 - self.lead :]), lse.reshape(lse.shape[2 - self.lead :])
        return (out, lse) if self.return_lse else out

    def _laid(self, given: dict[str, Array], mask: Mask | None, positions: Positions) -> Arrays:
        """The slots as kernels read them."""
        if mask is None and not self.has_slots:
            return self.nothing
        if mask is not None:
            given = {**given, "mask": mask.added}
        return slot_arrays(given, (), positions, self.dtype, self.has_terms)

    def _case(self, m: int, spanned: bool, skips: bool, qkv: tuple[Array, ...]) -> tuple[Any, ...]:
        """The case in one row."""
        kind, kept = (m, spanned, skips, *(x.strides for x in qkv)), self.last_case
        if kept is not None and kept[0] == kind:
            return kept[1]
        before, sizes, options, last = self.numbers
        strides = [stride // x.itemsize for x in qkv for stride in x.strides[:3]]
        changing = int(skips), *strides, strides[2], strides[5]
        made = *before, m, *sizes, int(spanned), -(-m // _TILE), *options, *changing, *last
        self.last_case = kind, made
        return made

    def _scale(self, slots: Mapping[str, Any]) -> Array | None:
        """The scale of each head; None where it is none that attention takes."""
        if self.scale is not None:
            return self.scale
        scale = slots["scale"].astype(np.float64)
        if not np.all(np.abs(scale) <= np.finfo(self.dtype).max):
            return None
        return np.array(np.broadcast_to(scale, self.sizes[1:2]), self.dtype)

    def _given(self, m: int, starts: Array, slots: Mapping[str, Any]) -> dict[str, Array] | None:
        """The slots, each with a leading axis; None where one holds what attention does not take."""
        given, n = {}, self.sizes[2]
        longest = m if slots["query_start"] is None else max(m, n + int(starts.max()))
        for name in self.arrays:
            array, axes = slots[name], AXES[name]
            if name == "index":
                array = array.copy()  # a kernel follows it: once it has been checked, nobody else may change it
                if array.min() < 0 or array.max() >= slots["values"].shape[-1]:
                    return None
            else:
                array = contiguous(array, np.float64 if name in WIDE else self.dtype)
                if not finite(array.reshape(-1)):
                    return None
            of_cells = axes[-1] == "M" and array.shape[-2:] == (n, m)
            if axes[-2:-1] in (("L",), ("N",)) and not of_cells and array.shape[-2] < longest:
                return None
            if name == "rotors" and 1 < array.shape[-4] < longest:
                return None
            given[name] = array if array.ndim > len(axes) and name not in UNLED else array[None]
        return given

    def _sight(self, m: int, lengths: Any, slots: Mapping[str, Any]) -> _Sight | None:
        """What queries see; None where an array holds what attention does not take."""
        b, _, n, _ = self.sizes
        spans, mask, own = slots["spans"], slots["mask"], slots["query_start"]
        if spans is mask is own is lengths is None:
            kept = self.last_sight
            if kept is None or kept[0] != m:
                kept = self.last_sight = m, _Sight(np.tile([n, m], (b, 1)), np.full(b, m - n), _NO_SPANS, None)
            return kept[1]
        fixed, starts = np.empty((b, 2), np.int64), np.empty(b, np.int64)
        queries, keys = lengths if type(lengths) is tuple else (None, lengths)
        shown, added, found = _NO_BOOLS, _NOTHING[self.dtype], None
        if mask is not None and n > _FEW:  # it may be worth turning into spans
            sizes = dict(zip("BHNM", (*self.sizes[:3], m), strict=True))
            found, spans, _ = arguments.sight({"mask": mask, "spans": spans}, sizes, self.lead == 2, self.dtype, ())
            mask = None
        elif mask is not None:
            mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
            if mask.shape[-1] != m:
                mask = np.broadcast_to(mask, (*mask.shape[:-1], m))
            if mask.dtype == bool:
                shown = contiguous(mask, mask.dtype).reshape(-1)
            else:
                added = contiguous(mask, self.dtype).reshape(-1)
        given = _integers(queries, b), _integers(keys, b), _integers(own, b), _integers(spans, b), shown, added
        made_spans = np.empty((given[3].size // (2 * n), n, 2), np.int64)
        made_mask, tiles = np.empty((0, 0, 0, 0) if mask is None else mask.shape, self.dtype), -(-m // _TILE)
        occupied = np.empty((*made_mask.shape[:2], 1, tiles), np.int64)
        made = fixed, starts, made_spans.reshape(-1), made_mask.reshape(-1), occupied.reshape(-1)
        if not lay_out((n, m), given, made):
            return None
        if mask is not None:
            found = Mask(made_mask, hides_only=True)
        elif found is not None:
            occupied = found.occupied(n)
        return _Sight(fixed, starts, _NO_SPANS if spans is None else made_spans, found, occupied)


def _integers(array: Any, b: int) -> Array:
    """Integers in a row, none where there are none; one of all b samples."""
    if array is None:
        return _NOTHING[np.int64]
    return contiguous(array, np.int64).reshape(-1) if np.ndim(array) else np.full(b, array, np.int64)


_NOTHING = {dtype: np.zeros(0, dtype) for dtype in (np.int64, np.dtype(np.float32), np.dtype(np.float64))}
_NO_BOOLS = np.zeros(0, np.bool_)

_NAMES = in_one_row(Case._make(Case._fields)._replace(options=Options()))  # of its numbers
_KEYS, _SPANNED, _SKIP, _AFTER = map(_NAMES.index, ("keys", "spanned", "skip", "o_row"))
