"""NTK-aware scaling: RoPE with a larger base, which slows down the slow pairs and not the fast.

    base' = base s^(R/(R-2)),   theta'_t = base'^(-2t/R),     s = target length / training length

The first frequency stays 1, the last is divided by s exactly.

Source: bloc97 2023, "NTK-Aware Scaled RoPE allows LLaMA models to have extended (8k+) context size without any
fine-tuning and minimal perplexity degradation" (post); Peng et al. 2023, "YaRN: Efficient Context Window Extension of
Large Language Models" (arXiv:2309.00071), section 3.1, eq. (16); jquesnelle/yarn,
scaled_rope/LlamaNTKScaledRotaryEmbedding.py.

**Slots**: `angles` (1, N, R/2), `pairs`. **Learns**: nothing.

**Options**
- `factor`: s, fixed. By default the length that the positions need over the training length, at least 1.
- `base`, `pairs`, `rotated`: as for `rope`; all three as in the model that is extended. (The code, for
  LLaMA's Hugging Face copies, has `half`.)

**Past the training length**: defined, and what it is for; works without fine-tuning up to less than s training lengths,
as the pairs between the first and the last are interpolated by less than s. So s is chosen larger than needed.

**Traps.** Without a `factor` the angles depend on the length asked for: keys cached at another length do not fit.
Where two channels are rotated there is the first pair alone, and nothing changes.
"""

from decimal import Decimal
from typing import Any

from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.angles import exact_angles, fill_line, precise
from fastpe.encodings.parts.rotary import (
    FACTOR,
    ROTATED,
    base_option,
    check,
    ladder,
    of_larger_base,
    pairs_option,
    plain_pairs,
    rotated_width,
    shapes,
    stretch,
)
from fastpe.encodings.slots import Spec


def reference(
    spec: Spec, params: dict[str, Any], *, factor: float | None, base: float, rotated: int | None, pairs: str
) -> dict[str, Any]:
    """p base'^(-2t/R), the base as printed."""
    width = rotated_width(spec, rotated)
    with precise():
        larger = Decimal(base)
        if width > 2:
            larger *= stretch(spec, factor) ** (Decimal(width) / (width - 2))
        theta = [1 / larger ** (Decimal(2 * t) / width) for t in range(width // 2)]
    return {"angles": exact_angles(spec.points(), theta)[..., None, :, :]}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, factor: float | None, base: float, rotated: int | None,
    pairs: str,
) -> None:  # fmt: skip
    """Fill `angles`."""
    theta = of_larger_base(ladder(base, rotated_width(spec, rotated)), stretch(spec, factor))
    fill_line(spec, theta, out["angles"])


ENCODING = Encoding(
    summary="rotary, with a larger base for longer texts",
    use="current",
    slots=("angles", "pairs"),
    options={"factor": FACTOR, "base": base_option(), "pairs": pairs_option("half"), "rotated": ROTATED},
    beyond="defined",
    moves=lambda *, factor, **options: factor is None,
    direction="yes",
    source="bloc97 2023; Peng et al. 2023, arXiv:2309.00071, section 3.1, eq. (16)",
    reported=Reported(
        "partly",
        "Without fine-tuning it reaches, as a later paper sums up, at most about four times the trained length.",
        "Ding et al. 2024, arXiv:2402.13753, section 2.1",
    ),
    ulp=2.0,
    shapes=shapes,
    plain=plain_pairs,
    check=check,
)
