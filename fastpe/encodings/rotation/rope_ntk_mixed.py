"""NTK-aware scaling by a mixed radix: slower pairs by a stretched exponential.

    theta'_t = base^(-2t/R) e^(-a (t+1)^b),   a = ln k / (R/2)^b,   t = 0 .. R/2 - 1

The slowest pair is divided by k exactly, as `rope_ntk` has it, and the fastest by a little more than 1.

Source: Su 2023, "Transformer's upgrade path 11" (kexue.fm/archives/9706); bojone/rerope, ntk_patch.py.

**Slots**: `angles` (1, N, R/2), `pairs`. **Learns**: nothing.

**Options**
- `factor`: k, fixed. By default the length that the positions need over the training length, at least 1; the author has
  12 for models of 4096 tokens.
- `power`: b; 0.75. With 1 the frequencies are a ladder again, every one divided by k^(2/R) as well.
- `base`, `pairs`, `rotated`: as for `rope`; all three as in the model that is extended. (The code, for
  LLaMA's Hugging Face copies, has `half`.)

**Past the training length**: defined, and what it is for, without fine-tuning. The author multiplies queries by
max(1, ln(i + 1) / ln L0) besides, which no slot holds.

**Traps.** Without a `factor` the angles depend on the length asked for: keys cached at another length do not fit.
"""

from decimal import Decimal
from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.angles import exact_angles, fill_line, precise
from fastpe.encodings.parts.rotary import (
    FACTOR,
    ROTATED,
    base_option,
    check,
    ladder,
    pairs_option,
    plain_pairs,
    rotated_width,
    shapes,
    stretch,
)
from fastpe.encodings.slots import Spec


def reference(
    spec: Spec, params: dict[str, Any], *, factor: float | None, power: float, base: float, rotated: int | None,
    pairs: str,
) -> dict[str, Any]:  # fmt: skip
    """p theta'_t, as printed."""
    width = rotated_width(spec, rotated)
    with precise():
        a = stretch(spec, factor).ln() / Decimal(width // 2) ** Decimal(power)
        theta = [
            Decimal(base) ** (Decimal(-2 * t) / width) * (-a * Decimal(t + 1) ** Decimal(power)).exp()
            for t in range(width // 2)
        ]
    return {"angles": exact_angles(spec.points(), theta)[..., None, :, :]}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, factor: float | None, power: float, base: float,
    rotated: int | None, pairs: str,
) -> None:  # fmt: skip
    """Fill `angles`: pair t is divided by k^(((t+1) / (R/2))^b)."""
    theta, s = ladder(base, rotated_width(spec, rotated)), stretch(spec, factor)
    with precise():
        slower = tuple(
            each / s ** ((Decimal(t + 1) / len(theta)) ** Decimal(power)) for t, each in enumerate(theta)
        )  # fmt: skip
    fill_line(spec, slower, out["angles"])


ENCODING = Encoding(
    summary="rotary, slowed down by a stretched exponential",
    use="proposed",
    slots=("angles", "pairs"),
    options={
        "factor": FACTOR,
        "power": Option(0.75, "how soon pairs are slowed down, b", float, above=0.0, maximum=100.0),
        "base": base_option(),
        "pairs": pairs_option("half"),
        "rotated": ROTATED,
    },
    beyond="defined",
    moves=lambda *, factor, **options: factor is None,
    direction="yes",
    source="Su 2023, kexue.fm/archives/9706, and released code",
    ulp=2.0,
    shapes=shapes,
    plain=plain_pairs,
    check=check,
)
