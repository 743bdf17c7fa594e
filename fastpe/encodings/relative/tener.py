"""TENER: unscaled scores with fixed sinusoids of the signed distance and two learned vectors per head.

    form "paper":  S_ij = s [ q_i . k_j + q_i . R_{i-j} + u . k_j + v . R_{i-j} ]               s = 1, or 1/sqrt(D)
    form "code":   S_ij = s [ (q_i + u) . k_j + (q_i + v) . R_{j-i} + k_j . R_{i-j} ]

    R_m, width D:  "paper"  [ sin(m w_0), cos(m w_0), sin(m w_1), ... ],        w_t = 10000^(-2t/D)
                   "code"   [ sin(m w_0), sin(m w_1), ... | cos(m w_0), ... ],  w_t = 10000^(-t/(D/2 - 1))

Source: Yan et al. 2019, "TENER: Adapting Transformer Encoder for Named Entity Recognition" (arXiv:1911.04474),
sections 3.2.1 and 3.2.2; fastnlp/TENER, modules/relative_transformer.py, RelativeMultiHeadAttn.

**Slots**: `rel_key` (1, 2N-1, D) and, in form "code", `rel_query`; `key_bias`, which is u; `bias`, which contains s v .
R; and `scale`, which is 1 unless `scaled` is set. **Learns**, separately in every layer: `u` and `v` (H, D), initially
N(0, 2/(H + D)).

**Options**
- `form`: `paper` or `code`, the two formulas above. They differ in the sign of the distance in the terms q_i . R and v
  . R, and in the order and the frequencies of the sinusoids in R. Only `code` has the term k_j . R. The published
  results come from the code.
- `scaled`: whether the complete score, including v . R, is divided by sqrt(D), as with the option `scale` of the
  authors' code. The authors' models did better without this division, presumably (they write) because the weights are
  then sharper.

If D is odd, form "paper" drops the last cosine and form "code" has a last channel of zeros.

**Past the training length**: defined.

**Traps.** Sines are odd and cosines even in the distance, so the model can tell left from right. The two forms do this
in different ways. The authors' code sets the row of the most negative distance to zero, because it reserves this row
for padding. Here this row is computed like all others. Positions cannot be given.
"""

import math
from typing import Any

import numpy as np

from fastpe.base.initial_values import initial_values
from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.input import sinusoidal
from fastpe.encodings.parts.offsets import blocks, check_offsets, sides, stream_of, waves
from fastpe.encodings.slots import Spec, make_spec

Array = np.ndarray[Any, Any]


def _relative(form: str) -> tuple[str, ...]:
    """The slots filled with R."""
    return ("rel_key",) if form == "paper" else ("rel_key", "rel_query")


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """Two vectors for each head."""
    return {"u": (spec.heads, spec.head_dim), "v": (spec.heads, spec.head_dim)}


def _factor(spec: Spec, scaled: bool) -> float:
    """s, by which `bias` is multiplied here, because the slot `scale` does not apply to biases."""
    return 1 / math.sqrt(spec.head_dim) if scaled else 1.0


