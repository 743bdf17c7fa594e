"""xPos: RoPE in which each part of a score decays exponentially with the distance between query and key.

    zeta_t = (2t/R + gamma) / (1 + gamma),   t = 0 .. R/2 - 1
    q'_i = R_i q_i zeta^((i - ctr)/B),       k'_j = R_j k_j zeta^(-(j - ctr)/B)        R_i: the rotation of `rope` at i

In pair t of channels, the query at position i is multiplied by zeta_t^((i - ctr)/B), and the key at position j is
divided by zeta_t^((j - ctr)/B). The part of the score from pair t therefore contains the factor zeta_t^((i-j)/B), which
is smaller for keys that are further before the query.

Source: Sun et al. 2022, "A Length-Extrapolatable Transformer" (arXiv:2212.10554), section 3.2 and algorithm 1;
microsoft/torchscale, torchscale/component/xpos_relative_position.py, XPOS.

**Slots**: `angles` (1, N, R/2), `growth` (N, R/2) = ((i - ctr)/B) ln zeta_t, `pairs`. **Learns**: nothing.

**Options**
- `scale_base`: B. Over a distance of B positions, pair t decays by the factor zeta_t.
- `gamma`: determines the smallest factor, zeta_0 = gamma / (1 + gamma), which is 0.2857 by default.
- `centre`: ctr. It cancels in every score. The authors use half the length, so that no factor overflows. Here `growth`
  contains exponents, and only differences of exponents are used, so 0 is sufficient.
- `base`, `pairs`, `rotated`: as for `rope`.

**Past the training length**: defined; the decay continues with the distance.

**Traps.** The encoding is for causal models only: scores of keys after the query would grow without bound. A float32
table of factors, as in most code, overflows or underflows at long lengths.
"""

from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.angles import exact_angles, fill_line, precise
from fastpe.encodings.parts.rotary import LARGEST, ladder, plain_pairs, printed_ladder, rope_options, rotated_width
from fastpe.encodings.parts.rotary import check as check_width
from fastpe.encodings.parts.rotary import shapes as angle_shapes
from fastpe.encodings.slots import Spec


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """Angles for all heads, and exponents."""
    angles = angle_shapes(spec, **options)["angles"]
    return {"angles": angles, "growth": (*spec.batch, spec.length, angles[-1])}


def check(spec: Spec, **options: Any) -> None:
    """Require an even number of rotated channels, and a causal model."""
    check_width(spec, **options)
    if not spec.causal:
        raise ValueError("'xpos' needs causal=True: the score of a key after its query grows without bound")


def reference(
    spec: Spec, params: dict[str, Any], *, scale_base: float, gamma: float, centre: float, base: float,
    rotated: int | None, pairs: str,
) -> dict[str, Any]:  # fmt: skip
    """The rotation of RoPE, and ((p - ctr)/B) ln zeta_t."""
    width, points = rotated_width(spec, rotated), spec.points()
    with precise():
        theta = list(printed_ladder(base, width))
        zeta = [(2 * t + Decimal(gamma) * width) / ((1 + Decimal(gamma)) * width) for t in range(width // 2)]
        logarithms = np.array([float(each.ln()) for each in zeta])
    exponents = (points - centre) / scale_base
    return {
        "angles": exact_angles(points, theta)[..., None, :, :],
        "growth": exponents[..., None] * logarithms,
    }


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, scale_base: float, gamma: float, centre: float,
    base: float, rotated: int | None, pairs: str,
) -> None:  # fmt: skip
    """Fill `angles` and `growth`."""
    width = rotated_width(spec, rotated)
    fill_line(spec, ladder(base, width), out["angles"])
    np.multiply((spec.points() - centre)[..., None], _decays(width, gamma, scale_base), out=out["growth"])


@lru_cache(maxsize=64)
def _decays(width: int, gamma: float, scale_base: float) -> tuple[float, ...]:
    """ln zeta_t / B."""
    with precise():
        least = Decimal(gamma)
        each = (((Decimal(2 * t) / width + least) / (1 + least)).ln() for t in range(width // 2))
        return tuple(float(logarithm / Decimal(scale_base)) for logarithm in each)


ENCODING = Encoding(
    summary="rotary, with a decay for far keys",
    formula=r"""
        \zeta_t &= \frac{2t/R + \gamma}{1 + \gamma}, \quad t = 0, \dots, R/2 - 1 \\
        q'_i &= R_i q_i\, \zeta^{(i - \mathrm{ctr})/B}, \quad k'_j = R_j k_j\, \zeta^{-(j - \mathrm{ctr})/B}
            \quad R_i \text{: the rotation of rope}
    """,
    use_when="a causal model wants RoPE with a decay, for texts up to about twice the training length",
    also_called=("LeX", "length-extrapolatable Transformer"),
    not_to_be_confused={
        "HoPE, hyperbolic": "hyperbolic functions in place of cosine and sine (arXiv:2509.05218)",
    },
    use="proposed",
    slots=("angles", "growth", "pairs"),
    options={
        "scale_base": Option(512.0, "number of positions over which pair t decays by zeta_t", float, above=0.0),
        "gamma": Option(0.4, "the smallest zeta_t is gamma / (1 + gamma)", float, above=0.0, maximum=LARGEST),
        "centre": Option(0.0, "the position at which all factors are 1; cancels in scores", float),
        **rope_options("interleaved"),
    },
    beyond="defined",
    direction="causal",
    source="Sun et al. 2022, arXiv:2212.10554, section 3.2 and algorithm 1",
    reported=Reported(
        "partly",
        "Trained on 1024 tokens: perplexity 23.3 there, 22.6 at 2048, 28.4 at 4096; with windowed attention "
        "20.7 at 4096.",
        "Sun et al. 2022, arXiv:2212.10554, tables 2 and 5",
    ),
    ulp=4.0,  # of the exponents, which the reference computes with three roundings
    plain=plain_pairs,
)
