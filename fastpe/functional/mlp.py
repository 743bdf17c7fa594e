"""Attention whose scores a small network corrects (DAPE): the slots `mlp_in`, `mlp_bias` and `mlp_out`.

It reads what no other term does, the scores of every head at once. Of all else but biases and sinks the arrays are
those of the call without a network, and so is what becomes of its gradients.
"""

from typing import Any

import numpy as np

from fastpe.functional.arguments import Array, Call
from fastpe.functional.beside import dropout_beside, others_of, pass_without
from fastpe.functional.content import content_gradients, own_angles, shared_turns, turned_rows
from fastpe.functional.layouts import contiguous, summed_to
from fastpe.functional.outcome import Outcome
from fastpe.functional.passes import Pass, dropout_of
from fastpe.functional.rotation import without_warnings
from fastpe.functional.sinks import drain, sinks_gradient
from fastpe.functional.slot_arrays import cells_back, cells_of, fold, unfold
from fastpe.functional.together import NETWORK
from fastpe.kernels import simd
from fastpe.kernels.attention.beside import Others
from fastpe.kernels.attention.columns import ColumnGradients
from fastpe.kernels.attention.mlp import ROWS, room_for_mlp
from fastpe.kernels.attention.mlp_calls import MlpCase, MlpInputs, MlpOutputs, mlp_backward_calls, mlp_forward_calls
from fastpe.kernels.attention.records import Case, Gradients
from fastpe.kernels.threads import lanes_for, run_apart

_PARTS = 8  # that sums over queries are made in, at most: as many threads take part
_OWN = {*NETWORK, "bias", "scores", "index", "values", "sinks"}
_OF_ROWS = {"angles", "rotors", "polar", "row_scale"}  # that queries and keys have before their products
_RELATIVE = {"rel_key", "rel_query", "key_bias"}
# that are no sums over queries, or not made of parts here
_OF_QUERIES = {"dout", "dlse", "deltas", "dq", "dq_rest", "dscores", "dmask", "dk", "dv", "dk_rest"}


