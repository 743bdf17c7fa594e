"""Llama 3.1's scaling: RoPE in which long wavelengths are stretched and short ones are not.

    wave_t   = 2 pi / theta_t                                  positions per turn; theta_t = base^(-2t/R)
    theta'_t = theta_t                                         if wave_t < L0 / high
             = theta_t / f                                     if wave_t > L0 / low
             = (1 - sm) theta_t / f + sm theta_t               else, sm = (L0 / wave_t - low) / (high - low)

L0 is the training length: 8192 in Llama 3.1.

Source: the released code of Llama 3.1 (Meta 2024): meta-llama/llama-models, models/llama3/model.py, apply_scaling;
Grattafiori et al. 2024, "The Llama 3 Herd of Models" (arXiv:2407.21783), section 3.4.2, describes the training and has
no formula.

**Slots**: `angles` (1, N, R/2), `pairs`. **Learns**: nothing. These are the frequencies of `rope_yarn` with
`ramp=turns`. YaRN's temperature of the scores is not used.

**Options**
- `factor`: f, by which long wavelengths are multiplied. It does not depend on the length.
- `low_freq_factor`, `high_freq_factor`: the numbers `low` and `high` in the formula. If a pair makes between `low` and
  `high` turns in L0 positions, its frequency is a blend of theta_t and theta_t / f.
- `base`: 500000 in Llama 3.
- `pairs`: `interleaved` as in Meta's code, `half` in the Hugging Face versions.
- `rotated`: as for `rope`.

**Past the training length**: defined; the encoding is designed for sequences of up to about f training lengths.

**Traps.** The frequencies differ from those of `rope` at every length, even below the training length.
"""

from decimal import Decimal
from functools import partial
from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.encoding import Reported
from fastpe.encodings.parts.angles import Frequencies
from fastpe.encodings.parts.rope_variant import rope_variant
from fastpe.encodings.parts.rotary import LARGEST, base_option, check_order, mixed, ramp_of_turns, rope_options
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.trig import PI


def printed(
    spec: Spec, theta: Frequencies, *, factor: float, low_freq_factor: float, high_freq_factor: float, **options: Any
) -> Frequencies:  # fmt: skip
    """The three cases of the formula."""
    length, scaled = spec.train_length, []
    f, low, high = Decimal(factor), Decimal(low_freq_factor), Decimal(high_freq_factor)
    for each in theta:
        wave = 2 * PI / each
        if wave < length / high:
            scaled.append(each)
        elif wave > length / low:
            scaled.append(each / f)
        else:
            smooth = (length / wave - low) / (high - low)
            scaled.append((1 - smooth) * each / f + smooth * each)
    return tuple(scaled)


def frequencies(
    spec: Spec, theta: Frequencies, *, factor: float, low_freq_factor: float, high_freq_factor: float, **options: Any
) -> Frequencies:  # fmt: skip
    """The frequencies of `printed`, computed with YaRN's ramp in turns."""
    return mixed(theta, Decimal(factor), ramp_of_turns(theta, spec.train_length, high_freq_factor, low_freq_factor))


ENCODING = rope_variant(
    frequencies,
    printed=printed,
    summary="rotary, with only the slow pairs stretched",
    formula=r"""
        \mathrm{wave}_t &= 2 \pi / \theta_t, \quad \text{positions per turn;} \quad \theta_t = \mathrm{base}^{-2t/R} \\
        \theta'_t &= \begin{cases}
        \theta_t & \text{if } \mathrm{wave}_t < L_0 / \mathrm{high} \\
        \theta_t / f & \text{if } \mathrm{wave}_t > L_0 / \mathrm{low} \\
        (1 - \mathrm{sm})\, \theta_t / f + \mathrm{sm}\, \theta_t & \text{else}
        \end{cases} \\
        \mathrm{sm} &= \frac{L_0 / \mathrm{wave}_t - \mathrm{low}}{\mathrm{high} - \mathrm{low}}
    """,
    use_when="you run or fine-tune models of the Llama 3.1 family",
    also_called=("llama3",),
    not_to_be_confused={
        "rope_yarn": "the same frequencies with its ramp in turns, and a temperature",
    },
    use="current",
    slots=("angles", "pairs"),
    options={
        "factor": Option(8.0, "by which long wavelengths are multiplied", float, minimum=1.0, maximum=LARGEST),
        "low_freq_factor": Option(
            1.0, "pairs with fewer turns in the training length are stretched", float, above=0.0, maximum=LARGEST
        ),
        "high_freq_factor": Option(
            4.0, "pairs with more turns in the training length keep their frequency", float, above=0.0, maximum=LARGEST
        ),
        **rope_options("interleaved", base_option(500000.0)),
    },
    check=partial(check_order, "high_freq_factor", "low_freq_factor"),
    source="Llama 3.1, Meta 2024, released code; arXiv:2407.21783, section 3.4.2",
    reported=Reported(
        "tuned",
        "Context raised from 8K to 128K tokens in six stages of training (some 800B tokens); hidden needles "
        "are then found.",
        "Grattafiori et al. 2024, arXiv:2407.21783, section 3.4.2",
    ),
)
