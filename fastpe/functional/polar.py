"""Channels as radii in the plane, at angles of their own: the slot `polar` (PoPE, arXiv:2509.10534).

A channel x of a query becomes the two (softplus(x), 0), one of a key (softplus(x) cos phi, softplus(x) sin phi), phi
its phase; then `angles` turn all D pairs. Products of such rows are sums of softplus(q) softplus(k) cos(b - a + phi), a
and b the angles of query and key. Terms of the score that read queries and keys as they were do not go with it.
"""

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from fastpe.functional.layouts import contiguous, plain_rows
from fastpe.functional.slots import REFUSED
from fastpe.kernels.rows import polar as kernel
from fastpe.kernels.threads.team import run_team, workers_for

Array = np.ndarray[Any, Any]

_OF_A_RADIUS = 16  # multiplications that one takes


def lifted(x: Array, phases: Array | None) -> Array:
    """Of x (B, H, N, D) rows of 2 D channels, first those of all cosines.

    phases: (B or 1, H or 1, D) of keys, in radians; None of queries.
    """
    x = plain_rows(x)
    y = np.empty((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    run_team(_lanes(x), kernel.lift_rows, x, _strides(x), *_factors(x, phases), y, x.shape)
    return y


def lowered(x: Array, dy: Array, phases: Array | None) -> Array:
    """The gradient of x, that of `lifted` being dy."""
    x, dx = plain_rows(x), np.empty(x.shape, x.dtype)
    dy = contiguous(dy, x.dtype)
    run_team(_lanes(x), kernel.lower_rows, x, _strides(x), *_factors(x, phases), dx, dy, x.shape)
    return dx


def _lanes(x: Array) -> int:
    tasks = math.prod(x.shape[:2]) * -(-x.shape[2] // kernel.ROWS_OF_A_TASK)
    return workers_for(_OF_A_RADIUS * x.size, tasks)


def _strides(x: Array) -> tuple[int, ...]:
    return tuple(stride // x.itemsize for stride in x.strides[:3])


def _factors(x: Array, phases: Array | None) -> tuple[Array, tuple[int, int]]:
    """Cosines and sines, and their strides of samples and heads."""
    phases = np.zeros((1, 1, x.shape[-1])) if phases is None else contiguous(phases, np.float64)
    led, per_head, width = phases.shape
    factors = np.empty(2 * phases.size, x.dtype)
    kernel.fill_factors(phases.reshape(-1), width, factors)
    return factors, (2 * width * per_head if led > 1 else 0, 2 * width if per_head > 1 else 0)


def check_radii(name: str, layers: Sequence[Collection[str]]) -> None:
    """Refuse what no kernel has: channels that become radii in some layers alone, or beside slots that read them.

    Parameters
    ----------
    name : str
        Of the encoding.
    layers : sequence of collections of str
        The slots of every layer, or of every kind of layer.

    Raises
    ------
    ValueError
        If there is such a layer.

    Examples
    --------
    >>> check_radii("pope", [{"polar", "angles"}])
    """
    lifted = [own for own in layers if "polar" in own]
    if lifted and len(lifted) < len(layers):
        raise ValueError(f"{name!r} fills 'polar' in some layers: it must be in all")
    for own in lifted:
        if apart := [slot for slot in REFUSED["polar"] if slot in own]:
            raise ValueError(f"{name!r} fills {apart[0]!r}, which does not go with its 'polar'")
