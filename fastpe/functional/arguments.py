"""The arguments of attention, checked before any work; what the compiled kernels and the reference both start from."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.base.validation import truth, whole

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
_MOST_VALUES = 2**31 - 1  # that a kernel's index, int32, can choose from


@dataclass(frozen=True)
class Call:
    """Checked arguments: arrays as they came, but with an axis B or 1 in front where they had none.

    What kernels index with, `index` and the lengths, is a copy; all else may lie in the caller's memory.
    `shapes`: those of the arguments whose gradients are wanted, as they were given; `dtypes`: those of the gradients.
    """

    q: Array  # (B, H, N, D)
    k: Array  # (B, Hk, M, D)
    v: Array
    slots: dict[str, Array]
    scale: Array  # () or (H,), float64
    pairs: str
    rectify: bool
    causal: bool
    window: int | None
    query_lengths: Array  # (B,)
    key_lengths: Array
    batched: bool
    return_lse: bool
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype[Any]]


def check(
    q: Any, k: Any, v: Any, *, causal: bool, window: int | None, lengths: Any, return_lse: bool,
    wrt: tuple[str, ...] | None, slots: Mapping[str, Any],
) -> Call:  # fmt: skip
    """Check everything, or raise an error that names the argument."""
    arrays = {name: real_array(name, value) for name, value in (("q", q), ("k", k), ("v", v))}
    batched = arrays["q"].ndim == 4
    sizes = _sizes(arrays)
    given = {name: value for name, value in slots.items() if value is not None}
    for name in given:
        if name not in _AXES and name not in _PLAIN:
            raise TypeError(f"{name} is not a slot of attention; those are {', '.join((*_AXES, *_PLAIN))}")
    as_given = {name: _slot_array(name, value) for name, value in given.items() if name in _AXES}
    own = {name: _with_batch(name, _widened(name, array), sizes) for name, array in as_given.items()}
    if "index" in own:  # a kernel follows it: once it has been checked, nobody else may change it
        own["index"] = own["index"][..., -sizes["N"] :, -sizes["M"] :].copy()
    causal = truth("causal", causal)
    _check_together(own, causal)
    scale = _scale(given.get("scale"), sizes)
    real = {name: array for name, array in (arrays | as_given).items() if name != "index"}
    real |= {"scale": scale} if "scale" in given else {}
    queries, keys = _lengths(lengths, sizes, batched)
    pairs = given.get("pairs", "interleaved")
    if pairs not in ("interleaved", "half"):
        raise ValueError(f"pairs must be 'interleaved' or 'half', not {pairs!r}")
    four = {name: array if batched else array[None] for name, array in arrays.items()}
    return Call(
        **four, slots=own, scale=scale.astype(np.float64), pairs=pairs,
        rectify=truth("rectify", given.get("rectify", False)), causal=causal,
        window=None if window is None else whole("window", window, 1), query_lengths=queries, key_lengths=keys,
        batched=batched, return_lse=truth("return_lse", return_lse),
        shapes=_wanted(wrt, {name: array.shape for name, array in real.items()}),
        dtypes={name: array.dtype if array.dtype.kind == "f" else np.dtype(np.float64) for name, array in real.items()},
    )  # fmt: skip


def real_array(name: str, value: Any) -> Array:
    """The value as a float32 or float64 array."""
    array = validation.array(name, value)
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
        return real_array(name, value)
    array = validation.array(name, value)
    if array.dtype.kind not in "iu":
        raise TypeError(f"index must be an array of integers, not of {array.dtype}")
    return array


def _widened(name: str, array: Array) -> Array:
    return array.astype(np.float64) if name in ("angles", "growth") else array


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
        if count > _MOST_VALUES:
            raise ValueError(f"values must have at most {_MOST_VALUES} entries for index to choose from, not {count}")
        if index.min() < 0 or index.max() >= count:
            raise ValueError(f"index must lie in [0, {count}), but reaches from {index.min()} to {index.max()}")
    if "growth" in slots and not causal:
        raise ValueError("growth needs causal=True: it grows without bound for keys after the query")
    counts = [slots[name].shape[-1] for name in ("angles", "growth") if name in slots]
    if len(set(counts)) > 1:
        raise ValueError(f"growth must have as many pairs as angles, {counts[0]}, not {counts[1]}")


def _scale(scale: Any, sizes: Mapping[str, int]) -> Array:
    array = validation.array("scale", 1 / math.sqrt(sizes["D"]) if scale is None else scale)
    if array.shape not in ((), (sizes["H"],)):
        raise ValueError(f"scale must be a number or have the shape (H,) = ({sizes['H']},), not {array.shape}")
    return array


def _wanted(wrt: tuple[str, ...] | None, shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    if wrt is None:
        return shapes
    if isinstance(wrt, str) or not isinstance(wrt, Collection) or not all(isinstance(name, str) for name in wrt):
        raise TypeError(f"wrt must be a tuple of names, as in ('q', 'bias'), not {wrt!r}")
    for name in wrt:
        if name not in shapes:
            raise ValueError(f"wrt names {name!r}; what is given and has a gradient: {', '.join(shapes)}")
    return {name: shapes[name] for name in wrt}


def _lengths(lengths: Any, sizes: Mapping[str, int], batched: bool) -> tuple[Array, Array]:
    """Numbers of queries and of keys that are no padding, (B,) each."""
    queries, keys = lengths if _is_pair(lengths, batched) else (None, lengths)
    b = sizes["B"]
    return _length("queries", queries, b, sizes["N"], batched), _length("keys", keys, b, sizes["M"], batched)


def _is_pair(lengths: Any, batched: bool) -> bool:
    """Whether a tuple of two is one of queries and keys: in a batch two integers are the samples' numbers of keys."""
    if not isinstance(lengths, tuple) or len(lengths) != 2:
        return False
    plain = (np.asarray(each) if isinstance(each, np.ndarray) else each for each in lengths)
    return not batched or any(each is None or isinstance(each, list | tuple) or np.ndim(each) for each in plain)


def _length(of: str, lengths: Any, b: int, most: int, batched: bool) -> Array:
    if lengths is None:
        return np.full(b, most)
    array = validation.array(f"lengths of {of}", lengths).copy()  # nobody else may change it once it is checked
    if array.dtype.kind not in "iu":
        raise TypeError(f"lengths of {of} must be integers, not {array.dtype}")
    if array.shape != ((b,) if batched else ()):
        expected = f"have the shape (B,) = ({b},)" if batched else "be one integer"
        raise ValueError(f"lengths of {of} must {expected}, not {lengths!r}")
    if array.min() < 0 or array.max() > most:
        raise ValueError(f"lengths of {of} must lie in [0, {most}], not {array.tolist()}")
    return np.broadcast_to(array.astype(np.int64), (b,))
