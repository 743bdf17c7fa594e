"""One call of attention whose queries are reflected by what lies between them and a key: `reflectors` and `reflect`.

Of all else but sinks and offsets of keys the arrays are those of the call without reflections, and so is what becomes
of its gradients.
"""

from functools import partial
from typing import Any

import numpy as np

from fastpe.functional.arguments import Array, Call
from fastpe.functional.extra_terms import dropout_beside, others_of, pass_without
from fastpe.functional.layouts import summed_to
from fastpe.functional.passes import dropout_of
from fastpe.functional.path_inputs import Reflections, spans_near
from fastpe.functional.result import Result, sinks_gradient
from fastpe.functional.rotation import without_warnings
from fastpe.kernels import simd
from fastpe.kernels.attention.extra_terms import Others
from fastpe.kernels.attention.inputs import Gradients
from fastpe.kernels.attention.path import backward as reflected_backward
from fastpe.kernels.attention.path.workspace import backward_room
from fastpe.kernels.threads.team import run_team

_OF_KEYS = ("reflectors", "reflect", "key_offset")
_OWN = {"reflectors", "reflect", "sinks"}
_OF_ROWS = {"angles", "rotors", "row_scale"}  # that queries and keys have before they are reflected


class Reflected(Result):
    """A call with reflections, as `Pass` is one without; something is to be computed."""

    @without_warnings
    def __init__(self, call: Call, known: tuple[Array, Array] | None = None) -> None:
        """`known`: out and lse, where the forward pass was done before."""
        self.call, self.dtype = call, call.computed
        self.rest = pass_without(call, _OWN, {"key_offset"})
        q, k, v = (call.q, call.k, call.v) if self.rest is None else self.rest.rows[1::2] + self.rest.rows[4:]
        self.group = 1 if self.rest is None else self.rest.group
        self.beside = self.rest if self._has_terms() else None
        scale = np.full(q.shape[1], 1.0 if self.beside else call.scale, self.dtype)
        visibility = call.visibility()
        visibility = visibility._replace(spans=spans_near(visibility.spans, call.window, call.positions))
        offsets = None if call.softcap else call.slots.get("key_offset")
        dropout = dropout_of(call.dropout, call.dropout_seed)
        self.own = own = Reflections((q, k, v), call.slots, visibility, scale, offsets, dropout)
        self.out, self.lse = own.out, own.lse
        if known is not None:
            for whole, part in zip((self.out, self.lse), known, strict=True):
                whole[...] = part.reshape(whole.shape)
            return
        own.forward(None if self.beside is None else partial(self._others, g=None))
        if "sinks" in call.slots:
            own.apply_sinks(call.slots["sinks"])

    def _has_terms(self) -> bool:
        """Whether there is more beside reflections than what rows have before them."""
        if self.rest is None:
            return False
        call = self.rest.call
        return bool(call.slots.keys() - _OF_ROWS) or call.mask is not None or call.softcap > 0 or call.rectify

    def _others(self, workers: int, g: Gradients | None) -> Others:
        assert self.beside is not None
        backward = g is not None
        return others_of(self.beside, self.beside.case(gradients=backward), workers, g, backward=backward)

    def lse_with_base(self) -> Array:
        """As `Outcome.whole_lse`; float64 where keys have offsets."""
        return self.own.lse_with_base()

    @without_warnings
    def gradients(self, dout: Array, dlse: Array) -> dict[str, Array]:
        """As `pullback`, of both outputs."""
        call, made, (b, h, _, n, m, d, dv, *_) = self.call, self.own, self.own.sizes
        made.lay_products()
        deltas = np.einsum("bhnd,bhnd->bhn", dout, self.out) - dlse
        shapes = (b, h, n, d), (b, h, m, d), (b, h, m, dv), (b, h, m, d), (b, h, m), (b, h, m * made.sizes.raised)
        # filled here: where workers are the first to touch memory, they wait for each other
        own = [np.full(shape, 0, self.dtype) for shape in shapes]
        dscale, layout = np.zeros((b, h)), backward_room(m, d, dv, made.lane, dropped=made.dropout is not None)
        seen = np.where(self.lse == -np.inf, self.dtype.type(0), self.lse)
        rows = [made.in_one_piece(x) for x in (seen, deltas, dout, *own)]
        g = reflected_backward.Gradients._make([*rows, dscale.reshape(-1)])
        workers = made.workers(b * h)
        workspaces = simd.aligned_zeros((workers, layout.size), self.dtype)
        of_rest = self._room_for_rest(dout, dlse, own)
        others = None if self.beside is None else self._others(workers, of_rest)
        rest = dropout_beside(others, made.dropout), others, g, layout, workspaces
        run_team(workers, reflected_backward.backward, made.tokens, made.sizes, *rest)
        found: dict[str, Any] = dict(zip(("q", "k", "v", *_OF_KEYS), own, strict=True))
        found |= self._named(found, dscale, of_rest)
        if "sinks" in call.shapes:
            found["sinks"] = sinks_gradient(call.slots["sinks"], self.lse_with_base(), deltas)
        for name in call.slots.keys() & set(_OF_KEYS if self.rest is None else _OF_KEYS[:2]):
            found[name] = summed_to(found[name], call.slots[name].shape)
        return {
            name: np.asarray(found[name]).reshape(shape).astype(call.dtypes[name], copy=False)
            for name, shape in call.shapes.items()
        }

    def _room_for_rest(self, dout: Array, dlse: Array, own: list[Array]) -> Gradients | None:
        """Gradients of what goes beside reflections: of every head those of keys."""
        if self.rest is None:
            return None
        dq, dk, dv, *_ = own
        g = self.rest.room_for_gradients(self.rest.case(gradients=True), dout, dlse)
        more = (np.full_like(dq, 0), np.full_like(dk, 0)) if self.beside else (dq, dk)
        b, h = self.lse.shape[:2]
        return g._replace(dq=dq, dk=dk, dv=dv, dq_rest=more[0], dk_rest=more[1], dscale=np.zeros((b, h, 1)))

    def _named(self, found: dict[str, Array], dscale: Array, of_rest: Gradients | None) -> dict[str, Array]:
        """Gradients of all but reflections and what keys and sinks add, by argument."""
        dk, dv = (self._of_key_heads(found[name]) for name in ("k", "v"))
        if self.rest is None or of_rest is None:
            return {"k": dk, "v": dv, "scale": dscale.sum(axis=0) if self.call.scale.shape else dscale.sum()}
        of_scale = of_rest.dscale if self.beside else dscale[..., None]
        more = dk if of_rest.dk_rest is of_rest.dk else self._of_key_heads(of_rest.dk_rest)
        return self.rest.named(of_rest._replace(dk=dk, dv=dv, dk_rest=more, dscale=of_scale))

    def _of_key_heads(self, x: Array) -> Array:
        """The sums over the heads that share keys."""
        return np.asarray(x.reshape(len(x), self.own.sizes.key_heads, -1, *x.shape[2:]).sum(axis=2))
