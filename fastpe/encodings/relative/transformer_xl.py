"""Transformer-XL: products of the query with projected sinusoids of the distance, and two learned vectors u and v.

    S_ij = s [ (q_i + u) . k_j + (q_i + v) . r_{i-j} ],    r_m = R_m W_R,    s = 1/sqrt(D)
    R_m = [ sin(m w_t) | cos(m w_t) ],    w_t = 10000^(-2t/C)

Source: Dai et al. 2019, "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context" (arXiv:1901.02860),
section 3.3; kimiyoung/transformer-xl, pytorch/mem_transformer.py, RelPartialLearnableMultiHeadAttn.

**Slots**: `rel_key` (H, 2K+1, D), whose row for the offset j - i is r_{i-j}; `key_bias`, which is u; and `bias`, which
contains s v . r_{i-j}. K is the smaller of N-1 and `clamp_len`. **Learns**: `u` and `v` (H, D), shared by all layers,
and `weight` W_R (C, C), separately in every layer. All are initially drawn from N(0, 0.02^2). (The released code can
also learn separate u and v in each layer, but its settings do not use this option.)

**Options**
- `clamp_len`: larger distances are replaced by `clamp_len`. The authors clamp only in evaluation. Default: no clamping.

**Both directions.** The encoding was made for causal models, but the formula is defined for any sign of i - j, and the
sines let a bidirectional model tell left from right. If the width C is odd, there is one cosine fewer than sines.

**Past the training length**: defined; on longer texts, the released models use a memory and `clamp_len`.

**Accuracy.** Sinusoids are exact to a unit in the last place at any distance; r is a sum of C products, with an error
of at most C 2^-53 times the sum of their absolute values.

**Traps.** R is fixed; only W_R is learned. Sines and cosines are concatenated, not interleaved. The usual
implementation computes all q_i . r_m as a matrix, and shifts its rows so that each product is in the column of its key.
Above the diagonal, the shifted matrix contains products of other queries, so the result is right only with a causal
mask. Positions cannot be given.
"""

import math
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.input import sinusoidal
from fastpe.encodings.parts.offsets import (
    STANDARD_DEVIATION,
    blocks,
    check_offsets,
    per_head,
    sides,
    stream_of,
    waves,
    whole_width,
)
from fastpe.encodings.slots import Spec, make_spec
from fastpe.kernels.arrays import gemm

Array = np.ndarray[Any, Any]


def _reach(spec: Spec, clamp_len: int | None) -> int:
    """K, the largest distance that has its own row."""
    return spec.length - 1 if clamp_len is None else min(spec.length - 1, clamp_len)


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """Two vectors for each head, and the projection."""
    heads = (spec.heads, spec.head_dim)
    return {"u": heads, "v": heads, "weight": (spec.dim, spec.dim)}


