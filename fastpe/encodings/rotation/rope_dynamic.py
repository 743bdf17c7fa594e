"""Dynamic NTK scaling: RoPE whose base grows with the length, from the training length on.

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
- `factor`: f, how fast the base grows. By default 1: base' = base (n/L0)^(R/(R-2)), the scaling that n needs. Published
  models have 2 or more.
- `rule`: `smooth`, which `factor` is for; or `steps`: 1 up to the training length, 3 up to twice it, then 7, 15, ..:
  the angles change only where the length passes the next power of two. Qwen fixes alpha at the prompt's length.
- `base`, `pairs`, `rotated`: as for `rope`; all three as in the model that is extended. (The code, for
  LLaMA's Hugging Face copies, has `half`.)

**Past the training length**: defined, and what it is for. Up to the training length it is `rope` itself, so that
short sequences lose nothing.

**Traps.** One token more changes the angles of all tokens before it: keys must be cached before they are rotated. All
samples of a batch share n.
"""

import math
from decimal import Decimal
from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.angles import exact_angles, fill_line, precise
from fastpe.encodings.parts.rotary import (
    LARGEST,
    ROTATED,
    base_option,
    check,
    ladder,
    of_larger_base,
    pairs_option,
    plain_pairs,
    reach,
    rotated_width,
    shapes,
)
from fastpe.encodings.slots import Spec


def reference(
    spec: Spec,
    params: dict[str, Any],
    *,
    factor: float,
    rule: str,
    base: float,
    rotated: int | None,
    pairs: str,
) -> dict[str, Any]:
    """p base'^(-2t/R), the base as printed."""
    width = rotated_width(spec, rotated)
    with precise():
        larger, f = Decimal(base), Decimal(factor)
        n = max(Decimal(float(spec.points().max())) + 1, Decimal(spec.train_length))
        if width > 2:
            alpha = f * n / spec.train_length - (f - 1)
            if rule == "steps":
                alpha, power = Decimal(1), Decimal(1)
                while n > power * spec.train_length:
                    power *= 2
                    alpha = 2 * power - 1
            larger *= alpha ** (Decimal(width) / (width - 2))
        theta = [1 / larger ** (Decimal(2 * t) / width) for t in range(width // 2)]
    return {"angles": exact_angles(spec.points(), theta)[..., None, :, :]}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, factor: float, rule: str, base: float,
    rotated: int | None, pairs: str,
) -> None:  # fmt: skip
    """Fill `angles`."""
    with precise():
        lengths = reach(spec) / spec.train_length
        s = 1 + Decimal(factor) * (lengths - 1)
        if rule == "steps":
            s = Decimal(2 * 2 ** (math.ceil(lengths) - 1).bit_length() - 1)
    fill_line(spec, of_larger_base(ladder(base, rotated_width(spec, rotated)), s), out["angles"])


ENCODING = Encoding(
    summary="rotary, with a base that grows with the length",
    use="current",
    slots=("angles", "pairs"),
    options={
        "factor": Option(1.0, "how fast the base grows with the length", float, minimum=1.0, maximum=LARGEST),
        "rule": Option("smooth", "how the base grows: with every position, or in steps", str, ("smooth", "steps")),
        "base": base_option(),
        "pairs": pairs_option("half"),
        "rotated": ROTATED,
    },
    beyond="defined",
    moves=lambda **options: True,
    direction="yes",
    source="emozilla 2023; Peng et al. 2023, arXiv:2309.00071, section 3.3, and released code",
    reported=Reported(
        "partly",
        "Llama 2 7B (4096 tokens), untuned: perplexity on PG19 10.2 at 8192, 23.3 at 16384; on Proof-pile "
        "3.50 and 3.87.",
        "Ding et al. 2024, arXiv:2402.13753, table 1",
    ),
    ulp=2.0,
    shapes=shapes,
    plain=plain_pairs,
    check=check,
)
