"""PaTH: tokens between a key and a query reflect the query, along directions of the content.

    S_ij = scale q_i . H_i H_{i-1} ... H_{j+1} k_j,      H_t = 1 - beta_t w_t w_t^T

    p_t = x_t down up;    y_t = silu( sum over k < 3 of taps_k p_{t-2+k} );    w_t = y_t / sqrt(|y_t|^2 + 1e-6)
    beta_t = 2 sigmoid(weight x_t + bias)

x is a layer's input after its norm; w is made head by head, beta is a number for each head. Between 0, which leaves a
query as it is, and 2, which reflects it, beta = 1 takes out all that lies along w.

Source: Yang, Shen, Wen, Tan, Mishra, Ren, Panda and Kim 2025, "PaTH Attention: Position Encoding via Accumulating
Householder Transformations" (arXiv:2505.16381), by its code: fla-org/flash-linear-attention, fla/layers/path_attn.py,
PaTHAttention. The paper was not read.

**Slots**: none that can be filled beforehand: the model's layers make `reflectors`, w, and `reflect`, beta, of their
input; `fastpe.reference.reflections` makes them in NumPy for `fastpe.attention`. **Learns**, separately in every layer:
`down`
(C, rank), `up` (rank, C), `taps` (3, C), that of the oldest first, `weight` (H, C) and `bias` (H,).

**Options**
- `rank`: 32 in the authors' code.

Initial values: uniform in +-1/sqrt(fan in), 1/sqrt(3) for taps, as maps and convolutions begin in the authors'
framework; beta is then about 1.

**Past the training length**: defined; a product of reflections does not decay with distance. For causal models alone.

**Traps.** What turns or scales queries and keys, as in "rope+path", does so before they are reflected; what adds to
scores adds to the reflected ones. "fox+path" is their PaTH-FoX, with the gate beside the scale as FoX has it, where
their code scales it too. Factors of channels (`spe`, `xpos`, `huang3`) and radii (`pope`) have no meaning beside it.
Tokens outside a window of `sight` reflect all the same; with `--positions documents:SEP` none outside a document does,
and the convolution begins anew with it. The 1e-6 is the default of the norm in their code, which rounds w to half
precision; here it is not rounded. A cache needs w and beta of all tokens, and the last two p, beside its keys. Their
norms of queries and keys, off by default, are not here.
"""

from typing import Any

from fastpe.base.option import Option
from fastpe.base.random import Stream
from fastpe.encodings.encoding import Encoding, Gate
from fastpe.encodings.parts.offsets import stream_of
from fastpe.encodings.slots import Spec

_TAPS = 3


def check(spec: Spec, **options: Any) -> None:
    """The model must be causal, and its heads must divide its width."""
    if spec.head_dim and not spec.causal:
        raise ValueError("'path' needs causal=True: tokens reflect the queries after them")


def parameters(spec: Spec, *, rank: int) -> dict[str, tuple[int, ...]]:
    """Two maps and the convolution's taps; and the map to a number for each head."""
    return {
        "down": (spec.dim, rank), "up": (rank, spec.dim), "taps": (_TAPS, spec.dim),
        "weight": (spec.heads, spec.dim), "bias": (spec.heads,),
    }  # fmt: skip


def init(spec: Spec, rng: Stream, *, rank: int) -> dict[str, Any]:
    """Uniform, by the fan in."""
    fans = {"down": spec.dim, "up": rank, "taps": _TAPS, "weight": spec.dim, "bias": spec.dim}
    return {
        name: (2 * stream_of(rng, name).uniform(shape) - 1) * fans[name] ** -0.5
        for name, shape in parameters(spec, rank=rank).items()
    }


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """No slot is filled: see `fastpe.reference.reflections`."""
    return {}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill nothing."""


ENCODING = Encoding(
    summary="content reflects queries from token to token",
    use="proposed",
    slots=(),
    gate=Gate(0, reflects=True),
    options={"rank": Option(32, "the rank of the map to directions", int, minimum=1, maximum=4096, samples=(2,))},
    per_layer=("down", "up", "taps", "weight", "bias"),
    beyond="defined",
    direction="causal",
    source="Yang et al. 2025, arXiv:2505.16381, by its released code",
    ulp=0.0,
)
