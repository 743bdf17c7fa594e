"""Selective RoPE: the content decides how far queries and keys turn from one token to the next.

    x^ = x / sqrt(|x|^2 + 1e-6), head by head;      p_t = x^_t down up;      f_t = sum over k < 4 of taps_k p_{t-3+k}
    theta_t,c = tau_c (f_0 + ... + f_t)_c,      tau_c = base^(-2c/D)

x is a layer's input after its norm. Query and key t are rotated by theta_t as RoPE does by t tau: between two tokens
stands the sum of f over those after the first. RoPE is the case f = 1.

Source: Movahedi, Carstensen, Afzal, Hutter, Orvieto and Cevher 2026, "Selective Rotary Position Embedding" (ICLR 2026,
openreview AQo1SEElNb), by its code: timurcarstensen/selective-rope, modules/rotary.py, SelectiveRoPE. The paper was not
read.

**Slots**: `pairs`. The angles cannot be filled beforehand: the model's layers make them of their input;
`fastpe.angles.selective` makes them for `fastpe.attention`. **Learns**, separately in every layer: `down` (C, rank),
`up`
(rank, C/2) and `taps` (4, C/2), that of the oldest first, with a column for each pair of channels of each head.

**Options**
- `base`: of the fixed frequencies tau, 500,000 in the authors' code.
- `rank`: 16 by default there, 32 in its configurations.
- `pairs`: `half` in the authors' code, channels c and c + D/2; or `interleaved`.

Initial values: uniform in +-1/sqrt(fan in), 1/2 for taps, as maps and convolutions begin in the authors' framework; a
head then turns by little from token to token. Their language models draw all of them with a standard deviation of 0.02:
at first nothing turns.

**Past the training length**: defined. The sums are those of a random walk, and training shows only so much of it. For
causal models alone.

**Traps.** Sums of angles over a long text lose their digits in float32: here they are made in float64, and whole turns
are taken away. Angles are relative along the path of the text, not in key - query. A cache needs the last sums and the
last three p beside its keys; both begin anew with a document (`documents:`). The authors' options that they leave off
are not here: a gate or a bias for f, an activation after the convolution, learned or other tau. With
"rope+selective_rope", which must rotate all pairs by the same layout, angles add up; "fox+selective_rope" forgets as
well.
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
    """The model must be causal, its heads made of pairs."""
    rotated_width(spec, None)
    if not spec.causal:
        raise ValueError("'selective_rope' needs causal=True: its convolution and sums read what came before")


def parameters(spec: Spec, *, rank: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """Two maps, and the convolution's taps."""
    pairs = spec.dim // 2
    return {"down": (spec.dim, rank), "up": (rank, pairs), "taps": (_TAPS, pairs)}


def init(spec: Spec, rng: Stream, **options: Any) -> dict[str, Any]:
    """Uniform, by the fan in, which is the number of rows."""
    return {
        name: (2 * stream_of(rng, name).uniform(shape) - 1) * shape[0] ** -0.5
        for name, shape in parameters(spec, **options).items()
    }


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """No array is filled."""
    return {}


def frequencies(width: int, *, base: float, **options: Any) -> list[float]:
    """tau, of heads of this width."""
    return [float(each) for each in ladder(base, width)]


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """No array is filled: see `fastpe.angles.selective`."""
    return {}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill nothing."""


ENCODING = Encoding(
    summary="rotates by running sums of what content says",
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
