"""A call of attention in several passes over disjoint sets of keys.

Each pair of query and key belongs to at most one pass, so all passes together compute about as many tiles as a single
pass. Pass p returns out_p and lse_p, the output and the logarithm of the denominator of the softmax over its keys. The
merged result is exactly

    lse = log sum_p exp(lse_p),     out = sum_p exp(lse_p - lse) out_p

where a sink is one more term in the sum of the first formula. In the gradient computation, the weight of query i and
key j is exp(S_ij - lse) with the merged lse, whatever pass the key belongs to. So each pass uses the merged out and lse
in place of its own, and the gradients of all passes are summed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastpe.functional.arguments import Array, Call
from fastpe.functional.passes import Pass
from fastpe.functional.result import sinks_gradient
from fastpe.functional.rotation import without_warnings
from fastpe.functional.skipping import raised
from fastpe.kernels.attention.split_softmax import weigh

_NO_SINKS = np.zeros(0)


class SplitSoftmax:
    """A call in several passes; the counterpart of `Pass`."""

    @without_warnings
    def __init__(
        self, call: Call, passes: Sequence[Pass], known: tuple[Array, Array] | None = None, rows: Any = None
    ) -> None:
        """Merge the results of the passes. If `known` is given (as in `Pass`), use it instead.

        `rows` has one array for each pass. It holds a term of the scores that the pass leaves out, because the term is
        the same for all keys of a query. The arrays are float64 and broadcast to (B, H, N).
        """
        self.call, self.passes, self.dtype = call, passes, passes[0].dtype
        self.rows = [0.0] * len(passes) if rows is None else rows
        self.weights: list[Array] = []  # total softmax weight of the keys of each pass, (B, H, N) float64
        if known is None:
            self._merge()
        else:
            self.out, self.lse = passes[0].out, passes[0].lse.astype(np.float64)

    def _merge(self) -> None:
        own = [
            raised(each.lse, each.columns).astype(np.float64) + row
            for each, row in zip(self.passes, self.rows, strict=True)
        ]
        weights, sinks = np.stack(own), self.call.slots.get("sinks", _NO_SINKS).astype(np.float64).reshape(-1)
        self.lse = np.empty(weights.shape[1:])
        weigh(weights, sinks, self.lse)
        self.weights = list(weights)
        self.out = np.zeros_like(self.passes[0].out)
        for each, weight in zip(self.passes, self.weights, strict=True):
            each.out *= weight.astype(self.dtype)[..., None]
            self.out += each.out

    def outputs(self) -> Any:
        """Return what `attention` returns."""
        lse = self.lse.astype(self.dtype)
        out, lse = (self.call.without_axes(x) for x in (self.out.astype(self.call.dtype, copy=False), lse))
        return (out, lse) if self.call.return_lse else out

    @without_warnings
    def pullback(self, dout: Any) -> dict[str, Array]:
        """Return the gradients of the arguments in `wrt`, by name."""
        return self.gradients(*self.passes[0].given(dout))

    def gradients(self, dout: Array, dlse: Array) -> dict[str, Array]:
        """Return the gradients of the arguments in `wrt`, by name, from checked gradients of out and of lse."""
        return self.summed(self.by_pass(dout, dlse), dout, dlse)

    def by_pass(self, dout: Array, dlse: Array) -> list[dict[str, Array]]:
        """For each pass, return the part of the gradients that comes from the keys of the pass."""
        found = []
        for each, row in zip(self.passes, self.rows, strict=True):
            each.out, each.lse = self.out, raised(self.lse - row, each.columns, -1.0).astype(self.dtype)
            found.append(each.gradients(dout, dlse))
        return found

    def summed(self, parts: Sequence[dict[str, Array]], dout: Array, dlse: Array) -> dict[str, Array]:
        """Return the gradients summed over the passes, with the gradient of sinks added."""
        call, found = self.call, dict[str, Array]()
        for part in parts:
            for name, gradient in part.items():
                found[name] = found[name] + gradient if name in found else gradient
        if "sinks" in call.shapes:
            found["sinks"] = sinks_gradient(call.slots["sinks"], self.lse, self.deltas(dout, dlse))
        return {
            name: found[name].reshape(shape).astype(call.dtypes[name], copy=False)
            for name, shape in call.shapes.items()
        }

    def deltas(self, dout: Array, dlse: Array) -> Array:
        """Return the sum of dout * out over channels, minus dlse: (B, H, N). The gradient of the scores subtracts it
        from the gradient of the weights.
        """
        return np.asarray(np.einsum("bhnd,bhnd->bhn", dout, self.out) - dlse)


def part(call: Call, spans: Array) -> tuple[Call, Array]:
    """Restrict a call to the keys in `spans`. Return the restricted call, and the intersection of `spans` and the
    call's own spans.

    The restricted call has no sinks, and its gradients have at least float32 precision.
    """
    if call.spans is not None:
        first, last = (pick(spans[..., end], call.spans[..., end]) for pick, end in ((np.maximum, 0), (np.minimum, 1)))
        spans = np.stack([first, last], axis=-1)
    own = call._replace(
        spans=spans, slots={name: array for name, array in call.slots.items() if name != "sinks"},
        shapes={name: shape for name, shape in call.shapes.items() if name != "sinks"},
        dtypes={name: np.result_type(np.float32, dtype) for name, dtype in call.dtypes.items()},
    )  # fmt: skip
    return own, spans
