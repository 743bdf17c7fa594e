"""p-RoPE: RoPE in which the slowest pairs are not rotated.

    n = floor(p D/2),   theta_t = base^(-2t/D) / s for t < n,   theta_t = 0 for n <= t < D/2

Source: Barbero, Vitvitskyi, Perivolaropoulos, Pascanu and Velickovic 2024, "Round and Round We Go! What makes Rotary
Positional Encodings useful?" (arXiv:2410.06205), section 6.1; google-deepmind/gemma,
gemma/gm/math/_positional_embeddings.py, apply_rope, argument rope_proportion; huggingface/transformers,
modeling_rope_utils.py, rope type "proportional".

**Slots**: `angles` (1, N, D/2), `pairs`. **Learns**: nothing. The term that a pair without rotation adds to a score
depends on the content only, at any distance.

**Options**
- `proportion`: p, the share of the pairs that are rotated. Gemma 4 uses p = 0.25 and the base 1000000 in its global
  layers. In the paper p = 0.75 was best; its base is 10000. p = 1 gives `rope`, and p = 0 gives `nope`.
- `factor`: s, by which positions are divided, as in `rope_linear`.
- `base`: as for `rope`.
- `pairs`: as for `rope`; the code uses `half`.

**Past the training length**: defined. Pairs that are not rotated have the angle 0, as in training; the slowest of the
other pairs reach angles that did not occur in training.

**Traps.** This differs from `rope` with the option `rotated`: the frequencies are those of a head in which all channels
are rotated. If `pairs` is `half`, channel t is still paired with channel t + D/2. The product p D/2 is rounded down:
with D = 10, p = 0.3 gives one pair. Gemma normalises queries and keys, and does not multiply scores by 1/sqrt(D).
"""

from decimal import Decimal
from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.parts.angles import Frequencies
from fastpe.encodings.parts.rope_variant import rope_variant
from fastpe.encodings.parts.rotary import LARGEST, base_option, interpolated, pairs_option
from fastpe.encodings.slots import Spec


def frequencies(
    spec: Spec, theta: Frequencies, *, proportion: float, factor: float, **options: Any
) -> Frequencies:  # fmt: skip
    """theta_t / s for t < n, otherwise 0; n is computed in float64 and rounded down, as in the authors' code."""
    n = int(proportion * (2 * len(theta)) // 2)
    return interpolated(theta[:n], Decimal(factor)) + (Decimal(0),) * (len(theta) - n)


ENCODING = rope_variant(
    frequencies,
    summary="rotary, but the slowest pairs are not rotated",
    formula=r"""
        n &= \lfloor p\, D / 2 \rfloor \\
        \theta_t &= \begin{cases}
        \mathrm{base}^{-2t/D} / s & t < n \\
        0 & n \le t < D/2
        \end{cases}
    """,
    use_when="some channels should match content at any distance, as in Gemma 4's global layers",
    also_called=("p-RoPE", "proportional RoPE"),
    not_to_be_confused={
        "partial rotary": "`rope` with its option `rotated`, where the frequencies are those of a narrower head",
        "rope_clipped": "a fixed number of pairs is slowed, most of them not to a stop",
        "hope": "the number of rotated pairs follows from the training length",
        "Periodic RoPE": "positions modulo the window",
    },
    use="current",
    slots=("angles", "pairs"),
    options={
        "proportion": Option(
            0.25, "share of the pairs that are rotated", float, minimum=0.0, maximum=1.0, samples=(0.5, 0.75, 1.0, 0.0)
        ),
        "factor": Option(1.0, "positions are divided by this factor", float, minimum=1.0, maximum=LARGEST),
        "base": base_option(),
        "pairs": pairs_option("half"),
    },
    source="Barbero et al. 2024, arXiv:2410.06205, section 6.1",
)
