"""DA-Transformer: the positive part of the score, multiplied by a learned sigmoid of the distance.

    S_ij = f(|j - i|) max(q_i . k_j, 0) / sqrt(D),    f(r) = (1 + e^v) / (1 + e^(v - w r))

Source: Wu, Wu and Huang 2021, "DA-Transformer: Distance-aware Transformer" (arXiv:2010.06925). No official code is
known.

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

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import expit

from fastpe.encoding import BeyondTrainingLength, Encoding, Spec
from fastpe.encodings._offsets import blocks, check_offsets, sides, stream_of
from fastpe.encodings._runs import fill_values
from fastpe.kernels._jit import entry
from fastpe.kernels.simd import (
    absolute,
    counting,
    exp,
    fma,
    lanes,
    minus,
    pointer,
    splat,
    store_first,
    where_negative,
)


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


_VANISHED, _SETTLED = 709.0, -42.0  # exponents from which e^-x is 0 here, and up to which 1 + e^x is 1


@entry(label="DA-Transformer's factors")
def _factors(start: int, w: np.ndarray, v: np.ndarray, found: np.ndarray) -> None:
    """f of the distances from `start` on and, where asked for, sigma(v - w r): (1 or 2, H, n).

    For v < 0, f = (1 + e^v) / (1 + e^x), x = v - w r, else (1 + e^-v) / (e^-v + e^x), x = -w r. Where x > 0, both
    sides of the fraction are divided by e^x, so that nothing overflows but f.
    """
    kinds, heads, count = found.shape
    width, one = lanes(splat(0.0)), splat(1.0)
    for h in range(heads):
        small, shift = math.exp(-abs(v[h])), min(v[h], 0.0)
        over, plus = 1.0 + small, 1.0 if v[h] < 0.0 else small
        settled = (math.log(plus) if plus > 0.0 else -np.inf) + _SETTLED
        factors, sigmas = pointer(found[0, h]), pointer(found[kinds - 1, h])
        for i in range(0, count, width):
            first, last = shift - w[h] * (start + i), shift - w[h] * (start + i + width)
            if kinds == 1 and (min(first, last) > _VANISHED or max(first, last) < settled):
                store_first(factors, i, splat(0.0 if first > 0.0 else over / plus), count - i)
                continue
            x = fma(splat(-w[h]), counting(float(start + i)), splat(shift))
            power = exp(minus(absolute(x)))
            upper, lower = where_negative(x, one, power), where_negative(x, power, one)
            share = one / fma(splat(plus), upper, lower)
            if kinds == 2:
                store_first(sigmas, i, lower * share, count - i)
            store_first(factors, i, splat(over) * upper * share, count - i)


def _at(distances: slice, w: np.ndarray, v: np.ndarray, kinds: int) -> np.ndarray:
    found = np.empty((kinds, len(w), distances.stop - distances.start))
    _factors(distances.start, w, v, found)
    return found


def _pieces(spec: Spec) -> Iterator[slice]:
    return blocks(spec.length, max(1, spec.heads // 4))


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any]) -> None:
    """Fill `gain`."""
    w, v = (params[name].astype(np.float64) for name in ("w", "v"))
    limit, last = np.finfo(out["gain"].dtype).max, spec.length - 1
    if (_at(slice(last, last + 1), w, v, 1) > limit).any() and np.isfinite([w, v]).all():  # f(0) = 1, and f is monotone
        raise BeyondTrainingLength(
            f"slot 'gain' of 'da' is not finite in {out['gain'].dtype}, whose largest value is {limit:.1e}: see "
            f"params['v'], whose largest value is {v.max():g}"
        )
    for r in _pieces(spec):
        fill_values(out["gain"], r.start, _at(r, w, v, 1)[0], np.ones(spec.heads))


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any]) -> None:
    """dw = sum of dgain f r sigma(v - w r), dv = sum of dgain f (sigma(v) - sigma(v - w r))."""
    w, v = (params[name].astype(np.float64) for name in ("w", "v"))
    behind, ahead = sides(dslots["gain"])
    dw, dv = np.zeros((2, spec.heads))
    for r in _pieces(spec):
        factor, sigma = _at(r, w, v, 2)
        weighted = np.add(behind[:, r], ahead[:, r], dtype=np.float64) * factor  # those of distance 0 do not matter
        dw += np.einsum("hr,r,hr->h", weighted, np.arange(r.start, r.stop, dtype=np.float64), sigma)
        dv += np.einsum("hr,hr->h", weighted, expit(v)[:, None] - sigma)
    dparams["w"] += dw
    dparams["v"] += dv


ENCODING = Encoding(
    slots=("gain", "rectify"),
    options={},
    beyond="defined",
    direction="no",
    source="Wu, Wu and Huang 2021, arXiv:2010.06925",
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
