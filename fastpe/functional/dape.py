"""Attention whose scores a small network corrects (DAPE): the slots `mlp_in`, `mlp_bias` and `mlp_out`.

It reads what no other term does, the scores of every head at once. Of all else but biases and sinks the arrays are
those of the call without a network, and so is what becomes of its gradients.
"""

from functools import partial

import numpy as np

from fastpe.functional.arguments import Array, Call
from fastpe.functional.dape_inputs import Network
from fastpe.functional.extra_terms import others_of, pass_without
from fastpe.functional.layouts import summed_to
from fastpe.functional.passes import Pass, dropout_of, summed_parts
from fastpe.functional.result import Result, apply_sinks, sinks_gradient
from fastpe.functional.rotation import without_warnings
from fastpe.functional.rows import content_gradients, content_rows, own_angles, shared_turns
from fastpe.functional.slot_arrays import cells_back, sum_by_offset
from fastpe.functional.slots import NETWORK
from fastpe.kernels.attention.dape.calls import MlpCase, mlp_backward_calls
from fastpe.kernels.attention.extra_terms import Others
from fastpe.kernels.attention.inputs import Case, Gradients
from fastpe.kernels.attention.terms.key_query_offsets import ColumnGradients

_OWN = {*NETWORK, "bias", "scores", "index", "values", "sinks"}
_OF_ROWS = {"angles", "rotors", "polar", "row_scale"}  # that queries and keys have before their products
_RELATIVE = {"rel_key", "rel_query", "key_bias"}


class Networked(Result):
    """One call, as `passes.Pass` is one."""

    @without_warnings
    def __init__(self, call: Call, known: tuple[Array, Array] | None = None) -> None:
        """`known`: out and lse, where the forward pass was done before."""
        self.call, self.dtype = call, call.computed
        self.group = shared_turns(call.slots, call.q.shape[1], call.k.shape[1])
        if call.empty:
            self._nothing_to_compute()
            return
        self.angles = own_angles(call.slots, call.positions)
        self.beside = pass_without(call, _OWN, _OF_ROWS)
        self.rows = (
            content_rows(call.q, call.k, call.v, call.slots, self.angles, self.group, call.positions, call.pairs)
            if self.beside is None
            else self.beside.rows
        )
        scale = np.full(call.q.shape[1], call.scale, self.dtype)
        dropout = dropout_of(call.dropout, call.dropout_seed)
        self.own = own = Network(
            self.rows,
            call.slots,
            call.positions,
            call.visibility(),
            scale,
            dropout,
            causal=call.causal,
            window=call.window,
        )
        self.out, self.lse = own.out, own.lse
        if known is not None:
            for whole, part in zip((self.out, self.lse), known, strict=True):
                whole[...] = part.reshape(whole.shape)
            return
        own.forward(None if self.beside is None else partial(self._others, g=None, backward=False))
        if "sinks" in call.slots:
            own.apply_sinks(call.slots["sinks"])

    def _nothing_to_compute(self) -> None:
        """Outputs without keys."""
        (b, h, n, _), dv = self.call.q.shape, self.call.v.shape[-1]
        self.out, self.lse = np.zeros((b, h, n, dv), self.dtype), np.full((b, h, n), -np.inf, self.dtype)
        if "sinks" in self.call.slots:
            apply_sinks(self.out, self.lse, self.call.slots["sinks"])

    def lse_with_base(self) -> Array:
        """As `Outcome.whole_lse`; float64 where keys have offsets."""
        return self.lse if self.call.empty else self.own.lse_with_base()

    def _case_of_rest(self, rest: Pass, *, backward: bool) -> Case:
        """Where the network reads products, their own are kept on the way back."""
        return rest.case(gradients=backward)._replace(keep_raw=int(backward))

    def _others(self, workers: int, g: Gradients | None, *, backward: bool) -> Others:
        """g: of the backward pass the gradients of what is beside the network, if there is anything."""
        assert self.beside is not None
        case = self._case_of_rest(self.beside, backward=backward)
        return others_of(self.beside, case, workers, g, backward=backward)

    @without_warnings
    def gradients(self, dout: Array, dlse: Array) -> dict[str, Array]:
        """Gradients of the arguments that are wanted."""
        call = self.call
        if call.empty:
            found = {name: np.zeros(shape) for name, shape in call.shapes.items()}
        else:
            found = self._gradients(dout, dlse, self.own.case)
        if "sinks" in call.shapes:
            deltas = (dout * self.out).sum(axis=-1) - dlse
            found["sinks"] = sinks_gradient(call.slots["sinks"], self.lse_with_base(), deltas)
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
        y = self.own.outputs(dout, dlse, *g.values())
        others = None if self.beside is None else partial(self._others, g=of_rest, backward=True)
        self.own.run(mlp_backward_calls, b * p, y, others, offsets)
        return self._named(g, of_rest)

    def _room_for_rest(self, dout: Array, dlse: Array, parts: int) -> Gradients | None:
        """Gradients of what goes beside the network: of every head those of keys, and of every part what are sums over
        queries."""
        if self.beside is None:
            return None
        g = self.beside.room_for_gradients(self._case_of_rest(self.beside, backward=True), dout, dlse, parts)
        b, h = self.lse.shape[:2]
        more = _RELATIVE & self.beside.call.slots.keys()
        keys = np.zeros((b * parts, h, *g.dk.shape[2:]) if more else 1, self.dtype)
        rest = np.zeros_like(g.dq) if more else keys
        return g._replace(dk_rest=keys, dq_rest=rest, dscale=np.zeros((b * parts, h, 1)))

    def _named_rest(self, g: Gradients, dq: Array, dk: Array, dv: Array) -> dict[str, Array]:
        """The gradients of what goes beside the network by argument, and those of rows."""
        assert self.beside is not None
        parts = self.own.case.parts
        rest = dq, dk
        if _RELATIVE & self.beside.call.slots.keys():
            keys = summed_parts(g.dk_rest, parts).reshape(*dk.shape[:2], -1, *dk.shape[2:]).sum(axis=2)
            rest = g.dq_rest, keys
        columns = None if g.columns is None else ColumnGradients(*(_whole(x, parts) for x in g.columns))
        own = g._replace(dq=dq, dk=dk, dv=dv, dq_rest=rest[0], dk_rest=rest[1], columns=columns)
        return self.beside.named(own._replace(dscale=summed_parts(g.dscale, parts)), parts)

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
            found["bias"] = sum_by_offset(whole["dbias"], positions, slots["bias"].shape[-1])
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


def _whole(x: Array, parts: int) -> Array:
    """The sum of the parts of a gradient, if it is wanted."""
    return x if x.ndim == 1 else summed_parts(x, parts)
