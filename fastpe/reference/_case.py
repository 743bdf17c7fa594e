"""The checked arguments of reference attention (`Case`), how they are indexed, and their gradients (`Gradients`)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpe import arguments
from fastpe.arguments import whole

Array = np.ndarray[Any, Any]

# the axes of every slot that is an array; "H1" is H or 1, "T" an odd 2K+1, "R" at most D/2, "L" is max(N, M)
_AXES = {
    "rel_gain": ("H1", "T", "D"),
    "rel_key": ("H1", "T", "D"),
    "rel_query": ("H1", "T", "D"),
    "rel_value": ("H1", "T", "D"),
    "key_bias": ("H", "D"),
    "gain": ("H", "T"),
    "bias": ("H", "T"),
    "values": ("H", "V"),
    "index": ("N", "M"),
    "scores": ("H", "N", "M"),
    "angles": ("H1", "L", "R"),
    "growth": ("L", "R"),
}
_PRINTED = {"H1": "H or 1", "T": "2K+1", "R": "R/2", "L": "max(N, M)"}
_PLAIN = ("scale", "rectify", "pairs")


@dataclass(frozen=True)
class Case:
    """Arguments in one form: q, k, v (B, H, N or M, D), keys repeated to all heads; slots with a leading B or 1."""

    q: Array
    k: Array
    v: Array
    slots: dict[str, Array]
    scale: Array  # (1, 1, 1, 1) or (1, H, 1, 1)
    rectify: bool
    pairs: tuple[Array, Array]  # the channels that a rotation turns: first, second of each pair
    visible: Array  # (B, 1, N, M)
    batched: bool
    return_lse: bool
    shapes: dict[str, tuple[int, ...]]  # of the arguments whose gradients are wanted, as they were given

    def rows(self, slot: str, transposed: bool = False) -> Array:
        """Which row of the slot every cell reads: clip(j - i, -K, K) + K, as (1, 1, N, M)."""
        n, m = self.q.shape[-2], self.k.shape[-2]
        reach = self.slots[slot].shape[-1 if slot in ("gain", "bias") else -2] // 2
        offset = np.arange(m) - (np.arange(n)[:, None] + m - n)
        rows = np.clip(offset, -reach, reach) + reach
        return (rows.T if transposed else rows)[None, None]

    def gather(self, by_offset: Array, slot: str, transposed: bool = False) -> Array:
        """(B, H, N or 1, 2K+1) -> (B, H, N, M): to each cell the entry of its offset."""
        return np.take_along_axis(by_offset, self.rows(slot, transposed), axis=-1)

    def scatter(self, cells: Array, slot: str, transposed: bool = False) -> Array:
        """(B, H, N, M) -> (B, H, N, 2K+1): the sum of each row's cells by offset; the adjoint of `gather`."""
        axis = -1 if slot in ("gain", "bias") else -2
        return _add_up(cells, self.rows(slot, transposed), self.slots[slot].shape[axis])

    def index_cells(self) -> Array:
        n, m = self.q.shape[-2], self.k.shape[-2]
        index = self.slots["index"][:, -n:, -m:]
        return index.reshape(len(index), 1, 1, n * m)

    def look_up_values(self) -> Array:
        cells = np.take_along_axis(self.slots["values"][:, :, None, :], self.index_cells(), axis=-1)
        return cells.reshape(*cells.shape[:2], self.q.shape[-2], self.k.shape[-2])

    def channel_gain(self, d: int) -> Any:
        """rel_gain[j-i, d] of every cell."""
        if "rel_gain" not in self.slots:
            return 1
        return self.gather(self.slots["rel_gain"][:, :, None, :, d], "rel_gain")

    def channel_growth(self, d: int) -> Any:
        """exp(growth_i - growth_j) of every visible cell: the difference first, for either exponent may overflow."""
        pair = self.pair_of(d)
        if "growth" not in self.slots or pair is None:
            return 1
        growth = self.slots["growth"][:, None, :, pair]
        queries, keys = growth[..., -self.q.shape[-2] :, None], growth[..., None, -self.k.shape[-2] :]
        return np.exp(np.where(self.visible, queries - keys, 0)).astype(self.q.dtype)

    def pair_of(self, d: int) -> int | None:
        """The pair that channel d belongs to, None if it is not turned."""
        for channels in self.pairs:
            if d in channels:
                return int(np.flatnonzero(channels == d)[0])
        return None

    def check_dout(self, dout: Any) -> Array:
        shape = self.q.shape if self.batched else self.q.shape[1:]
        dout = arguments.array("dout", dout).astype(self.q.dtype)
        if dout.shape != shape:
            raise ValueError(f"dout must have the shape of the output, {shape}, not {dout.shape}")
        return dout.reshape(self.q.shape)


