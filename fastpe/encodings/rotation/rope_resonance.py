"""Resonance RoPE: RoPE whose wavelengths are whole numbers of positions, so that angles repeat.

    wavelength_t = round(2 pi / theta_t),   theta'_t = 2 pi / wavelength_t,   the angle at position p is p theta'_t

theta are the frequencies of `rope`, rescaled if the option `rescaling` is set. A pair whose wavelength is at most the
training length takes all its angles in training. Larger integer positions only repeat these angles.

Source: Wang, Kobyzev, Lu, Rezagholizadeh and Liu 2024, "Resonance RoPE: Improving Context Length Generalization of
Large Language Models" (arXiv:2403.00071); sheryc/resonance_rope,
src/models/components/positional_embedding/rotary_resonance.py.

**Slots**: `angles` (1, N, R/2), where R is the number of rotated channels, and `pairs`. The rescaling `yarn` adds
`scale` and, if R < D, `rotors`, as in `rope_yarn`. **Learns**: nothing.

**Options**
- `rescaling`: which encoding's frequencies are used. `none`: `rope`. `ntk`: `rope_ntk`. `yarn`: `rope_yarn`, whose
  temperature is used too, as in the paper's extended models.
- `factor`: the factor s in the formulas of `rope_ntk` and `rope_yarn`. Default: the largest position plus one, divided
  by the training length, but at least 1.
- `beta_fast`, `beta_slow`: as for `rope_yarn`; the authors' code uses 2 and 1 instead of YaRN's 32 and 1.
- `base`, `pairs`, `rotated`: as for `rope`.

Wavelengths halfway between two integers are rounded to the even one. Positions may be real numbers. Positions between
integers have angles that do not occur at integers.

**Past the training length**: defined. Pairs whose wavelengths exceed the training length still reach angles that did
not occur in training. For this reason the paper also rescales frequencies.

**Traps.** Frequencies are rescaled first, and wavelengths are rounded afterwards. The smallest wavelength is 6, for
theta = 1. (A frequency above 4 pi/3 would have wavelength 1, and its pair would not rotate at any integer position.)
The authors' table has one period of angles in [0, 2 pi). Here angles lie in (-pi, pi], which gives the same rotations.
"""

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.angles import Array, Frequencies, fill_line, precise
from fastpe.encodings.parts.rotary import (
    FACTOR,
    LARGEST,
    LOGARITHMIC_BASE,
    check_order,
    ladder,
    printed_ladder,
    rope_options,
    rotated_width,
    shapes,
    sharper_channels,
    sharper_scale,
    sharper_shapes,
)
from fastpe.encodings.rotation import rope_ntk, rope_yarn
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.trig import PI

_BLOCK = 256  # rows corrected together
_YARN: dict[str, Any] = {"ramp": "dimensions", "truncate": True}  # the options of `rope_yarn` that are fixed here


def _unchanged(spec: Spec, theta: Frequencies, **options: Any) -> Frequencies:
    return theta


_PRINTED: dict[str, Callable[..., Frequencies]] = {
    "none": _unchanged,
    "ntk": rope_ntk.printed,
    "yarn": rope_yarn.printed,
}
_FREQUENCIES: dict[str, Callable[..., Frequencies]] = {
    "none": _unchanged, "ntk": rope_ntk.frequencies, "yarn": rope_yarn.frequencies,
}  # fmt: skip


def _shapes(spec: Spec, *, rescaling: str, rotated: int | None, **options: Any) -> dict[str, tuple[int, ...]]:
    return (sharper_shapes if rescaling == "yarn" else shapes)(spec, rotated=rotated)


def plain(
    spec: Spec, *, rescaling: str, factor: float | None, rotated: int | None, pairs: str, **options: Any
) -> dict[str, Any]:  # fmt: skip
    """The layout, and for `yarn` also `scale` with its temperature."""
    if rescaling != "yarn":
        return {"pairs": pairs}
    return {"pairs": pairs, "scale": sharper_scale(spec, rotated, rope_yarn.mscale(spec, factor=factor))}


def _channels(spec: Spec, rescaling: str, factor: float | None, rotated: int | None) -> dict[str, Array]:
    return sharper_channels(spec, rotated, rope_yarn.mscale(spec, factor=factor)) if rescaling == "yarn" else {}


