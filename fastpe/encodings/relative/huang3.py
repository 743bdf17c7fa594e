"""Huang's method 3: in query times key, every channel is multiplied by a learned weight for the clipped offset.

    S_ij = s sum_c q_ic k_jc w[t, c],    t = clip(j - i, 1-K, K-1) + K-1

Source: Huang, Liang, Xu and Xiang 2020, "Improve Transformer Models with Better Relative Position Embeddings"
(arXiv:2009.13658), method 3. No public code is known.

**Slot**: `rel_gain` (1, 2K-1, D), or (H, 2K-1, D) with `per_head`. **Learns**, separately in every layer: `weight`,
which has the slot's shape. All weights start at 1, where they have no effect. The authors' initial values are not
known.

**Options**
- `reach`: the number K of distances on each side that have weights, at most 10^6. Default: the training length. The
  slot keeps the weights of all 2K-1 offsets, even for shorter sequences.
- `per_head`: learn separate weights for every head. The page of `huang1` says what is known of the authors' choice.

**Past the training length**: clipped. On each side, all distances of K - 1 or more share one vector of weights.

**Traps.** For every pair of tokens, the D products q_ic k_jc are multiplied by D weights before they are summed. This
takes D more multiplications for each pair than an ordinary score. Positions cannot be given: only offsets of
consecutive positions are supported.
"""

from typing import Any

import numpy as np

from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.huang import OPTIONS, clip_count, fill, offset_sets, pull
from fastpe.encodings.parts.offsets import check_offsets
from fastpe.encodings.slots import Spec


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A vector for every offset from 1-K to K-1."""
    return {"weight": (*offset_sets(spec, **options), spec.head_dim)}


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """The shape of the weights."""
    return {"rel_gain": (*offset_sets(spec, **options), spec.head_dim)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Ones, which change nothing."""
    return {"weight": np.ones((*offset_sets(spec, **options), spec.head_dim))}


def reference(spec: Spec, params: dict[str, Any], *, reach: int | None, per_head: bool) -> dict[str, Any]:
    """Huang et al. 2020, method 3: a_ij = w_{j-i}, a vector."""
    count = clip_count(spec, reach)
    return {"rel_gain": params["weight"][:, np.arange(1 - count, count) + count - 1]}


ENCODING = Encoding(
    summary="learned factor on each channel for each offset",
    formula=r"S_{ij} = s \sum_c q_{ic}\, k_{jc}\, w[t, c], \quad t = \mathrm{clip}(j - i,\ 1 - K,\ K - 1) + K - 1",
    use_when="you reproduce method 3 of Huang et al. 2020; its score is the most expensive of all",
    also_called=("method 3 of Huang et al. 2020",),
    use="proposed",
    slots=("rel_gain",),
    options=OPTIONS,
    beyond="clipped",
    direction="yes",
    source="Huang, Liang, Xu and Xiang 2020, arXiv:2009.13658, method 3",
    ulp=1.0,
    fill=fill,
    pull=pull,
    check=lambda spec, **options: check_offsets("huang3", spec),
    per_layer=("weight",),
)
