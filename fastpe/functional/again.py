"""Calls whose arrays alone are new, as every layer of a model makes them while it writes one token.

They run the record of the call before (`kernels.kept`): compiled code sees whether the new arrays are laid out as those
before. Where they are not, as once for each token when a cache has grown, the call goes the way of `functional.seen`,
which leaves a record of it here. Nothing that is written to is kept from call to call. Beside q, k and v there may be
what queries see, a bias and sinks; calls with other slots always go that way.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastpe.functional.arguments import Array
from fastpe.functional.layouts import contiguous
from fastpe.kernels.attention import again
from fastpe.kernels.attention.again import Given, Sizes
from fastpe.kernels.attention.cells import FEW
from fastpe.kernels.attention.records import GIVEN, MASK, ROWS_OF_INPUTS, SEEN_OF_INPUTS, Inputs
from fastpe.kernels.kept import LAYOUT
from fastpe.kernels.simd import bits_of
from fastpe.kernels.threads import lanes_for

MOST_QUERIES = int(FEW)
_MOST = 512  # calls that are kept; then all are dropped
_AXES = {"key_lengths": (1,), "query_start": (1,), "spans": (3,), "mask": (1, 2, 3, 4), "bias": (2, 3), "sinks": (1,)}
"""What may be given beside q, k and v, in the order of `kernels.attention.again.Given`: the axes that it has."""

_kept: dict[Any, "Again"] = {}


def key_of(
    q: Any, k: Any, v: Any, causal: Any, window: Any, softcap: Any, dropout: float, tolerance: Any, return_lse: Any,
    slots: Mapping[str, Any], given: Mapping[str, Array] | None,
) -> Any:  # fmt: skip
    """What tells calls apart of which a record may be kept; None of others. given: as `given_arrays` has it."""
    if not (type(q) is type(k) is type(v) is np.ndarray and q.dtype is k.dtype is v.dtype) or dropout:
        return None
    scale = None
    if slots:
        if not slots.keys() <= _OF_SLOTS:
            return None
        scale = slots.get("scale")
    own = None if given is None else tuple((name, x.dtype, x.ndim) for name, x in given.items())
    return (
        q.shape, q.dtype, causal, window, softcap, tolerance, return_lse, scale, own,
        type(causal), type(window), type(softcap), type(tolerance), type(return_lse), type(scale),
    )  # fmt: skip


_OF_SLOTS = {"scale", "bias"}


def given_arrays(arrays: Mapping[str, Any]) -> dict[str, Array] | None:
    """Those that are not None, in an order of their own; None where one is no array as records are made with."""
    found = {}
    for name, axes in _AXES.items():
        x = arrays.get(name)
        if x is not None:
            if type(x) is not np.ndarray or x.ndim not in axes:
                return None
            found[name] = x
    return found


def attend(key: Any, q: Array, k: Array, v: Array, given: Mapping[str, Array] | None) -> Any:
    """What `attention` returns; None where no such call, of arrays laid out alike, was made before."""
    try:
        kept = _kept.get(key)
    except TypeError:  # an option that is no plain number
        return None
    return None if kept is None else kept.run(q, k, v, given)


def fits(q: Array, given: Mapping[str, Array] | None, keys: int, dtype: Any) -> bool:
    """Whether compiled code takes the arrays as they are: queries in rows of one piece, and a mask with a column for
    each key, which is not rounded."""
    mask = None if given is None else given.get("mask")
    if q.strides[-1] != q.itemsize and q.shape[-1] > 1:
        return False
    return mask is None or (mask.shape[-1] == keys and mask.dtype in (np.dtype(bool), dtype))


def keep(key: Any, kept: "Again") -> None:
    """Keep a call for the next one like it."""
    if len(_kept) >= _MOST:
        _kept.clear()
    _kept[key] = kept


def kept_of(
    qkv: tuple[Array, Array, Array], given: Mapping[str, Array] | None, **options: Any
) -> "Again | None":  # fmt: skip
    """The call of these arrays that is kept; options: `causal` and such as `key_of` takes."""
    slots = {"scale": options["scale"]} if "scale" in options else {}
    causal, window, softcap = (options.get(name) for name in ("causal", "window", "softcap"))
    kept = _kept.get(key_of(*qkv, causal, window, softcap, 0.0, None, False, slots, given))
    if kept is None or kept.record[: 3 * LAYOUT].tolist() != _layouts(qkv) or kept.given != _shapes(given):
        return None
    return kept


def _shapes(given: Mapping[str, Array] | None) -> list[tuple[int, ...]] | None:
    return None if given is None else [x.shape for x in given.values()]


def _layouts(qkv: Sequence[Array]) -> list[int]:
    return [number for x in qkv for number in (*x.shape, *x.strides)]


class Again:
    """A call, and what runs it again."""

    __slots__ = (
        "bits",
        "dtype",
        "given",
        "keys",
        "lse_dtype",
        "nothing",
        "others",
        "places",
        "record",
        "return_lse",
        "shape",
        "size",
        "sizes",
        "tasks",
        "work",
    )

    def __init__(
        self, qkv: tuple[Array, ...], given: Mapping[str, Array] | None, record: Array, inputs: tuple[Any, ...],
        size: int, out: Array, return_lse: bool,
    ) -> None:  # fmt: skip
        """inputs: the arrays that the record was made of. size: of a lane's memory. out: as kernels compute it."""
        self.dtype, self.lse_dtype, self.shape = qkv[0].dtype, out.dtype, out.shape
        self.bits = None if self.dtype.itemsize > 2 else bits_of(qkv[0]).dtype
        self.size, self.return_lse = size, return_lse
        self.given, self.sizes = _shapes(given), None if given is None else _sizes_of(given, Inputs(*inputs), qkv)
        self.nothing, self.places = _nothing_of(given, self.lse_dtype)
        # to keep them; not the arrays of the call
        self.others = inputs[ROWS_OF_INPUTS if given is None else SEEN_OF_INPUTS :]
        self.record = np.concatenate([np.array(_layouts(qkv), np.int64), record])
        self.keys, self.tasks = qkv[1].shape[2], out.shape[0] * out.shape[1]
        self.work = self.tasks * out.shape[2] * (qkv[0].shape[-1] + out.shape[-1])

    def run(self, q: Array, k: Array, v: Array, given: Mapping[str, Array] | None) -> Any:
        """What `attention` returns, or None."""
        if k.ndim != 4 or lanes_for(self.work * k.shape[2], self.tasks) > 1 or self.given != _shapes(given):
            return None
        rest = self.sizes, self._flat(given)
        bits = self.bits
        out = np.empty(self.shape, self.dtype if bits is None else bits)
        lse = np.empty(self.shape[:-1], self.lse_dtype) if self.return_lse else None
        if bits is None:
            done = again.forward_again(self.record, self.size, out, lse, q, k, v, *rest)
        else:
            halves = q.view(bits), k.view(bits), v.view(bits)
            done = again.halves_again(self.record, self.size, out, lse, *halves, *rest)
            out = out.view(self.dtype)
        if not done:
            return None
        return out if lse is None else (out, lse)

    def run_at(self, q: int, k: int, v: int, given: Mapping[str, Array] | None) -> Array | None:
        """The output, of half precision its bits, of arrays at addresses that are laid out as those of the call, or
        None."""
        if lanes_for(self.work * self.keys, self.tasks) > 1:
            return None
        rest = q, k, v, self.sizes, self._flat(given)
        if self.bits is None:
            out = np.empty(self.shape, self.dtype)
            return out if again.forward_at(self.record, self.size, out, *rest) else None
        out = np.empty(self.shape, self.bits)
        return out if again.halves_at(self.record, self.size, out, *rest) else None

    def _flat(self, given: Mapping[str, Array] | None) -> tuple[Array, ...] | None:
        """The arrays as compiled code takes them, `kernels.attention.again.Given`."""
        if given is None:
            return None
        flat = [*self.nothing]
        for (place, dtype), x in zip(self.places, given.values(), strict=True):
            flat[place] = contiguous(x, dtype).reshape(-1)
        return tuple(flat)


