"""DeBERTa: content-to-position and position-to-content terms from one table of clipped or bucketed distances.

    S_ij = ( q_i . k_j + q_i . K[x] + k_j . Q[y] ) / sqrt(n D),    K = table W_K,  Q = table W_Q
    x = clip(bucket(i - j) + span, 0, 2 span - 1),    y = x (code), or clip(bucket(j - i) + span, 0, 2 span - 1) (paper)

n is the number of terms in the sum. `span` and bucket are defined under Buckets below.

Source: He et al. 2020, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention" (arXiv:2006.03654), section 3.1,
eqs. (3) and (4); microsoft/DeBERTa, DeBERTa/deberta/disentangled_attention.py, DisentangledSelfAttention, and, for the
buckets of version 2, da_utils.py, make_log_bucket_position.

**Slots**: `rel_key` and `rel_query` (H, 2M+1, D), where M is the smaller of `reach` and N-1; and `scale`, 1/sqrt(n D).
**Learns**: `table` (2 span, C), which all layers share; and the matrices `key` (W_K) and `query` (W_Q), (C, C) each,
which every layer has separately. All initial values are drawn from N(0, 0.02^2).

**Options**
- `reach`: all distances of at least this value are treated alike. At most 10^6; called "max_relative_positions" in the
  code.
- `buckets`: the number of buckets on each side, even; 256 in version 2. Default: no buckets, so each distance has its
  own row of the table.
- `p2c_index`: which of the two formulas of y is used: `code` (that of the released code) or `paper`.
- `c2p`, `p2c`: whether to use the term q_i . K[x] and the term k_j . Q[y].

**Buckets.** Let m = i - j. Without buckets, bucket(m) = m and span = reach. With b buckets on each side, span = b. Let
mid = b/2; then

    bucket(m) = m                                                               if |m| <= mid
    bucket(m) = sign(m) (mid + ceil((mid-1) ln(|m|/mid) / ln((reach-1)/mid)))   otherwise

**Separate projections.** The released models may use the key and query projections of the content as W_K and W_Q
(`share_att_key`). This is not implemented, because an encoding has no access to a layer's projections. Version 3's
layer norm of the table is not implemented either.

**Past the training length**: clipped; on each side, all distances of at least `reach` share one row.

**Traps.** Distances are query minus key, the opposite of T5's. Clipping is not symmetric: a query that is `reach`
positions after its key uses the row of the distance `reach - 1`. In the code's form, the key is multiplied by the row
of i - j, although the paper argues for j - i. Positions cannot be given.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.offsets import (
    MOST_REACH,
    STANDARD_DEVIATION,
    check_offsets,
    per_head,
    stream_of,
    whole_width,
)
from fastpe.encodings.slots import Spec
from fastpe.kernels.arrays import gemm

Array = np.ndarray[Any, Any]


def check(spec: Spec, *, reach: int, buckets: int | None, p2c_index: str, c2p: bool, p2c: bool) -> None:
    """Require at least one term, and an even number of buckets that is smaller than the number of distances."""
    check_offsets("deberta", spec)
    if not (c2p or p2c):
        raise ValueError("options 'c2p' and 'p2c' must not both be false: the score would not depend on positions")
    if buckets is not None and (buckets % 2 or buckets > 2 * (reach - 2)):
        raise ValueError(
            f"option 'buckets' must be even and at most 2 (reach - 2), {2 * (reach - 2)} here, not {buckets}"
        )


def bucket(distance: Array, buckets: int | None, reach: int) -> Array:
    """The bucket of i - j, integers of either sign, as in version 2 of the released code.

    >>> bucket(np.array([127, 129, 200, -511]), 256, 512).tolist()
    [127, 129, 169, -255]
    """
    if buckets is None:
        return distance
    middle, far = buckets // 2, np.abs(distance)
    ratio = np.log(np.maximum(far, middle) / middle) / math.log((reach - 1) / middle)
    logarithmic = np.sign(distance) * (np.ceil(ratio * (middle - 1)) + middle)
    return np.where(far <= middle, distance, logarithmic).astype(np.int64)


@lru_cache(maxsize=8)
def _rows(reach: int, buckets: int | None, most: int) -> Array:
    """The row of the table for i - j = -most .. most, in ascending order."""
    span = reach if buckets is None else buckets
    return np.clip(bucket(np.arange(-most, most + 1), buckets, reach) + span, 0, 2 * span - 1)


def _terms(spec: Spec, options: dict[str, Any]) -> dict[str, tuple[str, Array]]:
    """Slot -> the name of its projection, and the row of the table for each offset j - i."""
    rows = _rows(options["reach"], options["buckets"], min(options["reach"], spec.length - 1))
    terms = {"rel_key": ("key", rows[::-1])} if options["c2p"] else {}
    if options["p2c"]:
        terms["rel_query"] = ("query", rows[::-1] if options["p2c_index"] == "code" else rows)
    return terms


def parameters(spec: Spec, *, reach: int, buckets: int | None, c2p: bool, p2c: bool, **options: Any) -> dict[str, Any]:
    """The table, and a projection for each term."""
    projections = {name: (spec.dim, spec.dim) for name, there in (("key", c2p), ("query", p2c)) if there}
    return {"table": (2 * (reach if buckets is None else buckets), spec.dim)} | projections


def shapes(spec: Spec, *, reach: int, c2p: bool, p2c: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """A row for each offset that occurs."""
    shape = (spec.heads, 2 * min(reach, spec.length - 1) + 1, spec.head_dim)
    return {slot: shape for slot, there in (("rel_key", c2p), ("rel_query", p2c)) if there}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Parameters drawn from N(0, 0.02^2)."""
    return {
        name: STANDARD_DEVIATION * stream_of(rng, name).normal(shape)
        for name, shape in parameters(spec, **options).items()
    }


