"""Dynamic NTK scaling: RoPE whose base grows with the length if the length exceeds the training length.

    n = max(length, L0),   base' = base alpha^(R/(R-2)),   theta'_t = base'^(-2t/R)
    rule `smooth`: alpha = f n / L0 - (f - 1)
    rule `steps`:  alpha = max(2^ceil(log2(n / L0) + 1) - 1, 1)

L0 is the training length, and the length is the largest position plus one.

Source: emozilla 2023, "Dynamically Scaled RoPE further increases performance of long context LLaMA with zero
fine-tuning" (post); for f = 1, Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models"
(arXiv:2309.00071), section 3.3 with eq. (16); for any f, jquesnelle/yarn,
scaled_rope/LlamaDynamicScaledRotaryEmbedding.py; the steps are those of Qwen (Bai et al. 2023, arXiv:2309.16609),
modeling_qwen.py, get_ntk_alpha.

**Slots**: `angles` (1, N, R/2), `pairs`. **Learns**: nothing.

**Options**
- `factor`: f, how fast the base grows with the rule `smooth`. The default is 1, which gives base' = base
  (n/L0)^(R/(R-2)). The last frequency is then divided by n/L0. Published models use 2 or more.
- `rule`: the formula of alpha, `smooth` or `steps`. With `steps`, alpha is 1 for lengths up to L0, 3 up to 2 L0, 7 up
  to 4 L0, and so on. The angles therefore change only when the length passes L0, 2 L0, 4 L0, ... While generating, Qwen
  keeps the alpha of the prompt's length.
- `base`, `pairs`, `rotated`: as for `rope`. Use the values of the model that is extended. The authors' code is for the
  Hugging Face versions of LLaMA, and uses `pairs` = `half`.

**Past the training length**: defined; the encoding is designed for longer sequences. Up to the training length it is
the same as `rope`, so the quality on short sequences does not change.

**Traps.** One more token changes the angles of all tokens before it, so keys must be cached before they are rotated.
All samples of a batch have the same n.
"""

import math
from decimal import Decimal
from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.encoding import Reported
from fastpe.encodings.parts.angles import Frequencies
from fastpe.encodings.parts.rope_variant import rope_variant
from fastpe.encodings.parts.rotary import LARGEST, of_larger_base, printed_ladder, reach, rope_options
from fastpe.encodings.slots import Spec


def printed(
    spec: Spec, theta: Frequencies, *, factor: float, rule: str, base: float, **options: Any
) -> Frequencies:  # fmt: skip
    """base'^(-2t/R), with base' computed by the printed formula."""
    width, f = 2 * len(theta), Decimal(factor)
    if width == 2:
        return theta
    n = max(Decimal(float(spec.points().max())) + 1, Decimal(spec.train_length))
    alpha = f * n / spec.train_length - (f - 1)
    if rule == "steps":
        alpha, power = Decimal(1), Decimal(1)
        while n > power * spec.train_length:
            power *= 2
            alpha = 2 * power - 1
    return printed_ladder(Decimal(base) * alpha ** (Decimal(width) / (width - 2)), width)


def frequencies(spec: Spec, theta: Frequencies, *, factor: float, rule: str, **options: Any) -> Frequencies:
    """The frequencies of `printed`: frequency t of `rope` is divided by alpha^(t / (R/2 - 1))."""
    lengths = reach(spec) / spec.train_length
    alpha = 1 + Decimal(factor) * (lengths - 1)
    if rule == "steps":
        alpha = Decimal(2 * 2 ** (math.ceil(lengths) - 1).bit_length() - 1)
    return of_larger_base(theta, alpha)


ENCODING = rope_variant(
    frequencies,
    printed=printed,
    summary="rotary, with a base that grows with the length",
    formula=r"""
        n &= \max(\mathrm{length}, L_0), \quad \mathrm{base}' = \mathrm{base}\, \alpha^{R / (R - 2)},
            \quad \theta'_t = (\mathrm{base}')^{-2t/R} \\
        \alpha &= \frac{f n}{L_0} - (f - 1) \quad \text{rule } \mathrm{smooth} \\
        \alpha &= \max\left(2^{\lceil \log_2(n / L_0) + 1 \rceil} - 1,\ 1\right) \quad \text{rule } \mathrm{steps}
    """,
    use_when="a RoPE model reads up to about twice its length without tuning, and short texts must not change",
    also_called=("dynamic NTK", "dynamic NTK scaling"),
    use="current",
    slots=("angles", "pairs"),
    options={
        "factor": Option(1.0, "how fast the base grows with the length", float, minimum=1.0, maximum=LARGEST),
        "rule": Option("smooth", "how the base grows: with every position, or in steps", str, ("smooth", "steps")),
        **rope_options("half"),
    },
    moves=lambda **options: True,
    source="emozilla 2023; Peng et al. 2023, arXiv:2309.00071, section 3.3, and released code",
    reported=Reported(
        "partly",
        "Llama 2 7B (4096 tokens), untuned: perplexity on PG19 10.2 at 8192, 23.3 at 16384; on Proof-pile "
        "3.50 and 3.87.",
        "Ding et al. 2024, arXiv:2402.13753, table 1",
    ),
)