_NO_BOOLS, _NO_INTEGERS = np.zeros(0, np.bool_), np.zeros(0, np.int64)


def _nothing_of(
    given: Mapping[str, Array] | None, dtype: Any
) -> tuple[tuple[Array, ...], tuple[tuple[int, Any], ...]]:  # fmt: skip
    """`Given` of nothing, and of each array that is given its place there and the type that it is read in."""
    number = np.zeros(0, dtype)
    own = Given(_NO_INTEGERS, _NO_INTEGERS, _NO_INTEGERS, _NO_BOOLS, number, number, number)
    names = {"query_start": "starts", "mask": "added"}
    places = []
    for name, x in (given or {}).items():
        field = "shown" if name == "mask" and x.dtype == bool else names.get(name, name)
        places.append((Given._fields.index(field), getattr(own, field).dtype))
    return tuple(own), tuple(places)


def _sizes_of(given: Mapping[str, Array], inputs: Inputs, qkv: tuple[Array, ...]) -> tuple[int, ...]:
    """The sizes of arrays that a call has made of what was given."""
    (samples, _, queries, _), keys = qkv[0].shape, qkv[1].shape[2]
    masks, heads_of_masks, _, tiles = inputs.occupied.shape
    bias = given.get("bias")
    mask = inputs.mask.size if inputs.table[MASK, GIVEN] else 1
    return tuple(Sizes(
        samples, queries, keys, len(inputs.spans), masks, heads_of_masks, tiles, mask,
        *((1, 1, 1) if bias is None else (bias.shape[-2], bias.shape[-1], inputs.bias.size)),
    ))  # fmt: skip
