"""RoPE: query and key are rotated, pair of channels by pair, by angles in proportion to the position.

    theta_t = base^(-2t/R),  t = 0 .. R/2 - 1,         the angle of pair t at position p is p theta_t
    (x, y) -> (x cos a - y sin a,  x sin a + y cos a)

Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding" (arXiv:2104.09864), section
3.2.2, eqs. (14) and (15).

**Slots**: `angles` (1, N, R/2), `pairs`. **Learns**: nothing. Applied to query and key of every head and layer, after
their maps; values stay as they are. A score depends on query, key and j - i alone, and a rotation keeps norms.

**Options**
- `base`: the slowest frequency is about 1/base.
- `pairs`: `interleaved`, channels 2t and 2t + 1 (the paper, GPT-J), or `half`, channels t and t + R/2 (GPT-NeoX, the
  Hugging Face copies of LLaMA).
- `rotated`: R, where only the first R channels of a head are rotated and the others pass through (GPT-J: 64 of 256).

Positions may be real or negative. Angles are float64 in [-pi, pi], off by little more than half a unit in the last
place (one, on a processor without fused multiply-add) at any position up to 2**27: the frequency is held in two
float64, their product with the position is exact, and whole turns are taken away exactly. A float32 angle is off by
0.004 at position 1e5.

**Speed.** Arithmetic is the bound: 11 operations on float64 vectors make a vector of angles where positions are whole
numbers one apart, 17 elsewhere. At one operation a cycle on registers of 64 bytes, at 3 GHz, that is 17 and 11 GB/s.

**Past the training length**: defined. Slow pairs reach angles that training never showed, and models get worse;
`rope_linear`, `rope_ntk`, `rope_dynamic`, `rope_yarn`, `rope_longrope` and `rope_llama3` change the frequencies.

**Traps.** The two values of `pairs` are the same map up to the order of channels, but weights trained with one are
wrong with the other unless the channels of the query and key maps are put in the other order. Keys that are cached must
be rotated by their own positions.
"""

from decimal import Decimal
from typing import Any

from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.angles import exact_angles, fill_line, precise
from fastpe.encodings.parts.rotary import (
    ROTATED,
    base_option,
    check,
    ladder,
    pairs_option,
    plain_pairs,
    rotated_width,
    shapes,
)
from fastpe.encodings.slots import Spec


def reference(spec: Spec, params: dict[str, Any], *, base: float, rotated: int | None, pairs: str) -> dict[str, Any]:
    """p theta_t (Su et al. 2021, eq. 15)."""
    width = rotated_width(spec, rotated)
    with precise():
        theta = [1 / Decimal(base) ** (Decimal(2 * t) / width) for t in range(width // 2)]
    return {"angles": exact_angles(spec.points(), theta)[..., None, :, :]}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, base: float, rotated: int | None, pairs: str
) -> None:
    """Fill `angles`."""
    fill_line(spec, ladder(base, rotated_width(spec, rotated)), out["angles"])


ENCODING = Encoding(
    summary="rotates query and key by angles of the position",
    use="current",
    slots=("angles", "pairs"),
    options={"base": base_option(), "pairs": pairs_option("interleaved"), "rotated": ROTATED},
    beyond="defined",
    direction="yes",
    source="Su et al. 2021, arXiv:2104.09864, section 3.2.2, eqs. (14) and (15)",
    reported=Reported(
        "fails",
        "LLaMA 7B, trained on 2048 tokens: perplexity on PG19 rises from 7.20 to above 1000 at 4096 tokens.",
        "Chen, Wong, Chen and Tian 2023, arXiv:2306.15595, section 2.2 and table 1",
    ),
    ulp=2.0,
    shapes=shapes,
    plain=plain_pairs,
    check=check,
)
