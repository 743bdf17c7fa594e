"""Factors on the products of each query and its keys, which grow with the number of these keys, as slots.

See `fastpe.temperatures`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastpe.encodings.slots import Spec

if TYPE_CHECKING:
    import numpy as np


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A factor for each query, shared by all heads."""
    return {"row_scale": (*spec.batch, 1, spec.length)}


def check(scheme: str, spec: Spec) -> None:
    """Raise ValueError if a position is negative."""
    least = spec.start if spec.positions is None else float(spec.positions.min()) + spec.start
    if least < 0:
        raise ValueError(f"{scheme!r} needs positions >= 0, not {least:g}: it counts the keys up to each query")


def places(spec: Spec) -> np.ndarray:
    """The queries' positions, (1, N) or (B, 1, N)."""
    return spec.points()[..., None, :]


def logarithms(spec: Spec) -> np.ndarray:
    """The logarithm of the number of keys that each query attends to, (1, N) or (B, 1, N): the keys up to its position,
    or all N without a causal mask."""
    import numpy as np

    if not spec.causal:
        return np.full((*spec.batch, 1, spec.length), np.log(spec.length))
    return np.log1p(places(spec))
