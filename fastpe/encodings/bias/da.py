"""DA-Transformer: the positive part of the score, multiplied by a learned sigmoid of the distance.

    S_ij = f(|j - i|) max(q_i . k_j, 0) / sqrt(D),    f(r) = (1 + e^v) / (1 + e^(v - w r))

Source: Wu, Wu and Huang 2021, "DA-Transformer: Distance-aware Transformer" (arXiv:2010.06925); f as restated in
Dufter, Schmitt and Schütze 2021, "Position Information in Transformers: An Overview" (arXiv:2102.11090), eqs. (16) and
(17). No official code is known.

**Slots**: `gain` (H, 2N-1), which holds f, and `rectify`, which is True. **Learns**, separately in every layer: `w` and
`v` (H,). The authors' initial values are not known; here `w` is drawn from N(0, 0.1^2), and `v` starts at 1.

**Options**: none.

**The factor.** f(0) = 1. As the distance grows, f falls to 0 if w < 0, and rises to 1 + e^v if w > 0; if w = 0, it is 1
everywhere. A larger v makes the rise (w > 0) continue to larger distances, and the fall (w < 0) begin at smaller
distances.

**Past the training length**: defined; at such distances the factor is close to its limit.

**Accuracy.** Numerator and denominator are divided by their largest power of e, so that only f itself can overflow. The
error is at most (6 + 3 |v|) 2^-52 times the largest factor. A v that makes a factor too large for the dtype raises an
error.

**Traps.** A negative product becomes a score of 0, not a weight of 0: the softmax still gives that key some weight. The
distance has no direction: without a causal mask the model cannot tell left from right. Positions cannot be given.
"""

import math
from typing import Any

import numpy as np
from scipy.special import expit