class Networked(Outcome):
    """One call, as `passes.Pass` is one."""

    @without_warnings
    def __init__(self, call: Call, known: tuple[Array, Array] | None = None) -> None:
        """`known`: out and lse, where the forward pass was done before."""
        self.call, self.dtype = call, call.computed
        (b, h, n, _), m, dv = call.q.shape, call.k.shape[2], call.v.shape[-1]
        self.out, self.lse = np.zeros((b, h, n, dv), self.dtype), np.full((b, h, n), -np.inf, self.dtype)
        self.group = shared_turns(call.slots, h, call.k.shape[1])
        self.angles = own_angles(call.slots, call.positions)
        self.rest = None if call.empty else pass_without(call, _OWN, _OF_ROWS)
        self.rows = (
            turned_rows(call.q, call.k, call.v, call.slots, self.angles, self.group, call.positions, call.pairs)
            if self.rest is None
            else self.rest.rows
        )
        offsets = "key_offset" in call.slots and not call.empty
        self.bases = np.zeros((b, h, n) if offsets else (1, 1, 1))
        if not call.empty:
            self.inputs, self.case = self._laid_out(m)
            self.dropout = dropout_of(call.dropout, call.dropout_seed)
        if known is not None:
            self.out[...], self.lse[...] = (
                part.reshape(whole.shape) for whole, part in zip((self.out, self.lse), known, strict=True)
            )
        elif not call.empty:
            self._forward()
        if known is None and "sinks" in call.slots:
            whole = self.whole_lse()
            drain(self.out, whole, call.slots["sinks"])
            self.lse[...] = whole - self.bases

    def _laid_out(self, m: int) -> tuple[MlpInputs, MlpCase]:
        call, (_, q, _, k, v) = self.call, self.rows
        b, h, n, d = q.shape
        into = call.slots["mlp_in"][0]
        bias, of_bias = self._laid_bias()
        cells, of_cells = self._laid_cells()
        values, of_values, index = self._laid_values()
        strides = [stride // x.itemsize for x in (q, k, v) for stride in x.strides[:3]]
        sizes = b, h, h // k.shape[1], n, m, d, v.shape[-1], into.shape[0], into.shape[-1], int(call.causal)
        of_index = index[0].size if len(index) > 1 else 0
        given = (int(name in call.slots) for name in ("bias", "scores", "values"))
        biases = next(given), *of_bias, n - 1, next(given), *of_cells, m, next(given), *of_values, of_index
        spans = np.zeros((1, 1, 2), np.int64) if call.spans is None else contiguous(call.spans, np.int64)
        far = int(np.abs(call.positions.first).max()) + n + m  # no offset is as large
        sight = min(call.window or 0, far), int(call.spans is not None), spans[0].size if len(spans) > 1 else 0
        case = MlpCase._make((*sizes, *strides, *biases, *sight, min(_PARTS, -(-n // int(ROWS)))))
        lengths = np.stack([call.query_lengths, call.key_lengths], axis=1).astype(np.int64)
        sights = contiguous(call.positions.first, np.int64), spans.reshape(-1)
        scale = contiguous(np.broadcast_to(call.scale, (h,)), self.dtype)
        net = [contiguous(call.slots[name], self.dtype).reshape(-1) for name in NETWORK]
        rows = map(simd.start_of, (q, k, v))
        return MlpInputs._make((*rows, bias, cells, values, index.reshape(-1), scale, *net, lengths, *sights)), case

    def _laid_bias(self) -> tuple[Array, tuple[int, int]]:
        """In one piece, and its strides of samples and heads."""
        if "bias" not in self.call.slots:
            return np.zeros(1, self.dtype), (0, 0)
        return self._in_one_piece(unfold(self.call.slots["bias"], self.call.positions), 1)

    def _laid_cells(self) -> tuple[Array, tuple[int, int]]:
        """Likewise, what `scores` adds."""
        if "scores" not in self.call.slots:
            return np.zeros(1, self.dtype), (0, 0)
        return self._in_one_piece(cells_of(self.call.slots["scores"], self.call.positions), 2)

    def _laid_values(self) -> tuple[Array, tuple[int, int], Array]:
        """Likewise, of `values`; and which of them every cell has, (B or 1, N, M)."""
        slots = self.call.slots
        if "values" not in slots:
            return np.zeros(1, self.dtype), (0, 0), np.zeros((1, 1), np.int32)
        return *self._in_one_piece(slots["values"], 1), contiguous(slots["index"], np.int32)

    def _in_one_piece(self, x: Array, axes: int) -> tuple[Array, tuple[int, int]]:
        """An array (B or 1, H, ...) of so many axes for a head, and the strides of samples and heads."""
        of_head = int(np.prod(x.shape[-axes:]))
        return contiguous(x, self.dtype).reshape(-1), (x.shape[1] * of_head if x.shape[0] > 1 else 0, of_head)

    def whole_lse(self) -> Array:
        """As `Outcome.whole_lse`; float64 where keys have offsets."""
        return self.lse + self.bases if "key_offset" in self.call.slots else self.lse.copy()

    def _forward(self) -> None:
        b, _, n, _ = self.out.shape
        self._run(mlp_forward_calls, b * -(-n // int(ROWS)), self._outputs(), None)

    def _run(self, function: Any, tasks: int, y: MlpOutputs, g: Gradients | None, *sizes: int) -> None:
        """g: of the backward pass the gradients of what is beside the network, if there is anything."""
        case = self.case
        sizes_of_room = case.heads, case.width, case.v_width, case.hidden, case.taps
        backward = function is mlp_backward_calls
        room = room_for_mlp(*sizes_of_room, backward=backward, dropped=self.dropout is not None)
        cells = self.out.size // case.v_width * self.rows[3].shape[2]
        lanes = lanes_for(cells * (case.width + case.v_width + 3 * case.hidden * case.taps), tasks)
        arenas = simd.aligned_zeros((lanes, room.size), self.dtype)
        others, bases = self._others(lanes, g, backward=backward), self.bases.reshape(-1)
        dropout = dropout_beside(others, self.dropout)
        run_apart(lanes, function, self.inputs, dropout, others, bases, y, case, *sizes, room, arenas)

    def _case_of_rest(self, rest: Pass, *, backward: bool) -> Case:
        """Where the network reads products, their own are kept on the way back."""
        return rest.case(gradients=backward)._replace(keep_raw=int(backward))

    def _others(self, lanes: int, g: Gradients | None, *, backward: bool) -> Others | None:
        if self.rest is None:
            return None
        case = self._case_of_rest(self.rest, backward=backward)
        return others_of(self.rest, case, lanes, g, backward=backward)

    def _outputs(self, **gradients: Array) -> MlpOutputs:
        nothing = np.zeros(1, self.dtype)
        arrays = dict.fromkeys(MlpOutputs._fields, nothing) | {"out": self.out, "lse": self.lse} | gradients
        return MlpOutputs(**{name: simd.start_of(x) for name, x in arrays.items()})

    @without_warnings
    def gradients(self, dout: Array, dlse: Array) -> dict[str, Array]:
        """Gradients of the arguments that are wanted."""
        call = self.call
        if call.empty:
            found = {name: np.zeros(shape) for name, shape in call.shapes.items()}
        else:
            found = self._gradients(dout, dlse, self.case)
        if "sinks" in call.shapes:
            deltas = (dout * self.out).sum(axis=-1) - dlse
            found["sinks"] = sinks_gradient(call.slots["sinks"], self.whole_lse(), deltas)
        return {
            name: np.asarray(found[name]).reshape(shape).astype(call.dtypes[name], copy=False)
            for name, shape in call.shapes.items()
        }

    def _gradients(self, dout: Array, dlse: Array, case: MlpCase) -> dict[str, Array]:
        (b, h, n, _), (hk, m), dv = self.rows[1].shape, self.rows[3].shape[1:3], case.v_width
        p, w, t, offsets = case.parts, case.hidden, case.taps, n + m - 1
        shapes = {
            "dq": (b, h, n, case.width), "dk": (b, p, hk, m, case.width), "dv": (b, p, hk, m, dv), "dscale": (b, p, h),
            "dbias": (b, p, h, offsets) if case.biased else (1,), "dcells": (b, h, n, m) if case.has_cells else (1,),
            "dvalues": (b, p, h, case.values_head) if case.has_values else (1,),
            "dinto": (b, p, t, w, 2 * h), "doffsets": (b, p, w), "dreadout": (b, p, t, w, h),
        }  # fmt: skip
        g = {name: np.zeros(shape, self.dtype) for name, shape in shapes.items()}
        of_rest = self._room_for_rest(dout, dlse, p)
        self._run(mlp_backward_calls, b * p, self._outputs(dout=dout, dlse=dlse, **g), of_rest, offsets)
        return self._named(g, of_rest)

    def _room_for_rest(self, dout: Array, dlse: Array, parts: int) -> Gradients | None:
        """Gradients of what goes beside the network: of every head those of keys, and of every part what are sums over
        queries."""
        if self.rest is None:
            return None
        g = self.rest.room_for_gradients(self._case_of_rest(self.rest, backward=True), dout, dlse)
        b, h = self.lse.shape[:2]

        own: dict[str, Any] = {name: _of_parts(x, parts) for name, x in _sums_over_queries(g).items()}
        own["columns"] = None if g.columns is None else ColumnGradients(*(_of_parts(x, parts) for x in g.columns))
        more = _RELATIVE & self.rest.call.slots.keys()
        keys = np.zeros((b * parts, h, *g.dk.shape[2:]) if more else 1, self.dtype)
        own |= {"dk_rest": keys, "dq_rest": np.zeros_like(g.dq) if more else keys}
        return g._replace(**own | {"dscale": np.zeros((b * parts, h, 1))})

    def _named_rest(self, g: Gradients, dq: Array, dk: Array, dv: Array) -> dict[str, Array]:
        """The gradients of what goes beside the network by argument, and those of rows."""
        assert self.rest is not None
        parts = self.case.parts
        own: dict[str, Any] = {name: _whole(x, parts) for name, x in _sums_over_queries(g).items()}
        own["columns"] = None if g.columns is None else ColumnGradients(*(_whole(x, parts) for x in g.columns))
        rest = dq, dk
        if _RELATIVE & self.rest.call.slots.keys():
            keys = _whole(g.dk_rest, parts).reshape(*dk.shape[:2], -1, *dk.shape[2:]).sum(axis=2)
            rest = g.dq_rest, keys
        own |= {"dq": dq, "dk": dk, "dv": dv, "dq_rest": rest[0], "dk_rest": rest[1]}
        return self.rest.named(g._replace(**own))

    def _named(self, g: dict[str, Array], of_rest: Gradients | None) -> dict[str, Array]:
        """The gradients by argument, of parts and repeated axes the sums."""
        call, slots, positions = self.call, self.call.slots, self.call.positions
        whole = {name: x.sum(axis=1) if name not in ("dq", "dcells") else x for name, x in g.items() if x.ndim > 1}
        if of_rest is None:
            dq, dk, found = content_gradients(call, self.rows, self.angles, slice(None), whole["dq"], whole["dk"])
            found |= {"q": dq, "k": self._ungrouped(dk), "v": self._ungrouped(whole["dv"])}
        else:
            found = self._named_rest(of_rest, whole["dq"], whole["dk"], whole["dv"])
        found["mlp_in"] = whole["dinto"].sum(axis=0).transpose(1, 2, 0)
        found["mlp_bias"] = whole["doffsets"].sum(axis=0)
        found["mlp_out"] = whole["dreadout"].sum(axis=0).transpose(2, 1, 0)
        if "bias" in call.shapes:
            found["bias"] = fold(whole["dbias"], positions, slots["bias"].shape[-1])
        if "scores" in call.shapes:
            found["scores"] = cells_back(whole["dcells"], positions, slots["scores"].shape[-2:])
        if "values" in call.shapes:
            found["values"] = whole["dvalues"]
        if "scale" in call.shapes and of_rest is None:
            per_head = whole["dscale"].sum(axis=0)
            found["scale"] = per_head if call.scale.shape else per_head.sum()
        of_rows = () if of_rest is not None else sorted(_OF_ROWS)
        sizes = {name: slots[name].shape for name in ("bias", "scores", "values", *of_rows) if name in call.shapes}
        return found | {name: summed_to(found[name], shape) for name, shape in sizes.items()}

    def _ungrouped(self, x: Array) -> Array:
        """The sum over the heads that share a key head."""
        return x.reshape(x.shape[0], -1, self.group, *x.shape[2:]).sum(axis=2) if self.group > 1 else x


def _sums_over_queries(g: Gradients) -> dict[str, Array]:
    return {name: x for name, x in g._asdict().items() if name[0] == "d" and name not in _OF_QUERIES}


def _of_parts(x: Array, parts: int) -> Array:
    """Room for so many parts of a gradient (B, ...); of what is not wanted none."""
    return x if x.ndim == 1 else np.zeros((parts * x.shape[0], *x.shape[1:]), x.dtype)


def _whole(x: Array, parts: int) -> Array:
    """Their sum."""
    return x if x.ndim == 1 else x.reshape(-1, parts, *x.shape[1:]).sum(axis=1)