class Gradients:
    """Sums gradients into the shapes of the arguments; those that are not wanted are dropped."""

    def __init__(self, case: Case) -> None:
        self.case = case
        own = {"q": case.q, "k": case.k, "v": case.v, "scale": case.scale, **case.slots}
        self.sums = {name: np.zeros(own[name].shape, case.q.dtype) for name in case.shapes}

    def add(self, name: str, gradient: Array) -> None:
        """Add, summing over the axes along which the argument was repeated."""
        if name in self.sums:
            shape = self.sums[name].shape
            repeated = tuple(axis for axis, size in enumerate(shape) if size == 1 and gradient.shape[axis] != 1)
            self.sums[name] += gradient.sum(axis=repeated, keepdims=True)

    def add_last(self, name: str, gradient: Array, sizes: tuple[int, ...]) -> None:
        """Add to the last rows and columns of an argument that was built for more positions."""
        if name in self.sums:
            padded = np.zeros(gradient.shape[:-2] + self.sums[name].shape[-2:], gradient.dtype)
            padded[..., -sizes[0] :, -sizes[1] :] = gradient
            self.add(name, padded)

    def add_values(self, dlogits: Array) -> None:
        if "values" in self.sums:
            cells = dlogits.reshape(*dlogits.shape[:2], 1, -1)
            by_value = _add_up(cells, self.case.index_cells(), self.sums["values"].shape[-1])
            self.add("values", by_value[:, :, 0, :])

    def add_channel_gain(self, d: int, cells: Array) -> None:
        if "rel_gain" in self.sums:
            by_offset = self.case.scatter(cells, "rel_gain").sum(axis=-2)
            padded = np.zeros((*by_offset.shape, self.sums["rel_gain"].shape[-1]), cells.dtype)
            padded[..., d] = by_offset
            self.add("rel_gain", padded)

    def add_channel_growth(self, d: int, cells: Array) -> None:
        pair = self.case.pair_of(d)
        if "growth" in self.sums and pair is not None:
            n, m = cells.shape[-2:]
            padded = np.zeros((len(cells), *self.sums["growth"].shape[-2:]), cells.dtype)
            padded[:, -n:, pair] += cells.sum(axis=(1, 3))
            padded[:, -m:, pair] -= cells.sum(axis=(1, 2))
            self.add("growth", padded)

    def finish(self) -> dict[str, Array]:
        """Fold repeated key and value heads, and give every gradient the shape of its argument."""
        done = {}
        for name, shape in self.case.shapes.items():
            gradient = self.sums[name]
            if name in ("k", "v"):
                gradient = gradient.reshape(len(gradient), shape[-3], -1, *shape[-2:]).sum(axis=2)
            done[name] = gradient.reshape(shape)
        return done


def _add_up(cells: Array, columns: Array, size: int) -> Array:
    """(B, H, N, M) -> (B, H, N, size): the sum of the cells of a row that name the same column."""
    b, h, n, _ = cells.shape
    sums = np.zeros((b, h, n, size), cells.dtype)
    where = np.ogrid[:b, :h, :n, :1][:3]
    np.add.at(sums, (*where, columns), cells)
    return sums


# ---------------------------------------------------------------------------------------------------------------------
# Checks