def shapes(spec: Spec, *, clamp_len: int | None) -> dict[str, tuple[int, ...]]:
    """Rows for the offsets from -K to K."""
    rows = 2 * _reach(spec, clamp_len) + 1
    heads = (spec.heads, spec.head_dim)
    return {"rel_key": (spec.heads, rows, spec.head_dim), "key_bias": heads, "bias": (spec.heads, rows)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Parameters drawn from N(0, 0.02^2)."""
    return {name: STANDARD_DEVIATION * stream_of(rng, name).normal(shape) for name, shape in parameters(spec).items()}


def reference(spec: Spec, params: dict[str, Any], *, clamp_len: int | None) -> dict[str, Any]:
    """Dai et al. 2019, section 3.3, computed one offset j - i at a time."""
    reach, heads, width = _reach(spec, clamp_len), spec.heads, spec.head_dim
    table = sinusoidal.reference(make_spec(reach + 1, dim=spec.dim), {}, base=10000.0, scale=1.0, layout="interleaved")[
        "table"
    ]
    slots = {name: np.empty(shape) for name, shape in shapes(spec, clamp_len=clamp_len).items()}
    slots["key_bias"][...] = params["u"]
    for row, m in enumerate(range(reach, -reach - 1, -1)):  # m = i - j
        sine, cosine = table[abs(m), 0::2] * np.sign(m), table[abs(m), 1::2]
        r = (np.concatenate([sine, cosine]) @ params["weight"]).reshape(heads, width)
        slots["rel_key"][:, row] = r
        slots["bias"][:, row] = (params["v"] * r).sum(axis=1) / math.sqrt(width)
    return slots


def _waves(spec: Spec, distances: slice) -> tuple[Array, Array]:
    """The sines and the cosines of R_m."""
    sine, cosine = waves(distances, 10000.0, spec.dim, (spec.dim + 1) // 2)
    return sine, np.ascontiguousarray(cosine[:, : spec.dim // 2])


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, clamp_len: int | None) -> None:
    """Fill the three slots. For each distance, projected cosines plus or minus projected sines give the two rows."""
    weight, v = params["weight"].astype(np.float64), params["v"].astype(np.float64) / math.sqrt(spec.head_dim)
    out["key_bias"][...] = params["u"]
    behind, ahead = zip(sides(out["rel_key"]), sides(out["bias"]), strict=True)
    # H more columns of the same matrix product give the products of v and r
    weight = np.concatenate([weight, np.einsum("chd,hd->ch", weight.reshape(spec.dim, *v.shape), v)], axis=1)
    for m in blocks(_reach(spec, clamp_len) + 1, spec.dim):
        sine, cosine = _waves(spec, m)
        odd, even = gemm(sine, weight[: sine.shape[1]]), gemm(cosine, weight[sine.shape[1] :])
        for (rel_key, bias), rows in ((behind, even + odd), (ahead, even - odd)):
            rel_key[:, m], bias[:, m] = per_head(rows[:, : spec.dim], spec.heads), rows[:, spec.dim :].T


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, clamp_len: int | None
) -> None:
    """dr_m = drel_key_m + s dbias_m v and, summed over m, dW_R = R_m^T dr_m and dv = s dbias_m r_m. du = dkey_bias."""
    weight, v = params["weight"].astype(np.float64), params["v"].astype(np.float64) / math.sqrt(spec.head_dim)
    along = np.zeros((spec.dim, spec.dim + spec.heads))  # R^T drel_key and R^T dbias
    behind, ahead = zip(sides(dslots["rel_key"]), sides(dslots["bias"]), strict=True)
    for m in blocks(_reach(spec, clamp_len) + 1, spec.dim):
        plus, minus = (np.concatenate([whole_width(k[:, m]), b[:, m].T], axis=1) for k, b in (behind, ahead))
        if m.start == 0:
            minus[0] = 0.0  # distance 0 is on both sides
        sine, cosine = _waves(spec, m)
        along[: sine.shape[1]] += gemm(np.ascontiguousarray(sine.T), plus - minus)
        along[sine.shape[1] :] += gemm(np.ascontiguousarray(cosine.T), plus + minus)
    of_key, of_bias = along[:, : spec.dim], along[:, spec.dim :]
    dparams["u"] += dslots["key_bias"]
    dparams["v"] += np.einsum("ch,chd->hd", of_bias, weight.reshape(spec.dim, spec.heads, -1)) / math.sqrt(
        spec.head_dim
    )
    dparams["weight"] += of_key + (of_bias[:, :, None] * v).reshape(spec.dim, spec.dim)


ENCODING = Encoding(
    summary="query and biases times sinusoids of the distance",
    formula=r"""
        S_{ij} &= s\, [(q_i + u) \cdot k_j + (q_i + v) \cdot r_{i-j}], \quad r_m = R_m W_R, \quad s = 1 / \sqrt{D} \\
        R_m &= [\, \sin(m w_t) \mid \cos(m w_t) \,], \quad w_t = 10000^{-2t/C}
    """,
    use_when="a model attends to a memory of earlier segments, or reproduces Transformer-XL, XLNet or a conformer",
    also_called=("rel_pos", "XLNet's relative encoding"),
    not_to_be_confused={"tener": "unscaled scores, and sinusoids without a learned map"},
    use="earlier",
    slots=("rel_key", "key_bias", "bias"),
    options={"clamp_len": Option(None, "distances above this value are replaced by it", int, minimum=1, optional=True)},
    beyond="defined",
    direction="yes",
    source="Dai et al. 2019, arXiv:1901.02860, section 3.3",
    reported=Reported(
        "holds",
        "Trained with segments of 128 tokens: perplexity 27.02, and 26.77 with attention to 500. On enwik8, attention "
        "goes from 784 in training to 3800 in tests.",
        "Dai et al. 2019, arXiv:1901.02860, section 4 and table 6",
    ),
    ulp=lambda spec, **options: 8.0 + 4.0 * spec.dim,  # for a sum of C products that do not cancel
    check=lambda spec, **options: check_offsets("transformer_xl", spec),
    per_layer=("weight",),
)
