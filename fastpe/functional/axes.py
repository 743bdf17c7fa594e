"""The axes of every slot of attention that is an array."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# "H1" is H or 1, "T" an odd 2K+1, "R" at most D/2, "L" is max(N, M), "W" anything
AXES = {
    "rel_gain": ("H1", "T", "D"),
    "rel_key": ("H1", "T", "D"),
    "rel_query": ("H1", "T", "D"),
    "rel_value": ("H1", "T", "Dv"),
    "key_bias": ("H", "D"),
    "gain": ("H", "T"),
    "bias": ("H", "T"),
    "values": ("H", "V"),
    "index": ("N", "M"),
    "scores": ("H", "N", "M"),
    "rotors": ("H1", "L1", "D/b", "b", "b"),
    "polar": ("H1", "D"),
    "angles": ("H1", "L", "R"),
    "growth": ("L", "R"),
    "sinks": ("H",),
    "key_offset": ("H1", "M"),
    "key_slope": ("H1", "M"),
    "query_slope": ("H1", "N"),
    "row_scale": ("H1", "N"),
    "counts": ("H1", "P", "D"),
    "theta": ("R",),
    "reflectors": ("H1", "M", "D"),
    "reflect": ("H1", "M"),
    "mlp_in": ("W", "2H", "T"),
    "mlp_bias": ("W",),
    "mlp_out": ("H", "W", "T"),
}
UNLED = ("sinks", "theta", "mlp_in", "mlp_bias", "mlp_out")  # those that never have a leading axis B
WIDE = ("angles", "growth", "key_offset", "theta")  # those that are read in float64
NARROWED = ("rotors",)  # those that may be float64 whatever q is, and are then read in q's dtype
_PRINTED = {"H1": "H or 1", "T": "2K+1", "R": "R/2", "L": "max(N, M)", "L1": "max(N, M) or 1"}


def with_batch(name: str, axes: tuple[str, ...], array: Array, sizes: Mapping[str, int], *, longer: bool) -> Array:
    """The slot with a leading axis B or 1, its axes checked; those over positions may be longer than need be."""
    led = array if array.ndim == len(axes) + 1 and name not in UNLED else array[None]
    square = axes[-2:] == ("N", "M") and len(set(led.shape[-2:])) == 1 and _fits("L", led.shape[-1], sizes, longer)
    fits = led.ndim == len(axes) + 1 and led.shape[0] in (1, sizes["B"])
    fits = fits and all(
        _fits(axis, size, sizes, longer) or (square and axis in "NM")
        for axis, size in zip(axes, led.shape[1:], strict=True)
    )
    if name == "rotors" and fits:
        fits = led.shape[-3] * led.shape[-2] == sizes["D"] and led.shape[-2] == led.shape[-1]
    if not fits:
        printed = ", ".join(_PRINTED.get(axis, axis) for axis in axes)
        known = ", ".join(f"{axis} = {size}" for axis, size in sizes.items() if axis not in ("L", "Dv") or axis in axes)
        after = "" if name in UNLED else ", or that after B,"
        raise ValueError(f"{name} must have the shape ({printed}){after} where {known}; not {array.shape}")
    return led


def _fits(axis: str, size: int, sizes: Mapping[str, int], longer: bool) -> bool:
    if axis == "H1":
        return size in (1, sizes["H"])
    if axis == "T":
        return size % 2 == 1
    if axis == "R":
        return 1 <= size <= sizes["D"] // 2
    if axis == "L1":
        return size == 1 or _fits("L", size, sizes, longer)
    if axis in ("D/b", "b"):
        return size >= 1 and sizes["D"] % size == 0
    if axis == "L" and longer:
        return size >= sizes["L"]
    if axis == "2H":
        return size == 2 * sizes["H"]
    return size >= 1 if axis in ("V", "P", "W") else size == sizes[axis]
