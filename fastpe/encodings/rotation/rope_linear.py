"""Position interpolation: RoPE with every frequency divided by the same factor.

    theta'_t = theta_t / s,     s = target length / training length        (`rope`: theta_t = base^(-2t/R))

Source: Chen et al. 2023, "Extending Context Window of Large Language Models via Positional Interpolation"
(arXiv:2306.15595), section 2.3, eq. (4).

**Slots**: `angles` (1, N, R/2), `pairs`. **Learns**: nothing.

**Options**
- `factor`: s. Default: the largest position plus one, divided by the training length, but at least 1. With this default
  no angle is larger than the largest angle of training.
- `base`, `pairs`, `rotated`: as for `rope`. Use the values of the model that is extended.

**Past the training length**: defined; the encoding is designed for longer sequences. The authors fine-tune the model at
the new length.

**Traps.** Without a `factor` the angles depend on the length of the sequence: keys that were cached at another length
are wrong. The fast pairs are also slowed down s times, so neighbouring positions are harder to tell apart; later
methods, such as `rope_ntk` and `rope_yarn`, avoid this.
"""

from typing import Any

from fastpe.encodings.encoding import Reported
from fastpe.encodings.parts.angles import Frequencies
from fastpe.encodings.parts.rope_variant import rope_variant
from fastpe.encodings.parts.rotary import FACTOR, interpolated, rope_options, stretch
from fastpe.encodings.slots import Spec


def frequencies(spec: Spec, theta: Frequencies, *, factor: float | None, **options: Any) -> Frequencies:
    """theta_t / s (Chen et al. 2023, eq. 4)."""
    return interpolated(theta, stretch(spec, factor))


ENCODING = rope_variant(
    frequencies,
    summary="rotary, with positions divided by one factor",
    formula=r"""
        \theta'_t = \frac{\theta_t}{s}, \quad s = \frac{\text{target length}}{\text{training length}},
            \quad \theta_t = \mathrm{base}^{-2t/R}
    """,
    use_when="a RoPE model is fine-tuned at a longer length, and the simplest scaling is wanted",
    also_called=("position interpolation", "PI", "linear scaling"),
    not_to_be_confused={
        "ms_poe": "each head divides positions by a number of its own",
    },
    use="current",
    slots=("angles", "pairs"),
    options={"factor": FACTOR, **rope_options("interleaved")},
    source="Chen et al. 2023, arXiv:2306.15595, section 2.3, eq. (4)",
    reported=Reported(
        "tuned",
        "LLaMA 7B (2048 tokens): perplexity on PG19 at 8192 16.10 untuned, 6.95 after 1000 steps; 6.77 at "
        "32768 once tuned.",
        "Chen, Wong, Chen and Tian 2023, arXiv:2306.15595, tables 1 and 3",
    ),
)
