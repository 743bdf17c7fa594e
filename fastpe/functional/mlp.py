"""Attention whose scores a small network corrects (DAPE): the slots `mlp_in`, `mlp_bias` and `mlp_out`.

It reads what no other term does, the scores of every head at once, and goes with few of them: see `network`.
"""

from typing import Any

import numpy as np

from fastpe.functional.arguments import Array, Call
from fastpe.functional.content import content_gradients, own_angles, shared_turns, turned_rows
from fastpe.functional.layouts import contiguous, summed_to
from fastpe.functional.outcome import Outcome
from fastpe.functional.passes import dropout_of
from fastpe.functional.rotation import without_warnings
from fastpe.functional.sinks import drain, sinks_gradient
from fastpe.functional.slot_arrays import cells_back, cells_of, fold, unfold
from fastpe.functional.together import NETWORK
from fastpe.kernels import simd
from fastpe.kernels.attention.mlp import ROWS, room_for_mlp
from fastpe.kernels.attention.mlp_calls import MlpCase, MlpInputs, MlpOutputs, mlp_backward_calls, mlp_forward_calls
from fastpe.kernels.threads import lanes_for, run_apart

_PARTS = 8  # that sums over queries are made in, at most: as many threads take part


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
        self.rows = turned_rows(call.q, call.k, call.v, call.slots, self.angles, self.group, call.positions, call.pairs)
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
            drain(self.out, self.lse, call.slots["sinks"])

    def _laid_out(self, m: int) -> tuple[MlpInputs, MlpCase]:
        call, (_, q, _, k, v) = self.call, self.rows
        b, h, n, d = q.shape
        into = call.slots["mlp_in"][0]
        bias, of_bias = self._laid("bias", 1)
        cells, of_cells = self._laid("scores", 2)
        strides = [stride // x.itemsize for x in (q, k, v) for stride in x.strides[:3]]
        sizes = b, h, h // k.shape[1], n, m, d, v.shape[-1], into.shape[0], into.shape[-1], int(call.causal)
        biases = int("bias" in call.slots), *of_bias, n - 1, int("scores" in call.slots), *of_cells, m
        spans = np.zeros((1, 1, 2), np.int64) if call.spans is None else contiguous(call.spans, np.int64)
        far = int(np.abs(call.positions.first).max()) + n + m  # no offset is as large
        sight = min(call.window or 0, far), int(call.spans is not None), spans[0].size if len(spans) > 1 else 0
        case = MlpCase._make((*sizes, *strides, *biases, *sight, min(_PARTS, -(-n // int(ROWS)))))
        lengths = np.stack([call.query_lengths, call.key_lengths], axis=1).astype(np.int64)
        sights = contiguous(call.positions.first, np.int64), spans.reshape(-1)
        scale = contiguous(np.broadcast_to(call.scale, (h,)), self.dtype)
        net = [contiguous(call.slots[name], self.dtype).reshape(-1) for name in NETWORK]
        return MlpInputs._make((*map(simd.start_of, (q, k, v)), bias, cells, scale, *net, lengths, *sights)), case

    def _laid(self, name: str, axes: int) -> tuple[Array, tuple[int, int]]:
        """A bias in one piece, and its strides of samples and heads."""
        if name not in self.call.slots:
            return np.zeros(1, self.dtype), (0, 0)
        lay = unfold if name == "bias" else cells_of
        made = contiguous(lay(self.call.slots[name], self.call.positions), self.dtype)
        of_head = int(np.prod(made.shape[-axes:]))
        return made.reshape(-1), (made.shape[1] * of_head if made.shape[0] > 1 else 0, of_head)

    def _forward(self) -> None:
        b, _, n, _ = self.out.shape
        self._run(mlp_forward_calls, b * -(-n // int(ROWS)), self._outputs(), backward=False)

    def _run(self, function: Any, tasks: int, y: MlpOutputs, *sizes: int, backward: bool) -> None:
        case = self.case
        sizes_of_room = case.heads, case.width, case.v_width, case.hidden, case.taps
        room = room_for_mlp(*sizes_of_room, backward=backward, dropped=self.dropout is not None)
        cells = self.out.size // case.v_width * self.rows[3].shape[2]
        lanes = lanes_for(cells * (case.width + case.v_width + 3 * case.hidden * case.taps), tasks)
        arenas = simd.aligned_zeros((lanes, room.size), self.dtype)
        run_apart(lanes, function, self.inputs, self.dropout, y, case, *sizes, room, arenas)

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
            found["sinks"] = sinks_gradient(call.slots["sinks"], self.lse, deltas)
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
            "dinto": (b, p, t, w, 2 * h), "doffsets": (b, p, w), "dreadout": (b, p, t, w, h),
        }  # fmt: skip
        g = {name: np.zeros(shape, self.dtype) for name, shape in shapes.items()}
        self._run(mlp_backward_calls, b * p, self._outputs(dout=dout, dlse=dlse, **g), offsets, backward=True)
        return self._named(g)

    def _named(self, g: dict[str, Array]) -> dict[str, Array]:
        """The gradients by argument, of parts and repeated axes the sums."""
        call, slots, positions = self.call, self.call.slots, self.call.positions
        whole = {name: x.sum(axis=1) if name not in ("dq", "dcells") else x for name, x in g.items() if x.ndim > 1}
        dq, dk, found = content_gradients(call, self.rows, self.angles, slice(None), whole["dq"], whole["dk"])
        found |= {"q": dq, "k": self._ungrouped(dk), "v": self._ungrouped(whole["dv"])}
        found["mlp_in"] = whole["dinto"].sum(axis=0).transpose(1, 2, 0)
        found["mlp_bias"] = whole["doffsets"].sum(axis=0)
        found["mlp_out"] = whole["dreadout"].sum(axis=0).transpose(2, 1, 0)
        if "bias" in call.shapes:
            found["bias"] = fold(whole["dbias"], positions, slots["bias"].shape[-1])
        if "scores" in call.shapes:
            found["scores"] = cells_back(whole["dcells"], positions, slots["scores"].shape[-2:])
        if "scale" in call.shapes:
            per_head = whole["dscale"].sum(axis=0)
            found["scale"] = per_head if call.scale.shape else per_head.sum()
        sizes = {name: slots[name].shape for name in ("bias", "scores", "angles") if name in call.shapes}
        return found | {name: summed_to(found[name], shape) for name, shape in sizes.items()}

    def _ungrouped(self, x: Array) -> Array:
        """The sum over the heads that share a key head."""
        return x.reshape(x.shape[0], -1, self.group, *x.shape[2:]).sum(axis=2) if self.group > 1 else x
