"""What calls of one kind have in common (`seen`), and how they are done: in one pass, through a network of scores, or
through reflections, by the same kernels as any others."""

from collections.abc import Collection, Mapping
from functools import partial
from operator import is_
from typing import Any

import numpy as np

from fastpe.functional import again, apart_again, fitting
from fastpe.functional.arguments import Array
from fastpe.functional.axes import AXES, UNLED
from fastpe.functional.bounds import bounds_of, columns_with_room, limits_of, raised
from fastpe.functional.content import (
    Rows,
    grown_rows,
    own_angles,
    pairs_of,
    rows_of_bounds,
    rows_read,
    turned_rows,
)
from fastpe.functional.looked import Looked, Looks
from fastpe.functional.merged import Merged
from fastpe.functional.mlp import Networked
from fastpe.functional.networks import Network
from fastpe.functional.outcome import Outcome
from fastpe.functional.passes import Pass, dropout_of
from fastpe.functional.reflected import Reflected
from fastpe.functional.reflections import Reflections, spans_near
from fastpe.functional.sight import NO_SPANS
from fastpe.functional.sinks import drain
from fastpe.functional.slot_arrays import Arrays, all_or_none, check_growth, slot_arrays, with_tallies
from fastpe.kernels import simd
from fastpe.kernels.attention import calls, score
from fastpe.kernels.attention.again import OF_CASE
from fastpe.kernels.attention.beside import Others
from fastpe.kernels.attention.cells import FEW, TILE_KEYS, TILE_QUERIES
from fastpe.kernels.attention.columns import Columns
from fastpe.kernels.attention.records import Case, Inputs, Options, in_one_row
from fastpe.kernels.dropout import Dropout
from fastpe.kernels.threads import lanes_for, run_apart

Qkv = tuple[Array, Array, Array]
_FEW, _BLOCK, _TILE = int(FEW), int(TILE_QUERIES), int(TILE_KEYS)


class Laid:
    """How what is looked at becomes what the kernels of scores take."""

    def __init__(self, done: Pass, names: Collection[str]) -> None:
        """names: of the slots that are given."""
        call, self.dtype, case = done.call, done.dtype, done.case(gradients=False)
        (self.b, self.h, self.n), self.causal = call.q.shape[:3], call.causal
        self.has_slots = any(name not in UNLED for name in names)
        self.has_terms, self.tolerance = done.keeps_raw or call.softcap > 0, done.tolerance
        self.skips = done.tolerance > 0 and self.n > _FEW and score.bounded(done.terms - {"mask"})
        room = done.room(case, gradients=False)
        self.room, self.size = room, room.size
        row = in_one_row(case)
        self.numbers = row[:_KEYS], row[_KEYS + 1 : _SPANNED], row[_SPANNED + 2 : _SKIP], row[_AFTER:]
        self.nothing = slot_arrays({}, (), call.positions, self.dtype, self.has_terms)
        self.no_bounds = *bounds_of(done.rows[0], done.rows[2], self.nothing, None), limits_of(0.0, self.causal, 1)
        self.no_products = np.zeros(0, self.dtype)
        self.last_case: tuple[Any, tuple[Any, ...]] | None = None

    def inputs(
        self, rows: Rows, given: dict[str, Array], looked: Looked, dropped: Dropout | None, *, skips: bool
    ) -> tuple[tuple[Any, ...], Dropout | None, Columns | None]:
        """`Inputs` of rows as kernels read them, as a plain tuple; what is dropped; the columns. skips: whether tiles
        may be left out."""
        sight, dims = looked.sight, (self.b, self.h, self.n, looked.positions.m)
        q, qr, k, kr, v = rows
        first, keys = simd.start_of(q), simd.start_of(k)
        made, bounds = self._slots(given, looked), self.no_bounds
        if skips:
            content = rows_of_bounds(rows, given)
            bounds = *bounds_of(*content, made, (self.h, self.n + dims[3] - 1)), limits_of(
                self.tolerance, self.causal, dims[3]
            )  # fmt: skip
        columns = columns_with_room(made, dims, skips)
        slots, own, dropout = all_or_none(with_tallies(made, *dims[:3]), columns, dropped, self.dtype)
        x = (
            first, first if qr is q else simd.start_of(qr), keys, keys if kr is k else simd.start_of(kr),
            simd.start_of(v), self.no_products, sight.lengths, sight.starts, sight.spans, made.mask, sight.occupied,
            made.bias, looked.scale, slots, own, *bounds[:3], made.table, bounds[3],
        )  # fmt: skip
        return x, dropout, columns

    def _slots(self, given: dict[str, Array], looked: Looked) -> Arrays:
        """The slots as kernels read them."""
        mask = looked.sight.mask
        if mask is None and not self.has_slots:
            return self.nothing
        if mask is not None:
            given = {**given, "mask": mask.added}
        return slot_arrays(given, (), looked.positions, self.dtype, self.has_terms)

    def case(self, m: int, spanned: bool, skips: bool, qkv: tuple[Array, ...]) -> tuple[Any, ...]:
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


