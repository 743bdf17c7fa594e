"""DA-Transformer: the positive part of the score, multiplied by a learned sigmoid of the distance.

    S_ij = f(|j - i|) max(q_i . k_j, 0) / sqrt(D),    f(r) = (1 + e^v) / (1 + e^(v - w r))

Source: Wu, Wu and Huang 2021, "DA-Transformer: Distance-aware Transformer" (arXiv:2010.06925); f as restated in
Dufter, Schmitt and Schütze 2021, "Position Information in Transformers: An Overview" (arXiv:2102.11090), eqs. (16) and
(17). No official code is known.

**Slots**: `gain` (H, 2N-1), and `rectify`, true. **Learns**, in every layer: `w` and `v` (H,). The authors' initial
values are not on record; ours are N(0, 0.1^2) and 1.

**Options**: none.

**The factor.** f(0) = 1. It falls to 0 with the distance where w < 0, rises to 1 + e^v where w > 0, and is 1
everywhere where w = 0. v says how far the rise or fall goes on before the curve levels off.

**Past the training length**: defined; the factor is near its limit there.

**Accuracy.** Written as e^(softplus(v) - softplus(v - w r)), which overflows only where f does. Within 6 + 3 |v| units
of 2^-52 times the largest factor. A v that takes 1 + e^v out of the dtype is refused.

**Traps.** A negative product becomes a score of 0, not a weight of 0: the softmax still gives it mass. The distance has
no direction: without a causal mask the model cannot tell left from right. Positions cannot be given.
"""

from typing import Any

import numpy as np
from scipy.special import expit

from fastpe.encoding import BeyondTrainingLength, Encoding, Spec
from fastpe.encodings._offsets import blocks, check_offsets, sides, stream_of


def parameters(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Two numbers for each head."""
    return {"w": (spec.heads,), "v": (spec.heads,)}


def init(spec: Spec, rng: Any) -> dict[str, Any]:
    """N(0, 0.1^2) and 1."""
    return {"w": 0.1 * stream_of(rng, "w").normal(spec.heads), "v": np.ones(spec.heads)}


def reference(spec: Spec, params: dict[str, Any]) -> dict[str, Any]:
    """Wu et al. 2021: f(r; w, v), as printed."""
    distance = np.abs(np.arange(1 - spec.length, spec.length))
    w, v = params["w"][:, None], params["v"][:, None]
    return {"gain": (1.0 + np.exp(v)) / (1.0 + np.exp(v - w * distance))}


def _factors(distances: slice, w: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """f and v - w r, (H, distances) each, float64; w and v are (H, 1)."""
    shifted = v - w * np.arange(distances.start, distances.stop, dtype=np.float64)
    return np.exp(np.logaddexp(0.0, v) - np.logaddexp(0.0, shifted)), shifted


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any]) -> None:
    """Fill `gain`."""
    w, v = (params[name].astype(np.float64)[:, None] for name in ("w", "v"))
    limit = np.finfo(out["gain"].dtype).max
    behind, ahead = sides(out["gain"])
    for r in blocks(spec.length, 16 * spec.heads):
        factor, _ = _factors(r, w, v)
        if (factor > limit).any() and np.isfinite([w, v]).all():
            raise BeyondTrainingLength(
                f"slot 'gain' of 'da' is not finite in {out['gain'].dtype}, whose largest value is {limit:.1e}: see "
                f"params['v'], whose largest value is {v.max():g}"
            )
        behind[:, r] = ahead[:, r] = factor


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any]) -> None:
    """dw = sum of dgain f r sigma(v - w r), dv = sum of dgain f (sigma(v) - sigma(v - w r))."""
    w, v = (params[name].astype(np.float64)[:, None] for name in ("w", "v"))
    behind, ahead = sides(dslots["gain"])
    dw, dv = np.zeros((2, spec.heads))
    for r in blocks(spec.length, 16 * spec.heads):
        factor, shifted = _factors(r, w, v)
        weighted = np.add(behind[:, r], ahead[:, r], dtype=np.float64) * factor  # those of distance 0 do not matter
        dw += (weighted * np.arange(r.start, r.stop) * expit(shifted)).sum(axis=1)
        dv += (weighted * (expit(v) - expit(shifted))).sum(axis=1)
    dparams["w"] += dw
    dparams["v"] += dv


ENCODING = Encoding(
    slots=("gain", "rectify"),
    options={},
    beyond="defined",
    direction="no",
    source="Wu, Wu and Huang 2021, arXiv:2010.06925; arXiv:2102.11090, eqs. (16) and (17)",
    ulp=9.0,  # while |v| is at most 1, as it is at first; see the page
    reference=reference,
    fill=fill,
    pull=pull,
    init=init,
    parameters=parameters,
    shapes=lambda spec: {"gain": (spec.heads, 2 * spec.length - 1)},
    plain=lambda spec: {"rectify": True},
    check=lambda spec: check_offsets("da", spec),
    per_layer=("w", "v"),
)