def check(
    dtype: Any, q: Any, k: Any, v: Any, *, causal: bool, window: int | None = None, lengths: Any = None,
    return_lse: bool = False, wrt: tuple[str, ...] | None = None, slots: Mapping[str, Any],
) -> Case:  # fmt: skip
    """Check the arguments of attention, before any work, and bring them into one form."""
    arrays = {name: real_array(name, value) for name, value in (("q", q), ("k", k), ("v", v))}
    batched = arrays["q"].ndim == 4
    sizes = _sizes(arrays)
    b, heads, n, m = (sizes[axis] for axis in "BHNM")
    given = {name: value for name, value in slots.items() if value is not None}
    for name in given:
        if name not in _AXES and name not in _PLAIN:
            raise TypeError(f"{name} is not a slot of attention; those are {', '.join((*_AXES, *_PLAIN))}")
    as_given = {name: _slot_array(name, value) for name, value in given.items() if name in _AXES}
    own = {name: _with_batch(name, array, sizes) for name, array in as_given.items()}
    _check_together(own, causal)
    scale = _scale(given.get("scale"), sizes)
    shapes = {name: array.shape for name, array in (arrays | as_given).items() if name != "index"}
    shapes |= {"scale": np.shape(given["scale"])} if "scale" in given else {}
    four = {name: array if batched else array[None] for name, array in arrays.items()}
    repeats = heads // four["k"].shape[1]
    kept = ("index", "angles", "growth")
    return Case(
        q=four["q"].astype(dtype),
        k=np.repeat(four["k"], repeats, axis=1).astype(dtype),
        v=np.repeat(four["v"], repeats, axis=1).astype(dtype),
        slots={name: array if name in kept else array.astype(dtype) for name, array in own.items()},
        scale=scale.astype(dtype),
        rectify=_boolean("rectify", given.get("rectify", False)),
        pairs=_pairs(given.get("pairs", "interleaved"), own),
        visible=_visible((b, n, m), _boolean("causal", causal), window) & _unpadded((b, n, m), batched, lengths),
        batched=batched,
        return_lse=_boolean("return_lse", return_lse),
        shapes=_wanted(wrt, shapes),
    )


def real_array(name: str, value: Any) -> Array:
    """The value as a float32 or float64 array."""
    array = arguments.array(name, value)
    if array.dtype not in (np.float32, np.float64):
        raise TypeError(f"{name} must be an array of float32 or float64, not of {array.dtype}")
    return array


def _sizes(arrays: Mapping[str, Array]) -> dict[str, int]:
    q, k, v = (arrays[name] for name in "qkv")
    if q.ndim not in (3, 4) or 0 in q.shape:
        raise ValueError(f"q must have the shape (B, H, N, D) or (H, N, D), none of them 0, not {q.shape}")
    if k.ndim != q.ndim or 0 in k.shape or k.shape[:-3] != q.shape[:-3] or k.shape[-1] != q.shape[-1]:
        raise ValueError(
            f"k must have the shape (B, Hk, M, D), none of them 0, B and D as in q {q.shape}, not {k.shape}"
        )
    if v.shape != k.shape:
        raise ValueError(f"v must have the shape of k, {k.shape}, not {v.shape}")
    heads, n, d = q.shape[-3:]
    if heads % k.shape[-3]:
        raise ValueError(f"k must have a number of heads that divides q's {heads}, not {k.shape[-3]}")
    m = k.shape[-2]
    return {"B": q.shape[0] if q.ndim == 4 else 1, "H": heads, "N": n, "M": m, "D": d, "L": max(n, m)}


def _slot_array(name: str, value: Any) -> Array:
    if name != "index":
        array = real_array(name, value)
        return array.astype(np.float64) if name in ("angles", "growth") else array
    array = arguments.array(name, value)
    if array.dtype.kind not in "iu":
        raise TypeError(f"index must be an array of integers, not of {array.dtype}")
    return array


def _with_batch(name: str, array: Array, sizes: Mapping[str, int]) -> Array:
    """The slot with a leading axis B or 1, its axes checked."""
    axes = _AXES[name]
    led = array if array.ndim == len(axes) + 1 else array[None]
    square = led.shape[-2:] == (sizes["L"],) * 2
    fits = led.ndim == len(axes) + 1 and led.shape[0] in (1, sizes["B"])
    fits = fits and all(
        _fits(axis, size, sizes) or (square and axis in "NM") for axis, size in zip(axes, led.shape[1:], strict=True)
    )
    if not fits:
        printed = ", ".join(_PRINTED.get(axis, axis) for axis in axes)
        known = ", ".join(f"{axis} = {size}" for axis, size in sizes.items() if axis != "L")
        raise ValueError(f"{name} must have the shape ({printed}), or that after B, where {known}; not {array.shape}")
    return led


