"""Llama 3.1's scaling: RoPE whose long waves are stretched, and whose short ones stay.

    wave_t   = 2 pi / theta_t                                  positions a turn; theta_t = base^(-2t/R)
    theta'_t = theta_t                                         if wave_t < L0 / high
             = theta_t / f                                     if wave_t > L0 / low
             = (1 - sm) theta_t / f + sm theta_t               else, sm = (L0 / wave_t - low) / (high - low)

L0 is the training length: 8192 in Llama 3.1.

Source: the released code of Llama 3.1 (Meta 2024): meta-llama/llama-models, models/llama3/model.py, apply_scaling;
Grattafiori et al. 2024, "The Llama 3 Herd of Models" (arXiv:2407.21783), section 3.4.2, tells of the training and has
no formula.

**Slots**: `angles` (1, N, R/2), `pairs`. **Learns**: nothing. YaRN's rule with a ramp in turns and no temperature.

**Options**
- `factor`: f, the stretch of long waves, fixed: it does not follow the length.
- `low_freq_factor`, `high_freq_factor`: low and high, in turns that a pair makes in L0 positions.
- `base`: 500000 in Llama 3. `pairs`: `interleaved` as in Meta's code, `half` in the Hugging Face copies. `rotated`: as
  for `rope`.

**Past the training length**: defined, and what it is for: up to about f training lengths.

**Traps.** The frequencies differ from `rope` at every length, also below the training length.
"""

from decimal import Decimal
from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.angles import exact_angles, fill_line, precise
from fastpe.encodings.parts.rotary import (
    LARGEST,
    ROTATED,
    base_option,
    ladder,
    mixed,
    pairs_option,
    plain_pairs,
    ramp_of_turns,
    rotated_width,
    shapes,
)
from fastpe.encodings.parts.rotary import check as check_width
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.trig import PI


def check(spec: Spec, *, low_freq_factor: float, high_freq_factor: float, **options: Any) -> None:
    """Short waves must make more turns than long ones."""
    check_width(spec, **options)
    if not high_freq_factor > low_freq_factor:
        raise ValueError(
            f"option 'high_freq_factor' must be larger than 'low_freq_factor', {low_freq_factor:g}, "
            f"not {high_freq_factor:g}"
        )


def reference(
    spec: Spec, params: dict[str, Any], *, factor: float, low_freq_factor: float, high_freq_factor: float, base: float,
    rotated: int | None, pairs: str,
) -> dict[str, Any]:  # fmt: skip
    """The formulas of the page."""
    width, length, theta = rotated_width(spec, rotated), spec.train_length, []
    with precise():
        f, low, high = Decimal(factor), Decimal(low_freq_factor), Decimal(high_freq_factor)
        for t in range(width // 2):
            own = 1 / Decimal(base) ** (Decimal(2 * t) / width)
            wave = 2 * PI / own
            if wave < length / high:
                theta.append(own)
            elif wave > length / low:
                theta.append(own / f)
            else:
                smooth = (length / wave - low) / (high - low)
                theta.append((1 - smooth) * own / f + smooth * own)
    return {"angles": exact_angles(spec.points(), theta)[..., None, :, :]}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, factor: float, low_freq_factor: float,
    high_freq_factor: float, base: float, rotated: int | None, pairs: str,
) -> None:  # fmt: skip
    """Fill `angles`."""
    theta = ladder(base, rotated_width(spec, rotated))
    shares = ramp_of_turns(theta, spec.train_length, high_freq_factor, low_freq_factor)
    fill_line(spec, mixed(theta, Decimal(factor), shares), out["angles"])


ENCODING = Encoding(
    summary="rotary, with only the slow pairs stretched",
    use="current",
    slots=("angles", "pairs"),
    options={
        "factor": Option(8.0, "the stretch of long waves", float, minimum=1.0, maximum=LARGEST),
        "low_freq_factor": Option(
            1.0, "waves with fewer turns in the training length are stretched", float, above=0.0, maximum=LARGEST
        ),
        "high_freq_factor": Option(
            4.0, "waves with more turns in the training length stay", float, above=0.0, maximum=LARGEST
        ),
        "base": base_option(500000.0),
        "pairs": pairs_option("interleaved"),
        "rotated": ROTATED,
    },
    beyond="defined",
    direction="yes",
    source="Llama 3.1, Meta 2024, released code; arXiv:2407.21783, section 3.4.2",
    reported=Reported(
        "tuned",
        "Context raised from 8K to 128K tokens in six stages of training (some 800B tokens); hidden needles "
        "are then found.",
        "Grattafiori et al. 2024, arXiv:2407.21783, section 3.4.2",
    ),
    ulp=2.0,
    shapes=shapes,
    plain=plain_pairs,
)
