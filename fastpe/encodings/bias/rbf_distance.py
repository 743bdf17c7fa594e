"""A bias for the distance of two points in space, computed by a learned network of Gaussians.

    S_ij = s q_i . k_j + MLP(g(y_ij))_h,   y_ij = mul |x_i - x_j| + bias
    g_k(y) = exp(-((y - mu_k)/s_k)^2 / 2) / (sqrt(2 pi) s_k),   s_k = |sigma_k| + 1e-5,   k = 1 .. K
    MLP(g) = gelu(g hidden_weight + hidden_bias) out_weight + out_bias

Source: Shi et al. 2022, "Benchmarking Graphormer on Large-Scale Molecular Modeling Datasets" (arXiv:2203.04810), the
3-D bias; constants and initial values: microsoft/Graphormer, graphormer/models/graphormer_3d.py, GaussianLayer,
NonLinear and Graphormer3D. In that code each pair of atom types has its own mul and bias, and pi is rounded to 3.14159.
Here all pairs have the same type.

**Slot**: `scores` (H, N, N), which takes O(N^2) memory. **Learns**, shared by all layers: `mu`, `sigma` (K,), initially
uniform in (0, 3); `mul`, `bias` (1,), initially 1 and 0; `hidden_weight` (K, K), `hidden_bias` (K,), `out_weight` (K,
H), `out_bias` (H,), initially uniform in ±1/sqrt(K).

**Positions** are points, (N, 3) or (B, N, 3), in the unit of mu and sigma; `start` is added to every coordinate, which
changes no distance. If no positions are given, the points lie on a helix, (cos(6 pi t)/4, sin(6 pi t)/4, 3t), where t
is the index of the point divided by the training length. Over the training length the helix makes three turns, and
distances grow with |i - j| from 0 to 3.

**Options**
- `gaussians`: K, the number of Gaussians, which is also the width of the hidden layer.

**Past the training length**: defined. In a longer sequence the helix continues, and the points within the training
length stay where they are. Initially the centres of all Gaussians are below 3. At larger distances the Gaussians tend
to 0, so the bias tends to the output of the MLP for an input of zeros.

**Symmetries.** Translating, rotating or reflecting all points does not change the scores, so mirror images have equal
scores. On the helix the bias depends only on |i - j|. For i = j, the distance is 0, and its bias is added like any
other.

**Speed.** On the helix only N distances occur, and each takes 4 K^2 operations. For N = 50 and K = 128 this is a total
of 3 million operations, or four times as many with gradients. If positions are given, every pair i <= j has its own
distance, and the total is 80 million operations.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.slots import Spec
from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.products.float_gemm import FROM, OVERWRITE, add_column_sums
from fastpe.kernels.products.gemm import gemm
from fastpe.kernels.rows.activation import GELU, activate_backward, gelu
from fastpe.kernels.simd import (
    aligned_zeros,
    at,
    exp,
    fma,
    lanes,
    load_first,
    minus,
    pointer,
    splat,
    store_first,
    total,
)

Array = np.ndarray[Any, Any]

_LEAST = 1e-5
_DENSITY = 1 / np.sqrt(2 * np.pi)
_PAIRS = 2**16  # computed in a buffer before they are copied
_RUN = 60  # pairs computed together: they fit in cache, and fill ten tiles of the matrix product
_ROWS = 256  # queries whose gradients are added up together
_NONE, _ONE = np.int64(0), np.int64(1)


def _three(**options: Any) -> int:
    return 3


def parameters(spec: Spec, *, gaussians: int) -> dict[str, tuple[int, ...]]:
    """The Gaussians, and two linear maps."""
    k = gaussians
    hidden = {"hidden_weight": (k, k), "hidden_bias": (k,), "out_weight": (k, spec.heads), "out_bias": (spec.heads,)}
    return {"mu": (k,), "sigma": (k,), "mul": (1,), "bias": (1,), **hidden}


def init(spec: Spec, rng: Any, *, gaussians: int) -> dict[str, Any]:
    """The initial values of the released code."""
    found = {"mul": np.ones(1), "bias": np.zeros(1)}
    for name, shape in parameters(spec, gaussians=gaussians).items():
        if name not in found:
            number = replace(rng, step=name).uniform(shape)
            found[name] = 3 * number if name in ("mu", "sigma") else (2 * number - 1) / np.sqrt(gaussians)
    return found


def _points(spec: Spec) -> Array:
    """The points (..., N, 3) without `start`: no distance depends on it, but adding it would cost digits."""
    if spec.positions is not None:
        return spec.positions
    t = np.arange(spec.length) / spec.train_length
    return np.stack([np.cos(6 * np.pi * t) / 4, np.sin(6 * np.pi * t) / 4, 3 * t], axis=-1)


def reference(spec: Spec, params: dict[str, Any], *, gaussians: int) -> dict[str, Any]:
    """The formula for all pairs, one operation at a time."""
    points = _points(spec)
    distance = np.linalg.norm(points[..., :, None, :] - points[..., None, :, :], axis=-1)
    y = params["mul"] * distance[..., None] + params["bias"]
    deviation = np.abs(params["sigma"]) + _LEAST
    bells = np.exp(-(((y - params["mu"]) / deviation) ** 2) / 2) / (np.sqrt(2 * np.pi) * deviation)
    x = np.tensordot(bells, params["hidden_weight"], 1) + params["hidden_bias"]
    scores = np.tensordot(x * special.ndtr(x), params["out_weight"], 1) + params["out_bias"]
    return {"scores": np.moveaxis(scores, -1, -3)}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, gaussians: int) -> None:
    """Fill `scores`."""
    scores, values = out["scores"], _prepared(params)

    def found(distance: Array) -> Array:
        target = aligned_zeros((len(distance), spec.heads), np.float64)
        _forward(distance, *values, aligned_zeros((2, _RUN * gaussians), np.float64), target)
        return target.T

    if spec.positions is None:
        for head, ahead in zip(scores, found(_along_the_helix(spec)), strict=True):
            both_ways = np.concatenate([ahead[:0:-1], ahead]).astype(head.dtype)
            head[...] = sliding_window_view(both_ways, spec.length)[::-1]
        return
    for sample, points in _samples(spec):
        for left, right, distance in _pairs(points):
            scores[sample][:, left, right] = scores[sample][:, right, left] = found(distance)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, gaussians: int
) -> None:
    """Backpropagate from the scores to the Gaussians; the scores of (i, j) and (j, i) share a distance."""
    values = _prepared(params)
    mu, inverse, affine, hidden_weight, hidden_bias, out_weight, out_bias = (
        aligned_zeros(v.shape, v.dtype) for v in values
    )
    gradients = (mu, inverse, affine, hidden_weight, hidden_bias, out_weight, out_bias)
    turned = (np.ascontiguousarray(values[3].T), np.ascontiguousarray(values[5].T))
    for distance, dfound in _distance_gradients(spec, dslots["scores"]):
        work = aligned_zeros((4, _RUN * gaussians), np.float64)
        _backward(distance, *values, *turned, work, np.ascontiguousarray(dfound.T), *gradients)
    slope = -np.sign(params["sigma"]) * values[1] ** 2  # derivative of 1/s_k with respect to sigma_k
    found = (mu, inverse * slope, affine[:1], affine[1:], hidden_weight, hidden_bias, out_weight, out_bias)
    for name, gradient in zip(_ORDER, found, strict=True):
        dparams[name] += gradient


def _along_the_helix(spec: Spec) -> Array:
    """The distances of points whose indices differ by 0 .. N - 1; on a helix they depend only on this difference."""
    t = np.arange(spec.length) / spec.train_length
    return np.hypot(np.sin(3 * np.pi * t) / 2, 3 * t)


def _distance_gradients(spec: Spec, dscores: Array) -> Iterator[tuple[Array, Array]]:
    """Yield distances (M,), and the sums (H, M) of the gradients of all scores that use each distance."""
    if spec.positions is None:
        n = spec.length
        total = np.zeros((spec.heads, 2 * n - 1))  # by j - i
        for first in range(0, n, _ROWS):
            rows = dscores[:, first : first + _ROWS]
            count, padded = rows.shape[1], np.zeros((spec.heads, rows.shape[1], 2 * n))
            padded[:, :, :n] = rows[:, ::-1]
            # the same memory, seen as rows shorter by one: each row is shifted by one element against the previous row
            shifted = padded.reshape(spec.heads, -1)[:, : count * (2 * n - 1)].reshape(spec.heads, count, 2 * n - 1)
            behind = n - first - count
            total[:, behind:] += shifted.sum(axis=1)[:, : 2 * n - 1 - behind]
        total[:, n:] += total[:, n - 2 :: -1]
        yield _along_the_helix(spec), np.ascontiguousarray(total[:, n - 1 :])
        return
    for sample, points in _samples(spec):
        own = dscores[sample]
        for left, right, distance in _pairs(points):
            yield distance, own[:, left, right].astype(np.float64) + own[:, right, left] * (left != right)


_ORDER = ("mu", "sigma", "mul", "bias", "hidden_weight", "hidden_bias", "out_weight", "out_bias")


def _prepared(params: dict[str, Any]) -> tuple[Array, ...]:
    """mu, 1/s, (mul, bias) and the four arrays of the MLP, float64."""
    wide = [np.ascontiguousarray(params[name], np.float64) for name in _ORDER]
    return wide[0], 1 / (np.abs(wide[1]) + _LEAST), np.concatenate(wide[2:4]), *wide[4:]


def _samples(spec: Spec) -> Iterator[tuple[Any, Array]]:
    points = _points(spec)
    for sample in np.ndindex(*points.shape[:-2]):
        yield sample, points[sample]


def _pairs(points: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Yield all pairs i <= j and their distances, in blocks."""
    count = len(points)
    rows = max(1, _PAIRS // count)
    for start in range(0, count, rows):
        left, right = np.nonzero(np.arange(start, min(start + rows, count))[:, None] <= np.arange(count))
        left += start
        yield left, right, np.sqrt(np.square(points[left] - points[right]).sum(axis=1))


@inner
def _hidden(distance, start, count, mu, inverse, affine, weight, bias, bells, x):  # type: ignore[no-untyped-def]
    """bells (count, K) and x = bells W + b for the distances from `start` on."""
    k = np.int64(mu.shape[0])
    for i in range(count):
        y = splat(affine[0] * distance[start + i] + affine[1])
        for j in range(0, k, lanes(pointer(mu))):
            narrow = load_first(pointer(inverse), j, k - j)
            z = (y - load_first(pointer(mu), j, k - j)) * narrow
            store_first(bells, i * k + j, exp(splat(-0.5) * z * z) * narrow * splat(_DENSITY), k - j)
    w, b = pointer(weight), pointer(bias)
    gemm(bells, k, _ONE, w, k, x, k, np.int64(count), k, k, FROM, b, _NONE, x, _NONE)


@entry(label="scores of distances")
def _forward(
    distance: Array, mu: Array, inverse: Array, affine: Array, hidden_weight: Array, hidden_bias: Array,
    out_weight: Array, out_bias: Array, work: Array, out: Array,
) -> None:  # fmt: skip
    k, heads = np.int64(mu.shape[0]), np.int64(out.shape[1])
    bells, x, w, b = pointer(work[0]), pointer(work[1]), pointer(out_weight), pointer(out_bias)
    for start in range(0, out.shape[0], _RUN):
        count = np.int64(min(_RUN, out.shape[0] - start))
        _hidden(distance, start, count, mu, inverse, affine, hidden_weight, hidden_bias, bells, x)
        gelu(x, bells, count * k)
        y = at(pointer(out), start * heads)
        gemm(bells, k, _ONE, w, heads, y, heads, count, heads, k, FROM, b, _NONE, y, _NONE)


@entry(label="gradient of scores of distances")
def _backward(
    distance: Array, mu: Array, inverse: Array, affine: Array, hidden_weight: Array, hidden_bias: Array,
    out_weight: Array, out_bias: Array, hidden_turned: Array, out_turned: Array, work: Array, dout: Array,
    dmu: Array, dinverse: Array, daffine: Array, dhidden_weight: Array, dhidden_bias: Array, dout_weight: Array,
    dout_bias: Array,
) -> None:  # fmt: skip
    k, heads = np.int64(mu.shape[0]), np.int64(dout.shape[1])
    bells, x, active, dx = pointer(work[0]), pointer(work[1]), pointer(work[2]), pointer(work[3])
    turned, out_turn = pointer(hidden_turned), pointer(out_turned)
    dw, dv = pointer(dhidden_weight), pointer(dout_weight)
    for start in range(0, dout.shape[0], _RUN):
        count = np.int64(min(_RUN, dout.shape[0] - start))
        _hidden(distance, start, count, mu, inverse, affine, hidden_weight, hidden_bias, bells, x)
        gelu(x, active, count * k)
        dy = at(pointer(dout), start * heads)
        gemm(active, _ONE, k, dy, heads, dv, heads, k, heads, count, FROM, dv, heads, dv, _NONE)
        add_column_sums(dy, heads, count, heads, pointer(dout_bias))
        gemm(dy, heads, _ONE, out_turn, k, dx, k, count, k, heads, OVERWRITE, dx, _NONE, dx, _NONE)
        activate_backward(x, dx, count, k, GELU)
        gemm(bells, _ONE, k, dx, k, dw, k, k, k, count, FROM, dw, k, dw, _NONE)
        add_column_sums(dx, k, count, k, pointer(dhidden_bias))
        gemm(dx, k, _ONE, turned, k, active, k, count, k, k, OVERWRITE, active, _NONE, active, _NONE)
        _bells_backward(distance, start, count, mu, inverse, affine, bells, active, dmu, dinverse, daffine)


@inner
def _bells_backward(distance, start, count, mu, inverse, affine, bells, dbells, dmu, dinverse, daffine):  # type: ignore[no-untyped-def]
    # with r = 1/s and z = (y - mu) r:  dg/dmu = g z r,  dg/dr = g (1 - z^2)/r,  dg/dy = -dg/dmu
    k = np.int64(mu.shape[0])
    for i in range(count):
        y, along = splat(affine[0] * distance[start + i] + affine[1]), splat(0.0)
        for j in range(0, k, lanes(pointer(mu))):
            left = k - j
            narrow = load_first(pointer(inverse), j, left)
            z = (y - load_first(pointer(mu), j, left)) * narrow
            d = load_first(bells, i * k + j, left) * load_first(dbells, i * k + j, left)
            shift = d * z * narrow
            along = along - shift
            store_first(pointer(dmu), j, load_first(pointer(dmu), j, left) + shift, left)
            change = load_first(pointer(dinverse), j, left) + d * fma(minus(z), z, splat(1.0)) / narrow
            store_first(pointer(dinverse), j, change, left)
        slope = total(along)
        daffine[0] += slope * distance[start + i]
        daffine[1] += slope


ENCODING = Encoding(
    summary="bias from a network of Gaussians of 3-D distance",
    formula=r"""
        S_{ij} &= s\, q_i \cdot k_j + \mathrm{MLP}(g(y_{ij}))_h,
            \quad y_{ij} = \mathrm{mul}\, \left| x_i - x_j \right| + \mathrm{bias} \\
        g_k(y) &= \frac{\exp\left(-\left((y - \mu_k) / s_k\right)^2 / 2\right)}{\sqrt{2 \pi}\, s_k},
            \quad s_k = \left| \sigma_k \right| + 10^{-5}, \quad k = 1, \dots, K \\
        \mathrm{MLP}(g) &= \mathrm{gelu}(g\, \mathrm{hidden\_weight} + \mathrm{hidden\_bias})\, \mathrm{out\_weight} +
            \mathrm{out\_bias}
    """,
    use_when="inputs are points in space, such as atoms, and only their distances may matter",
    also_called=("GBF", "Graphormer's 3-D bias"),
    use="other",
    needs=Needs("coordinates"),
    slots=("scores",),
    options={"gaussians": Option(128, "number of Gaussians, and width of the hidden layer", int, minimum=1)},
    beyond="defined",
    direction="no",
    source="Shi et al. 2022, arXiv:2203.04810, and released code",
    # for the initial values; a narrow Gaussian far from 0 would amplify the rounding of y
    ulp=lambda spec, gaussians: 4096.0 + 64.0 * gaussians + 512.0 * spec.farthest / spec.train_length,
    axes=_three,
)
