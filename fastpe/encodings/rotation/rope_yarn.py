"""YaRN: RoPE whose slow pairs are interpolated and whose fast pairs are not, with sharper attention.

    cd(r)    = R ln(L0 / (2 pi r)) / (2 ln base)         the place t of the pair that turns r times in L0 positions
    lo, hi   = max(floor cd(beta_fast), 0), min(ceil cd(beta_slow), R - 1)
    ramp_t   = clip((t - lo) / (hi - lo), 0, 1)          hi - lo = 0.001 where they are equal
    theta'_t = theta_t (1 - ramp_t) + theta_t / s ramp_t,             theta_t = base^(-2t/R)
    mscale   = 0.1 ln s + 1,     scale = mscale^2 / sqrt(D)

s = target length / training length, L0 = training length.

Source: Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models" (arXiv:2309.00071),
section 3.2, eqs. (17) to (20), and section 3.4, eqs. (21) and (22); the formulas above are those of the code,
jquesnelle/yarn, scaled_rope/LlamaYaRNScaledRotaryEmbedding.py.

**Slots**: `angles` (1, N, R/2), `pairs`, `scale`; if R < D also `rotors` (1, 1, D, 1, 1). **Learns**: nothing. The
code multiplies the sine and cosine of query and key by mscale. If all channels are rotated, this is mscale^2 on the
score, in `scale`. Otherwise `rotors` multiplies the rotated channels by mscale and the others by 1, and `scale` is
1/sqrt(D).

**Options**
- `factor`: s, fixed (released models: 16 and 32). By default the length that the positions need over the training
  length, at least 1.
- `beta_fast`, `beta_slow`: pairs that turn more often than the first in L0 positions stay, those that turn less often
  than the second are interpolated.
- `ramp`: `dimensions`, linear in the number t of the pair, as the code; or `turns`, linear in how often it turns, as
  the paper prints it: ramp_t = 1 - clip((L0 theta_t / (2 pi) - beta_slow) / (beta_fast - beta_slow), 0, 1).
- `truncate`: round lo down and hi up, as above; GPT-OSS does not, with base 150000, factor 32 and L0 = 4096
  (huggingface/transformers, modeling_rope_utils.py, _compute_yarn_parameters).
- `base`, `pairs`, `rotated`: as for `rope`; all three as in the model that is extended. (The code, for
  LLaMA's Hugging Face copies, has `half`.)

**Past the training length**: defined, and what it is for. The authors fine-tune shortly at the new length.

**Traps.** hi is cut at R - 1, not at R/2 - 1, where the pairs end: the ramp may then stay below 1. With a training
length below 2 pi no pair makes a whole turn, hi falls below lo, and the code's ramp runs backwards; here hi is then lo.
Without a `factor` angles and `scale` depend on the length asked for.
"""

import math
from decimal import Decimal
from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.angles import exact_angles, fill_line, precise
from fastpe.encodings.parts.rotary import (
    FACTOR,
    LARGEST,
    ROTATED,
    ladder,
    mixed,
    pairs_option,
    ramp_of_dimensions,
    ramp_of_turns,
    rotated_width,
    sharper_channels,
    sharper_scale,
    sharper_shapes,
    stretch,
)
from fastpe.encodings.parts.rotary import check as check_width
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.trig import PI


def check(spec: Spec, *, beta_fast: float, beta_slow: float, **options: Any) -> None:
    """Fast pairs must turn more often than slow ones."""
    check_width(spec, **options)
    if not beta_fast > beta_slow:
        raise ValueError(f"option 'beta_fast' must be larger than 'beta_slow', {beta_slow:g}, not {beta_fast:g}")


def mscale(spec: Spec, factor: float | None) -> float:
    """The temperature: the factor of the rotated channels of query and key."""
    return 0.1 * math.log(float(stretch(spec, factor))) + 1


