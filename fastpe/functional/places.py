"""Where compiled code finds what a call that is made again is given (`again`): places of addresses, and sizes."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.functional.axes import Array
from fastpe.functional.bands import Band
from fastpe.kernels.attention.banded import OF_A_BAND
from fastpe.kernels.attention.cells import TILE_KEYS
from fastpe.kernels.attention.given import INTEGERS, LOGICAL, WIDE, WORDS, Given, Sizes
from fastpe.kernels.attention.records import GIVEN, MASK, Inputs

BANDS = [[f"bands[{number}].{field}" for field in Band._fields] for number in range(8)]
"""The names of arrays of bands, of each band."""
OF_BANDS: dict[str, tuple[int, np.dtype[Any]]] = {
    name: (WORDS + OF_A_BAND * number + field, np.dtype(np.int64 if Band._fields[field] == "spans" else np.float64))
    for number, names in enumerate(BANDS)
    for field, name in enumerate(names)
}
"""Of arrays of bands the places of their addresses, and the types that they are read in."""
_FIELDS = {"query_start": "starts", "index": "indices"}  # of `Given`, for those that are called otherwise there


def places_of(given: Mapping[str, Array], dtype: Any) -> dict[str, tuple[int, np.dtype[Any]]]:
    """The place of each array in `Given`, and the type that it is read in."""
    places = {}
    for name, x in given.items():
        if name in OF_BANDS:
            places[name] = OF_BANDS[name]
            continue
        field = ("shown" if x.dtype == bool else "added") if name == "mask" else _FIELDS.get(name, name)
        read = (
            np.int64 if field in INTEGERS else np.bool_ if field in LOGICAL else np.float64 if field in WIDE else dtype
        )
        places[name] = Given._fields.index(field), np.dtype(read)
    return places


def sizes_of(given: Mapping[str, Array], inputs: Inputs, qkv: tuple[Array, ...], half: bool) -> Sizes:
    """The sizes of arrays that a call has made of what was given."""
    (samples, heads, queries, width), (key_heads, keys) = qkv[0].shape, qkv[1].shape[1:3]
    masks, heads_of_masks = inputs.occupied.shape[:2]
    slots, sizes = inputs.slots, {name: x.shape for name, x in given.items()}
    places, pairs = sizes.get("angles", (1, 0))[-2:]
    grown_places, grown_pairs = sizes.get("growth", (1, 0))
    of_sample, of_head = _strides(sizes.get("angles", (1, 1, 1)), 3)
    scales_of_sample, scales_of_head = _strides(sizes.get("row_scale", (1, 1)), 2)
    phases_of_sample, phases_of_head = _strides(sizes.get("polar", (1, 1)), 2)
    maps = (1, *sizes.get("rotors", (1, 1, 1, 0, 0)))[-6:]
    return Sizes(
        samples=samples, heads=heads, key_heads=key_heads, queries=queries, keys=keys, width=width,
        spans=len(inputs.spans), masks=masks, heads_of_masks=heads_of_masks, tiles=-(-keys // int(TILE_KEYS)),
        mask=inputs.mask.size if inputs.table[MASK, GIVEN] else 1,
        bias_offsets=sizes.get("bias", (1,))[-1], bias=inputs.bias.size,
        gain_offsets=sizes.get("gain", (1,))[-1], gain=1 if slots is None else slots.gain.size,
        choices=sizes.get("values", (1,))[-1], tallies=1 if slots is None else slots.tallies.size,
        places=places, pairs=pairs, angles_of_sample=of_sample, angles_of_head=of_head, half=int(half),
        scales_of_sample=scales_of_sample, scales_of_head=scales_of_head,
        maps_of_samples=maps[0], maps_of_heads=maps[1], mapped_places=maps[2], block=maps[-1],
        phases_of_sample=phases_of_sample, phases_of_head=phases_of_head,
        grown_places=grown_places, grown_pairs=grown_pairs,
    )  # fmt: skip


def _strides(shape: tuple[int, ...], axes: int) -> tuple[int, int]:
    """Elements from sample to sample, and from head to head, of an array (heads, ...) of so many axes, or led by
    samples; 0 where one serves all."""
    of_head = math.prod(shape[-axes + 1 :])
    heads = shape[-axes]
    led = len(shape) > axes and shape[0] > 1
    return heads * of_head if led else 0, of_head if heads > 1 else 0
