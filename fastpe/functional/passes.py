"""One call of attention. `Pass` converts the arguments to the arrays that kernels take, and the gradients of these
arrays to gradients of the arguments."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.functional.arguments import Array, Call, dropout_key
from fastpe.functional.bands import angles_of, keys_met
from fastpe.functional.layouts import contiguous, summed_to
from fastpe.functional.path import path_of, with_products
from fastpe.functional.result import Result, apply_sinks, sinks_gradient
from fastpe.functional.rotation import without_warnings
from fastpe.functional.rows import (
    Rows,
    content_gradients,
    content_rows,
    own_angles,
    rows_of_bounds,
    rows_read,
    shared_turns,
    width_of,
)
from fastpe.functional.skipping import bounds_of, columns_with_room, limits_of, raised
from fastpe.functional.slot_arrays import (
    all_or_none,
    cells_back,
    for_gradients,
    running_counts,
    slot_arrays,
    sum_by_offset,
)
from fastpe.kernels import simd
from fastpe.kernels.attention import calls, score
from fastpe.kernels.attention.bf16_panels import panels_for
from fastpe.kernels.attention.inputs import Case, Gradients, Inputs, Options
from fastpe.kernels.attention.path import calls as path_calls
from fastpe.kernels.attention.path.backward import PathGradients
from fastpe.kernels.attention.slots import ROWS, SIZES, SLOTS
from fastpe.kernels.attention.terms.key_query_offsets import COLUMN_SLOTS, ColumnGradients
from fastpe.kernels.attention.tile import FEW, TILE_KEYS, TILE_QUERIES
from fastpe.kernels.attention.workspace import Layout, gradient_places, layout_for, sum_places
from fastpe.kernels.products.bfloat16.isa import SHIFTS, Isa, fastest
from fastpe.kernels.products.bfloat16.product import MEMORY
from fastpe.kernels.rows.dropout import Dropout
from fastpe.kernels.threads.team import run_team, workers_for

_HALF = 2**32
_LEAST_ROUNDED = 64  # with fewer queries or fewer keys, operands of products are never rounded to bfloat16
_ROWS_OF_GRADIENTS = ("out", "lse", "dout", "dlse", "deltas", "dq", "dq_rest", "dk", "dk_rest", "dv", "dscale")


class Pass(Result):
    """One call: its arrays in the form that kernels take, its forward pass, and its backward pass."""

    @without_warnings
    def __init__(
        self, call: Call, tolerance: float, known: tuple[Array, Array] | None = None, *, rounds: bool = False
    ) -> None:
        """Run the forward pass, or use the results of an earlier one.

        `known` has the out and lse of an earlier forward pass, if there was one. `rounds`: whether q, k and v are
        float32 arrays that hold bfloat16 values, so that products may use bfloat16 operands (as for bfloat16 arrays).
        """
        self.call, self.tolerance = call, tolerance
        self.dtype = call.computed
        (b, h, n, d), (hk, m), dv = call.q.shape, call.k.shape[1:3], call.v.shape[-1]
        self.group = shared_turns(call.slots, h, hk)
        d = width_of(call.slots, d)
        self.sizes = b, h, hk * self.group, n, m, d
        self.isa = _isa(call, rounds=rounds)
        self.nothing = np.zeros(1, self.dtype)
        if call.empty:
            self.out, self.lse = np.zeros((b, h, n, dv), self.dtype), np.full((b, h, n), -np.inf, self.dtype)
            self._drain()
            return
        self.keys = slice(None)
        self.angles: tuple[Array, Array | None] | None = own_angles(call.slots, call.positions)
        if call.bands:
            self.keys = keys_met(call.bands[0].spans)
            self.angles = angles_of(call.bands[0], call.slots["theta"], self.keys)
        self.options = Options(rectify=int(call.rectify), softcap=call.softcap)
        self.terms = score.terms_given(call.slots.keys(), self.options)
        if call.mask is not None and not call.mask.hides_only:
            self.terms |= {"mask"}
        self.reads_halves = n > FEW and call.q.dtype.itemsize == 2 and self.isa is not None and self._is_plainest()
        self.call = call = self._with_rows_as_read(call)
        self.rows = content_rows(
            call.q, call.k, call.v, call.slots, self.angles, self.group, call.positions, call.pairs, self.keys
        )
        rows = q, _, k, _, v = rows_read(self.rows, call.slots)
        self.out = np.empty((b, h, n, dv), simd.bits_of(q).dtype if self.reads_halves else self.dtype)
        self.lse = np.empty((b, h, n), self.dtype)
        self.strides = tuple(stride // x.itemsize for x in (q, k, v) for stride in x.strides[:3])
        self.strides += (self.strides[2], self.strides[5], dv, d, dv)
        self.keeps_raw = score.keeps_raw(self.terms, "scale" in call.shapes)
        given = call.slots if call.mask is None else {**call.slots, "mask": call.mask.added}
        has_terms = self.keeps_raw or call.softcap > 0
        made = slot_arrays(given, call.shapes, call.positions, self.dtype, has_terms)
        self.table, self.columns = made.table, columns_with_room(made, (b, h, n, m), self._skips())
        content = rows_of_bounds(rows, call.slots)
        bounds = bounds_of(*content, made, (h, n + m - 1) if self._skips() else None)
        lengths = np.empty((b, 2), np.int64)
        lengths[:, 0], lengths[:, 1] = call.query_lengths, call.key_lengths
        scale = np.empty(h, self.dtype)
        scale[...] = call.scale
        starts = _starts_of_rows(rows)
        visibility, limits = (self._first_positions(), *self._seen(made.mask)), limits_of(tolerance, call.causal, m)
        dropout = dropout_of(call.dropout, call.dropout_seed)
        slots, columns, self.dropout = all_or_none(made.slots, self.columns, dropout, self.dtype)
        terms = made.bias, scale, slots, columns
        self.made = made  # keeps its arrays alive: kernels read them by address
        counts = running_counts(made, b * h * n, self.dtype)
        arrays = *starts, lengths, *visibility, *terms, *bounds, self.table, limits, counts
        self.inputs = Inputs._make((*arrays, path_of(call.slots, self.sizes[2], self.dtype)))
        if known is None:
            self._forward()
        else:
            for whole, part in zip((self.out, self.lse), known, strict=True):
                whole[...] = part.reshape(whole.shape)

    def _is_plainest(self) -> bool:
        """Whether the call is simple enough for kernels to read and write bfloat16 arrays in place."""
        return self.angles is None and not (self.terms or self.call.dropout or "sinks" in self.call.slots)

    def _with_rows_as_read(self, call: Call) -> Call:
        """Return the call with q, k and v in the dtype and layout that kernels read, before rotation."""
        if call.q.dtype.itemsize == 2 and not self.reads_halves:
            call = call.widened("q" if self.sizes[3] <= FEW else "qkv")
        if self.isa is None:
            return call
        # product kernels treat a matrix with a negative row stride as a packed one
        k, v = (x if x.strides[-2] >= 0 else np.ascontiguousarray(x) for x in (call.k, call.v))
        return call._replace(k=k, v=v)

    # ------------------------------------------------------------------------------------------------ kernel arguments

    def _first_positions(self) -> Array:
        found = np.empty(self.sizes[0], np.int64)
        found[...] = self.call.positions.first
        return found

    def _seen(self, mask: Array) -> tuple[Array, Array, Array]:
        """Return the spans, the mask, and an array that says which tiles the mask leaves visible."""
        call = self.call
        spans = np.zeros((1, 1, 2), np.int64) if call.spans is None else contiguous(call.spans, np.int64)
        occupied = np.zeros((1, 1, 1, 1), np.int64) if call.mask is None else call.mask.occupied(self.sizes[3])
        return spans, mask, occupied

    def _skips(self) -> bool:
        """Whether tiles may be skipped. For few queries, bounding the scores costs as much as computing them."""
        n, m = self.sizes[3:5]
        return self.tolerance > 0 and n > FEW and m > TILE_KEYS and score.bounded(self.terms)

    def case(self, *, gradients: bool) -> Case:
        """Return the sizes and flags of the call, in the form that kernels take."""
        call, (b, h, hk, n, m, d) = self.call, self.sizes
        kept = alone = 0
        seen = int(call.causal), call.window or 0, int(call.spans is not None)
        sizes = b, h, hk, n, m, d, call.v.shape[-1], *seen, -(-m // int(TILE_KEYS))
        half, keep_raw = int(call.pairs == "half"), int(gradients and self.keeps_raw)
        passes = int(score.in_passes(self.terms) or keep_raw > 0)
        flags = half, self.options, passes, keep_raw, int(gradients and call.softcap > 0), int(self._skips())
        last = int(self._apart()), kept, alone, int(call.dropout > 0), 0
        return Case._make((*sizes, *flags, *self.strides, *last))

    def _apart(self) -> bool:
        """Whether the gradients of q and k have a separate part that is not rotated back. The gradients of content rows
        are rotated back.
        """
        slots = set(self.call.slots)
        content = slots & {"rotors", "angles", "theta", "row_scale"}
        return "growth" in slots or bool(content and slots & {"rel_key", "rel_query", "key_bias", "counts"})

    def layout(self, case: Case, *, gradients: bool) -> Layout:
        """Return the layout of the workspace of one worker."""
        return _layout(case, self.table[:, :SIZES].tobytes(), gradients, self.inputs.path is not None)

    def _workspaces(self, case: Case, *, gradients: bool) -> tuple[Array, Any, int]:
        layout = self.layout(case, gradients=gradients)
        (b, h, hk, n, m, _), reflected = self.sizes, self.inputs.path is not None
        tasks = b * hk * case.key_blocks if gradients else b * h * -(-n // int(TILE_QUERIES))
        if gradients and reflected:
            tasks = b * h
        workers = workers_for((1 + reflected) * b * h * n * m * (case.width + case.v_width), tasks)
        if self.isa:  # zeros: products read packed panels up to the end of the last step
            return simd.aligned_zeros((workers, layout.size + 80 + MEMORY), self.dtype), layout, workers
        return simd.aligned_empty((workers, layout.size + 80), self.dtype), layout, workers

    # ---------------------------------------------------------------------------------------------------------- passes

    def _forward(self) -> None:
        case = self.case(gradients=False)
        workspaces, layout, workers = self._workspaces(case, gradients=False)
        if self.sizes[3] > FEW:
            self.inputs = with_products(self.inputs, case)
        rest = self.inputs, self.dropout, self.out, self.lse, case, layout, workspaces
        if self.isa:
            words = panels_for(case.batch * case.key_heads * case.key_blocks, case.width, case.v_width)
            run_team(workers, calls.rounded_forward, self.isa, words, *rest)
        else:
            run_team(workers, calls.forward, *rest)
        self._drain()

    def _drain(self) -> None:
        """Apply the sinks to out and lse (see `apply_sinks`)."""
        if "sinks" in self.call.slots:
            whole = raised(self.lse, self.columns)
            apply_sinks(self.out, whole, self.call.slots["sinks"])
            self.lse[...] = raised(whole, self.columns, -1.0)

    def gradients(self, dout: Array, dlse: Array) -> dict[str, Array]:
        """Return the gradients of the arguments in `wrt`, by name."""
        call, (b, h, _, n, _, _) = self.call, self.sizes
        if call.empty:
            found = {name: np.zeros(shape, call.dtypes[name]) for name, shape in call.shapes.items()}
            if "sinks" in found:
                found["sinks"][...] = self._sinks_gradient(-dlse)[0]
            return found
        case = self.case(gradients=True)
        g = self.gradient_arrays(case, dout, dlse)
        workspaces, layout, workers = self._workspaces(case, gradients=True)
        if self.inputs.path is not None:
            return self._path_gradients(g, case, workspaces, layout, workers)
        tickets = np.zeros(b * h * (-(-n // int(TILE_QUERIES)) + 1), np.int64)
        starts = starts_of(g)
        rest = for_gradients(self.inputs), self.dropout, starts, tickets, case, layout, workspaces
        run_team(workers, *((calls.rounded_backward, self.isa) if self.isa else (calls.backward,)), *rest)
        return self._as_given(self.named(g))

    def _as_given(self, found: dict[str, Array]) -> dict[str, Array]:
        """Return the gradients in the shapes and dtypes of the arguments."""
        shapes, dtypes = self.call.shapes, self.call.dtypes
        return {name: x.reshape(shapes[name]).astype(dtypes[name], copy=False) for name, x in found.items()}

    def _path_gradients(
        self, g: Gradients, case: Case, workspaces: Array, layout: Any, workers: int
    ) -> dict[str, Array]:
        """Return the gradients of a call with reflections, by name. Kernels return the gradients of keys and
        reflections for every query head; this method sums them over the query heads that share a key head.
        """
        b, h, hk, _, m, d = self.sizes

        def of_head(*shape: int) -> Array:
            return np.empty((b, h, m, *shape), self.dtype)

        apart, dk, own = g.dk_rest is not g.dk, of_head(d), PathGradients(of_head(d), of_head())
        g = g._replace(dk=dk, dk_rest=of_head(d) if apart else dk, dv=of_head(case.v_width))
        self.inputs = with_products(self.inputs, case)
        rest = for_gradients(self.inputs), self.dropout, starts_of(g)
        run_team(workers, path_calls.backward, *rest, own, case, layout, workspaces)

        def of_key_head(x: Array) -> Array:
            return x if h == hk else np.asarray(x.reshape(b, hk, -1, m, x.shape[-1]).sum(axis=2))

        dk = of_key_head(g.dk)
        g = g._replace(dk=dk, dk_rest=of_key_head(g.dk_rest) if apart else dk, dv=of_key_head(g.dv))
        return self._as_given(self.named(g, more={"reflectors": own.dw, "reflect": own.dbeta}))

    def gradient_arrays(self, case: Case, dout: Array, dlse: Array, parts: int = 1) -> Gradients:
        """Return arrays for the gradients of one backward pass. `parts` is as for `gradient_places`."""
        (b, h, hk, n, m, d), dv = self.sizes, case.v_width

        def column(name: str) -> Array:
            if name not in self.call.shapes:
                return self.nothing
            return np.zeros((b * parts, h, n if name == "query_slope" else m), self.dtype)

        def rows(*shape: int) -> Array:
            return np.empty(shape, self.dtype)

        dq, dk, apart = rows(b, h, n, d), rows(b, hk, m, d), self._apart()
        places, size = gradient_places(case, self.table, parts)
        return Gradients(
            out=self.out, lse=self.lse, dout=dout, dlse=dlse, deltas=np.empty((b, h, n), self.dtype),
            dq=dq, dq_rest=rows(b, h, n, d) if apart else dq, dk=dk, dk_rest=rows(b, hk, m, d) if apart else dk,
            dv=rows(b, hk, m, dv), slots=np.zeros(max(size, 1), self.dtype), places=places,
            sum_places=sum_places(case, self.table)[0], dscale=np.zeros((b, h, case.key_blocks)),
            columns=None if self.inputs.columns is None else ColumnGradients(*map(column, COLUMN_SLOTS)),
        )  # fmt: skip

    def _slot_gradients(self, g: Gradients, parts: int) -> dict[str, Array]:
        """Return the gradients in `g.slots` by name, (B, H, ...), summed over parts."""
        found, (b, h, _, n, m, _) = {}, self.sizes
        for number, (name, slot) in enumerate(ROWS.items()):
            start, _, _, size = g.places[number].tolist()
            if size:
                own = parts if slot.gradient == "sum" else 1
                shape = (n, m) if slot.gradient == "cells" else self.made.shapes[name]
                found[name] = g.slots[start : start + b * own * h * size].reshape(b * own, h, *shape)
                if own > 1:
                    found[name] = summed_parts(found[name], own)
        return found

    def named(self, g: Gradients, parts: int = 1, more: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Return the gradients by argument: rotated back, and summed over the axes along which arguments were repeated.

        `parts` is as for `gradient_arrays`. `more` has gradients that are not in `g`.
        """
        call = self.call
        dq, dk, found = content_gradients(call, self.rows, self.angles, self.keys, g.dq, g.dk)
        if "sinks" in call.shapes:
            found["sinks"] = self._sinks_gradient(g.deltas)
        if g.columns is not None:
            found |= dict(zip(COLUMN_SLOTS, g.columns, strict=True))
        found["q"] = dq if g.dq_rest is g.dq else dq + g.dq_rest
        dk = dk if g.dk_rest is g.dk else dk + g.dk_rest
        found |= {"k": self._ungrouped(dk), "v": self._ungrouped(g.dv)}
        found |= self._slot_gradients(g, parts) | dict(more or {})
        for name in found.keys() & call.slots.keys():
            if SLOTS[name].layout == "offsets":
                found[name] = sum_by_offset(found[name], call.positions, call.slots[name].shape[-1])
            elif SLOTS[name].layout == "cells":
                found[name] = cells_back(found[name], call.positions, call.slots[name].shape[-2:])
        wanted = {name: found[name] for name in call.shapes if name in found}
        shapes: dict[str, tuple[int, ...]] = {name: call.slots[name].shape for name in wanted if name in call.slots}
        if "mask" in wanted:
            own = call.shapes["mask"]
            shapes["mask"] = (1,) * (4 - len(own)) + own
        done = {name: summed_to(array, shapes.get(name, tuple(array.shape))) for name, array in wanted.items()}
        if "scale" in call.shapes:
            per_head = g.dscale.sum(axis=(0, 2))
            done["scale"] = per_head if call.scale.shape else per_head.sum()
        return {name: np.asarray(done[name]) for name in call.shapes}

    def _ungrouped(self, x: Array) -> Array:
        """Return the sum over the query heads that share a key head."""
        return x.reshape(x.shape[0], -1, self.group, *x.shape[2:]).sum(axis=2) if self.group > 1 else x

    def _sinks_gradient(self, deltas: Array) -> Array:
        return sinks_gradient(self.call.slots["sinks"], raised(self.lse, self.columns), deltas)


