"""Huang's method 2: a learned factor on the score for every clipped offset.

    S_ij = s q_i . k_j w[t],    t = clip(j - i, 1-K, K-1) + K-1

Source: Huang, Liang, Xu and Xiang 2020, "Improve Transformer Models with Better Relative Position Embeddings"
(arXiv:2009.13658), method 2. No public code is known.

**Slot**: `gain` (H, 2K-1). **Learns**, separately in every layer: `weight` (1, 2K-1), or (H, 2K-1) with `per_head`;
initially 1, which changes nothing (a choice of fastpe: the authors' initial values are not known).

**Options**
- `reach`: the number K of distances on each side that have a weight, at most 10^6. Default: the training length. The
  slot keeps all 2K-1 weights, even for shorter sequences.
- `per_head`: learn separate weights for every head, see `huang1`.

**Past the training length**: clipped; on each side, all distances of at least K - 1 share one weight.

**Traps.** A weight above 1 raises positive scores and lowers negative scores. Positions cannot be given.
"""

from typing import Any

import numpy as np

from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.huang import OPTIONS, clip_count, fill, offset_sets, pull
from fastpe.encodings.parts.offsets import check_offsets
from fastpe.encodings.slots import Spec


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A weight for every offset from 1-K to K-1."""
    return {"weight": offset_sets(spec, **options)}


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """The shape of the weights, for all heads."""
    return {"gain": (spec.heads, offset_sets(spec, **options)[1])}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Ones, which change nothing."""
    return {"weight": np.ones(offset_sets(spec, **options))}


def reference(spec: Spec, params: dict[str, Any], *, reach: int | None, per_head: bool) -> dict[str, Any]:
    """Huang et al. 2020, method 2: a_ij = w_{j-i}."""
    count = clip_count(spec, reach)
    rows = np.arange(1 - count, count) + count - 1
    return {"gain": np.stack([params["weight"][h if per_head else 0, rows] for h in range(spec.heads)])}


ENCODING = Encoding(
    summary="learned factor on the score for each offset",
    formula=r"S_{ij} = s\, q_i \cdot k_j\, w[t], \quad t = \mathrm{clip}(j - i,\ 1 - K,\ K - 1) + K - 1",
    use_when="you reproduce method 2 of Huang et al. 2020, one factor for each signed offset",
    also_called=("method 2 of Huang et al. 2020",),
    use="proposed",
    slots=("gain",),
    options=OPTIONS,
    beyond="clipped",
    direction="yes",
    source="Huang, Liang, Xu and Xiang 2020, arXiv:2009.13658, method 2",
    ulp=1.0,
    fill=fill,
    pull=pull,
    check=lambda spec, **options: check_offsets("huang2", spec),
    per_layer=("weight",),
)
