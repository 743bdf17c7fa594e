"""The base class of calls of attention after their forward pass, with outputs and pullback."""

from typing import Any

import numpy as np

from fastpe.functional import arguments
from fastpe.functional.arguments import Array, Call
from fastpe.functional.layouts import contiguous
from fastpe.functional.rotation import without_warnings
from fastpe.functional.skipping import raised
from fastpe.kernels.attention import sinks as sinks_kernel
from fastpe.kernels.attention.terms.key_query_offsets import Columns


class Result:
    """A call, its outputs, and its pullback."""

    call: Call
    dtype: np.dtype[Any]
    out: Array  # (B, H, N, Dv)
    lse: Array  # (B, H, N)
    columns: Columns | None = None

    @without_warnings
    def outputs(self) -> Any:
        """Return what `attention` returns."""
        lse = self.lse_with_base().astype(self.dtype, copy=False)
        dtype, bits = self.call.dtype, self.out.dtype.itemsize == 2  # kernels write half precision as integers
        out = self.out.view(dtype) if bits else self.out.astype(dtype, copy=False)
        out, lse = (self.call.without_axes(x) for x in (out, lse))
        return (out, lse) if self.call.return_lse else out

    def lse_with_base(self) -> Array:
        """Return lse with the base offsets of blocks added. The `lse` of kernels does not contain these offsets."""
        return raised(self.lse, self.columns)

    @without_warnings
    def pullback(self, dout: Any) -> dict[str, Array]:
        """Return the gradients of the arguments in `wrt`, by name."""
        return self.gradients(*self.given(dout))

    def given(self, dout: Any) -> tuple[Array, Array]:
        """Convert the argument of a pullback. Return the gradients of out (B, H, N, Dv) and of lse (B, H, N)."""
        dlse: Any = None
        if self.call.return_lse and isinstance(dout, tuple) and len(dout) == 2:
            dout, dlse = dout
        dout = self._given("dout", dout, self.out)
        return dout, np.zeros_like(self.lse) if dlse is None else self._given("dlse", dlse, self.lse)

    def gradients(self, dout: Array, dlse: Array) -> dict[str, Array]:
        """Return the gradients of the arguments in `wrt`, by name, from checked gradients of out and of lse."""
        raise NotImplementedError

    def _given(self, name: str, value: Any, like: Array) -> Array:
        """Return the checked gradient of an output, in the shape of `like`."""
        given = arguments.in_float32(arguments.any_real(name, value))
        shape = self.call.without_axes(like).shape
        if given.shape != shape:
            raise ValueError(f"{name} must have the shape of the output, {shape}, not {given.shape}")
        return contiguous(given, self.dtype).reshape(like.shape)


def apply_sinks(out: Array, lse: Array, sinks: Array) -> None:
    """Change `out` and `lse` in place to include sinks. A sink scales down all weights of a row, and adds one term to
    the sum in lse.
    """
    sinks_kernel.apply_sinks(out, lse, contiguous(sinks, sinks.dtype).reshape(-1))


def sinks_gradient(sinks: Array, lse: Array, deltas: Array) -> Array:
    """Return the gradient of the sinks. A sink acts as a key without a value, so its gradient is that of a score with
    dP = 0.
    """
    weights = np.exp(sinks[..., None].astype(np.float64) - lse)
    return np.asarray(-(weights * deltas).sum(axis=(0, 2))[None])