def _starts_of_rows(rows: Rows) -> list[Array]:
    """Return pointers to the first elements of the rows."""
    q, qr, k, kr, v = rows
    own_q, own_k = simd.start_of(q), simd.start_of(k)
    turned_q, turned_k = own_q if qr is q else simd.start_of(qr), own_k if kr is k else simd.start_of(kr)
    return [own_q, turned_q, own_k, turned_k, simd.start_of(v)]


def summed_parts(x: Array, parts: int) -> Array:
    """Return the sums of x (B parts, ...) over the parts of each sample."""
    return np.asarray(x.reshape(-1, parts, *x.shape[1:]).sum(axis=1))


def starts_of(g: Gradients) -> Gradients:
    """Return the gradients with pointers in place of arrays, as kernels take them."""
    columns = None if g.columns is None else ColumnGradients._make(map(simd.start_of, g.columns))
    rows = {name: simd.start_of(getattr(g, name)) for name in _ROWS_OF_GRADIENTS}
    return g._replace(**rows, columns=columns)


def _isa(call: Call, *, rounds: bool) -> Isa | None:
    """Return the instruction set for products of bfloat16 numbers, or None if products use float32.

    Products use float32 for inputs without bfloat16 values, for reflections, and where float32 is as fast: for few
    queries or keys, or on an older CPU.
    """
    halves = call.dtype.itemsize == 2 and call.dtype.name == "bfloat16"
    if "reflectors" in call.slots or not (rounds or halves):
        return None
    isa = fastest()
    return None if isa is SHIFTS or min(call.q.shape[2], call.k.shape[2]) < _LEAST_ROUNDED else isa


@lru_cache(256)
def _layout(case: Case, table: bytes, gradients: bool, reflected: bool) -> Layout:
    given = np.frombuffer(table, np.int64).reshape(-1, SIZES)
    return layout_for(case, given, backward=gradients, reflected=reflected)


def dropout_of(rate: float, seed: int) -> Dropout | None:
    """Return the dropout parameters of the kernels, or None without dropout."""
    return Dropout(*dropout_key(seed), 0, 0, round(rate * _HALF), 1.0 / (1.0 - rate), 0) if rate else None
