"""p-RoPE: RoPE whose slowest pairs do not turn at all.

    n = floor(p D/2),   theta_t = base^(-2t/D) / s for t < n,   theta_t = 0 for n <= t < D/2

Source: Barbero, Vitvitskyi, Perivolaropoulos, Pascanu and Velickovic 2024, "Round and Round We Go! What makes Rotary
Positional Encodings useful?" (arXiv:2410.06205), section 6.1; google-deepmind/gemma,
gemma/gm/math/_positional_embeddings.py, apply_rope, argument rope_proportion; huggingface/transformers,
modeling_rope_utils.py, rope type "proportional".

**Slots**: `angles` (1, N, D/2), `pairs`. **Learns**: nothing. Pairs that do not turn say what is where at no cost:
without a position, their part of the score is the content's alone, at any distance.

**Options**
- `proportion`: p, the share of the pairs that turn. 0.25 in the global layers of Gemma 4, with a base of 1000000; in
  the paper 0.75 was best, with 10000. 1 is `rope`, 0 is `nope`.
- `factor`: s, positions divided by one factor, as `rope_linear` has it.
- `base`, `pairs`: as for `rope`; `half` in the code.

**Past the training length**: defined. Pairs at rest meet no angle that training did not show; the slowest of the
others do.

**Traps.** It is not `rope` with the option `rotated`: the ladder of frequencies is that of the whole head, and with the
pairs `half` channel t still turns with t + D/2. The product p D is rounded down: p = 0.3 of D = 10 is one pair. Gemma's
queries and keys are normalised, and their score has the factor 1, not 1/sqrt(D).
"""

from decimal import Decimal
from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.angles import Frequencies, exact_angles, fill_line, precise
from fastpe.encodings.parts.rotary import (
    LARGEST,
    base_option,
    check,
    interpolated,
    ladder,
    pairs_option,
    plain_pairs,
    rotated_width,
    shapes,
)
from fastpe.encodings.slots import Spec


def _turning(width: int, proportion: float) -> int:
    """n, in the authors' arithmetic: float64, then rounded down."""
    return int(proportion * width // 2)


def reference(
    spec: Spec, params: dict[str, Any], *, proportion: float, factor: float, base: float, pairs: str
) -> dict[str, Any]:
    """p theta_t, zero from t = n on."""
    width = rotated_width(spec, None)
    with precise():
        theta = [1 / Decimal(base) ** (Decimal(2 * t) / width) / Decimal(factor) for t in range(width // 2)]
    n = _turning(width, proportion)
    theta[n:] = [Decimal(0)] * (width // 2 - n)
    return {"angles": exact_angles(spec.points(), theta)[..., None, :, :]}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, proportion: float, factor: float, base: float,
    pairs: str,
) -> None:  # fmt: skip
    """Fill `angles`."""
    theta: Frequencies = interpolated(ladder(base, rotated_width(spec, None)), Decimal(factor))
    n, angles = _turning(rotated_width(spec, None), proportion), out["angles"]
    angles[..., n:] = 0.0
    if n:
        fill_line(spec, theta[:n], angles[..., :n])


ENCODING = Encoding(
    summary="rotary, the slowest pairs of a head at rest",
    use="current",
    slots=("angles", "pairs"),
    options={
        "proportion": Option(
            0.25, "the share of the pairs that turn", float, minimum=0.0, maximum=1.0, samples=(0.5, 0.75, 1.0, 0.0)
        ),
        "factor": Option(1.0, "positions are divided by it", float, minimum=1.0, maximum=LARGEST),
        "base": base_option(),
        "pairs": pairs_option("half"),
    },
    beyond="defined",
    direction="yes",
    source="Barbero et al. 2024, arXiv:2410.06205, section 6.1",
    ulp=2.0,
    shapes=shapes,
    plain=plain_pairs,
    check=check,
)
