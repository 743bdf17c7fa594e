"""MrRoPE: RoPE whose pairs are slowed by factors that grow from pair to pair, as digits of a mixed radix.

    turns_t  = theta_t L0 / (2 pi),    theta_t = base^(-2t/R)
    l        = the last t with turns_t > beta_fast, or 0
    h        = the first t with turns_t < beta_slow, or R/2
    n        = max(h - l, 1),    u = clip(t - l, 0, n)
    theta'_t = theta_t / s^(u (u + 1) / (n (n + 1)))          rule `pro`
             = theta_t / s^(u / n)                            rule `uni`
    mscale   = 0.1 ln s + 1,     scale = mscale^2 / sqrt(D)

s is the target length divided by the training length L0, and R is the number of rotated channels.

Source: Tian, Zhu, Liu, Wang and Wang 2026, "MrRoPE: Mixed-radix Rotary Position Embedding" (arXiv:2601.22181, ICLR
2026), eqs. (13) to (16) and (26). The authors' code was not found; the formulas are those of a reproduction, checked
for one model's frequencies.

**Slots**: `angles` (1, N, R/2), `pairs`, `scale`; if R < D also `rotors` (1, 1, D, 1, 1), as for `rope_yarn`.
**Learns**: nothing. The fast pairs keep their frequency, and the slow ones are interpolated, as in `rope_yarn`. Between
them, each pair's step down from the one before is larger by a factor: the same for all pairs with `uni`, growing with
`pro`. The authors use it without further training.

**Options**
- `rule`: `pro` (progressive) or `uni` (uniform).
- `factor`: a fixed s. Default: the largest position plus one, divided by the training length, but at least 1.
- `beta_fast`, `beta_slow`: as for `rope_yarn`.
- `base`, `pairs`, `rotated`: as for `rope`. Use the values of the model that you extend.

**Past the training length**: defined; the encoding is designed for longer sequences.

**Traps.** l and h are whole indices of pairs, and there is no ramp between pairs as in YaRN. The paper defines no l and
h if no pair turns often or seldom enough: here l is 0 and h is R/2. Without a `factor`, angles and `scale` depend on
the length of the sequence.
"""

from decimal import Decimal
from functools import partial
from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.parts.angles import Frequencies
from fastpe.encodings.parts.rope_variant import rope_variant
from fastpe.encodings.parts.rotary import FACTOR, LARGEST, check_order, rope_options, stretch
from fastpe.encodings.rotation.rope_yarn import mscale
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.trig import PI


def frequencies(
    spec: Spec, theta: Frequencies, *, rule: str, factor: float | None, beta_fast: float, beta_slow: float,
    **options: Any,
) -> Frequencies:  # fmt: skip
    """theta_t / s^exponent_t."""
    s, slowed = stretch(spec, factor), []
    turns = [each * spec.train_length / (2 * PI) for each in theta]
    low = max((t for t, each in enumerate(turns) if each > Decimal(beta_fast)), default=0)
    high = min((t for t, each in enumerate(turns) if each < Decimal(beta_slow)), default=len(theta))
    n = max(high - low, 1)
    for t, each in enumerate(theta):
        u = Decimal(min(max(t - low, 0), n))
        slowed.append(each / s ** (u / n if rule == "uni" else u * (u + 1) / (n * (n + 1))))
    return tuple(slowed)


ENCODING = rope_variant(
    frequencies,
    mscale=mscale,
    summary="rotary, pairs slowed by growing factors",
    formula=r"""
        \mathrm{turns}_t &= \theta_t L_0 / (2 \pi), \quad \theta_t = \mathrm{base}^{-2t/R} \\
        l &= \text{the last } t \text{ with } \mathrm{turns}_t > \mathrm{beta\_fast},
            \quad h = \text{the first } t \text{ with } \mathrm{turns}_t < \mathrm{beta\_slow} \\
        n &= \max(h - l, 1), \quad u = \mathrm{clip}(t - l, 0, n) \\
        \theta'_t &= \theta_t / s^{u (u + 1) / (n (n + 1))} \quad \text{rule pro;}
            \quad \theta_t / s^{u / n} \quad \text{rule uni} \\
        \mathrm{mscale} &= 0.1 \ln s + 1, \quad \mathrm{scale} = \frac{\mathrm{mscale}^2}{\sqrt{D}}
    """,
    use_when="a RoPE model is used on longer texts without fine-tuning, as an alternative to YaRN",
    also_called=("MrRoPE", "MrRoPE-Pro", "MrRoPE-Uni", "mixed-radix rotary position embedding"),
    not_to_be_confused={
        "mrope": "M-RoPE, with positions in time, height and width",
        "rope_ntk_mixed": "mixed-base NTK, where all pairs are slowed",
        "rope_mixed": "learned frequencies of two axes, for images",
    },
    use="proposed",
    slots=("angles", "rotors", "pairs", "scale"),
    options={
        "rule": Option("pro", "whether the factors between pairs grow or are equal", str, ("pro", "uni")),
        "factor": FACTOR,
        "beta_fast": Option(
            32.0, "pairs with more turns in the training length keep their frequency", float, above=0.0, maximum=LARGEST
        ),
        "beta_slow": Option(
            1.0, "pairs with fewer turns in the training length are interpolated", float, above=0.0, maximum=LARGEST
        ),
        **rope_options("half"),
    },
    check=partial(check_order, "beta_fast", "beta_slow"),
    source="Tian et al. 2026, arXiv:2601.22181, eqs. (13) to (16) and (26)",
)
