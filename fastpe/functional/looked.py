"""What the arrays of calls of one kind hold (`seen`), looked at in compiled code, and laid out for kernels.

A value that attention does not take ends in None: such a call goes the whole way, where the errors are.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastpe.functional import arguments
from fastpe.functional.arguments import Array, Call
from fastpe.functional.axes import AXES, UNLED, WIDE
from fastpe.functional.layouts import contiguous
from fastpe.functional.positions import Positions
from fastpe.functional.sight import NO_SPANS, Mask, Sight
from fastpe.kernels.attention.cells import TILE_KEYS
from fastpe.kernels.attention.sight import lay_out
from fastpe.kernels.attention.unfolding import finite

_TILE = int(TILE_KEYS)


class Looked(NamedTuple):
    """What a call is given: arrays with a leading axis, the scale of each head."""

    slots: dict[str, Array]
    sight: Sight
    scale: Array
    positions: Positions


class Looks:
    """How calls of one kind are looked at."""

    def __init__(
        self, call: Call, scale: Array, slots: Mapping[str, Any], *, spans_of_masks: bool, says_whole: bool = True
    ) -> None:  # fmt: skip
        """scale: of each head, as kernels take it. spans_of_masks: whether a mask is turned into spans where it may
        be. says_whole: whether lengths and first positions are told where nothing but the sizes tells them."""
        self.sizes, self.lead, self.dtype = call.q.shape[:3], call.lead, call.computed
        self._arrays = [name for name in AXES if slots.get(name) is not None]
        self._constant = None if isinstance(slots.get("scale"), np.ndarray) else scale
        self._spans_of_masks, self._says_whole = spans_of_masks, says_whole
        self._last = -1, _WHOLE

    def __call__(self, m: int, lengths: Any, slots: Mapping[str, Any]) -> Looked | None:
        """What a call with m keys is given, or None."""
        scale, sight = self._scale(slots), self._sight(m, lengths, slots)
        if scale is None or sight is None or (given := self._given(m, sight.starts, slots)) is None:
            return None
        n, starts = self.sizes[2], None if slots["query_start"] is None else sight.starts
        return Looked(given, sight, scale, _at_the_end(n, m) if starts is None else Positions(n, m, starts))

    def _scale(self, slots: Mapping[str, Any]) -> Array | None:
        """The scale of each head."""
        if self._constant is not None:
            return self._constant
        scale = slots["scale"].astype(np.float64)
        if not np.all(np.abs(scale) <= np.finfo(self.dtype).max):
            return None
        return np.array(np.broadcast_to(scale, self.sizes[1:2]), self.dtype)

    def _given(self, m: int, starts: Array, slots: Mapping[str, Any]) -> dict[str, Array] | None:
        """The slots, each with a leading axis."""
        given, n = {}, self.sizes[2]
        longest = m if slots["query_start"] is None else max(m, n + int(starts.max()))
        for name in self._arrays:
            array, axes = slots[name], AXES[name]
            if name == "index":
                array = array.copy()  # a kernel follows it: once it has been checked, nobody else may change it
                if array.min() < 0 or array.max() >= slots["values"].shape[-1]:
                    return None
            else:
                array = contiguous(array, np.float64 if name in WIDE else self.dtype)
                if not finite(array.reshape(-1)):
                    return None
            of_cells = axes[-1] == "M" and array.shape[-2:] == (n, m)
            if axes[-2:-1] in (("L",), ("N",)) and not of_cells and array.shape[-2] < longest:
                return None
            if name == "rotors" and 1 < array.shape[-4] < longest:
                return None
            given[name] = array if array.ndim > len(axes) and name not in UNLED else array[None]
        return given

    def _sight(self, m: int, lengths: Any, slots: Mapping[str, Any]) -> Sight | None:
        """What queries see."""
        b, _, n = self.sizes
        spans, mask, own = slots["spans"], slots["mask"], slots["query_start"]
        if spans is mask is own is lengths is None:
            if not self._says_whole:
                return _WHOLE
            kept = self._last
            if kept[0] != m:
                kept = self._last = m, Sight(np.tile([n, m], (b, 1)), np.full(b, m - n), NO_SPANS, None)
            return kept[1]
        fixed, starts = np.empty((b, 2), np.int64), np.empty(b, np.int64)
        queries, keys = lengths if type(lengths) is tuple else (None, lengths)
        shown, added, found = _NO_BOOLS, _NOTHING[self.dtype], None
        if mask is not None and self._spans_of_masks:
            sizes = dict(zip("BHNM", (*self.sizes, m), strict=True))
            found, spans, _ = arguments.sight({"mask": mask, "spans": spans}, sizes, self.lead == 2, self.dtype, ())
            mask = None
        elif mask is not None:
            mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
            if mask.shape[-1] != m:
                mask = np.broadcast_to(mask, (*mask.shape[:-1], m))
            if mask.dtype == bool:
                shown = contiguous(mask, mask.dtype).reshape(-1)
            else:
                added = contiguous(mask, self.dtype).reshape(-1)
        given = _integers(queries, b), _integers(keys, b), _integers(own, b), _integers(spans, b), shown, added
        made_spans = np.empty((given[3].size // (2 * n), n, 2), np.int64)
        made_mask, tiles = np.empty((0, 0, 0, 0) if mask is None else mask.shape, self.dtype), -(-m // _TILE)
        occupied = np.empty((*made_mask.shape[:2], 1, tiles), np.int64)
        made = fixed, starts, made_spans.reshape(-1), made_mask.reshape(-1), occupied.reshape(-1)
        if not lay_out((n, m), given, made):
            return None
        if mask is not None:
            found = Mask(made_mask, hides_only=True)
        elif found is not None:
            occupied = found.occupied(n)
        return Sight(fixed, starts, NO_SPANS if spans is None else made_spans, found, occupied)


@lru_cache(64)
def _at_the_end(n: int, m: int) -> Positions:
    return Positions(n, m)


def _integers(array: Any, b: int) -> Array:
    """Integers in a row, none where there are none; one of all b samples."""
    if array is None:
        return _NOTHING[np.int64]
    return contiguous(array, np.int64).reshape(-1) if np.ndim(array) else np.full(b, array, np.int64)


_WHOLE = Sight(np.zeros((0, 2), np.int64), np.zeros(0, np.int64), NO_SPANS)
_NOTHING = {dtype: np.zeros(0, dtype) for dtype in (np.int64, np.dtype(np.float32), np.dtype(np.float64))}
_NO_BOOLS = np.zeros(0, np.bool_)
