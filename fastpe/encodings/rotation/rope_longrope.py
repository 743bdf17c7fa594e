"""LongRoPE: RoPE in which each frequency has its own divisor; short and long texts use different lists of divisors.

    theta'_t = theta_t / lambda_t                                        (`rope`: theta_t = base^(-2t/R))
    mscale   = sqrt(1 + ln s / ln L0),   scale = mscale^2 / sqrt(D)      s = target length / training length L0

lambda is the list `long` if the target length is larger than L0, and the list `short` otherwise. If `chosen_by` is
`sequence`, the length of the sequence decides instead of the target length. The first n0 tokens keep theta_t.

Source: Ding et al. 2024, "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens" (arXiv:2402.13753), section
3.1, eq. (3); mscale: microsoft/LongRoPE, rope/longrope.py, _calc_mscale_su. With `chosen_by` = `sequence`, the encoding
follows the Phi-3 models (modeling_phi3.py, Phi3SuScaledRotaryEmbedding) and the rope type "longrope" of Hugging Face's
transformers.

**Slots**: `angles` (1, N, R/2), `pairs`, `scale`. If R < D, `scale` is 1/sqrt(D), and there is also `rotors` (1, 1, D,
1, 1): it multiplies the rotated channels of query and key by mscale, and the others by 1 (Phi-4-mini). **Learns**:
nothing. The lists come from a search with the model that is extended; published models include their lists.

**Options**
- `short`, `long`: the lists, R/2 numbers each. By default all ones; then only mscale differs from `rope`.
- `start_tokens`: n0. Positions with |p| < n0 keep the frequencies of `rope`.
- `factor`: s. The target length is s L0. Default: the largest position plus one, divided by the training length, but at
  least 1.
- `chosen_by`: which length is compared with L0 to choose the list. `target`: s L0, as in the authors' code; a `factor`
  above 1 then always selects `long`. `sequence`: the largest position plus one, as in Phi-3; mscale still depends on
  `factor`. If `factor` is not set, both choices are the same.
- `mscale`: a value that replaces the formula of mscale.
- `base`, `pairs`, `rotated`: as for `rope`. Use the values of the model that is extended. The authors' code is for
  Hugging Face models, and uses `pairs` = `half`.

LongRoPE 2 (Shang et al. 2025, arXiv:2502.20082, sections 3.1 to 3.3) has the same formula, but another search for the
lists. This search starts from a list in which the divisor is s for the critical pair and all slower pairs. The function
`critical_list` of this module returns that list. Pass it as the option `long`, and leave `short` at its default.

**Past the training length**: defined; the encoding is designed for longer sequences. The authors fine-tune at two
lengths on the way to the longest one. A longer sequence changes the angles of earlier positions, unless `factor` is set
and `chosen_by` is `target`.

**Traps.** When the length that chooses the list exceeds L0, every angle jumps, and keys that were cached before are
wrong. The longest sequence of a batch determines the list for all sequences of the batch. With `start_tokens`, the
score of two tokens on different sides of n0 depends on more than their distance. In some models the list `short` was
found for the length of the first fine-tuning, not for L0.
"""

import math
from decimal import Decimal
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.angles import exact_angles, fill_angles, fill_line, precise, turns
from fastpe.encodings.parts.rotary import (
    FACTOR,
    LARGEST,
    ladder,
    printed_ladder,
    rope_options,
    rotated_width,
    sharper_channels,
    sharper_scale,
    sharper_shapes,
    stretch,
)
from fastpe.encodings.slots import Spec

_LEAST = 1e-6