def plain(
    spec: Spec, *, factor: float | None, rotated: int | None, pairs: str, **options: Any
) -> dict[str, Any]:  # fmt: skip
    """The layout, and `scale` with the temperature in it if all channels are rotated."""
    return {"pairs": pairs, "scale": sharper_scale(spec, rotated, mscale(spec, factor))}


def reference(
    spec: Spec, params: dict[str, Any], *, factor: float | None, beta_fast: float, beta_slow: float, ramp: str,
    truncate: bool, base: float, rotated: int | None, pairs: str,
) -> dict[str, Any]:  # fmt: skip
    """The formulas of the page, one after the other."""
    width, length, theta = rotated_width(spec, rotated), spec.train_length, []
    with precise():
        s, turn = stretch(spec, factor), 2 * PI

        def cd(turns: float) -> Decimal:
            return width * (length / (turn * Decimal(turns))).ln() / (2 * Decimal(base).ln())

        lo, hi = cd(beta_fast), cd(beta_slow)
        if truncate:
            lo, hi = Decimal(math.floor(lo)), Decimal(math.ceil(hi))
        lo, hi = max(lo, Decimal(0)), min(hi, Decimal(width - 1))
        for t in range(width // 2):
            own = 1 / Decimal(base) ** (Decimal(2 * t) / width)
            if ramp == "turns":
                kept = (length * own / turn - Decimal(beta_slow)) / (Decimal(beta_fast) - Decimal(beta_slow))
                share = 1 - min(max(kept, Decimal(0)), Decimal(1))
            elif hi > lo:
                share = min(max((t - lo) / (hi - lo), Decimal(0)), Decimal(1))
            else:
                share = Decimal(1 if t > lo else 0)
            theta.append(own * (1 - share) + own / s * share)
    angles = exact_angles(spec.points(), theta)[..., None, :, :]
    return {"angles": angles, **sharper_channels(spec, rotated, mscale(spec, factor))}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, factor: float | None, beta_fast: float,
    beta_slow: float, ramp: str, truncate: bool, base: float, rotated: int | None, pairs: str,
) -> None:  # fmt: skip
    """Fill `angles`, and `rotors` if some channels are not rotated."""
    theta = ladder(base, rotated_width(spec, rotated))
    if ramp == "turns":
        shares = ramp_of_turns(theta, spec.train_length, beta_fast, beta_slow)
    else:
        shares = ramp_of_dimensions(base, len(theta), spec.train_length, beta_fast, beta_slow, truncate)
    fill_line(spec, mixed(theta, stretch(spec, factor), shares), out["angles"])
    for slot, factors in sharper_channels(spec, rotated, mscale(spec, factor)).items():
        out[slot][...] = factors


ENCODING = Encoding(
    summary="rotary, slow pairs interpolated, sharper attention",
    use="current",
    slots=("angles", "rotors", "pairs", "scale"),
    options={
        "factor": FACTOR,
        "beta_fast": Option(
            32.0, "pairs with more turns in the training length stay", float, above=0.0, maximum=LARGEST
        ),
        "beta_slow": Option(
            1.0, "pairs with fewer turns in the training length are interpolated", float, above=0.0, maximum=LARGEST
        ),
        "ramp": Option("dimensions", "what the pairs between are linear in", str, ("dimensions", "turns")),
        "truncate": Option(True, "whether the ramp of dimensions begins and ends at whole pairs", bool),
        "base": Option(10000.0, "the slowest frequency is about 1/base", float, above=1.0),
        "pairs": pairs_option("half"),
        "rotated": ROTATED,
    },
    beyond="defined",
    moves=lambda *, factor, **options: factor is None,
    direction="yes",
    source="Peng et al. 2023, arXiv:2309.00071, sections 3.2 and 3.4, eqs. (17) to (22)",
    reported=Reported(
        "tuned",
        "Llama 2 7B (4096), tuned on 64k tokens: perplexity on Proof-pile falls from 3.56 at 8192 to 2.37 at 131072.",
        "Peng et al. 2023, arXiv:2309.00071, table 2",
    ),
    ulp=2.0,
    shapes=sharper_shapes,
)
