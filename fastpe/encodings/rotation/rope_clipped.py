"""Clipped RoPE: RoPE in which the slowest pairs are slowed further, the last one to a standstill.

    w_t      = 1                                         for t < R/2 - n
             = (1 + cos(pi u / (n - 1))) / 2             else, u = t - (R/2 - n) = 0 .. n - 1
    theta'_t = theta_t w_t,    theta_t = base^(-2t/R)

R is the number of rotated channels, and n the number of clipped pairs, at most R/2.

Source: Li et al. 2026, "CoPE: Clipped RoPE as A Scalable Free Lunch for Long Context LLMs" (arXiv:2602.05258);
hrlics/CoPE, modeling_cope.py, LlamaRotaryEmbedding.

**Slots**: `angles` (1, N, R/2), `pairs`. **Learns**: nothing. The slow pairs, whose angles a model has not seen
beyond its training length, depend less on the position. According to the authors, a smooth window avoids the spectral
leakage of a hard cut.

**Options**
- `count`: n. The authors use 20 for heads of 128 channels. The number is not scaled with the width of a head: with 64
  channels, 20 of the 32 pairs are clipped.
- `soft`: whether w_t falls smoothly, as above. Otherwise w_t = 0 for all n pairs ("HardClip" in the authors' code).
- `base`, `pairs`, `rotated`: as for `rope`; the authors' code uses `half`.

**Past the training length**: defined. The authors replace the frequencies of a trained model and tune it at the new
length. Pairs that are neither clipped nor fast still reach angles that did not occur in training.

**Traps.** The first clipped pair keeps its frequency, because w = 1 at u = 0, and only the last one stands still. So
`soft` with n = 2 is the hard cut with n = 1, and n = 1 changes nothing. If the rotary type of the authors' model is
dynamic, their code uses the soft window beyond the training length in a model with the hard cut too.
"""

from decimal import Decimal
from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.parts.angles import Frequencies
from fastpe.encodings.parts.rope_variant import rope_variant
from fastpe.encodings.parts.rotary import rope_options
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.trig import PI


def _sine(x: Decimal) -> Decimal:
    """The sine of x in [0, pi / 2], by its series, with the precision of the context."""
    total, term, k = Decimal(0), x, 1
    while total != total + term:
        total += term
        term *= -x * x / ((k + 1) * (k + 2))
        k += 2
    return total


def frequencies(spec: Spec, theta: Frequencies, *, count: int, soft: bool, **options: Any) -> Frequencies:
    """theta_t w_t; (1 + cos a) / 2 is computed as the square of sin((pi - a) / 2), which is exactly 0 for the last
    pair."""
    n = min(count, len(theta))
    kept = len(theta) - n
    if not soft:
        return theta[:kept] + (Decimal(0),) * n
    last = n - 1
    window = [_sine(PI * (last - u) / (2 * last)) ** 2 if last else Decimal(1) for u in range(n)]
    return theta[:kept] + tuple(each * w for each, w in zip(theta[kept:], window, strict=True))


ENCODING = rope_variant(
    frequencies,
    summary="rotary, with the slowest pairs slowed to a stop",
    formula=r"""
        w_t &= \begin{cases}
        1 & t < R/2 - n \\
        \left(1 + \cos(\pi u / (n - 1))\right) / 2 & u = t - (R/2 - n) \ge 0
        \end{cases} \\
        \theta'_t &= \theta_t\, w_t, \quad \theta_t = \mathrm{base}^{-2t/R}
    """,
    use_when="a RoPE model is tuned for longer texts, and its slowest pairs should not reach new angles",
    also_called=("Clipped RoPE", "CoPE, clipped RoPE"),
    not_to_be_confused={
        "cope": "contextual position encoding, which counts keys and has the same short name in its paper",
        "rope_proportional": "a hard cut after a share of the pairs, from the start of training",
        "hope": "a hard cut whose place follows from the training length",
    },
    use="proposed",
    slots=("angles", "pairs"),
    options={
        "count": Option(20, "how many of the slowest pairs are clipped", int, minimum=0),
        "soft": Option(True, "whether frequencies fall smoothly; otherwise the clipped pairs are not rotated", bool),
        **rope_options("half"),
    },
    source="Li et al. 2026, arXiv:2602.05258, and released code",
)
