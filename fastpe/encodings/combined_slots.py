"""Combine slots that several encodings fill: find a common shape, and widen the array of each encoding to it.

An array with fewer offsets is widened by repeating its first and last rows, as clipping does. An array that all heads
or all samples share is repeated for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastpe.encodings.slots import SLOTS

if TYPE_CHECKING:
    import numpy as np

_OFFSETS = "2K+1"
_REPEATED = ("B", "H", "H or 1")


def _axes(slot: str, count: int) -> list[str]:
    """The names of the `count` axes of an array for a slot; an axis of samples, "B", comes first."""
    own = SLOTS[slot].axes.strip("()").split(", ")
    return ["B"] * (count - len(own)) + own


def common_shape(slot: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The smallest shape to which arrays of all these shapes can be widened, or None if there is none.

    >>> common_shape("rel_key", [(1, 5, 8), (4, 3, 8)])
    (4, 5, 8)
    >>> common_shape("table", [(5, 8), (5, 4)])
    """
    count = max(map(len, shapes))
    common = []
    for axis, name in enumerate(_axes(slot, count), start=-count):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis}
        if name != _OFFSETS and len(sizes - {1} if name in _REPEATED else sizes) > 1:
            return None
        common.append(max(sizes))
    return tuple(common)


def widened(slot: str, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the array, widened to the common shape. It may be a view: do not write to it.

    >>> import numpy as np
    >>> widened("bias", np.array([[1, 2, 3]]), (2, 7)).tolist()
    [[1, 1, 1, 2, 3, 3, 3], [1, 1, 1, 2, 3, 3, 3]]
    """
    import numpy as np

    for axis, name in enumerate(_axes(slot, array.ndim), start=-array.ndim):
        if name == _OFFSETS and array.shape[axis] != shape[axis]:
            reach, wide = array.shape[axis] // 2, shape[axis] // 2
            array = array.take(np.clip(np.arange(-wide, wide + 1), -reach, reach) + reach, axis)
    return np.broadcast_to(array, shape)


def narrowed(slot: str, gradient: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the gradient of an array of this shape, given the gradient of the widened array.

    This is the transpose of `widened`.

    >>> import numpy as np
    >>> narrowed("bias", np.arange(14.0).reshape(2, 7), (1, 3)).tolist()
    [[27.0, 13.0, 51.0]]
    """
    import numpy as np

    if gradient.shape == shape:
        return gradient
    samples = tuple(range(gradient.ndim - len(shape)))
    total = gradient.astype(np.float64).sum(axis=samples)
    for axis, (name, size) in enumerate(zip(_axes(slot, len(shape)), shape, strict=True)):
        if total.shape[axis] == size:
            continue
        if name == _OFFSETS:
            rows, beyond = np.moveaxis(total, axis, 0), (total.shape[axis] - size) // 2
            rows[beyond] += rows[:beyond].sum(axis=0)
            rows[beyond + size - 1] += rows[beyond + size :].sum(axis=0)
            total = np.moveaxis(rows[beyond : beyond + size], 0, axis)
        else:
            total = total.sum(axis=axis, keepdims=True)
    return np.ascontiguousarray(total, gradient.dtype)
