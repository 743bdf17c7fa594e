"""GRAPE-A: ALiBi whose slopes depend on the content of the key, of the query, or of both.

    S_ij = scale q_i . k_j - (i - j) sigma_h softplus(w_h) g_ij
    g_ij = softplus(u_h . k_j / sqrt(D))  or  softplus(v_h . q_i / sqrt(D))  or  their sum,      |u_h| = |v_h| = 1

q and k are the queries and keys of a layer before any rotation; sigma are ALiBi's slopes, which are fixed.

Source: GRAPE (ICLR 2026, as its code says), model-architectures/GRAPE, llama-mha-grape-a-keygated.py, -querygated.py
and -querykeygated.py. This page follows the released code; it was not checked against the paper.

**Slots**: none can be filled in advance. The encoding acts through `key_slope` and `query_slope`, which the model's
layers compute from their keys and queries. For `fastpe.attention`, compute them with `fastpe.columns.gated_slopes`.
**Learns**, separately in every layer: w as `weight` (H,), and the directions that `gate` needs: u as `key` (H, D), v as
`query` (H, D). The directions are divided by their norms before use.

**Options**
- `gate`: whose content sets the slopes: `key`, `query` or `both`.

Initially softplus(w) = 1, and the directions are normal with standard deviation 1/sqrt(D). Each softplus in g is
initially near ln 2 = 0.69, so penalties are about 0.69 times those of ALiBi, or 1.39 times with `both`.

**Past the training length**: defined. For causal models only.

**Traps.** The authors normalise q and k first (RMS), and do not rotate them. Here q and k are not normalised.
"rope+grape_a" rotates q and k in the product q_i . k_j, but not in the gates. The bias could also be computed with two
more channels of q and k, without slots. Far into a text, however, the products of these channels nearly cancel, so that
digits are lost. The product of offset and slope, which is used here, does not have this problem.
"""

import math
from typing import Any

from fastpe.base.option import Option
from fastpe.base.random import Stream
from fastpe.encodings.bias.alibi import slopes
from fastpe.encodings.encoding import Encoding, Gate
from fastpe.encodings.parts.offsets import stream_of
from fastpe.encodings.slots import Spec


def check(spec: Spec, *, gate: str) -> None:
    """Require a causal model, and a width that is a multiple of the number of heads."""
    _ = spec.head_dim
    if not spec.causal:
        raise ValueError("'grape_a' needs causal=True: scores of keys after the query would grow with the distance")


def parameters(spec: Spec, *, gate: str) -> dict[str, tuple[int, ...]]:
    """A weight and one or two directions for each head."""
    directions = ("key", "query") if gate == "both" else (gate,)
    return {"weight": (spec.heads,)} | dict.fromkeys(directions, (spec.heads, spec.head_dim))


def init(spec: Spec, rng: Stream, *, gate: str) -> dict[str, Any]:
    """The initial values of the authors' code."""
    import numpy as np

    shapes = parameters(spec, gate=gate)
    values: dict[str, Any] = {"weight": np.full(shapes.pop("weight"), math.log(math.expm1(1.0)))}
    return values | {name: stream_of(rng, name).normal(shape) * spec.head_dim**-0.5 for name, shape in shapes.items()}


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Fill nothing: the layers compute the slopes, see `fastpe.columns.gated_slopes`."""
    return {}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill nothing."""


ENCODING = Encoding(
    summary="ALiBi with slopes gated by keys or queries",
    formula=r"""
        S_{ij} &= \mathrm{scale}\, q_i \cdot k_j - (i - j)\, \sigma_h\, \mathrm{softplus}(w_h)\, g_{ij} \\
        g_{ij} &= \mathrm{softplus}(u_h \cdot k_j / \sqrt{D}) \quad \text{or}
            \quad \mathrm{softplus}(v_h \cdot q_i / \sqrt{D}) \quad \text{or their sum} \\
        \left| u_h \right| &= \left| v_h \right| = 1
    """,
    use_when="ALiBi's slopes should depend on the content of the key, the query or both",
    also_called=("additive GRAPE",),
    not_to_be_confused={"grape_m": "the multiplicative form: learned frequencies of rotations"},
    slots=(),
    gate=Gate(0, slopes),
    options={"gate": Option("key", "whose content sets the slopes", str, choices=("key", "query", "both"))},
    per_layer=("weight", "key", "query"),
    beyond="defined",
    direction="causal",
    use="proposed",
    source="GRAPE, ICLR 2026, by its released code",
    ulp=0.0,
)
