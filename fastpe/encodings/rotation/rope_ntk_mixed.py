"""A variant of NTK-aware scaling: RoPE whose frequency of pair t is multiplied by exp(-a (t+1)^b).

    theta'_t = base^(-2t/R) e^(-a (t+1)^b),   a = ln k / (R/2)^b,   t = 0 .. R/2 - 1

The frequency of the slowest pair is divided by exactly k, as in `rope_ntk`, and that of the fastest by a little more
than 1. The author calls the method "mixed radix", because it treats the pairs as digits of a number whose digits have
different bases.

Source: Su 2023, "Transformer's upgrade path 11" (kexue.fm/archives/9706); bojone/rerope, ntk_patch.py.

**Slots**: `angles` (1, N, R/2), `pairs`. **Learns**: nothing.

**Options**
- `factor`: k. Default: the largest position plus one, divided by the training length, but at least 1. The author uses
  12 for models with a training length of 4096.
- `power`: b. Default: 0.75. With b = 1 the frequencies form a geometric sequence, as in `rope`, but the first frequency
  is divided by k^(2/R).
- `base`, `pairs`, `rotated`: as for `rope`. Use the values of the model that is extended. The author's code is for the
  Hugging Face versions of LLaMA, and uses `pairs` = `half`.

**Past the training length**: defined; the encoding is designed for longer sequences, without fine-tuning. The author
also multiplies queries by max(1, ln(i + 1) / ln L0), where L0 is the training length; this factor is not part of the
encoding, but `log_n` adds it.

**Traps.** Without a `factor` the angles depend on the length of the sequence: keys that were cached at another length
are wrong.
"""

from decimal import Decimal
from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.parts.angles import Frequencies
from fastpe.encodings.parts.rope_variant import rope_variant
from fastpe.encodings.parts.rotary import FACTOR, rope_options, stretch
from fastpe.encodings.slots import Spec


def printed(spec: Spec, theta: Frequencies, *, factor: float | None, power: float, **options: Any) -> Frequencies:
    """theta'_t as printed."""
    a = stretch(spec, factor).ln() / Decimal(len(theta)) ** Decimal(power)
    return tuple(each * (-a * Decimal(t + 1) ** Decimal(power)).exp() for t, each in enumerate(theta))


def frequencies(spec: Spec, theta: Frequencies, *, factor: float | None, power: float, **options: Any) -> Frequencies:
    """The frequencies of `printed`: frequency t is divided by k^(((t+1) / (R/2))^b)."""
    k = stretch(spec, factor)
    return tuple(each / k ** ((Decimal(t + 1) / len(theta)) ** Decimal(power)) for t, each in enumerate(theta))


ENCODING = rope_variant(
    frequencies,
    printed=printed,
    summary="rotary, slowed down by a stretched exponential",
    formula=r"""
        \theta'_t &= \mathrm{base}^{-2t/R}\, e^{-a (t + 1)^b}, \quad t = 0, \dots, R/2 - 1 \\
        a &= \frac{\ln k}{(R/2)^b}
    """,
    use_when="you compare scalings of RoPE that need no fine-tuning; here it did about as well as rope_ntk",
    not_to_be_confused={"mrope": "positions of several coordinates, not a mixed radix"},
    use="proposed",
    slots=("angles", "pairs"),
    options={
        "factor": FACTOR,
        "power": Option(
            0.75,
            "exponent b; a smaller value slows down the fast pairs more",
            float,
            above=0.0,
            maximum=100.0,
        ),
        **rope_options("half"),
    },
    source="Su 2023, kexue.fm/archives/9706, and released code",
)