def check(
    spec: Spec, *, short: tuple[float, ...] | None, long: tuple[float, ...] | None, factor: float | None,
    mscale: float | None, rotated: int | None, **options: Any,
) -> None:  # fmt: skip
    """Require one number per pair in each list, and a training length > 1 if mscale follows from the formula."""
    pairs = rotated_width(spec, rotated) // 2
    for name, factors in (("short", short), ("long", long)):
        if factors is not None and (len(factors) != pairs or min(factors) < _LEAST):
            raise ValueError(f"option {name!r} must be {pairs} numbers >= {_LEAST:g}, one per pair, not {factors}")
    if mscale is None and spec.train_length == 1 and stretch(spec, factor) > 1:
        raise ValueError(
            "train_length must be at least 2, not 1, if option 'mscale' is none: mscale then divides by its logarithm"
        )


def critical_list(
    pairs: int, factor: float, *, train_length: int, base: float = 10000.0, critical: int | None = None
) -> tuple[float, ...]:
    """Compute divisors by LongRoPE 2's rule: s^(t / t_c) for the pairs t < t_c, and s for all t >= t_c.

    For t < t_c the divisors have the effect of a larger base.

    Parameters
    ----------
    pairs : int
        R/2, the number of divisors.
    factor : float
        s, at least 1; the authors' search tries up to 2 s.
    train_length : int
        L0, more than 2 pi positions.
    base : float
        The base of the frequencies.
    critical : int, optional
        t_c, the critical pair. By default the first pair that makes less than one turn in L0 positions, ceil((R/2)
        log_base(L0 / (2 pi))).

    Returns
    -------
    tuple of float
        The `pairs` divisors, for the option `long`.

    Raises
    ------
    ValueError
        If `critical`, given or computed, is not from 1 to `pairs`, or if `factor` is below 1.

    Source: Shang et al. 2025, arXiv:2502.20082, section 3.1, which calls the larger base "NTK".

    Examples
    --------
    >>> critical_list(4, 16.0, train_length=64, base=100.0, critical=2)
    (1.0, 4.0, 16.0, 16.0)
    """
    if critical is None:
        critical = math.ceil(pairs * math.log(train_length / (2 * math.pi)) / math.log(base))
    if not 0 < critical <= pairs:
        raise ValueError(f"critical must be an index from 1 to {pairs}, not {critical}")
    if not factor >= 1:
        raise ValueError(f"factor must be at least 1, not {factor:g}")
    return tuple(factor ** min(t / critical, 1.0) for t in range(pairs))


def _chosen(
    spec: Spec, short: tuple[float, ...] | None, long: tuple[float, ...] | None, factor: float | None, chosen_by: str
) -> tuple[float, ...] | None:
    """The list of divisors for this length, or None for all ones."""
    return long if stretch(spec, factor if chosen_by == "target" else None) > 1 else short


def _temperature(spec: Spec, factor: float | None, mscale: float | None) -> float:
    """The factor of the rotated channels of query and key: `mscale`, or the formula."""
    if mscale is not None:
        return mscale
    s = float(stretch(spec, factor))
    return math.sqrt(1 + math.log(s) / math.log(spec.train_length)) if s > 1 and spec.train_length > 1 else 1.0


def plain(
    spec: Spec, *, factor: float | None, mscale: float | None, rotated: int | None, pairs: str, **options: Any
) -> dict[str, Any]:  # fmt: skip
    """The layout, and `scale`, which contains the temperature mscale if all channels are rotated."""
    return {"pairs": pairs, "scale": sharper_scale(spec, rotated, _temperature(spec, factor, mscale))}


