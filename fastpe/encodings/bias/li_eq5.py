"""Li's simplification of Shaw's encoding: a bias for every clipped offset, the dot product of two learned vectors.

    S_ij = s q_i . k_j + vector . table[t],    t = clip(i - j, -K, K) + K

Source: Li (2025), "Theoretical Analysis of Positional Encodings in Transformer Models", eq. (5), which presents it as
Shaw's encoding. It is not the same: the vector of the offset is not multiplied by the query, so the bias of an offset
is the same for all queries. This is T5's table of biases without buckets, but each bias has D parameters.

**Slot**: `bias` (H, 2K+1), equal for all heads and not multiplied by 1/sqrt(D). If the option `scaled` is False, there
is a second slot, `scale`, with the value 1.
**Learns**, shared by all layers: `vector` (D,) and `table` (2K+1, D). The paper gives no initial values; here `vector`
starts as N(0, 1/D), and `table` as N(0, 0.02^2).

**Options**
- `reach`: the clipping distance K, at most 10^6. Default: 16, as in Shaw's encoding.
- `scaled`: whether the product of query and key is divided by sqrt(D), as in the paper's own model. Equation (5) itself
  has no such division: set `scaled` to False to follow it.

**Past the training length**: clipped. On each side, all distances of K or more share one bias.

**Traps.** The rows of `table` are ordered by i - j (query minus key). The entries of the slot are ordered by j - i,
which is the reverse. Positions cannot be given: only offsets of consecutive positions are supported. The gradient of
`vector` is proportional to `table`, and the gradient of `table` is proportional to `vector`. If both start near zero,
both change very little.
"""

import math
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.offsets import MOST_REACH, STANDARD_DEVIATION, check_offsets, stream_of
from fastpe.encodings.slots import Spec


def parameters(spec: Spec, *, reach: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """The global vector, and a vector for every offset."""
    return {"vector": (spec.head_dim,), "table": (2 * reach + 1, spec.head_dim)}


def shapes(spec: Spec, *, reach: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """A row of 2K+1 numbers for each head; all rows are equal."""
    return {"bias": (spec.heads, 2 * reach + 1)}


def init(spec: Spec, rng: Any, *, reach: int, **options: Any) -> dict[str, Any]:
    """`vector` drawn from N(0, 1/D), and `table` from N(0, 0.02^2)."""
    return {
        "vector": stream_of(rng, "vector").normal(spec.head_dim) / math.sqrt(spec.head_dim),
        "table": STANDARD_DEVIATION * stream_of(rng, "table").normal((2 * reach + 1, spec.head_dim)),
    }


def reference(spec: Spec, params: dict[str, Any], *, reach: int, **options: Any) -> dict[str, Any]:
    """Li 2025, eq. (5), a . R_{i-j} for j - i = -K .. K."""
    row = [params["vector"] @ params["table"][-offset + reach] for offset in range(-reach, reach + 1)]
    return {"bias": np.array([row] * spec.heads)}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill `bias`."""
    table, vector = params["table"].astype(np.float64), params["vector"].astype(np.float64)
    out["bias"][...] = np.einsum("td,d->t", table, vector)[::-1]


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any) -> None:
    """dvector = sum over t of db[t] table[t], dtable[t] = db[t] vector."""
    dbias = dslots["bias"].sum(axis=0, dtype=np.float64)[::-1]
    dparams["vector"] += np.einsum("t,td->d", dbias, params["table"].astype(np.float64))
    dparams["table"] += dbias[:, None] * params["vector"].astype(np.float64)


ENCODING = Encoding(
    summary="learned bias for each clipped offset",
    formula=r"""
        S_{ij} = s\, q_i \cdot k_j + \mathrm{vector} \cdot \mathrm{table}[t],
            \quad t = \mathrm{clip}(i - j,\ -K,\ K) + K
    """,
    use_when="you reproduce eq. (5) of Li (2025); otherwise t5 or shaw",
    not_to_be_confused={"shaw": "the query is multiplied by the vector of the offset"},
    use="study",
    slots=("bias", "scale"),
    options={
        "reach": Option(16, "clipping distance K", int, minimum=1, maximum=MOST_REACH),
        "scaled": Option(True, "whether the product of query and key is divided by sqrt(D)", bool),
    },
    beyond="clipped",
    direction="yes",
    source="Li 2025, eq. (5)",
    ulp=lambda spec, **options: 4.0 * spec.head_dim,  # for a sum of D products that do not cancel
    plain=lambda spec, *, scaled, **options: {} if scaled else {"scale": 1.0},
    check=lambda spec, **options: check_offsets("li_eq5", spec),
)
