"""Exact tests of whether arrays share memory; NumPy's fast test of their bounds alone is too strict."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_MOST_WORK = 100_000  # limit for NumPy's search, some milliseconds; arrays made by slicing need few steps


def shared(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays have a byte in common; also True if that cannot be decided quickly.

    Interleaved views of one array have none, which their bounds do not show:

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

    The addresses of two elements differ by a combination of strides that does not depend on where they are. So an array
    overlaps itself if along some axis the first entry overlaps the others.
    """
    if _nested(array):
        return False
    cuts = [(slice(None),) * axis for axis in range(array.ndim)]
    return any(shared(array[(*cut, slice(0, 1))], array[(*cut, slice(1, None))]) for cut in cuts)


def _nested(array: np.ndarray) -> bool:
    """Whether each stride is larger than the extent of all smaller strides, which decides without a search."""
    reach = array.itemsize
    for stride, count in sorted((abs(stride), count) for stride, count in zip(array.strides, array.shape, strict=True)):
        if count > 1 and stride < reach:
            return False
        reach += (count - 1) * stride
    return True


def keep_apart(outputs: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError if an output shares memory with another output or with an input. Both are given by name."""
    pairs = [*combinations(outputs.items(), 2), *product(outputs.items(), inputs.items())]
    for (name, array), (other, theirs) in pairs:
        if shared(array, theirs):
            raise ValueError(f"{name} must not share memory with {other}")
