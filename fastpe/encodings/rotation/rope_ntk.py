"""NTK-aware scaling: RoPE with a larger base, which slows down the slow pairs but not the fast ones.

    base' = base s^(R/(R-2)),   theta'_t = base'^(-2t/R),     s = target length / training length

The first frequency stays 1, and the last is divided by exactly s.

Source: bloc97 2023, "NTK-Aware Scaled RoPE allows LLaMA models to have extended (8k+) context size without any
fine-tuning and minimal perplexity degradation" (post); Peng et al. 2023, "YaRN: Efficient Context Window Extension of
Large Language Models" (arXiv:2309.00071), section 3.1, eq. (16); jquesnelle/yarn,
scaled_rope/LlamaNTKScaledRotaryEmbedding.py.

**Slots**: `angles` (1, N, R/2), `pairs`. **Learns**: nothing.

**Options**
- `factor`: s. Default: the largest position plus one, divided by the training length, but at least 1.
- `base`, `pairs`, `rotated`: as for `rope`. Use the values of the model that is extended. The authors' code is for the
  Hugging Face versions of LLaMA, and uses `pairs` = `half`.

**Past the training length**: defined; the encoding is designed for longer sequences. It works without fine-tuning, but
only for sequences shorter than s training lengths, because all frequencies except the last are divided by less than s.
In practice, `factor` is therefore set to more than the ratio of the two lengths.

**Traps.** Without a `factor` the angles depend on the length of the sequence: keys that were cached at another length
are wrong. If only two channels are rotated, the first pair is the only one, and the encoding is that of `rope`.
"""

from decimal import Decimal
from typing import Any

from fastpe.encodings.encoding import Reported
from fastpe.encodings.parts.angles import Frequencies
from fastpe.encodings.parts.rope_variant import rope_variant
from fastpe.encodings.parts.rotary import FACTOR, of_larger_base, printed_ladder, rope_options, stretch
from fastpe.encodings.slots import Spec


def printed(
    spec: Spec, theta: Frequencies, *, factor: float | None, base: float, **options: Any
) -> Frequencies:  # fmt: skip
    """base'^(-2t/R), with base' computed by the printed formula."""
    width = 2 * len(theta)
    if width == 2:
        return theta
    return printed_ladder(Decimal(base) * stretch(spec, factor) ** (Decimal(width) / (width - 2)), width)


def frequencies(spec: Spec, theta: Frequencies, *, factor: float | None, **options: Any) -> Frequencies:
    """The frequencies of `printed`: frequency t of `rope` is divided by s^(t / (R/2 - 1))."""
    return of_larger_base(theta, stretch(spec, factor))


ENCODING = rope_variant(
    frequencies,
    printed=printed,
    summary="rotary, with a larger base for longer texts",
    formula=r"""
        \mathrm{base}' = \mathrm{base}\, s^{R / (R - 2)}, \quad \theta'_t = (\mathrm{base}')^{-2t/R},
            \quad s = \frac{\text{target length}}{\text{training length}}
    """,
    use_when="a RoPE model must read up to a few times its training length without fine-tuning",
    also_called=("NTK-aware scaling", "NTK-aware"),
    not_to_be_confused={
        "rope_dynamic": "the factor grows with the length of the text",
        "rope_ntk_mixed": "pairs are slowed down by a stretched exponential",
    },
    use="current",
    slots=("angles", "pairs"),
    options={"factor": FACTOR, **rope_options("half")},
    source="bloc97 2023; Peng et al. 2023, arXiv:2309.00071, section 3.1, eq. (16)",
    reported=Reported(
        "partly",
        "According to a later paper, it reaches at most about four times the trained length without fine-tuning.",
        "Ding et al. 2024, arXiv:2402.13753, section 2.1",
    ),
)
