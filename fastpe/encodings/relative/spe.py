"""Stochastic positional encoding, averaged: cosines of the offset multiply each channel's product of query and key.

    S_ij = s sum_c q_ic k_jc R_c(i - j) / (2K)
    R_c(m) = sum_k softplus(g_ck)^2 cos(2 pi f_ck m + theta_ck),   f = sigmoid(phi) / 2,   k = 1 .. K

Source: Liutkus, Cifka, Wu, Simsekli, Yang and Richard 2021, "Relative Positional Encoding for Transformers with Linear
Complexity" (arXiv:2105.08399), the sinusoidal encoding "sineSPE"; aliutkus/spe, src/pytorch/spe/spe.py, SineSPE. The
authors draw random features of query and key, 256 by default, so that the encoding works with linear attention. The
mean of the products of these features, over all draws, is the formula above. fastpe uses this mean, so nothing is
random.

**Slot**: `rel_gain` (H, 2N-1, D). Its row for the offset j - i contains R_c(i - j) / (2K) for every channel c.
**Learns**, shared by all layers: `frequency` phi, `offset` theta and `gain` g, each (H, D, K). Initially phi ~ N(-4,
1), which gives periods of about a hundred positions, and theta ~ N(0, 1). The K initial values of g in a channel are 2
z / sqrt(|z|), where z is a vector of K draws from N(0, 1) and |z| its norm.

**Options**
- `sines`: K, the number of sines of each channel; 1 by default, as in the code.

**Past the training length**: defined; the cosines continue.

**Accuracy.** Whole turns are removed from the angles exactly. For each channel, let A be the sum of softplus(g)^2 /
(2K) over its K sines. The error of an entry is at most (8 + 4K) 2^-52 times the largest A.

**Traps.** Initial entries of `rel_gain` are far from 1 and have both signs. With one sine, the largest entry of a
channel is below 0.2 for half of the channels and above 2.8 for a tenth of them. The factor 1/(2K) follows from the
authors' code. That code makes F random features of each query and of each key. The mean of the dot product of these
features is sqrt(F) / (2K sqrt(D)) times the sum over c above. Attention with heads of width F then divides this product
by sqrt(F). What remains is 1/(2K) times the usual 1/sqrt(D). The authors' function get_posattn_matrix omits the factor
1/(2K). The authors' gates, which mix R_c with 1, are not implemented. Positions cannot be given.
"""

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.angles import exact_angles, fill_angles, precise
from fastpe.encodings.parts.offsets import check_offsets, stream_of
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.trig import PI
from fastpe.kernels.simd import aligned_zeros, whole_vectors

Array = np.ndarray[Any, Any]

_BLOCK = 2**15  # cosines computed together
_NAMES = ("frequency", "offset", "gain")


def parameters(spec: Spec, *, sines: int) -> dict[str, tuple[int, ...]]:
    """Frequency, offset and gain of every sine."""
    return dict.fromkeys(_NAMES, (spec.heads, spec.head_dim, sines))


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A factor for every head, offset and channel."""
    return {"rel_gain": (spec.heads, 2 * spec.length - 1, spec.head_dim)}


def init(spec: Spec, rng: Any, *, sines: int) -> dict[str, Any]:
    """The initial values of the authors' code."""
    drawn = {name: stream_of(rng, name).normal((spec.heads, spec.head_dim, sines)) for name in _NAMES}
    norm = np.sqrt(np.square(drawn["gain"]).sum(axis=-1, keepdims=True))
    return {
        "frequency": drawn["frequency"] - 4.0,
        "offset": drawn["offset"],
        "gain": 2.0 * drawn["gain"] / np.sqrt(norm),
    }


