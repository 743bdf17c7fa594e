"""GRAPE-A: ALiBi whose slopes the content decides, that of the key, of the query, or of both.

    S_ij = scale q_i . k_j - (i - j) sigma_h softplus(w_h) g_ij
    g_ij = softplus(u_h . k_j / sqrt(D))  |  softplus(v_h . q_i / sqrt(D))  |  their sum,      |u_h| = |v_h| = 1

q and k are a layer's, before any rotation; sigma are ALiBi's slopes, which stay.

Source: GRAPE (ICLR 2026, as its code says), model-architectures/GRAPE, llama-mha-grape-a-keygated.py, -querygated.py
and -querykeygated.py. Its paper was not read.

**Slots**: none that can be filled beforehand: what it adds are `key_slope` and `query_slope`, which the model's layers
make of their keys and queries; `fastpe.columns.gated_slopes` makes them for `fastpe.attention`. **Learns**, separately
in every layer: `weight` (H,), w; `key` (H, D), u; `query` (H, D), v. The directions are divided by their norms.

**Options**
- `gate`: whose content: `key`, `query` or `both`.

Initial `weight`: softplus(w) = 1. Initial directions: normal of standard deviation 1/sqrt(D). The gate begins near
ln 2: distances count 0.69 times what they do with ALiBi.

**Past the training length**: defined. For causal models alone.

**Traps.** The authors norm q and k (RMS) before all this, and do not rotate; here there is no such norm, and
"rope+grape_a" rotates what is multiplied, not what is gated. As two more channels of q and k it would need no slots,
but their products cancel far into a text; offsets times slopes do not.
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
    """The model must be causal, its heads of one width."""
    _ = spec.head_dim
    if not spec.causal:
        raise ValueError("'grape_a' needs causal=True: a key after its query would gain by distance")


def parameters(spec: Spec, *, gate: str) -> dict[str, tuple[int, ...]]:
    """A weight for each head, and its directions."""
    directions = ("key", "query") if gate == "both" else (gate,)
    return {"weight": (spec.heads,)} | dict.fromkeys(directions, (spec.heads, spec.head_dim))


def init(spec: Spec, rng: Stream, *, gate: str) -> dict[str, Any]:
    """As the authors' code draws them."""
    import numpy as np

    shapes = parameters(spec, gate=gate)
    values: dict[str, Any] = {"weight": np.full(shapes.pop("weight"), math.log(math.expm1(1.0)))}
    return values | {name: stream_of(rng, name).normal(shape) * spec.head_dim**-0.5 for name, shape in shapes.items()}


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """No slot is filled: see `fastpe.columns.gated_slopes`."""
    return {}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill nothing."""


ENCODING = Encoding(
    summary="ALiBi with slopes gated by keys or queries",
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
