"""Morlet waves, added to the embeddings: sinusoids with learned frequencies and Gaussian envelopes.

    PE[p, 2t] = cos(p omega_t) e_t(p),   PE[p, 2t+1] = sin(p omega_t) e_t(p)
    e_t(p) = exp(-p^2 / (2 sigma_t^2 + 1e-8))
    sigma = max(exp(log_width), 1e-3),   omega = min(exp(log_frequency), 0.95 pi), but at least 5 / sigma

Source: Zeris 2026, "Beyond Sinusoids" (arXiv:2606.01258); AthanasiosZeris/energy-gated-attention,
paper3_mope/morlet_pe_figures.py, class MorletPE. The formulas follow the code.

**Slot**: `table` (N, C), C even. **Learns**: `log_frequency` and `log_width`, (C/2,) each. Initial frequencies are
log-spaced between 1 and 0.99 pi, and initial widths are 5 / frequency.

**Options**: none. Positions may be real numbers.

**Past the training length**: defined. The envelopes are centred on position 0, not on the token. Initial widths are 1.6
to 5, so rows at positions of 20 or more are nearly zero unless training makes the envelopes wider. With infinitely wide
envelopes the rows would be sinusoids, as in `sinusoidal`.

**Accuracy.** For given sigma and omega, an entry is within 8 * 2^-52 of the exact value.

**Traps.** Initially omega sigma = 5. This is exactly the limit of the rule "at least 5 / sigma", so rounding determines
for which pairs the rule applies. The frequencies of these pairs get no gradient. This rule has precedence over the cap
of 0.95 pi, so the fastest wave starts at 0.99 pi. In each pair the cosine comes first.
"""

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.angles import exact_angles, fill_angles, precise, turns_of
from fastpe.encodings.parts.frequencies import exact_product
from fastpe.encodings.slots import Spec

Array = np.ndarray[Any, Any]

_BLOCK = 2**13  # entries computed together
_CYCLES = 5.0  # omega sigma is at least this
_FASTEST = 0.95 * math.pi
_NARROWEST, _WIDEST = 1e-3, 1e100


def check(spec: Spec, **options: Any) -> None:
    """Require an even C."""
    if spec.dim % 2:
        raise ValueError(f"dim must be even for 'mope', half for cosines and half for sines, not {spec.dim}")


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A frequency and a width for every pair of channels."""
    return {"log_frequency": (spec.dim // 2,), "log_width": (spec.dim // 2,)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Log-spaced frequencies, and widths of five radians."""
    log_frequency = np.linspace(0.0, math.log(0.99 * math.pi), spec.dim // 2)
    return {"log_frequency": log_frequency, "log_width": math.log(_CYCLES) - log_frequency}


class _Waves(NamedTuple):
    """sigma, omega and the divisor of the envelope; whether omega is neither capped nor set by sigma (`free`), and
    whether sigma sets it (`held`). All arrays are (C/2,)."""

    width: Array
    frequency: Array
    divisor: Array
    free: Array
    held: Array


def _waves(params: dict[str, Any]) -> _Waves:
    log_frequency, log_width = (params[name].astype(np.float64) for name in ("log_frequency", "log_width"))
    with np.errstate(over="ignore"):
        own = np.exp(log_frequency)
        width, frequency = np.clip(np.exp(log_width), _NARROWEST, _WIDEST), np.minimum(own, _FASTEST)
    held = frequency * width < _CYCLES
    frequency = np.where(held, _CYCLES / width, frequency)
    return _Waves(width, frequency, 2.0 * width * width + 1e-8, ~held & (own <= _FASTEST), held)


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The formulas of the code, with angles and exponents in decimal arithmetic."""
    waves, points = _waves(params), spec.points()
    angles = exact_angles(points, [Decimal(float(each)) for each in waves.frequency])
    bell = np.empty(angles.shape)
    with precise():
        for *place, t in np.ndindex(angles.shape):
            bell[*place, t] = float(
                (-(Decimal(float(points[tuple(place)])) ** 2) / Decimal(float(waves.divisor[t]))).exp()
            )
    table = np.stack([np.cos(angles) * bell, np.sin(angles) * bell], axis=-1)
    return {"table": table.reshape(*points.shape, spec.dim)}


def _blocks(spec: Spec, waves: _Waves, table: Array) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Yield some positions (n, 1), the angles and envelopes (n, C/2) of their waves, and their rows (n, C) of the
    table."""
    turns, every = turns_of(waves.frequency[None, None]), spec.points()
    for sample in np.ndindex(*spec.batch):
        for first in range(0, spec.length, max(1, _BLOCK // spec.dim)):
            some = slice(first, first + max(1, _BLOCK // spec.dim))
            points = np.ascontiguousarray(every[sample][some, None])
            angles = np.empty((1, len(points), len(waves.width)))
            fill_angles(points, turns, angles)
            square, lost = exact_product(points, points)
            exponent = square / waves.divisor
            product, rest = exact_product(exponent, np.broadcast_to(waves.divisor, exponent.shape))
            owed = ((square - product) - rest + lost) / waves.divisor
            yield points, angles[0], np.exp(-exponent) * (1.0 - owed), table[sample][some]


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill `table`."""
    for _, angles, bell, rows in _blocks(spec, _waves(params), out["table"]):
        rows[:, 0::2] = np.cos(angles) * bell
        rows[:, 1::2] = np.sin(angles) * bell


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any) -> None:
    """For each wave, sum dPE times its derivatives over p, then apply the chain rule of sigma and omega."""
    waves = _waves(params)
    along, wider = np.zeros(len(waves.width)), np.zeros(len(waves.width))
    for points, angles, bell, rows in _blocks(spec, waves, dslots["table"]):
        dcos, dsin = rows[:, 0::2].astype(np.float64), rows[:, 1::2].astype(np.float64)
        cosine, sine = np.cos(angles), np.sin(angles)
        along += (points * bell * (dsin * cosine - dcos * sine)).sum(axis=0)
        wider += ((dcos * cosine + dsin * sine) * bell * points**2).sum(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        by_width = np.nan_to_num(wider * 4.0 * (waves.width / waves.divisor) ** 2)
    by_width -= np.where(waves.held, waves.frequency * along, 0.0)
    dparams["log_frequency"] += np.where(waves.free, waves.frequency * along, 0.0)
    dparams["log_width"] += np.where(waves.width > _NARROWEST, by_width, 0.0)


ENCODING = Encoding(
    summary="sinusoids of learned frequency and width, added",
    formula=r"""
        \mathrm{PE}[p, 2t] &= \cos(p\, \omega_t)\, e_t(p) \\
        \mathrm{PE}[p, 2t + 1] &= \sin(p\, \omega_t)\, e_t(p) \\
        e_t(p) &= \exp\left(-\frac{p^2}{2 \sigma_t^2 + 10^{-8}}\right) \\
        \sigma &= \max(\exp(\mathrm{log\_width}), 10^{-3}) \\
        \omega &= \min(\exp(\mathrm{log\_frequency}), 0.95 \pi), \quad \text{but at least } 5 / \sigma
    """,
    use_when="you reproduce Zeris 2026; before training, rows at positions of 20 or more are nearly zero",
    also_called=("MorletPE",),
    not_to_be_confused={"wavelet": "orthogonal wavelets at dyadic scales, nothing learned"},
    use="proposed",
    slots=("table",),
    options={},
    beyond="defined",
    direction="yes",
    source="Zeris 2026, arXiv:2606.01258, released code",
    ulp=16.0,
)