def shapes(spec: Spec, *, form: str, **options: Any) -> dict[str, tuple[int, ...]]:
    """Slots filled with R have one table for all heads; `key_bias` and `bias` have values for each head."""
    rows = 2 * spec.length - 1
    relative = dict.fromkeys(_relative(form), (1, rows, spec.head_dim))
    return relative | {"key_bias": (spec.heads, spec.head_dim), "bias": (spec.heads, rows)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Xavier normal initial values."""
    shape = (spec.heads, spec.head_dim)
    return {name: initial_values("xavier_normal", stream_of(rng, name), "weight", shape, shape) for name in ("u", "v")}


def reference(spec: Spec, params: dict[str, Any], *, form: str, scaled: bool) -> dict[str, Any]:
    """Yan et al. 2019, computed one offset j - i at a time."""
    width, half = spec.head_dim, spec.head_dim // 2
    # 1e8^(-2t/(4(half-1))) is the code's frequency
    base, dim = (10000.0, width) if form == "paper" else (1e8, 4 * max(half - 1, 1))
    table = sinusoidal.reference(make_spec(spec.length, dim=dim), {}, base=base, scale=1.0, layout="interleaved")[
        "table"
    ]

    def row(m: int) -> Array:
        sine, cosine = table[abs(m), 0::2] * np.sign(m), table[abs(m), 1::2]
        if form == "paper":
            return np.stack([sine, np.append(cosine, 0.0)[: len(sine)]], axis=1).ravel()[:width]
        return np.concatenate([sine[:half], cosine[:half], np.zeros(width % 2)])

    offsets = range(1 - spec.length, spec.length)  # j - i
    met = np.array([row(-o if form == "paper" else o) for o in offsets])
    slots = {"rel_key": met[None], "key_bias": params["u"], "bias": _factor(spec, scaled) * (params["v"] @ met.T)}
    return slots if form == "paper" else slots | {"rel_query": np.array([row(-o) for o in offsets])[None]}


def _signed(distances: slice, width: int, form: str) -> tuple[Array, Array]:
    """R_m and R_{-m}."""
    half, rows = width // 2, np.zeros((distances.stop - distances.start, width))
    if form == "paper":
        sine, cosine = waves(distances, 10000.0, width, width - half)
        sines, cosines = slice(0, None, 2), slice(1, None, 2)
    else:
        sine, cosine = waves(distances, 1e8, 4 * max(half - 1, 1), half)
        sines, cosines = slice(0, half), slice(half, 2 * half)
    rows[:, sines], rows[:, cosines] = sine, cosine[:, :half]
    opposite = rows.copy()
    opposite[:, sines] = -sine
    return rows, opposite


def _sided(slot: str, form: str, signed: tuple[Array, Array]) -> tuple[Array, Array]:
    """The rows of a slot, R_{i-j} or R_{j-i}, for keys before the query (i - j = m), and for keys after it."""
    return signed if slot == _relative(form)[-1] else signed[::-1]


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, form: str, scaled: bool) -> None:
    """Fill the slots."""
    v = params["v"].astype(np.float64) * _factor(spec, scaled)
    out["key_bias"][...] = params["u"]
    for m in blocks(spec.length, spec.head_dim + spec.heads):
        signed = _signed(m, spec.head_dim, form)
        for slot in _relative(form):
            for side, rows in zip(sides(out[slot]), _sided(slot, form, signed), strict=True):
                side[:, m] = rows
        for side, rows in zip(sides(out["bias"]), _sided("rel_key", form, signed), strict=True):
            side[:, m] = np.einsum("hd,rd->hr", v, rows)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, form: str, scaled: bool
) -> None:
    """du = dkey_bias, dv = s times the sum over offsets of dbias R."""
    dparams["u"] += dslots["key_bias"]
    dv = np.zeros(params["v"].shape)
    for m in blocks(spec.length, spec.head_dim + spec.heads):
        behind, ahead = (side[:, m].astype(np.float64) for side in sides(dslots["bias"]))
        if m.start == 0:
            ahead[:, 0] = 0.0  # distance 0 is on both sides
        for dbias, rows in zip((behind, ahead), _sided("rel_key", form, _signed(m, spec.head_dim, form)), strict=True):
            dv += np.einsum("hr,rd->hd", dbias, rows)
    dparams["v"] += dv * _factor(spec, scaled)


ENCODING = Encoding(
    summary="sinusoids of the signed distance, unscaled scores",
    formula=r"""
        &\text{form } \mathrm{paper} \text{, } s = 1 \text{ or } 1 / \sqrt{D} \text{:} \\
        S_{ij} &= s\, [q_i \cdot k_j + q_i \cdot R_{i-j} + u \cdot k_j + v \cdot R_{i-j}] \\
        R_m &= [\sin(m w_0), \cos(m w_0), \sin(m w_1), \dots], \quad w_t = 10000^{-2t/D} \\
        &\text{form } \mathrm{code} \text{:} \\
        S_{ij} &= s\, [(q_i + u) \cdot k_j + (q_i + v) \cdot R_{j-i} + k_j \cdot R_{i-j}] \\
        R_m &= [\sin(m w_0), \sin(m w_1), \dots \mid \cos(m w_0), \dots], \quad w_t = 10000^{-t/(D/2 - 1)}
    """,
    use_when="a small bidirectional encoder tags words, where direction and distance matter",
    not_to_be_confused={"transformer_xl": "scaled scores, and a learned map of the sinusoids"},
    use="earlier",
    slots=("rel_key", "rel_query", "key_bias", "bias", "scale"),
    options={
        "form": Option("code", "the formula of the paper or of the released code", str, ("paper", "code")),
        "scaled": Option(False, "whether scores are divided by sqrt(D), unlike in the published model", bool),
    },
    beyond="defined",
    direction="yes",
    source="Yan et al. 2019, arXiv:1911.04474, sections 3.2.1 and 3.2.2",
    ulp=lambda spec, **options: 4.0 + 4.0 * spec.head_dim,  # for a sum of D products that do not cancel
    plain=lambda spec, *, scaled, **options: {} if scaled else {"scale": 1.0},
    check=lambda spec, **options: check_offsets("tener", spec),
    per_layer=("u", "v"),
)
