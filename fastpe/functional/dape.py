"""Attention with a small network that corrects the scores (DAPE): the slots `mlp_in`, `mlp_bias` and `mlp_out`.

The network reads the scores of all heads at once, so calls with a network have separate kernels and tasks. Their
arguments and gradients are handled as in all other calls.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.functional.arguments import Array, Call
from fastpe.functional.layouts import contiguous
from fastpe.functional.passes import Pass, starts_of, summed_parts
from fastpe.functional.rotation import without_warnings
from fastpe.functional.slots import NETWORK
from fastpe.kernels import simd
from fastpe.kernels.attention.dape.calls import backward, forward
from fastpe.kernels.attention.dape.maps import ROWS
from fastpe.kernels.attention.dape.network import MOST_TAPS, DapeLayout, Net, NetGradients, layout_for_dape
from fastpe.kernels.attention.inputs import Case, Gradients, Inputs
from fastpe.kernels.attention.slots import BIAS, GIVEN, SIZES, WANTED
from fastpe.kernels.attention.terms.key_query_offsets import ColumnGradients
from fastpe.kernels.threads.team import run_team, workers_for

_PARTS = 8  # largest number of partial sums over the queries of a sample: one task each in the backward pass


class Networked(Pass):
    """A `Pass` with a network over the scores."""

    def __init__(self, call: Call, known: tuple[Array, Array] | None = None) -> None:
        """Run the forward pass, unless `known` has the out and lse of an earlier forward pass."""
        taps = call.slots["mlp_in"].shape[-1]
        if taps > MOST_TAPS:
            raise ValueError(
                f"mlp_in must have at most {MOST_TAPS} taps (fastpe.reference.attention takes more), not {taps}"
            )
        super().__init__(_from_the_first_seen(call), 0.0, known)

    def case(self, *, gradients: bool) -> Case:
        """Return the sizes and flags of the call. `alone` is set: one worker handles all keys of a block of queries."""
        return super().case(gradients=gradients)._replace(alone=1)

    def _network(self) -> Net:
        into, bias, out = (contiguous(self.call.slots[name], self.dtype).reshape(-1) for name in NETWORK)
        units, _, taps = self.call.slots["mlp_in"].shape[1:]
        return Net(into, bias, out, units, taps, biased=int(self.table[BIAS, GIVEN]), follow=0)

    def _inputs_without_bias(self) -> Inputs:
        """Return inputs whose table has no bias. The network adds the bias, and the other code must not add it
        again."""
        table = self.table.copy()
        table[BIAS, [GIVEN, WANTED]] = 0
        return self.inputs._replace(table=table)

    def _run(self, net: Net, case: Case, tasks: int, entry: Any, *arrays: Any) -> None:
        layout = _layout(case, self.table[:, :SIZES].tobytes(), net.units, backward=entry is backward)
        work = case.width + case.v_width + 3 * net.units * net.taps
        workers = workers_for(work * case.batch * case.heads * case.queries * case.keys, tasks)
        workspaces = simd.aligned_zeros((workers, layout.size), self.dtype)
        run_team(workers, entry, self._inputs_without_bias(), net, self.dropout, *arrays, case, layout, workspaces)

    def _forward(self) -> None:
        case = self.case(gradients=False)
        self.out.fill(0.0)  # for padding queries
        self.lse.fill(-np.inf)
        self._run(self._network(), case, case.batch * -(-case.queries // int(ROWS)), forward, self.out, self.lse)
        self._drain()

    @without_warnings
    def gradients(self, dout: Array, dlse: Array) -> dict[str, Array]:
        """Return the gradients of the arguments in `wrt`, by name."""
        if self.call.empty:
            return super().gradients(dout, dlse)
        call, case, net = self.call, self.case(gradients=True), self._network()
        parts = min(_PARTS, -(-case.queries // int(ROWS)))
        g = self._gradient_arrays_of_parts(case, dout, dlse, parts)
        tasks, (w, h2, t) = case.batch * parts, call.slots["mlp_in"].shape[1:]
        shapes = (t, w, h2), (w,), (t, w, h2 // 2)
        into, bias, out = (np.zeros((tasks, *shape), self.dtype) for shape in shapes)
        dnet = NetGradients(simd.start_of(into), simd.start_of(bias), simd.start_of(out), wanted=1)
        self._run(net, case, tasks, backward, starts_of(g), dnet, parts)
        columns = None
        if g.columns is not None:
            columns = ColumnGradients(*(x if x.ndim == 1 else summed_parts(x, parts) for x in g.columns))
        dk, dv = (summed_parts(x, parts) for x in (g.dk, g.dv))
        rest = dk if g.dk_rest is g.dk else summed_parts(g.dk_rest, parts)
        more = {"mlp_in": into.transpose(0, 2, 3, 1), "mlp_bias": bias, "mlp_out": out.transpose(0, 3, 2, 1)}
        found = self.named(g._replace(dk=dk, dk_rest=rest, dv=dv, columns=columns), parts, more)
        return self._as_given(found)

    def _gradient_arrays_of_parts(self, case: Case, dout: Array, dlse: Array, parts: int) -> Gradients:
        """Return the arrays of `gradient_arrays`, filled with zeros, with `parts` partial sums for each sum over
        queries.
        """
        g, zeros = self.gradient_arrays(case, dout, dlse, parts), np.zeros
        dk, dv = (zeros((case.batch * parts, *x.shape[1:]), self.dtype) for x in (g.dk, g.dv))
        dq, apart = zeros(g.dq.shape, self.dtype), g.dq_rest is not g.dq
        deltas = np.einsum("bhnd,bhnd->bhn", dout, self.out) - dlse
        return g._replace(
            deltas=deltas, dq=dq, dk=dk, dv=dv, dq_rest=zeros(dq.shape, self.dtype) if apart else dq,
            dk_rest=zeros(dk.shape, self.dtype) if apart else dk, dscale=zeros((case.batch * parts, case.heads, 1)),
        )  # fmt: skip


def _from_the_first_seen(call: Call) -> Call:
    """For causal attention with a mask, return the call with spans that begin at the first key that the mask shows.

    The scores stay the same, because the mask hides all earlier keys. The spans also hide these keys from the network.
    """
    if call.mask is None or not call.causal or call.empty:
        return call
    seen, m = call.mask.seen.any(axis=1), call.k.shape[2]
    # for every key, the first visible key at or after it; one more entry for the end
    nearest = np.where(seen, np.arange(m), m)
    nearest = np.minimum.accumulate(nearest[..., ::-1], axis=-1)[..., ::-1]
    nearest = np.concatenate([nearest, np.full((*nearest.shape[:2], 1), m)], axis=-1)
    positions = call.positions.first[:, None] + np.arange(call.positions.n)
    first = np.zeros_like(positions) if call.window is None else positions - call.window + 1
    spans = np.array([[[0, m]]]) if call.spans is None else call.spans
    first, last = np.broadcast_arrays(np.maximum(first, spans[..., 0]), spans[..., 1])
    first = np.clip(first, 0, m)
    b = max(len(first), len(nearest))
    first, last = (np.broadcast_to(x, (b, positions.shape[1])) for x in (first, last))
    rows = np.broadcast_to(nearest, (b, positions.shape[1], m + 1))
    first = np.take_along_axis(rows, first[..., None], axis=-1)[..., 0]
    return call._replace(spans=np.stack([first, last], axis=-1))


@lru_cache(256)
def _layout(case: Case, table: bytes, units: int, *, backward: bool) -> DapeLayout:
    return layout_for_dape(case, np.frombuffer(table, np.int64).reshape(-1, SIZES), units, backward=backward)
