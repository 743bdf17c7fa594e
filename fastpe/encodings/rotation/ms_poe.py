"""Ms-PoE: RoPE in which every head divides positions by a number of its own.

    r_h = r_min + (r_max - r_min) rank_h / H,       the angle of head h and pair t at position p is p theta_t / r_h

theta_t = base^(-2t/R), R is the number of rotated channels, and rank_h = 0 .. H-1.

Source: Zhang et al. 2024, "Found in the Middle: How Language Models Use Long Contexts Better via Plug-and-Play
Positional Encoding" (arXiv:2403.04797); VITA-Group/Ms-PoE, utils/modify_arch/llama.py.

**Slots**: `angles` (H, N, R/2), `pairs`. **Learns**: nothing. Heads with a larger r see all keys closer by. The method
is for trained models, which it changes without training, so that they use the middle of a long context better.

**Options**
- `least`, `most`: r_min and r_max; 1.2 and 1.8 in the authors' runs, 1 and 3 are the defaults of their code.
- `ranks`: rank of each head, a permutation of 0 .. H-1. Default: head h has rank h. The authors rank the heads by the
  first prompt: by the share of keys whose score, before rotation, is above three times the mean of the last query's.
- `base`, `pairs`, `rotated`: as for `rope`; the authors' code uses `half`.

**Past the training length**: defined; offsets stay within the training length up to about r_h times this length.

**Traps.** r_max is never reached. If several query heads share a key head, the authors' code rotates the key by the
number of the first of them: then queries and keys turn at different speeds, and scores depend on the position, not only
on the offset. Give such heads the same rotation, or use this encoding without shared key heads.
"""

from decimal import Decimal
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.angles import Frequencies, exact_angles, fill_angles, precise, turns
from fastpe.encodings.parts.rotary import (
    LARGEST,
    ladder,
    plain_pairs,
    printed_ladder,
    rope_options,
    rotated_width,
)
from fastpe.encodings.slots import Spec


def _scaled(
    spec: Spec, theta: Frequencies, *, least: float, most: float, ranks: tuple[int, ...] | None, **options: Any
) -> list[Frequencies]:  # fmt: skip
    """The frequencies of each head."""
    with precise():
        steps = [(Decimal(most) - Decimal(least)) * rank / spec.heads for rank in ranks or range(spec.heads)]
        return [tuple(each / (Decimal(least) + step) for each in theta) for step in steps]


def check(spec: Spec, *, ranks: tuple[int, ...] | None, rotated: int | None, **options: Any) -> None:
    """Require an even number of rotated channels, and ranks that are a permutation."""
    rotated_width(spec, rotated)
    if ranks is not None and sorted(ranks) != list(range(spec.heads)):
        raise ValueError(f"option 'ranks' must have each of 0 .. {spec.heads - 1} once, not {ranks}")


def shapes(spec: Spec, *, rotated: int | None, **options: Any) -> dict[str, tuple[int, ...]]:
    """One angle for each head, token and pair."""
    return {"angles": (*spec.batch, spec.heads, spec.length, rotated_width(spec, rotated) // 2)}


def reference(
    spec: Spec, params: dict[str, Any], *, base: float, rotated: int | None, **options: Any
) -> dict[str, Any]:  # fmt: skip
    """p theta_t / r_h."""
    theta = _scaled(spec, printed_ladder(base, rotated_width(spec, rotated)), **options)
    return {"angles": np.stack([exact_angles(spec.points(), list(own)) for own in theta], axis=-3)}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, base: float, rotated: int | None, **options: Any
) -> None:  # fmt: skip
    """Fill `angles`."""
    theta = _scaled(spec, ladder(base, rotated_width(spec, rotated)), **options)
    fill_angles(spec.points()[..., None], np.stack([turns(own)[0] for own in theta]), out["angles"])


ENCODING = Encoding(
    summary="rotary, each head at its own scale of positions",
    formula=r"""
        r_h &= r_{\min} + (r_{\max} - r_{\min})\, \mathrm{rank}_h / H \\
        &\text{the angle of head } h \text{ and pair } t \text{ at position } p: \quad p\, \theta_t / r_h
    """,
    use_when="a trained RoPE model should use the middle of long texts better, without training",
    also_called=("multi-scale positional encoding",),
    not_to_be_confused={
        "rope_linear": "all heads divide positions by the same number",
        "mope": "wavelets of several scales",
    },
    use="proposed",
    slots=("angles", "pairs"),
    options={
        "least": Option(
            1.2, "number by which the head of rank 0 divides positions", float, minimum=1.0, maximum=LARGEST
        ),
        "most": Option(1.8, "the same for rank H, which no head has", float, minimum=1.0, maximum=LARGEST),
        "ranks": Option(None, "rank of each head; none: the heads in order", tuple, optional=True, samples=((1, 0),)),
        **rope_options("half"),
    },
    direction="yes",
    ulp=2.0,
    plain=plain_pairs,
    source="Zhang et al. 2024, arXiv:2403.04797, and released code",
)
