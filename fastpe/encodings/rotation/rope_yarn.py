"""YaRN: RoPE that interpolates slow pairs, leaves fast pairs unchanged, and sharpens attention.

    cd(r)    = R ln(L0 / (2 pi r)) / (2 ln base)         the index t of the pair that turns r times in L0 positions
    lo, hi   = max(floor cd(beta_fast), 0), min(ceil cd(beta_slow), R - 1)
    ramp_t   = clip((t - lo) / (hi - lo), 0, 1)          if lo = hi, 0.001 replaces hi - lo
    theta'_t = theta_t (1 - ramp_t) + theta_t / s ramp_t,             theta_t = base^(-2t/R)
    mscale   = 0.1 ln s + 1,     scale = mscale^2 / sqrt(D)

s is the target length divided by the training length L0, and R is the number of rotated channels.

Source: Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models" (arXiv:2309.00071),
section 3.2, eqs. (17) to (20), and section 3.4, eqs. (21) and (22); the formulas above are those of the code,
jquesnelle/yarn, scaled_rope/LlamaYaRNScaledRotaryEmbedding.py.

**Slots**: `angles` (1, N, R/2), `pairs`, `scale`; if R < D also `rotors` (1, 1, D, 1, 1). **Learns**: nothing. The
authors' code multiplies sines and cosines by mscale, for queries and for keys. If all channels are rotated, this
multiplies the score by mscale^2, a factor that `scale` contains here. Otherwise `rotors` multiplies the rotated
channels by mscale, and `scale` is 1/sqrt(D).

**Options**
- `factor`: a fixed s; released models use 16 and 32. Default: the largest position plus one, divided by the training
  length, but at least 1.
- `beta_fast`, `beta_slow`: pairs with more than `beta_fast` turns in L0 positions keep their frequency; pairs with
  fewer than `beta_slow` turns are interpolated.
- `ramp`: the quantity in which the ramp is linear. `dimensions`: the index t of the pair, as in the code. `turns`: the
  number of turns, as printed in the paper, with ramp_t = 1 - clip((L0 theta_t / (2 pi) - beta_slow) / (beta_fast -
  beta_slow), 0, 1).
- `truncate`: whether lo is rounded down and hi is rounded up, as above. GPT-OSS does not round; it uses base 150000,
  factor 32 and L0 = 4096 (huggingface/transformers, modeling_rope_utils.py, _compute_yarn_parameters).
- `base`, `pairs`, `rotated`: as for `rope`. Use the values of the model that you extend. The authors' code is for the
  Hugging Face versions of LLaMA, and uses `pairs` = `half`.

**Past the training length**: defined; the encoding is designed for longer sequences. The authors fine-tune briefly at
the new length.

**Traps.** hi is limited to R - 1, although the index of the last pair is R/2 - 1, so the ramp may stay below 1. If the
training length is below 2 pi, no pair makes a full turn, and hi is below lo. The ramp of the authors' code then runs
backwards; here hi is set to lo. Without a `factor`, angles and `scale` depend on the length of the sequence.
"""

import math
from decimal import Decimal
from functools import partial
from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.encoding import Reported
from fastpe.encodings.parts.angles import Frequencies
from fastpe.encodings.parts.rope_variant import rope_variant
from fastpe.encodings.parts.rotary import (
    FACTOR,
    LARGEST,
    LOGARITHMIC_BASE,
    check_order,
    mixed,
    ramp_of_dimensions,
    ramp_of_turns,
    rope_options,
    stretch,
)
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.trig import PI


def mscale(spec: Spec, *, factor: float | None, **options: Any) -> float:
    """The temperature: the factor of the rotated channels of query and key."""
    return 0.1 * math.log(float(stretch(spec, factor))) + 1