def _fits(axis: str, size: int, sizes: Mapping[str, int]) -> bool:
    if axis == "H1":
        return size in (1, sizes["H"])
    if axis == "T":
        return size % 2 == 1
    if axis == "R":
        return 1 <= size <= sizes["D"] // 2
    return size >= 1 if axis == "V" else size == sizes[axis]


def _check_together(slots: Mapping[str, Array], causal: bool) -> None:
    if ("index" in slots) != ("values" in slots):
        raise ValueError("index and values must be given together")
    if "index" in slots:
        count, index = slots["values"].shape[-1], slots["index"]
        if index.min() < 0 or index.max() >= count:
            raise ValueError(f"index must lie in [0, {count}), but reaches from {index.min()} to {index.max()}")
    if "growth" in slots and not causal:
        raise ValueError("growth needs causal=True: it grows without bound for keys after the query")
    counts = [slots[name].shape[-1] for name in ("angles", "growth") if name in slots]
    if len(set(counts)) > 1:
        raise ValueError(f"growth must have as many pairs as angles, {counts[0]}, not {counts[1]}")


def _scale(scale: Any, sizes: Mapping[str, int]) -> Array:
    array = np.asarray(1 / math.sqrt(sizes["D"]) if scale is None else scale)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"scale must be a number or an array of them, not {scale!r}")
    if array.shape not in ((), (sizes["H"],)):
        raise ValueError(f"scale must be a number or have the shape (H,) = ({sizes['H']},), not {array.shape}")
    return array.reshape(1, -1, 1, 1)


def _pairs(pairs: Any, slots: Mapping[str, Array]) -> tuple[Array, Array]:
    if pairs not in ("interleaved", "half"):
        raise ValueError(f"pairs must be 'interleaved' or 'half', not {pairs!r}")
    count = max((slots[name].shape[-1] for name in ("angles", "growth") if name in slots), default=0)
    numbers = np.arange(count)
    return (2 * numbers, 2 * numbers + 1) if pairs == "interleaved" else (numbers, numbers + count)


def _visible(sizes: tuple[int, int, int], causal: bool, window: int | None) -> Array:
    b, n, m = sizes
    offset = np.arange(m) - (np.arange(n)[:, None] + m - n)
    visible = np.ones((b, 1, n, m), dtype=bool)
    if causal:
        visible &= offset <= 0
    if window is not None:
        visible &= np.abs(offset) < whole("window", window, 1)
    return visible


def _unpadded(sizes: tuple[int, int, int], batched: bool, lengths: Any) -> Array:
    b, n, m = sizes
    paired = isinstance(lengths, tuple) and len(lengths) == 2 and np.ndim(lengths[0]) == int(batched)
    queries, keys = lengths if paired else (None, lengths)
    known = _unpadded_axis("queries", queries, b, n, batched)[:, None, :, None]
    return known & _unpadded_axis("keys", keys, b, m, batched)[:, None, None, :]


def _unpadded_axis(of: str, lengths: Any, b: int, most: int, batched: bool) -> Array:
    if lengths is None:
        return np.ones((b, most), dtype=bool)
    array = arguments.array(f"lengths of {of}", lengths)
    if array.dtype.kind not in "iu":
        raise TypeError(f"lengths of {of} must be integers, not {array.dtype}")
    if array.shape != ((b,) if batched else ()):
        expected = f"have the shape (B,) = ({b},)" if batched else "be one integer"
        raise ValueError(f"lengths of {of} must {expected}, not {lengths!r}")
    if array.min() < 0 or array.max() > most:
        raise ValueError(f"lengths of {of} must lie in [0, {most}], not {array.tolist()}")
    return np.arange(most) < np.broadcast_to(array, (b,))[:, None]


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def _wanted(wrt: tuple[str, ...] | None, shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    if wrt is None:
        return shapes
    for name in wrt:
        if name not in shapes:
            raise ValueError(f"wrt names {name!r}; what is given and has a gradient: {', '.join(shapes)}")
    return {name: shapes[name] for name in wrt}
