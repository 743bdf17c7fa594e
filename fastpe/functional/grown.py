"""Records of calls (`again`) for another number of keys: with every token a cache grows, and nothing else changes.

To lay down a record anew takes ten times as long as to write the new sizes into a copy of it.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.functional.axes import Array
from fastpe.kernels.at_address import LAYOUT
from fastpe.kernels.attention import records
from fastpe.kernels.attention.again import BODY, FRONT, HEAD, OF_CASE, SLOPES, STRIPS, TABLE, TILES
from fastpe.kernels.attention.cells import TILE_KEYS
from fastpe.kernels.attention.given import SIZES, Sizes
from fastpe.kernels.attention.records import BATCH, ROWS, SLOTS

Shape = tuple[int, ...]
Given = Mapping[str, tuple[int, Shape, Shape]]

_TILE = int(TILE_KEYS)
_OF_KEYS = ("mask", "index", "scores", "key_offset", "key_slope")  # whose last axis is that of keys
_OF_OFFSETS = ("bias", "gain")  # whose last axis clips offsets, and is unfolded to all of them
_OF_PLACES = ("angles", "growth")  # with a row for each position
_KEYS, _VALUES = LAYOUT + 2, 2 * LAYOUT + 2  # of the layouts of k and v: the number of rows
_STRIDES = [LAYOUT + 4, LAYOUT + 5, LAYOUT + 6, 2 * LAYOUT + 4, 2 * LAYOUT + 5, 2 * LAYOUT + 6]
_ALIKE = [place for place in range(3 * LAYOUT) if place not in (_KEYS, _VALUES, *_STRIDES)]
_STRIDES_OF_CASE = [
    HEAD + OF_CASE.index(name) for name in ("k_batch", "k_head", "k_row", "v_batch", "v_head", "v_row", "kr_row")
]
_KEYS_OF_CASE = HEAD + OF_CASE.index("keys")
_STRIDES_OF_SLOT = slice(int(BATCH), int(records.HEAD) + 1)


def grown(
    record: Array, layouts: list[int], itemsize: int, given: Given, *, in_one_piece: bool
) -> Array | None:  # fmt: skip
    """The record of a call that differs in the number of keys, and in how they lie; None where more is new.

    record: of a call whose keys are read where they lie. layouts, itemsize: of q, k and v as they are now. given: of
    each array its place in `Given`, and its shape before and now. in_one_piece: whether keys must be.
    """
    was = record[: 3 * LAYOUT].tolist()
    before, keys, queries = was[_KEYS], layouts[_KEYS], layouts[2]
    strides = [*_strides(layouts, itemsize), layouts[LAYOUT + 6] // itemsize]
    if any(was[place] != layouts[place] for place in _ALIKE) or keys != layouts[_VALUES] or min(before, keys) < queries:
        return None
    if any(layouts[place] < 0 or layouts[place] % itemsize for place in _STRIDES):
        return None
    if in_one_piece and layouts[_KEYS + 2 : _KEYS + 5] != _in_one_piece(layouts[LAYOUT : _KEYS + 2], itemsize):
        return None
    starts = "query_start" in given
    if not all(_fits(name, then, now, keys, starts) for name, (_, then, now) in given.items()):
        return None
    made = record.copy()
    made[: 3 * LAYOUT] = layouts
    made[_KEYS_OF_CASE], made[_STRIDES_OF_CASE] = keys, strides
    made[STRIPS] = made[TILES] = -(-keys // _TILE)
    _grow_given(made, queries, before, keys, given)
    found = slopes(record[:SLOPES], made[:SLOPES], keys - before, but=(STRIPS, TILES))
    made[SLOPES:BODY] = 0 if found is None else found
    return made


def slopes(before: Array, now: Array, more: int, but: tuple[int, ...] = ()) -> Array | None:
    """What is added to each number for every key of so many more; None where they are not linear. but: places of such
    as are not looked at."""
    if more == 0:
        return None
    change = now - before
    change[list(but)] = 0
    found = change // more
    return found if np.array_equal(found * more, change) else None


def reads_as_they_lie(record: Array, itemsize: int) -> bool:
    """Whether keys and values are read where they lie, and not laid down otherwise before."""
    layouts = record[: 3 * LAYOUT].tolist()
    return record[_STRIDES_OF_CASE[:-1]].tolist() == _strides(layouts, itemsize)


def _strides(layouts: list[int], itemsize: int) -> list[int]:
    return [layouts[place] // itemsize for place in _STRIDES]


def _in_one_piece(shape: list[int], itemsize: int) -> list[int]:
    """The strides of keys that are."""
    _, heads, keys, width = shape
    row = width * itemsize
    return [heads * keys * row, keys * row, row]


def _fits(name: str, before: Shape, now: Shape, keys: int, starts: bool) -> bool:
    """Whether an array has grown with the keys. starts: whether it is told where queries stand: there may be more."""
    if name in _OF_KEYS:
        return now[:-1] == before[:-1] and now[-1] == keys
    if name in _OF_OFFSETS:
        return now[:-1] == before[:-1] and now[-1] % 2 == 1
    if name in _OF_PLACES:
        rest = now[:-2] == before[:-2] and now[-1] == before[-1]
        return rest and (now[-2] == keys or (starts and now[-2] > keys))
    return now == before


def _grow_given(record: Array, queries: int, before: int, keys: int, given: Given) -> None:
    """Write the new sizes of what is given."""
    sizes = Sizes(*record[FRONT : FRONT + SIZES].tolist())
    if not sizes.queries:  # of a call without anything they are none
        return
    offsets = queries + before - 1, queries + keys - 1
    changed: dict[str, Any] = {"keys": keys}
    if "mask" in given:
        changed["mask"] = _rescaled(sizes.mask, before, keys)
    for name in _OF_OFFSETS:
        if name in given:
            changed[name], changed[f"{name}_offsets"] = _rescaled(getattr(sizes, name), *offsets), given[name][2][-1]
    if "angles" in given:
        places = given["angles"][1][-2], given["angles"][2][-2]
        changed["places"] = places[1]
        for name in ("angles_of_sample", "angles_of_head"):
            changed[name] = _rescaled(getattr(sizes, name), *places)
    if "growth" in given:
        changed["grown_places"] = given["growth"][2][-2]
    record[FRONT : FRONT + SIZES] = sizes._replace(**changed)
    table = record[TABLE:SLOPES].reshape(len(SLOTS), -1)
    for name, (place, _, now) in given.items():
        if name in (*_OF_KEYS, *_OF_OFFSETS, *_OF_PLACES):
            record[FRONT + SIZES + place] = math.prod(now)
        if name in (*_OF_KEYS, *_OF_OFFSETS):
            own = table[SLOTS.index(name)]
            lengths = offsets if name in _OF_OFFSETS else (before, keys)
            own[_STRIDES_OF_SLOT] = _rescaled(own[_STRIDES_OF_SLOT], *lengths)
            if name.startswith("key_") or name in _OF_OFFSETS or (name == "mask" and own[ROWS]):
                own[ROWS] = now[-1]


def _rescaled(size: Any, before: int, now: int) -> Any:
    """A size that has a factor, with another one in its place."""
    return size // before * now
