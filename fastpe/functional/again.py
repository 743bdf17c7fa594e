"""Calls of which q, k and v alone are new, as every layer of a model makes them while it writes one token.

They run the record of the call before (`kernels.kept`): compiled code sees whether the new arrays are laid out as those
before. Where they are not, as once for each token when a cache has grown, the call goes the way of `functional.seen`,
which leaves a record of it here. Nothing that is written to is kept from call to call.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastpe.functional.arguments import Array
from fastpe.kernels.attention import calls
from fastpe.kernels.attention.cells import FEW
from fastpe.kernels.attention.records import ROWS_OF_INPUTS
from fastpe.kernels.kept import LAYOUT
from fastpe.kernels.simd import bits_of
from fastpe.kernels.threads import lanes_for

MOST_QUERIES = int(FEW)
_MOST = 512  # calls that are kept; then all are dropped

_kept: dict[Any, "Again"] = {}


def key_of(
    q: Any, k: Any, v: Any, causal: Any, window: Any, softcap: Any, dropout: float, tolerance: Any, return_lse: Any,
    slots: dict[str, Any],
) -> Any:  # fmt: skip
    """What tells calls apart of which a record may be kept; None of others."""
    if not (type(q) is type(k) is type(v) is np.ndarray and q.dtype is k.dtype is v.dtype) or dropout:
        return None
    scale = None
    if slots:
        if len(slots) > 1 or "scale" not in slots:
            return None
        scale = slots["scale"]
    return (
        q.shape, q.dtype, causal, window, softcap, tolerance, return_lse, scale,
        type(causal), type(window), type(softcap), type(tolerance), type(return_lse), type(scale),
    )  # fmt: skip


def attend(key: Any, q: Array, k: Array, v: Array) -> Any:
    """What `attention` returns; None where no such call, of arrays laid out alike, was made before."""
    try:
        kept = _kept.get(key)
    except TypeError:  # an option that is no plain number
        return None
    return None if kept is None else kept.run(q, k, v)


def keep(key: Any, kept: "Again") -> None:
    """Keep a call for the next one like it."""
    if len(_kept) >= _MOST:
        _kept.clear()
    _kept[key] = kept


def kept_of(qkv: tuple[Array, Array, Array], **options: Any) -> "Again | None":
    """The call of these arrays that is kept; options: `causal` and such as `key_of` takes."""
    slots = {"scale": options["scale"]} if "scale" in options else {}
    causal, window, softcap = (options.get(name) for name in ("causal", "window", "softcap"))
    kept = _kept.get(key_of(*qkv, causal, window, softcap, 0.0, None, False, slots))
    return None if kept is None or kept.record[: 3 * LAYOUT].tolist() != _layouts(qkv) else kept


def _layouts(qkv: Sequence[Array]) -> list[int]:
    return [number for x in qkv for number in (*x.shape, *x.strides)]


class Again:
    """A call, and what runs it again."""

    __slots__ = (
        "bits",
        "dtype",
        "keys",
        "lse_dtype",
        "others",
        "record",
        "return_lse",
        "shape",
        "size",
        "tasks",
        "work",
    )

    def __init__(
        self, qkv: tuple[Array, ...], record: Array, inputs: tuple[Any, ...], size: int, out: Array, return_lse: bool,
    ) -> None:  # fmt: skip
        """inputs: the arrays that the record was made of. size: of a lane's memory. out: as kernels compute it."""
        self.dtype, self.lse_dtype, self.shape = qkv[0].dtype, out.dtype, out.shape
        self.bits = None if self.dtype.itemsize > 2 else bits_of(qkv[0]).dtype
        self.size, self.return_lse = size, return_lse
        self.others = inputs[ROWS_OF_INPUTS:]  # to keep them; not the arrays of the call
        self.record = np.concatenate([np.array(_layouts(qkv), np.int64), record])
        self.keys, self.tasks = qkv[1].shape[2], out.shape[0] * out.shape[1]
        self.work = self.tasks * out.shape[2] * (qkv[0].shape[-1] + out.shape[-1])

    def run(self, q: Array, k: Array, v: Array) -> Any:
        """What `attention` returns, or None."""
        if lanes_for(self.work * k.shape[-2], self.tasks) > 1:
            return None
        bits = self.bits
        out = np.empty(self.shape, self.dtype if bits is None else bits)
        lse = np.empty(self.shape[:-1], self.lse_dtype) if self.return_lse else None
        if bits is None:
            done = calls.forward_again(self.record, self.size, out, lse, q, k, v)
        else:
            done = calls.halves_again(self.record, self.size, out, lse, q.view(bits), k.view(bits), v.view(bits))
            out = out.view(self.dtype)
        if not done:
            return None
        return out if lse is None else (out, lse)

    def run_at(self, q: int, k: int, v: int) -> Array | None:
        """The output, of half precision its bits, of arrays at addresses that are laid out as those of the call, or
        None."""
        if lanes_for(self.work * self.keys, self.tasks) > 1:
            return None
        if self.bits is None:
            out = np.empty(self.shape, self.dtype)
            return out if calls.forward_at(self.record, self.size, out, q, k, v) else None
        out = np.empty(self.shape, self.bits)
        return out if calls.halves_at(self.record, self.size, out, q, k, v) else None