from fastpe.encodings.encoding import BeyondTrainingLength, Encoding
from fastpe.encodings.parts.distance_runs import place, put_values
from fastpe.encodings.parts.offsets import blocks, check_offsets, sides, stream_of
from fastpe.encodings.slots import Spec
from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.fills.sides import PIECE, SLACK
from fastpe.kernels.fills.table import finish
from fastpe.kernels.simd import (
    absolute,
    at,
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
    """`w` drawn from N(0, 0.1^2), and `v` equal to 1."""
    return {"w": 0.1 * stream_of(rng, "w").normal(spec.heads), "v": np.ones(spec.heads)}


def reference(spec: Spec, params: dict[str, Any]) -> dict[str, Any]:
    """Wu et al. 2021: f(r; w, v), with numerator and denominator of the printed fraction divided by e^v if v > 0."""
    distance = np.abs(np.arange(1 - spec.length, spec.length))
    w, v = params["w"][:, None], params["v"][:, None]
    over = np.maximum(v, 0.0)
    one = np.exp(-over)
    with np.errstate(over="ignore", divide="ignore"):  # a factor may be 0, or too large for a float
        return {"gain": (one + np.exp(v - over)) / (one + np.exp((v - over) - w * distance))}


_VANISHED, _SETTLED = 709.0, -42.0  # e^-x counts as 0 from x = 709 on, and 1 + e^x is 1 up to x = -42
_AT_ONCE, _BLOCK = 4 * PIECE, 64


@inner
def _factors_of(w, v, start, factors, sigmas, both):  # type: ignore[no-untyped-def] # a kernel's types are Numba's
    """Write f of the distances from `start` on to `factors` and, if `both`, sigma(v - w r) to `sigmas`::

        v < 0:   f = (1 + e^v) / (1 + e^x),         x = v - w r
        else:    f = (1 + e^-v) / (e^-v + e^x),     x = -w r

    If x > 0, numerator and denominator are divided by e^x, so that only f itself can overflow.
    """
    width, one, count = lanes(splat(0.0)), splat(1.0), factors.size
    small, shift = math.exp(-abs(v)), min(v, 0.0)
    over, plus = 1.0 + small, 1.0 if v < 0.0 else small
    settled = (math.log(plus) if plus > 0.0 else -np.inf) + _SETTLED
    for block in range(0, count, _BLOCK):
        end = min(block + _BLOCK, count)
        first, last = shift - w * (start + block), shift - w * (start + end)
        if not both and (min(first, last) > _VANISHED or max(first, last) < settled):
            constant = splat(0.0 if first > 0.0 else over / plus)
            for i in range(block, end, width):
                store_first(pointer(factors), i, constant, count - i)
            continue
        for i in range(block, end, width):
            x = fma(splat(-w), counting(float(start + i)), splat(shift))
            power = exp(minus(absolute(x)))
            upper, lower = where_negative(x, one, power), where_negative(x, power, one)
            share = one / fma(splat(plus), upper, lower)
            if both:
                store_first(pointer(sigmas), i, lower * share, count - i)
            store_first(pointer(factors), i, splat(over) * upper * share, count - i)


@entry(label="DA-Transformer's factors")
def _fill(
    w: np.ndarray, v: np.ndarray, heads: int, reach: int, first: np.ndarray, row_step: int, step: int, large: bool
) -> None:
    lines, factors = np.empty((2, 2, PIECE + SLACK), first.dtype), np.empty(_AT_ONCE)
    for h in range(heads):
        row = at(pointer(first), h * row_step)
        for start in range(0, reach + 1, _AT_ONCE):
            found = factors[: min(_AT_ONCE, reach + 1 - start)]
            _factors_of(w[h], v[h], start, found, found, False)
            put_values(found, 1.0, start, lines, row, reach, step, large)
    finish(large)


@entry(label="DA-Transformer's factors")
def _factors(w: np.ndarray, v: np.ndarray, start: int, factors: np.ndarray, sigmas: np.ndarray) -> None:
    for h in range(w.size):
        _factors_of(w[h], v[h], start, factors[h], sigmas[h], True)


def _at(distances: slice, w: np.ndarray, v: np.ndarray) -> np.ndarray:
    """f and sigma(v - w r), (2, H, distances)."""
    found = np.empty((2, len(w), distances.stop - distances.start))
    _factors(w, v, distances.start, *found)
    return found


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any]) -> None:
    """Fill `gain`."""
    w, v = (params[name].astype(np.float64) for name in ("w", "v"))
    limit, last = np.finfo(out["gain"].dtype).max, spec.length - 1
    if (_at(slice(last, last + 1), w, v)[0] > limit).any():  # f(0) = 1, and f is monotone
        raise BeyondTrainingLength(
            f"slot 'gain' of 'da' is not finite in {out['gain'].dtype}, whose largest value is {limit:.1e}: see "
            f"params['v'], whose largest value is {v.max():g}"
        )
    _fill(w, v, *place(out["gain"]))


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any]) -> None:
    """dw = sum of dgain f r sigma(v - w r), dv = sum of dgain f (sigma(v) - sigma(v - w r))."""
    w, v = (params[name].astype(np.float64) for name in ("w", "v"))
    behind, ahead = sides(dslots["gain"])
    dw, dv = np.zeros((2, spec.heads))
    for r in blocks(spec.length, max(1, spec.heads // 4)):
        factor, sigma = _at(r, w, v)
        weighted = np.add(behind[:, r], ahead[:, r], dtype=np.float64) * factor  # distance 0, on both sides, adds 0
        dw += np.einsum("hr,r,hr->h", weighted, np.arange(r.start, r.stop, dtype=np.float64), sigma)
        dv += np.einsum("hr,hr->h", weighted, expit(v)[:, None] - sigma)
    dparams["w"] += dw
    dparams["v"] += dv


ENCODING = Encoding(
    summary="scores times a trained sigmoid of the distance",
    formula=r"""
        S_{ij} &= f(\left| j - i \right|)\, \max(q_i \cdot k_j,\ 0) / \sqrt{D} \\
        f(r) &= \frac{1 + e^{v}}{1 + e^{v - w r}}
    """,
    use_when="you reproduce DA-Transformer; each head then learns whether near or far tokens count more",
    also_called=("DA-Transformer", "distance-aware Transformer"),
    use="proposed",
    slots=("gain", "rectify"),
    options={},
    beyond="defined",
    direction="no",
    source="Wu, Wu and Huang 2021, arXiv:2010.06925; arXiv:2102.11090, eqs. (16) and (17)",
    ulp=9.0,  # for |v| at most 1, as at initialisation; see "Accuracy" above
    shapes=lambda spec: {"gain": (spec.heads, 2 * spec.length - 1)},
    plain=lambda spec: {"rectify": True},
    check=lambda spec: check_offsets("da", spec),
    per_layer=("w", "v"),
)
