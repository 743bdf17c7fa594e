"""One call of attention whose queries are reflected by what lies between them and a key: `reflectors` and `reflect`.

Of all else but sinks and offsets of keys the arrays are those of the call without reflections, and so is what becomes
of its gradients.
"""

from typing import Any

import numpy as np

from fastpe.functional.arguments import Array, Call, in_float32
from fastpe.functional.beside import dropout_beside, others_of, pass_without
from fastpe.functional.layouts import contiguous, summed_to
from fastpe.functional.outcome import Outcome
from fastpe.functional.passes import dropout_of
from fastpe.functional.rotation import without_warnings
from fastpe.functional.sinks import drain, sinks_gradient
from fastpe.kernels import simd
from fastpe.kernels.attention import reflected, reflected_backward, reflected_products, reflected_rows
from fastpe.kernels.attention.beside import Others
from fastpe.kernels.attention.cells import FEW
from fastpe.kernels.attention.records import Gradients
from fastpe.kernels.attention.reflected_blocks import BLOCK, TILE
from fastpe.kernels.attention.reflected_room import backward_room, forward_sizes, laid_out
from fastpe.kernels.threads import lanes_for, run_apart

_TILE, _FEW = int(TILE), int(FEW)
_OF_KEYS = ("reflectors", "reflect", "key_offset")
_OWN = {"reflectors", "reflect", "sinks"}
_OF_ROWS = {"angles", "rotors", "row_scale"}  # that queries and keys have before they are reflected
_WORK = 2  # what a cell costs, measured by one of plain attention


def _spans(call: Call) -> Array | None:
    """The keys that queries see of those up to their own, (B or 1, N, 2), where not all."""
    if call.window is None:
        return call.spans
    queries = call.positions.first[:, None] + np.arange(call.positions.n)
    near = np.maximum(queries - min(call.window - 1, int(queries.max(initial=0))), 0)
    first, last = (near, queries + 1) if call.spans is None else np.moveaxis(call.spans, -1, 0)
    return np.stack(np.broadcast_arrays(np.maximum(first, near), last), axis=-1)


def _strides(samples: int, heads: int, m: int) -> tuple[int, int]:
    """How many keys lie between those of samples and of heads of an array (B or 1, H or 1, M) in one piece."""
    return heads * m if samples > 1 else 0, m if heads > 1 else 0