def printed(
    spec: Spec, theta: Frequencies, *, factor: float | None, beta_fast: float, beta_slow: float, ramp: str,
    truncate: bool, base: float, **options: Any,
) -> Frequencies:  # fmt: skip
    """The formulas at the top of this file, evaluated one after the other."""
    width, length, scaled = 2 * len(theta), spec.train_length, []
    s, turn = stretch(spec, factor), 2 * PI

    def cd(turns: float) -> Decimal:
        return width * (length / (turn * Decimal(turns))).ln() / (2 * Decimal(base).ln())

    lo, hi = cd(beta_fast), cd(beta_slow)
    if truncate:
        lo, hi = Decimal(math.floor(lo)), Decimal(math.ceil(hi))
    lo, hi = max(lo, Decimal(0)), min(hi, Decimal(width - 1))
    for t, each in enumerate(theta):
        if ramp == "turns":
            kept = (length * each / turn - Decimal(beta_slow)) / (Decimal(beta_fast) - Decimal(beta_slow))
            share = 1 - min(max(kept, Decimal(0)), Decimal(1))
        elif hi > lo:
            share = min(max((t - lo) / (hi - lo), Decimal(0)), Decimal(1))
        else:
            share = Decimal(1 if t > lo else 0)
        scaled.append(each * (1 - share) + each / s * share)
    return tuple(scaled)


def frequencies(
    spec: Spec, theta: Frequencies, *, factor: float | None, beta_fast: float, beta_slow: float, ramp: str,
    truncate: bool, base: float, **options: Any,
) -> Frequencies:  # fmt: skip
    """The frequencies of `printed`, computed with the ramps that this encoding shares with others."""
    if ramp == "turns":
        shares = ramp_of_turns(theta, spec.train_length, beta_fast, beta_slow)
    else:
        shares = ramp_of_dimensions(base, len(theta), spec.train_length, beta_fast, beta_slow, truncate)
    return mixed(theta, stretch(spec, factor), shares)


ENCODING = rope_variant(
    frequencies,
    printed=printed,
    mscale=mscale,
    summary="rotary, slow pairs interpolated, sharper attention",
    formula=r"""
        \mathrm{cd}(r) &= \frac{R \ln(L_0 / (2 \pi r))}{2 \ln \mathrm{base}}
            \quad \text{the index } t \text{ of the pair that turns } r \text{ times in } L_0 \text{ positions} \\
        \mathrm{lo} &= \max(\lfloor \mathrm{cd}(\mathrm{beta\_fast}) \rfloor, 0),
            \quad \mathrm{hi} = \min(\lceil \mathrm{cd}(\mathrm{beta\_slow}) \rceil, R - 1) \\
        \mathrm{ramp}_t &= \mathrm{clip}\left(\frac{t - \mathrm{lo}}{\mathrm{hi} - \mathrm{lo}}, 0, 1\right)
            \quad \mathrm{hi} - \mathrm{lo} = 0.001 \text{ if they are equal} \\
        \theta'_t &= \theta_t (1 - \mathrm{ramp}_t) + \frac{\theta_t}{s}\, \mathrm{ramp}_t,
            \quad \theta_t = \mathrm{base}^{-2t/R} \\
        \mathrm{mscale} &= 0.1 \ln s + 1, \quad \mathrm{scale} = \frac{\mathrm{mscale}^2}{\sqrt{D}}
    """,
    use_when="a RoPE model is extended to a context many times longer with little fine-tuning",
    also_called=("YaRN",),
    not_to_be_confused={
        "rope_mixed_radix": "powers of the factor between fast and slow pairs, without a ramp",
        "RoPE++'s YaRN": "its ramp is linear in turns of 4096 positions",
    },
    use="current",
    slots=("angles", "rotors", "pairs", "scale"),
    options={
        "factor": FACTOR,
        "beta_fast": Option(
            32.0, "pairs with more turns in the training length keep their frequency", float, above=0.0, maximum=LARGEST
        ),
        "beta_slow": Option(
            1.0, "pairs with fewer turns in the training length are interpolated", float, above=0.0, maximum=LARGEST
        ),
        "ramp": Option(
            "dimensions",
            "whether the ramp is linear in the index of a pair or in its number of turns",
            str,
            ("dimensions", "turns"),
        ),
        "truncate": Option(True, "whether the ramp of dimensions begins and ends at whole pairs", bool),
        **rope_options("half", LOGARITHMIC_BASE),
    },
    check=partial(check_order, "beta_fast", "beta_slow"),
    source="Peng et al. 2023, arXiv:2309.00071, sections 3.2 and 3.4, eqs. (17) to (22)",
    reported=Reported(
        "tuned",
        "Llama 2 7B (4096), tuned on 64k tokens: perplexity on Proof-pile falls from 3.56 at 8192 to 2.37 at 131072.",
        "Peng et al. 2023, arXiv:2309.00071, table 2",
    ),
)