class Plan:
    """What calls of one kind have in common."""

    def __init__(self, done: Outcome, looks: Looks, group: int, slots: Mapping[str, Any]) -> None:
        call = done.call
        self.looks, self.group, self.dtype, self.own_dtype = looks, group, done.dtype, call.dtype
        self.sizes = *call.q.shape[:3], call.v.shape[-1]
        self.lead, self.return_lse = call.lead, call.return_lse
        self.pairs, self.causal, self.dropout, self.window = call.pairs, call.causal, call.dropout, call.window
        # where NumPy computes nothing it cannot warn, and need not be told not to
        self.quiet = self.own_dtype is self.dtype and not any(isinstance(x, np.ndarray) for x in slots.values())
        self.reads_halves = call.v.dtype != done.dtype

    def run(
        self, q: Array, k: Array, v: Array, lengths: Any, slots: Mapping[str, Any], key: Any,
        own: Mapping[str, Array] | None,
    ) -> Any:  # fmt: skip
        """What `attention` returns, or None where a value is none that it takes."""
        looked, given_qkv = self.looks(k.shape[-2], lengths, slots), (q, k, v)
        if looked is None:
            return None
        if self.own_dtype is not self.dtype:
            q = q.astype(self.dtype, "C")
            if not self.reads_halves:
                k, v = k.astype(self.dtype, "C"), v.astype(self.dtype, "C")
        if self.lead < 2:
            q, k, v = (x.reshape((1,) * (2 - self.lead) + x.shape) for x in (q, k, v))
        given, positions = looked.slots, looked.positions
        rows = turned_rows(q, k, v, given, own_angles(given, positions), self.group, positions, self.pairs)
        dropped = dropout_of(self.dropout, slots["dropout_seed"])
        found = self.attended(rows, looked, dropped, (given_qkv, (q, k, v)), (key, own))
        if found is None:
            return None
        out, lse = found
        if self.own_dtype is not self.dtype:
            out = out.astype(self.own_dtype)
        if self.lead < 2:
            out, lse = out.reshape(out.shape[2 - self.lead :]), lse.reshape(lse.shape[2 - self.lead :])
        return (out, lse) if self.return_lse else out

    def attended(
        self, rows: Rows, looked: Looked, dropped: Dropout | None, came: tuple[Qkv, Qkv], kept: tuple[Any, Any]
    ) -> tuple[Array, Array] | None:
        """Output and lse, as they are computed. rows: of the content. came: q, k and v as they were given, and as they
        were before they became rows. kept: `key` and `own` of a call for `again`."""
        raise NotImplementedError


