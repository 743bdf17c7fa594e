"""PaTH: every token between a key and a query reflects the query along a direction that depends on the token.

    S_ij = scale q_i . H_i H_{i-1} ... H_{j+1} k_j,      H_t = 1 - beta_t w_t w_t^T

    p_t = x_t down up;    y_t = silu( sum over k < 3 of taps_k p_{t-2+k} );    w_t = y_t / sqrt(|y_t|^2 + 1e-6)
    beta_t = 2 sigmoid(weight x_t + bias)

x is the input of a layer after normalisation; w is normalised separately in each head, and beta is a number for each
head. beta = 0 leaves a query unchanged, beta = 1 removes its component along w, and beta = 2 reflects it.

Source: Yang, Shen, Wen, Tan, Mishra, Ren, Panda and Kim 2025, "PaTH Attention: Position Encoding via Accumulating
Householder Transformations" (arXiv:2505.16381), and released code: fla-org/flash-linear-attention,
fla/layers/path_attn.py, PaTHAttention. This page follows the released code; it was not checked against the paper.

**Slots**: none that `fastpe.build` fills. The slots `reflectors`, which contains w, and `reflect`, which contains beta,
depend on the tokens. The layers of a model compute them from their input. For `fastpe.attention`,
`fastpe.reference.reflections` computes them in NumPy. **Learns**, separately in every layer: `down` (C, rank), `up`
(rank, C), `taps` (3, C), oldest first, `weight` (H, C) and `bias` (H,).

**Options**
- `rank`: the rank of the linear map from x to p; 32 in the authors' code.

Initial values are uniform in ±1/sqrt(fan in), which is ±1/sqrt(3) for the taps. These are the defaults of linear maps
and convolutions in the authors' framework. beta is initially about 1.

**Past the training length**: defined; a product of reflections does not decay with distance. For causal models only.

**Traps.** Other encodings that rotate or scale queries and keys, as in "rope+path", act before the reflections;
encodings that add to scores act after them. "fox+path" is the authors' PaTH-FoX. The authors' code of PaTH-FoX
multiplies the gate by the scale; here, as in FoX, it is not multiplied. Combinations with encodings that multiply
channels by factors (`spe`, `xpos`, `huang3`), or that use radii (`pope`), are not meaningful. If the setting `sight`
limits queries to a window, the reflections of tokens outside the window are still applied. With `--positions
documents:SEP`, a token reflects only queries of its own document, and the convolution restarts with each document. The
constant 1e-6 is the default of the normalisation in the authors' code. The authors' code rounds w to half precision;
here w is not rounded. A key/value cache must also hold w and beta of all tokens, and p of the last two tokens. The
authors' code can also normalise queries and keys, which is off by default; this is not implemented.
"""

from typing import Any

from fastpe.base.option import Option
from fastpe.base.random import Stream
from fastpe.encodings.encoding import Encoding, Gate
from fastpe.encodings.parts.offsets import stream_of
from fastpe.encodings.slots import Spec

_TAPS = 3


def check(spec: Spec, **options: Any) -> None:
    """Require a causal model, and a width that is a multiple of the number of heads."""
    if spec.head_dim and not spec.causal:
        raise ValueError("'path' needs causal=True: tokens reflect the queries after them")


def parameters(spec: Spec, *, rank: int) -> dict[str, tuple[int, ...]]:
    """The two maps to directions, the taps of the convolution, and the map to beta."""
    return {
        "down": (spec.dim, rank), "up": (rank, spec.dim), "taps": (_TAPS, spec.dim),
        "weight": (spec.heads, spec.dim), "bias": (spec.heads,),
    }  # fmt: skip


def init(spec: Spec, rng: Stream, *, rank: int) -> dict[str, Any]:
    """Uniform in +-1/sqrt(fan in)."""
    fans = {"down": spec.dim, "up": rank, "taps": _TAPS, "weight": spec.dim, "bias": spec.dim}
    return {
        name: (2 * stream_of(rng, name).uniform(shape) - 1) * fans[name] ** -0.5
        for name, shape in parameters(spec, rank=rank).items()
    }


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Fill nothing: the layers compute the reflections, see `fastpe.reference.reflections`."""
    return {}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill nothing."""


ENCODING = Encoding(
    summary="every token reflects the query, by its content",
    formula=r"""
        S_{ij} &= \mathrm{scale}\, q_i \cdot H_i H_{i-1} \dots H_{j+1} k_j, \quad H_t = 1 - \beta_t w_t w_t^{\top} \\
        p_t &= x_t\, \mathrm{down}\, \mathrm{up},
            \quad y_t = \mathrm{silu}\left(\sum_{k < 3} \mathrm{taps}_k\, p_{t-2+k}\right),
                \quad w_t = \frac{y_t}{\sqrt{\left| y_t \right|^2 + 10^{-6}}} \\
        \beta_t &= 2\, \mathrm{sigmoid}(\mathrm{weight}\, x_t + \mathrm{bias})
    """,
    use_when="a causal model must track state or find pairs, also beyond its training length",
    also_called=("PaTH attention",),
    not_to_be_confused={
        "GRAPE-AP": "slopes that add up along a path: `grape_a`",
        "path-star": "a task about graphs",
    },
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
