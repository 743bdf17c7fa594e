"""Huang's method 4: a learned vector for every clipped offset, multiplied by both query and key.

    S_ij = s (q_i . k_j + q_i . w[t] + k_j . w[t]),    t = clip(j - i, 1-K, K-1) + K-1

Source: Huang, Liang, Xu and Xiang 2020, "Improve Transformer Models with Better Relative Position Embeddings"
(arXiv:2009.13658), method 4; huggingface/transformers, models/bert/modeling_bert.py (version 4), BertSelfAttention
with `relative_key_query`.

**Slots**: `rel_key` and `rel_query`. Both contain w and have shape (1, 2K-1, D), or (H, 2K-1, D) with `per_head`.
**Learns**, separately in every layer: `weight`, of the same shape, initially N(0, 0.02^2).

**Options**
- `reach`: the number K of distances on each side that have vectors, at most 10^6. Default: the training length, which
  corresponds to the maximal position of the Hugging Face code. The slots keep all 2K-1 vectors, even for shorter
  sequences.
- `per_head`: learn separate vectors for every head. In the Hugging Face code all heads share them.

**Past the training length**: clipped. On each side, all distances of K - 1 or more share one vector. The Hugging Face
code does not clip offsets: it fails past its maximal position.

**Traps.** Here the vectors are ordered by j - i. The Hugging Face code orders them by i - j, which is the reverse.
Positions cannot be given: only offsets of consecutive positions are supported.
"""

from typing import Any

import numpy as np

from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.huang import OPTIONS, clip_count, fill, offset_sets, pull
from fastpe.encodings.parts.offsets import STANDARD_DEVIATION, check_offsets
from fastpe.encodings.slots import Spec


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A vector for every offset from 1-K to K-1."""
    return {"weight": (*offset_sets(spec, **options), spec.head_dim)}


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """The shape of the weights."""
    return {slot: (*offset_sets(spec, **options), spec.head_dim) for slot in ("rel_key", "rel_query")}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Vectors drawn from N(0, 0.02^2)."""
    return {"weight": STANDARD_DEVIATION * rng.normal((*offset_sets(spec, **options), spec.head_dim))}


def reference(spec: Spec, params: dict[str, Any], *, reach: int | None, per_head: bool) -> dict[str, Any]:
    """Huang et al. 2020, method 4: a_ij = w_{j-i}, a vector."""
    count = clip_count(spec, reach)
    vectors = params["weight"][:, np.arange(1 - count, count) + count - 1]
    return {"rel_key": vectors, "rel_query": vectors}


ENCODING = Encoding(
    summary="query and key times a learned vector per offset",
    formula=r"""
        S_{ij} = s\, (q_i \cdot k_j + q_i \cdot w[t] + k_j \cdot w[t]),
            \quad t = \mathrm{clip}(j - i,\ 1 - K,\ K - 1) + K - 1
    """,
    use_when="you run BERT models with relative_key_query, or reproduce method 4 of Huang et al. 2020",
    also_called=("method 4 of Huang et al. 2020", "relative_key_query"),
    not_to_be_confused={"shaw": "vectors for keys and values, and none for the products with keys"},
    use="proposed",
    slots=("rel_key", "rel_query"),
    options=OPTIONS,
    beyond="clipped",
    direction="yes",
    source="Huang, Liang, Xu and Xiang 2020, arXiv:2009.13658, method 4",
    reported=Reported(
        "partly",
        "Its authors report that it generalises reasonably to sequences longer than those of training.",
        "Huang, Liang, Xu and Xiang 2020, arXiv:2009.13658, abstract",
    ),
    ulp=1.0,
    fill=fill,
    pull=pull,
    check=lambda spec, **options: check_offsets("huang4", spec),
    per_layer=("weight",),
)