def reference(
    spec: Spec, params: dict[str, Any], *, short: tuple[float, ...] | None, long: tuple[float, ...] | None,
    start_tokens: int, factor: float | None, chosen_by: str, mscale: float | None, base: float, rotated: int | None,
    pairs: str,
) -> dict[str, Any]:  # fmt: skip
    """p theta_t / lambda_t (Ding et al. 2024, eq. 3)."""
    points = spec.points()
    with precise():
        theta = list(printed_ladder(base, rotated_width(spec, rotated)))
        factors = _chosen(spec, short, long, factor, chosen_by) or [1.0] * len(theta)
        scaled = [each / Decimal(divisor) for each, divisor in zip(theta, factors, strict=True)]
    early = np.abs(points) < start_tokens
    angles = np.where(early[..., None], exact_angles(points, theta), exact_angles(points, scaled))
    return {"angles": angles[..., None, :, :], **sharper_channels(spec, rotated, _temperature(spec, factor, mscale))}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, short: tuple[float, ...] | None,
    long: tuple[float, ...] | None, start_tokens: int, factor: float | None, chosen_by: str, mscale: float | None,
    base: float, rotated: int | None, pairs: str,
) -> None:  # fmt: skip
    """Fill `angles`, and `rotors` if some channels are not rotated."""
    theta, angles = ladder(base, rotated_width(spec, rotated)), out["angles"]
    factors = _chosen(spec, short, long, factor, chosen_by)
    scaled = theta
    if factors is not None:
        with precise():
            scaled = tuple(each / Decimal(divisor) for each, divisor in zip(theta, factors, strict=True))
    fill_line(spec, scaled, angles)
    if start_tokens:
        points = spec.points()
        early = np.abs(points) < start_tokens
        plain_angles = np.empty((1, int(early.sum()), len(theta)))
        fill_angles(points[early][:, None], turns(theta), plain_angles)
        angles[..., 0, :, :][early] = plain_angles[0]
    for slot, channels in sharper_channels(spec, rotated, _temperature(spec, factor, mscale)).items():
        out[slot][...] = channels


def _moves(
    *, short: tuple[float, ...] | None, long: tuple[float, ...] | None, factor: float | None, chosen_by: str,
    mscale: float | None, **options: Any,
) -> bool:  # fmt: skip
    """Whether the temperature or the list depends on the length."""
    follows = factor is None or chosen_by == "sequence"
    return (factor is None and mscale is None) or (follows and short != long)


ENCODING = Encoding(
    summary="rotary, with a searched divisor for each pair",
    formula=r"""
        \theta'_t &= \frac{\theta_t}{\lambda_t}, \quad \theta_t = \mathrm{base}^{-2t/R} \\
        \mathrm{mscale} &= \sqrt{1 + \frac{\ln s}{\ln L_0}},
            \quad \mathrm{scale} = \frac{\mathrm{mscale}^2}{\sqrt{D}} \\
        s &= \frac{\text{target length}}{\text{training length } L_0}
    """,
    use_when="you run Phi-3 or another model that comes with LongRoPE's lists, or can search for such lists",
    also_called=("LongRoPE", "su", "LongRoPE2"),
    not_to_be_confused={
        "rope_mixed_radix": "factors by a formula, not found by a search",
    },
    use="current",
    slots=("angles", "rotors", "pairs", "scale"),
    options={
        "short": Option(None, "divisors up to the training length", tuple, optional=True, item=float),
        "long": Option(
            None, "divisors past the training length", tuple, optional=True, item=float,
            samples=((1.0, 1.5, 2.0, 3.0, 4.5, 7.0, 9.0, 12.5),),
        ),
        "start_tokens": Option(0, "number of first tokens that keep the frequencies of rope", int, minimum=0),
        "factor": FACTOR,
        "chosen_by": Option(
            "target", "length that chooses the list: factor times the training length, or the sequence length", str,
            ("target", "sequence"),
        ),
        "mscale": Option(
            None, "temperature of query and key; none: from the factor", float, above=0.0, optional=True,
            maximum=LARGEST,
        ),
        **rope_options("half"),
    },
    beyond="defined",
    moves=_moves,
    direction="yes",
    source="Ding et al. 2024, arXiv:2402.13753, section 3.1, eq. (3)",
    reported=Reported(
        "tuned",
        "LLaMA2 7B (4096), tuned at 256k tokens: perplexity on Books3 6.81 at 8k, 6.17 at 512k and 7.08 at 2048k.",
        "Ding et al. 2024, arXiv:2402.13753, table 6",
    ),
    ulp=2.0,
    shapes=sharper_shapes,
)  # fmt: skip
