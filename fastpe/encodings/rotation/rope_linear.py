"""Position interpolation: RoPE with every frequency divided by the same factor.

    theta'_t = theta_t / s,     s = target length / training length        (`rope`: theta_t = base^(-2t/R))

Source: Chen et al. 2023, "Extending Context Window of Large Language Models via Positional Interpolation"
(arXiv:2306.15595), section 2.3, eq. (4).

**Slots**: `angles` (1, N, R/2), `pairs`. **Learns**: nothing.

**Options**
- `factor`: s. By default the length that the positions need over the training length, at least 1: the largest angle is
  then never beyond those of training.
- `base`, `pairs`, `rotated`: as for `rope`; all three as in the model that is extended.

**Past the training length**: defined, and what it is for. The authors fine-tune the model at the new length.

**Traps.** Without a `factor` the angles depend on the length asked for: keys cached at another length do not fit.
Neighbours come s times closer in the fast pairs too, which the later rescalings avoid.
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
    interpolated,
    ladder,
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
    """p theta_t / s (Chen et al. 2023, eq. 4)."""
    width = rotated_width(spec, rotated)
    with precise():
        theta = [1 / Decimal(base) ** (Decimal(2 * t) / width) / stretch(spec, factor) for t in range(width // 2)]
    return {"angles": exact_angles(spec.points(), theta)[..., None, :, :]}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, factor: float | None, base: float, rotated: int | None,
    pairs: str,
) -> None:  # fmt: skip
    """Fill `angles`."""
    theta = interpolated(ladder(base, rotated_width(spec, rotated)), stretch(spec, factor))
    fill_line(spec, theta, out["angles"])


ENCODING = Encoding(
    summary="rotary, with positions divided by one factor",
    use="current",
    slots=("angles", "pairs"),
    options={
        "factor": FACTOR,
        "base": base_option(),
        "pairs": pairs_option("interleaved"),
        "rotated": ROTATED,
    },
    beyond="defined",
    moves=lambda *, factor, **options: factor is None,
    direction="yes",
    source="Chen et al. 2023, arXiv:2306.15595, section 2.3, eq. (4)",
    reported=Reported(
        "tuned",
        "LLaMA 7B (2048 tokens): perplexity on PG19 at 8192 16.10 untuned, 6.95 after 1000 steps; 6.77 at "
        "32768 once tuned.",
        "Chen, Wong, Chen and Tian 2023, arXiv:2306.15595, tables 1 and 3",
    ),
    ulp=2.0,
    shapes=shapes,
    plain=plain_pairs,
    check=check,
)
