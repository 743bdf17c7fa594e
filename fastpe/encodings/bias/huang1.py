"""Huang's method 1: a learned factor on the score for every clipped distance.

    S_ij = s q_i . k_j w[r],    r = min(|j - i|, K - 1)

Source: Huang, Liang, Xu and Xiang 2020, "Improve Transformer Models with Better Relative Position Embeddings"
(arXiv:2009.13658), method 1. No public code is known.

**Slot**: `gain` (H, 2K-1). **Learns**, separately in every layer: `weight` (1, K), or (H, K) with `per_head`; initially
1, which changes nothing (a choice of fastpe: the authors' initial values are not known).

**Options**
- `reach`: the number K of distances that have a weight, at most 10^6. Default: the training length. The slot keeps all
  2K-1 weights, even for shorter sequences.
- `per_head`: learn separate weights for every head. It is not known whether heads share weights in the authors' models
  with method 1. In their released checkpoint with method 4, they do.

**Past the training length**: clipped; all distances of at least K - 1 share one weight.

**Traps.** A weight above 1 raises positive scores and lowers negative scores. Distances have no direction: without a
causal mask the model cannot tell left from right. Positions cannot be given.
"""

from typing import Any

import numpy as np

from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.huang import OPTIONS, clip_count, summed
from fastpe.encodings.parts.offsets import check_offsets, sides
from fastpe.encodings.slots import Spec


def parameters(spec: Spec, *, reach: int | None, per_head: bool) -> dict[str, tuple[int, ...]]:
    """A weight for every distance below K."""
    return {"weight": (spec.heads if per_head else 1, clip_count(spec, reach))}


def shapes(spec: Spec, *, reach: int | None, per_head: bool) -> dict[str, tuple[int, ...]]:
    """A factor for every offset, in both directions."""
    return {"gain": (spec.heads, 2 * clip_count(spec, reach) - 1)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Ones, which change nothing."""
    return {name: np.ones(shape) for name, shape in parameters(spec, **options).items()}


def reference(spec: Spec, params: dict[str, Any], *, reach: int | None, per_head: bool) -> dict[str, Any]:
    """Huang et al. 2020, method 1: a_ij = w_|j-i|."""
    count = clip_count(spec, reach)
    distance = np.minimum(np.abs(np.arange(1 - count, count)), count - 1)
    return {"gain": np.stack([params["weight"][h if per_head else 0, distance] for h in range(spec.heads)])}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Copy the weights to the offsets of both directions."""
    for side in sides(out["gain"]):
        side[...] = params["weight"]


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any) -> None:
    """Add up the gradients of both directions."""
    behind, ahead = sides(summed(dslots["gain"], len(params["weight"])))
    dparams["weight"] += behind
    dparams["weight"][:, 1:] += ahead[:, 1:]


ENCODING = Encoding(
    summary="learned factor on the score for each distance",
    formula=r"S_{ij} = s\, q_i \cdot k_j\, w[r], \quad r = \min(\left| j - i \right|,\ K - 1)",
    use_when="you reproduce method 1 of Huang et al. 2020, one factor for each distance",
    also_called=("method 1 of Huang et al. 2020",),
    use="proposed",
    slots=("gain",),
    options=OPTIONS,
    beyond="clipped",
    direction="no",
    source="Huang, Liang, Xu and Xiang 2020, arXiv:2009.13658, method 1",
    ulp=1.0,
    check=lambda spec, **options: check_offsets("huang1", spec),
    per_layer=("weight",),
)
