"""Wavelets of the distance: for every offset the query is multiplied by a fixed vector of wavelets.

    S_ij = s [ q_i . k_j + q_i . p_{i-j} ],   p_m[c] = psi((m - b_c) / a_c),   psi(t) = (1 - t^2) exp(-t^2/2)
    (a, b) in {2^e, 2^(e+1), .., 2^(e+n-1)} x {0, .., D/n - 1},    one channel c for each

Source: Oka, Hasegawa, Nishida and Saito 2025, "Wavelet-based Positional Representation for Long Context"
(arXiv:2502.02004), eqs. (10) to (14); other wavelets: its section 6.3.1. No public code is known.

**Slot**: `rel_key` (1, 2N-1, D), whose row for the offset j - i is p_{i-j}. All heads and layers share the slot.
**Learns**: nothing.

**Options**
- `scales`: n, at most D. The authors use 8 scales with 16 shifts each at D = 128; 16 scales with 8 shifts did slightly
  better, and 2 scales with 64 shifts did badly. If n does not divide D, each of the finest scales has one more shift (a
  choice of fastpe).
- `first_exponent`: e. Default: 0; the authors' model with 7 billion parameters uses 2.
- `wavelet`: the function psi. `ricker`: as above. `gaussian`: exp(-t^2). `haar`: 1 on [-1/2, 0) and -1 on [-1, -1/2).
  `morlet`: exp(-t^2) cos(a t), whose frequency per position is the same at every scale.

The channels are ordered by scale. The paper does not give an order, and the query and key projections can undo any
order.

**Compared with `wavelet`**, the encoding of Li (2025): both use shifted copies of a wavelet psi at dyadic scales.

- In `wavelet`, psi is orthogonal with compact support (Daubechies) and has the factor 2^(-j/2). The shift k is in units
  of the scale, so that the shifts of every scale cover the training length. p is the absolute position. Rows are
  divided by their norm and added to the embeddings.
- Here, shifts are in units of one position at every scale, so all wavelets stay near distance 0. Amplitudes are 1, and
  p is the distance.

No setting makes the two encodings equal. Daubechies' first wavelet (`db1` in `wavelet`) equals `haar` here up to a
factor and the sign of the argument.

**Past the training length**: defined. p_m tends to 0 as the distance grows, so the score of a far key depends only on
content: with D = 128, the norm of p_m is 7.95 at m = 0, 2.18 at 100, and 0 to nine digits at 1000.

**Accuracy.** The error of an entry is at most 4 * 2^-52. Entries below 2^-126, which are subnormal in float32, are set
to 0.

**Traps.** All these psi except `haar` are even, so only the shifts b > 0 let the model tell left from right. At the
scale a = 128, the columns of the 16 shifts are almost equal. PyWavelets' `mexh` is `ricker` times 2 / (sqrt(3)
pi^(1/4)) = 0.867. Positions cannot be given.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.offsets import check_offsets
from fastpe.encodings.slots import Spec

Array = np.ndarray[Any, Any]

_LEAST = float(np.finfo(np.float32).tiny)
_BLOCK = 2**12  # offsets evaluated together


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """One table, shared by all heads."""
    return {"rel_key": (1, 2 * spec.length - 1, spec.head_dim)}


def reference(
    spec: Spec, params: dict[str, Any], *, scales: int, first_exponent: int, wavelet: str
) -> dict[str, Any]:  # fmt: skip
    """Oka et al. 2025, eqs. (10) to (14), computed one channel at a time."""
    m = np.arange(spec.length - 1, -spec.length, -1.0)  # i - j
    channels = []
    for scale, share in enumerate(np.array_split(np.arange(spec.head_dim), min(scales, spec.head_dim))):
        a = 2.0 ** (first_exponent + scale)
        for b in range(len(share)):
            t = (m - b) / a
            channel: Array
            if wavelet == "ricker":
                channel = (1 - t**2) * np.exp(-(t**2) / 2)
            elif wavelet == "gaussian":
                channel = np.exp(-(t**2))
            elif wavelet == "morlet":
                channel = np.exp(-(t**2)) * np.cos(a * t)
            else:
                channel = 1.0 * ((t >= -0.5) & (t < 0)) - ((t >= -1) & (t < -0.5))
            channels.append(np.where(abs(channel) < _LEAST, 0.0, channel))
    return {"rel_key": np.stack(channels, axis=-1)[None]}


def _wave(distance: Array, a: float, wavelet: str) -> Array:
    """psi(distance / a), with subnormal numbers set to 0."""
    t = distance / a
    if wavelet == "haar":
        return np.where((t >= -1.0) & (t < 0.0), np.where(t < -0.5, -1.0, 1.0), 0.0)
    square = t * t
    found = np.exp(square * (-0.5 if wavelet == "ricker" else -1.0))
    if wavelet == "ricker":
        found *= 1.0 - square
    elif wavelet == "morlet":
        found *= np.cos(distance)
    found[np.abs(found) < _LEAST] = 0.0
    return found


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, scales: int, first_exponent: int, wavelet: str
) -> None:
    """Fill `rel_key`. The channels of one scale are shifted copies of the same values, which are computed once."""
    table, (shifts, more) = out["rel_key"][0], divmod(spec.head_dim, min(scales, spec.head_dim))
    for start in range(0, len(table), _BLOCK):
        rows, channel = table[start : start + _BLOCK], 0
        for scale in range(min(scales, spec.head_dim)):
            count = shifts + (scale < more)
            distance = spec.length - 1.0 - np.arange(start, start + len(rows) + count - 1)
            line = _wave(distance, 2.0 ** (first_exponent + scale), wavelet)
            rows[:, channel : channel + count] = np.lib.stride_tricks.sliding_window_view(line, count)
            channel += count


ENCODING = Encoding(
    summary="query times fixed wavelets of the distance",
    formula=r"""
        S_{ij} &= s\, [q_i \cdot k_j + q_i \cdot p_{i-j}] \\
        p_m[c] &= \psi\left(\frac{m - b_c}{a_c}\right), \quad \psi(t) = (1 - t^2) \exp(-t^2/2) \\
        (a, b) &\in \{2^e, 2^{e+1}, \dots, 2^{e+n-1}\} \times \{0, \dots, D/n - 1\},
            \quad \text{one channel } c \text{ for each}
    """,
    use_when="a model must read several times its training length, and offsets matter at several scales",
    not_to_be_confused={
        "wavelet": "orthogonal wavelets of the absolute position, added to the embeddings",
        "mope": "learned Morlet waves of the absolute position",
    },
    use="proposed",
    slots=("rel_key",),
    options={
        "scales": Option(8, "number of scales; each is twice the previous scale", int, minimum=1),
        "first_exponent": Option(0, "the first scale is 2 to this power", int, minimum=0, maximum=26),
        "wavelet": Option("ricker", "the wavelet psi", str, ("ricker", "gaussian", "haar", "morlet")),
    },
    beyond="defined",
    direction="yes",
    source="Oka, Hasegawa, Nishida and Saito 2025, arXiv:2502.02004, eqs. (10) to (14)",
    reported=Reported(
        "holds",
        "Trained on 512 tokens: perplexity on WikiText-103 at 2512 tokens 17.99, where ALiBi has 18.41.",
        "Oka et al. 2025, arXiv:2502.02004, section 6.3.1",
    ),
    ulp=4.0,
    shapes=shapes,
    check=lambda spec, **options: check_offsets("wavelet_relative", spec),
)