def reference(
    spec: Spec, params: dict[str, Any], *, rescaling: str, factor: float | None, beta_fast: float, beta_slow: float,
    base: float, rotated: int | None, pairs: str,
) -> dict[str, Any]:  # fmt: skip
    """(p mod wavelength_t) 2 pi / wavelength_t, as exact fractions of a turn."""
    options = {"factor": factor, "beta_fast": beta_fast, "beta_slow": beta_slow, "base": base}
    tau = 2 * PI
    with precise():
        theta = _PRINTED[rescaling](spec, printed_ladder(base, rotated_width(spec, rotated)), **options, **_YARN)
        wavelengths = [(tau / each).to_integral_value(ROUND_HALF_EVEN) for each in theta]
        angles = np.empty((*spec.points().shape, len(theta)))
        for *place, t in np.ndindex(angles.shape):
            turns = Fraction(float(spec.points()[tuple(place)])) / int(wavelengths[t])
            turns -= math.ceil(turns - Fraction(1, 2))  # in (-1/2, 1/2]
            angles[*place, t] = min(float(tau * turns.numerator / turns.denominator), math.pi)
    return {"angles": angles[..., None, :, :], **_channels(spec, rescaling, factor, rotated)}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, rescaling: str, factor: float | None,
    beta_fast: float, beta_slow: float, base: float, rotated: int | None, pairs: str,
) -> None:  # fmt: skip
    """Fill `angles`, and `rotors` if YaRN's temperature applies to some channels only."""
    options = {"factor": factor, "beta_fast": beta_fast, "beta_slow": beta_slow, "base": base}
    with precise():
        theta = _FREQUENCIES[rescaling](spec, ladder(base, rotated_width(spec, rotated)), **options, **_YARN)
        theta = tuple(2 * PI / (2 * PI / each).to_integral_value(ROUND_HALF_EVEN) for each in theta)
    angles, points = out["angles"], spec.points()
    fill_line(spec, theta, angles)
    for first in range(0, spec.length, _BLOCK):
        some = slice(first, first + _BLOCK)
        _make_exact(angles[..., 0, some, :], np.abs(points[..., some, None]) * np.array(theta, np.float64))
    for slot, factors in _channels(spec, rescaling, factor, rotated).items():
        out[slot][...] = factors


def _make_exact(angles: Array, products: Array) -> None:
    """Set the angles of whole and half turns to exactly 0 and pi, where a rounded frequency leaves a small error.

    No other position is as close to a whole turn, because the float64 numbers next to p are at least 2^-53 p away.
    """
    angles[np.abs(angles) < 2.0**-60 * products] = 0.0
    angles[angles == -math.pi] = math.pi


ENCODING = Encoding(
    summary="rotary, in wavelengths of whole positions",
    formula=r"""
        \mathrm{wavelength}_t = \mathrm{round}(2 \pi / \theta_t), \quad \theta'_t = 2 \pi / \mathrm{wavelength}_t,
            \quad \text{the angle at position } p \text{ is } p\, \theta'_t
    """,
    use_when="RoPE is rescaled by NTK or YaRN, and fast pairs should repeat trained angles exactly",
    use="proposed",
    slots=("angles", "rotors", "pairs", "scale"),
    options={
        "rescaling": Option("none", "rescaling before frequencies are rounded", str, ("none", "ntk", "yarn")),
        "factor": FACTOR,
        "beta_fast": Option(
            2.0, "for yarn: pairs with more turns in training keep their frequency", float, above=0.0, maximum=LARGEST,
            samples=(2.0, 32.0),
        ),
        "beta_slow": Option(
            1.0, "for yarn: pairs with fewer turns in the training length are interpolated", float, above=0.0,
            maximum=LARGEST,
        ),
        **rope_options("half", LOGARITHMIC_BASE),
    },
    beyond="defined",
    moves=lambda *, rescaling, factor, **options: rescaling != "none" and factor is None,
    direction="yes",
    source="Wang et al. 2024, arXiv:2403.00071, and released code",
    ulp=2.0,
    shapes=_shapes,
    check=partial(check_order, "beta_fast", "beta_slow"),
)  # fmt: skip
