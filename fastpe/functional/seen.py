"""Calls of a kind that was seen before, as decoding makes them: what depends on axes and options alone is kept.

The kernels of a single query take microseconds, and what Python does before them took a hundred. So a call whose kind
was seen before is checked by its `kind` alone: all that makes an error but values of arrays. Those are looked at in
compiled code (`looked`), and what is not as it should be goes the whole way again, where the errors are; the others go
on as those before (`plans`). The number of keys is no part of the kind: a cache grows. Nothing that is written to is
kept from call to call; what is read alone, and depends on the number of keys, is kept of the last one, as all layers of
a model have it. Calls with bands are none of these: they leave records for `again` at once.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.base.validation import FARTHEST
from fastpe.functional import again
from fastpe.functional.arguments import Array
from fastpe.functional.axes import AXES, UNLED
from fastpe.functional.merged import Merged
from fastpe.functional.outcome import Outcome
from fastpe.functional.plans import Plan, plan_of
from fastpe.functional.rotation import without_warnings

_COUNTS = frozenset({"query_start", "dropout_seed"})  # others in each call
# axes that grow with the keys, counted from the last: those over positions; and whether over clipped offsets
_GROWING = {
    name: [
        (place - len(axes), axis == "T")
        for place, axis in enumerate(axes)
        if axis in ("M", "L", "L1", "T") or (axis == "N" and "M" in axes)
    ]
    for name, axes in (*AXES.items(), ("mask", ("M",)))
    if name not in UNLED  # which have nothing to do with positions
}
_AS_MANY_AS_KEYS = -2
_MOST = 512  # kinds that are kept; then all are dropped

_kept: dict[Any, Plan] = {}


# ---------------------------------------------------------------------------------------------------------------------
# Kinds


def kind_of(
    q: Any, k: Any, v: Any, causal: Any, window: Any, lengths: Any, tolerance: Any, return_lse: Any,
    slots: Mapping[str, Any],
) -> Any:  # fmt: skip
    """What tells calls apart that take different ways; None where it is none that is kept."""
    if not (type(q) is type(k) is type(v) is np.ndarray):
        return None
    size, keys, values = q.shape, k.shape, v.shape
    if not len(keys) == len(values) == len(size) > 1 or keys[-2] != values[-2]:
        return None
    n, m, options = size[-2], keys[-2], (causal, window, tolerance, return_lse)
    types = tuple(map(type, options))
    if not again.PLAIN_TYPES.issuperset(types):
        return None
    kind = [size, keys[:-2], keys[-1], values[:-2], values[-1], q.dtype, k.dtype, v.dtype, options, types]
    kind.append(m if m < n else None)
    for name, value in slots.items():
        if value is not None and not _add(kind, name, value, m):
            return None
    if lengths is not None:
        for each in lengths if type(lengths) is tuple and len(lengths) == 2 else (None, lengths):
            if each is None:
                kind.append(None)
            elif type(each) is np.ndarray and each.ndim == 1:
                kind += each.dtype, each.shape
            elif each is lengths and _plain_count(each):
                kind.append(int)
            else:
                return None
    return tuple(kind)


def _add(kind: list[Any], name: str, value: Any, m: int) -> bool:
    """Add what tells calls with a slot from others; False where it is none that is taken here."""
    if type(value) is np.ndarray and name != "dropout_seed":
        kind += name, value.dtype, _shape(value.shape, _GROWING[name], m) if name in _GROWING else value.shape
        return True
    if name in _COUNTS:
        kind += name, int
        return again.is_seed(value) if name == "dropout_seed" else _plain_count(value)
    kind += name, type(value), value
    return type(value) in again.PLAIN_TYPES


def _shape(shape: tuple[int, ...], growing: list[tuple[int, bool]], m: int) -> tuple[int, ...]:
    """The axes, those that grow with the keys by what they must be."""
    sizes = list(shape)
    for place, clipped in growing:
        if -place <= len(sizes):
            if clipped:
                sizes[place] %= 2
            elif sizes[place] == m:
                sizes[place] = _AS_MANY_AS_KEYS
    return tuple(sizes)


def _plain_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= FARTHEST


def attend(
    kind: Any, q: Array, k: Array, v: Array, lengths: Any, slots: Mapping[str, Any], key: Any = None,
    given: Mapping[str, Array] | None = None,
) -> Any:  # fmt: skip
    """What `attention` returns; None where the kind was not seen before, or a value is none that attention takes.

    key: what `again` is to know such calls by; None of those that are none of its. given: the arrays that it takes.
    """
    plan = _kept.get(kind)
    if plan is None:
        return None
    rest = q, k, v, lengths, slots, key, given
    return plan.run(*rest) if plan.quiet else _run_quietly(plan, *rest)


@without_warnings
def _run_quietly(plan: Plan, *arguments: Any) -> Any:
    return plan.run(*arguments)


def keep(kind: Any, done: Outcome | Merged, slots: Mapping[str, Any]) -> None:
    """Keep what a call of this kind that was done has in common with others."""
    plan = None if done.call.empty else plan_of(done, slots)
    if plan is None:
        return
    if len(_kept) >= _MOST:
        _kept.clear()
    _kept[kind] = plan
