"""Attention whose keys are dealt out to bands: one pass for each, merged by the logarithms of their denominators.

Every cell of query and key lies in at most one band, so that the passes together make as many tiles as one would, and a
few more along the seams. What a band gives, out_b and lse_b, is the softmax over its own keys; with all of them

    lse = log sum_b exp(lse_b),     out = sum_b exp(lse_b - lse) out_b

exactly (a sink is one more term of lse). Backward, the weights of a cell are exp(S_ij - lse) whichever band it lies in:
each pass takes the merged out and lse in the place of its own, and gradients add up.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from fastpe.functional.arguments import Array, Call
from fastpe.functional.bands import Band
from fastpe.functional.bounds import raised
from fastpe.functional.passes import Pass
from fastpe.functional.rotation import without_warnings
from fastpe.functional.sinks import sinks_gradient


def attended(
    call: Call, tolerance: float, known: tuple[Array, Array] | None = None, *, rounds: bool = False
) -> "Pass | Banded":
    """The call's passes, the forward one done; the arguments are those of `Pass`."""
    if not call.bands or call.empty:
        return Pass(call, tolerance, known, rounds=rounds)
    return Banded(call, tolerance, known, rounds=rounds)


class Banded:
    """One call with bands, as `Pass` is one without."""

    @without_warnings
    def __init__(
        self, call: Call, tolerance: float, known: tuple[Array, Array] | None = None, *, rounds: bool = False
    ) -> None:
        self.call = call
        calls = [_of_band(call, band) for band in call.bands]
        met = [each for each in calls if np.any(each.bands[0].spans[..., 0] < each.bands[0].spans[..., 1])]
        # each may leave out its share of a row's weight
        self.passes = [Pass(each, tolerance / len(calls), known, rounds=rounds) for each in met or calls[:1]]
        self.dtype = self.passes[0].dtype
        if known is None:
            self._merge()
        else:
            self.out, self.lse = self.passes[0].out, self.passes[0].lse.astype(np.float64)

    def _merge(self) -> None:
        own = [raised(each.lse, each.columns).astype(np.float64) for each in self.passes]
        self.lse = np.logaddexp.reduce(own)
        if "sinks" in self.call.slots:
            self.lse = np.logaddexp(self.lse, self.call.slots["sinks"][..., None])
        whole = np.where(self.lse == -np.inf, 0.0, self.lse)
        self.out = np.zeros_like(self.passes[0].out)
        for each, lse in zip(self.passes, own, strict=True):
            each.out *= np.exp(lse - whole).astype(self.dtype)[..., None]
            self.out += each.out

    def outputs(self) -> Any:
        """What `attention` returns."""
        lse = self.lse.astype(self.dtype)
        out, lse = (self.call.without_axes(x) for x in (self.out.astype(self.call.dtype, copy=False), lse))
        return (out, lse) if self.call.return_lse else out

    @without_warnings
    def pullback(self, dout: Any) -> dict[str, Array]:
        """Gradients of the arguments that are wanted."""
        call, found = self.call, dict[str, Array]()
        dout, dlse = self.passes[0].given(dout)
        for each in self.passes:
            each.out, each.lse = self.out, raised(self.lse, each.columns, -1.0).astype(self.dtype)
            for name, gradient in each.gradients(dout, dlse).items():
                found[name] = found[name] + gradient if name in found else gradient
        if "sinks" in call.shapes:
            deltas = np.einsum("bhnd,bhnd->bhn", dout, self.out) - dlse
            found["sinks"] = sinks_gradient(call.slots["sinks"], self.lse, deltas)
        return {
            name: found[name].reshape(shape).astype(call.dtypes[name], copy=False)
            for name, shape in call.shapes.items()
        }


def _of_band(call: Call, band: Band) -> Call:
    """The call with one band's keys alone, and without sinks; its gradients are those of float32 at least."""
    spans = band.spans
    if call.spans is not None:
        spans = np.stack(
            [np.maximum(spans[..., 0], call.spans[..., 0]), np.minimum(spans[..., 1], call.spans[..., 1])], axis=-1
        )
    return replace(
        call, bands=(band._replace(spans=spans),), spans=spans,
        slots={name: array for name, array in call.slots.items() if name != "sinks"},
        shapes={name: shape for name, shape in call.shapes.items() if name != "sinks"},
        dtypes={name: np.result_type(np.float32, dtype) for name, dtype in call.dtypes.items()},
    )  # fmt: skip