def reference(spec: Spec, params: dict[str, Any], *, sines: int) -> dict[str, Any]:
    """Liutkus et al. 2021, the template of sineSPE, computed one sine at a time."""
    m = np.arange(spec.length - 1, -spec.length, -1.0)
    gain = np.zeros((spec.heads, len(m), spec.head_dim))
    for h, c, k in np.ndindex(spec.heads, spec.head_dim, sines):
        phi, theta, g = (float(params[name][h, c, k]) for name in _NAMES)
        with precise():
            step = PI * Decimal(float(_logistic(np.array(phi))))
        angle = exact_angles(m, [step])[:, 0]
        gain[h, :, c] += np.logaddexp(0.0, g) ** 2 * np.cos(angle + theta) / (2 * sines)
    return {"rel_gain": gain}


def _logistic(z: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-z)))


def _blocks(spec: Spec, params: dict[str, Any], slot: Array, head: int) -> Iterator[tuple[Array, Array, Array]]:
    """Yield some look-backs (n, 1), the angles (n, D, K) of one head's cosines, and the slot's rows (n, D) for them."""
    phi, theta = (params[name][head].astype(np.float64) for name in ("frequency", "offset"))
    turns = aligned_zeros((1, 1, 2, whole_vectors(phi.size, np.float64)), np.float64)
    turns[0, 0, 0, : phi.size] = _logistic(phi).ravel() / 2.0
    step = max(1, _BLOCK // phi.size)
    for first in range(0, slot.shape[1], step):
        rows = slot[head, first : first + step]
        m = spec.length - 1.0 - np.arange(first, first + len(rows))[:, None]
        angles = np.empty((1, len(m), phi.size))
        fill_angles(m, turns, angles)
        yield m, angles.reshape(len(m), *phi.shape) + theta, rows


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, sines: int) -> None:
    """Fill `rel_gain`."""
    for head in range(spec.heads):
        weight = np.logaddexp(0.0, params["gain"][head].astype(np.float64)) ** 2 / (2.0 * sines)
        for _, angles, rows in _blocks(spec, params, out["rel_gain"], head):
            rows[...] = (weight * np.cos(angles)).sum(axis=-1)


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, sines: int) -> None:
    """Sum three products over offsets: drel_gain times the cosine, times the sine, and times m and the sine.

    The derivatives of softplus and sigmoid then give the gradients of the parameters.
    """
    for head in range(spec.heads):
        phi, g = (params[name][head].astype(np.float64) for name in ("frequency", "gain"))
        cosines, sines_, lagged = np.zeros((3, *phi.shape))
        for m, angles, rows in _blocks(spec, params, dslots["rel_gain"], head):
            along = rows.astype(np.float64)[..., None]
            sine = along * np.sin(angles)
            cosines += (along * np.cos(angles)).sum(axis=0)
            sines_ += sine.sum(axis=0)
            lagged += (m[..., None] * sine).sum(axis=0)
        soft, gate = np.logaddexp(0.0, g), _logistic(phi)
        dparams["gain"][head] += soft * _logistic(g) * cosines / sines
        dparams["offset"][head] -= soft**2 * sines_ / (2.0 * sines)
        dparams["frequency"][head] -= soft**2 * lagged * math.pi * gate * (1.0 - gate) / (2.0 * sines)


ENCODING = Encoding(
    summary="learned cosines of the offset on each channel",
    formula=r"""
        S_{ij} &= s \sum_c q_{ic}\, k_{jc}\, \frac{R_c(i - j)}{2 K} \\
        R_c(m) &= \sum_{k=1}^{K} \mathrm{softplus}(g_{ck})^2 \cos(2 \pi f_{ck} m + \theta_{ck}),
            \quad f = \mathrm{sigmoid}(\phi) / 2
    """,
    use_when="you study the encoding of linear attention by Liutkus et al. 2021 without its random noise",
    also_called=("sineSPE", "stochastic positional encoding"),
    not_to_be_confused={"SPE (graphs)": "stable and expressive positional encodings of graphs"},
    use="proposed",
    slots=("rel_gain",),
    options={"sines": Option(1, "number of sines of each channel", int, minimum=1)},
    beyond="defined",
    direction="yes",
    source="Liutkus et al. 2021, arXiv:2105.08399, and released code",
    ulp=lambda spec, *, sines: 64.0 + 8.0 * sines,
    shapes=shapes,
    check=lambda spec, **options: check_offsets("spe", spec),
)
