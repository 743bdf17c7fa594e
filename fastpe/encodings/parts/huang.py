"""Code shared by the four methods of Huang et al. (2020): learned weights of clipped offsets, one set for all heads or
one for each head.

With the authors' clip count K, all offsets >= K - 1 share one row, and all offsets <= -(K - 1) share another one. So
there are 2K-1 rows, not 2K+1.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.parts.offsets import MOST_REACH
from fastpe.encodings.slots import Spec

OPTIONS = {
    "reach": Option(None, "clip count K; none: the training length", int, minimum=1, optional=True, maximum=MOST_REACH),
    "per_head": Option(False, "whether every head has its own weights", bool),
}


def clip_count(spec: Spec, reach: int | None) -> int:
    """The clip count K."""
    return spec.train_length if reach is None else reach


def offset_sets(spec: Spec, *, reach: int | None, per_head: bool) -> tuple[int, int]:
    """The number of sets of weights, and the number of offsets in each set."""
    return spec.heads if per_head else 1, 2 * clip_count(spec, reach) - 1


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Copy the weights into each slot."""
    for slot in out.values():
        slot[...] = params["weight"]


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any) -> None:
    """The gradient of the weights: the sum over the slots."""
    for dslot in dslots.values():
        dparams["weight"] += summed(dslot, len(params["weight"]))


def summed(dslot: np.ndarray, count: int) -> np.ndarray:
    """The gradient of `count` sets of weights, float64, from a slot's gradient, summed over heads that share a set."""
    return dslot.astype(np.float64) if len(dslot) == count else dslot.sum(axis=0, dtype=np.float64, keepdims=True)
