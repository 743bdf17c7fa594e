"""Whether compiled code takes the arrays of a call as they lie, or calls like it go another way each time."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.functional.axes import Array
from fastpe.functional.layouts import PLAIN

_MOST_TURNED = 2**25  # bytes of turned keys: for more the C library gets memory anew in each call, page by page
_IN_MEMORY = {"rotors", "theta", "rel_gain"}  # with which keys that are turned are laid down; with others none are


def fits(q: Array, k: Array, given: Mapping[str, Array] | None, dtype: Any) -> bool:
    """Whether compiled code takes the arrays as they are: queries in rows of one piece, a mask with a column for each
    key and scales, neither of which is rounded, and cells of these queries and keys; growth of the last places; of
    keys that are turned not too many."""
    keys = k.shape[2]
    if q.strides[-1] != q.itemsize and q.shape[-1] > 1:
        return False
    if not given:
        return True
    if given.keys() & _IN_MEMORY and is_much(k, dtype, lifted="polar" in given):
        return False
    mask = given.get("mask")
    if mask is not None and not (mask.shape[-1] == keys and mask.dtype in (np.dtype(bool), dtype)):
        return False
    if "scale" in given and given["scale"].dtype != dtype:
        return False
    cells = (given[name].shape[-2:] for name in ("index", "scores") if name in given)
    return all(size == (q.shape[-2], keys) for size in cells) and not {"growth", "query_start"} <= given.keys()


def turns_halves(k: Array, given: Mapping[str, Array] | None) -> bool:
    """Whether compiled code turns or lifts such keys of half precision where it reads them."""
    names = given.keys() if given else set()
    turns = not names.isdisjoint({"angles", "polar"}) and names.isdisjoint({"rotors", "rel_gain", "growth"})
    return turns and k.dtype.itemsize == 2 and k.flags.num & PLAIN == PLAIN


def is_much(k: Array, dtype: Any, *, lifted: bool) -> bool:
    """Whether keys that are laid down turned take more memory than is given to calls that are made again."""
    return k.size * dtype.itemsize * (2 if lifted else 1) >= _MOST_TURNED