class InOnePass(Plan):
    """Of `Pass`."""

    def __init__(self, done: Pass, slots: Mapping[str, Any]) -> None:
        call = done.call
        looks = Looks(call, done.inputs.scale, slots, spans_of_masks=call.positions.n > _FEW, says_whole=False)
        super().__init__(done, looks, done.group, slots)
        self.grows = self._grows(done, slots)
        self.laid = Laid(done, [name for name in AXES if slots.get(name) is not None and name not in self.grows])
        self.room, self.size = tuple(self.laid.room), self.laid.size + 80
        self.has_records = self.lead == 2 and call.positions.n <= _FEW and call.k.dtype == call.v.dtype
        self.has_records &= self.reads_halves or self.own_dtype is self.dtype

    def _grows(self, done: Pass, slots: Mapping[str, Any]) -> tuple[str, ...]:
        """The slot `growth`, where rows are made to grow beforehand, as they are turned: the powers are made once."""
        few = done.call.positions.n <= _FEW and not self.reads_halves
        growth = slots.get("growth")
        return ("growth",) if few and growth is not None and growth.ndim == 2 and slots["query_start"] is None else ()

    def attended(
        self, rows: Rows, looked: Looked, dropped: Dropout | None, came: tuple[Qkv, Qkv], kept: tuple[Any, Any]
    ) -> tuple[Array, Array]:
        """As `Plan` has it."""
        dtype, given, mask = self.dtype, looked.slots, looked.sight.mask
        if self.grows:
            check_growth(given["growth"], dtype)
            rows = grown_rows(rows, given["growth"], looked.positions, self.pairs)
            given = {name: x for name, x in given.items() if name not in self.grows}
        skips, (key, own), qkv = self.laid.skips and (mask is None or mask.hides_only), kept, came[0]
        lain, rows = all(map(is_, came[1], rows[::2])), rows_read(rows, given)
        out, lse, record, x, columns = self._run(rows, given, looked, dropped, skips)
        if key is not None and self.has_records and fitting.fits(*qkv[:2], own, dtype):
            if not lain and qkv[2] is rows[4] and fitting.turns_halves(qkv[1], own):
                (q, qr, *_, v), k, lain = rows, qkv[1], True
                *_, record, x, _ = self._run((q, qr, k, k, v), given, looked, dropped, skips, with_products=True)
            if lain:
                half = pairs_of(given, self.pairs) == "half"
                rest = record, x, self.size, out, half, self.return_lse, dropped
                again.keep(key, again.Again(qkv, own, *rest))
        lse = raised(lse, columns)
        if "sinks" in given:
            drain(out, lse, given["sinks"])
            lse = raised(raised(lse, columns, -1.0).astype(dtype), columns)  # rounded as `Pass` keeps it
        return out, lse if columns is None else lse.astype(dtype)

    def _run(
        self, rows: Rows, given: dict[str, Array], looked: Looked, dropped: Dropout | None, skips: bool, *,
        with_products: bool = False,
    ) -> tuple[Array, Array, Array, tuple[Any, ...], Columns | None]:  # fmt: skip
        """Output and lse, the record of the call as `again` has it, the `Inputs` that it was made of, and columns.

        with_products: as a call that is made again hands over products of keys which it turns; here they are all 0.
        """
        (b, h, n, dv), dtype, m, (q, _, k, _, v) = self.sizes, self.dtype, looked.positions.m, rows
        x, dropout, columns = self.laid.inputs(rows, given, looked, dropped, skips=skips)
        if with_products:
            x = *x[:_PRODUCTS], np.zeros(b * h * n * m, dtype), *x[_PRODUCTS + 1 :]
        out, lse = np.empty((b, h, n, dv), dtype), np.empty((b, h, n), dtype)
        lanes = lanes_for(b * h * n * m * (q.shape[-1] + dv), b * h * -(-n // _BLOCK))
        case = self.laid.case(m, looked.sight.spans is not NO_SPANS, skips, (q, k, v))
        arenas = _arenas(lanes, self.size, n, dtype)
        record = run_apart(lanes, calls.forward, x, dropout, out, lse, case, self.room, arenas)
        return out, lse, again.with_case(case, x, record), x, columns


class Apart(Plan):
    """Of calls that go a way of their own, where others may go beside."""

    def __init__(self, done: Networked | Reflected, slots: Mapping[str, Any]) -> None:
        beside = done.beside
        scale = done.own.scale if beside is None else beside.inputs.scale
        looks = Looks(done.call, scale, slots, spans_of_masks=True)
        super().__init__(done, looks, done.group, slots)
        self.is_masked = done.call.mask is not None
        self.names = () if beside is None else tuple(beside.call.slots)
        self.laid = None if beside is None else Laid(beside, self.names)

    def attended(
        self, rows: Rows, looked: Looked, dropped: Dropout | None, came: tuple[Qkv, Qkv], kept: tuple[Any, Any]
    ) -> tuple[Array, Array] | None:
        """As `Plan` has it; None where there is a mask and those before had spans for theirs, or the other way."""
        if (looked.sight.mask is not None) != self.is_masked:
            return None
        own = self.made(rows, looked, dropped)
        ran, (key, given) = own.forward(None if self.laid is None else partial(self.others, rows, looked)), kept
        lain = self.lead == 2 and all(map(is_, came[1], rows[::2]))
        if key is not None and ran is not None and lain and apart_again.fits(came[0], given, own):
            made = apart_again.Made(own, ran, looked.sight, looked.scale)
            half = pairs_of(looked.slots, self.pairs) == "half"
            again.keep(key, apart_again.ApartAgain(came[0], given, made, self.window, half, self.return_lse))
        if "sinks" in looked.slots:
            own.drain(looked.slots["sinks"])
        return own.out, own.whole_lse().astype(self.dtype, copy=False)

    def made(self, rows: Rows, looked: Looked, dropped: Dropout | None) -> Network | Reflections:
        """What kernels take."""
        raise NotImplementedError

    def others(self, rows: Rows, looked: Looked, lanes: int) -> Others:
        """What goes beside, on so many lanes."""
        assert self.laid is not None
        given = {name: looked.slots[name] for name in self.names}
        rows = q, _, k, _, v = rows_read(rows, given)
        x, _, _ = self.laid.inputs(rows, given, looked, None, skips=False)
        case = self.laid.case(looked.positions.m, looked.sight.spans is not NO_SPANS, False, (q, k, v))
        arenas = _arenas(lanes, self.laid.size, self.sizes[2], self.dtype)
        return Others(Inputs._make(x), _case_of(case), self.laid.room, arenas, None)


class ThroughNetwork(Apart):
    """Of `Networked`."""

    def made(self, rows: Rows, looked: Looked, dropped: Dropout | None) -> Network:
        """As `Apart` has it."""
        sights = looked.positions, looked.sight, looked.scale
        return Network(rows, looked.slots, *sights, dropped, causal=self.causal, window=self.window)


class ThroughReflections(Apart):
    """Of `Reflected`."""

    def __init__(self, done: Reflected, slots: Mapping[str, Any]) -> None:
        super().__init__(done, slots)
        self.has_offsets = done.own.has_offsets
        self.scale = None if done.beside is None else done.own.scale  # where all products are by the scale later on

    def made(self, rows: Rows, looked: Looked, dropped: Dropout | None) -> Reflections:
        """As `Apart` has it."""
        (_, q, _, k, v), sight, scale = rows, looked.sight, looked.scale if self.scale is None else self.scale
        if self.window is not None:
            sight = sight._replace(spans=spans_near(sight.spans, self.window, looked.positions))
        offsets = looked.slots["key_offset"] if self.has_offsets else None
        return Reflections((q, k, v), looked.slots, sight, scale, offsets, dropped)


def plan_of(done: Outcome | Merged, slots: Mapping[str, Any]) -> Plan | None:
    """What a call that was done has in common with others of its kind; None of rounded products, whose calls are long,
    and of several passes."""
    if isinstance(done, Pass) and done.way is None:
        return InOnePass(done, slots)
    if isinstance(done, Networked):
        return ThroughNetwork(done, slots)
    return ThroughReflections(done, slots) if isinstance(done, Reflected) else None


def keep_banded(
    key: Any, done: Outcome | Merged, qkv: tuple[Array, Array, Array], given: Mapping[str, Array] | None
) -> None:
    """Keep a call with bands that was done for `again`, where that takes it: its rows as they lie, and its mask, if it
    has one, as a mask."""
    one = done.passes[0] if isinstance(done, Merged) else None
    if one is None or given is None or one.call.positions.n > _FEW or one.call.lead < 2:
        return
    call, rows, halves = one.call, one.rows[::2], qkv[0].dtype != one.dtype
    as_they_are = zip(qkv[2 * halves :], rows[2 * halves :], strict=True)  # others are widened, row by row
    lies = all(x.ctypes.data == y.ctypes.data and x.strides == y.strides for x, y in as_they_are)
    lies &= not halves or qkv[1].strides[-1] == qkv[1].itemsize
    if lies and ("mask" in given) == (call.mask is not None) and fitting.fits(*qkv[:2], given, one.dtype):
        size, dropped = one.room(one.case(gradients=False), gradients=False).size + 80, dropout_of(call.dropout, 0)
        x, case = tuple(one.inputs), in_one_row(one.case(gradients=False))
        rest = again.with_case(case, x, one.record), x, size, one.out, call.pairs == "half", call.return_lse, dropped
        again.keep(key, again.Again(qkv, given, *rest))


def _arenas(lanes: int, size: int, n: int, dtype: Any) -> Array:
    """Memory of lanes; of few queries it lies as it comes: to align it takes longer than its vectors gain."""
    return np.zeros((lanes, size), dtype) if n <= _FEW else simd.aligned_zeros((lanes, size), dtype)


def _case_of(row: tuple[Any, ...]) -> Case:
    """The case that is in one row."""
    after = _OPTIONS + len(Options._fields)
    return Case._make((*row[:_OPTIONS], Options(*row[_OPTIONS:after]), *row[after:]))


_OPTIONS, _PRODUCTS = Case._fields.index("options"), Inputs._fields.index("products")
_KEYS, _SPANNED, _SKIP, _AFTER = map(OF_CASE.index, ("keys", "spanned", "skip", "o_row"))
