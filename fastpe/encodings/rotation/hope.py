"""HoPE without decay: RoPE in which pairs that make no full turn within the training length are not rotated.

    theta'_t = theta_t    if theta_t >= 2 pi / L0
             = 0          else,                          theta_t = base^(-2t/R)

L0 is the training length, and R is the number of rotated channels.

Source: Chen, Lv, Luan, Wang and Liu 2024, "HoPE: A Novel Positional Encoding Without Long-Term Decay for Enhanced
Context Awareness and Extrapolation" (arXiv:2410.21216, ACL 2025). The authors' code was not found; the threshold is
that of two independent implementations.

**Slots**: `angles` (1, N, R/2), `pairs`. **Learns**: nothing. A pair that is not rotated adds a term to the score that
depends on the content only. Without the slow pairs, the upper bound of the score no longer falls with the distance.

**Options**
- `base`, `pairs`, `rotated`: as for `rope`.

**Past the training length**: defined. The rotated pairs have taken all their angles in training, apart from rounding
to whole positions; pairs that would reach new angles are not rotated.

**Traps.** The frequencies depend on the training length, so a model must be used with the value that it was trained
with. With base 10000 and L0 = 4096, 46 of 64 pairs are rotated. If L0 is below 2 pi, no pair is, and the encoding is
`nope`.
"""

from decimal import Decimal
from typing import Any

from fastpe.encodings.parts.angles import Frequencies
from fastpe.encodings.parts.rope_variant import rope_variant
from fastpe.encodings.parts.rotary import rope_options
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.trig import PI


def frequencies(spec: Spec, theta: Frequencies, **options: Any) -> Frequencies:
    """theta_t for pairs with a full turn in the training length, otherwise 0."""
    return tuple(each if each * spec.train_length >= 2 * PI else Decimal(0) for each in theta)


ENCODING = rope_variant(
    frequencies,
    summary="rotary, without pairs slower than the training",
    formula=r"""
        \theta'_t &= \begin{cases}
        \theta_t & \theta_t \ge 2 \pi / L_0 \\
        0 & \text{otherwise}
        \end{cases} \\
        \theta_t &= \mathrm{base}^{-2t/R}
    """,
    use_when="a model trained from scratch should meet no new angles on texts longer than in training",
    also_called=("HoPE without long-term decay", "high-frequency rotary position encoding"),
    not_to_be_confused={
        "HoPE, hybrid": "RoPE of vision-language models whose time axis is not rotated (arXiv:2505.20444)",
        "HoPE, hyperbolic": "hyperbolic functions in place of cosine and sine (arXiv:2509.05218)",
        "rope_proportional": "a fixed share of the pairs is rotated",
        "rope_clipped": "a fixed number of pairs is slowed, most of them not to a stop",
    },
    use="proposed",
    slots=("angles", "pairs"),
    options=rope_options("half"),
    source="Chen et al. 2024, arXiv:2410.21216",
)
