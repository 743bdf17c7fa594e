"""Shaw's relative positions: a learned vector for every clipped offset, added to keys and values.

    S_ij = s q_i . (k_j + key[t]),    O_i = sum_j P_ij (v_j + value[t]),    t = clip(j - i, -K, K) + K

Source: Shaw, Uszkoreit and Vaswani 2018, "Self-Attention with Relative Position Representations" (arXiv:1803.02155),
sections 3.1 and 3.2, eqs. (3) and (4); initial values: tensorflow/tensor2tensor,
tensor2tensor/layers/common_attention.py, dot_product_attention_relative.

**Slots**: `rel_key` and `rel_value` (1, 2K+1, D), shared by all heads. **Learns**, separately in every layer: `key` and
`value` (2K+1, D); initially uniform in +-sqrt(6 / (2K+1 + D)), the released code's default.

**Options**
- `reach`: the clipping distance K, at most 10^6; 16 in the paper, 20 in the released settings.
- `use_values`: whether vectors are added to the values too. The paper found no difference.

**Past the training length**: clipped: on each side, all distances of K or more share one vector.

**Traps.** There are 2K+1 vectors; descriptions with 2K-1 vectors confuse this encoding with Huang's methods. The vector
is added to the key before the product is scaled. Positions cannot be given: the slots have one row for each integer
offset, and attention numbers the tokens 0, 1, 2, ...
"""

import math
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.offsets import MOST_REACH, check_offsets, stream_of
from fastpe.encodings.slots import Spec


def _slots(use_values: bool) -> dict[str, str]:
    return {"rel_key": "key"} | ({"rel_value": "value"} if use_values else {})


def parameters(spec: Spec, *, reach: int, use_values: bool) -> dict[str, tuple[int, ...]]:
    """A vector for every offset from -K to K, for keys and for values."""
    return dict.fromkeys(_slots(use_values).values(), (2 * reach + 1, spec.head_dim))


def shapes(spec: Spec, *, reach: int, use_values: bool) -> dict[str, tuple[int, ...]]:
    """One table for each slot, shared by all heads."""
    return dict.fromkeys(_slots(use_values), (1, 2 * reach + 1, spec.head_dim))


def init(spec: Spec, rng: Any, *, reach: int, use_values: bool) -> dict[str, Any]:
    """Uniform, by Glorot and Bengio's rule."""
    limit = math.sqrt(6.0 / (2 * reach + 1 + spec.head_dim))
    return {
        name: limit * (2.0 * stream_of(rng, name).uniform(shape) - 1.0)
        for name, shape in parameters(spec, reach=reach, use_values=use_values).items()
    }


def reference(spec: Spec, params: dict[str, Any], *, reach: int, use_values: bool) -> dict[str, Any]:
    """Shaw et al. 2018, section 3.2: w_clip(j-i, K), for j - i = -K .. K."""
    rows = np.clip(np.arange(-reach, reach + 1), -reach, reach) + reach
    slots = {"rel_key": params["key"][None, rows]}
    return slots | ({"rel_value": params["value"][None, rows]} if use_values else {})


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, reach: int, use_values: bool) -> None:
    """Copy the tables."""
    for slot, name in _slots(use_values).items():
        out[slot][0] = params[name]


def pull(
    spec: Spec,
    params: dict[str, Any],
    dslots: dict[str, Any],
    dparams: dict[str, Any],
    *,
    reach: int,
    use_values: bool,
) -> None:
    """Add the gradient of each slot to that of its table."""
    for slot, name in _slots(use_values).items():
        dparams[name] += dslots[slot][0]


ENCODING = Encoding(
    summary="learned vector per offset, added to key and value",
    formula=r"""
        S_{ij} &= s\, q_i \cdot (k_j + \mathrm{key}[t]) \\
        O_i &= \sum_j P_{ij} (v_j + \mathrm{value}[t]) \\
        t &= \mathrm{clip}(j - i,\ -K,\ K) + K
    """,
    use_when="near offsets need a learned vector each and far ones may share one, as in translation and speech",
    also_called=("RPR", "relative_key", "relative position representations"),
    not_to_be_confused={
        "li_eq5": "a bias that Li (2025) presents as Shaw's encoding; the query is not multiplied",
        "huang4": "the vector is multiplied by the key too",
    },
    use="earlier",
    slots=("rel_key", "rel_value"),
    options={
        "reach": Option(16, "clipping distance K", int, minimum=1, maximum=MOST_REACH),
        "use_values": Option(True, "whether vectors are added to values too", bool),
    },
    beyond="clipped",
    direction="yes",
    source="Shaw, Uszkoreit and Vaswani 2018, arXiv:1803.02155, sections 3.1 and 3.2, eqs. (3) and (4)",
    reported=Reported(
        "partly",
        "In the comparison of Transformer-XL, longer attention at test time gains nothing with it; in translation it "
        "improves longer sentences.",
        "Dai et al. 2019, arXiv:1901.02860, table 6; Neishi and Yoshinaga 2019 (CoNLL), abstract",
    ),
    ulp=1.0,
    check=lambda spec, **options: check_offsets("shaw", spec),
    per_layer=("key", "value"),
)
