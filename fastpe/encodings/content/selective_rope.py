"""Selective RoPE: rotary, but the angle from one token to the next depends on the content.

    x^ = x / sqrt(|x|^2 + 1e-6), head by head;      p_t = x^_t down up;      f_t = sum over k < 4 of taps_k p_{t-3+k}
    theta_t,c = tau_c (f_0 + ... + f_t)_c,      tau_c = base^(-2c/D)

x is the input of a layer after normalisation. The query and key of token t are rotated by theta_t (RoPE rotates them by
t tau instead). So the angle between tokens s < t is tau times (f_{s+1} + ... + f_t). If f = 1 everywhere, this is RoPE.

Source: Movahedi, Carstensen, Afzal, Hutter, Orvieto and Cevher 2026, "Selective Rotary Position Embedding" (ICLR 2026,
openreview AQo1SEElNb). This page follows the released code (timurcarstensen/selective-rope, modules/rotary.py,
SelectiveRoPE); it was not checked against the paper.

**Slots**: `pairs`. No slot holds the angles, because they depend on the content: the model's layers compute them from
their input. To call `fastpe.attention` yourself, compute the angles with `fastpe.angles.selective`. **Learns**,
separately in every layer: `down` (C, rank), `up` (rank, C/2) and `taps` (4, C/2). The C/2 columns are the pairs of
channels of all heads. The first of the four taps multiplies the oldest token.

**Options**
- `base`: the base of the fixed frequencies tau, 500,000 in the authors' code.
- `rank`: the rank of the map from x^ to p; 16 by default in the authors' code, 32 in its configurations.
- `pairs`: `half` (pairs of the channels c and c + D/2, as in the authors' code) or `interleaved` (adjacent channels).

Initial values are uniform in +-1/sqrt(fan in), which is +-1/2 for the taps. These are the defaults of linear maps and
convolutions in the authors' framework. Initially, a head rotates only a little from one token to the next. The authors'
language models instead draw all these parameters with a standard deviation of 0.02, so initially almost nothing
rotates.

**Past the training length**: defined. The sums of f behave like a random walk, so longer texts can reach values that
training did not cover. For causal models only.

**Traps.** In float32, sums of angles over a long text would be inaccurate; here they are computed in float64, and whole
turns are removed. The angle between two tokens depends on all tokens between them, not only on their distance. A cache
of keys must also hold the sums f_0 + ... + f_t of its last token t, and the vectors p of its last three tokens. With
`--positions documents:SEP`, the sums and the convolution start again at each document. Options that are off by default
in the authors' code are not implemented: a gate or a bias for f, an activation after the convolution, and a learned or
different tau. In "rope+selective_rope" the angles add up; both encodings must then rotate all channels, with the same
`pairs` layout. "fox+selective_rope" adds a forget gate.
"""

from typing import Any

from fastpe.base.option import Option
from fastpe.base.random import Stream
from fastpe.encodings.encoding import Encoding, Gate
from fastpe.encodings.parts.offsets import stream_of
from fastpe.encodings.parts.rotary import base_option, ladder, pairs_option, plain_pairs, rotated_width
from fastpe.encodings.slots import Spec

_TAPS = 4


def check(spec: Spec, **options: Any) -> None:
    """Require a causal model and heads of an even width."""
    rotated_width(spec, None)
    if not spec.causal:
        raise ValueError("'selective_rope' needs causal=True: its convolution and sums read earlier tokens")


def parameters(spec: Spec, *, rank: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """The two maps, and the taps of the convolution."""
    pairs = spec.dim // 2
    return {"down": (spec.dim, rank), "up": (rank, pairs), "taps": (_TAPS, pairs)}


def init(spec: Spec, rng: Stream, **options: Any) -> dict[str, Any]:
    """Uniform in +-1/sqrt(fan in); the fan in is the number of rows."""
    return {
        name: (2 * stream_of(rng, name).uniform(shape) - 1) * shape[0] ** -0.5
        for name, shape in parameters(spec, **options).items()
    }


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """The reference fills no array."""
    return {}


def frequencies(width: int, *, base: float, **options: Any) -> list[float]:
    """tau for heads of this width."""
    return [float(each) for each in ladder(base, width)]


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Fill nothing: the layers compute the angles, see `fastpe.angles.selective`."""
    return {}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill nothing."""


ENCODING = Encoding(
    summary="rotary, with angles that depend on the content",
    formula=r"""
        \hat{x} &= \frac{x}{\sqrt{\left| x \right|^2 + 10^{-6}}} \text{ head by head},
            \quad p_t = \hat{x}_t\, \mathrm{down}\, \mathrm{up}, \quad f_t = \sum_{k < 4} \mathrm{taps}_k\, p_{t-3+k} \\
        \theta_{t,c} &= \tau_c\, (f_0 + \dots + f_t)_c, \quad \tau_c = \mathrm{base}^{-2c/D}
    """,
    use_when="you study rotations whose angles depend on the content; nothing on longer texts was found",
    not_to_be_confused={
        "RePo": "angles from the content of each token, without a running sum: `fastpe.angles.repo`",
        "CARoPE": "running sums of powers of a number for each token: `fastpe.angles.carope`",
        "selective attention": "tokens lower the scores of earlier keys for later queries, without rotations",
    },
    use="proposed",
    slots=("pairs",),
    gate=Gate(0, frequencies=frequencies),
    options={
        "base": base_option(500000.0),
        "rank": Option(16, "the rank of the map to angles", int, minimum=1, maximum=4096, samples=(2,)),
        "pairs": pairs_option("half"),
    },
    per_layer=("down", "up", "taps"),
    beyond="defined",
    direction="causal",
    source="Movahedi et al. 2026, openreview AQo1SEElNb, by its released code",
    ulp=0.0,
    plain=plain_pairs,
)