class Reflected(Outcome):
    """A call with reflections, as `Pass` is one without; something is to be computed."""

    @without_warnings
    def __init__(self, call: Call, known: tuple[Array, Array] | None = None) -> None:
        """`known`: out and lse, where the forward pass was done before."""
        self.call, self.dtype = call, call.computed
        self.rest = pass_without(call, _OWN, {"key_offset"})
        q, k, v = (call.q, call.k, call.v) if self.rest is None else self.rest.rows[1::2] + self.rest.rows[4:]
        (b, h, n, d), (hk, m), dv = q.shape, k.shape[1:3], v.shape[-1]
        w, beta = call.slots["reflectors"], call.slots["reflect"]
        samples, heads = (max(sizes) for sizes in zip(w.shape[:2], beta.shape[:2], strict=True))
        self.shape = samples, heads, m, d
        self.lane = simd.whole_vectors(1, self.dtype)
        spans, offsets = _spans(call), None if call.softcap else call.slots.get("key_offset")
        of_offsets = (0, 0) if offsets is None else _strides(*offsets.shape)
        self.sizes = reflected.Sizes(
            b, h, hk, n, m, d, dv, *_strides(samples, heads, m), max(heads, hk),
            0 if spans is None else len(spans), int(offsets is not None), *of_offsets,
        )  # fmt: skip
        rows = q, k, v, np.broadcast_to(w, self.shape), np.broadcast_to(beta, self.shape[:-1])
        starts = np.broadcast_to(call.positions.first, (b,))
        lengths = np.stack([call.query_lengths, call.key_lengths, starts], axis=1).astype(np.int64)
        given = [self._in_one_piece(in_float32(x)) for x in rows]
        limits = np.array([np.finfo(self.dtype).min, 1.0], self.dtype)
        seen = np.zeros(1, np.int64) if spans is None else contiguous(spans, np.int64).reshape(-1)
        raising = np.zeros(1) if offsets is None else contiguous(offsets, np.float64).reshape(-1)
        scale = self._in_one_piece(np.broadcast_to(1.0 if self._has_terms() else call.scale, (h,)))
        self.tokens = reflected.Tokens._make([*given, limits[:0], scale, lengths, seen, raising, limits])
        self.dropout = dropout_of(call.dropout, call.dropout_seed)
        self.out, self.lse = np.zeros((b, h, n, dv), self.dtype), np.full((b, h, n), -np.inf, self.dtype)
        self.bases = np.zeros((b, h, n) if self.sizes.raised else (1, 1, 1))
        if known is None:
            self._forward()
        else:
            for whole, part in zip((self.out, self.lse), known, strict=True):
                whole[...] = part.reshape(whole.shape)

    def _has_terms(self) -> bool:
        """Whether there is more beside reflections than what rows have before them."""
        if self.rest is None:
            return False
        call = self.rest.call
        return bool(call.slots.keys() - _OF_ROWS) or call.mask is not None or call.softcap > 0 or call.rectify

    def _others(self, lanes: int, g: Gradients | None) -> Others | None:
        if self.rest is None or not self._has_terms():
            return None
        backward = g is not None
        return others_of(self.rest, self.rest.case(gradients=backward), lanes, g, backward=backward)

    def _in_one_piece(self, x: Array) -> Array:
        return contiguous(x, self.dtype).reshape(-1)

    def _lay_products(self) -> None:
        """Of the rows of every tile of keys, those with reflectors."""
        if self.tokens.products.size:
            return
        sizes = self.sizes
        tasks = sizes.batch * sizes.pairs * -(-sizes.keys // _TILE)
        found = np.zeros(tasks * 2 * _TILE * _TILE, self.dtype)
        lanes = lanes_for(found.size * sizes.width, tasks)
        arenas = simd.aligned_zeros((lanes, sizes.width * _TILE), self.dtype)
        run_apart(lanes, reflected_products.lay_products, self.tokens, sizes, found, arenas)
        self.tokens = self.tokens._replace(products=found)

    def _lanes(self, tasks: int) -> int:
        sizes = self.sizes
        cells = sizes.batch * sizes.heads * sizes.queries * sizes.keys
        return lanes_for(_WORK * cells * (sizes.width + sizes.v_width), tasks)

    def _forward(self) -> None:
        if self.sizes.queries <= _FEW and not self._has_terms():
            self._forward_by_rows()
        else:
            self._forward_in_blocks()
        if "sinks" in self.call.slots:
            whole = self.whole_lse()
            drain(self.out, whole, self.call.slots["sinks"])
            self.lse[...] = whole - self.bases

    def whole_lse(self) -> Array:
        """As `Outcome.whole_lse`; float64 where keys have offsets."""
        return self.lse + self.bases if self.sizes.raised else self.lse.copy()

    def _outputs(self) -> tuple[Array, Array, Array]:
        return self.out.reshape(-1), self.lse.reshape(-1), self.bases.reshape(-1)

    def _forward_by_rows(self) -> None:
        sizes = self.sizes
        lanes = self._lanes(sizes.batch * sizes.heads * sizes.queries)
        size = simd.whole_vectors(sizes.width, self.dtype) + simd.whole_vectors(sizes.keys, self.dtype)
        arenas = simd.aligned_zeros((lanes, size), self.dtype)
        run_apart(lanes, reflected_rows.forward, self.tokens, sizes, self.dropout, *self._outputs(), arenas)

    def _forward_in_blocks(self) -> None:
        self._lay_products()
        sizes = self.sizes
        dropped = self.dropout is not None
        starts, total = laid_out(forward_sizes(sizes.width, sizes.v_width, self.lane, dropped=dropped))
        lanes = self._lanes(sizes.batch * sizes.heads * -(-sizes.queries // (int(BLOCK) * self.lane)))
        arenas = simd.aligned_zeros((lanes, total), self.dtype)
        others, rest = self._others(lanes, None), (*self._outputs(), tuple(starts), arenas)
        dropout = dropout_beside(others, self.dropout)
        run_apart(lanes, reflected.forward, self.tokens, sizes, dropout, others, *rest)

    @without_warnings
    def gradients(self, dout: Array, dlse: Array) -> dict[str, Array]:
        """As `pullback`, of both outputs."""
        self._lay_products()
        call, (b, h, _, n, m, d, dv, *_) = self.call, self.sizes
        deltas = np.einsum("bhnd,bhnd->bhn", dout, self.out) - dlse
        shapes = (b, h, n, d), (b, h, m, d), (b, h, m, dv), (b, h, m, d), (b, h, m), (b, h, m * self.sizes.raised)
        # filled here: where lanes are the first to touch memory, they wait for each other
        own = [np.full(shape, 0, self.dtype) for shape in shapes]
        dscale, room = np.zeros((b, h)), backward_room(m, d, dv, self.lane, dropped=self.dropout is not None)
        seen = np.where(self.lse == -np.inf, self.dtype.type(0), self.lse)
        rows = [self._in_one_piece(x) for x in (seen, deltas, dout, *own)]
        g = reflected_backward.Gradients._make([*rows, dscale.reshape(-1)])
        lanes = self._lanes(b * h)
        arenas = simd.aligned_zeros((lanes, room.size), self.dtype)
        of_rest = self._room_for_rest(dout, dlse, own)
        others = self._others(lanes, of_rest)
        rest = dropout_beside(others, self.dropout), others, g, room, arenas
        run_apart(lanes, reflected_backward.backward, self.tokens, self.sizes, *rest)
        found: dict[str, Any] = dict(zip(("q", "k", "v", *_OF_KEYS), own, strict=True))
        found |= self._named(found, dscale, of_rest)
        if "sinks" in call.shapes:
            found["sinks"] = sinks_gradient(call.slots["sinks"], self.whole_lse(), deltas)
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
        more = (np.full_like(dq, 0), np.full_like(dk, 0)) if self._has_terms() else (dq, dk)
        b, h = self.lse.shape[:2]
        return g._replace(dq=dq, dk=dk, dv=dv, dq_rest=more[0], dk_rest=more[1], dscale=np.zeros((b, h, 1)))

    def _named(self, found: dict[str, Array], dscale: Array, of_rest: Gradients | None) -> dict[str, Array]:
        """Gradients of all but reflections and what keys and sinks add, by argument."""
        dk, dv = (self._of_key_heads(found[name]) for name in ("k", "v"))
        if self.rest is None or of_rest is None:
            return {"k": dk, "v": dv, "scale": dscale.sum(axis=0) if self.call.scale.shape else dscale.sum()}
        of_scale = of_rest.dscale if self._has_terms() else dscale[..., None]
        more = dk if of_rest.dk_rest is of_rest.dk else self._of_key_heads(of_rest.dk_rest)
        return self.rest.named(of_rest._replace(dk=dk, dv=dv, dk_rest=more, dscale=of_scale))

    def _of_key_heads(self, x: Array) -> Array:
        """The sums over the heads that share keys."""
        return np.asarray(x.reshape(len(x), self.sizes.key_heads, -1, *x.shape[2:]).sum(axis=2))
