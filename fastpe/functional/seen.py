"""Calls of a kind that was seen before, as decoding makes them: what depends on axes and options alone is kept.

The kernels of a single query take microseconds, and what Python does before them took a hundred. So a call whose kind
was seen before is checked by its `kind` alone: all that makes an error but values of arrays. Those are looked at in
compiled code (`kernels.attention.sight`), and what is not as it should be goes the whole way again, where the errors
are. The number of keys is no part of the kind: a cache grows. Nothing that is written to is kept from call to call.

Of many queries a mask may be worth turning into spans, and a bias may let tiles be left out, which values tell: calls
with either are taken here where their queries are few.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpe.functional.arguments import Array, Call
from fastpe.functional.passes import drain, lanes_for, without_warnings
from fastpe.functional.slot_arrays import slot_arrays
from fastpe.kernels import simd
from fastpe.kernels.attention import calls, score
from fastpe.kernels.attention.cells import FEW, TILE_KEYS, TILE_QUERIES
from fastpe.kernels.attention.records import BIAS, MASK, Case, Inputs, Options, in_one_row
from fastpe.kernels.attention.room import room_for
from fastpe.kernels.attention.sight import FARTHEST, lay_out
from fastpe.kernels.threads import run_alone, run_lanes

_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
_INTEGERS, _BOOL = np.dtype(np.int64), np.dtype(bool)
_ALIGNED_AND_WRITEABLE, _IN_ONE_PIECE = 0x500, 0x501  # NumPy's flags
_PLAIN = frozenset({bool, int, float, str, type(None), np.bool_, np.int64, np.float32, np.float64})
_NUMBERS = ("softcap", "scale", "rectify", "pairs", "dropout")
_FEW, _BLOCK, _TILE, _FARTHEST = int(FEW), int(TILE_QUERIES), int(TILE_KEYS), int(FARTHEST)
_MOST = 512  # kinds that are kept; then all are dropped

_kept: dict[Any, "_Plan"] = {}


def kind_of(
    q: Any, k: Any, v: Any, causal: Any, window: Any, lengths: Any, tolerance: Any, return_lse: Any,
    slots: Mapping[str, Any],
) -> Any:  # fmt: skip
    """What tells calls apart that take different ways; None where it is none that is kept."""
    if not (type(q) is type(k) is type(v) is np.ndarray):
        return None
    dtype, axes = q.dtype, q.ndim
    if (dtype is not _DTYPES[0] and dtype is not _DTYPES[1]) or not 2 <= axes <= 4 or k.ndim != axes or v.ndim != axes:
        return None
    n, m, size = q.shape[-2], k.shape[-2], dtype.itemsize
    if m == 0 or v.shape[-2] != m:
        return None
    if not (q.strides[-1] == k.strides[-1] == v.strides[-1] == size):
        return None
    if q.flags.num & k.flags.num & v.flags.num & _ALIGNED_AND_WRITEABLE != _ALIGNED_AND_WRITEABLE:
        return None
    options = causal, window, tolerance, return_lse
    types = tuple(map(type, options))
    if not _PLAIN.issuperset(types):
        return None
    kinds = [q.shape, k.shape[:-2], k.shape[-1], k.dtype, v.shape[:-2], v.shape[-1], v.dtype, options, types]
    for name, value in slots.items():
        if value is None:
            continue
        if name in _NUMBERS and type(value) in _PLAIN:
            kinds += name, type(value), value
        elif name == "query_start" and _plain_position(value):
            kinds += name, int
        elif type(value) is np.ndarray and value.flags.num & _IN_ONE_PIECE == _IN_ONE_PIECE and value.size:
            shape = _shape(name, value, m)
            if shape is None or (n > _FEW and name in ("bias", "mask")) or not _fitting(name, value.dtype, dtype):
                return None
            kinds += name, shape, value.dtype
        else:
            return None
    if lengths is not None:
        for each in lengths if type(lengths) is tuple and len(lengths) == 2 else (None, lengths):
            if each is None or (type(each) is np.ndarray and each.dtype is _INTEGERS and each.ndim == 1):
                kinds.append(None if each is None else each.shape)
            elif each is lengths and _plain_position(each):
                kinds.append(int)
            else:
                return None
    return tuple(kinds)


def _plain_position(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _FARTHEST


def _shape(name: str, value: Array, m: int) -> Any:
    """The axes of an array, but for the number of keys; None where it is none that is taken here."""
    if name == "bias":
        return (*value.shape[:-1], value.shape[-1] % 2) if value.ndim > 1 else None
    if name == "mask":
        return value.shape[:-1] if value.ndim and value.shape[-1] == m else None
    return value.shape if name in ("spans", "sinks") or (name == "query_start" and value.ndim == 1) else None


def _fitting(name: str, own: Any, dtype: Any) -> bool:
    if name in ("spans", "query_start"):
        return own is _INTEGERS
    return own is dtype or (name == "mask" and own is _BOOL)


def attend(kind: Any, q: Array, k: Array, v: Array, lengths: Any, slots: Mapping[str, Any]) -> Any:
    """What `attention` returns; None where the kind was not seen before, or a value is none that attention takes."""
    plan = _kept.get(kind)
    return None if plan is None else plan(q, k, v, lengths, slots)


def keep(kind: Any, call: Call, slots: Mapping[str, Any]) -> None:
    """Keep what a checked call of this kind has in common with others, where it can be kept."""
    if call.empty or call.dropout:
        return
    if len(_kept) >= _MOST:
        _kept.clear()
    _kept[kind] = _plan(call, slots)


def _plan(call: Call, slots: Mapping[str, Any]) -> "_Plan":
    (b, h, n, d), hk, dv, dtype = call.q.shape, call.k.shape[1], call.v.shape[-1], call.q.dtype
    options = Options(rectify=int(call.rectify), softcap=call.softcap)
    terms = score.terms_given((), options)
    has_terms = score.keeps_raw(terms, False) or call.softcap > 0
    bias, _, arrays, table = slot_arrays({}, (), call.positions, dtype, has_terms)
    for name, slot in (("bias", BIAS), ("mask", MASK)):
        table[slot, 0] = slots.get(name) is not None
    numbers = dict.fromkeys(Case._fields, 0) | {
        "batch": b, "heads": h, "key_heads": hk, "queries": n, "keys": 1, "width": d, "v_width": dv,
        "causal": int(call.causal), "window": min(call.window or 0, _FARTHEST),
        "spanned": int(slots.get("spans") is not None), "strips": 1, "half": int(call.pairs == "half"),
        "o_row": dv, "g_row": d, "gv_row": dv,
    }  # fmt: skip
    case = Case(**numbers | {"options": options})
    room = room_for(case, table, backward=False)
    unbounded = bias, np.zeros((b, hk, 2, 1), dtype), np.zeros((1, h, 2, 1)), arrays
    scale = np.array(np.broadcast_to(call.scale, (h,)), dtype)
    return _Plan(case, tuple(room), room.size + 80, scale, unbounded, table, call.lead, call.return_lse)


@dataclass(frozen=True)
class _Plan:
    case: Case  # of one key
    room: tuple[int, ...]
    size: int  # of a lane's memory
    scale: Array
    unbounded: tuple[Any, ...]  # of `Inputs` what bounds scores, and the slots
    table: Array
    lead: int
    return_lse: bool

    @without_warnings
    def __call__(self, q: Array, k: Array, v: Array, lengths: Any, slots: Mapping[str, Any]) -> Any:
        case, m, dtype, sinks = self.case, k.shape[-2], q.dtype, slots.get("sinks")
        b, h, n, dv = case.batch, case.heads, case.queries, case.v_width
        laid = self._laid(m, dtype, lengths, slots)
        if laid is None or not (sinks is None or np.isfinite(sinks).all()):
            return None
        out, lse = np.empty((b, h, n, dv), dtype), np.empty((b, h, n), dtype)
        first, keys, values = simd.start_of(q), simd.start_of(k), simd.start_of(v)
        rest = *laid, *self.unbounded, self._table(m, slots), _ALL
        inputs = Inputs._make((first, first, keys, keys, values, self.scale, *rest))
        numbers = _with_strides(case, m, q, k, v)
        lanes = lanes_for(b * h * n * m * (case.width + dv), b * h * -(-n // _BLOCK))
        arenas = np.zeros((lanes, self.size), dtype) if n <= _FEW else simd.aligned_zeros((lanes, self.size), dtype)
        if lanes == 1:
            run_alone(calls.forward, inputs, None, out, lse, numbers, self.room, arenas)
        else:
            run_lanes(lanes, calls.forward, inputs, None, out, lse, numbers, self.room, arenas)
        if sinks is not None:
            drain(out, lse, sinks)
        if self.lead < 2:
            out, lse = out.reshape(out.shape[2 - self.lead :]), lse.reshape(lse.shape[2 - self.lead :])
        return (out, lse) if self.return_lse else out

    def _laid(self, m: int, dtype: Any, lengths: Any, slots: Mapping[str, Any]) -> Any:
        """Lengths, starts, spans, mask, what it occupies, bias; None where one holds what attention does not take."""
        case, (nothing, *_) = self.case, self.unbounded
        b, h, n = case.batch, case.heads, case.queries
        fixed, starts = np.empty((b, 2), np.int64), np.empty(b, np.int64)
        spans, mask, bias, own = (slots.get(name) for name in ("spans", "mask", "bias", "query_start"))
        if spans is mask is bias is own is lengths is None:
            fixed[:, 0], fixed[:, 1] = n, m
            starts.fill(m - n)
            return fixed, starts, _NO_SPANS, nothing, _NO_TILES, nothing
        queries, keys = lengths if type(lengths) is tuple else (None, lengths)
        shown, added = _NO_BYTES, nothing[:0]
        made_spans, made_mask, occupied, unfolded = _NO_SPANS, nothing, _NO_TILES, nothing
        if spans is not None:
            made_spans = np.empty((spans.size // (2 * n), n, 2), np.int64)
        if mask is not None:
            led = _axes(mask)[:2]
            made_mask, occupied = np.empty(mask.size, dtype), np.empty((*led, 1, -(-m // _TILE)), np.int64)
            if mask.dtype is _BOOL:
                shown = mask.view(np.uint8).reshape(-1)
            else:
                added = mask.reshape(-1)
        if bias is not None:
            leads = b if own is not None else bias.size // (h * bias.shape[-1])
            unfolded = np.empty(leads * h * (n + m - 1), dtype)
        given = (
            _flat(queries, _NO_INTEGERS), _flat(keys, _NO_INTEGERS),
            np.full(b, own) if type(own) is int else _flat(own, _NO_INTEGERS),
            _flat(spans, _NO_INTEGERS), shown, added, _flat(bias, nothing[:0]),
        )  # fmt: skip
        made = fixed, starts, made_spans.reshape(-1), made_mask, occupied.reshape(-1), unfolded
        if not lay_out((h, n, m, 1 if bias is None else bias.shape[-1]), given, made):
            return None
        return fixed, starts, made_spans, made_mask, occupied, unfolded

    def _table(self, m: int, slots: Mapping[str, Any]) -> Array:
        """The table of slots, whose strides grow with the keys."""
        bias, mask, met = slots.get("bias"), slots.get("mask"), self.case.queries + m - 1
        if bias is None and mask is None:
            return self.table
        table, h = self.table.copy(), self.case.heads
        if bias is not None:
            led = (bias.ndim > 2 and bias.shape[0] > 1) or slots.get("query_start") is not None
            table[BIAS, 2:] = h * met if led else 0, met if h > 1 else 0, bias.shape[-1]
        if mask is not None:
            by_sample, by_head, rows = _axes(mask)
            table[MASK, 2:] = by_head * rows * m if by_sample > 1 else 0, rows * m if by_head > 1 else 0, m * (rows > 1)
        return table


_NO_INTEGERS, _NO_BYTES = np.zeros(0, np.int64), np.zeros(0, np.uint8)
_NO_SPANS, _NO_TILES = np.zeros((1, 1, 2), np.int64), np.zeros((1, 1, 1, 1), np.int64)
_ALL = -math.inf, -math.inf  # nothing is left out


def _flat(array: Any, nothing: Array) -> Array:
    if array is None:
        return nothing
    return np.array([array], np.int64) if type(array) is int else array.reshape(-1)


def _axes(mask: Array) -> tuple[int, ...]:
    """(B or 1, H or 1, N or 1) of a mask."""
    return (1,) * (4 - mask.ndim) + mask.shape[:-1]


_NAMES = in_one_row(Case._make(Case._fields)._replace(options=Options()))  # of its numbers
_KEYS, _STRIPS, _STRIDES, _ROWS = map(_NAMES.index, ("keys", "strips", "q_batch", "qr_row"))


def _with_strides(case: Case, m: int, *qkv: Array) -> tuple[Any, ...]:
    """The case in one row, for these arrays."""
    numbers, size = list(in_one_row(case)), qkv[0].itemsize
    strides = [stride // size for x in qkv for stride in (0, 0, 0, *x.strides[:-1])[-3:]]
    numbers[_KEYS], numbers[_STRIPS] = m, -(-m // _TILE)
    numbers[_STRIDES : _STRIDES + 9] = strides
    numbers[_ROWS : _ROWS + 2] = strides[2], strides[5]
    return tuple(numbers)
