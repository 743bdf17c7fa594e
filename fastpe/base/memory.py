"""Exact tests of whether arrays share memory. NumPy's fast test compares only the bounds of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_MOST_WORK = 100_000  # limit for NumPy's search, some milliseconds; arrays made by slicing need few steps


def shared(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays have a byte in common. The result is also True if this cannot be decided quickly.

    Interleaved views of an array have no byte in common, although their bounds overlap:

    >>> import numpy as np
    >>> whole = np.zeros((3, 4))
    >>> shared(whole[:, ::2], whole[:, 1::2]), shared(whole[:, ::2], whole[:, :1])
    (False, True)
    """
    import numpy as np

    try:
        return bool(np.shares_memory(one, other, max_work=_MOST_WORK))  # type: ignore[arg-type] # NumPy takes any number of steps
    except np.exceptions.TooHardError:  # strides that slicing cannot produce
        return True


def overlaps_itself(array: np.ndarray) -> bool:
    """Whether two elements of an array share memory.

    The difference of the addresses of two elements depends only on the difference of their indices. So an array
    overlaps itself if and only if, along some axis, its first slice overlaps the other slices.
    """
    if _nested(array):
        return False
    cuts = [(slice(None),) * axis for axis in range(array.ndim)]
    return any(shared(array[(*cut, slice(0, 1))], array[(*cut, slice(1, None))]) for cut in cuts)


def _nested(array: np.ndarray) -> bool:
    """Whether each stride is larger than the extent of all smaller strides. If so, no elements overlap."""
    reach = array.itemsize
    for stride, count in sorted((abs(stride), count) for stride, count in zip(array.strides, array.shape, strict=True)):
        if count > 1 and stride < reach:
            return False
        reach += (count - 1) * stride
    return True


def keep_apart(outputs: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError if an output shares memory with another output or with an input. The keys are used in errors."""
    pairs = [*combinations(outputs.items(), 2), *product(outputs.items(), inputs.items())]
    for (name, array), (other, theirs) in pairs:
        if shared(array, theirs):
            raise ValueError(f"{name} must not share memory with {other}")