def reference(
    spec: Spec, params: dict[str, Any], *, reach: int, buckets: int | None, p2c_index: str, c2p: bool, p2c: bool
) -> dict[str, Any]:
    """He et al. 2020, eq. (4), computed one offset j - i at a time."""

    def index(m: int) -> int:
        span, place = reach, m
        if buckets is not None:
            span, middle = buckets, buckets / 2
            if abs(m) > middle:
                ratio = math.log(abs(m) / middle) / math.log((reach - 1) / middle)
                place = int(math.copysign(math.ceil(ratio * (middle - 1)) + middle, m))
        return min(max(place + span, 0), 2 * span - 1)

    most = min(reach, spec.length - 1)
    slots = {}
    for slot, projection, sign, there in (("rel_key", "key", -1, c2p), ("rel_query", "query", 1, p2c)):
        if there:
            sign = -1 if p2c_index == "code" else sign
            projected = (params["table"] @ params[projection]).reshape(-1, spec.heads, spec.head_dim)
            rows = [projected[index(sign * offset)] for offset in range(-most, most + 1)]
            slots[slot] = np.stack(rows, axis=1)
    return slots


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Project the rows that occur, and copy them to their offsets."""
    for slot, (projection, rows) in _terms(spec, options).items():
        first, last = rows.min(), rows.max()
        used = params["table"][first : last + 1].astype(np.float64)
        projected = gemm(used, params[projection].astype(np.float64))
        out[slot][...] = per_head(projected[rows - first], spec.heads)


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any) -> None:
    """dprojected[row] = sum of dslot over offsets with this row, dW = table^T dprojected, dtable = dprojected W^T."""
    for slot, (projection, rows) in _terms(spec, options).items():
        first, last = rows.min(), rows.max()
        starts = np.flatnonzero(np.diff(rows, prepend=-1))  # equal rows are neighbours
        dprojected = np.zeros((last + 1 - first, spec.dim))
        given = whole_width(dslots[slot])
        dprojected[rows[starts] - first] = given if len(starts) == len(rows) else np.add.reduceat(given, starts)
        used = params["table"][first : last + 1].astype(np.float64)
        dparams[projection] += gemm(np.ascontiguousarray(used.T), dprojected)
        dparams["table"][first : last + 1] += gemm(dprojected, np.ascontiguousarray(params[projection].T, np.float64))


def _scale(spec: Spec, *, c2p: bool, p2c: bool, **options: Any) -> dict[str, Any]:
    return {"scale": 1.0 / math.sqrt((1 + c2p + p2c) * spec.head_dim)}


ENCODING = Encoding(
    summary="query and key times vectors of clipped offsets",
    formula=r"""
        S_{ij} &= \frac{q_i \cdot k_j + q_i \cdot K[x] + k_j \cdot Q[y]}{\sqrt{D\, \mathrm{terms}}},
            \quad K = \mathrm{table}\, W_K, \quad Q = \mathrm{table}\, W_Q \\
        x &= \mathrm{clip}(\mathrm{bucket}(i - j) + \mathrm{span},\ 0,\ 2\, \mathrm{span} - 1) \\
        y &= x \text{ (code)},
            \quad \text{or } \mathrm{clip}(\mathrm{bucket}(j - i) + \mathrm{span},\ 0,\ 2\, \mathrm{span} - 1)
                \text{ (paper)}
    """,
    use_when="a bidirectional encoder should relate content to offsets in both directions, as in DeBERTa",
    also_called=("disentangled attention",),
    not_to_be_confused={"tupe": "products of absolute positions, without products of content and position"},
    use="earlier",
    slots=("rel_key", "rel_query", "scale"),
    options={
        "reach": Option(512, "distances of at least this are treated alike", int, minimum=1, maximum=MOST_REACH),
        "buckets": Option(
            None, "number of buckets of distances; none: no buckets", int, minimum=2, optional=True, samples=(2, 6)
        ),
        "p2c_index": Option("code", "sign of the distance in the key's term", str, ("code", "paper")),
        "c2p": Option(True, "whether queries multiply positions", bool),
        "p2c": Option(True, "whether keys multiply positions", bool),
    },
    beyond="clipped",
    direction="yes",
    source="He et al. 2020, arXiv:2006.03654, section 3.1, eqs. (3) and (4)",
    reported=Reported(
        "tuned",
        "Pre-trained on 512 tokens: accuracy on RACE 86.3 at 512 and 86.8 at 768 tokens.",
        "He et al. 2020, arXiv:2006.03654, appendix A.5, table 11",
    ),
    ulp=lambda spec, **options: 8.0 + 4.0 * spec.dim,  # for a sum of C products that do not cancel
    plain=_scale,
    per_layer=("key", "query"),
)
